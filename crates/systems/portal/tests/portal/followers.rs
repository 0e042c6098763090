//! What a replica that does not lead shows: verdicts that are in a status, and of the others that only the leader knows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::PostParams;
use serde_json::json;
use signpost_apis::powerdns::RRset;
use signpost_dns::{Fqdn, RecordType};
use signpost_engine::project::{entry_of, wanted_by};
use signpost_engine::{Identity, ObjectId};
use signpost_inventory::{Change, Entry, Owner, Stage, Update};
use signpost_provider_resolver::Memory;
use signpost_testkit::{eventually, on_both};

use crate::bed::{Bed, PATIENCE, one};

const TARGET: &str = "192.0.2.1";

impl Bed {
    async fn record(&self) -> RRset {
        let rrset: RRset = serde_json::from_value(json!({
            "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "RRset", "metadata": { "name": "record" },
            "spec": { "type": "A", "name": "record", "ttl": 60, "records": [TARGET], "zoneRef": { "name": "example.org", "kind": "Zone" } },
        }))
        .unwrap();
        self.api::<RRset>().create(&PostParams::default(), &rrset).await.unwrap()
    }

    /// Published by `powerdns`, as its projection has it.
    fn publishes(&self, rrset: &RRset) {
        let identity = Identity::of(rrset);
        let id = ObjectId::new::<RRset>(Some(&self.namespace), rrset.metadata.name.as_deref().unwrap());
        let name = Fqdn::parse("record.example.org").unwrap();
        let mut entry = Entry::new(name, Some(RecordType::A), wanted_by(&id, &identity.uid, "powerdns"));
        entry.targets = [TARGET].into_iter().collect();
        let entry = entry_of(entry, &identity, true, None);
        self.inventory.replace(&Owner::new("powerdns", "example.org"), vec![entry], jiff::Timestamp::now());
    }

    fn start_as(&self, identity: &str, verify: bool) {
        let options = self.with_lease(identity);
        self.start_at(self.cluster.client(), options, self.resolver.clone(), move |pace| pace.verify = verify);
    }
}

/// A leader and a follower with an entry of a DNS object, the host of an Ingress and a record set of `powerdns`.
async fn both(cluster: signpost_testkit::Cluster, verify: bool) -> (Bed, Bed) {
    cluster.install(&signpost_apis::powerdns::crds()).await;
    let leader = Bed::without_operator(cluster).await;
    for name in ["www.example.org", "app.example.org", "record.example.org"] {
        leader.answers(name, "A", &[TARGET]);
    }
    let rrset = leader.record().await;
    leader.start_as("leader", verify);
    leader.dns("team", one("www.example.org", TARGET), json!({})).await;
    leader.put("Ingress", "app", json!({ "spec": { "rules": [{ "host": "app.example.org" }] } })).await;
    leader.publishes(&rrset);
    leader.has_result("www.example.org", "sync/Match").await;
    leader.has_result("app.example.org", "sync/Exists").await;
    leader.has_result("record.example.org", "sync/Match").await;
    let follower = leader.replica();
    follower.start_as("follower", verify);
    follower.publishes(&rrset);
    (leader, follower)
}

on_both! {
    async fn a_follower_shows_which_verdicts_only_the_leader_knows(cluster) {
        let (leader, follower) = both(cluster, false).await;
        follower.has_result("www.example.org", "sync/Match").await;
        follower.has_result("app.example.org", "/LeaderOnly").await;
        follower.has_result("record.example.org", "/LeaderOnly").await;
        // A replacement of the name by its system does not change that.
        let rrset = leader.api::<RRset>().get("record").await.unwrap();
        follower.publishes(&rrset);
        follower.has_result("record.example.org", "/LeaderOnly").await;
        assert_eq!(follower.resolver.asked(), 0, "only the leader looks names up");

        // The next leader looks all of them up.
        follower.answers("www.example.org", "A", &["192.0.2.9"]);
        leader.stop();
        follower.has_result("www.example.org", "notFound/Mismatch").await;
        follower.has_result("app.example.org", "notFound/NoSuchName").await;
        follower.has_result("record.example.org", "notFound/NoSuchName").await;
    }

    async fn a_new_leader_without_resolvers_never_refers_to_the_leader(cluster) {
        let (leader, follower) = both(cluster, false).await;
        // An answer that PowerDNS computes cannot be compared, so the leader has no result either.
        let id = ObjectId::new::<RRset>(Some(&leader.namespace), "lua");
        let lua = Fqdn::parse("lua.example.org").unwrap();
        for bed in [&leader, &follower] {
            let mut entry = Entry::new(lua.clone(), Some("LUA".parse().unwrap()), wanted_by(&id, &Arc::default(), "powerdns"));
            entry.targets = ["A \"ifportup(443, {'192.0.2.1'})\""].into_iter().collect();
            entry.stage = Stage::Published;
            bed.inventory.replace(&Owner::new("powerdns", "lua"), vec![entry], jiff::Timestamp::now());
        }
        follower.has_result("record.example.org", "/LeaderOnly").await;
        follower.has_result("lua.example.org", "/").await;
        follower.resolver.set_down(true);
        leader.stop();
        for name in ["record.example.org", "app.example.org", "lua.example.org"] {
            follower.has_result(name, "/").await;
        }
        follower.has_result("www.example.org", "sync/Match").await;
    }

    async fn a_follower_takes_over_the_condition_of_a_record_set(cluster) {
        let (leader, follower) = both(cluster, true).await;
        follower.has_result("record.example.org", "sync/Match").await;
        leader.answers("record.example.org", "A", &["192.0.2.9"]);
        leader.has_result("record.example.org", "notFound/Mismatch").await;
        follower.has_result("record.example.org", "notFound/Mismatch").await;
        follower.has_result("app.example.org", "/LeaderOnly").await;
        assert_eq!(follower.resolver.asked(), 0);
    }
}

on_both! {
    async fn names_without_a_status_are_unknown_after_a_restart_until_they_are_asked(cluster) {
        cluster.install(&signpost_apis::powerdns::crds()).await;
        let first = Bed::without_operator(cluster).await;
        let names = ["app.example.org", "record.example.org"];
        let start = |bed: &Bed| {
            for name in names {
                bed.answers(name, "A", &[TARGET]);
            }
            // A refresh would hide that a name was not asked at once.
            bed.start_at(bed.cluster.client(), bed.options(), bed.resolver.clone(), |pace| pace.refresh = Duration::from_hours(1))
        };
        let running = start(&first);
        let rrset = first.record().await;
        first.put("Ingress", "app", json!({ "spec": { "rules": [{ "host": "app.example.org" }] } })).await;
        first.publishes(&rrset);
        first.has_result("app.example.org", "sync/Exists").await;
        first.has_result("record.example.org", "sync/Match").await;
        first.stop();
        running.await.unwrap();

        // The next process has nobody to ask at first: the names are there, and unknown.
        let next = first.replica();
        let (_, mut changes) = next.inventory.subscribe();
        next.resolver.set_down(true);
        start(&next);
        next.publishes(&rrset);
        eventually("both names are asked for", PATIENCE, || async {
            let asked = next.resolver.asked();
            if asked >= 4 { Ok(()) } else { Err(asked) }
        }).await;
        next.lists(&["app.example.org ", "record.example.org "]).await;
        next.resolver.set_down(false);
        next.lists(&["app.example.org sync", "record.example.org sync"]).await;
        // At no moment was one of them broken or lost.
        let mut seen = BTreeSet::new();
        while let Some(update) = changes.try_next() {
            let Update::Changes(batch) = update else { panic!("too many changes") };
            for change in &batch.changes {
                let (Change::Added(view) | Change::Modified(view)) = change else { panic!("lost: {change:?}") };
                seen.insert(format!("{}/{}", view.status().as_str(), view.reason().as_str()));
            }
        }
        let expected = ["/", "sync/Exists", "sync/Match"].map(str::to_owned);
        assert_eq!(seen.into_iter().filter(|result| result != "/LeaderOnly").collect::<Vec<_>>(), expected);
    }
}

/// A replica that leads never shows that only the leader knows, also before its first lookup ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_not_looked_up_have_no_reason() {
    let bed = Bed::without_operator(signpost_testkit::sandbox_cluster().await).await;
    let resolver = Arc::<Memory>::default();
    bed.start_at(bed.cluster.client(), bed.options(), resolver, |pace| pace.check = false);
    bed.dns("team", one("www.example.org", TARGET), json!({})).await;
    bed.has_result("www.example.org", "/").await;
    bed.condition("team", "Ready", "ReconcileSucceeded").await;
    bed.has_result("www.example.org", "/").await;
}
