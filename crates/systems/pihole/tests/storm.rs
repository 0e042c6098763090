//! Many changes at once: few writes, one login, never two writes in flight, and no needless Kubernetes writes.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::{Bed, Draft, TARGET, serves, until, v6};
use futures::StreamExt;
use kube::api::{DeleteParams, ListParams};
use signpost_system_pihole::{Policy, TARGET_IP};
use signpost_testkit::on_both;
use signpost_testkit::pihole::{PiholeV6, V6Options};

const MANY: usize = 500;

/// The pauses of production, which is what the promise is about.
fn policy(bed: &Bed) -> Policy {
    Policy {
        gather: Duration::from_millis(300),
        gather_at_most: Duration::from_secs(3),
        brake: Duration::from_millis(500),
        ..bed.policy()
    }
}

/// At most three writes; where a slow machine takes its time to make the changes, one for each window they arrive in.
fn few(since: Instant) -> u64 {
    (since.elapsed().as_secs() / 3 + 2).max(3)
}

async fn at_once<F: Future<Output = ()>>(each: impl Fn(usize) -> F) {
    futures::stream::iter((0..MANY).map(each)).buffer_unordered(32).collect::<Vec<()>>().await;
}

on_both! {
    async fn row_22_and_55_five_hundred_changes_at_once_are_few_writes_and_one_login(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::with(V6Options { write_time: Duration::from_millis(20), ..V6Options::default() }).await;
        let user = ["10.0.0.1 printer.lan # upstairs", "10.0.0.2  odd.lan"];
        server.edit(|hosts, _| hosts.extend(user.map(str::to_owned)));
        let _running = bed.start_with(policy(&bed), vec![v6(&server)]);
        until("the first look is over", || server.requests().iter().any(|request| request.contains("cnameRecords"))).await;

        let begun = Instant::now();
        at_once(|n| {
            let draft = Draft::new(&format!("app-{n:03}"), &[&format!("app-{n:03}.lan")]).registered();
            let bed = &bed;
            async move { bed.create(draft).await }
        }).await;
        until("all are there", || server.hosts().len() == MANY + 2).await;
        let created = (begun.elapsed(), server.counters());
        assert!(created.1.writes <= few(begun), "{created:?}");

        let begun = Instant::now();
        at_once(|n| {
            let bed = &bed;
            async move { bed.annotate(&format!("app-{n:03}"), TARGET_IP, Some("10.77.0.1")).await }
        }).await;
        let moved = || server.hosts().iter().filter(|line| line.starts_with("10.77.0.1 ")).count();
        until("all have moved", || moved() == MANY).await;
        let updated = server.counters();
        assert!(updated.writes - created.1.writes <= few(begun), "{updated:?}");
        serves(server.dns(), "app-499.lan", &["10.77.0.1"]).await;

        let begun = Instant::now();
        bed.api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
        until("all are gone", || server.hosts().len() == 2).await;
        let deleted = server.counters();
        assert!(deleted.writes - updated.writes <= few(begun), "{deleted:?}");
        assert_eq!((deleted.logins, deleted.most_writes_at_once), (1, 1));
        assert_eq!(server.hosts(), user);
        eprintln!("{MANY} creations answered after {:?} with {} writes, {} in all, {} requests", created.0, created.1.writes, deleted.writes, deleted.requests);
    }

    async fn every_ingress_is_written_once_and_a_second_look_writes_nothing(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        for n in 0..60 {
            bed.register(&format!("app-{n}"), &[&format!("app-{n}.lan")]).await;
        }
        let policy = Policy { resync: Some(Duration::from_millis(300)), ..policy(&bed) };
        let _running = bed.start_with(policy, vec![v6(&server)]);
        bed.shows("app-59", Some("app-59.lan")).await;
        until("all are there", || server.hosts().len() == 60).await;
        for n in 0..60 {
            bed.shows(&format!("app-{n}"), Some(&format!("app-{n}.lan"))).await;
        }
        let versions = || async {
            let list = bed.api.list(&ListParams::default()).await.unwrap();
            list.items.into_iter().map(|ingress| ingress.metadata.resource_version).collect::<BTreeSet<_>>()
        };
        let (before, requests) = (versions().await, server.counters().requests);
        until("some looks have passed", || server.counters().requests > requests + 8).await;
        assert_eq!(versions().await, before);
        assert_eq!(server.counters().writes, 1);
        if let Some(sandbox) = bed.cluster.sandbox() {
            let patches = sandbox.log().iter().filter(|entry| entry.info.method == "PATCH" && entry.info.path.contains("/ingresses/")).count();
            assert_eq!(patches, 60, "one Kubernetes write per Ingress");
        }
        serves(server.dns(), "app-0.lan", &[TARGET]).await;
    }
}
