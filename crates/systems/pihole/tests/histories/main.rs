//! Random histories: Ingresses come and go, views are forged, people edit the Pi-hole, operators crash after any request or
//! are down for a while, two clusters share one Pi-hole. In every history, foreign lines are unchanged (but for
//! blanks, which FTL tidies) and in their order; and at the end, wanted records are there, unwanted ones are deleted, and nothing is written.
//!
//! The same histories are played twice: in memory, many of them, with people who edit between any two requests; and over HTTP, with
//! the client of the operator and the strict stand-in of a Pi-hole v6, where whole lists are validated and writes at one time lose
//! each other's lines.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod memory;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use signpost_apis::ingress::Ingress;
use signpost_engine::metrics::Metrics;
use signpost_engine::{Index, Job, ObjectPatch, Queue, System, SystemClock, Touched};
use signpost_provider_pihole::{Capabilities, Line, OwnerId, Pihole};
use signpost_system_pihole::{
    IngressId, IngressIndex, Instance, LedgerStore, MANAGED_HOSTS, Memory, PiholeSystem, Policy, REGISTER, TARGET_IP,
};
use tokio::sync::Notify;

const HOSTS: usize = 6;
const NAMES: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Apply {
        cluster: usize,
        name: usize,
        hosts: u8,
        registered: bool,
        target: usize,
        forged: Option<u8>,
    },
    Delete {
        cluster: usize,
        name: usize,
    },
    Add {
        kind: usize,
        host: usize,
    },
    Remove {
        index: usize,
    },
    /// The operator may die before (false) or after (true) a request takes effect.
    Pass {
        cluster: usize,
        cut: Option<(u32, bool)>,
    },
    PassWhileEditing {
        cluster: usize,
        at: i64,
        kind: usize,
        host: usize,
    },
    /// The watch reports a change of an Ingress so many requests after the pass has begun.
    PassWhileChanging {
        cluster: usize,
        at: i64,
        name: usize,
        /// The hosts it has from then on; None when it is deleted.
        hosts: Option<u8>,
    },
    Together,
    Down {
        cluster: usize,
    },
    Up {
        cluster: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cluster = 0..2_usize;
    let step = prop_oneof![
        6 => (cluster.clone(), 0..NAMES, any::<u8>(), prop::bool::weighted(0.85), 0..4_usize, prop::option::weighted(0.3, any::<u8>()))
            .prop_map(|(cluster, name, hosts, registered, target, forged)| Step::Apply { cluster, name, hosts, registered, target, forged }),
        2 => (cluster.clone(), 0..NAMES).prop_map(|(cluster, name)| Step::Delete { cluster, name }),
        2 => (0..USER.len(), 0..HOSTS).prop_map(|(kind, host)| Step::Add { kind, host }),
        1 => (0..8_usize).prop_map(|index| Step::Remove { index }),
        6 => (cluster.clone(), prop::option::of((0..10_u32, any::<bool>()))).prop_map(|(cluster, cut)| Step::Pass { cluster, cut }),
        2 => (cluster.clone(), 0..6_i64, 0..USER.len(), 0..HOSTS)
            .prop_map(|(cluster, at, kind, host)| Step::PassWhileEditing { cluster, at, kind, host }),
        3 => (cluster.clone(), 0..6_i64, 0..NAMES, prop::option::of(any::<u8>()))
            .prop_map(|(cluster, at, name, hosts)| Step::PassWhileChanging { cluster, at, name, hosts }),
        1 => Just(Step::Together),
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
    "10.9.0.3 {} # signpost=other",
    "192.168.1.10 {} # signpost=home, but mine",
    "fd00::9 {}",
    "not a line about {}",
];

/// One cluster: the objects of its API server, and its operator while it is up.
struct Cluster {
    owner: OwnerId,
    /// A new connection to the Pi-hole.
    connect: Box<dyn Fn() -> Arc<dyn Pihole>>,
    ledgers: Arc<dyn LedgerStore>,
    ingresses: BTreeMap<usize, Value>,
    born: u64,
    /// Whether own lines without a claim are deleted, whoever left them.
    sweep: bool,
    operator: Option<(Arc<IngressIndex>, PiholeSystem)>,
    /// The memory of the operator between passes.
    memory: Memory,
}

/// Reports a change to an operator, as its watch does.
type Notification = Box<dyn FnOnce() + Send>;

fn read(object: &Value) -> Ingress {
    serde_json::from_value(object.clone()).unwrap()
}

impl Cluster {
    fn new(owner: &str, ledgers: Arc<dyn LedgerStore>, connect: impl Fn() -> Arc<dyn Pihole> + 'static) -> Self {
        let mut cluster = Self {
            owner: OwnerId::parse(owner).unwrap(),
            connect: Box::new(connect),
            ledgers,
            ingresses: BTreeMap::new(),
            born: 0,
            sweep: true,
            operator: None,
            memory: Memory::default(),
        };
        cluster.up();
        cluster
    }

    /// The same with `GC=off`.
    fn without_sweep(mut self) -> Self {
        self.sweep = false;
        self.up();
        self
    }

    fn up(&mut self) {
        let policy = Policy {
            gather: std::time::Duration::ZERO,
            brake: std::time::Duration::ZERO,
            sweep: self.sweep,
            ..Policy::new(self.owner.clone(), "192.168.1.10".parse().unwrap())
        };
        let index = Arc::new(IngressIndex::new(policy.default_target, false, vec!["pihole".into()], Queue::new()));
        for object in self.ingresses.values() {
            index.applied(&read(object));
        }
        let instance = Arc::new(Instance::new("pihole", (self.connect)()));
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
        self.memory = Memory::default();
    }

    fn apply(&mut self, name: usize, hosts: u8, registered: bool, target: usize, forged: Option<u8>) {
        let notify = self.change(name, hosts, registered, target, forged);
        notify();
    }

    /// Changes an Ingress; the operator learns of it by the notification.
    fn change(&mut self, name: usize, hosts: u8, registered: bool, target: usize, forged: Option<u8>) -> Notification {
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
        self.ingresses.insert(name, object.clone());
        let index = self.operator.as_ref().map(|(index, _)| Arc::clone(index));
        Box::new(move || {
            if let Some(index) = index {
                index.applied(&read(&object));
            }
        })
    }

    fn delete(&mut self, name: usize) {
        let notify = self.remove(name);
        notify();
    }

    /// Deletes an Ingress; the operator learns of it by the notification.
    fn remove(&mut self, name: usize) -> Notification {
        let object = self.ingresses.remove(&name);
        let index = self.operator.as_ref().map(|(index, _)| Arc::clone(index));
        Box::new(move || {
            if let (Some(object), Some(index)) = (object, index) {
                index.deleted(&signpost_engine::ObjectId::of(&read(&object)));
            }
        })
    }

    fn replace(&mut self, name: usize, hosts: Option<u8>) -> Notification {
        match hosts {
            Some(hosts) => self.change(name, hosts, true, 0, None),
            None => self.remove(name),
        }
    }

    /// One pass, unless death comes first; true when it came to its end.
    async fn pass(&mut self, death: &Notify) -> bool {
        let Some((index, system)) = &self.operator else { return false };
        let job = Job { key: "pihole".to_owned(), touched: Touched::<IngressId>::All, attempt: 0 };
        let pass = async {
            let observed = system.observe(&job, std::mem::take(&mut self.memory)).await;
            let plan = PiholeSystem::plan(observed, jiff::Timestamp::now());
            let applied = system.apply(plan).await;
            PiholeSystem::report(applied, jiff::Timestamp::now())
        };
        let report = tokio::select! {
            biased;
            report = pass => report,
            () = death.notified() => {
                self.operator = None;
                return false;
            }
        };
        self.memory = report.memory.unwrap_or_default();
        for write in report.writes {
            let ObjectPatch::Metadata(patch) = write.patch else { panic!("only metadata is written") };
            let target = self.ingresses.values_mut().find(|object| object["metadata"]["uid"] == json!(*write.uid));
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

/// Lines as FTL stores them, whose blanks it tidies.
fn tidied(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| Line::stored(line).tidy().to_string()).collect()
}

/// Lines that neither cluster can have written, by the text alone.
fn foreign(lines: &[String], owners: &[OwnerId]) -> Vec<String> {
    let mut ours = BTreeSet::new();
    for owner in owners {
        for number in 0..HOSTS {
            for target in ["192.168.1.10", "192.168.1.20"] {
                ours.insert(format!("{target} {} # signpost={owner}", host(number)));
            }
        }
    }
    lines.iter().filter(|line| !ours.contains(*line)).cloned().collect()
}

/// Every record that is there is wanted, and every wanted and free record is there.
fn calm(lines: &[String], clusters: &[Cluster]) {
    let lines: Vec<Line> = lines.iter().map(|line| Line::stored(line)).collect();
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
        let own: BTreeSet<String> = lines
            .iter()
            .filter_map(|line| line.own_address(&cluster.owner))
            .map(|(_, host)| host.undotted().to_owned())
            .collect();
        assert!(own.is_subset(&wanted), "{own:?} beyond {wanted:?}");
        for host in wanted.difference(&own) {
            let taken = lines.iter().any(|line| {
                line.own_address(&cluster.owner).is_none() && line.address_parts().names.contains(&host.as_str())
            });
            assert!(taken || unsure.contains(host), "{host} is free and wanted by {} but not there", cluster.owner);
        }
    }
}

fn run(play: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(play);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn foreign_lines_survive_every_history_of_two_clusters_with_crashes(steps in steps()) {
        run(memory::play(&steps));
    }

    #[test]
    fn without_sweeping_nothing_is_left_behind_by_an_operator_that_saw_it_all(steps in steps()) {
        run(memory::play_awake(&steps));
    }

    #[test]
    fn foreign_records_survive_every_history_with_a_ledger(steps in steps()) {
        run(memory::play_with_ledger(&steps, Capabilities::SPEC));
    }

    #[test]
    fn foreign_records_survive_every_history_without_markers(steps in steps()) {
        run(memory::play_with_ledger(&steps, Capabilities::V6_WITHOUT_COMMENTS));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn foreign_lines_survive_every_history_over_http_with_crashes(steps in steps()) {
        run(wire::play(&steps));
    }
}
