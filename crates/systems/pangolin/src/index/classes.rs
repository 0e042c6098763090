//! What the class of an Ingress means, and what changes with an IngressClass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use signpost_apis::ingress::IngressClass;
use signpost_engine::{Index, ObjectId};
use signpost_exposure::{Class, decide_class};

use super::{Claimant, IngressId, PangolinIndex, State};

impl State {
    /// Whether something is exposed for an Ingress.
    pub(super) fn is_exposed(&self, id: &IngressId) -> bool {
        self.children.contains_key(id) || self.outcomes.get(id).is_some_and(|outcome| !outcome.hosts.is_empty())
    }
}

impl PangolinIndex {
    /// Whether a class has no object, and this was not reported before.
    pub(crate) fn is_missing_class(&self, class: &str) -> bool {
        let mut state = self.lock();
        state.classes_listed && !state.classes.contains_key(class) && state.classes_missing.insert(class.to_owned())
    }

    /// What a class means for an Ingress. A class that does not exist any more means what it meant when the Ingress was exposed: what is
    /// missing withdraws no host.
    pub(super) fn class_of(
        &self,
        state: &State,
        id: &IngressId,
        name: Option<&str>,
        enabled: Option<bool>,
        noted: Option<&str>,
        misspelt: bool,
    ) -> Class {
        let rules = &self.policy.class;
        let was_ours = |name: &str| {
            let mut children = state.children.get(id).into_iter().flat_map(BTreeMap::values);
            noted == Some(name) || children.any(|child| child.class.as_deref() == Some(name))
        };
        let controller = name.and_then(|name| match state.classes.get(name) {
            Some(controller) => Some(controller.as_str()),
            None => was_ours(name).then_some(rules.controller.as_str()),
        });
        match decide_class(rules, name, controller, enabled) {
            // A value that cannot be read is refused; it does not withdraw what exists, and claims nothing else.
            Class::Foreign if rules.opt_in && misspelt => Class::Default,
            class => class,
        }
    }

    /// The class of an Ingress, where only the controller of the class makes it ours. It is noted beside what is exposed.
    pub(crate) fn class_to_note(&self, claimant: &Claimant) -> Option<String> {
        let name = claimant.class_name.as_deref()?;
        let rules = &self.policy.class;
        let by_name = decide_class(rules, Some(name), None, None) != Class::Foreign;
        let state = self.lock();
        let controller = state.classes.get(name);
        let ours = match controller {
            Some(controller) => *controller == rules.controller,
            None => {
                self.class_of(&state, &claimant.identity.id, Some(name), None, claimant.noted_class.as_deref(), false)
                    != Class::Foreign
            }
        };
        (ours && !by_name).then(|| name.to_owned())
    }

    /// Decides again what the class of an Ingress means; returns who is concerned.
    pub(super) fn classify(&self, state: &mut State, claimant: &Arc<Claimant>) -> BTreeSet<IngressId> {
        let id = &claimant.identity.id;
        let (enabled, noted) = (claimant.annotations.options.enabled, claimant.noted_class.as_deref());
        let misspelt = claimant.misspelt && (claimant.applied.is_some() || state.is_exposed(id));
        let class = self.class_of(state, id, claimant.class_name.as_deref(), enabled, noted, misspelt);
        if class == claimant.class {
            return BTreeSet::new();
        }
        let next = Arc::new(Claimant { class, ..(**claimant).clone() });
        let mut concerned = self.replace(state, id, Some(&next));
        concerned.insert(id.clone());
        concerned
    }

    /// Takes note of a class; what its Ingresses mean may change with it.
    fn set_class(&self, name: &str, controller: Option<&str>) {
        let mut state = self.lock();
        let before = match controller {
            Some(controller) => state.classes.insert(name.to_owned(), controller.to_owned()),
            None => state.classes.remove(name),
        };
        if before.as_deref() == controller {
            return;
        }
        let of_class: Vec<Arc<Claimant>> =
            state.claimants.values().filter(|known| known.class_name.as_deref() == Some(name)).cloned().collect();
        let mut concerned = BTreeSet::new();
        for claimant in of_class {
            concerned.extend(self.classify(&mut state, &claimant));
        }
        drop(state);
        self.touch(concerned);
    }
}

impl Index<IngressClass> for PangolinIndex {
    fn applied(&self, class: &IngressClass) {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        self.set_class(name, Some(class.spec.controller.as_deref().unwrap_or_default()));
    }

    fn deleted(&self, id: &ObjectId) {
        self.set_class(&id.name, None);
    }

    fn listed(&self) {
        self.lock().classes_listed = true;
    }
}
