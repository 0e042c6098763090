//! The rows of the seed's tables and steps, and every false verdict of the program that this one replaces, with a real PowerDNS behind the resolver:
//! on the sandbox and on the real API server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use signpost_apis::portal::{ComponentState, DNS, FqdnStatus, Portal};
use signpost_inventory::Filter;
use signpost_provider_resolver::{Options, Resolvers, Upstream};
use signpost_system_portal::Pace;
use signpost_testkit::{eventually, on_both};
use tokio::net::UdpSocket;

use crate::bed::{Bed, PATIENCE, one};
use crate::served_names::Server;

/// Passes questions on to a name server, but those for names that begin with `slow`: these are never answered. Returns its address and how many questions it
/// got.
async fn without_slow_names(server: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let near = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let (address, asked) = (near.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = asked.clone();
    tokio::spawn(async move {
        let mut question = [0; 1500];
        while let Ok((length, from)) = near.recv_from(&mut question).await {
            counter.fetch_add(1, Ordering::SeqCst);
            let question = question[..length].to_vec();
            if question.get(12..).is_some_and(|name| name.to_ascii_lowercase().starts_with(b"\x04slow")) {
                continue;
            }
            let near = near.clone();
            tokio::spawn(async move {
                let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                far.send_to(&question, server).await.unwrap();
                let mut answer = [0; 1500];
                if let Ok(Ok(length)) = tokio::time::timeout(PATIENCE, far.recv(&mut answer)).await {
                    drop(near.send_to(&answer[..length], from).await);
                }
            });
        }
    });
    (address, asked)
}

impl Bed {
    fn at(&self, server: SocketAddr) {
        self.at_with(server, |_| {});
    }

    /// Starts an operator that asks this server, with other times.
    fn at_with(&self, server: SocketAddr, change: impl FnOnce(&mut Pace)) {
        let resolvers = vec![Upstream::Server(server)];
        let options = Options { resolvers, deadline: Duration::from_secs(2), ..Options::default() };
        self.start_at(self.cluster.client(), self.options(), Arc::new(Resolvers::new(&options)), change);
    }

    /// Waits until an object is not ready, with this reason.
    async fn is_not_ready(&self, object: &str, reason: &str) {
        self.condition(object, "Ready", reason).await;
        let conditions = self.status(object).await.conditions;
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", reason));
        assert!(!ready.message.is_empty());
    }

    /// Creates a portal and waits until it is ready: the operator knows every earlier change of a portal then, because both come from one watch.
    pub async fn knows_portals_after(&self, name: &str) {
        self.put("Portal", name, json!({ "spec": { "title": "Later" } })).await;
        eventually("the later portal is ready", PATIENCE, || async {
            let status = self.api::<Portal>().get(name).await.unwrap().status.unwrap_or_default();
            if status.ready == Some(true) { Ok(()) } else { Err(status) }
        })
        .await;
    }

    async fn set_annotations(&self, object: &str, annotations: Value) {
        let patch = json!({ "metadata": { "annotations": annotations } });
        self.api::<DNS>().patch(object, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until the names of an object have these results, as `name type` and `status/reason`. The zone is left out.
    async fn judges(&self, object: &str, expected: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> =
            expected.iter().map(|(name, result)| ((*name).to_owned(), (*result).to_owned())).collect();
        let line = |fqdn: FqdnStatus| {
            let name = fqdn.fqdn.trim_end_matches(".names.example").to_owned();
            let result = format!("{}/{}", fqdn.sync_status.unwrap_or_default(), fqdn.reason.unwrap_or_default());
            (format!("{name} {}", fqdn.record_type.unwrap_or_default()).trim().to_owned(), result)
        };
        eventually("the results", PATIENCE, || async {
            let fqdns = self.status(object).await.groups.into_iter().flat_map(|group| group.fqdns);
            let seen: BTreeMap<String, String> = fqdns.map(line).collect();
            if seen == expected { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}

fn entry(name: &str, rtype: &str, targets: &[&str]) -> Value {
    json!({ "fqdn": format!("{name}.names.example"), "recordType": rtype, "targets": targets })
}

on_both! {
    async fn every_step_of_the_chain_is_as_in_the_seed(cluster) {
        let Some(server) = Server::start().await else { return };
        server.publish("same", "A", &["192.0.2.1", "192.0.2.2"]).await;
        server.publish("other", "A", &["192.0.2.9"]).await;
        server.publish("loop", "CNAME", &["loop.names.example."]).await;
        let bed = Bed::without_operator(cluster).await;
        bed.at(without_slow_names(server.powerdns.dns_addr()).await.0);
        // Collected and aggregated: record type, targets and labels; groups sorted by name, whatever their order.
        let mut labelled = entry("same", "A", &["192.0.2.2", "192.0.2.1"]);
        (labelled["labels"], labelled["description"]) = (json!({ "team": "web" }), json!("the shop"));
        bed.dns("team", json!([
            { "name": "zeta", "entries": [entry("other", "A", &["192.0.2.1"]), entry("loop", "A", &["192.0.2.1"]), entry("slow", "A", &["192.0.2.1"])] },
            { "name": "alpha", "description": "first", "entries": [labelled] },
        ]), json!({})).await;
        // Resolved: the four rows of the table.
        bed.judges("team", &[
            ("same A", "sync/Match"), ("other A", "notFound/Mismatch"), ("loop A", "error/ServFail"), ("slow A", "timeout/Timeout"),
        ]).await;
        // Reported: groups, time, Ready and counts.
        bed.condition("team", "Ready", "ReconcileSucceeded").await;
        let status = bed.status("team").await;
        let groups: Vec<(&str, &str, Option<&str>)> =
            status.groups.iter().map(|group| (group.name.as_str(), group.source.as_str(), group.description.as_deref())).collect();
        assert_eq!(groups, [("alpha", "manual", Some("first")), ("zeta", "manual", None)]);
        assert!(status.last_reconcile_time.is_some() && status.groups[0].fqdns[0].last_seen.is_some());
        assert_eq!((status.total, status.sync, status.broken), (Some(4), Some(1), Some(3)));
        // Projected: source, portal, groups, labels and status of each name.
        eventually("the names are in the inventory", PATIENCE, || async {
            let filter = Filter { group: Some("alpha".into()), ..Filter::default() };
            let page = bed.inventory.snapshot().page(&filter, None, 10);
            let of = |view: &Arc<signpost_inventory::View>| {
                let provenance = view.provenance();
                let label = provenance.labels.get("team").map(ToString::to_string);
                (provenance.source.as_str(), provenance.portals.join(","), provenance.groups.join(","), label,
                    view.status().as_str(), view.description().map(ToString::to_string))
            };
            let seen: Vec<_> = page.views.iter().map(of).collect();
            let expected = ("manual", "main".to_owned(), "alpha".to_owned(), Some("web".to_owned()), "sync", Some("the shop".to_owned()));
            if seen == [expected] && bed.inventory.snapshot().len() == 4 { Ok(()) } else { Err(format!("{seen:?}")) }
        }).await;
        // An update triggers the chain, and so does a deletion.
        let patch = json!({ "spec": { "groups": [{ "name": "new", "entries": [entry("other", "A", &["192.0.2.9"])] }] } });
        bed.api::<DNS>().patch("team", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        bed.judges("team", &[("other A", "sync/Match")]).await;
        bed.lists(&["other.names.example sync"]).await;
        bed.api::<DNS>().delete("team", &DeleteParams::default()).await.unwrap();
        bed.lists(&[]).await;
    }

    async fn every_false_verdict_of_the_old_program_is_right_here(cluster) {
        let Some(server) = Server::start().await else { return };
        for (name, rtype, records) in [
            ("dual", "A", &["192.0.2.1"][..]), ("dual", "AAAA", &["2001:db8::1"]), ("one", "CNAME", &["two.names.example."]),
            ("two", "CNAME", &["dual.names.example."]), ("text", "TXT", &["\"hello\""]), ("cdn", "A", &["192.0.2.21"]),
            ("lb", "A", &["192.0.2.7", "192.0.2.8"]), ("flat", "A", &["192.0.2.8", "192.0.2.7"]), ("alias", "CNAME", &["lb.names.example."]),
        ] {
            server.publish(name, rtype, records).await;
        }
        let bed = Bed::without_operator(cluster).await;
        bed.at(server.powerdns.dns_addr());
        let mut changing = entry("cdn", "A", &["192.0.2.20", "192.0.2.21"]);
        changing["match"] = json!("Subset");
        let groups = json!([{ "name": "all", "entries": [
            entry("dual", "A", &["192.0.2.1"]), entry("dual", "AAAA", &["2001:0DB8:0:0::0001"]),
            entry("one", "CNAME", &["two.names.example"]), entry("text", "TXT", &["hello"]), { "fqdn": "text.names.example" },
            changing, entry("flat", "A", &["lb.names.example"]), entry("alias", "A", &["lb.names.example"]),
            entry("lb", "A", &[]), { "fqdn": "dual.names.example" }, { "fqdn": "dual" },
        ] }]);
        bed.dns("team", groups, json!({})).await;
        let right = [
            ("dual A", "sync/Match"), ("dual AAAA", "sync/Match"), ("one CNAME", "sync/Match"), ("text TXT", "sync/Match"),
            ("text", "sync/Exists"), ("cdn A", "sync/Match"), ("flat A", "sync/Match"), ("alias A", "sync/Match"), ("lb A", "sync/Exists"),
            // The name with one label, and not one that a search domain completes.
            ("dual", "error/Refused"),
        ];
        // `dual` with and without its zone have the same text here; both are there.
        eventually("both are judged", PATIENCE, || async {
            let results = bed.results("team").await;
            let both = (results.get("dual.names.example").cloned(), results.get("dual").cloned());
            if both.1.as_deref() == Some("error/Refused") && both.0.is_some() { Ok(()) } else { Err(both) }
        }).await;
        eventually("every verdict is right", PATIENCE, || async {
            let fqdns = bed.status("team").await.groups.into_iter().flat_map(|group| group.fqdns);
            let line = |fqdn: FqdnStatus| {
                let name = fqdn.fqdn.trim_end_matches(".names.example").to_owned();
                let shown = format!("{name} {}", fqdn.record_type.unwrap_or_default()).trim().to_owned();
                (shown, format!("{}/{}", fqdn.sync_status.unwrap_or_default(), fqdn.reason.unwrap_or_default()))
            };
            let seen: Vec<(String, String)> = fqdns.map(line).collect();
            let has = |expected: &(&str, &str)| seen.iter().any(|(name, result)| (name.as_str(), result.as_str()) == *expected);
            if right.iter().all(has) && has(&("dual", "sync/Exists")) && seen.len() == 11 { Ok(()) } else { Err(seen) }
        }).await;
        // An outage of the resolver turns none of them red.
        let before = bed.results("team").await;
        server.powerdns.pause();
        bed.condition("team", "Resolved", "ResolverUnavailable").await;
        assert_eq!(bed.results("team").await, before);
        server.powerdns.resume();
        bed.condition("team", "Resolved", "Answered").await;
        assert_eq!(bed.results("team").await, before);
    }

    async fn an_error_is_a_reason_of_ready_and_never_blocks_the_names(cluster) {
        let Some(server) = Server::start().await else { return };
        for name in ["www", "app"] {
            server.publish(name, "A", &["192.0.2.1"]).await;
        }
        let bed = Bed::without_operator(cluster).await;
        bed.at(server.powerdns.dns_addr());
        let title = json!({ "sreportal.io/component": "Shop" });
        bed.dns("first", one("www.names.example", "192.0.2.1"), title.clone()).await;
        bed.has_components(&["Shop"]).await;
        bed.dns("second", one("app.names.example", "192.0.2.1"), title).await;
        bed.is_not_ready("second", "ComponentFailed").await;
        bed.lists(&["app.names.example sync", "www.names.example sync"]).await;
        bed.shows("second", &[("app.names.example", "sync/Match")]).await;
        // A portal that does not exist is a reason as well; the names are looked up all the same.
        let patch = json!({ "spec": { "portalRef": "missing" }, "metadata": { "annotations": null } });
        bed.api::<DNS>().patch("second", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        bed.is_not_ready("second", "PortalNotFound").await;
        server.publish("app", "A", &["192.0.2.9"]).await;
        bed.shows("second", &[("app.names.example", "notFound/Mismatch")]).await;
        let patch = json!({ "spec": { "portalRef": "main" } });
        bed.api::<DNS>().patch("second", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        bed.condition("second", "Ready", "ReconcileSucceeded").await;
    }

    async fn lookups_that_are_switched_off_leave_the_status_empty(cluster) {
        let Some(server) = Server::start().await else { return };
        server.publish("www", "A", &["192.0.2.1"]).await;
        let (address, asked) = without_slow_names(server.powerdns.dns_addr()).await;
        let bed = Bed::without_operator(cluster).await;
        bed.at_with(address, |pace| pace.check = false);
        bed.dns("team", one("www.names.example", "192.0.2.1"), json!({})).await;
        bed.condition("team", "Ready", "ReconcileSucceeded").await;
        bed.shows("team", &[("www.names.example", "/")]).await;
        bed.lists(&["www.names.example "]).await;
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        // The same with lookups, after a restart.
        bed.stop();
        let next = bed.replica();
        next.at(address);
        next.shows("team", &[("www.names.example", "sync/Match")]).await;
        assert!(asked.load(Ordering::SeqCst) > 0);
    }

    async fn the_component_of_an_annotation_is_as_in_the_seed(cluster) {
        let Some(server) = Server::start().await else { return };
        server.publish("www", "A", &["192.0.2.1"]).await;
        let bed = Bed::without_operator(cluster).await;
        bed.at(server.powerdns.dns_addr());
        bed.dns("team", one("www.names.example", "192.0.2.1"), json!({})).await;
        bed.shows("team", &[("www.names.example", "sync/Match")]).await;
        // Names are looked up before the main portal is created.
        bed.condition("team", "Ready", "ReconcileSucceeded").await;
        // 1: skipped while the portal shows no components.
        let features = |on: bool| Patch::Merge(json!({ "spec": { "features": { "statusPage": on } } }));
        bed.api::<Portal>().patch("main", &PatchParams::default(), &features(false)).await.unwrap();
        bed.knows_portals_after("later").await;
        bed.set_annotations("team", json!({ "sreportal.io/component": "Shop", "sreportal.io/component-group": "Web",
            "sreportal.io/component-description": "sells", "sreportal.io/component-link": "https://shop.names.example" })).await;
        bed.dns("other", one("other.names.example", "192.0.2.1"), json!({ "sreportal.io/component": "Search" })).await;
        bed.shows("other", &[("other.names.example", "notFound/NoSuchName")]).await;
        bed.has_components(&[]).await;
        // 2 and 4: created from the annotations, with the label.
        bed.api::<Portal>().patch("main", &PatchParams::default(), &features(true)).await.unwrap();
        bed.has_components(&["Search", "Shop"]).await;
        let shop = bed.component("Shop").await;
        assert_eq!(shop.labels().get("sreportal.io/managed-by").map(String::as_str), Some("dns-controller"));
        let spec = &shop.spec;
        assert_eq!((spec.group.as_str(), spec.portal_ref.as_str(), spec.description.as_deref(), spec.link.as_deref()),
            ("Web", "main", Some("sells"), Some("https://shop.names.example")));
        // 3: metadata follows, and the state is never overwritten.
        bed.declare(&shop, "degraded").await;
        bed.reports("Shop", "degraded").await;
        bed.set_annotations("team", json!({ "sreportal.io/component-group": "Customers", "sreportal.io/component-status": "operational",
            "sreportal.io/component-description": null })).await;
        eventually("metadata follows", PATIENCE, || async {
            let spec = bed.component("Shop").await.spec;
            let seen = (spec.group, spec.description, spec.status);
            if seen == ("Customers".into(), None, ComponentState::Degraded) { Ok(()) } else { Err(seen) }
        }).await;
        // Without the annotation its component is deleted, and that of another object of the same portal is not.
        bed.set_annotations("team", json!({ "sreportal.io/component": null })).await;
        bed.has_components(&["Search"]).await;
        bed.shows("team", &[("www.names.example", "sync/Match")]).await;
    }
}
