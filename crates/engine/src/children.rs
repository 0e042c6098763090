//! The objects that a system has created, as the watch shows them.
//!
//! In: watch events of a kind of children. Out: a map from each child to the few facts a system needs of it (for example its owner), a call
//! when one changes, and a call when children were deleted that the watch never delivered. [`crate::Writer::apply_child`] compares a child with what is wanted, from the same watch.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    hub::{Index, Watched},
    object::ObjectId,
};

type Read<K, T> = Box<dyn Fn(&K) -> Option<T> + Send + Sync>;
type Changed<T> = Box<dyn Fn(&ObjectId, &T) + Send + Sync>;
type Lost = Box<dyn Fn() + Send + Sync>;

/// The children of one kind.
///
/// `read` takes the facts from an object, or `None` when it is not one of ours; `changed` is called with the facts when a child appears,
/// changes in any way or is deleted. `lost` is called when children were deleted that the watch had not delivered yet. Which ones is not known, so it
/// touches every key (see [`Index::children_lost`]).
pub struct ChildIndex<K, T> {
    children: Mutex<BTreeMap<Arc<ObjectId>, T>>,
    read: Read<K, T>,
    changed: Changed<T>,
    lost: Lost,
}

impl<K, T> fmt::Debug for ChildIndex<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildIndex").finish_non_exhaustive()
    }
}

impl<K: Watched, T: Clone + Send + Sync + 'static> ChildIndex<K, T> {
    /// An empty index.
    pub fn new(
        read: impl Fn(&K) -> Option<T> + Send + Sync + 'static,
        changed: impl Fn(&ObjectId, &T) + Send + Sync + 'static,
        lost: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self { children: Mutex::default(), read: Box::new(read), changed: Box::new(changed), lost: Box::new(lost) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<ObjectId>, T>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The facts of a child.
    pub fn get(&self, id: &ObjectId) -> Option<T> {
        self.lock().get(id).cloned()
    }

    /// Every child whose facts satisfy `which`, in order.
    pub fn find(&self, which: impl Fn(&T) -> bool) -> Vec<(Arc<ObjectId>, T)> {
        self.lock().iter().filter(|(_, facts)| which(facts)).map(|(id, facts)| (id.clone(), facts.clone())).collect()
    }

    fn remove(&self, id: &ObjectId) {
        let removed = self.lock().remove(id);
        if let Some(facts) = removed {
            (self.changed)(id, &facts);
        }
    }
}

impl<K: Watched, T: Clone + Send + Sync + 'static> Index<K> for ChildIndex<K, T> {
    fn applied(&self, object: &K) {
        let id = Arc::new(ObjectId::of(object));
        let Some(facts) = (self.read)(object) else {
            // It was one of ours before and no longer is.
            self.remove(&id);
            return;
        };
        let before = self.lock().insert(id.clone(), facts.clone());
        if let Some(before) = before {
            (self.changed)(&id, &before);
        }
        (self.changed)(&id, &facts);
    }

    fn deleted(&self, id: &ObjectId) {
        self.remove(id);
    }

    fn children_lost(&self) {
        (self.lost)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;

    fn map(name: &str, owner: Option<&str>) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.into());
        if let Some(owner) = owner {
            map.labels_mut().insert("owner".into(), owner.into());
        }
        map
    }

    #[test]
    fn children_are_found_by_facts_and_every_change_is_reported() {
        let calls: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, lost) = (calls.clone(), calls.clone());
        let index = ChildIndex::<ConfigMap, String>::new(
            |map| map.labels().get("owner").cloned(),
            move |id, owner| log.lock().unwrap().push(format!("{} of {owner}", id.name)),
            move || lost.lock().unwrap().push("lost".to_owned()),
        );
        index.applied(&map("a", Some("x")));
        index.applied(&map("b", Some("y")));
        index.applied(&map("theirs", None));
        assert_eq!(index.find(|owner| owner == "x").len(), 1);
        index.applied(&map("a", Some("y")));
        index.applied(&map("b", None));
        index.deleted(&ObjectId::new::<ConfigMap>(None, "a"));
        index.deleted(&ObjectId::new::<ConfigMap>(None, "theirs"));
        assert!(index.find(|_| true).is_empty());
        index.children_lost();
        let calls = calls.lock().unwrap().join(", ");
        assert_eq!(calls, "a of x, b of y, a of x, a of y, b of y, a of y, lost");
    }
}
