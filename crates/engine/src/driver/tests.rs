//! A system of closures, driven on paused time.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use signpost_sandbox::Sandbox;
use tokio::time::{advance, sleep};

use super::*;
use crate::{clock::SystemClock, health::Health, lease::Fence, queue::Touch, write::WriterOptions};

#[derive(Clone, Copy, Default)]
struct Behaviour {
    observe: Duration,
    apply: Duration,
    panics: bool,
    /// The index does not know the key any more.
    deleted: bool,
}

/// The steps so far, in order, and the behaviour of each key.
#[derive(Default)]
struct Script {
    steps: Mutex<Vec<String>>,
    behaviour: Mutex<BTreeMap<&'static str, Behaviour>>,
    outcomes: Mutex<Vec<Outcome<u32>>>,
    /// The memory that each pass began with.
    memories: Mutex<Vec<u32>>,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl Script {
    fn note(&self, step: String) {
        self.steps.lock().unwrap().push(step);
    }

    fn steps(&self) -> Vec<String> {
        std::mem::take(&mut *self.steps.lock().unwrap())
    }

    fn of(&self, key: &str) -> Behaviour {
        self.behaviour.lock().unwrap().get(key).copied().unwrap_or_default()
    }

    fn set(&self, key: &'static str, behaviour: Behaviour) {
        self.behaviour.lock().unwrap().insert(key, behaviour);
    }
}

struct Fake(Arc<Script>);

/// The value passed from step to step: the script, the key and its memory.
type Passing = (Arc<Script>, &'static str, u32);

impl System for Fake {
    const NAME: &'static str = "fake";
    type Key = &'static str;
    type Object = u32;
    type Memory = u32;
    type Observed = Passing;
    type Plan = Passing;
    type Applied = Passing;
    type Status = ();
    type Measured = ();

    async fn observe(&self, job: &Job<&'static str, u32>, memory: u32) -> Passing {
        self.0.note(format!("observe {} {}", job.key, job.attempt));
        self.0.memories.lock().unwrap().push(memory);
        sleep(self.0.of(job.key).observe).await;
        (self.0.clone(), job.key, memory)
    }

    fn plan((script, key, memory): Passing, _now: Timestamp) -> Passing {
        assert!(!script.of(key).panics, "a defect in the plan");
        script.note(format!("plan {key}"));
        (script, key, memory)
    }

    async fn apply(&self, (script, key, memory): Passing) -> Passing {
        self.0.note(format!("apply {key}"));
        let running = self.0.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(running, Ordering::SeqCst);
        sleep(self.0.of(key).apply).await;
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.note(format!("applied {key}"));
        (script, key, memory)
    }

    fn report((script, key, memory): Passing, _now: Timestamp) -> Report<Self> {
        script.note(format!("report {key}"));
        let outcome = script.outcomes.lock().unwrap().pop().unwrap_or(Outcome::Done);
        Report { memory: Some(memory + 1), ..Report::new(outcome) }
    }

    fn knows(&self, key: &&'static str) -> bool {
        !self.0.of(key).deleted
    }

    fn wanted(&self, id: &ObjectId, _now: Timestamp) -> Option<Wanted> {
        self.0.note(format!("wanted {}", id.name));
        assert!(!self.0.of("status").panics, "a defect in the status");
        None
    }
}

struct Running {
    script: Arc<Script>,
    queue: Queue<&'static str, u32>,
    metrics: Metrics,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn drive(concurrency: usize, fence: Fence) -> Running {
    drive_after(std::future::ready(()), concurrency, fence)
}

fn drive_after(opens: impl Future<Output = ()> + Send + 'static, concurrency: usize, fence: Fence) -> Running {
    let script = Arc::new(Script::default());
    let queue = Queue::new();
    let metrics = Metrics::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let client = Sandbox::default().client();
    let health = Health::new(metrics.clone());
    let writer = Writer::new(client.clone(), WriterOptions::default(), fence.clone(), health.clone(), metrics.clone());
    let (recorder, _publisher) =
        crate::events::recorder(client, "test", clock.clone(), fence.clone(), health, metrics.clone());
    let refusals = Refusals::new(recorder.clone(), metrics.clone());
    let outlets = Outlets { writer, recorder, refusals, metrics: metrics.clone(), clock, fence };
    let options =
        DriveOptions { concurrency, deadline: Duration::from_secs(10), gather: Gather { at_most: Duration::ZERO } };
    let stop = CancellationToken::new();
    let driver = Driver::new(Arc::new(Fake(script.clone())), queue.clone(), options, outlets);
    let task = tokio::spawn(driver.run_after(opens, 1, stop.clone()));
    Running { script, queue, metrics, stop, task }
}

#[tokio::test(start_paused = true)]
async fn a_pass_is_four_steps_in_order() {
    let running = drive(4, Fence::open());
    running.queue.touch("a", Touch::All);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(running.script.steps(), ["observe a 0", "plan a", "apply a", "applied a", "report a"]);
    let text = running.metrics.encode();
    assert!(text.contains("signpost_passes_total{system=\"fake\",outcome=\"done\"} 1"), "{text}");
    assert!(text.contains("signpost_queue_running{system=\"fake\"} 0"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_exceeds_its_deadline_is_retried() {
    for (name, slow) in [
        ("observe", Behaviour { observe: Duration::from_hours(1), ..Behaviour::default() }),
        ("apply", Behaviour { apply: Duration::from_hours(1), ..Behaviour::default() }),
    ] {
        let running = drive(4, Fence::open());
        running.script.set("a", slow);
        running.queue.touch("a", Touch::One(1));
        sleep(Duration::from_secs(9)).await;
        running.script.set("a", Behaviour::default());
        sleep(Duration::from_secs(5)).await;
        let steps = running.script.steps();
        assert_eq!(steps.iter().filter(|step| *step == "report a").count(), 1, "{name}: {steps:?}");
        assert!(steps.contains(&"observe a 1".to_owned()), "{name}: {steps:?}");
        let text = running.metrics.encode();
        assert!(text.contains("signpost_passes_total{system=\"fake\",outcome=\"deadline\"} 1"), "{name}: {text}");
        assert!(text.contains("signpost_retries_total{system=\"fake\",class=\"transient\"} 1"), "{name}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_counted_and_retried_and_does_not_stop_other_keys() {
    let running = drive(1, Fence::open());
    running.script.set("bad", Behaviour { panics: true, ..Behaviour::default() });
    running.queue.touch("bad", Touch::All);
    running.queue.touch("good", Touch::All);
    sleep(Duration::from_secs(3)).await;
    let steps = running.script.steps();
    assert!(steps.contains(&"report good".to_owned()), "{steps:?}");
    assert!(steps.contains(&"observe bad 1".to_owned()), "{steps:?}");
    assert!(running.metrics.encode().contains("signpost_panics_total{system=\"fake\"}"));
    running.script.set("bad", Behaviour::default());
    sleep(Duration::from_secs(10)).await;
    assert!(running.script.steps().contains(&"report bad".to_owned()), "repaired by itself");
}

#[tokio::test(start_paused = true)]
async fn a_status_write_that_panics_is_counted_and_retried() {
    let running = drive(1, Fence::open());
    running.script.set("status", Behaviour { panics: true, ..Behaviour::default() });
    let id = Arc::new(ObjectId::new::<k8s_openapi::api::core::v1::ConfigMap>(Some("default"), "x"));
    let error = running.queue.statuses().write_now(id, "a").await.unwrap_err();
    assert_eq!(error, WriteError::Transient("the write panicked".to_owned()));
    assert!(running.metrics.encode().contains("signpost_panics_total{system=\"fake\"} 1"));
    running.script.set("status", Behaviour::default());
    sleep(Duration::from_mins(2)).await;
    assert_eq!(running.script.steps(), ["wanted x", "wanted x"], "repaired by itself");
}

#[tokio::test(start_paused = true)]
async fn keys_run_concurrently_up_to_the_limit() {
    let running = drive(3, Fence::open());
    let keys = ["a", "b", "c", "d", "e", "f", "g"];
    for key in keys {
        running.script.set(key, Behaviour { apply: Duration::from_secs(1), ..Behaviour::default() });
        running.queue.touch(key, Touch::All);
    }
    sleep(Duration::from_millis(3_500)).await;
    let reports = running.script.steps().iter().filter(|step| step.starts_with("report")).count();
    assert_eq!((reports, running.script.most.load(Ordering::SeqCst)), (7, 3));
}

#[tokio::test(start_paused = true)]
async fn stopping_lets_running_passes_end_and_starts_no_new_ones() {
    let running = drive(1, Fence::open());
    running.script.set("a", Behaviour { apply: Duration::from_secs(5), ..Behaviour::default() });
    running.queue.touch("a", Touch::All);
    running.queue.touch("b", Touch::All);
    sleep(Duration::from_secs(1)).await;
    running.stop.cancel();
    running.task.await.unwrap();
    let steps = running.script.steps();
    assert_eq!(steps.last().unwrap(), "report a");
    assert!(!steps.contains(&"observe b 0".to_owned()), "{steps:?}");
}

#[tokio::test(start_paused = true)]
async fn dropping_a_driver_stops_it_where_it_is() {
    let running = drive(1, Fence::open());
    running.script.set("a", Behaviour { apply: Duration::from_secs(5), ..Behaviour::default() });
    running.queue.touch("a", Touch::All);
    sleep(Duration::from_secs(1)).await;
    running.task.abort();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(running.script.steps(), ["observe a 0", "plan a", "apply a"]);
}

#[tokio::test(start_paused = true)]
async fn a_replica_whose_lease_ran_out_applies_nothing() {
    let candidate = crate::lease::Candidate::new(
        Sandbox::default().client(),
        crate::lease::LeaseOptions::new("default", "x"),
        "test",
        Arc::new(SystemClock),
        0,
    );
    let running = drive(1, candidate.fence());
    running.queue.touch("a", Touch::All);
    sleep(Duration::from_secs(5)).await;
    let steps = running.script.steps();
    assert!(steps.contains(&"plan a".to_owned()) && !steps.contains(&"apply a".to_owned()), "{steps:?}");
}

#[tokio::test(start_paused = true)]
async fn outcomes_decide_when_a_key_runs_next() {
    let running = drive(1, Fence::open());
    running.script.outcomes.lock().unwrap().push(Outcome::Check { after: Duration::from_mins(10) });
    running.queue.touch("a", Touch::One(1));
    sleep(Duration::from_mins(8)).await;
    assert_eq!(running.script.steps().len(), 5);
    advance(Duration::from_mins(4)).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(running.script.steps().len(), 5, "the check");
}

#[tokio::test(start_paused = true)]
async fn the_memory_of_a_key_survives_passes_but_not_a_panic() {
    let running = drive(1, Fence::open());
    let pass = |key| {
        running.queue.touch(key, Touch::All);
        sleep(Duration::from_secs(5))
    };
    pass("a").await;
    pass("a").await;
    pass("b").await;
    running.script.set("a", Behaviour { panics: true, ..Behaviour::default() });
    running.queue.touch("a", Touch::All);
    sleep(Duration::from_millis(10)).await;
    running.script.set("a", Behaviour::default());
    sleep(Duration::from_secs(5)).await;
    assert_eq!(*running.script.memories.lock().unwrap(), [0, 1, 0, 2, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_waits_gives_back_what_belongs_to_deleted_objects() {
    let open = CancellationToken::new();
    let running = drive_after(open.clone().cancelled_owned(), 1, Fence::open());
    let (script, queue) = (&running.script, &running.queue);
    for key in ["back", "deleted", "kept"] {
        queue.touch(key, Touch::One(1));
    }
    let id = Arc::new(ObjectId::new::<k8s_openapi::api::core::v1::ConfigMap>(Some("default"), "x"));
    queue.statuses().enqueue([(id, "deleted")]);
    for key in ["back", "deleted"] {
        script.set(key, Behaviour { deleted: true, ..Behaviour::default() });
    }
    sleep(TIDY + Duration::from_secs(1)).await;
    assert_eq!(script.steps(), ["wanted x"], "no pass before it opens");
    assert_eq!(queue.statuses().queued(), 0);
    let all = |keys: &[&'static str]| keys.iter().map(|key| (*key, Touched::All)).collect::<BTreeMap<_, _>>();
    assert_eq!(queue.waiting(), all(&["back", "deleted", "kept"]), "not forgotten at once");
    queue.touch("back", Touch::One(1));
    sleep(TIDY).await;
    assert_eq!(queue.waiting(), all(&["back", "kept"]));
    open.cancel();
    sleep(Duration::from_secs(1)).await;
    let steps = script.steps();
    assert_eq!(steps.iter().filter(|step| step.starts_with("report")).count(), 2, "{steps:?}");
    assert!(!steps.contains(&"observe deleted 0".to_owned()), "{steps:?}");
    running.stop.cancel();
}
