//! The complete example of `docs/add-a-system.md`: every `Greeting` gets a ConfigMap of its name with its text in it, and a status.
//!
//! ```text
//!  Greeting {spec.text} ─► index ─► one key per namespace ─► observe ─► plan ─► apply ─► ConfigMap
//!                                                                                  └──► report ─► status {ready, conditions}
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use signpost_engine::{
    Child, ChildError, ChildIndex, DriveOptions, Identity, Index, Job, ObjectId, Operator, OperatorOptions, Outcome,
    Project, Proof, Queue, Report, System, Touch, Touched, Wanted, Watch, Writer, conditions,
};
use signpost_inventory::Entry;
use signpost_planning::{Reason, Refusal};

/// `index.rs`: the state of the cluster, in small maps. Objects are not kept.
mod index {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
    #[kube(group = "test.signpost.dev", version = "v1", kind = "Greeting", namespaced)]
    #[kube(status = "GreetingStatus", schema = "disabled")]
    pub struct GreetingSpec {
        pub text: String,
    }

    #[derive(Clone, Debug, Default, Deserialize, Serialize)]
    pub struct GreetingStatus {
        #[serde(default)]
        pub conditions: Vec<Condition>,
    }

    #[derive(Clone, Debug)]
    pub struct Known {
        pub identity: Identity,
        pub text: String,
        pub conditions: Vec<Condition>,
        /// The decision of the last pass, until the object changes.
        pub decided: Option<Result<(), Refusal>>,
    }

    pub struct Greetings {
        pub known: Mutex<BTreeMap<Arc<ObjectId>, Known>>,
        pub queue: Queue<String, Arc<ObjectId>>,
    }

    impl Index<Greeting> for Greetings {
        fn applied(&self, object: &Greeting) {
            let identity = Identity::of(object);
            let id = identity.id.clone();
            let conditions = object.status.clone().unwrap_or_default().conditions;
            let mut known = self.known.lock().unwrap();
            let before = known.get(&id);
            let same = before.is_some_and(|before| before.identity.asks_the_same(&identity));
            let decided = before.filter(|_| same).and_then(|before| before.decided.clone());
            known.insert(id.clone(), Known { identity, text: object.spec.text.clone(), conditions, decided });
            let key = id.namespace.clone().unwrap_or_default();
            // A new status of ours, or a foreign change of it, is for the status path; anything else is for a pass.
            if same { self.queue.statuses().enqueue([(id, key)]) } else { self.queue.touch(key, Touch::One(id)) }
        }

        fn deleted(&self, id: &ObjectId) {
            self.known.lock().unwrap().remove(id);
        }
    }
}

/// `plan.rs` and `report.rs`: functions of their arguments.
mod decide {
    use super::*;

    pub type Todo = Vec<(index::Known, Result<Value, Refusal>)>;

    pub fn plan(observed: Vec<index::Known>) -> Todo {
        let decide = |known: index::Known| {
            let content = if known.text.is_empty() {
                Err(Refusal::new(Reason::InvalidSpec, "spec.text is empty; write a text"))
            } else {
                Ok(json!({ "data": { "text": known.text } }))
            };
            (known, content)
        };
        observed.into_iter().map(decide).collect()
    }

    pub fn report(applied: Vec<(index::Known, Result<(), ChildError>, Option<Refusal>)>) -> Report<Greeter> {
        let mut statuses = Vec::new();
        let mut outcome = Outcome::Done;
        for (known, done, refusal) in applied {
            match (done, refusal) {
                (_, Some(refusal)) => statuses.push((known.identity, Err(refusal))),
                (Ok(()), None) => statuses.push((known.identity, Ok(()))),
                // Only successes are reported: after a failure the last true status is kept.
                (Err(error), None) => {
                    let objects = Touched::Some([known.identity.id].into());
                    outcome = Outcome::Retry { class: (&error).into(), objects };
                }
            }
        }
        Report { statuses, ..Report::new(outcome) }
    }
}

/// `project.rs`: the names that the system knows, for the inventory. A greeting has none.
impl Project<String> for Greeter {
    fn project(&self, _key: &String, _now: Timestamp) -> Vec<Entry> {
        Vec::new()
    }
}

/// `lib.rs`: the system itself.
pub struct Greeter {
    greetings: Arc<index::Greetings>,
    writer: Writer,
}

impl System for Greeter {
    const NAME: &'static str = "greeter";
    type Key = String;
    type Object = Arc<ObjectId>;
    type Memory = ();
    type Observed = Vec<index::Known>;
    type Plan = decide::Todo;
    type Applied = Vec<(index::Known, Result<(), ChildError>, Option<Refusal>)>;
    type Status = (Identity, Result<(), Refusal>);
    type Measured = ();

    async fn observe(&self, job: &Job<String, Arc<ObjectId>>, (): ()) -> Vec<index::Known> {
        let known = self.greetings.known.lock().unwrap();
        let here = |id: &ObjectId| id.namespace.as_deref() == Some(job.key.as_str());
        known.iter().filter(|(id, _)| here(id) && job.touched.includes(id)).map(|(_, known)| known.clone()).collect()
    }

    fn plan(observed: Vec<index::Known>, _now: Timestamp) -> decide::Todo {
        decide::plan(observed)
    }

    async fn apply(&self, todo: decide::Todo) -> Self::Applied {
        let mut applied = Vec::new();
        for (known, content) in todo {
            let (done, refusal) = match content {
                Ok(content) => {
                    let id = &known.identity.id;
                    let proof = Proof::Label { key: "greeting".into(), value: id.name.clone() };
                    let child = Child::new::<ConfigMap>(id.namespace.as_deref(), &id.name, proof);
                    (self.writer.apply_child(&child, &content).await.map(drop), None)
                }
                Err(refusal) => (Ok(()), Some(refusal)),
            };
            applied.push((known, done, refusal));
        }
        applied
    }

    fn report(applied: Self::Applied, _now: Timestamp) -> Report<Self> {
        decide::report(applied)
    }

    fn settle(&self, _key: &String, statuses: Vec<Self::Status>) -> Vec<Arc<ObjectId>> {
        let mut known = self.greetings.known.lock().unwrap();
        let mut due = Vec::new();
        for (identity, decided) in statuses {
            // An object that has changed since gets its status from its next pass.
            if let Some(known) = known.get_mut(&identity.id).filter(|known| known.identity.asks_the_same(&identity)) {
                known.decided = Some(decided);
                due.push(identity.id);
            }
        }
        due
    }

    fn wanted(&self, id: &ObjectId, now: Timestamp) -> Option<Wanted> {
        let known = self.greetings.known.lock().unwrap().get(id)?.clone();
        let (ready, reason, message) = match known.decided? {
            Ok(()) => (true, "Greeted", String::new()),
            Err(refusal) => (false, refusal.reason.as_str(), refusal.message),
        };
        let generation = Some(known.identity.generation);
        let mut conditions = known.conditions;
        let condition = conditions::condition("Ready", ready, reason, message.clone(), generation, now);
        conditions::set(&mut conditions, condition);
        let refusal = (!ready).then(|| Refusal::new(Reason::InvalidSpec, message));
        let status = Some(json!({ "conditions": conditions }));
        Some(Wanted { status, refusal, ..Wanted::nothing(known.identity) })
    }
}

pub fn install(operator: &mut Operator) {
    let queue = Queue::new();
    let greetings = Arc::new(index::Greetings { known: Mutex::default(), queue: queue.clone() });
    operator.watch::<index::Greeting>(Greeter::NAME, Watch::required().reported(&[]), greetings.clone());
    // A ConfigMap that is changed or deleted is corrected: its Greeting is touched.
    let touched = greetings.clone();
    let children = ChildIndex::<ConfigMap, String>::new(
        |map| map.labels().get("greeting").cloned(),
        move |id, name| {
            let greeting = ObjectId::new::<index::Greeting>(id.namespace.as_deref(), name);
            touched.queue.touch(id.namespace.clone().unwrap_or_default(), Touch::One(Arc::new(greeting)));
        },
    );
    operator.watch::<ConfigMap>(Greeter::NAME, Watch::required().labels("greeting").children(), Arc::new(children));
    let system = Greeter { greetings, writer: operator.writer() };
    operator.drive(system, queue, DriveOptions::default());
}

#[tokio::test(start_paused = true)]
async fn a_greeting_is_served_refused_and_restored() {
    let sandbox = support::sandbox(1);
    let user = sandbox.client();
    support::install_kind(&user, "Greeting").await;
    let mut operator =
        Operator::new(sandbox.client(), OperatorOptions { clock: support::clock(), ..OperatorOptions::default() });
    install(&mut operator);
    let stop = tokio_util::sync::CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    tokio::spawn(operator.run(stop));
    let greetings: Api<index::Greeting> = Api::namespaced(user.clone(), "default");
    let maps: Api<ConfigMap> = Api::namespaced(user, "default");
    for (name, text) in [("hello", "world"), ("empty", "")] {
        let greeting = index::Greeting::new(name, index::GreetingSpec { text: text.into() });
        greetings.create(&PostParams::default(), &greeting).await.unwrap();
    }
    let minute = Duration::from_mins(1);
    let judged = async |name: &str, reason: &str| {
        let status = greetings.get(name).await.unwrap().status?;
        status.conditions.first().filter(|condition| condition.reason == reason).map(drop)
    };
    support::eventually("the greeting is served", minute, || judged("hello", "Greeted")).await;
    support::eventually("the empty one is refused", minute, || judged("empty", "InvalidSpec")).await;
    let text = async || maps.get_opt("hello").await.unwrap()?.data?.remove("text");
    assert_eq!(text().await.as_deref(), Some("world"));
    maps.delete("hello", &DeleteParams::default()).await.unwrap();
    assert_eq!(support::eventually("the ConfigMap is created again", minute, text).await, "world");
}
