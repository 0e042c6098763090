//! Names of objects that are to be looked up soon, because what publishes them has changed.
//!
//! ```text
//!  names_changed ─► waiting ─► take_changed ─► a pass ─► answered
//!                      ▲                          └─ cut off, or not answered ─┐
//!                      └──────────────────────────────────────────────────────┘
//! ```

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use signpost_dns::Fqdn;
use signpost_engine::ObjectId;

use super::Objects;

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

impl Objects {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Keys;
    use signpost_apis::portal::DNS;
    use signpost_engine::Index;

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
}
