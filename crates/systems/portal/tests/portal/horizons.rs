//! Resolvers that answer differently, and hosts that are answered with other addresses each time.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use serde_json::json;
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_provider_resolver::{Answer, Lookup, Memory, Rcode, Reply};
use signpost_testkit::{eventually, sandbox_cluster};

use crate::bed::{Bed, PATIENCE};

/// A resolver inside of a network and one outside of it.
#[derive(Debug)]
struct Split {
    inside: Memory,
    outside: Arc<Memory>,
}

impl Lookup for Split {
    fn lookup<'a>(&'a self, name: &'a Fqdn, rtype: RecordType) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for (resolver, memory) in [("inside", &self.inside), ("outside", &*self.outside)] {
                let replies = memory.lookup(name, rtype).await;
                all.extend(replies.into_iter().map(|reply| Reply { resolver: resolver.into(), ..reply }));
            }
            all
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_resolvers_that_answer_differently_the_wrong_one_is_named() {
    let bed = Bed::without_operator(sandbox_cluster().await).await;
    let inside = Memory::default();
    for name in ["both.example.org", "www.example.org"] {
        let address = Rdata::parse(&RecordType::A, "10.0.0.1").unwrap();
        inside.set(&Fqdn::parse(name).unwrap(), RecordType::A, vec![address]);
        bed.answers(name, "A", &["192.0.2.1"]);
    }
    let lookup = Arc::new(Split { inside, outside: bed.resolver.clone() });
    bed.start_with(bed.cluster.client(), bed.options(), lookup);
    let entries = json!([
        { "fqdn": "both.example.org", "targets": ["10.0.0.1", "192.0.2.1"], "match": "Subset" },
        { "fqdn": "www.example.org", "targets": ["192.0.2.1"] },
    ]);
    bed.dns("team", json!([{ "name": "apps", "entries": entries }]), json!({})).await;
    bed.shows("team", &[("both.example.org", "sync/Match"), ("www.example.org", "notFound/Mismatch")]).await;
    let status = bed.status("team").await;
    let www = &status.groups[0].fqdns[1];
    assert_eq!((www.resolver.as_deref(), &www.observed[..]), (Some("inside"), &["10.0.0.1".to_owned()][..]));
}

/// Every answer has an address that stays, and one that was not there before.
#[derive(Debug, Default)]
struct Rotating(AtomicU8);

impl Lookup for Rotating {
    fn lookup<'a>(&'a self, _name: &'a Fqdn, rtype: RecordType) -> BoxFuture<'a, Vec<Reply>> {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        let addresses = [[192, 0, 2, 1], [198, 51, 100, number]].map(|octets| Rdata::A(Ipv4Addr::from(octets)));
        let values = if rtype == RecordType::A { addresses.to_vec() } else { Vec::new() };
        let (server, took): (Arc<str>, _) = ("memory".into(), Duration::ZERO);
        let answer = Answer { rcode: Rcode::NoError, chain: Vec::new(), values, ttl: None, server, took };
        Box::pin(async move { vec![Reply { resolver: "memory".into(), result: Ok(answer) }] })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_behind_a_host_with_changing_addresses_stays_in_sync() {
    let bed = Bed::without_operator(sandbox_cluster().await).await;
    let lookup = Arc::new(Rotating::default());
    bed.start_with(bed.cluster.client(), bed.options(), lookup.clone());
    let status = json!({ "loadBalancer": { "ingress": [{ "hostname": "cdn.example.net" }] } });
    bed.put("Ingress", "app", json!({ "spec": { "rules": [{ "host": "app.example.org" }] }, "status": status })).await;
    bed.has_result("app.example.org", "sync/Match").await;
    // Four questions a pass.
    let before = lookup.0.load(Ordering::SeqCst);
    eventually("ten passes", PATIENCE, || async {
        let asked = lookup.0.load(Ordering::SeqCst).wrapping_sub(before);
        if asked >= 40 { Ok(()) } else { Err(asked) }
    })
    .await;
    bed.has_result("app.example.org", "sync/Match").await;
    let events = bed.api::<Event>().list(&ListParams::default()).await.unwrap().items;
    let reasons: Vec<String> = events.into_iter().filter_map(|event| event.reason).collect();
    assert!(!reasons.iter().any(|reason| reason == "Mismatch"), "{reasons:?}");
}
