//! Whole objects that the operator creates for others to read: created, kept as they should be, and deleted, only when provably ours.
//!
//! ```text
//!  watch ─► as it should be ─► nothing is sent, not even a GET
//!     │└──► absent ──────────► apply; refused when another one was created meanwhile
//!     └───► anything else, or the kind is not watched:
//!  GET ─► absent ────────► apply; refused when another one was created meanwhile
//!     ├─► ours ──────────► has all that we apply, and nothing that we once applied? ─► nothing is sent
//!     │                      └─► else: apply on the version that was read, by force: our fields are ours
//!     └─► foreign ───────► ChildError::NotOurs, untouched
//! ```
//!
//! What we own is read from `managedFields`, so a field that others added is kept, one that others changed is taken back, and one that is
//! no longer applied is removed.

use std::{fmt, future::Future};

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
    known::{Part, View},
    owned, permission,
};
use crate::object::ObjectId;

/// A version that no object ever has: an apply that carries it makes an object or is refused, and never changes one.
const MUST_NOT_EXIST: &str = "1";
/// How often a lost race or a short failure is tried again within one call.
const TRIES: u32 = 3;

/// An object that is to be ours: which, and by what it is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Which object.
    pub id: ObjectId,
    /// What shows that it is ours.
    pub proof: Proof,
}

impl Child {
    /// A child of kind `K`.
    pub fn new<K: Resource<DynamicType = ()> + 'static>(namespace: Option<&str>, name: &str, proof: Proof) -> Self {
        Self { id: ObjectId::new::<K>(namespace, name), proof }
    }
}

/// What shows that an object is ours. It is put into what is applied, and looked for in what is there.
#[derive(Clone, Debug, PartialEq)]
pub enum Proof {
    /// A label with this value.
    Label {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
    /// An annotation with this value.
    Annotation {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
    /// This object among its owners, by uid; the cluster deletes the child with it.
    Owner(Box<OwnerReference>),
    /// That it was applied by this operator, as its `managedFields` tell.
    Applied,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label { key, value } => write!(f, "label {key}={value}"),
            Self::Annotation { key, value } => write!(f, "annotation {key}={value}"),
            Self::Owner(owner) => write!(f, "owner {} {} ({})", owner.kind, owner.name, owner.uid),
            Self::Applied => write!(f, "field manager {FIELD_MANAGER}"),
        }
    }
}

impl Proof {
    fn holds_for(&self, live: &Value) -> bool {
        let metadata = &live["metadata"];
        match self {
            Self::Label { key, value } => metadata["labels"][key] == value.as_str(),
            Self::Annotation { key, value } => metadata["annotations"][key] == value.as_str(),
            Self::Owner(owner) => {
                let owners = metadata["ownerReferences"].as_array();
                owners.is_some_and(|owners| owners.iter().any(|other| other["uid"] == owner.uid.as_str()))
            }
            Self::Applied => owned::entry(live, "", "").is_some(),
        }
    }

    fn put_into(&self, metadata: &mut Map<String, Value>) {
        let mut set = |field: &str, key: &str, value: &str| {
            let map = metadata.entry(field).or_insert_with(|| json!({}));
            map[key] = json!(value);
        };
        match self {
            Self::Label { key, value } => set("labels", key, value),
            Self::Annotation { key, value } => set("annotations", key, value),
            Self::Owner(owner) => {
                let owners = metadata.entry("ownerReferences").or_insert_with(|| json!([]));
                if let Some(owners) = owners.as_array_mut() {
                    owners.retain(|other| other["uid"] != owner.uid.as_str());
                    owners.push(json!(owner));
                }
            }
            Self::Applied => {}
        }
    }
}

/// Why a child is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChildError {
    /// Another object has the name. It is left alone until it is gone or carries the proof.
    #[error("{id} exists and is not ours: it lacks the {proof}; it is left alone")]
    NotOurs {
        /// Which object.
        id: ObjectId,
        /// What it lacks.
        proof: String,
    },
    /// The child is being deleted and held by somebody's finalizer; a new one can be made when it is gone.
    #[error("{id} is being deleted; it can be made again when it is gone")]
    Leaving {
        /// Which object.
        id: ObjectId,
    },
    /// The API server did not take it.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What applying a child came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildApplied {
    /// It was not there.
    Made,
    /// It was there, and different.
    Changed,
    /// It was as it should be; nothing was sent. When the caller's own view says otherwise, one of the two is old: look again soon.
    Unchanged,
}

/// What deleting a child came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildDeleted {
    /// It was there, and the API server took the request to delete it.
    Asked,
    /// It is not there, or is being deleted already; nothing was sent. When the caller's own view says otherwise, look again soon.
    Absent,
}

impl Writer {
    /// Makes the child be `content`: an object with `spec`, `data` and so on, and in `metadata` nothing but labels, annotations and
    /// owners. Name, namespace and the proof are added here; nulls and empty metadata are left out.
    ///
    /// Lost races and short failures are tried again a few times; what is left is the caller's to plan for.
    pub async fn apply_child(&self, child: &Child, content: &Value) -> Result<ChildApplied, ChildError> {
        let wanted = body(child, content).ok_or_else(|| WriteError::Invalid("a child must be an object".to_owned()))?;
        let done = self.persistently(|first| self.try_apply(child, &wanted, first)).await;
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

    /// Deletes the child if it is there and ours: the very object that was looked at, and no other of its name.
    pub async fn delete_child(&self, child: &Child) -> Result<ChildDeleted, ChildError> {
        let done = self.persistently(|_| self.try_delete(child)).await;
        self.count(done.as_ref().map(|done| if *done == ChildDeleted::Absent { "unchanged" } else { "written" }));
        done
    }

    async fn try_apply(&self, child: &Child, wanted: &Value, first: bool) -> Result<ChildApplied, ChildError> {
        let mut sent = wanted.clone();
        let digest = self.lock().known.digest(&child.id, Part::whole(), &owned::content(wanted));
        let live = match self.lock().known.child(&child.id, digest) {
            View::Same => return Ok(ChildApplied::Unchanged),
            // Where the view is wrong the apply is refused, and the next try asks.
            View::Absent if first => Ok(None),
            View::Absent | View::Unknown => Err(()),
        };
        let live = match live {
            Ok(live) => live,
            Err(()) => self.look(child).await?,
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
                if owned::is_up_to_date(&live, wanted) {
                    self.learn(child, digest, &live);
                    return Ok(ChildApplied::Unchanged);
                }
                for field in ["uid", "resourceVersion"] {
                    sent["metadata"][field] = live["metadata"][field].clone();
                }
                ChildApplied::Changed
            }
        };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let request = request_for(child).patch(&child.id.name, &params, &Patch::Apply(sent));
        // An apply that makes an object needs both.
        let verbs: &[_] = if made == ChildApplied::Made { &["patch", "create"] } else { &["patch"] };
        match self.ask(child, request, "patch_child", verbs).await {
            Err(WriteError::Gone) if made == ChildApplied::Made => {
                let why = format!("{} cannot be made: its kind or its namespace is not there", child.id);
                Err(WriteError::Transient(why).into())
            }
            answer => {
                self.learn(child, digest, &answer?);
                Ok(made)
            }
        }
    }

    /// Takes note of a child that is as it should be.
    fn learn(&self, child: &Child, digest: u64, live: &Value) {
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        self.lock().known.answered(&child.id, uid, Part::whole(), digest, live);
    }

    async fn try_delete(&self, child: &Child) -> Result<ChildDeleted, ChildError> {
        let Some(live) = self.look(child).await? else { return Ok(ChildDeleted::Absent) };
        let metadata = &live["metadata"];
        if !metadata["deletionTimestamp"].is_null() {
            return Ok(ChildDeleted::Absent);
        }
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        // The version too: it must still be ours in the moment it goes.
        let preconditions = Preconditions { uid: text("uid"), resource_version: text("resourceVersion") };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.ask(child, request_for(child).delete(&child.id.name, &params), "delete_child", &["delete"]).await {
            Ok(_) => {
                self.forget(&child.id);
                Ok(ChildDeleted::Asked)
            }
            // Deleted, or another one has the name by now: look again.
            Err(WriteError::Gone) => Err(WriteError::Conflict.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// What is there, if it is ours.
    async fn look(&self, child: &Child) -> Result<Option<Value>, ChildError> {
        let request = request_for(child).get(&child.id.name, &kube::api::GetParams::default());
        match self.ask(child, request, "get_child", &["get"]).await {
            Ok(live) if child.proof.holds_for(&live) => Ok(Some(live)),
            Ok(_) => Err(ChildError::NotOurs { id: child.id.clone(), proof: child.proof.to_string() }),
            Err(WriteError::Gone) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn persistently<T, F>(&self, attempt: impl Fn(bool) -> F) -> Result<T, ChildError>
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
        if verbs != ["get"] && !self.may_write() {
            return Err(WriteError::Transient("this replica does not lead, or is stopping".to_owned()));
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

/// What is applied: the content with everything that names it and proves it.
fn body(child: &Child, content: &Value) -> Option<Value> {
    let Child { id, proof } = child;
    let mut body = content.clone();
    without_nulls(&mut body);
    let fields = body.as_object_mut()?;
    fields.insert("apiVersion".to_owned(), json!(id.kind.api_version()));
    fields.insert("kind".to_owned(), json!(id.kind.name));
    let metadata = fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut()?;
    proof.put_into(metadata);
    // The server keeps no empty map or list here, so nobody can own one.
    metadata.retain(|_, value| !(value.as_object().is_some_and(Map::is_empty) || *value == json!([])));
    metadata.insert("name".to_owned(), json!(id.name));
    if let Some(namespace) = &id.namespace {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    Some(body)
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
