//! The chain of a DNS object, on the sandbox and on the real API server, with a resolver in memory.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use signpost_apis::portal::{Component, ComponentState, DNS, DnsStatus, Portal};
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_engine::{Operator, OperatorOptions};
use signpost_inventory::{Filter, Inventory, SyncStatus};
use signpost_provider_resolver::{LookupError, Memory};
use signpost_system_portal::{Pace, install_with};
use signpost_testkit::{Cluster, eventually, on_both};
use tokio_util::sync::CancellationToken;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// A namespace, an operator that watches it, and a resolver.
struct Bed {
    namespace: String,
    cluster: Cluster,
    resolver: Arc<Memory>,
    inventory: Arc<Inventory>,
    stop: CancellationToken,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Bed {
    /// With a portal `main`, unless the operator is to create it.
    async fn new(cluster: Cluster) -> Self {
        cluster.install(&signpost_apis::portal::crds()).await;
        let namespace = cluster.namespace("portal").await;
        let bed = Self {
            namespace,
            cluster,
            resolver: Arc::default(),
            inventory: Arc::new(Inventory::new()),
            stop: CancellationToken::new(),
        };
        bed.start();
        bed
    }

    fn start(&self) {
        let options = OperatorOptions { namespace: Some(self.namespace.clone()), ..OperatorOptions::default() };
        let mut operator = Operator::new(self.cluster.client(), options);
        let pace = Pace {
            refresh: Duration::from_millis(500),
            again: Duration::from_millis(100),
            namespace: self.namespace.clone(),
            ..Pace::default()
        };
        install_with(&mut operator, self.resolver.clone(), &self.inventory, pace);
        let stop = self.stop.clone();
        tokio::spawn(async move { operator.run(stop).await.expect("the operator runs until it is stopped") });
    }

    fn api<K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    async fn dns(&self, name: &str, groups: Value, annotations: Value) {
        let object: DNS = serde_json::from_value(json!({
            "apiVersion": "sreportal.io/v1alpha1",
            "kind": "DNS",
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "portalRef": "main", "groups": groups },
        }))
        .unwrap();
        self.api::<DNS>().create(&PostParams::default(), &object).await.unwrap();
    }

    fn answers(&self, name: &str, rtype: &str, values: &[&str]) {
        let rtype: RecordType = rtype.parse().unwrap();
        let values = values.iter().map(|value| Rdata::parse(&rtype, value).unwrap()).collect();
        self.resolver.set(&Fqdn::parse(name).unwrap(), rtype, values);
    }

    async fn status(&self, name: &str) -> DnsStatus {
        self.api::<DNS>().get(name).await.unwrap().status.unwrap_or_default()
    }

    /// `status/reason` by name.
    async fn results(&self, name: &str) -> BTreeMap<String, String> {
        let status = self.status(name).await;
        let fqdns = status.groups.into_iter().flat_map(|group| group.fqdns);
        let result = |fqdn: signpost_apis::portal::FqdnStatus| {
            (fqdn.fqdn, format!("{}/{}", fqdn.sync_status.unwrap_or_default(), fqdn.reason.unwrap_or_default()))
        };
        fqdns.map(result).collect()
    }

    async fn shows(&self, name: &str, expected: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> = expected.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        eventually(&format!("{name} shows {expected:?}"), PATIENCE, || async {
            let seen = self.results(name).await;
            if seen == expected { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    async fn condition(&self, name: &str, type_: &str, reason: &str) {
        eventually(&format!("{name} has {type_} {reason}"), PATIENCE, || async {
            let conditions = self.status(name).await.conditions;
            let found = conditions.iter().any(|condition| condition.type_ == type_ && condition.reason == reason);
            if found { Ok(()) } else { Err(conditions) }
        })
        .await;
    }

    fn in_inventory(&self, status: SyncStatus) -> usize {
        self.inventory.snapshot().page(&Filter { status: Some(status), ..Filter::default() }, None, 1).total
    }

    async fn components(&self) -> Vec<Component> {
        self.api::<Component>().list(&ListParams::default()).await.unwrap().items
    }

    async fn has_components(&self, names: &[&str]) -> Vec<Component> {
        eventually(&format!("the components are {names:?}"), PATIENCE, || async {
            let all = self.components().await;
            let mut seen: Vec<String> = all.iter().map(|component| component.spec.display_name.clone()).collect();
            seen.sort();
            if seen == names { Ok(all) } else { Err(seen) }
        })
        .await
    }

    async fn annotate(&self, name: &str, value: Option<&str>) {
        let patch = json!({ "metadata": { "annotations": { "sreportal.io/component": value } } });
        self.api::<DNS>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

fn one(fqdn: &str, target: &str) -> Value {
    json!([{ "name": "apps", "entries": [{ "fqdn": fqdn, "recordType": "A", "targets": [target] }] }])
}

on_both! {
    async fn every_result_of_the_table_is_reported(cluster) {
        let bed = Bed::new(cluster).await;
        bed.answers("good.example.org", "A", &["192.0.2.1"]);
        bed.answers("good.example.org", "AAAA", &["2001:db8::1"]);
        bed.answers("other.example.org", "A", &["192.0.2.9"]);
        bed.answers("text.example.org", "TXT", &["\"hello\""]);
        let server: Arc<str> = "memory".into();
        let late = LookupError::Timeout { server: server.clone(), after: Duration::from_secs(5) };
        bed.resolver.fail(&Fqdn::parse("late.example.org").unwrap(), Some(late));
        let bad = LookupError::BadAnswer { server, why: "nonsense".into() };
        bed.resolver.fail(&Fqdn::parse("bad.example.org").unwrap(), Some(bad));
        let a = |fqdn: &str| json!({ "fqdn": fqdn, "recordType": "A", "targets": ["192.0.2.1"] });
        bed.dns("team", json!([
            { "name": "web", "description": "all of it", "entries": [
                a("Good.example.org."), a("other.example.org"), a("missing.example.org"), a("late.example.org"),
                a("bad.example.org"), a("text.example.org"), a("not a name") ] },
            { "name": "any", "entries": [{ "fqdn": "text.example.org", "description": "exists" }] },
        ]), json!({})).await;
        bed.shows("team", &[
            ("good.example.org", "sync/Match"),
            ("other.example.org", "notFound/Mismatch"),
            ("missing.example.org", "notFound/NoSuchName"),
            ("late.example.org", "timeout/Timeout"),
            ("bad.example.org", "error/BadAnswer"),
            ("text.example.org", "notFound/NoData"),
            ("not a name", "error/InvalidEntry"),
        ]).await;
        bed.condition("team", "Ready", "ReconcileSucceeded").await;
        bed.condition("team", "Resolved", "Answered").await;
        let status = bed.status("team").await;
        assert_eq!((status.total, status.sync, status.broken), (Some(8), Some(2), Some(6)));
        let groups: Vec<(&str, &str)> = status.groups.iter().map(|g| (g.name.as_str(), g.source.as_str())).collect();
        assert_eq!(groups, [("any", "manual"), ("web", "manual")], "sorted by name");
        assert_eq!(status.groups[0].fqdns[0].sync_status.as_deref(), Some("sync"), "it must merely exist");
        let other = status.groups[1].fqdns.iter().find(|fqdn| fqdn.fqdn == "other.example.org").unwrap();
        assert_eq!(other.observed, ["192.0.2.9"]);
        eventually("what is not a name is not in the inventory", PATIENCE, || async {
            let count = bed.inventory.snapshot().len();
            let seen = (count, bed.in_inventory(SyncStatus::Sync), bed.in_inventory(SyncStatus::Timeout));
            if seen == (7, 2, 1) { Ok(()) } else { Err(seen) }
        }).await;
        let view = bed.inventory.snapshot().page(&Filter { group: Some("web".into()), ..Filter::default() }, None, 1).views.remove(0);
        assert_eq!((view.provenance().source.as_str(), &*view.provenance().portals[0]), ("manual", "main"));
    }

    async fn an_outage_keeps_the_verdicts_and_a_fixed_name_turns_green(cluster) {
        let bed = Bed::new(cluster).await;
        bed.answers("www.example.org", "A", &["192.0.2.1"]);
        bed.dns("team", one("www.example.org", "192.0.2.1"), json!({})).await;
        bed.shows("team", &[("www.example.org", "sync/Match")]).await;
        bed.resolver.set_down(true);
        bed.condition("team", "Resolved", "ResolverUnavailable").await;
        bed.shows("team", &[("www.example.org", "sync/Match")]).await;
        eventually("the inventory keeps the verdict", PATIENCE, || async {
            let seen = bed.in_inventory(SyncStatus::Sync);
            if seen == 1 { Ok(()) } else { Err(seen) }
        }).await;
        bed.answers("www.example.org", "A", &["192.0.2.2"]);
        bed.resolver.set_down(false);
        bed.condition("team", "Resolved", "Answered").await;
        bed.shows("team", &[("www.example.org", "notFound/Mismatch")]).await;
        bed.answers("www.example.org", "A", &["192.0.2.1"]);
        bed.shows("team", &[("www.example.org", "sync/Match")]).await;
    }

    async fn nothing_is_written_at_rest_and_a_deletion_removes_the_names(cluster) {
        let bed = Bed::new(cluster).await;
        bed.answers("www.example.org", "A", &["192.0.2.1"]);
        bed.dns("team", one("www.example.org", "192.0.2.1"), json!({})).await;
        bed.shows("team", &[("www.example.org", "sync/Match")]).await;
        bed.condition("team", "Ready", "ReconcileSucceeded").await;
        let version = bed.api::<DNS>().get("team").await.unwrap().resource_version();
        let asked = bed.resolver.asked();
        eventually("the name is looked up again and again", PATIENCE, || async {
            let more = bed.resolver.asked() - asked;
            if more >= 3 { Ok(()) } else { Err(more) }
        }).await;
        assert_eq!(bed.api::<DNS>().get("team").await.unwrap().resource_version(), version);
        bed.api::<DNS>().delete("team", &DeleteParams::default()).await.unwrap();
        eventually("the inventory is empty", PATIENCE, || async {
            let left = bed.inventory.snapshot().len();
            if left == 0 { Ok(()) } else { Err(left) }
        }).await;
    }

    async fn the_main_portal_is_created_and_a_missing_portal_is_reported(cluster) {
        let bed = Bed::new(cluster).await;
        eventually("the main portal is ready", PATIENCE, || async {
            let portal = bed.api::<Portal>().get_opt("main").await.unwrap();
            let ready = portal.as_ref().and_then(|portal| portal.status.as_ref()?.ready);
            if ready == Some(true) { Ok(()) } else { Err(portal) }
        }).await;
        let object: DNS = serde_json::from_value(json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "DNS", "metadata": { "name": "lost" },
            "spec": { "portalRef": "elsewhere", "groups": one("www.example.org", "192.0.2.1") },
        })).unwrap();
        bed.api::<DNS>().create(&PostParams::default(), &object).await.unwrap();
        bed.condition("lost", "Ready", "PortalNotFound").await;
        let portal: Portal = serde_json::from_value(json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "Portal", "metadata": { "name": "elsewhere" },
            "spec": { "title": "Elsewhere" },
        })).unwrap();
        bed.api::<Portal>().create(&PostParams::default(), &portal).await.unwrap();
        bed.condition("lost", "Ready", "ReconcileSucceeded").await;
    }

    async fn a_component_follows_its_own_dns_object_only(cluster) {
        let bed = Bed::new(cluster).await;
        bed.answers("www.example.org", "A", &["192.0.2.1"]);
        bed.dns("a", one("www.example.org", "192.0.2.1"), json!({ "sreportal.io/component": "Shop" })).await;
        bed.dns("b", one("www.example.org", "192.0.2.1"), json!({ "sreportal.io/component": "Search" })).await;
        let shop = bed.has_components(&["Search", "Shop"]).await.into_iter().find(|c| c.spec.display_name == "Shop").unwrap();
        assert_eq!((shop.spec.group.as_str(), shop.spec.status), ("apps", ComponentState::Operational));
        assert_eq!(shop.labels().get("sreportal.io/managed-by").map(String::as_str), Some("dns-controller"));
        let patch = json!({ "spec": { "status": "degraded" } });
        let api = bed.api::<Component>();
        api.patch(&shop.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        eventually("the computed state follows", PATIENCE, || async {
            let status = api.get(&shop.name_any()).await.unwrap().status.unwrap_or_default();
            let today = status.daily_worst_status.last().map(|day| day.worst_status.clone());
            let both = (status.computed_status, today);
            if both == (Some("degraded".into()), Some("degraded".into())) { Ok(()) } else { Err(both) }
        }).await;
        bed.annotate("a", Some("Store")).await;
        let store = bed.has_components(&["Search", "Store"]).await.into_iter().find(|c| c.spec.display_name == "Store").unwrap();
        assert_eq!(store.spec.status, ComponentState::Degraded, "a declared state is not overwritten");
        bed.annotate("a", None).await;
        bed.has_components(&["Search"]).await;
    }

    async fn ten_thousand_names_in_one_object_are_all_looked_up(cluster) {
        let bed = Bed::new(cluster).await;
        let names = (0..10_000).map(|number| format!("n{number}.example.org"));
        let entry = |name: String| {
            bed.answers(&name, "A", &["192.0.2.1"]);
            json!({ "fqdn": name, "recordType": "A", "targets": ["192.0.2.1"] })
        };
        let mut entries: Vec<Value> = names.map(entry).collect();
        entries.push(json!({ "fqdn": "broken.example.org", "recordType": "A", "targets": ["192.0.2.1"] }));
        bed.dns("large", json!([{ "name": "all", "entries": entries }]), json!({})).await;
        let status = eventually("every name is looked up", PATIENCE * 5, || async {
            let status = bed.status("large").await;
            let counts = (status.total, status.sync, status.broken);
            if counts == (Some(10_001), Some(10_000), Some(1)) { Ok(status) } else { Err(counts) }
        }).await;
        let listed = i64::try_from(status.groups[0].fqdns.len()).unwrap();
        assert_eq!(status.omitted.unwrap() + listed, 10_001, "what does not fit is counted");
        assert!(status.groups[0].fqdns.iter().any(|fqdn| fqdn.fqdn == "broken.example.org"), "broken names are listed");
        eventually("every name is in the inventory", PATIENCE, || async {
            let seen = (bed.inventory.snapshot().len(), bed.in_inventory(SyncStatus::Sync));
            if seen == (10_001, 10_000) { Ok(()) } else { Err(seen) }
        }).await;
    }
}
