//! Direct mode over histories in which two Ingresses share hosts. The process is stopped at every request, with and without its effect.
//!
//! ```text
//!  steps ─► Ingresses ─► operator ─► transport: counts, stops, judges ─► strict stand-in
//!                                               after every write, each URL is as before the step or as after it
//! ```
//! The clock is paused: an hour without Pangolin takes no time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use signpost_exposure::{PathRule, PathType, kubernetes_answer};
use signpost_provider_pangolin::{
    Connection, DomainId, Incoming, NewResource, Outgoing, Pangolin as _, PangolinClient, PangolinError, Secret,
    Transport, parse_base_url,
};
use signpost_sandbox::edge::{Answer, Visit};
use signpost_sandbox::{Sandbox, SandboxClock, SandboxOptions};
use signpost_system_pangolin::{Policy, install_api};
use signpost_testkit::eventually;
use signpost_testkit::pangolin::{Asked, ORG, Pangolin, State, Version};
use tokio::sync::Notify;

use crate::common::bed::{Running, path};

/// A path, its Service and the port.
type Route = (&'static str, &'static str, u16);
/// A host and its routes.
type Rule = (&'static str, Vec<Route>);

/// What an Ingress asks for: each host with its paths.
#[derive(Clone, Debug)]
struct Wish {
    class: &'static str,
    sso: bool,
    headers: bool,
    rules: Vec<Rule>,
}

/// One host, open to everybody, by these paths.
fn wish(host: &'static str, paths: &[Route]) -> Wish {
    Wish { class: "pangolin", sso: false, headers: false, rules: vec![(host, paths.to_vec())] }
}

impl Wish {
    fn and(mut self, host: &'static str, paths: &[Route]) -> Self {
        self.rules.push((host, paths.to_vec()));
        self
    }

    fn protected(self) -> Self {
        Self { sso: true, ..self }
    }

    fn with_headers(self) -> Self {
        Self { headers: true, ..self }
    }

    fn of_class(self, class: &'static str) -> Self {
        Self { class, ..self }
    }

    fn annotations(&self) -> Value {
        json!({
            "pangolin.ingress.k8s.io/sso": self.sso.then_some("true"),
            "pangolin.ingress.k8s.io/headers": self.headers.then_some("X-From: one"),
        })
    }

    fn spec(&self) -> Value {
        let rule = |(host, paths): &Rule| {
            let paths: Vec<Value> =
                paths.iter().map(|(at, service, port)| path(at, "Prefix", service, *port)).collect();
            json!({"host": host, "http": {"paths": paths}})
        };
        json!({"ingressClassName": self.class, "rules": self.rules.iter().map(rule).collect::<Vec<_>>()})
    }
}

#[derive(Clone, Debug)]
enum Change {
    Put(&'static str, Wish),
    Delete(&'static str),
}

#[derive(Clone, Debug)]
enum Step {
    /// The operator sees the change at once.
    Now(Change),
    /// The operator is down meanwhile.
    Stopped(Vec<Change>),
    /// Pangolin is down for an hour meanwhile; the operator restarts in the middle where asked.
    Outage(Vec<Change>, bool),
}

const HOSTS: [&str; 3] = ["a.ns.test", "b.wild.test", "c.ns.test"];
const URLS: [&str; 4] = ["/", "/api", "/api/v1/x", "/apiary"];

/// What the cluster asks for, worked out without the operator's code: the oldest Ingress of our class has a host.
#[derive(Clone, Debug, Default)]
struct Model {
    wishes: BTreeMap<String, Wish>,
    ages: BTreeMap<String, (Option<Timestamp>, Option<String>)>,
}

impl Model {
    fn owner(&self, host: &str) -> Option<&Wish> {
        let claims = |wish: &Wish| wish.class == "pangolin" && wish.rules.iter().any(|(of, _)| *of == host);
        let all = self.wishes.iter().filter(|(_, wish)| claims(wish));
        all.min_by_key(|(name, _)| self.ages.get(*name)).map(|(_, wish)| wish)
    }

    fn visit(&self, host: &str, url: &str) -> Visit<String> {
        let Some(wish) = self.owner(host) else { return Visit::Open(Answer::NoRouter) };
        let paths = wish.rules.iter().filter(|(of, _)| *of == host).flat_map(|(_, paths)| paths);
        let rules: Vec<PathRule<String>> = paths
            .map(|(at, service, port)| PathRule {
                path: (*at).to_owned(),
                kind: PathType::Prefix,
                backend: format!("{service}.one.svc.cluster.local:{port}"),
            })
            .collect();
        match kubernetes_answer(&rules, None, url) {
            Some(_) if wish.sso => Visit::Login,
            Some(backend) => Visit::Open(Answer::Served(vec![backend.clone()])),
            None => Visit::Open(Answer::NoRouter),
        }
    }

    fn hosts(&self) -> Vec<&'static str> {
        HOSTS.into_iter().filter(|host| self.owner(host).is_some()).collect()
    }
}

fn urls() -> impl Iterator<Item = (&'static str, &'static str)> {
    HOSTS.into_iter().flat_map(|host| URLS.into_iter().map(move |url| (host, url)))
}

/// The way to the stand-in.
struct Wire {
    state: Mutex<State>,
    requests: AtomicUsize,
    /// The number of the request at which its caller stops, and whether it still has its effect.
    stop: Mutex<Option<(usize, bool)>>,
    stopped: Notify,
    down: AtomicBool,
    /// What was asked for before the step, and with it.
    step: Mutex<(Model, Model)>,
    wrong: Mutex<Vec<String>>,
}

impl Wire {
    fn new(version: Version, stop: Option<(usize, bool)>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::of(version)),
            requests: AtomicUsize::new(0),
            stop: Mutex::new(stop),
            stopped: Notify::new(),
            down: AtomicBool::new(false),
            step: Mutex::default(),
            wrong: Mutex::default(),
        })
    }

    fn judge(&self, state: &State, what: &str) {
        let (before, now) = &*self.step.lock().unwrap();
        for (host, url) in urls() {
            let (seen, allowed) = (state.visit(host, url), [before.visit(host, url), now.visit(host, url)]);
            // A host that becomes public, or that becomes protected, may ask for a login meanwhile; one that is public and stays so may not.
            let protected = [before, now].iter().any(|model| model.owner(host).is_some_and(|wish| wish.sso));
            let login = seen == Visit::Login && (protected || allowed[0] == Visit::Open(Answer::NoRouter));
            if !allowed.contains(&seen) && !login {
                let line = format!("after {what}: {host}{url} is {seen:?}, not one of {allowed:?}");
                self.wrong.lock().unwrap().push(line);
            }
        }
    }

    fn serve(&self, request: &Outgoing, what: &str) -> Incoming {
        let mut state = self.state.lock().unwrap();
        let (status, body) = state.respond(&Asked {
            method: request.method.as_str(),
            path: request.url.path(),
            query: request.url.query().unwrap_or_default(),
            authorization: request.authorization.as_deref(),
            body: request.body.as_deref(),
        });
        if request.method.as_str() != "GET" {
            self.judge(&state, what);
        }
        Incoming { status, location: None, retry_after: None, body: body.into_bytes() }
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl Transport for Wire {
    fn carry(&self, request: Outgoing) -> BoxFuture<'_, Result<Incoming, PangolinError>> {
        async move {
            if self.down.load(Ordering::SeqCst) {
                return Err(PangolinError::Unreachable { what: "connection refused".to_owned(), dropped: false });
            }
            // Whether it answers at all is asked by the clock; these requests have no number.
            if request.url.path().trim_end_matches('/') == "/v1" {
                return Ok(self.serve(&request, "probe"));
            }
            let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
            let effect = self.stop.lock().unwrap().take_if(|(at, _)| *at == number).map(|(_, effect)| effect);
            if effect == Some(false) {
                self.stopped.notify_one();
                return std::future::pending().await;
            }
            let what = format!("{number}. {} {}", request.method, request.url.path());
            let answer = self.serve(&request, &what);
            if effect == Some(true) {
                self.stopped.notify_one();
                return std::future::pending().await;
            }
            Ok(answer)
        }
        .boxed()
    }
}

struct Play {
    client: Client,
    ingresses: Api<Ingress>,
    wire: Arc<Wire>,
    running: Option<Running>,
    model: Model,
    /// The resources that are not ours, as they were.
    foreign: Vec<String>,
}

impl Play {
    async fn open(version: Version, stop: Option<(usize, bool)>) -> Self {
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        let clock = SandboxClock::tokio_from(start);
        let client = Sandbox::new(SandboxOptions { clock, log: false, ..SandboxOptions::default() }).client();
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "one"}})).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        let services: Api<Service> = Api::namespaced(client.clone(), "one");
        for (name, ports) in
            [("app", json!([{"name": "a", "port": 80}, {"name": "b", "port": 8080}])), ("api", json!([{"port": 9000}]))]
        {
            let service = json!({"metadata": {"name": name}, "spec": {"ports": ports}});
            services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
        }
        let wire = Wire::new(version, None);
        let new = NewResource {
            name: "by hand".into(),
            domain: DomainId("d-ns".into()),
            host: signpost_dns::Fqdn::parse("foreign.ns.test").unwrap(),
        };
        let by_hand = pangolin(&wire).create_resource(&new).await.unwrap().id.0;
        {
            // One by hand, and one with the mark of another owner.
            let mut state = wire.state.lock().unwrap();
            let mut other = state.resources[&by_hand].clone();
            (other.id, other.nice_id) = (9000, "sp-other-0123456789ab-ba9876543210".to_owned());
            (other.full_domain, other.subdomain) = ("other.ns.test".to_owned(), Some("other".to_owned()));
            state.resources.insert(other.id, other);
        }
        wire.requests.store(0, Ordering::SeqCst);
        *wire.stop.lock().unwrap() = stop;
        let ingresses = Api::namespaced(client.clone(), "one");
        let mut play = Self { client, ingresses, wire, running: None, model: Model::default(), foreign: Vec::new() };
        play.foreign = play.rows(false);
        play.start();
        play
    }

    /// The resources with a mark of ours, or the others, as text.
    fn rows(&self, ours: bool) -> Vec<String> {
        let state = self.wire.state.lock().unwrap();
        let is_ours = |row: &&signpost_testkit::pangolin::ResourceRow| {
            [&row.nice_id, &row.name].iter().any(|text| text.starts_with("sp-home-")) == ours
        };
        state.resources.values().filter(is_ours).map(|row| format!("{row:?}")).collect()
    }

    fn start(&mut self) {
        let policy = Policy {
            owner: Some("home".to_owned()),
            default_tunnel: Some("cluster".to_owned()),
            namespace: "one".to_owned(),
            ..Policy::default()
        };
        let server = Arc::new(pangolin(&self.wire));
        self.running = Some(Running::start(self.client.clone(), move |operator| install_api(operator, policy, server)));
    }

    async fn crash(&mut self) {
        if let Some(running) = self.running.take() {
            running.crash().await;
        }
    }

    async fn change(&mut self, change: &Change) {
        match change {
            Change::Put(name, wish) if self.model.wishes.contains_key(*name) => {
                let patch = json!({"metadata": {"annotations": wish.annotations()}, "spec": wish.spec()});
                self.ingresses.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
                self.model.wishes.insert((*name).to_owned(), wish.clone());
            }
            Change::Put(name, wish) => {
                // Ages are in seconds.
                tokio::time::sleep(Duration::from_secs(2)).await;
                let annotations = wish.annotations();
                let given: serde_json::Map<String, Value> = annotations
                    .as_object()
                    .unwrap()
                    .clone()
                    .into_iter()
                    .filter(|(_, value)| !value.is_null())
                    .collect();
                let object = json!({"metadata": {"name": name, "annotations": given}, "spec": wish.spec()});
                self.ingresses.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
                self.model.wishes.insert((*name).to_owned(), wish.clone());
            }
            Change::Delete(name) => {
                if self.model.wishes.remove(*name).is_some() {
                    self.ingresses.delete(name, &DeleteParams::default()).await.unwrap();
                }
            }
        }
        let listed = self.ingresses.list(&ListParams::default()).await.unwrap();
        let age = |ingress: &Ingress| (ingress.creation_timestamp().map(|time| time.0), ingress.uid());
        self.model.ages = listed.iter().map(|ingress| (ingress.name_any(), age(ingress))).collect();
    }

    /// Makes changes that the operator is to see as one step. It may see a change before it is made here.
    async fn step(&mut self, changes: &[Change]) {
        let before = self.model.clone();
        let mut after = before.clone();
        // A new Ingress is the youngest, so what the step leads to is known before it is made.
        for change in changes {
            match change {
                Change::Put(name, wish) => {
                    after.wishes.insert((*name).to_owned(), wish.clone());
                    let youngest = (Some(Timestamp::MAX), None);
                    after.ages.entry((*name).to_owned()).or_insert(youngest);
                }
                Change::Delete(name) => {
                    after.wishes.remove(*name);
                    after.ages.remove(*name);
                }
            }
        }
        *self.wire.step.lock().unwrap() = (before, after);
        for change in changes {
            self.change(change).await;
        }
        self.wire.step.lock().unwrap().1 = self.model.clone();
    }

    /// Waits until exactly what is asked for is there; a process that is stopped meanwhile is started again.
    async fn settle(&mut self, what: &str) {
        let (wire, model) = (self.wire.clone(), self.model.clone());
        let done = async {
            eventually(what, Duration::from_mins(15), || async {
                let state = wire.state.lock().unwrap();
                let open: Vec<String> = urls()
                    .filter(|(host, url)| state.visit(host, url) != model.visit(host, url))
                    .map(|(host, url)| {
                        format!("{host}{url} is {:?}, not {:?}", state.visit(host, url), model.visit(host, url))
                    })
                    .collect();
                let mut hosts: Vec<String> = state.resources.values().map(|row| row.full_domain.clone()).collect();
                hosts.retain(|host| !["foreign.ns.test", "other.ns.test"].contains(&host.as_str()));
                hosts.sort();
                if open.is_empty() && hosts == model.hosts() { Ok(()) } else { Err((open, hosts)) }
            })
            .await;
        };
        tokio::pin!(done);
        let stopped = {
            let wire = self.wire.clone();
            async move { wire.stopped.notified().await }
        };
        tokio::select! {
            biased;
            () = stopped => {
                self.crash().await;
                self.start();
                done.await;
            }
            () = &mut done => {}
        }
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Now(change) => self.step(std::slice::from_ref(change)).await,
            Step::Stopped(changes) => {
                self.crash().await;
                self.step(changes).await;
                self.start();
            }
            Step::Outage(changes, restart) => {
                self.wire.down.store(true, Ordering::SeqCst);
                self.step(changes).await;
                tokio::time::sleep(Duration::from_mins(30)).await;
                if *restart {
                    self.crash().await;
                    self.start();
                }
                tokio::time::sleep(Duration::from_mins(30)).await;
                self.wire.down.store(false, Ordering::SeqCst);
            }
        }
    }
}

fn pangolin(wire: &Arc<Wire>) -> PangolinClient {
    let base = parse_base_url("http://pangolin.test").unwrap();
    PangolinClient::over(wire.clone(), &Connection::new(base, ORG, Secret::Value(Pangolin::KEY.into())))
}

/// Plays a history; returns how many requests it took.
fn play(history: &[Step], version: Version, stop: Option<(usize, bool)>) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut play = Play::open(version, stop).await;
        for (number, step) in history.iter().enumerate() {
            play.take(step).await;
            play.settle(&format!("step {number} ({step:?}) of {version:?}, stopped at {stop:?}")).await;
        }
        let wrong = play.wire.wrong.lock().unwrap().clone();
        assert!(wrong.is_empty(), "{version:?}, stopped at {stop:?}: {wrong:#?}");
        assert_eq!(play.rows(false), play.foreign, "{version:?}, stopped at {stop:?}");
        let state = play.wire.state.lock().unwrap();
        let ours = state.resources.values().filter(|row| row.nice_id.starts_with("sp-home-"));
        let marks: BTreeSet<&str> = ours.clone().map(|row| row.nice_id.as_str()).collect();
        assert_eq!((marks.len(), ours.count()), (play.model.hosts().len(), play.model.hosts().len()));
        play.wire.requests.load(Ordering::SeqCst)
    })
}

/// Plays a history without a stop, and with a stop at each of its requests, with and without its effect.
fn stopped_everywhere(history: &[Step], least: usize) {
    let requests = play(history, Version::V1_22, None);
    assert!(requests >= least, "{requests} requests");
    for number in 1..=requests {
        for effect in [false, true] {
            play(history, Version::V1_22, Some((number, effect)));
        }
    }
    // A version that refuses a second resource of one host.
    play(history, Version::V1_21, None);
}

const ROOT: &[Route] = &[("/", "app", 80)];
const BOTH: &[Route] = &[("/", "app", 8080), ("/api", "api", 9000)];
const OTHER: &[Route] = &[("/", "api", 9000)];

/// The younger Ingress gets the host when the older one is deleted; the one that is created again waits, and gets it back.
#[test]
fn a_host_is_handed_over_when_its_ingress_is_deleted() {
    let [a, b, _] = HOSTS;
    stopped_everywhere(
        &[
            Step::Now(Change::Put("one", wish(a, ROOT).with_headers())),
            Step::Now(Change::Put("two", wish(a, OTHER).and(b, ROOT))),
            Step::Now(Change::Delete("one")),
            Step::Now(Change::Put("one", wish(a, BOTH))),
            Step::Now(Change::Put("two", wish(b, ROOT))),
            Step::Now(Change::Delete("two")),
        ],
        15,
    );
}

/// An older Ingress takes a host from the younger one that serves it, and gives it back: by its rules, by its class, and by its access.
#[test]
fn a_host_goes_to_an_older_ingress_and_back() {
    let [a, b, _] = HOSTS;
    stopped_everywhere(
        &[
            Step::Now(Change::Put("one", wish(b, ROOT))),
            Step::Now(Change::Put("two", wish(a, BOTH))),
            Step::Now(Change::Put("one", wish(b, ROOT).and(a, OTHER))),
            Step::Now(Change::Put("one", wish(b, ROOT))),
            Step::Now(Change::Put("one", wish(a, ROOT).protected())),
            Step::Now(Change::Put("one", wish(a, ROOT).protected().of_class("nginx"))),
            Step::Now(Change::Put("one", wish(a, ROOT).with_headers())),
        ],
        15,
    );
}

/// Host, path, backend, annotation and class of an Ingress change; it is deleted, or replaced by another one, while the operator is down.
#[test]
fn every_change_and_a_downtime_leave_every_url_right() {
    let [a, b, c] = HOSTS;
    stopped_everywhere(
        &[
            Step::Now(Change::Put("one", wish(a, ROOT))),
            Step::Now(Change::Put("one", wish(b, ROOT))),
            Step::Now(Change::Put("one", wish(b, BOTH))),
            Step::Now(Change::Put("one", wish(b, &[("/", "api", 9000), ("/api/v1", "app", 80)]))),
            Step::Now(Change::Put("one", wish(b, OTHER).protected())),
            Step::Now(Change::Put("one", wish(b, OTHER).of_class("nginx"))),
            Step::Now(Change::Put("one", wish(b, OTHER).and(a, ROOT))),
            Step::Stopped(vec![Change::Delete("one"), Change::Put("two", wish(b, BOTH).and(c, ROOT))]),
            Step::Stopped(vec![Change::Put("one", wish(b, ROOT).and(c, OTHER)), Change::Put("two", wish(a, ROOT))]),
            Step::Stopped(vec![Change::Delete("two")]),
        ],
        25,
    );
}

/// Pangolin is down for an hour while hosts are handed over, changed, deleted and created; the operator restarts meanwhile.
#[test]
fn an_hour_without_pangolin_leaves_every_url_right() {
    let [a, b, c] = HOSTS;
    stopped_everywhere(
        &[
            Step::Now(Change::Put("one", wish(a, ROOT).and(b, ROOT))),
            Step::Now(Change::Put("two", wish(a, OTHER))),
            Step::Outage(
                vec![
                    Change::Delete("one"),
                    Change::Put("two", wish(a, BOTH).protected()),
                    Change::Put("new", wish(c, ROOT)),
                ],
                true,
            ),
        ],
        15,
    );
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn wish(&mut self) -> Wish {
        let paths = |dice: &mut Self| match dice.below(4) {
            0 => ROOT.to_vec(),
            1 => BOTH.to_vec(),
            2 => OTHER.to_vec(),
            _ => vec![("/api", "app", 80), ("/api/v1", "api", 9000)],
        };
        let mut rules = Vec::new();
        for host in HOSTS {
            if self.below(2) == 0 {
                rules.push((host, paths(self)));
            }
        }
        if rules.is_empty() {
            rules.push((HOSTS[0], paths(self)));
        }
        let class = if self.below(7) == 0 { "nginx" } else { "pangolin" };
        Wish { class, sso: self.below(5) == 0, headers: self.below(5) == 0, rules }
    }

    fn change(&mut self) -> Change {
        let name = ["one", "two"][self.below(2)];
        if self.below(5) == 0 { Change::Delete(name) } else { Change::Put(name, self.wish()) }
    }

    fn step(&mut self) -> Step {
        match self.below(8) {
            0 => Step::Stopped(vec![self.change(), self.change()]),
            1 => Step::Outage(vec![self.change(), self.change()], self.below(2) == 0),
            _ => Step::Now(self.change()),
        }
    }
}

/// Drawn histories of two Ingresses with the same three hosts, stopped somewhere.
#[test]
fn drawn_histories_of_two_ingresses_leave_every_url_right() {
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let history: Vec<Step> = (0..8).map(|_| dice.step()).collect();
        let version = [Version::V1_22, Version::V1_22, Version::V1_21, Version::V1_16][dice.below(4)];
        let stop = (1 + dice.below(70), dice.below(2) == 0);
        let played = std::panic::catch_unwind(|| play(&history, version, Some(stop)));
        assert!(played.is_ok(), "seed {seed}: {history:#?}");
    }
}
