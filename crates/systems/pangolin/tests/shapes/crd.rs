//! Crd mode: what holds for both shapes of PangolinResource. Each binary runs it with its own shape (`crate::KIND`).

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use signpost_exposure::TunnelMapping;
use signpost_system_pangolin::{HOST_ANNOTATION, MultiHost, Policy, UID_LABEL};
use signpost_testkit::{eventually, on_both};

use crate::KIND;
use crate::common::bed::{Bed, PATIENCE, http_config, path, rules, target, targets};
use crate::common::crds::Kind;

on_both! {
async fn an_ingress_becomes_a_resource_with_the_whole_specification(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    let ingress = bed.expose("my-app", &["app.example.com"]).await;
    let resource = bed.resource().await;
    let namespace = &bed.namespace;
    assert!(resource.name_any().starts_with(&format!("pic-{namespace}-my-app-")), "{}", resource.name_any());
    let uid = ingress.uid().unwrap();
    let labels = resource.labels();
    assert_eq!(labels.get(UID_LABEL), Some(&uid));
    assert_eq!(labels.get("pic.ingress.k8s.io/name").map(String::as_str), Some("my-app"));
    assert_eq!(labels.get("pic.ingress.k8s.io/namespace"), Some(namespace));
    assert_eq!(resource.annotations().get(HOST_ANNOTATION).map(String::as_str), Some("app.example.com"));
    let owner = &resource.owner_references()[0];
    assert_eq!((owner.kind.as_str(), &owner.uid, owner.controller), ("Ingress", &uid, Some(true)));
    assert_eq!(owner.block_owner_deletion, None);
    assert_eq!(
        resource.data["spec"],
        match KIND {
            Kind::Single => json!({
                "name": format!("{namespace}/my-app/app.example.com"), "enabled": true, "protocol": "http",
                "tunnelRef": {"name": "default"},
                "httpConfig": {"domainName": "example.com", "subdomain": "app"},
                "target": {"ip": format!("app.{namespace}.svc.cluster.local"), "port": 80, "method": "http"},
            }),
            Kind::Multi => json!({
                "name": format!("{namespace}/my-app/app.example.com"), "enabled": true, "protocol": "http",
                "tunnelRef": {"name": "default", "namespace": namespace},
                "httpConfig": {"domainName": "example.com", "subdomain": "app", "sso": false, "blockAccess": false},
                "targets": [{"ip": format!("app.{namespace}.svc.cluster.local"), "port": 80, "method": "http", "priority": 100}],
            }),
        }
    );
    bed.event("Normal", "Created").await;
}

async fn an_alias_is_mapped_to_a_tunnel_or_is_its_name(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    for tunnel in ["edge-eu-tunnel", "edge-us"] {
        bed.tunnel(tunnel, Some("Ready")).await;
    }
    let mapping = signpost_exposure::TunnelMapping::parse("edge-eu=edge-eu-tunnel").unwrap();
    let _running = bed.start_with(Policy { mapping, ..bed.policy() });
    for (class, tunnel) in [("pangolin-edge-eu", "edge-eu-tunnel"), ("pangolin-edge-us", "edge-us")] {
        bed.create("app", &json!({}), json!({"ingressClassName": class, "rules": rules(&["app.example.com"])})).await;
        bed.specified("the tunnel of the alias", |spec| spec["tunnelRef"]["name"] == tunnel).await;
        bed.delete("app").await;
        bed.exposes(&[]).await;
    }
    bed.create("app", &json!({"kubernetes.io/ingress.class": "pangolin-"}), json!({"rules": rules(&["app.example.com"])})).await;
    bed.event("Warning", "InvalidClass").await;
    assert!(bed.hosts().await.is_empty());
}

async fn an_ingress_of_another_class_has_no_resource_and_loses_it_with_its_class(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    bed.create("theirs", &json!({}), json!({"ingressClassName": "nginx", "rules": rules(&["theirs.example.com"])})).await;
    bed.create("old", &json!({"kubernetes.io/ingress.class": "pangolin"}), json!({"rules": rules(&["old.example.com"])})).await;
    bed.expose("ours", &["ours.example.com"]).await;
    bed.exposes(&["old.example.com", "ours.example.com"]).await;
    bed.patch("ours", json!({"spec": {"ingressClassName": "nginx"}})).await;
    bed.exposes(&["old.example.com"]).await;
    bed.patch("ours", json!({"spec": {"ingressClassName": "pangolin"}})).await;
    bed.exposes(&["old.example.com", "ours.example.com"]).await;
}

async fn the_annotation_enabled_false_deletes_the_resource(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    bed.expose("app", &["app.example.com"]).await;
    bed.exposes(&["app.example.com"]).await;
    bed.annotate("app", "enabled", Some("false")).await;
    bed.exposes(&[]).await;
    bed.annotate("app", "enabled", None).await;
    bed.exposes(&["app.example.com"]).await;
}

async fn a_missing_tunnel_is_a_warning_and_creates_nothing_until_it_exists(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    bed.expose("app", &["app.example.com"]).await;
    bed.exposes(&["app.example.com"]).await;
    bed.annotate("app", "tunnel-name", Some("absent")).await;
    let note = bed.event("Warning", "TunnelNotFound").await;
    assert!(note.contains("absent"), "{note}");
    // Existing objects are unchanged, and nothing new is created.
    bed.patch("app", json!({"spec": {"rules": rules(&["app.example.com", "new.example.com"])}})).await;
    bed.expose("neighbour", &["neighbour.example.com"]).await;
    bed.exposes(&["app.example.com", "neighbour.example.com"]).await;
    bed.tunnel("absent", Some("Ready")).await;
    bed.exposes(&["app.example.com", "neighbour.example.com", "new.example.com"]).await;
}

async fn annotations_override_tunnel_domain_and_subdomain(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    bed.tunnel("edge", Some("Ready")).await;
    let _running = bed.start();
    let annotations = json!({
        "pangolin.ingress.k8s.io/tunnel-name": "edge", "pangolin.ingress.k8s.io/domain-name": "example.net",
        "pangolin.ingress.k8s.io/subdomain": "shop", "pangolin.ingress.k8s.io/backend-scheme": "https",
        "pangolin.ingress.k8s.io/subdomian": "typo",
    });
    bed.create("app", &annotations, json!({"ingressClassName": "pangolin", "rules": rules(&["app.example.com"])})).await;
    let resource = bed.resource().await;
    let spec = &resource.data["spec"];
    assert_eq!(spec["httpConfig"], http_config(json!({"domainName": "example.net", "subdomain": "shop"})));
    assert_eq!((&spec["tunnelRef"]["name"], &target(spec)["method"]), (&json!("edge"), &json!("https")));
    let note = bed.event("Warning", "UnknownAnnotation").await;
    assert!(note.contains("did you mean pangolin.ingress.k8s.io/subdomain"), "{note}");
    // Two hosts cannot share one override.
    bed.create("two", &json!({"pangolin.ingress.k8s.io/subdomain": "x"}), json!({"ingressClassName": "pangolin", "rules": rules(&["a.example.com", "b.example.com"])})).await;
    bed.event("Warning", "InvalidAnnotation").await;
    assert_eq!(bed.hosts().await, ["shop.example.net"]);
}

async fn every_host_has_a_resource_and_the_first_alone_when_asked(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let running = bed.start();
    bed.expose("app", &["b.example.com", "a.example.com", "c.example.co.uk"]).await;
    bed.exposes(&["a.example.com", "b.example.com", "c.example.co.uk"]).await;
    running.stop().await;
    let _running = bed.start_with(Policy { multi_host: MultiHost::First, ..bed.policy() });
    bed.exposes(&["b.example.com"]).await;
    bed.event("Warning", "MultipleHosts").await;
}

async fn a_path_that_cannot_be_routed_is_a_warning_and_the_root_is_exposed(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    let paths = json!([path("/", "Prefix", "app", 80), path("/api", "Prefix", "api", 9000)]);
    let spec = json!({"ingressClassName": "pangolin", "rules": [{"host": "app.example.com", "http": {"paths": paths}}]});
    bed.create("app", &json!({}), spec).await;
    let resource = bed.resource().await;
    assert_eq!(target(&resource.data["spec"])["port"], 80);
    let note = bed.event("Warning", "PathNotSupported").await;
    assert!(note.contains("/api"), "{note}");
    let spec = json!({"ingressClassName": "pangolin", "rules": [{"host": "only.example.com", "http": {"paths": [path("/api", "Prefix", "api", 9000)]}}]});
    bed.create("only", &json!({}), spec).await;
    bed.expose("after", &["after.example.com"]).await;
    bed.exposes(&["after.example.com", "app.example.com"]).await;
}

async fn a_bad_host_is_a_warning_and_its_neighbour_is_exposed(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    bed.expose("app", &["*.example.com", "com", "app.localhost", "example.org", "good.example.com"]).await;
    bed.exposes(&["good.example.com"]).await;
    bed.event("Warning", "InvalidHost").await;
    let note = bed.event("Warning", "ApexNotSupported").await;
    assert!(note.contains("example.org"), "{note}");
    let notes: Vec<String> = eventually("four refusals", PATIENCE, || async {
        let events = bed.events().await;
        // One shape of the CRD has another Warning about the host that is exposed.
        let refused = events.into_iter().filter(|event| event.0 == "Warning" && event.1 != "Unsupported");
        let mut notes: Vec<String> = refused.map(|event| event.2).collect();
        notes.sort();
        if notes.len() == 4 { Ok(notes) } else { Err(notes) }
    }).await;
    assert_eq!(notes, [
        "app.localhost is a name of the local machine; use a public name, or set PIC_ALLOW_LOCALHOST=true",
        "com has one label only; use a name with a domain",
        "example.org is a domain itself, which the PangolinResource of this cluster cannot express; use a name below it, or PIC_MODE=api",
        "wildcard hosts are not supported (*.example.com); name each host, or set PIC_WILDCARD_HOSTS=true if your Pangolin has a licence for them",
    ]);
}

async fn an_ingress_without_rules_is_a_warning(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    let service = json!({"service": {"name": "app", "port": {"number": 80}}});
    bed.create("bare", &json!({}), json!({"ingressClassName": "pangolin", "defaultBackend": service})).await;
    bed.event("Warning", "NoRules").await;
    // A host without paths is answered by the default backend.
    bed.create("host", &json!({}), json!({"ingressClassName": "pangolin", "defaultBackend": service, "rules": [{"host": "d.example.com"}]})).await;
    bed.exposes(&["d.example.com"]).await;
}

async fn a_missing_service_or_port_is_a_warning_and_keeps_the_last_good_resource(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    let to = |service: &str, port: Value| json!([{"host": "app.example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": service, "port": port}}}]}}]);
    bed.create("app", &json!({}), json!({"ingressClassName": "pangolin", "rules": to("late", json!({"number": 80}))})).await;
    let note = bed.event("Warning", "BackendNotFound").await;
    assert!(note.contains("late"), "{note}");
    assert!(bed.hosts().await.is_empty());
    bed.service("late", &json!([{"name": "web", "port": 80}])).await;
    bed.specified("the Service that appeared", |spec| target(spec)["port"] == 80).await;
    bed.patch("app", json!({"spec": {"rules": to("app", json!({"name": "absent"}))}})).await;
    bed.event("Warning", "BackendPortNotFound").await;
    let resource = bed.resource().await;
    assert!(target(&resource.data["spec"])["ip"].as_str().unwrap().starts_with("late."), "the last good one");
    bed.patch("app", json!({"spec": {"rules": to("app", json!({"name": "other"}))}})).await;
    bed.specified("the named port", |spec| target(spec)["port"] == 8080).await;
}

async fn a_tunnel_that_is_not_ready_is_reported_once_and_nothing_is_created(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    bed.tunnel("slow", Some("Waiting")).await;
    let running = bed.start();
    bed.expose("app", &["app.example.com"]).await;
    bed.exposes(&["app.example.com"]).await;
    bed.annotate("app", "tunnel-name", Some("slow")).await;
    bed.event("Normal", "TunnelNotReady").await;
    let passes = running.metric("pic_reconcile_total");
    eventually("it is tried again", PATIENCE, || async {
        if running.metric("pic_reconcile_total") > passes + 1.0 { Ok(()) } else { Err("not yet") }
    }).await;
    let events = bed.events().await;
    assert_eq!(events.iter().filter(|event| event.1 == "TunnelNotReady").count(), 1, "{events:?}");
    assert_eq!(bed.resource().await.data["spec"]["tunnelRef"]["name"], "default", "it is unchanged");
    bed.tunnel("slow", Some("Ready")).await;
    bed.specified("the tunnel that is ready", |spec| spec["tunnelRef"]["name"] == "slow").await;
}

async fn a_changed_host_creates_the_new_resource_and_deletes_the_old_one(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    bed.expose("app", &["old.example.com"]).await;
    let old = bed.resource().await.name_any();
    bed.patch("app", json!({"spec": {"rules": rules(&["new.example.com"])}})).await;
    bed.exposes(&["new.example.com"]).await;
    assert_ne!(bed.resource().await.name_any(), old);
    let backend = json!([{"host": "new.example.com", "http": {"paths": [path("/", "Prefix", "api", 9000)]}}]);
    bed.patch("app", json!({"spec": {"rules": backend}})).await;
    bed.specified("the new backend", |spec| target(spec)["port"] == 9000).await;
}

async fn a_deleted_ingress_takes_its_resource_along_even_while_the_operator_is_down(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let running = bed.start();
    bed.expose("first", &["first.example.com"]).await;
    bed.expose("second", &["second.example.com"]).await;
    bed.exposes(&["first.example.com", "second.example.com"]).await;
    bed.delete("first").await;
    bed.exposes(&["second.example.com"]).await;
    running.crash().await;
    bed.delete("second").await;
    let _running = bed.start();
    bed.exposes(&[]).await;
}

async fn an_extra_of_ours_is_deleted_and_a_foreign_one_is_not(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let ingress = bed.expose("app", &["app.example.com"]).await;
    let uid = ingress.uid().unwrap();
    let http = |sub: &str| json!({"httpConfig": {"subdomain": sub, "domainName": "example.com"}, "tunnelRef": {"name": "default"}});
    let make = async |name: &str, labelled: bool, owned: bool| {
        let owners = json!([{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "app", "uid": uid}]);
        let object = serde_json::from_value(json!({
            "apiVersion": "tunnel.pangolin.io/v1alpha1", "kind": "PangolinResource",
            "metadata": {"name": name, "labels": if labelled { json!({UID_LABEL: uid}) } else { json!({}) },
                "ownerReferences": if owned { owners } else { json!([]) }},
            "spec": http(name),
        })).unwrap();
        bed.dynamic("PangolinResource").create(&PostParams::default(), &object).await.unwrap();
    };
    make("extra", true, true).await;
    make("label-only", true, false).await;
    make("owner-only", false, true).await;
    make("foreign", false, false).await;
    let _running = bed.start();
    bed.exposes(&["app.example.com", "foreign.example.com", "label-only.example.com", "owner-only.example.com"]).await;
    eventually("its deletion is in the log", PATIENCE, || async {
        let lines = crate::common::logs::about(&bed.namespace);
        let deleted = |line: &crate::common::logs::Line| line.field("message") == "exposure deleted" && line.field("pangolinResource") == "extra";
        if lines.iter().any(deleted) { Ok(()) } else { Err(lines) }
    }).await;
}

async fn a_foreign_object_of_the_name_is_not_changed(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let running = bed.start();
    bed.expose("app", &["app.example.com"]).await;
    let name = bed.resource().await.name_any();
    running.stop().await;
    bed.delete("app").await;
    let _ = bed.dynamic("PangolinResource").delete(&name, &DeleteParams::default()).await;
    bed.exposes(&[]).await;
    bed.put("PangolinResource", &name, &json!({"httpConfig": {"subdomain": "theirs", "domainName": "example.com"}}), None).await;
    let _running = bed.start();
    bed.expose("app", &["app.example.com"]).await;
    bed.event("Warning", "ForeignResource").await;
    assert_eq!(bed.hosts().await, ["theirs.example.com"]);
}

async fn drift_is_corrected_and_rest_writes_nothing(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let running = bed.start();
    bed.expose("app", &["app.example.com"]).await;
    let name = bed.resource().await.name_any();
    let api = bed.dynamic("PangolinResource");
    let patch = json!({"spec": targets(&json!({"ip": "elsewhere", "port": 1}))});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    bed.specified("the port is corrected", |spec| target(spec)["port"] == 80).await;
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    bed.specified("it is created again", |spec| target(spec)["port"] == 80).await;
    // A field of others is theirs. A heartbeat of the tunnel and a restart write nothing.
    let passes = running.at_rest().await;
    let version = bed.resource().await.resource_version();
    for beat in 0..5 {
        bed.report("PangolinTunnel", "default", &json!({"status": "Ready", "conditions": [{"type": "Ready", "status": "True", "message": beat.to_string()}]})).await;
    }
    bed.expose("other", &["other.example.com"]).await;
    bed.exposes(&["app.example.com", "other.example.com"]).await;
    assert!(running.metric("pic_reconcile_total") <= passes + 4.0, "a heartbeat causes no pass");
    running.stop().await;
    let running = bed.start();
    eventually("every Ingress had a pass", PATIENCE, || async {
        let done = running.metric("pic_reconcile_total{result=\"success\"}");
        if done >= 2.0 { Ok(()) } else { Err(done) }
    }).await;
    assert!(running.metric("signpost_object_writes_total{outcome=\"written\"}") < 0.5, "nothing is written");
    assert_eq!(api.get(&name).await.unwrap().resource_version(), version);
}

async fn the_older_ingress_keeps_a_host_and_the_other_gets_it_after_its_end(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start();
    let older = bed.expose("older", &["app.example.com"]).await;
    bed.exposes(&["app.example.com"]).await;
    // Ages are in seconds.
    eventually("another second", PATIENCE, || async {
        let _ = bed.ingresses.delete("younger", &DeleteParams::default()).await;
        let made = loop {
            let made: Result<k8s_openapi::api::networking::v1::Ingress, _> = bed.ingresses.create(&PostParams::default(), &serde_json::from_value(json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "younger"},
                "spec": {"ingressClassName": "pangolin", "rules": rules(&["app.example.com", "own.example.com"])}})).unwrap()).await;
            if let Ok(made) = made { break made }
        };
        if made.creation_timestamp() > older.creation_timestamp() { Ok(()) } else { Err("the same second") }
    }).await;
    let note = bed.event("Warning", "HostConflict").await;
    assert!(note.contains("older"), "{note}");
    bed.exposes(&["app.example.com", "own.example.com"]).await;
    bed.delete("older").await;
    eventually("the younger one has it", PATIENCE, || async {
        let all = bed.resources().await;
        let ours: Vec<String> = all.iter().map(kube::ResourceExt::name_any).collect();
        if all.len() == 2 && ours.iter().all(|name| name.contains("-younger-")) { Ok(()) } else { Err(ours) }
    }).await;
}

async fn what_the_operator_reports_becomes_events_and_status(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let _running = bed.start_with(Policy { ingress_status: true, ..bed.policy() });
    bed.expose("app", &["app.example.com"]).await;
    let name = bed.resource().await.name_any();
    let failed = json!({"status": "Error", "conditions": [{"type": "Ready", "status": "False", "reason": "ReconcileError", "message": "domain not found"}]});
    bed.report("PangolinResource", &name, &failed).await;
    let note = bed.event("Warning", "ResourceFailed").await;
    assert!(note.contains("domain not found"), "{note}");
    let empty = json!({"status": "Ready", "resourceId": "7", "conditions": [{"type": "Ready", "status": "True"}]});
    bed.report("PangolinResource", &name, &empty).await;
    bed.event("Warning", "ResourceWithoutTargets").await;
    // The CRDs were applied again: it has a target now, and was Ready all the time.
    bed.report("PangolinResource", &name, &json!({"status": "Ready", "targetIds": ["1"]})).await;
    let note = bed.event("Normal", "Ready").await;
    assert!(note.contains("app.example.com"), "{note}");
    eventually("the host is in the status of the Ingress", PATIENCE, || async {
        let ingress = bed.ingresses.get("app").await.unwrap();
        let host = ingress.status.and_then(|status| status.load_balancer?.ingress?.pop()?.hostname);
        if host.as_deref() == Some("app.example.com") { Ok(()) } else { Err(host) }
    }).await;
    bed.delete("app").await;
    let note = bed.event("Warning", "StillExposed").await;
    assert!(note.contains("resource 7"), "{note}");
}

async fn the_status_of_an_ingress_that_is_no_longer_ours_is_cleared(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let start = || bed.start_with(Policy { ingress_status: true, ..bed.policy() });
    let status = async |name: &str| {
        let status = bed.ingresses.get(name).await.unwrap().status.and_then(|status| status.load_balancer?.ingress);
        status.unwrap_or_default().into_iter().filter_map(|address| address.hostname).collect::<Vec<String>>()
    };
    let has = async |name: &str, expected: &[&str]| {
        eventually(&format!("the status of {name} is {expected:?}"), PATIENCE, || async {
            let seen = status(name).await;
            if seen == expected { Ok(()) } else { Err(seen) }
        }).await;
    };
    let ready = async || {
        for resource in bed.resources().await {
            bed.report("PangolinResource", &resource.name_any(), &json!({"status": "Ready", "targetIds": ["1"]})).await;
        }
    };
    // The status of another controller is not ours, whatever it has.
    bed.create("theirs", &json!({}), json!({"ingressClassName": "nginx", "rules": rules(&["theirs.example.com"])})).await;
    let theirs = json!({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}});
    bed.ingresses.patch_status("theirs", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    let running = start();
    bed.expose("class", &["class.example.com"]).await;
    bed.expose("down", &["down.example.com"]).await;
    bed.expose("host", &["a.example.com", "b.example.com"]).await;
    bed.exposes(&["a.example.com", "b.example.com", "class.example.com", "down.example.com"]).await;
    ready().await;
    has("class", &["class.example.com"]).await;
    has("down", &["down.example.com"]).await;
    has("host", &["a.example.com", "b.example.com"]).await;
    bed.patch("class", json!({"spec": {"ingressClassName": "nginx"}})).await;
    has("class", &[]).await;
    bed.patch("host", json!({"spec": {"rules": rules(&["b.example.com"])}})).await;
    has("host", &["b.example.com"]).await;
    bed.patch("host", json!({"spec": {"rules": null, "defaultBackend": {"service": {"name": "app", "port": {"number": 80}}}}})).await;
    has("host", &[]).await;
    // The same while the operator is down.
    running.stop().await;
    bed.patch("down", json!({"spec": {"ingressClassName": "nginx"}})).await;
    has("down", &["down.example.com"]).await;
    let running = start();
    has("down", &[]).await;
    assert_eq!(status("theirs").await, ["lb.example.com"]);
    // A start writes no status that is there already.
    bed.expose("last", &["last.example.com"]).await;
    bed.exposes(&["last.example.com"]).await;
    ready().await;
    has("last", &["last.example.com"]).await;
    running.stop().await;
    let running = start();
    eventually("a pass of both", PATIENCE, || async {
        let done = running.metric("pic_reconcile_total{result=\"success\"}");
        if done >= 2.0 { Ok(()) } else { Err(done) }
    }).await;
    assert!(running.metric("signpost_object_writes_total{outcome=\"written\"}") < 0.5, "nothing is written");
}

async fn a_deleted_ingress_class_withdraws_no_resource(cluster) {
    use k8s_openapi::api::networking::v1::IngressClass;
    let bed = Bed::new(cluster, KIND).await;
    let classes: Api<IngressClass> = Api::all(bed.cluster.client());
    let name = format!("public-{}", bed.namespace);
    let class = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"controller": signpost_system_pangolin::CONTROLLER}}));
    classes.create(&PostParams::default(), &class.unwrap()).await.unwrap();
    let running = bed.start();
    bed.create("app", &json!({}), json!({"ingressClassName": name, "rules": rules(&["app.example.com"])})).await;
    bed.exposes(&["app.example.com"]).await;
    classes.delete(&name, &DeleteParams::default()).await.unwrap();
    bed.patch("app", json!({"spec": {"rules": rules(&["new.example.com"])}})).await;
    bed.exposes(&["new.example.com"]).await;
    running.stop().await;
    let _running = bed.start();
    bed.expose("other", &["other.example.com"]).await;
    bed.exposes(&["new.example.com", "other.example.com"]).await;
    bed.patch("app", json!({"spec": {"ingressClassName": "nginx"}})).await;
    bed.exposes(&["other.example.com"]).await;
}

async fn domains_that_appear_or_vanish_withdraw_nothing(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let domain = |id: &str, base: &str, kind: &str| json!({"domainId": id, "baseDomain": base, "verified": true, "type": kind});
    let status = |domains: &[Value]| json!({"domains": domains});
    let (ns, inner) = (domain("d1", "example.com", "ns"), domain("d2", "apps.internal", "ns"));
    bed.put("PangolinOrganization", "org", &json!({}), Some(&status(&[ns.clone(), inner.clone()]))).await;
    let _running = bed.start();
    bed.expose("app", &["app.example.com", "app.apps.internal"]).await;
    bed.exposes(&["app.apps.internal", "app.example.com"]).await;
    let uids = async || {
        let mut uids: Vec<String> = bed.resources().await.into_iter().filter_map(|object| object.metadata.uid).collect();
        uids.sort();
        uids
    };
    let before = uids().await;
    // A domain for exactly this host, and an organisation that has no domains for a moment.
    let one = domain("d3", "app.example.com", "cname");
    for (number, domains) in [vec![ns.clone(), inner.clone(), one], Vec::new()].into_iter().enumerate() {
        bed.report("PangolinOrganization", "org", &json!({"domains": []})).await;
        bed.report("PangolinOrganization", "org", &status(&domains)).await;
        let name = format!("later-{number}");
        bed.expose(&name, &[&format!("{name}.example.com")]).await;
        eventually("a later Ingress is exposed", PATIENCE, || async {
            let hosts = bed.hosts().await;
            if hosts.contains(&format!("{name}.example.com")) { Ok(()) } else { Err(hosts) }
        }).await;
        let now = uids().await;
        assert!(before.iter().all(|uid| now.contains(uid)), "{domains:?}: {:?}", bed.hosts().await);
        assert!(bed.hosts().await.contains(&"app.example.com".to_owned()));
    }
}

async fn two_ingresses_that_lead_to_one_host_have_one_resource(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let domains = json!({"domains": [{"domainId": "d1", "baseDomain": "apps.example.com", "verified": true, "type": "ns"}]});
    bed.put("PangolinOrganization", "org", &json!({}), Some(&domains)).await;
    let _running = bed.start();
    let older = bed.expose("older", &["shop.apps.example.com"]).await;
    bed.exposes(&["shop.apps.example.com"]).await;
    // By the organisation's domains, and not by the public suffix list, this is the same host.
    let annotations = json!({"pangolin.ingress.k8s.io/subdomain": "shop"});
    let spec = json!({"ingressClassName": "pangolin", "rules": rules(&["other.apps.example.com"])});
    eventually("another second", PATIENCE, || async {
        let _ = bed.ingresses.delete("younger", &DeleteParams::default()).await;
        let made = bed.create("younger", &annotations, spec.clone()).await;
        if made.creation_timestamp() > older.creation_timestamp() { Ok(()) } else { Err("the same second") }
    }).await;
    let note = bed.event("Warning", "HostConflict").await;
    assert!(note.contains("older") && note.contains("shop.apps.example.com"), "{note}");
    bed.exposes(&["shop.apps.example.com"]).await;
    assert!(bed.resource().await.name_any().contains("-older-"));
    bed.delete("older").await;
    eventually("the younger one has it", PATIENCE, || async {
        let names: Vec<String> = bed.resources().await.iter().map(kube::ResourceExt::name_any).collect();
        if names.len() == 1 && names[0].contains("-younger-") { Ok(()) } else { Err(names) }
    }).await;
}

async fn a_tunnel_of_another_namespace_is_used_where_the_shape_names_it(cluster) {
    let bed = Bed::new(cluster.clone(), KIND).await;
    let (one, two) = (Bed::bare(cluster.clone()).await, Bed::bare(cluster).await);
    one.tunnel("edge", Some("Ready")).await;
    two.tunnel("edge", Some("Ready")).await;
    let namespaces = vec![bed.namespace.clone(), one.namespace.clone(), two.namespace.clone()];
    let _running = bed.start_with(Policy { namespaces, ..bed.policy() });
    let annotations = json!({"pangolin.ingress.k8s.io/tunnel-name": "edge"});
    bed.create("app", &annotations, json!({"ingressClassName": "pangolin", "rules": rules(&["app.example.com"])})).await;
    let note = bed.event("Warning", "TunnelAmbiguous").await;
    assert!(note.contains(&one.namespace) && note.contains(&two.namespace), "{note}");
    assert!(bed.hosts().await.is_empty(), "none of the two is guessed");
    bed.annotate("app", "tunnel-name", Some(&format!("{}/edge", two.namespace))).await;
    match KIND {
        Kind::Single => {
            let note = bed.event("Warning", "TunnelNotInNamespace").await;
            assert!(note.contains(&format!("{}/edge", two.namespace)), "{note}");
            assert!(bed.hosts().await.is_empty());
        }
        Kind::Multi => {
            let reference = json!({"name": "edge", "namespace": two.namespace});
            bed.specified("the tunnel that is named", |spec| spec["tunnelRef"] == reference).await;
        }
    }
}

async fn a_tunnel_that_the_mapping_names_elsewhere_is_watched(cluster) {
    let bed = Bed::new(cluster.clone(), KIND).await;
    let (infra, closed) = (Bed::bare(cluster.clone()).await, Bed::bare(cluster).await);
    infra.tunnel("eu", Some("Ready")).await;
    closed.tunnel("eu", Some("Ready")).await;
    let mapping = TunnelMapping::parse(&format!("eu={}/eu", infra.namespace)).unwrap();
    let _running = bed.start_with(Policy { mapping, ..bed.policy() });
    bed.create("app", &json!({}), json!({"ingressClassName": "pangolin-eu", "rules": rules(&["app.example.com"])})).await;
    match KIND {
        Kind::Single => {
            let note = bed.event("Warning", "TunnelNotInNamespace").await;
            assert!(note.contains(&format!("{}/eu", infra.namespace)), "{note}");
        }
        Kind::Multi => bed.exposes(&["app.example.com"]).await,
    }
    let annotations = json!({"pangolin.ingress.k8s.io/tunnel-name": format!("{}/eu", closed.namespace)});
    bed.create("other", &annotations, json!({"ingressClassName": "pangolin", "rules": rules(&["other.example.com"])})).await;
    let note = bed.event("Warning", "TunnelNotFound").await;
    assert!(note.contains("tunnels are not watched") && note.contains(&closed.namespace), "{note}");
}

async fn metrics_have_the_names_of_the_seed(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let running = bed.start();
    bed.expose("app", &["a.example.com", "b.example.com"]).await;
    bed.exposes(&["a.example.com", "b.example.com"]).await;
    eventually("the gauge", PATIENCE, || async {
        let managed = running.metric("pic_pangolinresource_managed ");
        if (managed - 2.0).abs() < 0.1 { Ok(()) } else { Err(managed) }
    }).await;
    assert!(running.metric("pic_reconcile_total{result=\"success\"}") >= 1.0);
    assert!(running.metric("pic_reconcile_duration_seconds_count") >= 1.0);
    assert!(running.metric("pic_reconcile_total{result=\"error\"}") < 0.1);
    // An object of somebody else has the name of the next one: its pass fails, and is counted.
    let taken = signpost_exposure::Names::of("", &bed.namespace, "next", "c.example.com").object;
    bed.put("PangolinResource", &taken, &json!({"httpConfig": {"subdomain": "theirs", "domainName": "example.com"}}), None).await;
    bed.expose("next", &["c.example.com"]).await;
    bed.event("Warning", "ForeignResource").await;
    eventually("the failed pass is counted", PATIENCE, || async {
        let failed = running.metric("pic_reconcile_total{result=\"error\"}");
        if failed >= 1.0 { Ok(()) } else { Err(failed) }
    }).await;
}

async fn tunnels_are_only_read(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let before = bed.dynamic("PangolinTunnel").get("default").await.unwrap().resource_version();
    let services: Api<k8s_openapi::api::core::v1::Service> = Api::namespaced(bed.cluster.client(), &bed.namespace);
    let service = async || services.get("app").await.unwrap().resource_version();
    let served = service().await;
    let _running = bed.start();
    let made = bed.expose("app", &["app.example.com"]).await.resource_version();
    bed.exposes(&["app.example.com"]).await;
    assert_eq!(bed.dynamic("PangolinTunnel").get("default").await.unwrap().resource_version(), before);
    assert_eq!(bed.ingresses.get("app").await.unwrap().resource_version(), made, "nothing is written to the Ingress");
    assert_eq!(service().await, served, "nothing is written to the Service");
}

async fn the_domains_of_the_organisation_decide_where_they_are_known(cluster) {
    let bed = Bed::new(cluster, KIND).await;
    let domain = |id: &str, base: &str, verified: bool| json!({"domainId": id, "baseDomain": base, "verified": verified, "type": "ns"});
    let status = json!({"domains": [domain("d1", "example.com", true), domain("d2", "apps.example.com", true), domain("d3", "open.test", false)]});
    bed.put("PangolinOrganization", "org", &json!({}), Some(&status)).await;
    let _running = bed.start();
    bed.expose("app", &["shop.apps.example.com"]).await;
    let http = bed.resource().await.data["spec"]["httpConfig"].clone();
    assert_eq!(http, http_config(json!({"domainId": "d2", "domainName": "apps.example.com", "subdomain": "shop"})));
    bed.expose("other", &["shop.example.net", "a.open.test"]).await;
    bed.event("Warning", "DomainNotFound").await;
    assert_eq!(bed.hosts().await, ["shop.apps.example.com"]);
}
}

/// Faults of the API server, which only the sandbox makes on request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_api_server_is_tried_again() {
    use signpost_sandbox::{ApiError, Fault, FaultPlan};
    let bed = Bed::new(signpost_testkit::sandbox_cluster().await, KIND).await;
    let _running = bed.start();
    bed.expose("first", &["first.example.com"]).await;
    bed.exposes(&["first.example.com"]).await;
    for (number, fault) in [
        Fault::Drop,
        Fault::LoseAnswer,
        Fault::internal(),
        Fault::conflict(),
        Fault::FailAfter(Box::new(ApiError::new(503, "ServiceUnavailable", "try again"))),
    ]
    .into_iter()
    .enumerate()
    {
        let written = |request: &signpost_sandbox::RequestInfo| {
            request.resource == "pangolinresources" && ["patch", "delete"].contains(&request.verb.as_str())
        };
        bed.cluster.sandbox().unwrap().faults().set(FaultPlan::first(4, written, fault));
        bed.patch("first", json!({"spec": {"rules": rules(&["first.example.com", "second.example.com"])}})).await;
        bed.exposes(&["first.example.com", "second.example.com"]).await;
        bed.patch("first", json!({"spec": {"rules": rules(&["first.example.com"])}})).await;
        bed.exposes(&["first.example.com"]).await;
        bed.cluster.sandbox().unwrap().faults().clear();
        assert!(number < 5);
    }
}
