//! Many changes at once: few writes, one login, never two writes in flight, and no needless Kubernetes writes.
//!
//! "At once" does not depend on how fast the machine is. The stand-ins pause the first write of a burst in flight until the
//! operator has seen every change of it; then they release it, and the writes are counted.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{Bed, Draft, Running, TARGET, connection, serves, until, v6};
use futures::StreamExt;
use kube::api::{DeleteParams, ListParams};
use signpost_provider_pihole::{Dialect, Timing, connect};
use signpost_system_pihole::{Instance, Policy, TARGET_IP};
use signpost_testkit::pihole::{Counters, PiholeSpec, PiholeV6, V6Options};
use signpost_testkit::{eventually, on_both};

const MANY: usize = 500;
/// The promise: so many writes for one burst, on each Pi-hole.
const MOST_WRITES: u64 = 3;
/// How long a burst may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_mins(3);

/// The pauses of production, because the promise is about them; only the brake is short.
fn policy(bed: &Bed) -> Policy {
    Policy {
        gather: Duration::from_millis(300),
        gather_at_most: Duration::from_secs(3),
        brake: Duration::from_millis(500),
        ..bed.policy()
    }
}

/// A connection that waits for a write as long as the test pauses it.
fn patient(name: &str, url: &str, token: &str) -> Instance {
    let mut connection = connection(url, token);
    connection.timing = Timing { total: PATIENCE, ..connection.timing };
    Instance::new(name, connect(connection, Dialect::Auto).unwrap())
}

async fn each_of_many<F: Future<Output = ()>>(each: impl Fn(usize) -> F) {
    futures::stream::iter((0..MANY).map(each)).buffer_unordered(32).collect::<Vec<()>>().await;
}

async fn in_time(what: &str, condition: impl Fn() -> bool) {
    eventually(what, PATIENCE, || async { if condition() { Ok(()) } else { Err("not yet") } }).await;
}

/// Two Pi-holes v6, which can write many lines at once, and one of the token dialect, which cannot.
struct Piholes {
    v6: [PiholeV6; 2],
    spec: PiholeSpec,
}

impl Piholes {
    /// With the blanks that FTL gives them.
    const USER: [&str; 3] = ["10.0.0.1 printer.lan # upstairs", "10.0.0.2 odd.lan", "fd00::1 six.lan six"];

    async fn start() -> Self {
        let options = V6Options { write_time: Duration::from_millis(20), ..V6Options::default() };
        let v6 = [PiholeV6::with(options.clone()).await, PiholeV6::with(options).await];
        for server in &v6 {
            server.edit(|hosts, _| hosts.extend(Self::USER.map(str::to_owned)));
        }
        let spec = PiholeSpec::start().await;
        spec.add("printer.lan", "10.0.0.1");
        Self { v6, spec }
    }

    fn instances(&self) -> Vec<Instance> {
        let [one, two] = &self.v6;
        vec![
            patient("one", &one.url(), PiholeV6::PASSWORD),
            patient("two", &two.url(), PiholeV6::PASSWORD),
            patient("spec", &self.spec.url(), PiholeSpec::TOKEN),
        ]
    }

    /// Makes changes while the first write of them is in flight, and checks how many writes each Pi-hole v6 was sent.
    async fn burst(
        &self,
        changes: impl Future<Output = ()>,
        seen: impl Fn() -> bool,
        done: impl Fn(&PiholeV6) -> bool,
    ) {
        let before = self.counters();
        self.v6.iter().for_each(PiholeV6::hold_writes);
        changes.await;
        in_time("the operator has seen every change", seen).await;
        self.v6.iter().for_each(PiholeV6::release_writes);
        for server in &self.v6 {
            in_time("every change is there", || done(server)).await;
        }
        for (before, after) in before.into_iter().zip(self.counters()) {
            let writes = after.writes - before.writes;
            assert!((1..=MOST_WRITES).contains(&writes), "{writes} writes: {after:?}");
        }
    }

    fn counters(&self) -> [Counters; 2] {
        self.v6.each_ref().map(PiholeV6::counters)
    }
}

on_both! {
    async fn row_22_and_55_five_hundred_changes_are_at_most_three_writes_one_login(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Piholes::start().await;
        let running: Running = bed.start_with(policy(&bed), piholes.instances());
        running.is_ready().await;
        let changes = u64::try_from(MANY).unwrap();
        let (user, bed) = (Piholes::USER.len(), &bed);

        let created = each_of_many(|n| async move {
            bed.create(Draft::new(&format!("app-{n:03}"), &[&format!("app-{n:03}.lan")]).registered()).await;
        });
        piholes.burst(created, || running.known() == changes, |server| server.hosts().len() == MANY + user).await;
        in_time("the token dialect has them too", || piholes.spec.records().len() == MANY + 1).await;
        // One change each for the Ingress and for its view.
        in_time("every view is written and seen", || running.watched() >= 2 * changes).await;

        let moved = each_of_many(|n| async move {
            bed.annotate(&format!("app-{n:03}"), TARGET_IP, Some("10.77.0.1")).await;
        });
        let count = |server: &PiholeV6| server.hosts().iter().filter(|line| line.starts_with("10.77.0.1 ")).count();
        piholes.burst(moved, || running.watched() >= 3 * changes, |server| count(server) == MANY).await;
        let there = || piholes.spec.records().iter().filter(|(_, ip)| ip == "10.77.0.1").count();
        in_time("the token dialect has moved too", || there() == MANY).await;
        serves(piholes.v6[0].dns(), "app-499.lan", &["10.77.0.1"]).await;

        let deleted = async { drop(bed.api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap()) };
        piholes.burst(deleted, || running.known() == 0, |server| server.hosts() == Piholes::USER).await;
        in_time("only the user's is left", || piholes.spec.records() == [("printer.lan".to_owned(), "10.0.0.1".to_owned())]).await;

        for counters in piholes.counters() {
            assert_eq!((counters.logins, counters.login_attempts, counters.most_writes_at_once), (1, 1, 1));
        }
        assert_eq!(piholes.spec.counters().most_writes_at_once, 1);
    }

    async fn row_22_a_thousand_ingresses_at_the_start_are_one_write_and_one_login(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let (client, names) = (&bed, |n: usize| format!("a{n}.lan"));
        each_of_many(|n| async move {
            for n in [n, n + MANY] {
                client.create(Draft::new(&format!("app-{n}"), &[&names(n)]).registered()).await;
            }
        }).await;
        let running = bed.start_with(policy(&bed), vec![patient("v6", &server.url(), PiholeV6::PASSWORD)]);
        in_time("all are there", || server.hosts().len() == 2 * MANY).await;
        running.stop().await;
        let counters = server.counters();
        assert_eq!((counters.writes, counters.logins, counters.logouts, counters.most_writes_at_once), (1, 1, 1, 1));
        serves(server.dns(), "a999.lan", &[TARGET]).await;
    }

    async fn every_ingress_is_written_once_and_a_second_pass_writes_nothing(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        for n in 0..60 {
            bed.register(&format!("app-{n}"), &[&format!("app-{n}.lan")]).await;
        }
        let running = bed.start_with(Policy { resync: None, ..policy(&bed) }, vec![v6(&server)]);
        until("all are there", || server.hosts().len() == 60).await;
        for n in 0..60 {
            bed.shows(&format!("app-{n}"), Some(&format!("app-{n}.lan"))).await;
        }
        let versions = || async {
            let list = bed.api.list(&ListParams::default()).await.unwrap();
            list.items.into_iter().map(|ingress| ingress.metadata.resource_version).collect::<BTreeSet<_>>()
        };
        let writes = || {
            let to_ingress = |entry: &&signpost_sandbox::RequestLogEntry| entry.info.method == "PATCH" && entry.info.path.contains("/ingresses/");
            let patches = bed.cluster.sandbox().map_or(60, |sandbox| sandbox.log().iter().filter(to_ingress).count());
            (server.counters().writes, patches)
        };
        running.stop().await;
        assert_eq!(writes(), (1, 60), "one write to the Pi-hole, one Kubernetes write per Ingress");
        let (before, requests) = (versions().await, server.counters().requests);
        let again = bed.start_with(Policy { resync: Some(Duration::from_millis(300)), ..policy(&bed) }, vec![v6(&server)]);
        until("some checks have passed", || server.counters().requests > requests + 8).await;
        again.stop().await;
        assert_eq!(versions().await, before);
        assert_eq!(writes(), (1, 60));
        serves(server.dns(), "app-0.lan", &[TARGET]).await;
    }
}
