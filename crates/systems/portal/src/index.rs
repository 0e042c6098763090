//! The requests of DNS, Portal and Component objects, folded from the watch. The entries are kept as types; no object is kept.
//!
//! ```text
//!  DNS ─► entries ─► key of the DNS object          Portal ─► key of the portal, and of the DNS objects that refer to it
//!    └──► verdicts of its last status                Component ─► its own key, and that of the DNS object that owns it
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use signpost_apis::portal::{Component, ComponentState, ComponentStatus, DNS, DnsStatus, Portal};
use signpost_dns::Fqdn;
use signpost_engine::{Identity, Index, ObjectId, Queue, Touch};
use signpost_inventory::{Owner, Source, SyncReason, SyncStatus, Values};

use crate::plan::component::COMPONENT;
use crate::plan::entries::{self, Group};
use crate::plan::judge::Verdict;
use crate::plan::{Checked, Verdicts};
use crate::report::Decision;

/// The subject of a pass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// An object: a DNS, a Portal or a Component.
    Object(Arc<ObjectId>),
    /// The published names of an owner of another system.
    Names(Owner),
    /// The main portal, which is created when it does not exist.
    Main,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Object(id) => id.fmt(f),
            Self::Names(owner) => write!(f, "the names of {owner}"),
            Self::Main => f.write_str("the main portal"),
        }
    }
}

/// The queue of this system. A key is one object, so a touch names no other.
pub type Keys = Queue<Key, ()>;

/// The verdict of an entry in a status, by name, type and targets.
pub type Seed = BTreeMap<(String, Option<String>, Values), Checked>;

/// A DNS object.
#[derive(Clone, Debug)]
pub struct DnsFacts {
    /// The portal that shows its names; empty for the main one.
    pub portal: String,
    /// How its names became known.
    pub source: Source,
    /// Its names.
    pub groups: Arc<Vec<Group>>,
    /// Its annotations about a component.
    pub annotations: BTreeMap<String, String>,
    /// The size of its spec as JSON.
    pub size: usize,
    /// The verdicts that its status had when it was first seen.
    pub seed: Arc<Seed>,
}

/// A portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a field of the spec
pub struct PortalFacts {
    /// Whether it is the main one.
    pub main: bool,
    /// Whether it shows a portal of another cluster.
    pub remote: bool,
    /// Whether it shows names.
    pub dns: bool,
    /// Whether it shows components.
    pub status_page: bool,
}

/// A component.
#[derive(Clone, Debug)]
pub struct ComponentFacts {
    /// The portal that shows it.
    pub portal: String,
    /// The declared state.
    pub state: ComponentState,
    /// The UIDs of its owners.
    pub owners: Vec<String>,
    /// Its status.
    pub status: ComponentStatus,
}

#[derive(Clone, Debug)]
enum Facts {
    Dns(DnsFacts),
    Portal(PortalFacts),
    Component(ComponentFacts),
}

/// An object as it is known.
#[derive(Clone, Debug)]
pub struct Known {
    /// Which, in which incarnation.
    pub identity: Identity,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// The decision of the last pass, until the object changes.
    pub decided: Option<Arc<Decision>>,
    /// The verdicts of the last pass of this process.
    pub(crate) verdicts: Option<Arc<Verdicts>>,
    facts: Facts,
}

impl Known {
    /// As a DNS object.
    pub fn dns(&self) -> Option<&DnsFacts> {
        if let Facts::Dns(facts) = &self.facts { Some(facts) } else { None }
    }

    /// As a portal.
    pub fn portal(&self) -> Option<&PortalFacts> {
        if let Facts::Portal(facts) = &self.facts { Some(facts) } else { None }
    }

    /// As a component.
    pub fn component(&self) -> Option<&ComponentFacts> {
        if let Facts::Component(facts) = &self.facts { Some(facts) } else { None }
    }
}

/// Every object of this system.
pub struct Objects {
    known: Mutex<BTreeMap<Arc<ObjectId>, Known>>,
    /// Names of objects that are to be looked up soon, because what publishes them has changed.
    changed: Mutex<BTreeMap<Arc<ObjectId>, BTreeSet<Fqdn>>>,
    /// The objects with names, by the key of the owner of their views.
    owners: Mutex<BTreeMap<String, Arc<ObjectId>>>,
    queue: Keys,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl Objects {
    pub(crate) fn new(queue: Keys) -> Self {
        Self { known: Mutex::default(), changed: Mutex::default(), owners: Mutex::default(), queue }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<ObjectId>, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object.
    pub(crate) fn get(&self, id: &ObjectId) -> Option<Known> {
        self.lock().get(id).cloned()
    }

    /// The portal of this name.
    pub(crate) fn portal(&self, namespace: Option<&str>, name: &str) -> Option<PortalFacts> {
        self.lock().get(&ObjectId::new::<Portal>(namespace, name))?.portal().copied()
    }

    /// The portal that shows the names of an object, with its name. A discovered object is shown by the portal of the name that it asks for, in
    /// any namespace, or else by a main one.
    pub(crate) fn portal_of(&self, id: &ObjectId, facts: &DnsFacts) -> Option<(String, PortalFacts)> {
        if facts.source != Source::ExternalDns {
            return Some((facts.portal.clone(), self.portal(id.namespace.as_deref(), &facts.portal)?));
        }
        let known = self.lock();
        let local = || {
            let portals = known.iter().filter_map(|(id, known)| Some((id.name.clone(), *known.portal()?)));
            portals.filter(|(_, portal)| !portal.remote)
        };
        local().find(|(name, _)| *name == facts.portal).or_else(|| local().find(|(_, portal)| portal.main))
    }

    /// The object whose views an owner of this system has.
    pub(crate) fn of_owner(&self, owner: &Owner) -> Option<Arc<ObjectId>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).get(owner.key()).cloned()
    }

    /// What publishes names of an object has changed: they are looked up soon.
    pub(crate) fn names_changed(&self, id: &ObjectId, names: BTreeSet<Fqdn>) {
        let Some(id) = self.lock().get_key_value(id).map(|(id, _)| id.clone()) else { return };
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).entry(id.clone()).or_default().extend(names);
        self.touch(&id);
    }

    /// The names of an object whose publisher has changed since the last pass.
    pub(crate) fn take_changed(&self, id: &ObjectId) -> BTreeSet<Fqdn> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).remove(id).unwrap_or_default()
    }

    /// Takes the names that were discovered on an object.
    pub(crate) fn put_source(&self, identity: Identity, facts: &DnsFacts) {
        let same = |before: &Facts| matches!(before, Facts::Dns(before) if before.portal == facts.portal && before.groups == facts.groups);
        let id = identity.id.clone();
        let (_, unchanged) = self.store(identity, Vec::new(), Facts::Dns(facts.clone()), same);
        if !unchanged {
            self.touch(&id);
        }
    }

    fn forget(&self, id: &Arc<ObjectId>) {
        let key = Key::Object(id.clone()).to_string();
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        self.take_changed(id);
    }

    /// An object has no names any more.
    pub(crate) fn remove_source(&self, id: &Arc<ObjectId>) {
        if self.lock().remove(id).is_some() {
            self.forget(id);
            self.queue.note(&Key::Object(id.clone()));
        }
    }

    /// Whether there is a main portal in a namespace.
    pub(crate) fn has_main(&self, namespace: &str) -> bool {
        let known = self.lock();
        let here = known.iter().filter(|(id, _)| id.namespace.as_deref() == Some(namespace));
        here.into_iter().any(|(_, known)| known.portal().is_some_and(|portal| portal.main))
    }

    /// The components that an object owns.
    pub(crate) fn owned_by(&self, uid: &str) -> Vec<(Arc<ObjectId>, ComponentState)> {
        let known = self.lock();
        let component = |(id, known): (&Arc<ObjectId>, &Known)| {
            let facts = known.component().filter(|facts| facts.owners.iter().any(|owner| owner == uid))?;
            Some((id.clone(), facts.state))
        };
        known.iter().filter_map(component).collect()
    }

    /// Takes the verdicts of a pass, unless the object was deleted or replaced meanwhile.
    pub(crate) fn judged(&self, identity: &Identity, verdicts: Arc<Verdicts>) {
        if let Some(known) = self.lock().get_mut(&identity.id).filter(|known| known.identity.uid == identity.uid) {
            known.verdicts = Some(verdicts);
        }
    }

    /// Stores a decision. Returns false when the object has changed since.
    pub(crate) fn settle(&self, decision: Decision) -> Option<Arc<ObjectId>> {
        let mut known = self.lock();
        let known = known.get_mut(&decision.identity.id)?;
        if !known.identity.asks_the_same(&decision.identity) {
            return None;
        }
        let id = decision.identity.id.clone();
        known.decided = Some(Arc::new(decision));
        Some(id)
    }

    fn touch(&self, id: &Arc<ObjectId>) {
        self.queue.touch(Key::Object(id.clone()), Touch::All);
    }

    /// Stores an object. Returns whether it is new, and whether what it asks for is the same as before.
    fn store(
        &self,
        identity: Identity,
        conditions: Vec<Condition>,
        facts: Facts,
        same: impl Fn(&Facts) -> bool,
    ) -> (bool, bool) {
        let mut known = self.lock();
        let before = known.get(&identity.id);
        let unchanged = before.is_some_and(|before| before.identity.asks_the_same(&identity) && same(&before.facts));
        let first = before.is_none();
        if first && matches!(facts, Facts::Dns(_)) {
            let key = Key::Object(identity.id.clone()).to_string();
            self.owners.lock().unwrap_or_else(PoisonError::into_inner).insert(key, identity.id.clone());
        }
        let decided = before.filter(|_| unchanged).and_then(|before| before.decided.clone());
        let verdicts = before.filter(|before| before.identity.uid == identity.uid).and_then(|it| it.verdicts.clone());
        known.insert(identity.id.clone(), Known { identity, conditions, decided, verdicts, facts });
        (first, unchanged)
    }

    /// The status of an object may have to be written, or the object has a new pass.
    fn follow(&self, id: &Arc<ObjectId>, unchanged: bool) {
        if unchanged {
            self.queue.note(&Key::Object(id.clone()));
            self.queue.statuses().enqueue([(id.clone(), Key::Object(id.clone()))]);
        } else {
            self.touch(id);
        }
    }

    /// Touches the DNS objects and components that refer to a portal, and the main portal.
    fn portal_changed(&self, id: &ObjectId) {
        let refers = |(other, known): (&Arc<ObjectId>, &Known)| {
            let portal = match &known.facts {
                Facts::Dns(facts) => &facts.portal,
                Facts::Component(facts) => &facts.portal,
                Facts::Portal(_) => return None,
            };
            let discovered = matches!(&known.facts, Facts::Dns(facts) if facts.source == Source::ExternalDns);
            (discovered || other.namespace == id.namespace && *portal == id.name).then(|| other.clone())
        };
        let referring: Vec<Arc<ObjectId>> = self.lock().iter().filter_map(refers).collect();
        for id in &referring {
            self.touch(id);
        }
        self.queue.touch(Key::Main, Touch::All);
    }
}

impl Index<DNS> for Objects {
    fn applied(&self, object: &DNS) {
        let identity = Identity::of(object);
        let groups = entries::aggregate(entries::collect(&object.spec.groups));
        let annotations = object.annotations().iter().filter(|(key, _)| key.starts_with(COMPONENT));
        let annotations: BTreeMap<String, String> =
            annotations.map(|(key, value)| (key.clone(), value.clone())).collect();
        let status = object.status.as_ref();
        let facts = DnsFacts {
            portal: object.spec.portal_ref.clone(),
            source: if object.spec.is_remote.unwrap_or(false) { Source::Remote } else { Source::Manual },
            groups: Arc::new(groups),
            annotations: annotations.clone(),
            size: serde_json::to_vec(&object.spec).map_or(0, |json| json.len()),
            seed: Arc::new(status.map(seed).unwrap_or_default()),
        };
        let same = |before: &Facts| matches!(before, Facts::Dns(before) if before.annotations == annotations);
        let conditions = status.map(|status| status.conditions.clone()).unwrap_or_default();
        let (first, unchanged) = self.store(identity.clone(), conditions, Facts::Dns(facts), same);
        if !unchanged || first {
            self.touch(&identity.id);
        } else {
            self.follow(&identity.id, true);
        }
    }

    fn deleted(&self, id: &ObjectId) {
        self.lock().remove(id);
        let id = Arc::new(id.clone());
        self.forget(&id);
        self.queue.note(&Key::Object(id));
    }
}

/// The verdicts in a status.
fn seed(status: &DnsStatus) -> Seed {
    let entries = status.groups.iter().flat_map(|group| &group.fqdns);
    let checked = |entry: &signpost_apis::portal::FqdnStatus| {
        let parsed = SyncStatus::parse(entry.sync_status.as_deref()?)?;
        let verdict =
            Verdict::new(parsed, SyncReason::parse(entry.reason.as_deref()?)?, entry.observed.iter().collect());
        let at = entry.checked_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let subject = (entry.fqdn.clone(), entry.record_type.clone(), entry.targets.iter().collect());
        Some((subject, Checked { verdict, at, next: Timestamp::UNIX_EPOCH, failures: 0 }))
    };
    entries.filter_map(checked).collect()
}

impl Index<Portal> for Objects {
    fn applied(&self, object: &Portal) {
        let identity = Identity::of(object);
        let on = |feature: fn(&signpost_apis::portal::PortalFeatures) -> Option<bool>| {
            object.spec.features.as_ref().and_then(feature).unwrap_or(true)
        };
        let facts = PortalFacts {
            main: object.spec.main.unwrap_or(false),
            remote: object.spec.remote.is_some(),
            dns: on(|features| features.dns),
            status_page: on(|features| features.status_page),
        };
        let conditions = object.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let same = |before: &Facts| matches!(before, Facts::Portal(before) if *before == facts);
        let (_, unchanged) = self.store(identity.clone(), conditions, Facts::Portal(facts), same);
        if !unchanged {
            self.portal_changed(&identity.id);
        }
        self.follow(&identity.id, unchanged);
    }

    fn deleted(&self, id: &ObjectId) {
        self.lock().remove(id);
        self.portal_changed(id);
    }

    fn listed(&self) {
        self.queue.touch(Key::Main, Touch::All);
    }
}

impl Index<Component> for Objects {
    fn applied(&self, object: &Component) {
        let identity = Identity::of(object);
        let facts = ComponentFacts {
            portal: object.spec.portal_ref.clone(),
            state: object.spec.status,
            owners: object.owner_references().iter().map(|owner| owner.uid.clone()).collect(),
            status: object.status.clone().unwrap_or_default(),
        };
        let conditions = facts.status.conditions.clone();
        let owners = facts.owners.clone();
        let (_, unchanged) = self.store(identity.clone(), conditions, Facts::Component(facts), |_| true);
        self.follow(&identity.id, unchanged);
        if !unchanged {
            self.owners_of(&owners);
        }
    }

    fn deleted(&self, id: &ObjectId) {
        let removed = self.lock().remove(id);
        if let Some(facts) = removed.as_ref().and_then(Known::component) {
            self.owners_of(&facts.owners);
        }
    }
}

impl Objects {
    /// Touches the DNS objects with these UIDs.
    fn owners_of(&self, owners: &[String]) {
        let owns = |known: &Known| known.dns().is_some() && owners.iter().any(|uid| **uid == *known.identity.uid);
        let found: Vec<Arc<ObjectId>> =
            self.lock().iter().filter(|(_, known)| owns(known)).map(|(id, _)| id.clone()).collect();
        for id in &found {
            self.touch(id);
        }
    }
}
