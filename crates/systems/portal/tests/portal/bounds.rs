//! An entry whose answers are too large for a pass, or take longer than a pass, is reported, and its neighbours are judged.

use std::future::pending;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_provider_resolver::{Answer, Lookup, Memory, Rcode, Reply};
use signpost_testkit::sandbox_cluster;

use crate::bed::Bed;

/// How hosts below `example.net` are answered; other names are in memory.
#[derive(Clone, Copy, Debug)]
enum Hosts {
    /// With as many addresses as a message can have.
    Huge,
    Never,
}

#[derive(Debug)]
struct Heavy(Arc<Memory>, Hosts);

impl Lookup for Heavy {
    fn lookup<'a>(&'a self, name: &'a Fqdn, rtype: RecordType) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            if !name.undotted().ends_with(".example.net") {
                return self.0.lookup(name, rtype).await;
            }
            if let Hosts::Never = self.1 {
                return pending().await;
            }
            let values = (0..4_000).map(|number| Rdata::A(Ipv4Addr::from(0x0a00_0000 + number))).collect();
            let (server, took): (Arc<str>, _) = ("memory".into(), Duration::ZERO);
            let answer = Answer { rcode: Rcode::NoError, chain: Vec::new(), values, ttl: None, server, took };
            vec![Reply { resolver: "memory".into(), result: Ok(answer) }]
        })
    }
}

/// An object with an entry of 20 hosts, and two small ones: one before it and one after it in the order of names.
async fn with_many_hosts(hosts: Hosts) -> Bed {
    let bed = Bed::without_operator(sandbox_cluster().await).await;
    for name in ["a.example.org", "large.example.org", "z.example.org"] {
        bed.answers(name, "A", &["192.0.2.1"]);
    }
    let lookup = Arc::new(Heavy(bed.resolver.clone(), hosts));
    bed.start_at(bed.cluster.client(), bed.options(), lookup, |pace| pace.budget = Duration::from_secs(2));
    let targets: Vec<String> = (0..20).map(|number| format!("h{number}.example.net")).collect();
    let entry = |name: &str, targets: Value| json!({ "fqdn": format!("{name}.example.org"), "recordType": "A", "targets": targets });
    let small = || json!(["192.0.2.1"]);
    let entries = [entry("a", small()), entry("large", json!(targets)), entry("z", small())];
    bed.dns("team", json!([{ "name": "apps", "entries": entries }]), json!({})).await;
    bed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_with_answers_too_large_for_a_pass_is_reported_alone() {
    let bed = with_many_hosts(Hosts::Huge).await;
    bed.shows(
        "team",
        &[("a.example.org", "sync/Match"), ("large.example.org", "error/BadAnswer"), ("z.example.org", "sync/Match")],
    )
    .await;
    let observed = bed.status("team").await.groups[0].fqdns[1].observed.clone();
    assert!(observed[0].contains("too large to be compared; use fewer targets"), "{observed:?}");
    bed.condition("team", "Resolved", "Answered").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_with_targets_too_slow_for_a_pass_is_reported_alone() {
    let bed = with_many_hosts(Hosts::Never).await;
    bed.condition("team", "Resolved", "ResolverUnavailable").await;
    let conditions = bed.status("team").await.conditions;
    let message = &conditions.iter().find(|condition| condition.type_ == "Resolved").unwrap().message;
    assert!(message.contains("large.example.org. are not answered in time; use fewer targets"), "{message}");
    let expected = [("a.example.org", "sync/Match"), ("large.example.org", "/"), ("z.example.org", "sync/Match")];
    bed.shows("team", &expected).await;
}
