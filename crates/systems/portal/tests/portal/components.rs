//! Components that the annotations of Ingresses, Services and other discovered objects ask for, and states that users declare.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use signpost_apis::ingress::Ingress;
use signpost_apis::portal::{Component, ComponentState, DNS, Portal};
use signpost_dns::{Fqdn, RecordType};
use signpost_engine::ObjectId;
use signpost_engine::project::wanted_by;
use signpost_inventory::{Entry, Owner};
use signpost_sandbox::{Fault, FaultPlan};
use signpost_testkit::{eventually, on_both, sandbox_cluster};
use tokio::time::Instant;

use crate::bed::{Bed, PATIENCE, one};

const TITLE: &str = "sreportal.io/component";

impl Bed {
    /// An Ingress with one host, and these annotations.
    async fn annotated(&self, name: &str, annotations: Value) {
        let spec = json!({ "rules": [{ "host": format!("{name}.example.org") }] });
        self.put("Ingress", name, json!({ "metadata": { "annotations": annotations }, "spec": spec })).await;
    }

    pub async fn declare(&self, component: &Component, state: &str) {
        let patch = json!({ "spec": { "status": state } });
        let api = self.api::<Component>();
        api.patch(&component.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until the operator reports the state: it knows the component then, and what was declared.
    pub async fn reports(&self, title: &str, state: &str) {
        eventually(&format!("{title} is reported as {state}"), PATIENCE, || async {
            let computed = self.component(title).await.status.and_then(|status| status.computed_status);
            if computed.as_deref() == Some(state) { Ok(()) } else { Err(computed) }
        })
        .await;
    }

    pub async fn component(&self, title: &str) -> Component {
        let all = self.api::<Component>().list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|component| component.spec.display_name == title).unwrap()
    }

    async fn is_known(&self, name: &str) {
        let name = Fqdn::parse(name).unwrap();
        eventually("the name is in the inventory", PATIENCE, || async {
            if self.inventory.snapshot().get(&name).next().is_some() { Ok(()) } else { Err(self.lines()) }
        })
        .await;
    }
}

on_both! {
    async fn a_discovered_object_has_the_component_that_its_annotations_ask_for(cluster) {
        let bed = Bed::new(cluster).await;
        bed.annotated("app", json!({ TITLE: "Shop", "sreportal.io/groups": "Web", "sreportal.io/component-link": "https://shop.example.org",
            "sreportal.io/component-description": "sells", "sreportal.io/component-status": "degraded" })).await;
        let shop = bed.has_components(&["Shop"]).await.remove(0);
        assert_eq!((shop.spec.group.as_str(), shop.spec.portal_ref.as_str(), shop.spec.status), ("Web", "main", ComponentState::Degraded));
        assert_eq!((shop.spec.link.as_deref(), shop.spec.description.as_deref()), (Some("https://shop.example.org"), Some("sells")));
        let labels = [("sreportal.io/managed-by", "source-controller"), ("sreportal.io/portal", "main")];
        assert!(labels.iter().all(|(key, value)| shop.labels().get(*key).map(String::as_str) == Some(value)), "{:?}", shop.labels());
        let ingress = bed.api::<Ingress>().get("app").await.unwrap();
        let owners: Vec<&str> = shop.owner_references().iter().map(|owner| owner.uid.as_str()).collect();
        assert_eq!(owners, [ingress.metadata.uid.as_deref().unwrap()]);

        // Metadata follows; the state is the user's, also over a change of the name.
        bed.declare(&shop, "major_outage").await;
        bed.reports("Shop", "major_outage").await;
        bed.annotated("app", json!({ TITLE: "Shop", "sreportal.io/component-group": "Customers", "sreportal.io/component-status": "degraded" })).await;
        eventually("the group follows, the state is kept", PATIENCE, || async {
            let spec = bed.component("Shop").await.spec;
            let seen = (spec.group, spec.link, spec.status);
            if seen == ("Customers".into(), None, ComponentState::MajorOutage) { Ok(()) } else { Err(seen) }
        }).await;
        bed.annotated("app", json!({ TITLE: "Store" })).await;
        let store = bed.has_components(&["Store"]).await.remove(0);
        assert_eq!((store.spec.group.as_str(), store.spec.status), ("Services", ComponentState::MajorOutage));

        // Another object cannot take it over. Its names are shown all the same, and an event has the reason.
        bed.annotated("other", json!({ TITLE: "Store" })).await;
        bed.is_known("other.example.org").await;
        eventually("the reason is in an event", PATIENCE, || async {
            let events = bed.api::<Event>().list(&ListParams::default()).await.unwrap().items;
            let of = |event: &&Event| event.involved_object.name.as_deref() == Some("other");
            let reasons: Vec<Option<String>> = events.iter().filter(of).map(|event| event.reason.clone()).collect();
            if reasons.iter().flatten().any(|reason| reason == "ComponentFailed") { Ok(()) } else { Err(reasons) }
        }).await;
        assert_eq!(bed.component("Store").await.owner_references()[0].uid, owners[0]);
        bed.annotated("other", json!({})).await;

        // An ignored object has none, and neither has one without the annotation.
        bed.annotated("app", json!({ TITLE: "Store", "sreportal.io/ignore": "true" })).await;
        bed.has_components(&[]).await;
        bed.annotated("app", json!({ TITLE: "Store" })).await;
        bed.has_components(&["Store"]).await;
        bed.annotated("app", json!({})).await;
        bed.has_components(&[]).await;
        bed.is_known("app.example.org").await;
    }

    async fn a_component_that_a_user_made_is_kept(cluster) {
        let bed = Bed::new(cluster).await;
        bed.dns("team", one("www.example.org", "192.0.2.1"), json!({ TITLE: "Shop" })).await;
        bed.has_components(&["Shop"]).await;
        let uid = bed.api::<DNS>().get("team").await.unwrap().metadata.uid;
        let own: Component = serde_json::from_value(json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "Component",
            "metadata": { "name": "db", "ownerReferences": [{ "apiVersion": "sreportal.io/v1alpha1", "kind": "DNS", "name": "team", "uid": uid }] },
            "spec": { "displayName": "Database", "group": "apps", "portalRef": "main", "status": "major_outage" },
        })).unwrap();
        bed.api::<Component>().create(&PostParams::default(), &own).await.unwrap();
        let patch = json!({ "metadata": { "annotations": { TITLE: "Store" } } });
        bed.api::<DNS>().patch("team", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        bed.has_components(&["Database", "Store"]).await;
        assert_eq!(bed.component("Store").await.spec.status, ComponentState::Operational);
    }

    async fn a_component_is_created_when_a_foreign_one_in_its_place_is_deleted(cluster) {
        let bed = Bed::without_operator(cluster).await;
        bed.start_at(bed.cluster.client(), bed.options(), bed.resolver.clone(), |pace| pace.refresh = Duration::from_hours(1));
        bed.answers("www.example.org", "A", &["192.0.2.1"]);
        bed.dns("team", one("www.example.org", "192.0.2.1"), json!({ TITLE: "Shop" })).await;
        let name = bed.has_components(&["Shop"]).await.remove(0).name_any();
        let annotate = async |title: Value| {
            let patch = json!({ "metadata": { "annotations": { TITLE: title } } });
            bed.api::<DNS>().patch("team", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        };
        annotate(Value::Null).await;
        bed.has_components(&[]).await;
        let foreign: Component = serde_json::from_value(json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "Component", "metadata": { "name": name },
            "spec": { "displayName": "Mine", "group": "apps", "portalRef": "elsewhere", "status": "operational" },
        })).unwrap();
        bed.api::<Component>().create(&PostParams::default(), &foreign).await.unwrap();
        bed.reports("Mine", "operational").await;
        annotate(json!("Shop")).await;
        bed.condition("team", "Ready", "ComponentFailed").await;
        bed.has_components(&["Mine"]).await;
        // The name is in sync: nothing else leads to a pass within the time that a test waits.
        bed.api::<Component>().delete(&name, &DeleteParams::default()).await.unwrap();
        bed.has_components(&["Shop"]).await;
        bed.condition("team", "Ready", "ReconcileSucceeded").await;
    }

    async fn a_component_is_left_as_it_is_while_the_portal_shows_none(cluster) {
        let bed = Bed::new(cluster).await;
        bed.annotated("app", json!({ TITLE: "Shop" })).await;
        bed.has_components(&["Shop"]).await;
        let features = |on: bool| json!({ "spec": { "features": { "statusPage": on } } });
        bed.api::<Portal>().patch("main", &PatchParams::default(), &Patch::Merge(features(false))).await.unwrap();
        bed.knows_portals_after("later").await;
        bed.dns("team", one("www.example.org", "192.0.2.1"), json!({ TITLE: "Search" })).await;
        bed.annotated("app", json!({ TITLE: "Store" })).await;
        bed.annotated("later", json!({})).await;
        bed.is_known("later.example.org").await;
        bed.condition("team", "Ready", "ReconcileSucceeded").await;
        bed.has_components(&["Shop"]).await;
        bed.api::<Portal>().patch("main", &PatchParams::default(), &Patch::Merge(features(true))).await.unwrap();
        bed.has_components(&["Search", "Store"]).await;
    }
}

/// On a clock that only moves when everything waits: a busy machine does not count.
#[tokio::test(start_paused = true)]
async fn a_component_that_cannot_be_written_does_not_slow_lookups() {
    let bed = Bed::new(sandbox_cluster().await).await;
    bed.dns("first", one("www.example.org", "192.0.2.1"), json!({ TITLE: "Shop" })).await;
    bed.has_components(&["Shop"]).await;
    bed.dns("second", one("app.example.org", "192.0.2.1"), json!({ TITLE: "Shop" })).await;
    bed.condition("second", "Ready", "ComponentFailed").await;
    bed.shows("second", &[("app.example.org", "notFound/NoSuchName")]).await;
    // The component is retried after half a minute at the earliest.
    let fixed = Instant::now();
    bed.answers("app.example.org", "A", &["192.0.2.1"]);
    bed.shows("second", &[("app.example.org", "sync/Match")]).await;
    assert!(fixed.elapsed() < Duration::from_secs(25), "{:?}", fixed.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_exists_where_a_system_publishes_every_name_of_its_object() {
    let bed = Bed::new(sandbox_cluster().await).await;
    bed.annotated("app", json!({ TITLE: "Shop" })).await;
    bed.has_components(&["Shop"]).await;
    let id = ObjectId::new::<Ingress>(Some(&bed.namespace), "app");
    let entry = Entry::new(
        Fqdn::parse("app.example.org").unwrap(),
        Some(RecordType::A),
        wanted_by(&id, &std::sync::Arc::default(), "pihole home"),
    );
    bed.inventory.replace(&Owner::new("pihole", "home"), vec![entry], jiff::Timestamp::now());
    bed.discovers(&[]).await;
    bed.annotated("app", json!({ TITLE: "Shop", "sreportal.io/component-group": "Customers" })).await;
    eventually("the component is still maintained", PATIENCE, || async {
        let group = bed.component("Shop").await.spec.group;
        if group == "Customers" { Ok(()) } else { Err(group) }
    })
    .await;
    bed.annotated("app", json!({})).await;
    bed.has_components(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_annotation_that_was_removed_while_nobody_watched_counts() {
    let first = Bed::without_operator(sandbox_cluster().await).await;
    let running = first.start();
    first.annotated("app", json!({ TITLE: "Shop" })).await;
    first.annotated("ignored", json!({ TITLE: "Blog" })).await;
    first.has_components(&["Blog", "Shop"]).await;
    first.stop();
    running.await.unwrap();
    first.annotated("app", json!({})).await;
    first.annotated("ignored", json!({ TITLE: "Blog", "sreportal.io/ignore": "true" })).await;
    let next = first.replica();
    next.start();
    next.has_components(&[]).await;
    next.is_known("app.example.org").await;
}

/// The watch of components, which can be ended.
struct WatchedComponents {
    blind: Arc<AtomicBool>,
    unread: Arc<AtomicBool>,
}

impl WatchedComponents {
    /// A bed with an operator.
    async fn start() -> (Bed, Self) {
        let bed = Bed::without_operator(sandbox_cluster().await).await;
        let watch = Self { blind: Arc::default(), unread: Arc::default() };
        let (is_blind, is_unread) = (watch.blind.clone(), watch.unread.clone());
        let plan = FaultPlan::new(move |info, _| match (info.resource.as_str(), info.verb.as_str()) {
            ("components", "list" | "watch") if is_blind.load(Ordering::SeqCst) => {
                is_unread.store(true, Ordering::SeqCst);
                Fault::Drop
            }
            ("components", "watch") => Fault::BreakWatch { after: Duration::from_millis(300) },
            _ => Fault::None,
        });
        bed.start_with(bed.cluster.sandbox().unwrap().client_with(plan), bed.options(), bed.resolver.clone());
        (bed, watch)
    }

    /// From now on, no event of a component arrives: the watch has ended once the operator asks for components again.
    async fn end(&self) {
        self.blind.store(true, Ordering::SeqCst);
        eventually("the watch of components has ended", PATIENCE, || async {
            if self.unread.load(Ordering::SeqCst) { Ok(()) } else { Err("still open") }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_state_that_the_watch_has_not_delivered_is_kept() {
    let (bed, watch) = WatchedComponents::start().await;
    bed.dns("team", one("www.example.org", "192.0.2.1"), json!({ TITLE: "Shop" })).await;
    let shop = bed.has_components(&["Shop"]).await.remove(0);
    bed.reports("Shop", "operational").await;

    watch.end().await;
    bed.declare(&shop, "degraded").await;
    let annotate = async |annotations: Value| {
        let patch = json!({ "metadata": { "annotations": annotations } });
        bed.api::<DNS>().patch("team", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    annotate(json!({ "sreportal.io/component-description": "sells" })).await;
    eventually("the description follows", PATIENCE, || async {
        let spec = bed.component("Shop").await.spec;
        if spec.description.as_deref() == Some("sells") { Ok(()) } else { Err(spec) }
    })
    .await;
    assert_eq!(bed.component("Shop").await.spec.status, ComponentState::Degraded, "the user's state is kept");
    bed.declare(&shop, "partial_outage").await;
    annotate(json!({ TITLE: "Store" })).await;
    let store = bed.has_components(&["Store"]).await.remove(0);
    assert_eq!(store.spec.status, ComponentState::PartialOutage, "a new name has the state of the component before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_state_of_a_component_that_the_watch_has_not_delivered_is_kept() {
    let (bed, watch) = WatchedComponents::start().await;
    bed.dns("team", one("www.example.org", "192.0.2.1"), json!({})).await;
    bed.condition("team", "Ready", "ReconcileSucceeded").await;

    // The operator creates a component, and never sees it.
    watch.end().await;
    let name_it = async |title: &str| {
        let patch = json!({ "metadata": { "annotations": { TITLE: title } } });
        bed.api::<DNS>().patch("team", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    name_it("Shop").await;
    let shop = bed.has_components(&["Shop"]).await.remove(0);
    bed.declare(&shop, "degraded").await;
    name_it("Store").await;
    bed.has_components(&["Shop", "Store"]).await;
    assert_eq!(bed.component("Store").await.spec.status, ComponentState::Degraded);
    watch.blind.store(false, Ordering::SeqCst);
    bed.has_components(&["Store"]).await;
    assert_eq!(bed.component("Store").await.spec.status, ComponentState::Degraded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_that_hangs_in_its_deletion_passes_no_state_on() {
    let bed = Bed::new(sandbox_cluster().await).await;
    let name_it = async |title: &str| {
        let patch = json!({ "metadata": { "annotations": { TITLE: title } } });
        bed.api::<DNS>().patch("team", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    bed.dns("team", one("www.example.org", "192.0.2.1"), json!({ TITLE: "Alpha" })).await;
    let alpha = bed.has_components(&["Alpha"]).await.remove(0);
    let held = json!({ "metadata": { "finalizers": ["example.org/held"] } });
    bed.api::<Component>().patch(&alpha.name_any(), &PatchParams::default(), &Patch::Merge(held)).await.unwrap();
    bed.reports("Alpha", "operational").await;
    name_it("Beta").await;
    bed.has_components(&["Alpha", "Beta"]).await;
    eventually("the first one is being deleted", PATIENCE, || async {
        let since = bed.component("Alpha").await.metadata.deletion_timestamp;
        if since.is_some() { Ok(()) } else { Err("it is not") }
    })
    .await;
    let beta = bed.component("Beta").await;
    bed.declare(&beta, "major_outage").await;
    bed.reports("Beta", "major_outage").await;
    name_it("Gamma").await;
    bed.has_components(&["Alpha", "Gamma"]).await;
    assert_eq!(bed.component("Gamma").await.spec.status, ComponentState::MajorOutage);
}
