//! Every object of this system as it is known, with what is looked up often: the portals, and the components of an owner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use signpost_apis::portal::{ComponentState, ComponentStatus};
use signpost_engine::{Identity, Kind, ObjectId};

use super::{ComponentFacts, DnsFacts, PortalFacts, Remote};
use crate::plan::Verdicts;
use crate::plan::component::{COMPONENT, rank};
use crate::report::DecidedStatus;

#[derive(Clone, Debug)]
pub(super) enum Facts {
    Dns(DnsFacts),
    Portal(PortalFacts, Option<Arc<Remote>>),
    Component(ComponentFacts),
    /// A record set of `powerdns`, which reports whether it is served.
    Record,
}

/// An object as it is known.
#[derive(Clone, Debug)]
pub struct Known {
    /// Which, in which incarnation.
    pub identity: Identity,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// The decision of the last pass, until the object changes.
    pub decided: Option<Arc<DecidedStatus>>,
    /// The verdicts of the last pass of this process.
    pub(crate) verdicts: Option<Arc<Verdicts>>,
    pub(super) facts: Facts,
}

impl Known {
    /// As a DNS object.
    pub fn dns(&self) -> Option<&DnsFacts> {
        if let Facts::Dns(facts) = &self.facts { Some(facts) } else { None }
    }

    /// As a portal.
    pub fn portal(&self) -> Option<&PortalFacts> {
        if let Facts::Portal(facts, _) = &self.facts { Some(facts) } else { None }
    }

    /// As a portal of another cluster.
    pub fn remote(&self) -> Option<&Arc<Remote>> {
        if let Facts::Portal(_, remote) = &self.facts { remote.as_ref() } else { None }
    }

    /// Whether it is a record set of `powerdns`.
    pub fn is_record(&self) -> bool {
        matches!(self.facts, Facts::Record)
    }

    /// As a component.
    pub fn component(&self) -> Option<&ComponentFacts> {
        if let Facts::Component(facts) = &self.facts { Some(facts) } else { None }
    }

    /// The status of a component as it was last decided, and the worst state that was declared since: its history has both, also before they are written.
    pub(crate) fn history(&self) -> (Option<Arc<ComponentStatus>>, Option<ComponentState>) {
        match (self.component(), &self.decided) {
            (None, _) => (None, None),
            (Some(_), Some(decided)) => {
                let status = decided.fields.json().and_then(|json| serde_json::from_value(json).ok());
                (status.map(Arc::new), None)
            }
            (Some(facts), None) => {
                let states = facts.missed.into_iter().chain([facts.state]);
                (facts.decided.clone(), states.max_by_key(|state| rank(*state)))
            }
        }
    }
}

/// An id before those of all objects: the ids beside a name or a UID in a sorted set begin there.
pub(crate) fn least() -> Arc<ObjectId> {
    static KIND: Kind =
        Kind { group: String::new(), name: String::new(), version: String::new(), plural: String::new() };
    Arc::new(ObjectId::of_kind(&KIND, None, ""))
}

/// The objects by id.
#[derive(Debug, Default)]
pub(super) struct Table {
    known: BTreeMap<Arc<ObjectId>, Known>,
    portals: BTreeSet<Arc<ObjectId>>,
    /// The components by the UID of each owner.
    components: BTreeMap<Box<str>, BTreeSet<Arc<ObjectId>>>,
    /// The objects with names by their UIDs.
    by_uid: BTreeSet<(Arc<str>, Arc<ObjectId>)>,
    /// The objects that ask for a component, by namespace.
    asking: BTreeSet<(Option<String>, Arc<ObjectId>)>,
}

impl Table {
    pub(super) fn get(&self, id: &ObjectId) -> Option<&Known> {
        self.known.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &ObjectId) -> Option<&mut Known> {
        self.known.get_mut(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<ObjectId>, &Known)> {
        self.known.iter()
    }

    /// The portals, in order.
    pub(super) fn portals(&self) -> impl Iterator<Item = (&Arc<ObjectId>, &PortalFacts)> {
        self.portals.iter().filter_map(|id| Some((id, self.known.get(id)?.portal()?)))
    }

    /// The components with this owner, in order.
    pub(super) fn components_of(&self, uid: &str) -> impl Iterator<Item = (&Arc<ObjectId>, &ComponentFacts)> {
        let ids = self.components.get(uid).into_iter().flatten();
        ids.filter_map(|id| Some((id, self.known.get(id)?.component()?)))
    }

    /// The objects with names that have this UID: several where an object is read in several versions.
    pub(super) fn with_uid(&self, uid: &str) -> impl Iterator<Item = &Arc<ObjectId>> {
        let uid: Arc<str> = uid.into();
        let found = self.by_uid.range((uid.clone(), least())..).take_while(move |(of, _)| *of == uid);
        found.map(|(_, id)| id)
    }

    /// The objects of a namespace that ask for a component.
    pub(super) fn asking(&self, namespace: Option<&str>) -> impl Iterator<Item = (&Arc<ObjectId>, &DnsFacts)> {
        let namespace = namespace.map(str::to_owned);
        let found = self.asking.range((namespace.clone(), least())..).take_while(move |(of, _)| *of == namespace);
        found.filter_map(|(_, id)| Some((id, self.known.get(id)?.dns()?)))
    }

    pub(super) fn insert(&mut self, known: Known) {
        let id = known.identity.id.clone();
        self.unlink(&id);
        match &known.facts {
            Facts::Portal(..) => {
                self.portals.insert(id.clone());
            }
            Facts::Component(facts) => {
                for owner in &facts.owners {
                    self.components.entry(owner.as_str().into()).or_default().insert(id.clone());
                }
            }
            Facts::Dns(facts) => {
                self.by_uid.insert((known.identity.uid.clone(), id.clone()));
                if facts.annotations.contains_key(COMPONENT) {
                    self.asking.insert((id.namespace.clone(), id.clone()));
                }
            }
            Facts::Record => {}
        }
        self.known.insert(id, known);
    }

    pub(super) fn remove(&mut self, id: &ObjectId) -> Option<Known> {
        self.unlink(id);
        self.known.remove(id)
    }

    fn unlink(&mut self, id: &ObjectId) {
        let Some(known) = self.known.get(id) else { return };
        match &known.facts {
            Facts::Portal(..) => {
                self.portals.remove(id);
            }
            Facts::Component(facts) => {
                for owner in &facts.owners {
                    if let Some(ids) = self.components.get_mut(owner.as_str()) {
                        ids.remove(id);
                        if ids.is_empty() {
                            self.components.remove(owner.as_str());
                        }
                    }
                }
            }
            Facts::Dns(facts) => {
                let id = known.identity.id.clone();
                if facts.annotations.contains_key(COMPONENT) {
                    self.asking.remove(&(id.namespace.clone(), id.clone()));
                }
                self.by_uid.remove(&(known.identity.uid.clone(), id));
            }
            Facts::Record => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use signpost_apis::portal::DNS;
    use signpost_inventory::Source;

    use super::*;

    fn known(namespace: &str, name: &str, uid: &str, asks: bool) -> Known {
        let annotations = asks.then(|| (COMPONENT.to_owned(), "Shop".to_owned())).into_iter().collect();
        let facts = DnsFacts {
            portal: String::new(),
            source: Source::Manual,
            groups: Arc::default(),
            annotations,
            size: 0,
            seed: Arc::default(),
            taken: Arc::default(),
            owners: Vec::new(),
            reported: 0,
            omitted: 0,
        };
        let meta = ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() };
        let identity = Identity::of_meta(Arc::new(ObjectId::new::<DNS>(Some(namespace), name)), &meta);
        Known { identity, conditions: Vec::new(), decided: None, verdicts: None, facts: Facts::Dns(facts) }
    }

    #[test]
    fn objects_are_found_by_uid_and_by_the_namespace_that_asks() {
        let mut table = Table::default();
        for (namespace, name, uid, asks) in
            [("a", "one", "u1", true), ("a", "two", "u2", false), ("ab", "one", "u3", true), ("b", "one", "u1", true)]
        {
            table.insert(known(namespace, name, uid, asks));
        }
        let with = |table: &Table, uid: &str| table.with_uid(uid).map(|id| id.path()).collect::<Vec<_>>();
        let asking =
            |table: &Table, space: &str| table.asking(Some(space)).map(|(id, _)| id.path()).collect::<Vec<_>>();
        assert_eq!((with(&table, "u1"), with(&table, "u")), (vec!["a/one".to_owned(), "b/one".to_owned()], vec![]));
        assert_eq!((asking(&table, "a"), asking(&table, "ab")), (vec!["a/one".to_owned()], vec!["ab/one".to_owned()]));
        // The object was created again, and asks for nothing.
        table.insert(known("a", "one", "u9", false));
        assert_eq!((with(&table, "u1"), with(&table, "u9")), (vec!["b/one".to_owned()], vec!["a/one".to_owned()]));
        assert!(asking(&table, "a").is_empty());
        table.remove(&ObjectId::new::<DNS>(Some("b"), "one"));
        assert!(with(&table, "u1").is_empty() && asking(&table, "b").is_empty());
    }
}
