//! The id of an object inside the process, and the metadata that every kind has.
//!
//! A [`Kind`] exists once per process and has its API group, so a `Gateway` of one group and a `Gateway` of another never share an
//! [`ObjectId`]. Neither do two versions of one kind. An [`Identity`] is the part of an object's metadata that the engine needs: indexes
//! keep it instead of the object.

use std::{
    any::TypeId,
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference},
};
use kube::{Resource, core::ApiResource};
use signpost_planning::Claim;

use crate::write::FIELD_MANAGER;

/// A Kubernetes kind. There is one of each in the process; see [`Kind::of`].
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind, as in a manifest: `RRset`.
    pub name: String,
    /// The version: `v1alpha2`.
    pub version: String,
    /// The plural, as in a URL: `rrsets`.
    pub plural: String,
}

impl Kind {
    /// The kind of a type.
    pub fn of<K: Resource<DynamicType = ()> + 'static>() -> &'static Self {
        static KINDS: RwLock<Option<HashMap<TypeId, &'static Kind>>> = RwLock::new(None);
        let known = KINDS.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(kind) = known.as_ref().and_then(|kinds| kinds.get(&TypeId::of::<K>())) {
            return kind;
        }
        drop(known);
        let kind = Self {
            group: K::group(&()).into_owned(),
            name: K::kind(&()).into_owned(),
            version: K::version(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
        };
        let kind = kind.keep();
        KINDS.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(TypeId::of::<K>(), kind);
        kind
    }

    /// Kinds are few and fixed at compile time, so keeping each until the process ends costs nothing.
    fn keep(self) -> &'static Self {
        static KINDS: Mutex<BTreeSet<&'static Kind>> = Mutex::new(BTreeSet::new());
        let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kinds.get(&self) {
            return known;
        }
        let kept: &'static Self = Box::leak(Box::new(self));
        kinds.insert(kept);
        kept
    }

    /// `group/version`, or the bare version in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `plural.group`, or the bare plural in the core group.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The same as kube's client names it.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version: self.api_version(),
            kind: self.name.clone(),
            plural: self.plural.clone(),
        }
    }
}

/// Whether this operator has written the status of an object, according to its `managedFields`. A watch delivers those of this operator only.
pub fn is_reported(meta: &ObjectMeta) -> bool {
    let ours = |entry: &ManagedFieldsEntry| {
        entry.subresource.as_deref() == Some("status") && entry.manager.as_deref() == Some(FIELD_MANAGER)
    };
    meta.managed_fields.iter().flatten().any(ours)
}

/// Whether this operator wrote the current value of an annotation by a patch, according to `managedFields`: whoever writes another value
/// takes it from us.
pub fn wrote_annotation(meta: &ObjectMeta, key: &str) -> bool {
    let field = format!("f:{key}");
    let ours = |entry: &ManagedFieldsEntry| {
        let written = entry.fields_v1.as_ref().map(|fields| &fields.0["f:metadata"]["f:annotations"]);
        entry.operation.as_deref() == Some("Update")
            && entry.manager.as_deref() == Some(FIELD_MANAGER)
            && written.is_some_and(|written| written.get(&field).is_some())
    };
    meta.managed_fields.iter().flatten().any(ours)
}

/// The name of one Kubernetes object: its kind, its namespace (none for cluster-scoped kinds) and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The kind.
    pub kind: &'static Kind,
    /// The namespace; `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectId {
    /// The id of a `K` by its namespace and name.
    pub fn new<K: Resource<DynamicType = ()> + 'static>(namespace: Option<&str>, name: &str) -> Self {
        Self::of_kind(Kind::of::<K>(), namespace, name)
    }

    /// The id of an object of this kind by its namespace and name.
    pub fn of_kind(kind: &'static Kind, namespace: Option<&str>, name: &str) -> Self {
        Self { kind, namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }

    /// The id of an object.
    pub fn of<K: Resource<DynamicType = ()> + 'static>(object: &K) -> Self {
        let meta = object.meta();
        Self::new::<K>(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    /// Whether the object is a `K`.
    pub fn is<K: Resource<DynamicType = ()> + 'static>(&self) -> bool {
        self.kind == Kind::of::<K>()
    }

    /// `namespace/name`, or the bare name of a cluster-scoped object.
    pub fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }

    /// A reference to the object, as events need it, without a UID.
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.kind.api_version()),
            kind: Some(self.kind.name.clone()),
            namespace: self.namespace.clone(),
            name: Some(self.name.clone()),
            ..ObjectReference::default()
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind.name, self.name),
            None => write!(f, "{} {}", self.kind.name, self.name),
        }
    }
}

/// The metadata that every kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The object's id.
    pub id: Arc<ObjectId>,
    /// The UID of this incarnation.
    pub uid: Arc<str>,
    /// The resource version; 0 where the API server's version is not a number.
    pub version: u64,
    /// The generation; 0 for kinds that have none.
    pub generation: i64,
    /// When it was created.
    pub created: Timestamp,
    /// Since when it is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// Its finalizers.
    pub finalizers: Finalizers,
}

impl Identity {
    /// The identity of an object.
    pub fn of<K: Resource<DynamicType = ()> + 'static>(object: &K) -> Self {
        Self::of_meta(Arc::new(ObjectId::of(object)), object.meta())
    }

    /// The identity of an object by its metadata.
    pub fn of_meta(id: Arc<ObjectId>, meta: &ObjectMeta) -> Self {
        Self {
            id,
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            version: version_of(meta.resource_version.as_deref()),
            generation: meta.generation.unwrap_or(0),
            created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting_since: meta.deletion_timestamp.as_ref().map(|time| time.0),
            finalizers: Finalizers::new(meta.finalizers.as_deref().unwrap_or_default()),
        }
    }

    /// What it claims anything with: the order of claims is that of [`Claim`].
    pub fn claim(&self) -> Claim<Arc<ObjectId>> {
        Claim::new(self.id.clone(), self.created, self.uid.clone())
    }

    /// The same, where the name decides between claims of one second.
    pub fn claim_by_name(&self) -> Claim<Arc<ObjectId>> {
        Claim::by_name(self.id.clone(), self.created)
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.deleting_since.is_some()
    }

    /// False when `self` is the same incarnation as `other` and not newer.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.uid != other.uid || self.version == 0 || other.version == 0 || self.version > other.version
    }

    /// Whether this is the same incarnation of the object with the same generation.
    pub fn asks_the_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.generation == other.generation && self.is_deleting() == other.is_deleting()
    }

    /// The operator's own Deployment, for what concerns no other object. Only its name is known.
    pub fn own_deployment(namespace: &str, name: &str) -> Self {
        Self::of_meta(Arc::new(ObjectId::new::<Deployment>(Some(namespace), name)), &ObjectMeta::default())
    }

    /// The object as the controller of an object that we create: the cluster deletes that one with it. It does not delay the deletion of its
    /// owner: some clusters let only those ask for that who may change the owner's finalizers.
    pub fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.id.kind.api_version(),
            kind: self.id.kind.name.clone(),
            name: self.id.name.clone(),
            uid: self.uid.to_string(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }

    /// A reference to the object, as events need it.
    pub fn reference(&self) -> ObjectReference {
        let uid = Some(self.uid.to_string()).filter(|uid| !uid.is_empty());
        ObjectReference { uid, ..self.id.reference() }
    }
}

/// A resource version as a number; 0 where it is not one.
pub fn version_of(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The finalizers of an object, in their order. Equal lists share their memory: most objects of a cluster have one of a few lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finalizers(Option<Arc<[Box<str>]>>);

/// Lists that are kept for sharing; more are not shared.
const SHARED_LISTS: usize = 64;

impl Finalizers {
    /// These finalizers.
    pub fn new<T: AsRef<str>>(names: &[T]) -> Self {
        static SHARED: Mutex<BTreeSet<Arc<[Box<str>]>>> = Mutex::new(BTreeSet::new());
        if names.is_empty() {
            return Self(None);
        }
        let list: Arc<[Box<str>]> = names.iter().map(|name| Box::from(name.as_ref())).collect();
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = shared.get(&list) {
            return Self(Some(Arc::clone(same)));
        }
        if shared.len() < SHARED_LISTS {
            shared.insert(Arc::clone(&list));
        }
        Self(Some(list))
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|list| list.iter()).map(AsRef::as_ref)
    }

    /// Whether this one is among them.
    pub fn has(&self, name: &str) -> bool {
        self.iter().any(|have| have == name)
    }

    /// The list with this one at its end.
    pub fn with(&self, name: &str) -> Vec<String> {
        self.iter().filter(|have| *have != name).chain([name]).map(str::to_owned).collect()
    }

    /// The list without these.
    pub fn without(&self, names: &[&str]) -> Vec<String> {
        self.iter().filter(|have| !names.contains(have)).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    use k8s_openapi::api::{core::v1::Event as CoreEvent, events::v1::Event as NewEvent};

    #[test]
    fn an_id_prints_its_kind_and_path() {
        let mut map = ConfigMap::default();
        map.metadata.namespace = Some("default".into());
        map.metadata.name = Some("www".into());
        let id = ObjectId::of(&map);
        assert_eq!(id.to_string(), "ConfigMap default/www");
        assert_eq!(id.path(), "default/www");
        assert!(id.is::<ConfigMap>() && !id.is::<Namespace>());
    }

    #[test]
    fn a_cluster_scoped_id_has_no_namespace() {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("web".into());
        let id = ObjectId::of(&namespace);
        assert_eq!((id.to_string().as_str(), id.path().as_str()), ("Namespace web", "web"));
    }

    #[test]
    fn a_kind_exists_once_in_the_process() {
        assert!(std::ptr::eq(Kind::of::<ConfigMap>(), Kind::of::<ConfigMap>()));
        assert_eq!(
            (Kind::of::<ConfigMap>().api_version(), Kind::of::<ConfigMap>().resource()),
            ("v1".into(), "configmaps".into())
        );
        assert_eq!(Kind::of::<NewEvent>().api_version(), "events.k8s.io/v1");
    }

    #[test]
    fn kinds_of_one_name_in_two_groups_are_two_kinds() {
        let ids = [ObjectId::new::<CoreEvent>(Some("default"), "a"), ObjectId::new::<NewEvent>(Some("default"), "a")];
        assert_eq!(ids[0].kind.name, ids[1].kind.name);
        assert_ne!(ids[0], ids[1]);
    }

    fn identity(meta: &serde_json::Value) -> Identity {
        Identity::of(&ConfigMap { metadata: serde_json::from_value(meta.clone()).unwrap(), ..ConfigMap::default() })
    }

    #[test]
    fn an_older_version_is_not_newer_unless_it_is_another_incarnation() {
        let of = |uid: &str, version: &str| {
            identity(&serde_json::json!({ "name": "a", "uid": uid, "resourceVersion": version }))
        };
        assert!(of("1", "8").is_newer_than(&of("1", "7")));
        assert!(!of("1", "7").is_newer_than(&of("1", "7")) && !of("1", "6").is_newer_than(&of("1", "7")));
        assert!(of("2", "6").is_newer_than(&of("1", "7")));
        assert!(of("1", "opaque").is_newer_than(&of("1", "7")), "in doubt it is");
    }

    #[test]
    fn finalizers_keep_their_order_and_equal_lists_share_memory() {
        let one = Finalizers::new(&["a/x", "b/y"]);
        let same = Finalizers::new(&["a/x", "b/y"]);
        assert!(Arc::ptr_eq(one.0.as_ref().unwrap(), same.0.as_ref().unwrap()));
        assert!(one.has("a/x") && !one.has("c/z"));
        assert_eq!(one.with("c/z"), ["a/x", "b/y", "c/z"]);
        assert_eq!(one.with("a/x"), ["b/y", "a/x"]);
        assert_eq!(one.without(&["a/x"]), ["b/y"]);
        assert!(Finalizers::new::<&str>(&[]).with("a/x") == ["a/x"]);
    }
}
