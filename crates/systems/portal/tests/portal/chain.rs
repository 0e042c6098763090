//! The chain of a DNS object, on the sandbox and on the real API server, with a resolver in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use signpost_apis::portal::{Component, ComponentState, DNS, Portal};
use signpost_dns::Fqdn;
use signpost_inventory::{Filter, SyncStatus, View};
use signpost_provider_resolver::LookupError;
use signpost_sandbox::{Fault, FaultPlan};
use signpost_testkit::{eventually, on_both, sandbox_cluster};

use crate::bed::{Bed, PATIENCE, one};

impl Bed {
    async fn annotate(&self, name: &str, value: Option<&str>) {
        let patch = json!({ "metadata": { "annotations": { "sreportal.io/component": value } } });
        self.api::<DNS>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
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

    async fn an_entry_with_a_good_name_and_a_bad_target_is_refused(cluster) {
        let bed = Bed::new(cluster).await;
        bed.answers("www.example.org", "AAAA", &["2001:db8::1"]);
        let entry = |rtype: &str| json!({ "fqdn": "www.example.org", "recordType": rtype, "targets": ["2001:db8::1"] });
        bed.dns("team", json!([{ "name": "web", "entries": [entry("A"), entry("AAAA"), entry("??")] }]), json!({})).await;
        eventually("the good entry is looked up, the others are refused", PATIENCE, || async {
            let line = |view: &Arc<View>| {
                let rtype = view.rtype().map(|rtype| rtype.as_str().to_owned()).unwrap_or_default();
                let refusal = view.refusal().map(|refusal| refusal.message.to_string()).unwrap_or_default();
                let (stage, status, reason) = (view.stage().as_str(), view.status().as_str(), view.reason().as_str());
                (rtype, format!("{stage} {status}/{reason} {refusal}"))
            };
            let seen: Vec<(String, String)> = bed.inventory.snapshot().iter().map(line).collect();
            let is = |rtype: &str, text: &str| seen.iter().any(|(of, line)| of == rtype && line.starts_with(text));
            let all = is("A", "refused error/InvalidEntry 2001:db8::1 is not an IPv4 address")
                && is("AAAA", "known sync/Match") && is("", "refused error/InvalidEntry ");
            if all && seen.len() == 3 { Ok(()) } else { Err(seen) }
        }).await;
        assert!(bed.inventory.snapshot().conflicts().next().is_none());
    }

    async fn one_entry_beyond_every_limit_does_not_block_the_others(cluster) {
        let bed = Bed::new(cluster).await;
        bed.answers("www.example.org", "A", &["192.0.2.1"]);
        bed.answers("many.example.org", "A", &["192.0.2.1"]);
        let (text, many) = ("d".repeat(1_500), (0..300).map(|number| format!("198.51.100.{number}")));
        let long = format!("{}.example.org", "a".repeat(600));
        let good = json!({ "fqdn": "www.example.org", "targets": ["192.0.2.1"], "description": text });
        let many: Vec<String> = many.take(256).chain(["192.0.2.1".to_owned()]).collect();
        bed.dns("team", json!([{ "name": "g".repeat(300), "description": text, "entries": [
            good, { "fqdn": "many.example.org", "targets": many, "match": "Any" }, { "fqdn": long },
            { "fqdn": "empty.example.org", "targets": [""] },
            { "fqdn": "type.example.org", "recordType": "A".repeat(20) } ] }]), json!({})).await;
        let shown = long[..512].to_owned();
        bed.shows("team", &[
            ("www.example.org", "sync/Match"), ("many.example.org", "sync/Match"), (&shown, "error/InvalidEntry"),
            ("empty.example.org", "error/InvalidEntry"), ("type.example.org", "error/InvalidEntry"),
        ]).await;
        let portal: Portal = serde_json::from_value(json!({ "apiVersion": "sreportal.io/v1alpha1", "kind": "Portal",
            "metadata": { "name": "long" }, "spec": { "title": "t".repeat(1_500) } })).unwrap();
        bed.api::<Portal>().create(&PostParams::default(), &portal).await.unwrap();
    }

    async fn an_object_that_is_nearly_too_large_for_the_api_server_is_reported(cluster) {
        let bed = Bed::new(cluster).await;
        let entry = |number: usize| {
            let name = format!("n{number}.example.org");
            bed.answers(&name, "A", &["192.0.2.1"]);
            json!({ "fqdn": name, "recordType": "A", "targets": ["192.0.2.1"], "description": "d".repeat(4_900) })
        };
        // 1.5 MB.
        let entries: Vec<Value> = (0..300).map(entry).collect();
        bed.dns("large", json!([{ "name": "all", "entries": entries }]), json!({})).await;
        let status = eventually("every name is counted", PATIENCE, || async {
            let status = bed.status("large").await;
            if (status.total, status.sync) == (Some(300), Some(300)) { Ok(status) } else { Err(status.conditions) }
        }).await;
        let listed: usize = status.groups.iter().map(|group| group.fqdns.len()).sum();
        assert_eq!(status.omitted.unwrap(), i64::try_from(300 - listed).unwrap());
        eventually("every name is in the inventory", PATIENCE, || async {
            let seen = bed.in_inventory(SyncStatus::Sync);
            if seen == 300 { Ok(()) } else { Err(seen) }
        }).await;
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

/// Writes of the operator are counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_objects_are_all_reported_and_nothing_is_written_at_rest() {
    const OBJECTS: usize = 1_000;
    let bed = Bed::without_operator(sandbox_cluster().await).await;
    let writes = Arc::new(AtomicU64::new(0));
    let counted = writes.clone();
    let plan = FaultPlan::new(move |info, _| {
        if !matches!(info.verb.as_str(), "get" | "list" | "watch") {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Fault::None
    });
    let client = bed.cluster.sandbox().unwrap().client_with(plan);
    bed.start_at(client, bed.options(), bed.resolver.clone(), |pace| pace.refresh = Duration::from_secs(5));
    let target = ["192.0.2.1"];
    for number in 0..OBJECTS {
        let (good, broken) = (format!("good{number}.example.org"), format!("broken{number}.example.org"));
        bed.answers(&good, "A", &target);
        let entry = |fqdn: String| json!({ "fqdn": fqdn, "recordType": "A", "targets": target });
        bed.dns(
            &format!("team-{number}"),
            json!([{ "name": "all", "entries": [entry(good), entry(broken)] }]),
            json!({}),
        )
        .await;
    }
    eventually("every object is reported", PATIENCE * 3, || async {
        let all = bed.api::<DNS>().list(&ListParams::default()).await.unwrap().items;
        let is_reported = |dns: &&DNS| {
            let status = dns.status.clone().unwrap_or_default();
            (status.total, status.sync, status.broken) == (Some(2), Some(1), Some(1))
        };
        let reported = all.iter().filter(is_reported).count();
        if reported == OBJECTS { Ok(()) } else { Err(reported) }
    })
    .await;
    eventually("every name is in the inventory", PATIENCE, || async {
        let seen = (bed.in_inventory(SyncStatus::Sync), bed.in_inventory(SyncStatus::NotFound));
        if seen == (OBJECTS, OBJECTS) { Ok(()) } else { Err(seen) }
    })
    .await;
    // Events of the first lookups, and statuses that were queued, are written first.
    let before = eventually("the operator is at rest", PATIENCE, || async {
        let (before, asked) = (writes.load(Ordering::SeqCst), bed.resolver.asked());
        looked_up(&bed, asked + 1_000).await;
        let after = writes.load(Ordering::SeqCst);
        if before == after { Ok(after) } else { Err((before, after)) }
    })
    .await;
    looked_up(&bed, bed.resolver.asked() + 4 * OBJECTS as u64).await;
    assert_eq!(writes.load(Ordering::SeqCst), before, "two refreshes write nothing");
}

/// Waits for so many lookups since the start.
async fn looked_up(bed: &Bed, expected: u64) {
    eventually("lookups", PATIENCE, || async {
        let asked = bed.resolver.asked();
        if asked >= expected { Ok(()) } else { Err(asked) }
    })
    .await;
}
