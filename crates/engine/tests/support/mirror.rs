//! A whole system in one file: each `Mirror` has a ConfigMap of its name with its text in it, a finalizer, and a status that says so.
//!
//! ```text
//!  Mirror {spec.text}  ─► ConfigMap {data.text}   (label mirror=NAME, owned by us)
//!                      ─► status {text, conditions: [Ready]}
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{Api, Client, CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use signpost_engine::{
    Child, ChildApplied, ChildDeleted, ChildError, DriveOptions, Index, Job, Need, ObjectId, ObjectWrite, Operator,
    OperatorOptions, Outcome, Proof, Queue, Report, RetryClass, System, Touch, Touched, WriteError, Writer, conditions,
};

pub const FINALIZER: &str = "test.signpost.dev/mirror";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "test.signpost.dev",
    version = "v1",
    kind = "Mirror",
    namespaced,
    status = "MirrorStatus",
    schema = "disabled"
)]
pub struct MirrorSpec {
    pub text: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct MirrorStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

type Name = String;
type Namespace = String;

#[derive(Clone, Debug)]
struct Source {
    uid: String,
    version: String,
    generation: Option<i64>,
    text: String,
    deleting: bool,
    finalizers: Vec<String>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug)]
struct Copy {
    text: Option<String>,
}

#[derive(Debug, Default)]
struct View {
    sources: BTreeMap<(Namespace, Name), Source>,
    /// Exist but cannot be read, and were never read before.
    riddles: BTreeSet<(Namespace, Name)>,
    copies: BTreeMap<(Namespace, Name), Copy>,
}

/// What the system knows: two small maps.
#[derive(Clone)]
pub struct Maps {
    view: Arc<Mutex<View>>,
    queue: Queue<Namespace, Name>,
    writer: Writer,
    /// Everything the hub said, for tests that look at it.
    pub heard: Arc<Mutex<Vec<String>>>,
}

impl Maps {
    fn hear(&self, what: String) {
        self.heard.lock().unwrap().push(what);
    }

    fn touch(&self, (namespace, name): (Namespace, Name)) {
        self.queue.touch(namespace, Touch::One(name));
    }
}

fn place(id: &ObjectId) -> (Namespace, Name) {
    (id.namespace.clone().unwrap_or_default(), id.name.clone())
}

impl Index<Mirror> for Maps {
    fn applied(&self, object: &Mirror) {
        let id = ObjectId::of(object);
        self.hear(format!("applied {id}"));
        let uid = object.uid().unwrap_or_default();
        let status = object.status.clone().unwrap_or_default();
        self.writer.known_status(object, &serde_json::to_value(&status).unwrap());
        let source = Source {
            uid,
            version: object.resource_version().unwrap_or_default(),
            generation: object.metadata.generation,
            text: object.spec.text.clone(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            finalizers: object.finalizers().to_vec(),
            conditions: status.conditions,
        };
        let mut view = self.view.lock().unwrap();
        view.riddles.remove(&place(&id));
        view.sources.insert(place(&id), source);
        drop(view);
        self.touch(place(&id));
    }

    fn deleted(&self, id: &ObjectId) {
        self.hear(format!("deleted {id}"));
        let mut view = self.view.lock().unwrap();
        view.riddles.remove(&place(id));
        view.sources.remove(&place(id));
        drop(view);
        self.touch(place(id));
    }

    fn unreadable(&self, id: &ObjectId, _error: &str) {
        self.hear(format!("unreadable {id}"));
        let mut view = self.view.lock().unwrap();
        if !view.sources.contains_key(&place(id)) {
            view.riddles.insert(place(id));
        }
    }

    fn listed(&self) {
        self.hear("listed Mirror".to_owned());
    }
}

impl Index<ConfigMap> for Maps {
    fn applied(&self, object: &ConfigMap) {
        if !object.labels().contains_key("mirror") {
            return;
        }
        let text = object.data.as_ref().and_then(|data| data.get("text").cloned());
        let copy = Copy { text };
        let place = place(&ObjectId::of(object));
        self.view.lock().unwrap().copies.insert(place.clone(), copy);
        self.touch(place);
    }

    fn deleted(&self, id: &ObjectId) {
        if self.view.lock().unwrap().copies.remove(&place(id)).is_some() {
            self.touch(place(id));
        }
    }
}

/// The system itself.
pub struct Mirrors {
    maps: Maps,
    writer: Writer,
}

pub struct Seen {
    namespace: Namespace,
    objects: Vec<(Name, Option<Source>, Option<Copy>)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Hold { uid: String, version: String, finalizers: Vec<String> },
    Put { text: String },
    Remove,
    LetGo { uid: String, version: String, finalizers: Vec<String> },
}

pub struct Todo {
    namespace: Namespace,
    objects: Vec<(Name, Option<Source>, Vec<Step>)>,
}

pub struct Outcomes {
    namespace: Namespace,
    objects: Vec<(Name, Option<Source>, Result<(), ChildError>)>,
}

impl System for Mirrors {
    const NAME: &'static str = "mirror";
    type Key = Namespace;
    type Object = Name;
    type Observed = Seen;
    type Plan = Todo;
    type Applied = Outcomes;

    async fn observe(&self, job: &Job<Namespace, Name>) -> Seen {
        let view = self.maps.view.lock().unwrap();
        let names: BTreeSet<Name> = match &job.touched {
            Touched::Some(names) => names.clone(),
            Touched::All => {
                let all = view.sources.keys().chain(view.copies.keys());
                all.filter(|(namespace, _)| *namespace == job.key).map(|(_, name)| name.clone()).collect()
            }
        };
        let look = |name: &Name| {
            let place = (job.key.clone(), name.clone());
            (!view.riddles.contains(&place))
                .then(|| (name.clone(), view.sources.get(&place).cloned(), view.copies.get(&place).cloned()))
        };
        Seen { namespace: job.key.clone(), objects: names.iter().filter_map(look).collect() }
    }

    fn plan(&self, seen: Seen, _now: Timestamp) -> Todo {
        let objects = seen.objects.into_iter().map(|(name, source, copy)| {
            let steps = steps(source.as_ref(), copy.as_ref());
            (name, source, steps)
        });
        Todo { namespace: seen.namespace, objects: objects.collect() }
    }

    async fn apply(&self, todo: Todo) -> Outcomes {
        let mut objects = Vec::new();
        for (name, source, steps) in todo.objects {
            let mut done = Ok(());
            for step in steps {
                done = self.take(&todo.namespace, &name, step).await;
                if done.is_err() {
                    break;
                }
            }
            objects.push((name, source, done));
        }
        Outcomes { namespace: todo.namespace, objects }
    }

    fn report(&self, outcomes: Outcomes, now: Timestamp) -> Report<Name> {
        let mut writes = Vec::new();
        let mut failed = BTreeSet::new();
        let mut class = None;
        for (name, source, done) in outcomes.objects {
            if let Err(error) = &done {
                failed.insert(name.clone());
                class = Some(worse(class, class_of(error)));
            }
            // Only what was done is said: a failure leaves the last true status in place.
            let (Some(source), Ok(())) = (source, done) else { continue };
            if source.deleting {
                continue;
            }
            let mut status = MirrorStatus { text: Some(source.text.clone()), conditions: source.conditions };
            let ready = conditions::condition("Ready", true, "Mirrored", "", source.generation, now);
            conditions::set(&mut status.conditions, ready);
            let id = ObjectId::new("Mirror", Some(&outcomes.namespace), &name);
            writes.push(ObjectWrite::status::<Mirror>(id, source.uid, serde_json::to_value(status).unwrap()));
        }
        let outcome = match class {
            None => Outcome::Done,
            Some(class) => Outcome::Retry { class, objects: Touched::Some(failed) },
        };
        Report { writes, events: Vec::new(), outcome }
    }
}

fn steps(source: Option<&Source>, copy: Option<&Copy>) -> Vec<Step> {
    let mut steps = Vec::new();
    match source {
        Some(source) if !source.deleting => {
            if !source.finalizers.iter().any(|have| have == FINALIZER) {
                let mut finalizers = source.finalizers.clone();
                finalizers.push(FINALIZER.to_owned());
                steps.push(Step::Hold { uid: source.uid.clone(), version: source.version.clone(), finalizers });
            }
            if copy.is_none_or(|copy| copy.text.as_ref() != Some(&source.text)) {
                steps.push(Step::Put { text: source.text.clone() });
            }
        }
        gone_or_going => {
            if copy.is_some() {
                steps.push(Step::Remove);
            }
            if let Some(source) = gone_or_going
                && source.finalizers.iter().any(|have| have == FINALIZER)
            {
                let finalizers = source.finalizers.iter().filter(|have| *have != FINALIZER).cloned().collect();
                steps.push(Step::LetGo { uid: source.uid.clone(), version: source.version.clone(), finalizers });
            }
        }
    }
    steps
}

fn class_of(error: &ChildError) -> RetryClass {
    match error {
        ChildError::Write(WriteError::Conflict) => RetryClass::Now,
        ChildError::Write(WriteError::Throttled(after)) => RetryClass::Throttled { after: *after },
        ChildError::NotOurs { .. } | ChildError::Write(WriteError::Invalid(_)) => RetryClass::Slow,
        ChildError::Leaving { .. }
        | ChildError::Write(WriteError::Gone | WriteError::Forbidden(_) | WriteError::Transient(_)) => {
            RetryClass::Transient
        }
    }
}

fn worse(one: Option<RetryClass>, other: RetryClass) -> RetryClass {
    match (one, other) {
        (Some(RetryClass::Throttled { after }), _) => RetryClass::Throttled { after },
        (_, throttled @ RetryClass::Throttled { .. }) => throttled,
        (Some(RetryClass::Transient), _) => RetryClass::Transient,
        (_, other) => other,
    }
}

impl Mirrors {
    async fn take(&self, namespace: &str, name: &str, step: Step) -> Result<(), ChildError> {
        let id = ObjectId::new("Mirror", Some(namespace), name);
        let proof = Proof::Label { key: "mirror".to_owned(), value: name.to_owned() };
        let copy = Child::new::<ConfigMap>(Some(namespace), name, proof);
        let answer = match step {
            Step::Hold { uid, version, finalizers } | Step::LetGo { uid, version, finalizers } => {
                let metadata = json!({ "finalizers": finalizers, "resourceVersion": version });
                self.writer
                    .write(&ObjectWrite::metadata::<Mirror>(id, uid, metadata))
                    .await
                    .map(drop)
                    .map_err(Into::into)
            }
            Step::Put { text } => {
                let applied = self.writer.apply_child(&copy, &json!({ "data": { "text": text } })).await;
                agreed(applied.map(|applied| applied != ChildApplied::Unchanged))
            }
            Step::Remove => {
                agreed(self.writer.delete_child(&copy).await.map(|deleted| deleted != ChildDeleted::Absent))
            }
        };
        match answer {
            // Deleted already, or never there: that is what was wanted, or the watch will say more.
            Err(ChildError::Write(WriteError::Gone)) => Ok(()),
            other => other,
        }
    }
}

/// There was something to do by our view, and nothing by the server's: one of the two is old, so look again.
fn agreed(done: Result<bool, ChildError>) -> Result<(), ChildError> {
    match done {
        Ok(true) => Ok(()),
        Ok(false) => Err(WriteError::Conflict.into()),
        Err(error) => Err(error),
    }
}

/// A replica of the operator with the system in it.
pub fn operator(client: Client, options: OperatorOptions) -> (Operator, Maps) {
    let mut operator = Operator::new(client, options);
    let queue = Queue::new();
    let maps = Maps { view: Arc::default(), queue: queue.clone(), writer: operator.writer(), heard: Arc::default() };
    operator.watch::<Mirror>(Need::Required, Arc::new(maps.clone()));
    operator.watch::<ConfigMap>(Need::Required, Arc::new(maps.clone()));
    let system = Mirrors { maps: maps.clone(), writer: operator.writer() };
    operator.drive(system, queue, DriveOptions::default());
    (operator, maps)
}

/// The cluster as the user sees it, without what differs from run to run.
pub async fn world(client: &Client) -> Value {
    let mut world = BTreeMap::new();
    let mirrors: Api<kube::api::DynamicObject> =
        Api::all_with(client.clone(), &kube::core::ApiResource::erase::<Mirror>(&()));
    for mirror in mirrors.list(&kube::api::ListParams::default()).await.unwrap() {
        let mut status = mirror.data["status"].clone();
        if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
            for condition in conditions {
                condition.as_object_mut().unwrap().remove("lastTransitionTime");
            }
        }
        let key = format!("Mirror {}/{}", mirror.namespace().unwrap(), mirror.name_any());
        let deleting = mirror.metadata.deletion_timestamp.is_some();
        world.insert(
            key,
            json!({ "spec": mirror.data["spec"], "status": status, "finalizers": mirror.finalizers(), "deleting": deleting }),
        );
    }
    let children: Api<ConfigMap> = Api::all(client.clone());
    for child in children.list(&kube::api::ListParams::default()).await.unwrap() {
        let key = format!("ConfigMap {}/{}", child.namespace().unwrap(), child.name_any());
        world.insert(key, json!({ "data": child.data, "labels": child.labels() }));
    }
    json!(world)
}
