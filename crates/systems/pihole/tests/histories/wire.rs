//! The same histories with the operator's own client, over HTTP, on the strict stand-in of a Pi-hole v6.
//!
//! People edit between passes here and not within them: a Pi-hole has no versions, so nobody can save them from a write that
//! overtakes theirs.

use std::sync::Mutex;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use signpost_provider_pihole::{Connection, Dialect, Secret, connect, parse_base_url};
use signpost_system_pihole::{LedgerError, Versioned};
use signpost_testkit::pihole::{PiholeV6, V6Options};

use super::*;

/// A ledger without Kubernetes.
#[derive(Default)]
struct Ledgers(Mutex<Versioned>);

impl LedgerStore for Ledgers {
    fn cluster_id(&self) -> BoxFuture<'_, Result<String, LedgerError>> {
        async { Ok("home".to_owned()) }.boxed()
    }

    fn load(&self, _instance: &str) -> BoxFuture<'_, Result<Versioned, LedgerError>> {
        async { Ok(self.0.lock().unwrap().clone()) }.boxed()
    }

    fn save(&self, _instance: &str, ledger: Versioned) -> BoxFuture<'_, Result<Versioned, LedgerError>> {
        *self.0.lock().unwrap() = Versioned { version: Some("1".into()), ..ledger };
        self.load("")
    }
}

fn cluster(owner: &str, url: String) -> Cluster {
    Cluster::new(owner, Arc::new(Ledgers::default()), move || {
        let secret = Secret::Value(PiholeV6::PASSWORD.to_owned());
        connect(Connection::new(parse_base_url(&url).unwrap(), secret), Dialect::V6).unwrap()
    })
}

/// Two clusters on one Pi-hole; the dead leave their sessions behind, so there are seats for many.
pub(crate) async fn play(steps: &[Step]) {
    let options = V6Options { seats: 1000, write_time: Duration::ZERO, ..V6Options::default() };
    let server = PiholeV6::with(options).await;
    let mut user: Vec<String> = Vec::new();
    let mut clusters = ["home", "office"].map(|owner| cluster(owner, server.url()));
    let owners = clusters.each_ref().map(|cluster| cluster.owner.clone());
    let never = Notify::new();
    for step in steps {
        match step.clone() {
            Step::Apply { cluster, name, hosts, registered, target, forged } => {
                clusters[cluster].apply(name, hosts, registered, target, forged);
            }
            Step::Delete { cluster, name } => clusters[cluster].delete(name),
            Step::Add { kind, host } => {
                let line = user_line(kind, host);
                user.push(line.clone());
                server.edit(|hosts, _| hosts.push(line));
            }
            Step::Remove { index } => remove(&server, &mut user, index),
            Step::Pass { cluster, cut: None } | Step::PassWhileEditing { cluster, .. } => {
                clusters[cluster].pass(&never).await;
            }
            Step::PassWhileChanging { cluster, name, hosts, .. } => {
                let notify = clusters[cluster].replace(name, hosts);
                clusters[cluster].pass(&never).await;
                notify();
            }
            Step::Pass { cluster, cut: Some((request, effective)) } => {
                let death = server.strike(request.into(), effective);
                clusters[cluster].pass(&death).await;
                server.spare();
            }
            Step::Together => {
                let [one, two] = &mut clusters;
                tokio::join!(one.pass(&never), two.pass(&never));
            }
            Step::Down { cluster } => clusters[cluster].operator = None,
            Step::Up { cluster } => clusters[cluster].up(),
        }
        assert_eq!(tidied(&foreign(&server.hosts(), &owners)), tidied(&user), "after {step:?}");
    }
    // One invalid line makes a Pi-hole refuse every addition, until its owner mends it.
    while let Some(index) = user.iter().position(|line| line.starts_with("not a line")) {
        remove(&server, &mut user, index);
    }
    for cluster in &mut clusters {
        cluster.up();
    }
    // Each may have to wait for what the other gives up.
    for _ in 0..4 {
        for cluster in &mut clusters {
            assert!(cluster.pass(&never).await);
        }
    }
    let writes = server.counters().writes;
    for cluster in &mut clusters {
        cluster.pass(&never).await;
    }
    assert_eq!(server.counters().writes, writes, "at rest nothing is written");
    assert_eq!(tidied(&foreign(&server.hosts(), &owners)), tidied(&user));
    calm(&server.hosts(), &clusters);
}

/// Removes one line of a person: of several equal ones, the one in the same place among them.
fn remove(server: &PiholeV6, user: &mut Vec<String>, index: usize) {
    if index < user.len() {
        let line = user.remove(index);
        let before = user[..index]
            .iter()
            .filter(|other| tidied(&[(*other).clone()]) == tidied(std::slice::from_ref(&line)))
            .count();
        server.edit(|hosts, _| {
            let same = |stored: &str| Line::stored(stored).tidy() == Line::stored(&line).tidy();
            let place = hosts.iter().enumerate().filter(|(_, stored)| same(stored)).nth(before);
            let place = place.expect("a person's line is there").0;
            hosts.remove(place);
        });
    }
}
