//! The complete example of `docs/add-a-system.md`: every `Greeting` gets a ConfigMap of its name with its text in it, and a status.
//!
//! ```text
//!  Greeting {spec.text} ─► index ─► one key per namespace ─► observe ─► plan ─► apply ─► ConfigMap
//!                                                                                  └──► report ─► status {ready, conditions}
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use signpost_engine::{
    Child, ChildError, ChildIndex, DriveOptions, Identity, Index, Job, ObjectId, Operator, Outcome, Project, Proof,
    Queue, Report, System, Touch, Touched, Wanted, Watch, Writer, conditions,
};
use signpost_inventory::Entry;
use signpost_planning::{Reason, Refusal};

/// `index.rs`: the state of the cluster, in small maps. Objects are not kept.
pub mod index {
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

    impl Greetings {
        pub fn touch(&self, id: &Arc<ObjectId>) {
            self.queue.touch(id.namespace.clone().unwrap_or_default(), Touch::One(id.clone()));
        }
    }

    impl Index<Greeting> for Greetings {
        fn applied(&self, object: &Greeting) {
            let identity = Identity::of(object);
            let id = identity.id.clone();
            let conditions = object.status.clone().unwrap_or_default().conditions;
            let mut known = self.known.lock().unwrap();
            let before = known.get(&id).filter(|before| before.identity.asks_the_same(&identity));
            let (same, decided) = (before.is_some(), before.and_then(|before| before.decided.clone()));
            known.insert(id.clone(), Known { identity, text: object.spec.text.clone(), conditions, decided });
            // A new status of ours, or a foreign change of it, is for the status path; anything else is for a pass.
            let key = id.namespace.clone().unwrap_or_default();
            if same { self.queue.statuses().enqueue([(id, key)]) } else { self.touch(&id) }
        }

        fn deleted(&self, id: &ObjectId) {
            self.known.lock().unwrap().remove(id);
        }
    }
}

/// `plan.rs` and `report.rs`: functions of their arguments.
mod decide {
    use super::*;

    pub type Todo = Vec<(index::Known, Result<String, Refusal>)>;
    pub type Done = Vec<(index::Known, Result<Result<(), Refusal>, ChildError>)>;

    pub fn plan(observed: Vec<index::Known>) -> Todo {
        let empty = || Refusal::new(Reason::InvalidSpec, "spec.text is empty; write a text");
        let text = |known: &index::Known| Some(known.text.clone()).filter(|text| !text.is_empty()).ok_or_else(empty);
        observed.into_iter().map(|known| (known.clone(), text(&known))).collect()
    }

    pub fn report(applied: Done) -> Report<Greeter> {
        let (mut statuses, mut outcome) = (Vec::new(), Outcome::Done);
        for (known, done) in applied {
            match done {
                // Only successes are reported: after a failure the last true status is kept.
                Err(error) => {
                    let objects = Touched::Some([known.identity.id].into());
                    outcome = Outcome::Retry { class: (&error).into(), objects };
                }
                Ok(decided) => statuses.push((known.identity, decided)),
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
    prefix: String,
}

impl System for Greeter {
    const NAME: &'static str = "greeter";
    type Key = String;
    type Object = Arc<ObjectId>;
    type Memory = ();
    type Observed = Vec<index::Known>;
    type Plan = decide::Todo;
    type Applied = decide::Done;
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
        for (known, text) in todo {
            let done = match text {
                Ok(text) => {
                    let (id, data) = (&known.identity.id, json!({ "text": format!("{}{text}", self.prefix) }));
                    // Ours by its label or by its owner, with which the cluster deletes it.
                    let label = Proof::Label { key: "greeting".into(), value: id.name.clone() };
                    let proof = Proof::Any(vec![label, Proof::Owner(Box::new(known.identity.owner_reference()))]);
                    let child = Child::new::<ConfigMap>(id.namespace.as_deref(), &id.name, proof);
                    self.writer.apply_child(&child, &json!({ "data": data })).await.map(|_| Ok(()))
                }
                Err(refusal) => Ok(Err(refusal)),
            };
            applied.push((known, done));
        }
        applied
    }

    fn report(applied: Self::Applied, _now: Timestamp) -> Report<Self> {
        decide::report(applied)
    }

    fn settle(&self, _key: &String, statuses: Vec<Self::Status>) -> Vec<Arc<ObjectId>> {
        let (mut known, mut due) = (self.greetings.known.lock().unwrap(), Vec::new());
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
        let refusal = known.decided?.err();
        let (reason, message) = refusal.as_ref().map_or(("Greeted", ""), |no| (no.reason.as_str(), &no.message));
        let (generation, mut conditions) = (Some(known.identity.generation), known.conditions);
        let condition = conditions::condition("Ready", refusal.is_none(), reason, message, generation, now);
        conditions::set(&mut conditions, condition);
        let status = Some(json!({ "conditions": conditions }));
        Some(Wanted { status, refusals: refusal.into_iter().collect(), ..Wanted::nothing(known.identity) })
    }
}

/// Adds the system. Every text begins with `prefix`.
pub fn install(operator: &mut Operator, prefix: String) {
    let queue = Queue::new();
    let greetings = Arc::new(index::Greetings { known: Mutex::default(), queue: queue.clone() });
    operator.watch::<index::Greeting>(Greeter::NAME, Watch::required().reported(&[]), greetings.clone());
    // A ConfigMap that is changed or deleted is corrected: its Greeting is touched.
    let (one, all) = (greetings.clone(), greetings.clone());
    let owner = |map: &ConfigMap| {
        let greeting = map.labels().get("greeting")?;
        Some(Arc::new(ObjectId::new::<index::Greeting>(map.namespace().as_deref(), greeting)))
    };
    let lost = move || all.known.lock().unwrap().keys().for_each(|id| all.touch(id));
    let children = ChildIndex::new(owner, move |_, id| one.touch(id), lost);
    operator.watch::<ConfigMap>(Greeter::NAME, Watch::required().labels("greeting").children(), Arc::new(children));
    let system = Greeter { greetings, writer: operator.writer(), prefix };
    operator.drive(system, queue, DriveOptions::default());
}
