//! A Pi-hole without HTTP: any number of histories in no time, and people who edit between any two requests.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use signpost_provider_pihole::{ApplyResult, ChangeSet, Dialect, Listing, PiholeError};
use signpost_system_pihole::{Ledger, LedgerError, Versioned};

use super::*;

/// An event during requests.
enum Event {
    /// A person adds a line.
    Edit(String),
    /// The operator's watch reports a change.
    Change(Notification),
}

/// One Pi-hole without HTTP, whose callers can be cut off before or after any request takes effect.
struct Server {
    listing: Mutex<Listing>,
    writes: AtomicI64,
    /// Requests until the caller dies; negative: it lives.
    budget: AtomicI64,
    /// Requests until something happens beside them.
    event: Mutex<Option<(i64, Event)>>,
    user: Mutex<Vec<String>>,
    died: Notify,
}

impl Server {
    fn new(capabilities: Capabilities) -> Arc<Self> {
        let listing = Listing { capabilities, hosts: Vec::new(), cnames: Vec::new(), write_error: None };
        Arc::new(Self {
            listing: Mutex::new(listing),
            writes: AtomicI64::new(0),
            budget: AtomicI64::new(-1),
            event: Mutex::new(None),
            user: Mutex::new(Vec::new()),
            died: Notify::new(),
        })
    }

    fn lines(&self) -> Vec<String> {
        self.listing.lock().unwrap().hosts.iter().map(ToString::to_string).collect()
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
            let mut event = self.event.lock().unwrap();
            match event.take() {
                Some((0, event)) => Some(event),
                Some((left, later)) => {
                    *event = Some((left - 1, later));
                    None
                }
                None => None,
            }
        };
        match due {
            Some(Event::Edit(line)) => self.add(&line),
            Some(Event::Change(notify)) => notify(),
            None => {}
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

    async fn write(&self, changes: &ChangeSet) -> ApplyResult {
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
                let host = name(line);
                self.request(|listing| listing.hosts.retain(|stored| stored.address_parts().names != [host.as_str()]))
                    .await;
            }
            for line in &changes.add_hosts {
                writes += 1;
                self.request(|listing| listing.hosts.push(line.clone())).await;
            }
        }
        self.writes.fetch_add(writes, Ordering::Relaxed);
        ApplyResult { writes: u32::try_from(writes).unwrap(), ..ApplyResult::default() }
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

    fn apply<'a>(&'a self, changes: &'a ChangeSet) -> BoxFuture<'a, ApplyResult> {
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
    fn cluster_id(&self) -> BoxFuture<'_, Result<String, LedgerError>> {
        async { Ok("home".to_owned()) }.boxed()
    }

    fn load(&self, _instance: &str) -> BoxFuture<'_, Result<Versioned, LedgerError>> {
        async {
            self.server.request(|_| ()).await;
            let (text, version) = self.kept.lock().unwrap().clone();
            Ok(Versioned { ledger: Ledger::from_text(&text), version: (version > 0).then(|| version.to_string()) })
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

fn cluster(owner: &str, server: &Arc<Server>) -> (Cluster, Arc<Ledgers>) {
    let ledgers = Arc::new(Ledgers { server: Arc::clone(server), kept: Mutex::default() });
    let server = Arc::clone(server);
    let cluster = Cluster::new(owner, Arc::clone(&ledgers) as Arc<dyn LedgerStore>, move || {
        Arc::new(Client(Arc::clone(&server)))
    });
    (cluster, ledgers)
}

/// When the caller dies, in half requests.
fn budget(cut: Option<(u32, bool)>) -> i64 {
    cut.map_or(-1, |(request, effective)| i64::from(request) * 2 + i64::from(effective))
}

/// Two clusters, whose lines carry markers.
pub(crate) async fn play(steps: &[Step]) {
    let server = Server::new(Capabilities::V6);
    let mut clusters = ["home", "office"].map(|owner| cluster(owner, &server).0);
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
                server.budget.store(budget(cut), Ordering::Relaxed);
                clusters[cluster].pass(&server.died).await;
                server.budget.store(-1, Ordering::Relaxed);
            }
            Step::PassWhileEditing { cluster, at, kind, host } => {
                *server.event.lock().unwrap() = Some((at, Event::Edit(user_line(kind, host))));
                clusters[cluster].pass(&server.died).await;
                *server.event.lock().unwrap() = None;
            }
            Step::PassWhileChanging { cluster, at, name, hosts } => {
                pass_while_changing(&server, &mut clusters[cluster], at, name, hosts).await;
            }
            Step::Together => {
                let [one, two] = &mut clusters;
                tokio::join!(one.pass(&server.died), two.pass(&server.died));
            }
            Step::Down { cluster } => clusters[cluster].operator = None,
            Step::Up { cluster } => clusters[cluster].up(),
        }
        assert_eq!(foreign(&server.lines(), &owners), *server.user.lock().unwrap(), "after {step:?}");
    }
    for cluster in &mut clusters {
        cluster.up();
    }
    // Each may have to wait for what the other gives up.
    for _ in 0..4 {
        for cluster in &mut clusters {
            assert!(cluster.pass(&server.died).await);
        }
    }
    let writes = server.writes.load(Ordering::Relaxed);
    for cluster in &mut clusters {
        cluster.pass(&server.died).await;
    }
    assert_eq!(server.writes.load(Ordering::Relaxed), writes, "at rest nothing is written");
    assert_eq!(foreign(&server.lines(), &owners), *server.user.lock().unwrap());
    calm(&server.lines(), &clusters);
}

/// A pass during which the watch reports a change; at the latest, right after it.
async fn pass_while_changing(server: &Server, cluster: &mut Cluster, at: i64, name: usize, hosts: Option<u8>) {
    let notify = cluster.replace(name, hosts);
    *server.event.lock().unwrap() = Some((at, Event::Change(notify)));
    cluster.pass(&server.died).await;
    let late = server.event.lock().unwrap().take();
    if let Some((_, Event::Change(notify))) = late {
        notify();
    }
}

/// One cluster that sweeps nothing and whose operator never stops: every lost claim was seen by its watch.
pub(crate) async fn play_awake(steps: &[Step]) {
    let server = Server::new(Capabilities::V6);
    let mut clusters = [cluster("home", &server).0.without_sweep()];
    let [cluster] = &mut clusters;
    for step in steps {
        match step.clone() {
            Step::Apply { name, hosts, registered, target, forged, .. } => {
                cluster.apply(name, hosts, registered, target, forged);
            }
            Step::Delete { name, .. } => cluster.delete(name),
            Step::Add { kind, host } => server.add(&user_line(kind, host)),
            Step::Remove { index } => server.remove(index),
            Step::PassWhileChanging { at, name, hosts, .. } => {
                pass_while_changing(&server, cluster, at, name, hosts).await;
            }
            Step::Pass { .. }
            | Step::PassWhileEditing { .. }
            | Step::Together
            | Step::Down { .. }
            | Step::Up { .. } => {
                assert!(cluster.pass(&server.died).await);
            }
        }
    }
    for _ in 0..4 {
        assert!(cluster.pass(&server.died).await);
    }
    calm(&server.lines(), &clusters);
}

/// The same with a ledger: one cluster, a person whose records have addresses of their own.
pub(crate) async fn play_with_ledger(steps: &[Step], capabilities: Capabilities) {
    let server = Server::new(capabilities);
    let (mut cluster, ledgers) = cluster("home", &server);
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
                server.budget.store(budget(cut), Ordering::Relaxed);
                cluster.pass(&server.died).await;
                server.budget.store(-1, Ordering::Relaxed);
            }
            Step::PassWhileEditing { .. } | Step::Together => drop(cluster.pass(&server.died).await),
            Step::PassWhileChanging { at, name, hosts, .. } => {
                pass_while_changing(&server, &mut cluster, at, name, hosts).await;
            }
            Step::Down { .. } => cluster.operator = None,
            Step::Up { .. } => cluster.up(),
        }
        let listing = server.listing.lock().unwrap();
        let theirs: Vec<String> = listing.hosts.iter().filter(|line| !ours(line)).map(ToString::to_string).collect();
        assert_eq!(theirs, *server.user.lock().unwrap(), "after {step:?}");
    }
    cluster.up();
    for _ in 0..3 {
        assert!(cluster.pass(&server.died).await);
    }
    let writes = server.writes.load(Ordering::Relaxed);
    cluster.pass(&server.died).await;
    assert_eq!(server.writes.load(Ordering::Relaxed), writes, "at rest nothing is written");
    let listing = server.listing.lock().unwrap();
    let ledger = ledgers.kept.lock().unwrap().0.clone();
    for line in listing.hosts.iter().filter(|line| ours(line)) {
        assert!(ledger.contains(line.as_str()), "{line} is there and not in the ledger {ledger:?}");
    }
}
