//! The condition `Served` of record sets of `powerdns`: asked of the server they were published to, and of the resolvers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use signpost_apis::powerdns::RRset;
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_engine::project::{entry_of, wanted_by};
use signpost_engine::{Identity, ObjectId};
use signpost_inventory::{Entry, Owner};
use signpost_planning::{Reason, Refusal};
use signpost_provider_resolver::{Lookup, Memory, Reply};
use signpost_system_portal::Lookups;
use signpost_testkit::{eventually, on_both};
use tokio::sync::Semaphore;

use crate::bed::{Bed, PATIENCE};

impl Bed {
    /// With record sets that are verified; `server` is the one that they are published to.
    fn start_verifying<L: Lookup + 'static>(&self, server: &Arc<L>) {
        let servers = BTreeMap::from([("powerdns".into(), server.clone() as Arc<dyn Lookup>)]);
        let lookups = Lookups { servers, ..Lookups::from(self.resolver.clone()) };
        self.start_at(self.cluster.client(), self.options(), lookups, |pace| pace.verify = true);
    }

    async fn rrset(&self, name: &str) -> RRset {
        let object: RRset = serde_json::from_value(json!({
            "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "RRset", "metadata": { "name": name },
            "spec": { "type": "A", "name": name, "ttl": 60, "records": ["192.0.2.1"],
                "zoneRef": { "name": "example.org", "kind": "Zone" } },
        }))
        .unwrap();
        self.api::<RRset>().create(&PostParams::default(), &object).await.unwrap()
    }

    /// As `powerdns` projects it, published or refused.
    fn project(&self, rrset: &RRset, refusal: Option<Refusal>) {
        self.project_in("example.org", rrset, refusal);
    }

    /// The same, as a name of this zone object.
    fn project_in(&self, owner: &str, rrset: &RRset, refusal: Option<Refusal>) {
        let identity = Identity::of(rrset);
        let id = ObjectId::new::<RRset>(Some(&self.namespace), rrset.metadata.name.as_deref().unwrap());
        let name = Fqdn::parse(&format!("{}.example.org", rrset.spec.name)).unwrap();
        let mut entry = Entry::new(name, Some(RecordType::A), wanted_by(&id, &identity.uid, "powerdns"));
        entry.targets = rrset.spec.records.iter().collect();
        let entry = entry_of(entry, &identity, refusal.is_none(), refusal.as_ref());
        self.inventory.replace(&Owner::new("powerdns", owner), vec![entry], jiff::Timestamp::now());
    }

    /// `status/reason: message` of the condition, and the other conditions.
    async fn conditions(&self, name: &str) -> (Option<String>, Vec<String>) {
        let status = self.api::<RRset>().get(name).await.unwrap().status.unwrap_or_default();
        let (served, others): (Vec<_>, Vec<_>) = status.conditions.into_iter().partition(|c| c.type_ == "Served");
        let served = served.first().map(|c| format!("{}/{}: {}", c.status, c.reason, c.message));
        (served, others.into_iter().map(|condition| condition.type_).collect())
    }

    async fn is_served(&self, name: &str, expected: Option<&str>) {
        eventually(&format!("{name} has {expected:?}"), PATIENCE, || async {
            let (served, _) = self.conditions(name).await;
            if served.as_deref() == expected { Ok(()) } else { Err(served) }
        })
        .await;
    }
}

fn set(resolver: &Memory, address: &str) {
    set_name(resolver, "www.example.org", address);
}

fn set_name(resolver: &Memory, name: &str, address: &str) {
    let value = Rdata::parse(&RecordType::A, address).unwrap();
    resolver.set(&Fqdn::parse(name).unwrap(), RecordType::A, vec![value]);
}

/// A server that answers for `www.example.org` as often as it is allowed to.
#[derive(Debug)]
struct Gated {
    memory: Memory,
    allowed: Semaphore,
    asked: AtomicUsize,
}

impl Gated {
    async fn was_asked(&self, times: usize) {
        eventually("a question waits", PATIENCE, || async {
            let asked = self.asked.load(Ordering::SeqCst);
            if asked >= times { Ok(()) } else { Err(asked) }
        })
        .await;
    }
}

impl Lookup for Gated {
    fn lookup<'a>(&'a self, name: &'a Fqdn, rtype: RecordType) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            if name.undotted() == "www.example.org" {
                self.asked.fetch_add(1, Ordering::SeqCst);
                self.allowed.acquire().await.unwrap().forget();
            }
            self.memory.lookup(name, rtype).await
        })
    }
}

/// Waits for more lookups: three refreshes at least.
async fn asked_again(resolver: &Memory) {
    let before = resolver.asked();
    eventually("more lookups", PATIENCE, || async {
        let more = resolver.asked() - before;
        if more >= 3 { Ok(()) } else { Err(more) }
    })
    .await;
}

on_both! {
    async fn a_wrong_answer_of_a_server_that_is_down_outlasts_a_restart(cluster) {
        cluster.install(&signpost_apis::powerdns::crds()).await;
        let (bed, server) = (Bed::without_operator(cluster).await, Arc::<Memory>::default());
        let rrset = bed.rrset("www").await;
        set(&server, "192.0.2.9");
        set(&bed.resolver, "192.0.2.1");
        bed.start_verifying(&server);
        bed.project(&rrset, None);
        let wrong = Some("False/Mismatch: memory: 192.0.2.9");
        bed.is_served("www", wrong).await;
        bed.stop();
        // Whoever gave the result does not answer. The others are right, which is not a better answer.
        server.set_down(true);
        let next = bed.replica();
        set(&next.resolver, "192.0.2.1");
        next.start_verifying(&server);
        next.project(&rrset, None);
        asked_again(&next.resolver).await;
        next.has_result("www.example.org", "notFound/Mismatch").await;
        next.is_served("www", wrong).await;
        set(&server, "192.0.2.1");
        server.set_down(false);
        next.is_served("www", Some("True/Match: 192.0.2.1")).await;
    }

    async fn a_result_for_the_content_before_an_edit_is_not_reported(cluster) {
        cluster.install(&signpost_apis::powerdns::crds()).await;
        let bed = Bed::without_operator(cluster).await;
        let server = Arc::new(Gated { memory: Memory::default(), allowed: Semaphore::new(0), asked: AtomicUsize::new(0) });
        let rrset = bed.rrset("www").await;
        for resolver in [&server.memory, &*bed.resolver] {
            set(resolver, "192.0.2.1");
            set_name(resolver, "later.example.org", "192.0.2.1");
        }
        bed.start_verifying(&server);
        bed.project(&rrset, None);
        server.was_asked(1).await;
        // It is edited while the server is asked about the old content.
        let patch = json!({ "spec": { "records": ["192.0.2.2"] } });
        let edited = bed.api::<RRset>().patch("www", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        bed.project(&edited, None);
        // An object that was created after the edit is reported, so the operator has seen the edit.
        let later = bed.rrset("later").await;
        bed.project_in("another", &later, None);
        bed.is_served("later", Some("True/Match: 192.0.2.1")).await;
        server.allowed.add_permits(1);
        server.was_asked(2).await;
        // The result of the first pass would have been written before this one.
        set_name(&server.memory, "later.example.org", "192.0.2.9");
        bed.is_served("later", Some("False/Mismatch: memory: 192.0.2.9")).await;
        assert_eq!(bed.conditions("www").await.0, None, "nothing is known of the new content");
        server.allowed.add_permits(Semaphore::MAX_PERMITS / 2);
        bed.is_served("www", Some("False/Mismatch: memory: 192.0.2.1")).await;
    }

    async fn a_record_set_reports_whether_its_server_and_the_resolvers_answer_as_published(cluster) {
        cluster.install(&signpost_apis::powerdns::crds()).await;
        let (bed, server) = (Bed::without_operator(cluster).await, Arc::<Memory>::default());
        let rrset = bed.rrset("www").await;
        // `powerdns` owns its own conditions.
        let ready = json!({ "type": "Ready", "status": "True", "reason": "Synced", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let status = json!({ "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "RRset", "status": { "conditions": [ready] } });
        bed.api::<RRset>().patch_status("www", &PatchParams::apply("signpost").force(), &Patch::Apply(status)).await.unwrap();
        bed.start_verifying(&server);
        bed.project(&rrset, None);
        bed.is_served("www", Some("False/NoSuchName: memory has no such record")).await;
        // The server has it, the resolvers do not.
        set(&server, "192.0.2.1");
        asked_again(&server).await;
        bed.is_served("www", Some("False/NoSuchName: memory has no such record")).await;
        set(&bed.resolver, "192.0.2.1");
        bed.is_served("www", Some("True/Match: 192.0.2.1")).await;
        // The resolvers have it, and the server does not any more.
        set(&server, "192.0.2.9");
        bed.is_served("www", Some("False/Mismatch: memory: 192.0.2.9")).await;
        // Its silence is not a better answer.
        server.set_down(true);
        asked_again(&server).await;
        bed.is_served("www", Some("False/Mismatch: memory: 192.0.2.9")).await;
        server.set_down(false);
        set(&server, "192.0.2.1");
        bed.is_served("www", Some("True/Match: 192.0.2.1")).await;
        assert_eq!(bed.conditions("www").await.1, ["Ready"], "the conditions of others are unchanged");

        // At rest, and after a restart, nothing is written.
        let version = bed.api::<RRset>().get("www").await.unwrap().metadata.resource_version;
        asked_again(&server).await;
        bed.stop();
        let next = bed.replica();
        set(&next.resolver, "192.0.2.1");
        next.start_verifying(&server);
        next.project(&rrset, None);
        asked_again(&next.resolver).await;
        assert_eq!(next.api::<RRset>().get("www").await.unwrap().metadata.resource_version, version);
        // An outage of all of them keeps the result.
        next.resolver.set_down(true);
        server.set_down(true);
        asked_again(&server).await;
        next.is_served("www", Some("True/Match: 192.0.2.1")).await;
        server.set_down(false);
        // A process that starts during the outage has the result of the condition.
        next.stop();
        let last = next.replica();
        last.resolver.set_down(true);
        server.set_down(true);
        last.start_verifying(&server);
        last.project(&rrset, None);
        last.has_result("www.example.org", "sync/Match").await;
        last.is_served("www", Some("True/Match: 192.0.2.1")).await;
        let next = last;
        server.set_down(false);
        // A record set that is refused is not served by its object.
        next.project(&rrset, Some(Refusal::new(Reason::ClaimedByAnother, "another one is older")));
        next.is_served("www", None).await;
        assert_eq!(next.conditions("www").await.1, ["Ready"]);
    }
}
