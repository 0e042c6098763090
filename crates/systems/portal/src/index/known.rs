//! Every object of this system as it is known, with what is looked up often: the portals, and the components of an owner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use signpost_apis::portal::{ComponentState, ComponentStatus};
use signpost_engine::{Identity, ObjectId};

use super::{ComponentFacts, DnsFacts, PortalFacts, Remote};
use crate::plan::Verdicts;
use crate::plan::component::rank;
use crate::report::Decision;

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
    pub decided: Option<Arc<Decision>>,
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
            (Some(_), Some(decided)) => (serde_json::from_str(&decided.fields).ok().map(Arc::new), None),
            (Some(facts), None) => {
                let states = facts.missed.into_iter().chain([facts.state]);
                (facts.decided.clone(), states.max_by_key(|state| rank(*state)))
            }
        }
    }
}

/// The objects by id.
#[derive(Debug, Default)]
pub(super) struct Table {
    known: BTreeMap<Arc<ObjectId>, Known>,
    portals: BTreeSet<Arc<ObjectId>>,
    /// The components by the UID of each owner.
    components: BTreeMap<Box<str>, BTreeSet<Arc<ObjectId>>>,
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
            Facts::Dns(_) | Facts::Record => {}
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
            Facts::Dns(_) | Facts::Record => {}
        }
    }
}
