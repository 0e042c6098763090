//! The process dies after any request, again and again; in the end the server has exactly what the objects say.
//!
//! Sandbox and in-memory server. A seed decides what users do and at which step the process dies; `SEED=17` plays that one alone.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use signpost_apis::{
    externaldns::{self, DnsEndpoint},
    powerdns::{RRset, Zone},
};
use signpost_dns::{Fqdn, RecordKey, RecordType, ZoneName};
use signpost_provider_powerdns::{
    Action, Change, CommentChange, Health, MemoryServer, NewZone, Patched, ServerError, ServerInfo, SetContent,
    ZoneContents, ZoneInfo, ZoneServer, ZoneSettings,
};
use signpost_sandbox::{Fault, FaultPlan, Session};
use signpost_system_powerdns::{EndpointSource, Pace};
use signpost_testkit::{Cluster, eventually, sandbox_cluster};

use crate::{
    rig::{PATIENCE, start_with, zone_spec},
    room::marks_in,
};

/// Counts the requests of one process and ends it at the chosen one.
struct Life {
    /// Held by a call under way, so that none is still to come when the process is dead.
    calling: tokio::sync::RwLock<()>,
    steps: AtomicU64,
    end: u64,
    session: std::sync::OnceLock<Session>,
}

impl Life {
    /// Whether this step is still lived; the last one may take effect before the end.
    fn step(&self) -> Step {
        let n = self.steps.fetch_add(1, Ordering::SeqCst);
        match n.cmp(&self.end) {
            std::cmp::Ordering::Less => Step::Alive,
            std::cmp::Ordering::Equal => Step::Last,
            std::cmp::Ordering::Greater => Step::Dead,
        }
    }

    /// The end, whatever step it is at.
    async fn kill(&self) {
        let _none = self.calling.write().await;
        self.steps.store(u64::MAX / 2, Ordering::SeqCst);
        self.die();
    }

    fn die(&self) {
        if let Some(session) = self.session.get() {
            session.crash();
        }
    }
}

enum Step {
    Alive,
    Last,
    Dead,
}

/// A server as one process of the operator reaches it.
struct Mortal {
    inner: MemoryServer,
    life: Arc<Life>,
}

impl Mortal {
    fn guard<'a, T: Send + 'a>(
        &'a self,
        call: BoxFuture<'a, Result<T, ServerError>>,
    ) -> BoxFuture<'a, Result<T, ServerError>> {
        async move {
            let _calling = self.life.calling.read().await;
            let gone = || ServerError::Unreachable { why: "the process is dead".into() };
            match self.life.step() {
                Step::Alive => call.await,
                // The request arrives; nobody is there for the answer.
                Step::Last => {
                    let _ = call.await;
                    self.life.die();
                    Err(gone())
                }
                Step::Dead => {
                    self.life.die();
                    Err(gone())
                }
            }
        }
        .boxed()
    }
}

impl ZoneServer for Mortal {
    fn server(&self) -> BoxFuture<'_, Result<ServerInfo, ServerError>> {
        self.guard(self.inner.server())
    }
    fn zone<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneInfo>, ServerError>> {
        self.guard(self.inner.zone(zone))
    }
    fn read<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneContents>, ServerError>> {
        self.guard(self.inner.read(zone))
    }
    fn create<'a>(&'a self, zone: &'a NewZone) -> BoxFuture<'a, Result<ZoneInfo, ServerError>> {
        self.guard(self.inner.create(zone))
    }
    fn configure<'a>(
        &'a self,
        zone: &'a ZoneName,
        settings: &'a ZoneSettings,
    ) -> BoxFuture<'a, Result<(), ServerError>> {
        self.guard(self.inner.configure(zone, settings))
    }
    fn patch<'a>(&'a self, zone: &'a ZoneName, changes: &'a [Change]) -> BoxFuture<'a, Result<Patched, ServerError>> {
        self.guard(self.inner.patch(zone, changes))
    }
    fn delete<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<bool, ServerError>> {
        self.guard(self.inner.delete(zone))
    }
    fn health(&self) -> Health {
        Health::Up
    }
}

/// A small generator, so that a schedule is its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

struct Play {
    zones: Api<Zone>,
    sets: Api<RRset>,
    endpoints: Api<DnsEndpoint>,
    /// The wanted records: name → (type, record).
    wanted: BTreeMap<String, (&'static str, String)>,
    dice: Dice,
    /// Whether the zone object lists what DNSEndpoints have as marks, however few there are.
    packs: bool,
}

const TYPES: [&str; 3] = ["A", "TXT", "CNAME"];

/// Half of the names are published by DNSEndpoints.
fn is_endpoint(name: &str) -> bool {
    name.ends_with(['3', '4', '5'])
}

impl Play {
    fn record(&mut self) -> (&'static str, String) {
        let rtype = TYPES[usize::try_from(self.dice.roll(3)).unwrap()];
        let n = self.dice.roll(200);
        let record = match rtype {
            "A" => format!("192.0.2.{n}"),
            "TXT" => format!("\"text {n}\""),
            _ => format!("host-{n}.example.org."),
        };
        (rtype, record)
    }

    /// One thing a user does.
    async fn act(&mut self) {
        let name = format!("name-{}", self.dice.roll(6));
        if is_endpoint(&name) {
            self.act_on_endpoint(name).await;
            return;
        }
        if self.wanted.contains_key(&name) && self.dice.roll(3) == 0 {
            self.wanted.remove(&name);
            let _ = self.sets.delete(&name, &DeleteParams::default()).await;
            return;
        }
        // An object of that name may still be on its way out.
        if !self.wanted.contains_key(&name) && self.sets.get_opt(&name).await.unwrap().is_some() {
            return;
        }
        let (rtype, record) = self.record();
        let spec = json!({
            "type": rtype, "name": name, "ttl": 300, "records": [record],
            "zoneRef": { "name": "crash.example", "kind": "Zone" },
        });
        let result = if self.wanted.contains_key(&name) {
            let patch = json!({ "spec": spec });
            self.sets.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
        } else {
            let set = RRset::new(&name, serde_json::from_value(spec).unwrap());
            self.sets.create(&PostParams::default(), &set).await.map(drop)
        };
        result.unwrap();
        self.wanted.insert(name, (rtype, record));
    }
}

impl Play {
    /// The same with a DNSEndpoint: it is created, edited or deleted.
    async fn act_on_endpoint(&mut self, name: String) {
        if self.wanted.contains_key(&name) && self.dice.roll(3) == 0 {
            self.wanted.remove(&name);
            self.endpoints.delete(&name, &DeleteParams::default()).await.unwrap();
            return;
        }
        let (rtype, record) = self.record();
        let endpoint = json!({ "dnsName": format!("{name}.crash.example"), "recordType": rtype, "targets": [record] });
        let object = json!({
            "apiVersion": externaldns::API_VERSION, "kind": "DNSEndpoint",
            "metadata": { "name": name }, "spec": { "endpoints": [endpoint] },
        });
        let params = PatchParams::apply("user").force();
        self.endpoints.patch(&name, &params, &Patch::Apply(&object)).await.unwrap();
        self.wanted.insert(name, (rtype, record));
    }

    /// Whether every object reports what it should, and the zone object lists exactly what is published for DNSEndpoints.
    async fn is_settled(&self) -> Result<(), String> {
        let list = kube::api::ListParams::default();
        let sets = self.sets.list(&list).await.unwrap().items;
        let endpoints = self.endpoints.list(&list).await.unwrap().items;
        let settled = |set: &RRset| {
            let status = set.status.clone().unwrap_or_default();
            status.sync_status.as_deref() == Some("Succeeded") && status.observed_generation == set.metadata.generation
        };
        let status = self.zones.get("crash.example").await.unwrap().status.unwrap_or_default();
        let listed: Vec<&str> = status.endpoints.iter().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        let marks = marks_in(&status.endpoints);
        let ours = self.wanted.iter().filter(|(name, _)| is_endpoint(name));
        let expected: Vec<String> = ours.map(|(name, (rtype, _))| format!("{name} {rtype}")).collect();
        let all = sets.len() + endpoints.len() == self.wanted.len()
            && sets.iter().all(settled)
            && endpoints.iter().all(DnsEndpoint::is_observed);
        let lists = if self.packs { marks == expected.len() && listed.is_empty() } else { listed == expected };
        if all && status.in_flight.is_empty() && lists {
            Ok(())
        } else {
            let sets: Vec<_> = sets.iter().map(|set| (&set.metadata.name, &set.status)).collect();
            Err(format!("zone {status:?}\nsets {sets:?}\nendpoints {endpoints:?}"))
        }
    }
}

fn served(server: &MemoryServer, zone: &ZoneName) -> BTreeMap<RecordKey, Vec<String>> {
    let sets = server.contents(zone).map(|contents| contents.sets).unwrap_or_default();
    let ours = sets.into_iter().filter(|set| set.name != *zone.name());
    ours.map(|set| (RecordKey::new(set.name, set.rtype), set.contents.iter().map(ToString::to_string).collect()))
        .collect()
}

/// A life that ends with its write number `end`, and the session that counts the writes to the Kubernetes API.
fn life_of(end: u64) -> (Arc<Life>, Session) {
    let life = Arc::new(Life {
        calling: tokio::sync::RwLock::default(),
        steps: AtomicU64::new(0),
        end,
        session: std::sync::OnceLock::new(),
    });
    let counted = life.clone();
    let session = Session::new(FaultPlan::new(move |info, _| {
        if !info.is_write() {
            return Fault::None;
        }
        match counted.step() {
            Step::Alive => Fault::None,
            Step::Last => Fault::LoseAnswer,
            Step::Dead => Fault::Crash,
        }
    }));
    life.session.set(session.clone()).ok().unwrap();
    (life, session)
}

async fn schedule(cluster: &Cluster, namespace: &str, seed: u64) {
    let sandbox = cluster.sandbox().unwrap();
    let zone = ZoneName::parse("crash.example").unwrap();
    let server = MemoryServer::new();
    let mut play = Play {
        zones: Api::namespaced(cluster.client(), namespace),
        sets: Api::namespaced(cluster.client(), namespace),
        endpoints: Api::namespaced(cluster.client(), namespace),
        wanted: BTreeMap::new(),
        dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        packs: seed % 2 == 1,
    };
    let object = Zone::new("crash.example", serde_json::from_value(zone_spec()).unwrap());
    play.zones.create(&PostParams::default(), &object).await.unwrap();
    let foreign = RecordKey::new(Fqdn::parse("foreign.crash.example").unwrap(), RecordType::A);
    // No clock comes to help: what is left undone is done because something happens, or never.
    let grace = Duration::from_millis(500);
    let endpoints = Some(EndpointSource::default());
    let mut pace = Pace { resync: Duration::from_hours(1), grace, endpoints, ..Pace::default() };
    if play.packs {
        pace.packs_above = 0;
    }
    let pace = || pace.clone();

    let mut planted = false;
    for nth in 0..3 {
        for _ in 0..play.dice.roll(4) {
            play.act().await;
        }
        let end = play.dice.roll(24);
        let (life, session) = life_of(end);
        let client = sandbox.session_client(&session);
        let replica = start_with(client, Arc::new(Mortal { inner: server.clone(), life: life.clone() }), pace());
        // The actions of users meanwhile.
        for _ in 0..play.dice.roll(4) {
            play.act().await;
            tokio::time::sleep(Duration::from_millis(play.dice.roll(12))).await;
        }
        tokio::time::sleep(Duration::from_millis(20 + play.dice.roll(60))).await;
        life.kill().await;
        replica.crash().await;
        for _ in 0..play.dice.roll(3) {
            play.act().await;
        }
        let there = served(&server, &zone);
        assert!(!planted || there.contains_key(&foreign), "schedule {seed}, life {nth}: the foreign record is gone");
        if server.contents(&zone).is_some() {
            planted = true;
            let content = SetContent { ttl: 60, records: Box::new(["203.0.113.1".into()]), comment: None };
            let action = Action::Replace { content: Arc::new(content), comment: CommentChange::Keep };
            let change = Change { name: foreign.name.clone(), rtype: foreign.rtype, action };
            server.patch(&zone, &[change]).await.unwrap();
        }
    }

    let replica = start_with(cluster.client(), Arc::new(server.clone()), pace());
    let mut wanted: BTreeMap<RecordKey, Vec<String>> = play
        .wanted
        .iter()
        .map(|(name, (rtype, record))| {
            (RecordKey::new(zone.resolve(name).unwrap(), rtype.parse().unwrap()), vec![record.clone()])
        })
        .collect();
    if planted {
        wanted.insert(foreign.clone(), vec!["203.0.113.1".to_owned()]);
    }
    eventually(&format!("schedule {seed} ends right"), PATIENCE, || async {
        let there = served(&server, &zone);
        play.is_settled().await?;
        if there == wanted { Ok(()) } else { Err(format!("wanted {wanted:?}\nserved {there:?}")) }
    })
    .await;
    replica.stop().await;
}

/// Several at a time: most of a schedule is waiting.
async fn schedules(seeds: std::ops::Range<u64>) {
    use futures::StreamExt;
    futures::stream::iter(seeds)
        .map(|seed| async move {
            let cluster = sandbox_cluster().await;
            cluster.install(&signpost_apis::powerdns::crds()).await;
            cluster.install(&[externaldns::crd()]).await;
            let namespace = cluster.namespace("crash").await;
            schedule(&cluster, &namespace, seed).await;
        })
        .buffer_unordered(16)
        .collect::<Vec<()>>()
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whenever_the_process_dies_the_server_ends_with_what_the_objects_say() {
    match std::env::var("SEED").ok().map(|seed| seed.parse().expect("SEED is a number")) {
        Some(seed) => schedules(seed..seed + 1).await,
        None => schedules(0..200).await,
    }
}
