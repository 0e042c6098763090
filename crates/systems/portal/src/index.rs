//! The requests of DNS, Portal and Component objects, folded from the watch. The entries are kept as types; no object is kept.
//!
//! ```text
//!  DNS ─► entries ─► key of the DNS object          Portal ─► key of the portal, and of the DNS objects that refer to it
//!    └──► verdicts of its last status                Component ─► its own key, and that of the DNS object that owns it
//! ```

mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use signpost_apis::portal::{
    Component, ComponentState, ComponentStatus, DNS, DnsEntry, DnsGroup, DnsStatus, FqdnGroupStatus, FqdnStatus,
    Portal, RemotePortal, RemoteSync,
};
use signpost_apis::powerdns::{ClusterRRset, RRset, RRsetStatus};
use signpost_apis::{gatewayapi, istio};
use signpost_dns::Fqdn;
use signpost_engine::{Identity, Index, ObjectId, Place, Queue, Touch};
use signpost_inventory::{Owner, Provenance, Source, SyncReason, SyncStatus, Values};
use tokio::sync::{Notify, watch};

use crate::discover::Discovery;
use crate::discover::read::{DEFAULT_GROUP, Notes};
use crate::plan::component::{COMPONENT, DNS_CONTROLLER, MANAGED_BY, SOURCE_CONTROLLER};
use crate::plan::entries::{self, Group};
use crate::plan::judge::Verdict;
use crate::plan::{Checked, Verdicts};
use crate::report::{Decision, SERVED};

pub use known::Known;
use known::{Facts, Table};

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
            // Kinds of these groups have the same name in two groups, or in two versions.
            Self::Object(id) if [gatewayapi::GROUP, istio::GROUP].contains(&id.kind.group.as_str()) => {
                write!(f, "{id} of {}", id.kind.api_version())
            }
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
    /// The verdicts of its status.
    pub seed: Arc<Seed>,
    /// The generation that its status is for.
    pub reported: i64,
    /// The names that were taken over from a remote portal, as its status has them.
    pub taken: Arc<Vec<FqdnGroupStatus>>,
    /// The UIDs of its owners.
    pub owners: Vec<String>,
    /// Names that are not among them: those that did not fit into the status of a remote portal's copy, or that are too many for one object.
    pub omitted: usize,
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

/// A portal of another cluster, and what is known of the last visit.
#[derive(Clone, Debug, PartialEq)]
pub struct Remote {
    /// Where it is.
    pub spec: RemotePortal,
    /// The last visit, as in the status.
    pub sync: Option<RemoteSync>,
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
    /// Whether an object that is read for its names asked for it.
    pub discovered: bool,
    /// Whether the annotations of an object asked for it, and not a user.
    pub managed: bool,
    /// Its status.
    pub status: ComponentStatus,
}

/// Names of portals and groups that are remembered.
const MOST_WORDS: usize = 10_000;

/// Every object of this system.
pub struct Objects {
    known: Mutex<Table>,
    /// Names of objects that are to be looked up soon, because what publishes them has changed.
    changed: Mutex<BTreeMap<Arc<ObjectId>, BTreeSet<Fqdn>>>,
    /// The objects with names, by the key of the owner of their views.
    owners: Mutex<BTreeMap<String, Arc<ObjectId>>>,
    queue: Keys,
    /// Who knows the objects that are read for their names.
    discovery: OnceLock<Weak<Discovery>>,
    /// A condition of a record set has changed.
    served: Notify,
    /// Where names of systems are shown has changed.
    places: watch::Sender<()>,
    /// Names of portals and groups, each once.
    words: Mutex<BTreeSet<Arc<str>>>,
    /// The operator's own namespace; empty where it is not watched.
    namespace: String,
}

/// Names of an object that are to be looked up in a pass. Those that were not answered are given back, also when the pass is cut off.
pub(crate) struct ChangedNames<'a> {
    objects: &'a Objects,
    id: Arc<ObjectId>,
    names: BTreeSet<Fqdn>,
}

impl ChangedNames<'_> {
    pub(crate) fn names(&self) -> &BTreeSet<Fqdn> {
        &self.names
    }

    /// Ends the pass: the names that were answered are returned, and the others are given back.
    pub(crate) fn answered(mut self, is_answered: impl Fn(&Fqdn) -> bool) -> BTreeSet<Fqdn> {
        let (answered, left) = std::mem::take(&mut self.names).into_iter().partition(is_answered);
        self.names = left;
        answered
    }
}

impl Drop for ChangedNames<'_> {
    fn drop(&mut self) {
        let known = self.objects.lock();
        if self.names.is_empty() || known.get(&self.id).is_none() {
            return;
        }
        let mut changed = self.objects.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.entry(self.id.clone()).or_default().append(&mut self.names);
    }
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl Objects {
    pub(crate) fn new(queue: Keys, namespace: &str) -> Self {
        Self {
            known: Mutex::default(),
            changed: Mutex::default(),
            owners: Mutex::default(),
            queue,
            discovery: OnceLock::new(),
            served: Notify::new(),
            places: watch::Sender::new(()),
            words: Mutex::default(),
            namespace: namespace.to_owned(),
        }
    }

    /// Waits until a condition `Served` of a record set has changed.
    pub(crate) async fn conditions_changed(&self) {
        self.served.notified().await;
    }

    /// Names who knows the objects that are read for their names.
    pub(crate) fn discovered_by(&self, discovery: &Arc<Discovery>) {
        let _ = self.discovery.set(Arc::downgrade(discovery));
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
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

    /// When the remote portal of a copy was last read.
    pub(crate) fn last_visit(&self, id: &ObjectId, copy: &DnsFacts) -> Option<Timestamp> {
        let table = self.lock();
        let portal = table.get(&ObjectId::new::<Portal>(id.namespace.as_deref(), &copy.portal))?;
        Some(portal.remote()?.sync.as_ref()?.last_sync_time.as_ref()?.0)
    }

    /// The portal that shows the names of an object, with its name. The portal of a DNS object is in its own namespace. A discovered object may also
    /// name one of the operator's namespace, and is else shown by the main portal there; without one, by the oldest main portal.
    pub(crate) fn portal_of(&self, id: &ObjectId, facts: &DnsFacts) -> Option<(String, PortalFacts)> {
        if facts.source != Source::ExternalDns {
            return Some((facts.portal.clone(), self.portal(id.namespace.as_deref(), &facts.portal)?));
        }
        self.portal_of_source(id.namespace.as_deref(), &facts.portal)
    }

    /// The portal that shows the names of an object in this namespace, which asks for a portal, or for none.
    fn portal_of_source(&self, namespace: Option<&str>, portal: &str) -> Option<(String, PortalFacts)> {
        let table = self.lock();
        let named = |namespace: Option<&str>| {
            let id = ObjectId::new::<Portal>(namespace, portal);
            table.get(&id).and_then(Known::portal).filter(|portal| !portal.remote).copied()
        };
        let asked = named(namespace).or_else(|| named(Some(&self.namespace)));
        asked.map(|facts| (portal.to_owned(), facts)).or_else(|| self.main(&table))
    }

    /// Who is notified when names of systems are shown in another place.
    pub(crate) fn places(&self) -> watch::Receiver<()> {
        self.places.subscribe()
    }

    /// Names of systems are shown in another place.
    pub(crate) fn places_changed(&self) {
        self.places.send_replace(());
    }

    fn word(&self, text: &str) -> Arc<str> {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.len() >= MOST_WORDS {
            words.clear();
        }
        if let Some(word) = words.get(text) {
            return word.clone();
        }
        let word: Arc<str> = text.into();
        words.insert(word.clone());
        word
    }

    /// The main portal of discovered objects.
    fn main(&self, table: &Table) -> Option<(String, PortalFacts)> {
        let mains = table.portals().filter(|(_, portal)| portal.main && !portal.remote);
        let claim = |id: &Arc<ObjectId>| table.get(id).map(|known| known.identity.claim());
        let found = mains.min_by_key(|(id, _)| (id.namespace.as_deref() != Some(&*self.namespace), claim(id)));
        found.map(|(id, portal)| (id.name.clone(), *portal))
    }

    /// Whether the portal of a component exists: in its namespace, or where a discovered object may have its portal.
    pub(crate) fn has_portal(&self, id: &ObjectId, component: &ComponentFacts) -> bool {
        let table = self.lock();
        let named =
            |namespace: Option<&str>| table.get(&ObjectId::new::<Portal>(namespace, &component.portal)).is_some();
        let discovered =
            || named(Some(&self.namespace)) || self.main(&table).is_some_and(|(name, _)| name == component.portal);
        named(id.namespace.as_deref()) || component.discovered && discovered()
    }

    /// The object whose views an owner of this system has.
    pub(crate) fn of_owner(&self, owner: &Owner) -> Option<Arc<ObjectId>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).get(owner.key()).cloned()
    }

    /// What publishes names of an object has changed: they are looked up soon.
    pub(crate) fn names_changed(&self, id: &ObjectId, names: BTreeSet<Fqdn>) {
        let Some(id) = self.lock().get(id).map(|known| known.identity.id.clone()) else { return };
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).entry(id.clone()).or_default().extend(names);
        self.touch(&id);
    }

    /// The names of an object whose publisher has changed since they were last looked up.
    pub(crate) fn take_changed(&self, id: &Arc<ObjectId>) -> ChangedNames<'_> {
        let names = self.changed.lock().unwrap_or_else(PoisonError::into_inner).remove(id).unwrap_or_default();
        ChangedNames { objects: self, id: id.clone(), names }
    }

    /// Takes the names that were discovered on an object.
    pub(crate) fn put_source(&self, identity: Identity, facts: &DnsFacts) {
        let same = |before: &Facts| {
            matches!(before, Facts::Dns(before)
                if before.portal == facts.portal && before.groups == facts.groups
                    && before.annotations == facts.annotations && before.omitted == facts.omitted)
        };
        let id = identity.id.clone();
        let (_, unchanged) = self.store(identity, Vec::new(), Facts::Dns(facts.clone()), same);
        if !unchanged {
            self.touch(&id);
        }
    }

    fn forget(&self, id: &Arc<ObjectId>) {
        let key = Key::Object(id.clone()).to_string();
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
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
        self.lock().portals().any(|(id, portal)| portal.main && id.namespace.as_deref() == Some(namespace))
    }

    /// The components that the annotations of an object asked for. One that a user made belongs to the user, whoever its owner is.
    pub(crate) fn owned_by(&self, owner: &Identity) -> Vec<(Arc<ObjectId>, ComponentState)> {
        let table = self.lock();
        let of_owner = table.components_of(&owner.uid);
        let ours = of_owner.filter(|(id, facts)| facts.managed && id.namespace == owner.id.namespace);
        ours.map(|(id, facts)| (id.clone(), facts.state)).collect()
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
        known.insert(Known { identity, conditions, decided, verdicts, facts });
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
                Facts::Portal(..) | Facts::Record => return None,
            };
            let refers = match &known.facts {
                Facts::Dns(facts) if facts.source == Source::ExternalDns => true,
                Facts::Component(facts) if facts.discovered => *portal == id.name,
                _ => other.namespace == id.namespace && *portal == id.name,
            };
            refers.then(|| other.clone())
        };
        let referring: Vec<Arc<ObjectId>> = self.lock().iter().filter_map(refers).collect();
        for id in &referring {
            self.touch(id);
        }
        self.queue.touch(Key::Main, Touch::All);
        self.places_changed();
    }
}

/// The names of systems are shown like discovered ones: as the annotations of their object ask for, or else by the main portal in the default group.
impl Place for Objects {
    fn place(&self, provenance: &mut Provenance) -> bool {
        let discovery = self.discovery.get().and_then(Weak::upgrade);
        let notes = discovery.and_then(|discovery| discovery.notes_of(&provenance.origin));
        let (asked, groups, hidden) = notes.as_ref().map(Notes::place).unwrap_or_default();
        let namespace = Some(&*provenance.origin.namespace).filter(|namespace| !namespace.is_empty());
        let portal = self.portal_of_source(namespace, asked.unwrap_or_default()).filter(|(_, portal)| portal.dns);
        let groups: BTreeSet<&str> = groups.iter().map(String::as_str).collect();
        provenance.groups = groups.into_iter().map(|group| self.word(group)).collect();
        if provenance.groups.is_empty() {
            provenance.groups.push(self.word(DEFAULT_GROUP));
        }
        provenance.portals = portal.into_iter().map(|(name, _)| self.word(&name)).collect();
        !hidden
    }
}

impl Index<DNS> for Objects {
    fn applied(&self, object: &DNS) {
        let identity = Identity::of(object);
        let annotations = object.annotations().iter().filter(|(key, _)| key.starts_with(COMPONENT));
        let annotations: BTreeMap<String, String> =
            annotations.map(|(key, value)| (key.clone(), value.clone())).collect();
        let status = object.status.as_ref();
        let source = if object.spec.is_remote.unwrap_or(false) { Source::Remote } else { Source::Manual };
        let taken = status.filter(|_| source == Source::Remote).map(|status| status.groups.clone()).unwrap_or_default();
        let shown: Vec<DnsGroup> = taken.iter().map(as_spec).collect();
        let groups = if shown.is_empty() { &object.spec.groups } else { &shown };
        // With verdicts of this process, those of the status are not needed.
        let judged = self
            .lock()
            .get(&identity.id)
            .is_some_and(|known| known.verdicts.is_some() && known.identity.uid == identity.uid);
        let facts = DnsFacts {
            portal: object.spec.portal_ref.clone(),
            source,
            groups: Arc::new(entries::aggregate(entries::collect(groups))),
            taken: Arc::new(taken),
            reported: status.and_then(|status| status.observed_generation).unwrap_or_default(),
            omitted: status.and_then(|status| usize::try_from(status.omitted?).ok()).unwrap_or_default(),
            annotations: annotations.clone(),
            owners: object.owner_references().iter().map(|owner| owner.uid.clone()).collect(),
            size: size_of(object),
            seed: Arc::new(status.filter(|_| !judged).map(|status| seed(status, source)).unwrap_or_default()),
        };
        let same = |before: &Facts| matches!(before, Facts::Dns(before) if before.annotations == annotations);
        let conditions = status.map(|status| status.conditions.clone()).unwrap_or_default();
        let (first, unchanged) = self.store(identity.clone(), conditions, Facts::Dns(facts), same);
        if !unchanged || first {
            self.touch(&identity.id);
        } else {
            self.follow(&identity.id, true);
        }
        if source == Source::Remote && first {
            let portal = ObjectId::new::<Portal>(identity.id.namespace.as_deref(), &object.spec.portal_ref);
            self.touch(&Arc::new(portal));
        }
    }

    fn deleted(&self, id: &ObjectId) {
        let removed = self.lock().remove(id);
        if let Some(facts) = removed.as_ref().and_then(Known::dns).filter(|facts| facts.source == Source::Remote) {
            // The copy of a remote portal: it is made again.
            self.touch(&Arc::new(ObjectId::new::<Portal>(id.namespace.as_deref(), &facts.portal)));
        }
        let id = Arc::new(id.clone());
        self.forget(&id);
        self.queue.note(&Key::Object(id));
    }
}

/// The size of an object without its status, as JSON. What `kubectl apply` stores in an annotation is a part of it.
fn size_of(object: &DNS) -> usize {
    let annotations = object.annotations().iter().map(|(key, value)| key.len() + value.len() + 8).sum::<usize>();
    serde_json::to_vec(&object.spec).map_or(0, |json| json.len()) + annotations
}

/// The names of a remote portal's group as a user would write them.
fn as_spec(group: &FqdnGroupStatus) -> DnsGroup {
    let (name, description) = (group.name.clone(), group.description.clone());
    DnsGroup { name, description, entries: group.fqdns.iter().map(taken_over).collect() }
}

fn entry_of(fqdn: &FqdnStatus) -> DnsEntry {
    DnsEntry {
        fqdn: fqdn.fqdn.clone(),
        description: fqdn.description.clone(),
        record_type: fqdn.record_type.clone(),
        targets: fqdn.targets.clone(),
        ..DnsEntry::default()
    }
}

/// A name of a remote portal. Its targets are not judged here, so those that cannot be read do not hide the name.
fn taken_over(fqdn: &FqdnStatus) -> DnsEntry {
    let entry = entry_of(fqdn);
    if entries::read(&entry).question.is_ok() {
        return entry;
    }
    DnsEntry { record_type: None, targets: Vec::new(), ..entry }
}

/// The verdicts in a status, by name, type and targets in canonical form. Those of a remote portal have no reason.
fn seed(status: &DnsStatus, source: Source) -> Seed {
    let fqdns = status.groups.iter().flat_map(|group| &group.fqdns);
    let checked = |fqdn: &FqdnStatus| {
        let parsed = SyncStatus::parse(fqdn.sync_status.as_deref()?)?;
        let reason = SyncReason::parse(fqdn.reason.as_deref().unwrap_or_default())?;
        let wanted = entries::read(&if source == Source::Remote { taken_over(fqdn) } else { entry_of(fqdn) });
        let verdict = Verdict::new(parsed, reason, fqdn.observed.iter().collect());
        let (at, never) =
            (fqdn.checked_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0), Timestamp::UNIX_EPOCH);
        let rtype = wanted.question.ok()?.rtype.map(|rtype| rtype.as_str().to_owned());
        let subject = (wanted.shown, rtype, wanted.targets);
        Some((subject, Checked { verdict, at, next: never, from: never, failures: 0 }))
    };
    fqdns.filter_map(checked).collect()
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
        let sync = || object.status.as_ref().and_then(|status| status.remote_sync.clone());
        let remote = object.spec.remote.clone().map(|spec| Arc::new(Remote { spec, sync: sync() }));
        let place = object.spec.remote.as_ref();
        let same = |before: &Facts| matches!(before, Facts::Portal(before, at) if *before == facts && at.as_ref().map(|at| &at.spec) == place);
        let (_, unchanged) = self.store(identity.clone(), conditions, Facts::Portal(facts, remote.clone()), same);
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
        let by = object.labels().get(MANAGED_BY).map(String::as_str);
        let facts = ComponentFacts {
            portal: object.spec.portal_ref.clone(),
            state: object.spec.status,
            owners: object.owner_references().iter().map(|owner| owner.uid.clone()).collect(),
            discovered: by == Some(SOURCE_CONTROLLER),
            managed: matches!(by, Some(SOURCE_CONTROLLER | DNS_CONTROLLER)),
            status: object.status.clone().unwrap_or_default(),
        };
        let conditions = facts.status.conditions.clone();
        let (owners, discovered) = (facts.owners.clone(), facts.discovered);
        let (_, unchanged) = self.store(identity.clone(), conditions, Facts::Component(facts), |_| true);
        self.follow(&identity.id, unchanged);
        if !unchanged && !self.owners_of(&owners) && discovered {
            // Its object may have no names, and no annotation any more.
            if let Some(discovery) = self.discovery.get().and_then(Weak::upgrade) {
                discovery.show_owner(&owners);
            }
        }
    }

    fn deleted(&self, id: &ObjectId) {
        let removed = self.lock().remove(id);
        if let Some(facts) = removed.as_ref().and_then(Known::component) {
            self.owners_of(&facts.owners);
        }
    }
}

impl Index<RRset> for Objects {
    fn applied(&self, object: &RRset) {
        self.put_record(Identity::of(object), object.status.as_ref());
    }

    fn deleted(&self, id: &ObjectId) {
        self.lock().remove(id);
    }
}

impl Index<ClusterRRset> for Objects {
    fn applied(&self, object: &ClusterRRset) {
        self.put_record(Identity::of(object), object.status.as_ref());
    }

    fn deleted(&self, id: &ObjectId) {
        self.lock().remove(id);
    }
}

impl Objects {
    /// Takes a record set of `powerdns`. The result of its lookups is decided by a pass over the names of its zone.
    fn put_record(&self, identity: Identity, status: Option<&RRsetStatus>) {
        let conditions = status.iter().flat_map(|status| &status.conditions);
        let served: Vec<Condition> = conditions.filter(|condition| condition.type_ == SERVED).cloned().collect();
        let id = identity.id.clone();
        let changed = self.lock().get(&id).map_or(&[][..], |known| &known.conditions) != served;
        let (_, unchanged) = self.store(identity, served, Facts::Record, |_| true);
        if changed {
            self.served.notify_one();
        }
        if unchanged {
            self.queue.statuses().enqueue([(id.clone(), Key::Object(id))]);
        }
    }

    /// Touches the objects with names that have these UIDs. Returns whether there are any.
    fn owners_of(&self, owners: &[String]) -> bool {
        let owns = |known: &Known| known.dns().is_some() && owners.iter().any(|uid| **uid == *known.identity.uid);
        let found: Vec<Arc<ObjectId>> =
            self.lock().iter().filter(|(_, known)| owns(known)).map(|(id, _)| id.clone()).collect();
        for id in &found {
            self.touch(id);
        }
        !found.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_apis::gatewayapi::{Gateway, TlsRoute, TlsRouteAlpha};
    use signpost_apis::istio::IstioGateway;

    #[test]
    fn changed_names_that_were_not_answered_are_given_back() {
        let objects = Objects::new(Keys::default(), "");
        let object: DNS = serde_json::from_value(serde_json::json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "DNS", "metadata": { "name": "team", "namespace": "a", "uid": "u" },
            "spec": { "portalRef": "main" },
        }))
        .unwrap();
        Index::<DNS>::applied(&objects, &object);
        let id = Arc::new(ObjectId::of(&object));
        let names = ["a.example.org", "b.example.org"].map(|name| Fqdn::parse(name).unwrap());
        objects.names_changed(&id, names.clone().into());
        drop(objects.take_changed(&id));
        let all = objects.take_changed(&id);
        assert_eq!(*all.names(), BTreeSet::from(names.clone()), "the pass was cut off");
        assert_eq!(all.answered(|name| *name == names[0]), BTreeSet::from([names[0].clone()]));
        let left = objects.take_changed(&id);
        assert_eq!(*left.names(), BTreeSet::from([names[1].clone()]));
        Index::<DNS>::deleted(&objects, &id);
        drop(left);
        assert!(objects.take_changed(&id).names().is_empty(), "the object was deleted");
    }

    #[test]
    fn objects_of_two_groups_or_versions_have_different_keys() {
        let text = |id: ObjectId| Key::Object(Arc::new(id)).to_string();
        let (one, other) = (ObjectId::new::<TlsRoute>(Some("a"), "b"), ObjectId::new::<TlsRouteAlpha>(Some("a"), "b"));
        assert_ne!(text(one), text(other));
        let (one, other) = (ObjectId::new::<Gateway>(Some("a"), "b"), ObjectId::new::<IstioGateway>(Some("a"), "b"));
        assert_ne!(text(one), text(other));
    }
}
