//! Requirements that are about more than one object: log lines, backoff, and what pangolin-operator makes of our objects.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::networking::v1::Ingress;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use signpost_sandbox::edge::{Answer, Visit};
use signpost_system_pangolin::Policy;
use signpost_testkit::pangolin::Pangolin;
use signpost_testkit::{eventually, on_both, sandbox_cluster};
use tracing::Level;

use crate::KIND;
use crate::common::bed::{Bed, PATIENCE, Running, path, rules, target, targets};
use crate::common::crds::Kind;
use crate::common::logs::{self, Line};
use crate::common::operator::{self, Build};

/// Makes an object as the other controller does: its name, its labels, its owner, and no host in an annotation. Then starts the operator.
async fn adopted(bed: &Bed, ingress: &Ingress, host: &str, subdomain: &str) {
    let (uid, namespace) = (ingress.uid().unwrap(), &bed.namespace);
    let hash = signpost_exposure::hex(&format!("{namespace}/my-app/{host}"), 4);
    let name = format!("pic-{namespace}-my-app-{hash}");
    let labels = json!({"pic.ingress.k8s.io/uid": uid, "pic.ingress.k8s.io/name": "my-app", "pic.ingress.k8s.io/namespace": namespace});
    let owner = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "my-app", "uid": uid, "controller": true, "blockOwnerDeletion": true});
    let mut spec = targets(&json!({"ip": "old", "port": 1, "method": "http"}));
    spec["enabled"] = json!(true);
    spec["protocol"] = json!("http");
    spec["tunnelRef"] = json!({"name": "default"});
    spec["httpConfig"] = json!({"domainName": "example.com", "subdomain": subdomain});
    let made = json!({"apiVersion": "tunnel.pangolin.io/v1alpha1", "kind": "PangolinResource",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]}, "spec": spec});
    let resources = bed.dynamic("PangolinResource");
    let made = resources.create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await.unwrap();
    let _running = bed.start();
    let kept = bed.specified("it has our target", |spec| target(spec)["port"] == 80).await;
    assert_eq!((kept.name_any(), kept.uid()), (name, made.uid()));
    let events = bed.events().await;
    assert!(events.iter().all(|event| !["Created", "Deleted"].contains(&event.1.as_str())), "{events:?}");
}

on_both! {
async fn r051_log_lines_have_the_fields_and_levels_of_the_seed(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    bed.expose("app", &["app.example.com"]).await;
    let name = bed.resource().await.name_any();
    let line = async |text: &str, holds: fn(&Line) -> bool| {
        eventually(&format!("a line {text:?}"), PATIENCE, || async {
            let lines = logs::about(&bed.namespace);
            lines.iter().find(|line| line.field("message") == text && holds(line)).cloned().ok_or(lines)
        })
        .await
    };
    let check = |line: &Line, level: Level| {
        assert_eq!(line.level, level, "{line:?}");
        assert_eq!((line.field("namespace"), line.field("ingress")), (bed.namespace.as_str(), "app"), "{line:?}");
    };
    let exposed = |line: &Line, tunnel: &str| {
        let fields = ["host", "tunnel", "pangolinResource"].map(|field| line.field(field));
        assert_eq!(fields, ["app.example.com", tunnel, &name], "{line:?}");
    };
    let created = line("exposure created", |_| true).await;
    check(&created, Level::INFO);
    exposed(&created, "default");
    let compared = line("PangolinResource compared", |line| line.field("done") == "Ok(Made)").await;
    check(&compared, Level::DEBUG);
    exposed(&compared, "default");
    assert!(compared.field("spec").contains("\"subdomain\":\"app\""), "{compared:?}");
    let backend = json!([{"host": "app.example.com", "http": {"paths": [path("/", "Prefix", "api", 9000)]}}]);
    bed.patch("app", json!({"spec": {"rules": backend}})).await;
    let updated = line("exposure updated", |_| true).await;
    check(&updated, Level::INFO);
    exposed(&updated, "default");
    bed.annotate("app", "tunnel-name", Some("absent")).await;
    let failed = line("tunnel cannot be resolved", |_| true).await;
    check(&failed, Level::ERROR);
    assert_eq!(failed.field("tunnel"), "absent");
    assert!(failed.field("error").contains("\"absent\" does not exist"), "{failed:?}");
    bed.annotate("app", "tunnel-name", None).await;
    bed.patch("app", json!({"spec": {"ingressClassName": "nginx"}})).await;
    let deleted = line("exposure deleted", |_| true).await;
    check(&deleted, Level::INFO);
    assert_eq!((deleted.field("host"), deleted.field("pangolinResource")), ("app.example.com", name.as_str()));
}

async fn an_object_of_pangolin_ingress_controller_is_adopted(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let ingress = bed.expose("my-app", &["app.example.com"]).await;
    adopted(&bed, &ingress, "app.example.com", "app").await;
}

/// Its name is made of the host in the rule, and its specification has the host that the annotations name.
async fn an_adopted_object_with_overrides_keeps_its_name(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let annotations = json!({"pangolin.ingress.k8s.io/domain-name": "example.com", "pangolin.ingress.k8s.io/subdomain": "shop"});
    let spec = json!({"ingressClassName": "pangolin", "rules": rules(&["inner.example.com"])});
    let ingress = bed.create("my-app", &annotations, spec).await;
    adopted(&bed, &ingress, "inner.example.com", "shop").await;
}

async fn r065_the_pangolin_operator_of_this_shape_exposes_what_is_written(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    operator::operated(&bed, Build::of(KIND)).await;
}

async fn a_login_that_the_shape_cannot_switch_off_is_reported(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let server = Pangolin::start().await;
    let _operator = operator::run(&bed, Build::of(KIND), &server).await;
    let _running = bed.start();
    let spec = |host: &str| json!({"ingressClassName": "pangolin", "rules": rules(&[host])});
    bed.create("wanted", &json!({"pangolin.ingress.k8s.io/sso": "true"}), spec("wanted.ns.test")).await;
    bed.create("explicit", &json!({"pangolin.ingress.k8s.io/sso": "false"}), spec("explicit.ns.test")).await;
    bed.expose("app", &["app.ns.test"]).await;
    let reported = eventually("all are ready", PATIENCE, || async {
        let events = bed.events().await;
        let ready = events.iter().filter(|event| event.1 == "Ready").count();
        let unsupported = events.iter().filter(|event| event.1 == "Unsupported").map(|event| event.2.clone());
        if ready == 3 { Ok(unsupported.collect::<Vec<String>>()) } else { Err(events) }
    }).await;
    match KIND {
        Kind::Multi => assert_eq!(reported, Vec::<String>::new()),
        Kind::Single => {
            assert_eq!(server.visit("app.ns.test", "/"), Visit::Login);
            let mut hosts: Vec<&str> = reported.iter().filter_map(|note| note.split(' ').next()).collect();
            hosts.sort_unstable();
            assert_eq!(hosts, ["app.ns.test", "explicit.ns.test"], "the third one asks for a login");
            assert!(reported.iter().all(|note| note.contains("asks visitors to log in")), "{reported:?}");
        }
    }
}

async fn a_pangolin_operator_of_the_other_shape_is_reported(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let server = Pangolin::start().await;
    let _operator = operator::run(&bed, Build::other_than(KIND), &server).await;
    let _running = bed.start();
    bed.expose("app", &["app.ns.test"]).await;
    let note = bed.event("Warning", "ResourceWithoutTargets").await;
    assert!(note.contains("app.ns.test"), "{note}");
    assert_eq!(server.get("app.ns.test", "/"), Answer::NoRouter);
}

async fn an_unknown_organisation_leaves_resources_their_domain(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let domains = json!({"domains": [{"domainId": "d1", "baseDomain": "apps.example.com", "verified": true, "type": "ns"}]});
    bed.put("PangolinOrganization", "org", &json!({}), Some(&domains)).await;
    let running = bed.start();
    let annotations = json!({"pangolin.ingress.k8s.io/subdomain": "shop"});
    bed.create("named", &annotations, json!({"ingressClassName": "pangolin", "rules": rules(&["x.apps.example.com"])})).await;
    bed.expose("plain", &["app.apps.example.com"]).await;
    bed.exposes(&["app.apps.example.com", "shop.apps.example.com"]).await;
    let known = async || {
        let mut known: Vec<(Option<String>, Value)> =
            bed.resources().await.into_iter().map(|object| (object.metadata.uid, object.data["spec"]["httpConfig"].clone())).collect();
        known.sort_by(|one, two| one.0.cmp(&two.0));
        known
    };
    let before = known().await;
    assert!(before.iter().all(|(_, http)| http["domainId"] == "d1"), "{before:?}");
    // The tunnel names an organisation that does not exist yet; then the operator starts, and no organisation exists.
    bed.put("PangolinTunnel", "default", &json!({"organizationRef": {"name": "later"}}), None).await;
    let change = async |port: u16| {
        let backend = json!([{"host": "app.apps.example.com", "http": {"paths": [path("/", "Prefix", "app", port)]}}]);
        bed.patch("plain", json!({"spec": {"rules": backend}})).await;
        eventually("the change is made", PATIENCE, || async {
            let all = bed.resources().await;
            if all.iter().any(|object| target(&object.data["spec"])["port"] == port) { Ok(()) } else { Err(bed.events().await) }
        }).await;
    };
    change(8080).await;
    assert_eq!(known().await, before);
    running.stop().await;
    bed.dynamic("PangolinOrganization").delete("org", &DeleteParams::default()).await.unwrap();
    let _running = bed.start();
    change(80).await;
    assert_eq!(known().await, before);
    // What was never exposed is placed by the public suffix list.
    bed.expose("new", &["new.apps.example.com"]).await;
    bed.exposes(&["app.apps.example.com", "new.apps.example.com", "shop.apps.example.com"]).await;
}

async fn a_resource_that_cannot_be_deleted_is_reported(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    bed.expose("app", &["app.example.com"]).await;
    let name = bed.resource().await.name_any();
    let finalizers = |names: Value| json!({"metadata": {"finalizers": names}});
    let resources = bed.dynamic("PangolinResource");
    resources.patch(&name, &PatchParams::default(), &Patch::Merge(&finalizers(json!(["resource.pangolin.io/finalizer"])))).await.unwrap();
    resources.delete(&name, &DeleteParams::default()).await.unwrap();
    let note = bed.event("Warning", "ResourceFailed").await;
    assert!(note.contains("is being deleted") && note.contains("app.example.com"), "{note}");
    let before = bed.resource().await.uid();
    resources.patch(&name, &PatchParams::default(), &Patch::Merge(&finalizers(json!(null)))).await.unwrap();
    eventually("it is made again", PATIENCE, || async {
        let all = bed.resources().await;
        if all.len() == 1 && all[0].uid() != before { Ok(()) } else { Err(all.len()) }
    }).await;
}

async fn what_pangolin_operator_does_not_change_is_reported(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    bed.expose("app", &["app.example.com"]).await;
    let name = bed.resource().await.name_any();
    bed.report("PangolinResource", &name, &json!({"status": "Ready", "resourceId": "7", "targetIds": ["1"]})).await;
    bed.event("Normal", "Created").await;
    let backend = json!([{"host": "app.example.com", "http": {"paths": [path("/", "Prefix", "api", 9000)]}}]);
    eventually("the status is seen", PATIENCE, || async {
        bed.patch("app", json!({"spec": {"rules": rules(&["app.example.com"])}})).await;
        bed.patch("app", json!({"spec": {"rules": backend}})).await;
        let events = bed.events().await;
        let reported = events.iter().find(|event| event.1 == "StillExposed").cloned();
        reported.filter(|reported| reported.2.contains("resource 7") && reported.2.contains("app.example.com")).ok_or(events)
    }).await;
}

async fn a_scheme_or_default_backend_that_cannot_be_used_is_reported(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    let annotations = json!({"pangolin.ingress.k8s.io/backend-scheme": "h2c", "pangolin.ingress.k8s.io/sso": "true"});
    let other = json!({"resource": {"apiGroup": "example.com", "kind": "Bucket", "name": "files"}});
    bed.create("app", &annotations, json!({"ingressClassName": "pangolin", "rules": rules(&["app.example.com"]), "defaultBackend": other})).await;
    bed.specified("http instead", |spec| target(spec)["method"] == "http").await;
    let note = bed.event("Warning", "Unsupported").await;
    assert!(note.contains("backend-scheme h2c"), "{note}");
    let note = bed.event("Warning", "BackendNotSupported").await;
    assert!(note.contains("Bucket files"), "{note}");
}

async fn annotations_that_a_resource_cannot_express_are_reported(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    let annotations = json!({"pangolin.ingress.k8s.io/block-access": "true", "pangolin.ingress.k8s.io/ssl": "false",
        "pangolin.ingress.k8s.io/sso": "true"});
    bed.create("app", &annotations, json!({"ingressClassName": "pangolin", "rules": rules(&["app.example.com"])})).await;
    bed.exposes(&["app.example.com"]).await;
    let note = bed.event("Warning", "Unsupported").await;
    match KIND {
        Kind::Single => assert!(note.contains("block-access, ssl: "), "{note}"),
        Kind::Multi => {
            assert!(note.starts_with("ssl: "), "{note}");
            assert_eq!(bed.resource().await.data["spec"]["httpConfig"]["blockAccess"], true);
        }
    }
}
}

/// The seconds at which passes ended.
async fn passes(running: &Running, seconds: u64) -> Vec<u64> {
    let mut ended = Vec::new();
    let mut before = running.metric("pic_reconcile_total");
    for second in 1..=seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = running.metric("pic_reconcile_total");
        if now > before {
            ended.push(second);
        }
        before = now;
    }
    ended
}

fn gaps(ended: &[u64]) -> Vec<u64> {
    ended.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// An event, an error, nothing created, and pauses that grow up to five minutes.
#[tokio::test(start_paused = true)]
async fn r027_a_missing_tunnel_is_an_error_that_is_tried_again_with_backoff() {
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    let running = bed.start_with(Policy { resync: None, ..bed.policy() });
    let annotations = json!({"pangolin.ingress.k8s.io/tunnel-name": "absent"});
    let spec = json!({"ingressClassName": "pangolin", "rules": rules(&["app.example.com"])});
    bed.create("app", &annotations, spec).await;
    let note = bed.event("Warning", "TunnelNotFound").await;
    assert!(note.contains("absent"), "{note}");
    let errors: Vec<Line> = logs::of_this_thread().into_iter().filter(|line| line.level == Level::ERROR).collect();
    assert!(errors.iter().any(|line| line.field("tunnel") == "absent" && line.field("ingress") == "app"), "{errors:?}");
    assert!(bed.hosts().await.is_empty());
    let gaps = gaps(&passes(&running, 3600).await);
    assert!(gaps.len() >= 10, "it is tried again: {gaps:?}");
    assert!(gaps[0] <= 121, "soon at first: {gaps:?}");
    assert!(gaps[4..].iter().all(|gap| (149..=301).contains(gap)), "then up to every five minutes: {gaps:?}");
    assert!(bed.hosts().await.is_empty());
}

/// A tunnel's heartbeat every second causes no pass at all.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_every_second_causes_no_pass() {
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    let running = bed.start_with(Policy { resync: None, ..bed.policy() });
    bed.expose("app", &["app.example.com"]).await;
    bed.exposes(&["app.example.com"]).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let before = running.metric("pic_reconcile_total");
    for beat in 0..60 {
        let ready = json!({"status": "Ready", "conditions": [{"type": "Ready", "status": "True", "message": beat.to_string()}]});
        bed.report("PangolinTunnel", "default", &ready).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!((running.metric("pic_reconcile_total") - before).abs() < 0.1);
}

#[tokio::test(start_paused = true)]
async fn r083_a_tunnel_that_is_not_ready_is_asked_for_every_30_seconds() {
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    bed.tunnel("default", Some("Waiting")).await;
    let running = bed.start_with(Policy { resync: None, tunnel_wait: Policy::default().tunnel_wait, ..bed.policy() });
    bed.expose("app", &["app.example.com"]).await;
    bed.event("Normal", "TunnelNotReady").await;
    let gaps = gaps(&passes(&running, 600).await);
    assert!(gaps.len() >= 18 && gaps.iter().all(|gap| (29..=31).contains(gap)), "{gaps:?}");
    assert!(bed.hosts().await.is_empty());
}

/// Somebody deletes a resource while the answer to our own write of it is still under way.
#[tokio::test(start_paused = true)]
async fn a_resource_that_is_deleted_during_our_write_is_created_again() {
    use signpost_sandbox::{Fault, FaultPlan, RequestInfo};
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    let _running = bed.start();
    bed.expose("app", &["app.example.com"]).await;
    let name = bed.resource().await.name_any();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let written = |request: &RequestInfo| request.resource == "pangolinresources" && request.verb == "patch";
    let late = Fault::LateAnswer(Duration::from_secs(5));
    bed.cluster.sandbox().unwrap().faults().set(FaultPlan::first(1, written, late));
    let backend = json!([{"host": "app.example.com", "http": {"paths": [path("/", "Prefix", "api", 9000)]}}]);
    bed.patch("app", json!({"spec": {"rules": backend}})).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    bed.dynamic("PangolinResource").delete(&name, &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(bed.hosts().await, ["app.example.com"]);
}

/// The next writes of PangolinResources whose name has this part take six seconds each.
fn slow_writes(bed: &Bed, times: u64, part: &'static str) {
    use signpost_sandbox::{Fault, FaultPlan, RequestInfo};
    let written = move |request: &RequestInfo| {
        request.resource == "pangolinresources" && request.verb == "patch" && request.name.contains(part)
    };
    let slow = Fault::Delay(Duration::from_secs(6));
    bed.cluster.sandbox().unwrap().faults().set(FaultPlan::first(times, written, slow));
}

/// Names and UIDs of the PangolinResources for a host.
async fn children_for(bed: &Bed, host: &str) -> Vec<(String, Option<String>)> {
    let of_host = |object: &kube::api::DynamicObject| {
        object.annotations().get("pic.ingress.k8s.io/host").is_some_and(|known| known == host)
    };
    bed.resources()
        .await
        .iter()
        .filter(|object| of_host(object))
        .map(|object| (object.name_any(), object.uid()))
        .collect()
}

/// A host that its Ingress gives up and names again, while the pass in between is still writing, keeps its object.
#[tokio::test(start_paused = true)]
async fn a_slow_pass_keeps_the_object_of_a_host_that_is_wanted_again() {
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    let _running = bed.start();
    bed.expose("app", &["app.example.com"]).await;
    bed.exposes(&["app.example.com"]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = children_for(&bed, "app.example.com").await;
    let ready = json!({"status": "Ready", "resourceId": "7", "targetIds": ["1"]});
    bed.report("PangolinResource", &before[0].0, &ready).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    slow_writes(&bed, 1, "-app-");
    bed.patch("app", json!({"spec": {"rules": rules(&["other.example.com"])}})).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    bed.patch("app", json!({"spec": {"rules": rules(&["app.example.com"])}})).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(bed.hosts().await, ["app.example.com"]);
    assert_eq!((before.len(), children_for(&bed, "app.example.com").await), (1, before));
    let events = bed.events().await;
    let left = |event: &&(String, String, String)| event.1 == "StillExposed" && event.2.contains("app.example.com");
    assert_eq!(events.iter().filter(left).count(), 0, "it is in use: {events:?}");
}

/// C20: while the new object is being written, the old one is there.
#[tokio::test(start_paused = true)]
async fn c20_the_object_of_a_new_host_is_made_before_the_old_one_is_deleted() {
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    let _running = bed.start();
    bed.expose("app", &["old.example.com"]).await;
    bed.exposes(&["old.example.com"]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    slow_writes(&bed, 1, "-app-");
    bed.patch("app", json!({"spec": {"rules": rules(&["new.example.com"])}})).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(bed.hosts().await, ["old.example.com"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(bed.hosts().await, ["new.example.com"]);
}

/// An object that is ready without a target, or with another host where the build reports hosts as they are, answers nothing for its host.
#[tokio::test(start_paused = true)]
async fn the_inventory_does_not_show_a_host_without_an_answer_as_published() {
    use signpost_inventory::{Inventory, Stage};
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    let (inventory, policy) = (Arc::new(Inventory::new()), bed.policy());
    let kept = inventory.clone();
    let _running = Running::start(bed.cluster.client(), move |operator| {
        operator.keep_inventory(kept);
        signpost_system_pangolin::install_crd(operator, policy);
    });
    bed.expose("app", &["app.example.com"]).await;
    let name = bed.resource().await.name_any();
    let refused = |reason: &'static str| (Stage::Refused, Some(reason));
    let elsewhere = match KIND {
        Kind::Single => (Stage::Published, None),
        Kind::Multi => refused("ResourceWrongHost"),
    };
    for (status, expected) in [
        (json!({"status": "Ready", "resourceId": "7"}), refused("ResourceWithoutTargets")),
        (json!({"targetIds": ["1"], "fullDomain": "other.example.com"}), elsewhere),
        (json!({"fullDomain": "app.example.com"}), (Stage::Published, None)),
    ] {
        bed.report("PangolinResource", &name, &status).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let snapshot = inventory.snapshot();
        let shown: Vec<_> =
            snapshot.iter().map(|view| (view.stage(), view.refusal().map(|refusal| refusal.reason))).collect();
        assert_eq!(shown, [expected], "{status}");
    }
}

/// An older Ingress takes a host, and is deleted while the younger one is about to delete its object for the host.
#[tokio::test(start_paused = true)]
async fn a_slow_pass_keeps_the_object_of_a_host_that_comes_back_to_its_ingress() {
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    let _running = bed.start();
    let to = |port: u16, service: &str| json!({"spec": {"rules": [{"host": "app.example.com", "http": {"paths": [path("/", "Prefix", "app", 80)]}}, {"host": "own.example.com", "http": {"paths": [path("/", "Prefix", service, port)]}}]}});
    let [older, younger] = bed.two_ages(["a.example.com", "b.example.com"]).await;
    bed.patch(older, json!({"spec": {"rules": rules(&["old.example.com"])}})).await;
    bed.patch(younger, to(80, "app")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = children_for(&bed, "app.example.com").await;
    slow_writes(&bed, 2, if younger == "one" { "-one-" } else { "-two-" });
    bed.patch(younger, to(8080, "app")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    bed.patch(older, json!({"spec": {"rules": rules(&["old.example.com", "app.example.com"])}})).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(children_for(&bed, "app.example.com").await.len(), 2, "the older one has the host too");
    // The next pass of the younger one writes this, and would delete its object for the host then.
    bed.patch(younger, to(9000, "api")).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    bed.delete(older).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(bed.hosts().await, ["app.example.com", "own.example.com"]);
    assert_eq!((before.len(), children_for(&bed, "app.example.com").await), (1, before));
}

/// An older Ingress names a host while a younger one is about to make an object for it: pangolin-operator would keep both endpoints.
#[tokio::test(start_paused = true)]
async fn a_slow_pass_makes_no_object_for_a_host_that_an_older_ingress_has_by_now() {
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    let _running = bed.start();
    let [older, younger] = bed.two_ages(["a.example.com", "b.example.com"]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    slow_writes(&bed, 1, if younger == "one" { "-one-" } else { "-two-" });
    bed.patch(younger, json!({"spec": {"rules": rules(&["own.example.com", "app.example.com"])}})).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    bed.patch(older, json!({"spec": {"rules": rules(&["old.example.com", "app.example.com"])}})).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(bed.hosts().await, ["app.example.com", "old.example.com", "own.example.com"]);
    let events = bed.events().await;
    let made = events.iter().filter(|event| event.1 == "Created" && event.2.contains("for app.example.com"));
    assert_eq!(made.count(), 1, "{events:?}");
    assert!(events.iter().any(|event| event.1 == "HostConflict"), "{events:?}");
}

/// How many seconds it takes until four Ingresses are exposed, when each write takes five.
async fn seconds_for_four(concurrency: usize) -> u64 {
    use signpost_sandbox::{Fault, FaultPlan, RequestInfo};
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    let hosts = ["a.example.com", "b.example.com", "c.example.com", "d.example.com"];
    for host in hosts {
        bed.expose(&host[..1], &[host]).await;
    }
    let written = |request: &RequestInfo| request.resource == "pangolinresources" && request.verb == "patch";
    let late = Fault::Delay(Duration::from_secs(5));
    bed.cluster.sandbox().unwrap().faults().set(FaultPlan::first(4, written, late));
    let began = tokio::time::Instant::now();
    let _running = bed.start_with(Policy { concurrency, ..bed.policy() });
    bed.exposes(&hosts).await;
    began.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn r045_as_many_ingresses_as_asked_are_worked_on_at_once() {
    let (one, four) = (seconds_for_four(1).await, seconds_for_four(4).await);
    assert!(
        (20..25).contains(&one) && (5..10).contains(&four),
        "{one} seconds one by one, {four} seconds four at once"
    );
}

/// No second has more passes than asked for, and everything is exposed all the same.
#[tokio::test(start_paused = true)]
async fn r087_passes_are_limited_where_asked() {
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    let running = bed.start_with(Policy { rate: Some(10), resync: None, ..bed.policy() });
    tokio::time::sleep(Duration::from_secs(10)).await;
    for number in 0..50 {
        bed.expose(&format!("app-{number}"), &[&format!("app-{number}.example.com")]).await;
    }
    let mut before = running.metric("pic_reconcile_total");
    for second in 1..=8 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = running.metric("pic_reconcile_total");
        assert!(now - before <= 11.0, "{} passes in second {second}", now - before);
        before = now;
    }
    eventually("all are exposed", PATIENCE, || async {
        let count = bed.hosts().await.len();
        if count == 50 { Ok(()) } else { Err(count) }
    })
    .await;
}

/// Crd mode calls no Pangolin, so nothing limits a burst there unless a rate is set.
#[tokio::test(start_paused = true)]
async fn r087_a_burst_in_crd_mode_is_not_limited_unless_asked() {
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    let _running = bed.start();
    tokio::time::sleep(Duration::from_secs(10)).await;
    for number in 0..50 {
        bed.expose(&format!("app-{number}"), &[&format!("app-{number}.example.com")]).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bed.hosts().await.len(), 50);
}

/// A write that fails for an hour is tried again after growing pauses, of five minutes at most, and is done soon after the end.
#[tokio::test(start_paused = true)]
async fn r087_pauses_after_failed_writes_grow_up_to_five_minutes_at_most() {
    use signpost_sandbox::{Fault, FaultPlan, RequestInfo};
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    let running = bed.start_with(Policy { resync: None, ..bed.policy() });
    tokio::time::sleep(Duration::from_secs(10)).await;
    let faults = bed.cluster.sandbox().unwrap().faults();
    let written = |request: &RequestInfo| request.resource == "pangolinresources" && request.verb == "patch";
    faults.set(FaultPlan::first(u64::MAX, written, Fault::Drop));
    bed.expose("app", &["app.example.com"]).await;
    let ended = passes(&running, 3600).await;
    let gaps = gaps(&ended);
    assert!(ended.first().is_some_and(|first| *first <= 2), "{ended:?}");
    assert!(gaps.first().is_some_and(|gap| *gap <= 2), "soon at first: {gaps:?}");
    assert!(gaps.iter().any(|gap| *gap >= 15), "longer later: {gaps:?}");
    assert!(gaps.iter().all(|gap| *gap <= 300), "{gaps:?}");
    assert!(bed.hosts().await.is_empty());
    faults.clear();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(bed.hosts().await, ["app.example.com"]);
}

/// A class without an IngressClass object is served, which is logged once for the class and not for each Ingress.
#[tokio::test(start_paused = true)]
async fn c29_a_class_without_an_object_is_served_and_logged_once() {
    let bed = Bed::new(sandbox_cluster().await, KIND).await;
    let _running = bed.start();
    bed.expose("one", &["one.example.com"]).await;
    bed.expose("two", &["two.example.com"]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(bed.hosts().await, ["one.example.com", "two.example.com"]);
    let mut lines = logs::of_this_thread();
    lines.retain(|line| line.field("message").starts_with("no IngressClass of this name exists"));
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((line.level, line.field("class")), (Level::WARN, "pangolin"));
}
