//! The requests of DNS, Portal and Component objects as they are known, and the portal that shows a name. The entries are kept as types; no object is
//! kept. `fold` reads the events of the watch, `changed` has the names that are to be looked up soon.

mod changed;
mod fold;
mod known;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use signpost_apis::portal::{
    Component, ComponentState, ComponentStatus, FqdnGroupStatus, Portal, RemotePortal, RemoteSync,
};
use signpost_apis::{gatewayapi, istio};
use signpost_dns::Fqdn;
use signpost_engine::{Identity, ObjectId, Place, Queue, Touch};
use signpost_inventory::{Owner, Provenance, Source, Values};
use tokio::sync::{Notify, watch};

use crate::discover::Discovery;
use crate::discover::read::{DEFAULT_GROUP, Notes};
use crate::plan::entries::Group;
use crate::plan::{Checked, Verdicts};
use crate::report::Decision;

pub use known::Known;
pub(crate) use known::least;
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
    /// Its status, as the watch has delivered it.
    pub status: ComponentStatus,
    /// The status of the last decision, which the watch may not have delivered.
    pub decided: Option<Arc<ComponentStatus>>,
    /// The worst state that was declared since that decision, and declared otherwise before a pass saw it.
    pub missed: Option<ComponentState>,
}

/// A component that the annotations of an object asked for.
#[derive(Clone, Debug)]
pub struct Owned {
    /// Which.
    pub id: Arc<ObjectId>,
    /// The declared state.
    pub state: ComponentState,
    /// When it was created.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub leaving: bool,
}

/// Names of portals and groups that are remembered.
const MOST_WORDS: usize = 10_000;

/// The UID of an object, and the name of a component that was created for it.
type WrittenComponent = (Arc<str>, String);

/// Every object of this system.
pub struct Objects {
    known: Mutex<Table>,
    /// Names of objects that are to be looked up soon, because what publishes them has changed.
    changed: Mutex<BTreeMap<Arc<ObjectId>, BTreeSet<Fqdn>>>,
    /// The objects with names, by the key of the owner of their views.
    owners: Mutex<BTreeMap<String, Arc<ObjectId>>>,
    /// The component that was created last for an object with this UID, until the watch has delivered it.
    written: Mutex<BTreeMap<Arc<ObjectId>, WrittenComponent>>,
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
            written: Mutex::default(),
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
        self.written.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
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

    /// The components that the annotations of an object asked for, the youngest first. One that a user made belongs to the user, whoever its owner is.
    pub(crate) fn owned_by(&self, owner: &Identity) -> Vec<Owned> {
        let table = self.lock();
        let of_owner = table.components_of(&owner.uid);
        let ours = of_owner.filter(|(id, facts)| facts.managed && id.namespace == owner.id.namespace);
        let read = |(id, facts): (&Arc<ObjectId>, &ComponentFacts)| {
            let identity = &table.get(id)?.identity;
            let (created, leaving) = (identity.created, identity.is_deleting());
            Some(Owned { id: id.clone(), state: facts.state, created, leaving })
        };
        let mut owned: Vec<Owned> = ours.filter_map(read).collect();
        owned.sort_by_key(|component| Reverse(component.created));
        owned
    }

    /// A component of an object was written. It is remembered until the watch delivers it.
    pub(crate) fn wrote(&self, owner: &Identity, name: &str) {
        let table = self.lock();
        let exists = table.get(&owner.id).is_some_and(|known| known.identity.uid == owner.uid);
        let component = ObjectId::new::<Component>(owner.id.namespace.as_deref(), name);
        if exists && table.get(&component).is_none() {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            written.insert(owner.id.clone(), (owner.uid.clone(), name.to_owned()));
        }
    }

    /// The component that was created last for an object, unless the watch has delivered it.
    pub(crate) fn written(&self, owner: &Identity) -> Option<String> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.get(&owner.id).filter(|(uid, _)| *uid == owner.uid).map(|(_, name)| name.clone())
    }

    /// The watch has delivered the component of an object.
    pub(crate) fn delivered(&self, owner: &Identity) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).remove(&owner.id);
    }

    /// Takes the verdicts of a pass, unless the object was deleted or replaced meanwhile.
    pub(crate) fn judged(&self, identity: &Identity, verdicts: Arc<Verdicts>) {
        if let Some(known) = self.lock().get_mut(&identity.id).filter(|known| known.identity.uid == identity.uid) {
            known.verdicts = Some(verdicts);
            // Those of the status are among them.
            if let Facts::Dns(facts) = &mut known.facts {
                facts.seed = Arc::default();
            }
        }
    }

    /// Stores a decision. Returns false when the object has changed since.
    pub(crate) fn settle(&self, decision: Decision) -> Option<Arc<ObjectId>> {
        let mut known = self.lock();
        let known = known.get_mut(&decision.identity.id)?;
        if !known.identity.asks_the_same(&decision.identity) {
            return None;
        }
        known.decided = Some(Arc::new(decision.status));
        Some(known.identity.id.clone())
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

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_apis::gatewayapi::{Gateway, TlsRoute, TlsRouteAlpha};
    use signpost_apis::istio::IstioGateway;
    use signpost_apis::portal::DNS;
    use signpost_engine::Index;

    #[test]
    fn the_youngest_component_is_the_first_and_one_that_leaves_is_marked() {
        let objects = Objects::new(Keys::default(), "");
        let owner: DNS = serde_json::from_value(serde_json::json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "DNS", "metadata": { "name": "team", "namespace": "a", "uid": "u" },
            "spec": { "portalRef": "main" },
        }))
        .unwrap();
        Index::<DNS>::applied(&objects, &owner);
        let owner = Identity::of(&owner);
        objects.wrote(&owner, "b");
        assert_eq!(objects.written(&owner).as_deref(), Some("b"));
        for (name, created, deleted) in [("a", 1, Some("2026-01-01T00:00:09Z")), ("b", 2, None), ("c", 1, None)] {
            let component: Component = serde_json::from_value(serde_json::json!({
                "apiVersion": "sreportal.io/v1alpha1", "kind": "Component",
                "metadata": {
                    "name": name, "namespace": "a", "uid": name, "labels": { "sreportal.io/managed-by": "dns-controller" },
                    "creationTimestamp": format!("2026-01-01T00:00:0{created}Z"), "deletionTimestamp": deleted,
                    "ownerReferences": [{ "apiVersion": "sreportal.io/v1alpha1", "kind": "DNS", "name": "team", "uid": "u" }],
                },
                "spec": { "displayName": name, "group": "apps", "portalRef": "main", "status": "operational" },
            }))
            .unwrap();
            Index::<Component>::applied(&objects, &component);
        }
        let owned = objects.owned_by(&owner);
        let seen: Vec<(&str, bool)> = owned.iter().map(|it| (it.id.name.as_str(), it.leaving)).collect();
        assert_eq!(seen, [("b", false), ("a", true), ("c", false)]);
        objects.delivered(&owner);
        objects.wrote(&owner, "b");
        assert_eq!(objects.written(&owner), None, "the watch has delivered it already");
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
