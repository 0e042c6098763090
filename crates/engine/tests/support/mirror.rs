//! A complete system in one file: each `Mirror` gets a ConfigMap of its name with its text in it, a finalizer and a status.
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
use signpost_dns::Fqdn;
use signpost_engine::{
    Child, ChildApplied, ChildDeleted, ChildError, DriveOptions, Identity, Index, Job, ObjectId, ObjectWrite, Operator,
    OperatorOptions, Outcome, Project, Proof, Queue, Report, RetryClass, System, Touch, Touched, Wanted, Watch,
    WriteError, Writer, conditions,
};
use signpost_inventory::Entry;

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
pub struct Source {
    identity: Identity,
    text: String,
    conditions: Vec<Condition>,
    /// Whether a pass has mirrored it, as it is now.
    mirrored: bool,
}

#[derive(Clone, Debug)]
pub struct Copy {
    text: Option<String>,
}

#[derive(Debug, Default)]
struct MirrorView {
    sources: BTreeMap<(Namespace, Name), Source>,
    /// Objects that exist but could never be read.
    unreadable: BTreeSet<(Namespace, Name)>,
    copies: BTreeMap<(Namespace, Name), Copy>,
}

/// The indexes of the system: two small maps.
#[derive(Clone)]
pub struct Maps {
    view: Arc<Mutex<MirrorView>>,
    queue: Queue<Namespace, Name>,
    /// The calls of the hub, for tests that check them.
    pub calls: Arc<Mutex<Vec<String>>>,
}

impl Maps {
    fn record(&self, what: String) {
        self.calls.lock().unwrap().push(what);
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
        self.record(format!("applied {id}"));
        let source = Source {
            identity: Identity::of(object),
            text: object.spec.text.clone(),
            conditions: object.status.clone().unwrap_or_default().conditions,
            mirrored: false,
        };
        let mut view = self.view.lock().unwrap();
        view.unreadable.remove(&place(&id));
        let before = view.sources.get(&place(&id)).filter(|before| before.identity.asks_the_same(&source.identity));
        let mirrored = before.is_some_and(|before| before.mirrored);
        view.sources.insert(place(&id), Source { mirrored, ..source.clone() });
        drop(view);
        if mirrored {
            self.queue.statuses().enqueue([(source.identity.id, place(&id).0)]);
        } else {
            self.touch(place(&id));
        }
    }

    fn deleted(&self, id: &ObjectId) {
        self.record(format!("deleted {id}"));
        let mut view = self.view.lock().unwrap();
        view.unreadable.remove(&place(id));
        view.sources.remove(&place(id));
        drop(view);
        self.touch(place(id));
    }

    fn unreadable(&self, object: &Identity, _error: &str) {
        let id = &*object.id;
        self.record(format!("unreadable {id}"));
        let mut view = self.view.lock().unwrap();
        if !view.sources.contains_key(&place(id)) {
            view.unreadable.insert(place(id));
        }
    }

    fn listed(&self) {
        self.record("listed Mirror".to_owned());
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

pub struct MirrorObserved {
    namespace: Namespace,
    objects: Vec<(Name, Option<Source>, Option<Copy>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Finalizers(Identity, Vec<String>),
    Put { text: String },
    Remove,
}

pub struct Todo {
    namespace: Namespace,
    objects: Vec<(Name, Option<Source>, Vec<Step>)>,
}

pub struct Outcomes {
    objects: Vec<(Name, Option<Source>, Result<(), ChildError>)>,
}

impl Project<Namespace> for Mirrors {
    fn project(&self, namespace: &Namespace, _now: Timestamp) -> Vec<Entry> {
        let view = self.maps.view.lock().unwrap();
        let here = view.sources.keys().filter(|(of, _)| of == namespace);
        let name = |(namespace, name): &(Namespace, Name)| Fqdn::parse(&format!("{name}.{namespace}.example")).unwrap();
        here.map(|place| Entry::new(name(place), None, Arc::default())).collect()
    }
}

impl System for Mirrors {
    const NAME: &'static str = "mirror";
    type Key = Namespace;
    type Object = Name;
    type Observed = MirrorObserved;
    type Plan = Todo;
    type Applied = Outcomes;
    type Memory = ();
    type Status = Identity;
    type Measured = ();

    async fn observe(&self, job: &Job<Namespace, Name>, (): ()) -> MirrorObserved {
        let view = self.maps.view.lock().unwrap();
        let names: BTreeSet<Name> = match &job.touched {
            Touched::Some(names) => names.clone(),
            Touched::All => {
                let all = view.sources.keys().chain(view.copies.keys());
                all.filter(|(namespace, _)| *namespace == job.key).map(|(_, name)| name.clone()).collect()
            }
        };
        let read = |name: &Name| {
            let place = (job.key.clone(), name.clone());
            (!view.unreadable.contains(&place))
                .then(|| (name.clone(), view.sources.get(&place).cloned(), view.copies.get(&place).cloned()))
        };
        MirrorObserved { namespace: job.key.clone(), objects: names.iter().filter_map(read).collect() }
    }

    fn plan(seen: MirrorObserved, _now: Timestamp) -> Todo {
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
        Outcomes { objects }
    }

    fn report(outcomes: Outcomes, _now: Timestamp) -> Report<Self> {
        let mut statuses = Vec::new();
        let mut failed = BTreeSet::new();
        let mut class = None;
        for (name, source, done) in outcomes.objects {
            match (source, done) {
                (_, Err(error)) => {
                    failed.insert(name);
                    class = Some(worse(class, (&error).into()));
                }
                // Only successes are reported: after a failure the last true status is kept.
                (Some(source), Ok(())) if !source.identity.is_deleting() => statuses.push(source.identity),
                (_, Ok(())) => {}
            }
        }
        let outcome = match class {
            None => Outcome::Done,
            Some(class) => Outcome::Retry { class, objects: Touched::Some(failed) },
        };
        Report { statuses, ..Report::new(outcome) }
    }

    fn settle(&self, _key: &Namespace, statuses: Vec<Identity>) -> Vec<Arc<ObjectId>> {
        let mut view = self.maps.view.lock().unwrap();
        let mut due = Vec::new();
        for identity in statuses {
            let source = view.sources.get_mut(&place(&identity.id));
            if let Some(source) = source.filter(|source| source.identity.asks_the_same(&identity)) {
                source.mirrored = true;
                due.push(identity.id);
            }
        }
        due
    }

    fn wanted(&self, id: &ObjectId, now: Timestamp) -> Option<Wanted> {
        let source = self.maps.view.lock().unwrap().sources.get(&place(id)).filter(|source| source.mirrored)?.clone();
        let mut status = MirrorStatus { text: Some(source.text), conditions: source.conditions };
        let generation = Some(source.identity.generation);
        conditions::set(&mut status.conditions, conditions::condition("Ready", true, "Mirrored", "", generation, now));
        let status = serde_json::to_value(status).ok();
        Some(Wanted { status, ..Wanted::nothing(source.identity) })
    }
}

fn steps(source: Option<&Source>, copy: Option<&Copy>) -> Vec<Step> {
    let mut steps = Vec::new();
    match source {
        Some(Source { identity, text, .. }) if !identity.is_deleting() => {
            if !identity.finalizers.has(FINALIZER) {
                steps.push(Step::Finalizers(identity.clone(), identity.finalizers.with(FINALIZER)));
            }
            if copy.is_none_or(|copy| copy.text.as_ref() != Some(text)) {
                steps.push(Step::Put { text: text.clone() });
            }
        }
        deleted => {
            if copy.is_some() {
                steps.push(Step::Remove);
            }
            if let Some(Source { identity, .. }) = deleted
                && identity.finalizers.has(FINALIZER)
            {
                steps.push(Step::Finalizers(identity.clone(), identity.finalizers.without(&[FINALIZER])));
            }
        }
    }
    steps
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
        let proof = Proof::Label { key: "mirror".to_owned(), value: name.to_owned() };
        let copy = Child::new::<ConfigMap>(Some(namespace), name, proof);
        let answer = match step {
            Step::Finalizers(identity, finalizers) => {
                let write = ObjectWrite::finalizers(&identity, &finalizers);
                self.writer.write(&write).await.map(drop).map_err(Into::into)
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
            // Deleted already, or it did not exist: that is what was wanted, or the watch will report more.
            Err(ChildError::Write(WriteError::Gone)) => Ok(()),
            other => other,
        }
    }
}

/// Our view requires a change and the server's state does not: one of the two is old, so check again.
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
    let maps = Maps { view: Arc::default(), queue: queue.clone(), calls: Arc::default() };
    operator.watch::<Mirror>("mirror", Watch::required().reported(&[]), Arc::new(maps.clone()));
    operator.watch::<ConfigMap>("mirror", Watch::required(), Arc::new(maps.clone()));
    let system = Mirrors { maps: maps.clone(), writer: operator.writer() };
    operator.drive(system, queue, DriveOptions::default());
    (operator, maps)
}

/// The state of the cluster as a user sees it, without the fields that differ from run to run.
pub async fn snapshot(client: &Client) -> Value {
    let mut snapshot = BTreeMap::new();
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
        snapshot.insert(
            key,
            json!({ "spec": mirror.data["spec"], "status": status, "finalizers": mirror.finalizers(), "deleting": deleting }),
        );
    }
    let children: Api<ConfigMap> = Api::all(client.clone());
    for child in children.list(&kube::api::ListParams::default()).await.unwrap() {
        let key = format!("ConfigMap {}/{}", child.namespace().unwrap(), child.name_any());
        snapshot.insert(key, json!({ "data": child.data, "labels": child.labels() }));
    }
    json!(snapshot)
}
