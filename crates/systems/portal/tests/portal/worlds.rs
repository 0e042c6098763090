//! Drawn worlds: DNS objects, portals, also of another cluster, Ingresses, DNSEndpoints, names that another system published, answers, outages, API
//! faults, restarts and clocks that are set, in simulated time. Answers may come late, when the object that they were asked for has changed, and steps may overlap. After every step the inventory equals what is computed from scratch from the objects and the answers, and it
//! stays so over a refresh. A thread reads all the time and never sees an owner in two states.
//!
//! ```text
//!  step ─► objects, answers, faults ─► operator on the sandbox ─► inventory ─┐
//!    └───► model: the same as plain data ─► rows from scratch ───────────────┴─► equal
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use proptest::prelude::*;
use serde_json::{Value, json};
use signpost_apis::portal::{DNS, FqdnStatus};
use signpost_dns::{Fqdn, RecordType};
use signpost_engine::{ManualClock, Operator, OperatorOptions};
use signpost_inventory::{At, Entry, Inventory, Origin, Owner, Provenance, Source, Stage};
use signpost_provider_portal::MemoryPortals;
use signpost_provider_resolver::{Lookup, LookupError, Memory, Reply};
use signpost_sandbox::{Fault, FaultPlan, Sandbox, SandboxClock, SandboxOptions, Session};
use signpost_system_portal::{Lookups, Pace, install_with};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::model::{Answer, Model, Object, Step, What, fqdn};
use self::reader::Reader;

mod elsewhere;
mod model;
mod reader;

const NAMESPACE: &str = "worlds";
/// Times of the operator, and how long a step may take until the inventory is right. All of it is simulated.
const REFRESH: Duration = Duration::from_mins(1);
const AGAIN: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_mins(15);

fn start() -> jiff::Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// A cluster with the kinds; installing them takes longer than a whole world.
fn prepared() -> &'static Sandbox {
    static PREPARED: OnceLock<Sandbox> = OnceLock::new();
    PREPARED.get_or_init(|| {
        paused().block_on(async {
            let sandbox =
                Sandbox::new(SandboxOptions { clock: SandboxClock::from_fn(start), ..SandboxOptions::default() });
            let crds = Api::all(sandbox.client());
            for crd in signpost_apis::portal::crds().into_iter().chain([signpost_apis::externaldns::crd()]) {
                crds.create(&PostParams::default(), &crd).await.unwrap();
            }
            let mut namespace = Namespace::default();
            namespace.metadata.name = Some(NAMESPACE.to_owned());
            Api::all(sandbox.client()).create(&PostParams::default(), &namespace).await.unwrap();
            sandbox
        })
    })
}

fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// A resolver whose answers are made at once and arrive late.
#[derive(Debug, Default)]
struct Late {
    resolver: Memory,
    /// Seconds.
    by: AtomicU64,
}

impl Lookup for Late {
    fn lookup<'a>(&'a self, name: &'a Fqdn, rtype: RecordType) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            let replies = self.resolver.lookup(name, rtype).await;
            sleep(Duration::from_secs(self.by.load(Ordering::SeqCst))).await;
            replies
        })
    }
}

/// A process of the operator.
struct Process {
    session: Session,
    clock: Arc<ManualClock>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

/// The real thing.
struct World {
    sandbox: Sandbox,
    late: Arc<Late>,
    portals: Arc<MemoryPortals>,
    inventory: Arc<Inventory>,
    weather: Arc<AtomicBool>,
    process: Option<Process>,
    reader: Reader,
    began: Instant,
}

impl World {
    fn new(prepared: &Sandbox) -> Self {
        let options =
            SandboxOptions { clock: SandboxClock::tokio_from(start()), log: false, ..SandboxOptions::default() };
        Self {
            sandbox: prepared.fork(options),
            late: Arc::default(),
            portals: Arc::default(),
            inventory: Arc::new(Inventory::new()),
            weather: Arc::default(),
            process: None,
            reader: Reader::start(),
            began: Instant::now(),
        }
    }

    fn now(&self) -> jiff::Timestamp {
        start() + jiff::SignedDuration::try_from(self.began.elapsed()).unwrap()
    }

    /// The faults of requests: watches end again and again, and in bad weather everything may fail in any way.
    fn faults(&self) -> FaultPlan {
        let weather = self.weather.clone();
        FaultPlan::new(move |info, n| {
            let (bad, watch) = (weather.load(Ordering::SeqCst), info.verb == "watch");
            match (watch, n.wrapping_mul(0x9e37_79b9).rotate_left(16) % 6) {
                (true, 0..=1) if bad => Fault::CutWatch { after: usize::try_from(n % 3).unwrap() },
                (true, 2) if bad => Fault::ExpireWatch { after: usize::try_from(n % 2).unwrap() },
                (true, _) => Fault::BreakWatch { after: Duration::from_secs(20 + n % 40) },
                (false, 0) if bad => Fault::Drop,
                (false, 1) if bad => Fault::LoseAnswer,
                (false, 2) if bad => Fault::conflict(),
                (false, 3) if bad => Fault::internal(),
                (false, 4) if bad => Fault::LateEffect(Duration::from_secs(n % 8)),
                (false, _) => Fault::None,
            }
        })
    }

    /// Starts a process with an empty inventory, which gets the published names of another system.
    fn start(&mut self, model: &Model) {
        self.inventory = Arc::new(Inventory::new());
        self.reader.reads(&self.inventory);
        let session = Session::new(self.faults());
        let clock = Arc::new(ManualClock::starting_at(self.now()));
        let options = OperatorOptions {
            namespace: Some(NAMESPACE.to_owned()),
            clock: clock.clone(),
            ..OperatorOptions::default()
        };
        let mut operator = Operator::new(self.sandbox.session_client(&session), options);
        let pace = Pace { refresh: REFRESH, again: AGAIN, namespace: NAMESPACE.to_owned(), ..Pace::default() };
        let (resolvers, portals) = (self.late.clone(), self.portals.clone());
        install_with(&mut operator, Lookups { resolvers, servers: BTreeMap::new(), portals }, &self.inventory, pace);
        let stop = CancellationToken::new();
        let token = stop.clone();
        let running = tokio::spawn(async move { drop(operator.run(token).await) });
        self.process = Some(Process { session, clock, stop, running });
        for slot in 0..model::PUBLISHERS {
            self.publish(model, slot);
        }
    }

    /// Ends the process, in order or at once.
    async fn end(&mut self, crash: bool) {
        let Some(Process { session, stop, running, .. }) = self.process.take() else { return };
        if crash {
            session.crash();
            running.abort();
        } else {
            stop.cancel();
        }
        drop(running.await);
        session.crash();
    }

    fn api(&self, kind: &str) -> (Api<DynamicObject>, ApiResource) {
        let (group, version, plural) = match kind {
            "Ingress" => ("networking.k8s.io", "v1", "ingresses"),
            "DNSEndpoint" => ("externaldns.k8s.io", "v1alpha1", "dnsendpoints"),
            "Portal" => ("sreportal.io", "v1alpha1", "portals"),
            _ => ("sreportal.io", "v1alpha1", "dns"),
        };
        let api_version = format!("{group}/{version}");
        let (group, version, kind, plural) = (group.into(), version.into(), kind.into(), plural.into());
        let resource = ApiResource { group, version, api_version, kind, plural };
        (Api::namespaced_with(self.sandbox.client(), NAMESPACE, &resource), resource)
    }

    async fn put(&self, kind: &str, name: &str, mut body: Value) {
        let (api, resource) = self.api(kind);
        body["apiVersion"] = json!(resource.api_version);
        body["kind"] = json!(resource.kind);
        body["metadata"]["name"] = json!(name);
        let status = body.as_object_mut().unwrap().remove("status");
        api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&body)).await.unwrap();
        if let Some(status) = status {
            let patch = json!({ "status": status });
            api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        }
    }

    /// Another system projects what it published.
    fn publish(&self, model: &Model, slot: u8) {
        let owner = Owner::new("powerdns", &format!("zone-{slot}"));
        let entries = model.published(slot).into_iter().map(|row| {
            let provenance = Provenance {
                origin: Origin { kind: row.kind.into(), namespace: NAMESPACE.into(), name: row.object.as_str().into() },
                source: Source::System,
                groups: vec![row.generation.as_str().into()],
                publisher: "powerdns".into(),
                ..Provenance::default()
            };
            Entry {
                targets: row.targets.iter().collect(),
                stage: Stage::Published,
                claims: true,
                first_seen: At::from(start()),
                ..Entry::new(fqdn(row.name), row.rtype, Arc::new(provenance))
            }
        });
        self.inventory.replace(&owner, entries.collect(), self.now());
    }

    /// Carries out a step whose effect the model knows already.
    async fn act(&mut self, model: &Model, what: &What) {
        match what {
            What::Object(object) => {
                let (kind, name) = (object.kind(), object.name());
                match model.manifest(object) {
                    Some(body) => self.put(kind, &name, body).await,
                    None => match self.api(kind).0.delete(&name, &DeleteParams::default()).await {
                        Ok(_) => {}
                        Err(kube::Error::Api(status)) if status.code == 404 => {}
                        Err(error) => panic!("{kind} {name} cannot be deleted: {error}"),
                    },
                }
            }
            What::Publish(slot, ..) => self.publish(model, *slot),
            What::Answer(name, answer) => self.answer(*name, answer),
            What::Elsewhere(_) => self.portals.set(elsewhere::URL, model.elsewhere.answer()),
            What::Down(down) => self.late.resolver.set_down(*down),
            What::Clock(hours) => {
                self.process.as_ref().unwrap().clock.skew_by(jiff::SignedDuration::from_hours(*hours));
            }
            What::Restart { crash } => {
                self.end(*crash).await;
                self.start(model);
            }
        }
    }

    fn answer(&self, name: u8, answer: &Answer) {
        let name = fqdn(name);
        for rtype in model::TYPES {
            self.late.resolver.set(&name, rtype, Vec::new());
        }
        let server: Arc<str> = "memory".into();
        let error = match answer {
            Answer::Late => Some(LookupError::Timeout { server, after: Duration::from_secs(5) }),
            Answer::Bad => Some(LookupError::BadAnswer { server, why: "nonsense".into() }),
            Answer::Records(_) => None,
        };
        self.late.resolver.fail(&name, error);
        if let Answer::Records(records) = answer {
            for (rtype, values) in records {
                self.late.resolver.set(&name, *rtype, values.clone());
            }
        }
    }

    /// Waits until the inventory has exactly these rows.
    async fn shows(&self, expected: &[String], step: &str) {
        let until = Instant::now() + LIMIT;
        loop {
            let seen = model::rows(&self.inventory.snapshot());
            if seen == expected {
                return;
            }
            assert!(Instant::now() < until, "{step}\nexpected {expected:#?}\nseen {seen:#?}");
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Waits until the statuses of the DNS objects have the verdicts.
    async fn reports(&self, model: &Model, step: &str) {
        let (until, api) = (Instant::now() + LIMIT, Api::<DNS>::namespaced(self.sandbox.client(), NAMESPACE));
        loop {
            let mut seen = Vec::new();
            for object in api.list(&kube::api::ListParams::default()).await.unwrap().items {
                let name = object.name_any();
                let fqdns = object.status.unwrap_or_default().groups.into_iter().flat_map(|group| group.fqdns);
                let line = |fqdn: FqdnStatus| {
                    let (rtype, status) = (fqdn.record_type.unwrap_or_default(), fqdn.sync_status.unwrap_or_default());
                    format!("{name} {} {rtype} {} {status}", fqdn.fqdn, fqdn.targets.join(","))
                };
                seen.extend(fqdns.map(line));
            }
            seen.sort();
            seen.dedup();
            let expected = model.reported();
            if seen == expected {
                return;
            }
            assert!(Instant::now() < until, "{step}\nexpected statuses {expected:#?}\nseen {seen:#?}");
            sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn play(prepared: &Sandbox, steps: Vec<Step>) {
    let (mut world, mut model) = (World::new(prepared), Model::default());
    world.put("Portal", "main", model.manifest(&Object::Portal(0, Some(true))).unwrap()).await;
    world.start(&model);
    for (number, drawn) in steps.iter().enumerate() {
        let Step { what, bad_weather, late, .. } = drawn;
        let step = format!("step {number}: {drawn:?}");
        world.late.by.store(*late, Ordering::SeqCst);
        world.weather.store(*bad_weather, Ordering::SeqCst);
        model.take(what);
        world.reader.expects(model.whole(what));
        world.act(&model, what).await;
        // During an outage, what is known depends on what was known before.
        if !model.down && drawn.runs_into(steps.get(number + 1)) {
            sleep(Duration::from_millis(1_500)).await;
            world.weather.store(false, Ordering::SeqCst);
            continue;
        }
        if *bad_weather {
            sleep(REFRESH).await;
            world.weather.store(false, Ordering::SeqCst);
        }
        let expected = model.settle();
        world.shows(&expected, &step).await;
        world.reports(&model, &step).await;
        sleep(REFRESH + REFRESH / 4).await;
        assert_eq!(model::rows(&world.inventory.snapshot()), expected, "a refresh later; {step}");
        assert_eq!(model::conflicts(&world.inventory.snapshot()), model.conflicts(), "conflicts; {step}");
    }
    world.end(true).await;
    world.reader.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_inventory_equals_a_computation_from_scratch_after_every_step(steps in prop::collection::vec(model::step(), 1..24)) {
        let prepared = prepared();
        paused().block_on(play(prepared, steps));
    }
}
