//! Whole objects that the operator creates for others to read. They are created, corrected and deleted only when provably ours.
//!
//! ```text
//!  watch ─► up to date ──────► nothing is sent, not even a GET
//!     │└──► absent ──────────► apply; rejected when another one was created meanwhile
//!     └───► anything else, or the kind is not watched:
//!  GET ─► absent ────────► apply; rejected when another one was created meanwhile
//!     ├─► ours ──────────► has the fields that we apply, and no earlier ones of ours? ─► nothing is sent
//!     │                      └─► else: apply on the version that was read, forced
//!     └─► foreign ───────► ChildError::NotOurs, untouched
//! ```
//!
//! `managedFields` shows which fields we own: a field that others added is kept, a field that others changed is corrected, and a
//! field that is no longer applied is removed.

use std::{collections::BTreeMap, fmt, future::Future};

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Resource,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
    core::{Request, request::Error as RequestError},
};
use serde_json::{Map, Value, json};

use super::{
    FIELD_MANAGER, WriteError, Writer,
    known::{Digest, Part, WatchedChild, digest_of_proof},
    owned, permission,
};
use crate::object::ObjectId;

/// A version that no object has: an apply that carries it creates an object or is rejected.
const MUST_NOT_EXIST: &str = "1";
/// Attempts per call, for conflicts and transient errors.
const TRIES: u32 = 3;

/// An object that the operator creates: its id, and the proof that it is ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Which object.
    pub id: ObjectId,
    /// The proof that it is ours.
    pub proof: Proof,
}

impl Child {
    /// A child of kind `K`.
    pub fn new<K: Resource<DynamicType = ()> + 'static>(namespace: Option<&str>, name: &str, proof: Proof) -> Self {
        Self { id: ObjectId::new::<K>(namespace, name), proof }
    }
}

/// The proof that an object is ours. It is added to the applied object, and required of an existing one.
#[derive(Clone, Debug, PartialEq)]
pub enum Proof {
    /// A label with this value.
    Label {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
    /// All of these labels.
    Labels(BTreeMap<String, String>),
    /// An annotation with this value.
    Annotation {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
    /// This object among its owners, by uid; the cluster deletes the child with it.
    Owner(Box<OwnerReference>),
    /// It was applied by this operator, according to its `managedFields`.
    Applied,
    /// One of these is enough of an existing object; all of them are added to the applied one. So a lost label of ours is added again.
    Any(Vec<Proof>),
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label { key, value } => write!(f, "label {key}={value}"),
            Self::Labels(labels) => {
                let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(f, "labels {}", labels.join(","))
            }
            Self::Annotation { key, value } => write!(f, "annotation {key}={value}"),
            Self::Owner(owner) => write!(f, "owner {} {} ({})", owner.kind, owner.name, owner.uid),
            Self::Applied => write!(f, "field manager {FIELD_MANAGER}"),
            Self::Any(proofs) => {
                let proofs: Vec<String> = proofs.iter().map(ToString::to_string).collect();
                write!(f, "{}", proofs.join(" or "))
            }
        }
    }
}

impl Proof {
    fn holds_for(&self, live: &Value) -> bool {
        let metadata = &live["metadata"];
        match self {
            Self::Label { key, value } => metadata["labels"][key] == value.as_str(),
            Self::Labels(labels) => labels.iter().all(|(key, value)| metadata["labels"][key] == value.as_str()),
            Self::Annotation { key, value } => metadata["annotations"][key] == value.as_str(),
            Self::Owner(owner) => {
                let owners = metadata["ownerReferences"].as_array();
                owners.is_some_and(|owners| owners.iter().any(|other| other["uid"] == owner.uid.as_str()))
            }
            Self::Applied => owned::entry(live, "", "").is_some(),
            Self::Any(proofs) => proofs.iter().any(|proof| proof.holds_for(live)),
        }
    }

    fn put_into(&self, metadata: &mut Map<String, Value>) {
        let mut set = |field: &str, key: &str, value: &str| {
            let map = metadata.entry(field).or_insert_with(|| json!({}));
            map[key] = json!(value);
        };
        match self {
            Self::Label { key, value } => set("labels", key, value),
            Self::Labels(labels) => labels.iter().for_each(|(key, value)| set("labels", key, value)),
            Self::Annotation { key, value } => set("annotations", key, value),
            Self::Owner(owner) => {
                let owners = metadata.entry("ownerReferences").or_insert_with(|| json!([]));
                if let Some(owners) = owners.as_array_mut() {
                    owners.retain(|other| other["uid"] != owner.uid.as_str());
                    owners.push(json!(owner));
                }
            }
            Self::Applied => {}
            Self::Any(proofs) => proofs.iter().for_each(|proof| proof.put_into(metadata)),
        }
    }
}

/// Why a child could not be applied or deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChildError {
    /// A foreign object has the name. It is not touched until it is deleted or has the proof.
    #[error("{id} exists and is foreign: it lacks the {proof}. It is not changed; delete it or rename it")]
    NotOurs {
        /// Which object.
        id: ObjectId,
        /// The missing proof.
        proof: String,
    },
    /// The child is being deleted and has a finalizer; a new one can be created when it is deleted.
    #[error("{id} is being deleted; it is created again when the deletion is complete")]
    Leaving {
        /// Which object.
        id: ObjectId,
    },
    /// The API server did not accept it.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The result of applying a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildApplied {
    /// It did not exist and was created.
    Made,
    /// It existed and was changed.
    Changed,
    /// It was up to date; nothing was sent. When the caller's own view differs, one of the two is old: check again soon.
    Unchanged,
}

/// The result of deleting a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildDeleted {
    /// It existed, and the API server accepted the request to delete it.
    Asked,
    /// It does not exist, or is being deleted already; nothing was sent. When the caller's own view differs, check again soon.
    Absent,
}

impl Writer {
    /// Creates or changes the child to `content`: an object with `spec`, `data` and so on, whose `metadata` has only labels, annotations
    /// and owners. Name, namespace and the proof are added here; nulls and empty metadata are left out.
    ///
    /// Conflicts and transient errors are retried a few times; the caller has to handle the rest.
    pub async fn apply_child(&self, child: &Child, content: &Value) -> Result<ChildApplied, ChildError> {
        self.apply_child_keeping(child, content, &[]).await
    }

    /// The same. Of an object that exists, the values at these JSON pointers are kept, whoever wrote them: `content` has them for a new object
    /// only. A change by others that the watch has not delivered yet is therefore not overwritten.
    pub async fn apply_child_keeping(
        &self,
        child: &Child,
        content: &Value,
        kept: &[&str],
    ) -> Result<ChildApplied, ChildError> {
        let wanted = body(child, content).ok_or_else(|| WriteError::Invalid("a child must be an object".to_owned()))?;
        let done = self.with_retries(|first| self.try_apply(child, &wanted, kept, first)).await;
        self.lock().known.end(&child.id);
        self.count(done.as_ref().map(|done| if *done == ChildApplied::Unchanged { "unchanged" } else { "written" }));
        done
    }

    /// Applies all of them, at most as many at once as the writer allows, and returns the outcomes in the same order.
    pub async fn apply_children(&self, children: Vec<(Child, Value)>) -> Vec<Result<ChildApplied, ChildError>> {
        let concurrency = self.inner.options.concurrency.max(1);
        stream::iter(children)
            .map(|(child, content)| {
                let writer = self.clone();
                async move { writer.apply_child(&child, &content).await }
            })
            .buffered(concurrency)
            .collect()
            .await
    }

    /// Deletes the child if it exists and is ours. Another object of the same name is not deleted.
    pub async fn delete_child(&self, child: &Child) -> Result<ChildDeleted, ChildError> {
        let done = self.with_retries(|_| self.try_delete(child)).await;
        self.count(done.as_ref().map(|done| if *done == ChildDeleted::Absent { "unchanged" } else { "written" }));
        done
    }

    async fn try_apply(
        &self,
        child: &Child,
        wanted: &Value,
        kept: &[&str],
        first: bool,
    ) -> Result<ChildApplied, ChildError> {
        let mut sent = wanted.clone();
        self.lock().known.begin(&child.id);
        let mut digest = self.lock().known.digest(&child.id, Part::whole(), &owned::content(wanted));
        // Where the view is wrong the apply is rejected, and the next attempt sends a GET.
        let view = match self.lock().known.child(&child.id, digest, digest_of_proof(&child.proof)) {
            WatchedChild::Same => return Ok(ChildApplied::Unchanged),
            // What is kept is only known from the object itself.
            WatchedChild::Ours { .. } if !kept.is_empty() => WatchedChild::Unknown,
            view if first => view,
            WatchedChild::Absent | WatchedChild::Ours { .. } | WatchedChild::Unknown => WatchedChild::Unknown,
        };
        let live = match view {
            WatchedChild::Absent => None,
            WatchedChild::Ours { version } => Some(json!({ "metadata": { "resourceVersion": version.to_string() } })),
            WatchedChild::Same | WatchedChild::Unknown => self.read_ours(child).await?,
        };
        let made = match live {
            None => {
                sent["metadata"]["resourceVersion"] = json!(MUST_NOT_EXIST);
                ChildApplied::Made
            }
            Some(live) => {
                if !live["metadata"]["deletionTimestamp"].is_null() {
                    return Err(ChildError::Leaving { id: child.id.clone() });
                }
                if keep(&mut sent, &live, kept) {
                    digest = self.lock().known.digest(&child.id, Part::whole(), &owned::content(&sent));
                }
                if owned::is_up_to_date(&live, &sent) {
                    self.learn(child, digest, &live);
                    return Ok(ChildApplied::Unchanged);
                }
                for (field, value) in ["uid", "resourceVersion"].map(|field| (field, &live["metadata"][field])) {
                    if !value.is_null() {
                        sent["metadata"][field] = value.clone();
                    }
                }
                ChildApplied::Changed
            }
        };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let request = request_for(child).patch(&child.id.name, &params, &Patch::Apply(sent));
        // An apply that creates an object needs both.
        let verbs: &[_] = if made == ChildApplied::Made { &["patch", "create"] } else { &["patch"] };
        match self.ask(child, request, "patch_child", verbs).await {
            Err(WriteError::Gone) if made == ChildApplied::Made => {
                let why = format!("{} cannot be created: its kind or its namespace does not exist", child.id);
                Err(WriteError::Transient(why).into())
            }
            answer => {
                if self.learn(child, digest, &answer?) || made == ChildApplied::Changed {
                    return Ok(made);
                }
                Err(WriteError::Transient(format!("{} was deleted while it was created", child.id)).into())
            }
        }
    }

    /// Notes a child that is up to date. Returns false when it is deleted already.
    fn learn(&self, child: &Child, digest: Digest, live: &Value) -> bool {
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        let mut state = self.lock();
        let exists = state.known.answered(&child.id, uid, Part::whole(), digest, live);
        state.known.proved(&child.id, uid, live, digest_of_proof(&child.proof));
        exists
    }

    async fn try_delete(&self, child: &Child) -> Result<ChildDeleted, ChildError> {
        let Some(live) = self.read_ours(child).await? else { return Ok(ChildDeleted::Absent) };
        let metadata = &live["metadata"];
        if !metadata["deletionTimestamp"].is_null() {
            return Ok(ChildDeleted::Absent);
        }
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        // The version too: it must still be ours when it is deleted.
        let preconditions = Preconditions { uid: text("uid"), resource_version: text("resourceVersion") };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.ask(child, request_for(child).delete(&child.id.name, &params), "delete_child", &["delete"]).await {
            Ok(_) => {
                self.forget(&child.id);
                Ok(ChildDeleted::Asked)
            }
            // Deleted, or another object has the name now: read it again.
            Err(WriteError::Gone) => Err(WriteError::Conflict.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// The existing object, if it is ours.
    async fn read_ours(&self, child: &Child) -> Result<Option<Value>, ChildError> {
        let request = request_for(child).get(&child.id.name, &kube::api::GetParams::default());
        match self.ask(child, request, "get_child", &["get"]).await {
            Ok(live) if child.proof.holds_for(&live) => Ok(Some(live)),
            Ok(_) => Err(ChildError::NotOurs { id: child.id.clone(), proof: child.proof.to_string() }),
            Err(WriteError::Gone) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn with_retries<T, F>(&self, attempt: impl Fn(bool) -> F) -> Result<T, ChildError>
    where
        F: Future<Output = Result<T, ChildError>>,
    {
        let mut tries = 0;
        loop {
            tries += 1;
            match attempt(tries == 1).await {
                Err(ChildError::Write(WriteError::Conflict | WriteError::Gone | WriteError::Transient(_)))
                    if tries < TRIES && self.may_write() =>
                {
                    let delay = self.delay(tries);
                    tokio::time::sleep(delay).await;
                }
                answer => return answer,
            }
        }
    }

    async fn ask(
        &self,
        child: &Child,
        request: Result<http::Request<Vec<u8>>, RequestError>,
        name: &'static str,
        verbs: &[&'static str],
    ) -> Result<Value, WriteError> {
        let _permit = self.inner.permits.acquire().await;
        let _serving = (verbs != ["get"]).then(|| self.inner.pace.serving());
        if verbs != ["get"] && !self.may_write() {
            return Err(WriteError::Transient("this replica is not the leader, or is stopping".to_owned()));
        }
        let permissions: Vec<_> = verbs.iter().map(|verb| permission(verb, child.id.kind, "")).collect();
        self.answer(request, name, &permissions).await
    }

    fn count(&self, done: Result<&'static str, &ChildError>) {
        self.inner.metrics.writes(match done {
            Ok(label) => label,
            Err(ChildError::NotOurs { .. }) => "not_ours",
            Err(ChildError::Leaving { .. }) => "leaving",
            Err(ChildError::Write(error)) => error.label(),
        });
    }
}

fn request_for(child: &Child) -> Request {
    Request::new(DynamicObject::url_path(&child.id.kind.api_resource(), child.id.namespace.as_deref()))
}

/// The object to apply: the content with its name and its proof.
fn body(child: &Child, content: &Value) -> Option<Value> {
    let Child { id, proof } = child;
    let mut body = content.clone();
    without_nulls(&mut body);
    let fields = body.as_object_mut()?;
    fields.insert("apiVersion".to_owned(), json!(id.kind.api_version()));
    fields.insert("kind".to_owned(), json!(id.kind.name));
    let metadata = fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut()?;
    proof.put_into(metadata);
    // The server does not store an empty map or list here, so it has no owner.
    metadata.retain(|_, value| !(value.as_object().is_some_and(Map::is_empty) || *value == json!([])));
    metadata.insert("name".to_owned(), json!(id.name));
    if let Some(namespace) = &id.namespace {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    Some(body)
}

/// Takes these values over from the existing object. Returns whether one is different.
fn keep(sent: &mut Value, live: &Value, kept: &[&str]) -> bool {
    let mut different = false;
    for pointer in kept {
        if let (Some(place), Some(value)) = (sent.pointer_mut(pointer), live.pointer(pointer))
            && place != value
        {
            place.clone_from(value);
            different = true;
        }
    }
    different
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
