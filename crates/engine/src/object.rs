//! What an object is called inside the process.
//!
//! An [`ObjectId`] is a kind, a namespace (none for cluster-scoped kinds) and a name: small, ordered and printable, so that indexes,
//! queues and logs can all use it without holding the object.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt,
    sync::{Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;

/// The name of one Kubernetes object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The kind, as in a manifest: `RRset`.
    pub kind: &'static str,
    /// The namespace; `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectId {
    /// An id from its parts.
    pub fn new(kind: &'static str, namespace: Option<&str>, name: &str) -> Self {
        Self { kind, namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }

    /// The id of an object in hand.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        let meta = object.meta();
        Self { kind: kind_of::<K>(), namespace: meta.namespace.clone(), name: meta.name.clone().unwrap_or_default() }
    }

    /// `namespace/name`, or the bare name of a cluster-scoped object.
    pub fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// The kind of a type, as a string that lives as long as the process.
pub fn kind_of<K: Resource<DynamicType = ()>>() -> &'static str {
    match K::kind(&()) {
        Cow::Borrowed(kind) => kind,
        Cow::Owned(kind) => intern(kind),
    }
}

/// A reference to an object in hand, as events need it.
pub fn reference_to<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    let meta = object.meta();
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

/// Kinds are few and fixed at compile time, so keeping each computed one for good costs nothing.
pub(crate) fn intern(kind: String) -> &'static str {
    static KINDS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kinds.get(kind.as_str()) {
        return known;
    }
    let kept: &'static str = Box::leak(kind.into_boxed_str());
    kinds.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};

    #[test]
    fn an_id_prints_its_kind_and_path() {
        let mut map = ConfigMap::default();
        map.metadata.namespace = Some("default".into());
        map.metadata.name = Some("www".into());
        let id = ObjectId::of(&map);
        assert_eq!(id.to_string(), "ConfigMap default/www");
        assert_eq!(id.path(), "default/www");
    }

    #[test]
    fn a_cluster_scoped_id_has_no_namespace() {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("web".into());
        let id = ObjectId::of(&namespace);
        assert_eq!((id.to_string().as_str(), id.path().as_str()), ("Namespace web", "web"));
    }

    #[test]
    fn interning_a_kind_twice_keeps_one_copy() {
        assert!(std::ptr::eq(intern("Widget".into()), intern("Widget".into())));
    }
}
