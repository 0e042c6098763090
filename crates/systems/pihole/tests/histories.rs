//! Random histories: Ingresses come and go, views are forged, people edit the Pi-hole, operators crash after any request or
//! are down for a while, two clusters share one Pi-hole. Whatever happens, a person's lines stay byte for byte as they
//! are and in their order; and when things calm down, what is wanted is there, what is not is gone, and nothing is written.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use proptest::prelude::*;
use serde_json::{Value, json};
use signpost_apis::ingress::Ingress;
use signpost_engine::metrics::Metrics;
use signpost_engine::{Index, Job, ObjectPatch, Queue, System, SystemClock, Touched};
use signpost_provider_pihole::{
    Applied, Capabilities, ChangeSet, Dialect, Line, Listing, OwnerId, Pihole, PiholeError,
};
use signpost_system_pihole::{
    IngressIndex, IngressKey, Instance, LedgerError, LedgerStore, MANAGED_HOSTS, PiholeSystem, Policy, REGISTER,
    TARGET_IP, Versioned,
};
use tokio::sync::Notify;

const HOSTS: usize = 6;
const NAMES: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Apply { cluster: usize, name: usize, hosts: u8, registered: bool, target: usize, forged: Option<u8> },
    Delete { cluster: usize, name: usize },
    Add { kind: usize, host: usize },
    Remove { index: usize },
    Pass { cluster: usize, cut: Option<i64> },
    PassWhileEditing { cluster: usize, at: i64, kind: usize, host: usize },
    Down { cluster: usize },
    Up { cluster: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cluster = 0..2_usize;
    let step = prop_oneof![
        6 => (cluster.clone(), 0..NAMES, any::<u8>(), prop::bool::weighted(0.85), 0..4_usize, prop::option::weighted(0.3, any::<u8>()))
            .prop_map(|(cluster, name, hosts, registered, target, forged)| Step::Apply { cluster, name, hosts, registered, target, forged }),
        2 => (cluster.clone(), 0..NAMES).prop_map(|(cluster, name)| Step::Delete { cluster, name }),
        2 => (0..USER.len(), 0..HOSTS).prop_map(|(kind, host)| Step::Add { kind, host }),
        1 => (0..8_usize).prop_map(|index| Step::Remove { index }),
        6 => (cluster.clone(), prop::option::of(0..8_i64)).prop_map(|(cluster, cut)| Step::Pass { cluster, cut }),
        2 => (cluster.clone(), 0..6_i64, 0..USER.len(), 0..HOSTS)
            .prop_map(|(cluster, at, kind, host)| Step::PassWhileEditing { cluster, at, kind, host }),
        1 => cluster.clone().prop_map(|cluster| Step::Down { cluster }),
        1 => cluster.prop_map(|cluster| Step::Up { cluster }),
    ];
    prop::collection::vec(step, 1..40)
}

/// Lines a person may have, for one of the hosts everybody fights over.
const USER: [&str; 7] = [
    "10.9.0.1 {}",
    "192.168.1.10 {}",
    "10.9.0.2\t{}   nas  # mine",
    "10.9.0.3 {} # signpost=somebody",
    "192.168.1.10  {} # signpost=home",
    "fd00::9 {}",
    "not a line about {}",
];

/// One Pi-hole without HTTP, whose callers can be cut off before or after any request takes effect.
struct Server {
    listing: Mutex<Listing>,
    writes: AtomicI64,
    /// Requests until the caller dies; negative: it lives.
    budget: AtomicI64,
    /// Requests until a person edits the lists.
    edit: Mutex<Option<(i64, String)>>,
    user: Mutex<Vec<String>>,
    died: Notify,
}

impl Server {
    fn new(capabilities: Capabilities) -> Arc<Self> {
        let listing = Listing { capabilities, hosts: Vec::new(), cnames: Vec::new(), trouble: None };
        Arc::new(Self {
            listing: Mutex::new(listing),
            writes: AtomicI64::new(0),
            budget: AtomicI64::new(-1),
            edit: Mutex::new(None),
            user: Mutex::new(Vec::new()),
            died: Notify::new(),
        })
    }

    fn add(&self, line: &str) {
        self.listing.lock().unwrap().hosts.push(Line::stored(line));
        self.user.lock().unwrap().push(line.to_owned());
    }

    fn remove(&self, index: usize) {
        let mut user = self.user.lock().unwrap();
        if index < user.len() {
            // Of several equal lines, the one in the same place among them.
            let line = Line::stored(&user[index]);
            let before = user[..index].iter().filter(|other| **other == line.as_str()).count();
            user.remove(index);
            let hosts = &mut self.listing.lock().unwrap().hosts;
            let place = hosts.iter().enumerate().filter(|(_, stored)| **stored == line).nth(before);
            let place = place.expect("a person's line is there").0;
            hosts.remove(place);
        }
    }

    /// One request. Death comes before it is sent (even budgets) or before its answer (odd ones).
    async fn request<T>(&self, effect: impl FnOnce(&mut Listing) -> T) -> T {
        let due = {
            let mut edit = self.edit.lock().unwrap();
            match edit.take() {
                Some((0, line)) => Some(line),
                Some((left, line)) => {
                    *edit = Some((left - 1, line));
                    None
                }
                None => None,
            }
        };
        if let Some(line) = due {
            self.add(&line);
        }
        if self.budget.load(Ordering::Relaxed) == 0 {
            self.die().await;
        }
        let done = effect(&mut self.listing.lock().unwrap());
        let left = self.budget.load(Ordering::Relaxed);
        if left == 1 {
            self.die().await;
        } else if left > 1 {
            self.budget.store(left - 2, Ordering::Relaxed);
        }
        done
    }

    async fn die(&self) {
        self.died.notify_one();
        std::future::pending::<()>().await;
    }

    async fn write(&self, changes: &ChangeSet) -> Applied {
        let batch = self.listing.lock().unwrap().capabilities.batch;
        let mut writes = 0;
        if batch {
            writes += 1;
            self.request(|listing| {
                listing.hosts.retain(|line| !changes.remove_hosts.contains(line));
                for line in &changes.add_hosts {
                    if !listing.hosts.contains(line) {
                        listing.hosts.push(line.clone());
                    }
                }
            })
            .await;
        } else {
            // By name, one at a time, an address change as deletion and creation.
            let name = |line: &Line| line.address_parts().names[0].to_owned();
            for line in &changes.remove_hosts {
                writes += 1;
                let gone = name(line);
                self.request(|listing| listing.hosts.retain(|stored| stored.address_parts().names != [gone.as_str()]))
                    .await;
            }
            for line in &changes.add_hosts {
                writes += 1;
                self.request(|listing| listing.hosts.push(line.clone())).await;
            }
        }
        self.writes.fetch_add(writes, Ordering::Relaxed);
        Applied { writes: u32::try_from(writes).unwrap(), ..Applied::default() }
    }
}

struct Client(Arc<Server>);

impl Pihole for Client {
    fn probe(&self) -> BoxFuture<'_, Result<(), PiholeError>> {
        async { Ok(()) }.boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, PiholeError>> {
        async { Ok(self.0.request(|listing| listing.clone()).await) }.boxed()
    }

    fn apply<'a>(&'a self, changes: &'a ChangeSet) -> BoxFuture<'a, Applied> {
        self.0.write(changes).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }

    fn dialect(&self) -> Option<Dialect> {
        None
    }
}

/// A ConfigMap without Kubernetes; its requests can be cut off like the others.
struct Ledgers {
    server: Arc<Server>,
    kept: Mutex<(String, u64)>,
}

impl LedgerStore for Ledgers {
    fn load(&self, _instance: &str) -> BoxFuture<'_, Result<Versioned, LedgerError>> {
        async {
            self.server.request(|_| ()).await;
            let (text, version) = self.kept.lock().unwrap().clone();
            Ok(Versioned {
                ledger: signpost_system_pihole::Ledger::from_text(&text),
                version: (version > 0).then(|| version.to_string()),
            })
        }
        .boxed()
    }

    fn save(&self, _instance: &str, ledger: Versioned) -> BoxFuture<'_, Result<Versioned, LedgerError>> {
        async move {
            let version = self
                .server
                .request(|_| {
                    let mut kept = self.kept.lock().unwrap();
                    *kept = (ledger.ledger.to_text(), kept.1 + 1);
                    kept.1
                })
                .await;
            Ok(Versioned { version: Some(version.to_string()), ..ledger })
        }
        .boxed()
    }
}

/// One cluster: what its API server has, and its operator while it is up.
struct Cluster {
    owner: OwnerId,
    server: Arc<Server>,
    ledgers: Arc<Ledgers>,
    ingresses: BTreeMap<usize, Value>,
    born: u64,
    operator: Option<(Arc<IngressIndex>, PiholeSystem)>,
}

fn read(object: &Value) -> Ingress {
    serde_json::from_value(object.clone()).unwrap()
}

impl Cluster {
    fn new(owner: &str, server: &Arc<Server>) -> Self {
        let ledgers = Arc::new(Ledgers { server: Arc::clone(server), kept: Mutex::default() });
        let mut cluster = Self {
            owner: OwnerId::parse(owner).unwrap(),
            server: Arc::clone(server),
            ledgers,
            ingresses: BTreeMap::new(),
            born: 0,
            operator: None,
        };
        cluster.up();
        cluster
    }

    fn up(&mut self) {
        let policy = Policy {
            gather: std::time::Duration::ZERO,
            brake: std::time::Duration::ZERO,
            ..Policy::new(self.owner.clone(), "192.168.1.10".parse().unwrap())
        };
        let index = Arc::new(IngressIndex::new(policy.default_target, false, vec!["pihole".into()], Queue::new()));
        for object in self.ingresses.values() {
            index.applied(&read(object));
        }
        let instance = Arc::new(Instance::new("pihole", Arc::new(Client(Arc::clone(&self.server)))));
        let instances = BTreeMap::from([("pihole".to_owned(), instance)]);
        let system = PiholeSystem::new(
            policy,
            Arc::clone(&index),
            instances,
            self.ledgers.clone(),
            Arc::new(SystemClock),
            &Metrics::new(),
        );
        self.operator = Some((index, system));
    }

    fn apply(&mut self, name: usize, hosts: u8, registered: bool, target: usize, forged: Option<u8>) {
        let names = |mask: u8| (0..HOSTS).filter(move |bit| mask & (1 << bit) != 0).map(host);
        let mut annotations = serde_json::Map::new();
        if registered {
            annotations.insert(REGISTER.into(), json!("true"));
        }
        match target {
            1 => drop(annotations.insert(TARGET_IP.into(), json!("192.168.1.20"))),
            2 => drop(annotations.insert(TARGET_IP.into(), json!("rubbish"))),
            _ => {}
        }
        let old = self.ingresses.get(&name);
        let view = match forged {
            Some(mask) => Some(json!(names(mask).collect::<Vec<_>>().join(","))),
            None => old.and_then(|old| old.pointer("/metadata/annotations")?.get(MANAGED_HOSTS).cloned()),
        };
        annotations.extend(view.map(|view| (MANAGED_HOSTS.to_owned(), view)));
        let uid = old.map_or_else(
            || {
                self.born += 1;
                json!(format!("{name}-{}", self.born))
            },
            |old| old["metadata"]["uid"].clone(),
        );
        let rules: Vec<Value> = names(hosts).map(|host| json!({ "host": host })).collect();
        let meta =
            json!({"namespace": "default", "name": format!("app-{name}"), "uid": uid, "annotations": annotations});
        let object = json!({"metadata": meta, "spec": {"rules": rules}});
        if let Some((index, _)) = &self.operator {
            index.applied(&read(&object));
        }
        self.ingresses.insert(name, object);
    }

    fn delete(&mut self, name: usize) {
        if let Some(object) = self.ingresses.remove(&name)
            && let Some((index, _)) = &self.operator
        {
            index.deleted(&signpost_engine::ObjectId::of(&read(&object)));
        }
    }

    /// One pass; true when it came to its end.
    async fn pass(&mut self) -> bool {
        let Some((index, system)) = &self.operator else { return false };
        let job = Job { key: "pihole".to_owned(), touched: Touched::<IngressKey>::All, attempt: 0 };
        let pass = async {
            let observed = system.observe(&job).await;
            let plan = system.plan(observed, jiff::Timestamp::now());
            let applied = system.apply(plan).await;
            system.report(applied, jiff::Timestamp::now())
        };
        let report = tokio::select! {
            biased;
            report = pass => report,
            () = self.server.died.notified() => {
                self.operator = None;
                return false;
            }
        };
        for write in report.writes {
            let ObjectPatch::Metadata(patch) = write.patch else { panic!("only metadata is written") };
            let target = self.ingresses.values_mut().find(|object| object["metadata"]["uid"] == json!(write.uid));
            let Some(object) = target else { continue };
            let view = &patch["annotations"][MANAGED_HOSTS];
            let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
            if view.is_null() {
                annotations.remove(MANAGED_HOSTS)
            } else {
                annotations.insert(MANAGED_HOSTS.into(), view.clone())
            };
            index.applied(&read(object));
        }
        true
    }
}

fn host(number: usize) -> String {
    format!("h{number}.lan")
}

fn user_line(kind: usize, number: usize) -> String {
    USER[kind].replace("{}", &host(number))
}

/// Lines that neither cluster can have written, by the text alone.
fn foreign(server: &Server, owners: &[OwnerId]) -> Vec<String> {
    let mut ours = BTreeSet::new();
    for owner in owners {
        for number in 0..HOSTS {
            for target in ["192.168.1.10", "192.168.1.20"] {
                ours.insert(format!("{target} {} # signpost={owner}", host(number)));
            }
        }
    }
    let listing = server.listing.lock().unwrap();
    listing.hosts.iter().map(ToString::to_string).filter(|line| !ours.contains(line)).collect()
}

async fn play(steps: &[Step]) {
    let server = Server::new(Capabilities::V6);
    let mut clusters = [Cluster::new("home", &server), Cluster::new("office", &server)];
    let owners = [clusters[0].owner.clone(), clusters[1].owner.clone()];
    for step in steps {
        match step.clone() {
            Step::Apply { cluster, name, hosts, registered, target, forged } => {
                clusters[cluster].apply(name, hosts, registered, target, forged);
            }
            Step::Delete { cluster, name } => clusters[cluster].delete(name),
            Step::Add { kind, host } => server.add(&user_line(kind, host)),
            Step::Remove { index } => server.remove(index),
            Step::Pass { cluster, cut } => {
                server.budget.store(cut.unwrap_or(-1), Ordering::Relaxed);
                clusters[cluster].pass().await;
                server.budget.store(-1, Ordering::Relaxed);
            }
            Step::PassWhileEditing { cluster, at, kind, host } => {
                *server.edit.lock().unwrap() = Some((at, user_line(kind, host)));
                clusters[cluster].pass().await;
                *server.edit.lock().unwrap() = None;
            }
            Step::Down { cluster } => clusters[cluster].operator = None,
            Step::Up { cluster } => clusters[cluster].up(),
        }
        assert_eq!(foreign(&server, &owners), *server.user.lock().unwrap(), "after {step:?}");
    }
    for cluster in &mut clusters {
        cluster.up();
    }
    // Each may have to wait for what the other gives up.
    for _ in 0..4 {
        for cluster in &mut clusters {
            assert!(cluster.pass().await);
        }
    }
    let writes = server.writes.load(Ordering::Relaxed);
    for cluster in &mut clusters {
        cluster.pass().await;
    }
    assert_eq!(server.writes.load(Ordering::Relaxed), writes, "at rest nothing is written");
    assert_eq!(foreign(&server, &owners), *server.user.lock().unwrap());
    calm(&server, &clusters);
}

/// What is there is wanted, and what is wanted and free is there.
fn calm(server: &Server, clusters: &[Cluster]) {
    let listing = server.listing.lock().unwrap();
    for cluster in clusters {
        let mut wanted: BTreeSet<String> = BTreeSet::new();
        let mut unsure: BTreeSet<String> = BTreeSet::new();
        for object in
            cluster.ingresses.values().filter(|object| object["metadata"]["annotations"][REGISTER] == json!("true"))
        {
            for rule in object["spec"]["rules"].as_array().unwrap() {
                let host = rule["host"].as_str().unwrap().to_owned();
                if object["metadata"]["annotations"][TARGET_IP] == json!("rubbish") {
                    unsure.insert(host.clone());
                }
                wanted.insert(host);
            }
        }
        let own: BTreeSet<String> = listing
            .hosts
            .iter()
            .filter_map(|line| line.own_address(&cluster.owner))
            .map(|(_, host)| host.undotted().to_owned())
            .collect();
        assert!(own.is_subset(&wanted), "{own:?} beyond {wanted:?}");
        for host in wanted.difference(&own) {
            let taken = listing.hosts.iter().any(|line| {
                line.own_address(&cluster.owner).is_none() && line.address_parts().names.contains(&host.as_str())
            });
            assert!(taken || unsure.contains(host), "{host} is free and wanted by {} but not there", cluster.owner);
        }
    }
}

/// The same with a ledger: one cluster, a person whose records have addresses of their own.
async fn play_with_ledger(steps: &[Step], capabilities: Capabilities) {
    let server = Server::new(capabilities);
    let mut cluster = Cluster::new("home", &server);
    let ours = |line: &Line| line.as_str().starts_with("192.168.1.");
    for step in steps {
        match step.clone() {
            Step::Apply { name, hosts, registered, target, forged, .. } => {
                cluster.apply(name, hosts, registered, target, forged);
            }
            Step::Delete { name, .. } => cluster.delete(name),
            Step::Add { host: number, .. } => server.add(&format!("10.9.0.{number} {}", host(number))),
            Step::Remove { index } => server.remove(index),
            Step::Pass { cut, .. } => {
                server.budget.store(cut.map_or(-1, |cut| cut * 2), Ordering::Relaxed);
                cluster.pass().await;
                server.budget.store(-1, Ordering::Relaxed);
            }
            Step::PassWhileEditing { .. } => drop(cluster.pass().await),
            Step::Down { .. } => cluster.operator = None,
            Step::Up { .. } => cluster.up(),
        }
        let listing = server.listing.lock().unwrap();
        let theirs: Vec<String> = listing.hosts.iter().filter(|line| !ours(line)).map(ToString::to_string).collect();
        assert_eq!(theirs, *server.user.lock().unwrap(), "after {step:?}");
    }
    cluster.up();
    for _ in 0..3 {
        assert!(cluster.pass().await);
    }
    let writes = server.writes.load(Ordering::Relaxed);
    cluster.pass().await;
    assert_eq!(server.writes.load(Ordering::Relaxed), writes, "at rest nothing is written");
    let listing = server.listing.lock().unwrap();
    let ledger = cluster.ledgers.kept.lock().unwrap().0.clone();
    for line in listing.hosts.iter().filter(|line| ours(line)) {
        assert!(ledger.contains(line.as_str()), "{line} is there and not in the ledger {ledger:?}");
    }
}

fn run(play: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(play);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_persons_lines_survive_every_history_of_two_clusters_with_crashes(steps in steps()) {
        run(play(&steps));
    }

    #[test]
    fn a_persons_records_survive_every_history_with_a_ledger(steps in steps()) {
        run(play_with_ledger(&steps, Capabilities::SPEC));
    }

    #[test]
    fn a_persons_records_survive_every_history_where_lines_can_carry_no_marker(steps in steps()) {
        run(play_with_ledger(&steps, Capabilities::V6_WITHOUT_COMMENTS));
    }
}
