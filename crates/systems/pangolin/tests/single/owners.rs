//! Direct mode with several Ingresses of one host, and with one that is refused: who is served, and with whose settings.

use std::sync::Arc;

use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use signpost_sandbox::edge::{Answer, Visit};
use signpost_testkit::eventually;
use signpost_testkit::pangolin::{ORG, Pangolin, Version};

use super::direct::{Direct, client, policy, start, start_with};
use crate::common::bed::{Bed, PATIENCE, path, rules};

/// The spec of an Ingress that leads the host to one Service.
fn to_service(service: &str, port: u16) -> serde_json::Value {
    json!({"ingressClassName": "pangolin", "rules": [{"host": "app.ns.test", "http": {"paths": [path("/", "Prefix", service, port)]}}]})
}

/// Waits until this Service answers for the host.
async fn until_answers(bed: &Bed, server: &Pangolin, service: &str, port: u16) {
    let expected = Answer::Served(vec![format!("{service}.{}.svc.cluster.local:{port}", bed.namespace)]);
    eventually(&format!("{service} answers"), PATIENCE, || async {
        let seen = server.get("app.ns.test", "/");
        if seen == expected { Ok(()) } else { Err((seen, bed.events().await)) }
    })
    .await;
}

/// Creates an Ingress that is younger than another one by at least a second, which is how ages are counted.
async fn younger(
    direct: &Direct,
    than: &k8s_openapi::api::networking::v1::Ingress,
    annotations: &serde_json::Value,
    spec: &serde_json::Value,
) {
    use kube::ResourceExt as _;
    eventually("another second", PATIENCE, || async {
        let _ = direct.bed.ingresses.delete("younger", &DeleteParams::default()).await;
        let made = direct.bed.create("younger", annotations, spec.clone()).await;
        if made.creation_timestamp() > than.creation_timestamp() { Ok(()) } else { Err("the same second") }
    })
    .await;
}

/// Whoever owns a host and cannot expose it does not keep the endpoint of a deleted Ingress alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_ingress_is_withdrawn_although_a_broken_one_names_its_host() {
    let missing = json!({"ingressClassName": "pangolin", "rules": [{"host": "app.ns.test", "http": {"paths": [path("/", "Prefix", "nowhere", 80)]}}]});
    let good = json!({"ingressClassName": "pangolin", "rules": rules(&["app.ns.test"])});
    let (none, bad) = (json!({}), json!({"pangolin.ingress.k8s.io/sso": "ture"}));
    let tunnel = json!({"pangolin.ingress.k8s.io/tunnel-name": "nowhere"});
    for (annotations, spec, reason) in
        [(&none, &missing, "BackendNotFound"), (&bad, &good, "InvalidAnnotation"), (&tunnel, &good, "TunnelNotFound")]
    {
        for deleted in [true, false] {
            let direct = Direct::new(signpost_testkit::sandbox_cluster().await).await;
            let _running = start(&direct.bed, &direct.server);
            let older = direct.bed.expose("older", &["app.ns.test"]).await;
            direct.settled("older").await;
            younger(&direct, &older, annotations, spec).await;
            if deleted {
                direct.bed.delete("older").await;
            } else {
                direct.bed.patch("older", json!({"spec": {"rules": rules(&["other.ns.test"])}})).await;
            }
            direct.bed.event("Warning", reason).await;
            direct.has(if deleted { &[] } else { &["other.ns.test"] }).await;
        }
    }
}

/// What makes access stricter does not wait for a Service of another path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stricter_access_is_applied_while_a_service_is_missing() {
    let direct = Direct::new(signpost_testkit::sandbox_cluster().await).await;
    let _running = start(&direct.bed, &direct.server);
    let paths = json!([path("/", "Prefix", "app", 80), path("/api", "Prefix", "api", 9000)]);
    let spec = json!({"ingressClassName": "pangolin", "rules": [{"host": "app.ns.test", "http": {"paths": paths}}]});
    direct.bed.create("app", &json!({}), spec).await;
    direct.settled("app").await;
    let services: Api<k8s_openapi::api::core::v1::Service> =
        Api::namespaced(direct.bed.cluster.client(), &direct.bed.namespace);
    services.delete("api", &DeleteParams::default()).await.unwrap();
    direct.bed.event("Warning", "BackendNotFound").await;
    let annotations = json!({"pangolin.ingress.k8s.io/sso": "true", "pangolin.ingress.k8s.io/block-access": "true"});
    direct.bed.patch("app", json!({"metadata": {"annotations": annotations}})).await;
    eventually("the resource is protected", PATIENCE, || async {
        let row = direct.server.state().resources.values().next().unwrap().clone();
        if (row.sso, row.block_access) == (Some(true), true) { Ok(()) } else { Err((row.sso, row.block_access)) }
    })
    .await;
    direct.answers("app.ns.test", "/api", "api", 9000).await;
}

/// A typing error in `enabled` is reported, and what it exposed stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typing_error_in_enabled_withdraws_nothing_in_opt_in_mode() {
    let direct = Direct::new(signpost_testkit::sandbox_cluster().await).await;
    let mut policy = policy(&direct.bed);
    policy.class.opt_in = true;
    let _running = start_with(&direct.bed, policy, Arc::new(client(&direct.server.url(), ORG, Pangolin::KEY)));
    let annotations = json!({"pangolin.ingress.k8s.io/enabled": "true"});
    direct
        .bed
        .create("app", &annotations, json!({"ingressClassName": "nginx", "rules": rules(&["app.ns.test"])}))
        .await;
    direct.settled("app").await;
    direct.bed.annotate("app", "enabled", Some("ture")).await;
    let note = direct.bed.event("Warning", "InvalidAnnotation").await;
    assert!(note.contains("ture"), "{note}");
    direct.answers("app.ns.test", "/", "app", 80).await;
    direct.bed.annotate("app", "enabled", Some("false")).await;
    direct.has(&[]).await;
}

/// A host stays with whoever serves it while the older Ingress that names it cannot expose it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_older_ingress_does_not_end_what_a_younger_one_serves() {
    let good = json!({"ingressClassName": "pangolin", "rules": rules(&["app.ns.test"])});
    let missing = json!([{"host": "app.ns.test", "http": {"paths": [path("/", "Prefix", "nowhere", 80)]}}]);
    let typo = json!({"pangolin.ingress.k8s.io/sso": "ture"});
    for (patch, reason) in [
        (json!({"spec": {"rules": missing}}), "BackendNotFound"),
        (json!({"spec": {"rules": rules(&["app.ns.test"])}, "metadata": {"annotations": typo}}), "InvalidAnnotation"),
    ] {
        let direct = Direct::new(signpost_testkit::sandbox_cluster().await).await;
        let _running = start(&direct.bed, &direct.server);
        let older = direct.bed.expose("older", &["other.ns.test"]).await;
        direct.settled("older").await;
        younger(&direct, &older, &json!({}), &good).await;
        direct.answers("app.ns.test", "/", "app", 80).await;
        direct.settled("younger").await;
        direct.bed.patch("older", patch).await;
        direct.bed.event("Warning", reason).await;
        let note = direct.bed.event("Warning", "HostConflict").await;
        assert!(!note.contains("already exposed"), "{note}");
        // A later Ingress is done: the others had their passes.
        direct.bed.expose("later", &["later.ns.test"]).await;
        direct.settled("later").await;
        assert_eq!(direct.server.get("app.ns.test", "/"), direct.served("app", 80), "{reason}");
        direct.bed.delete("younger").await;
        eventually("the endpoint is deleted with its own Ingress", PATIENCE, || async {
            let seen = direct.server.get("app.ns.test", "/");
            if seen == Answer::NoRouter { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}

/// With opt-in, an unreadable `enabled` on an Ingress that is not ours claims no host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typing_error_in_enabled_takes_no_host_from_another_ingress() {
    let direct = Direct::new(signpost_testkit::sandbox_cluster().await).await;
    let mut policy = policy(&direct.bed);
    policy.class.opt_in = true;
    let _running = start_with(&direct.bed, policy, Arc::new(client(&direct.server.url(), ORG, Pangolin::KEY)));
    let nginx = json!({"ingressClassName": "nginx", "rules": rules(&["app.ns.test"])});
    let older = direct.bed.create("older", &json!({}), nginx).await;
    let good = json!({"ingressClassName": "pangolin", "rules": rules(&["app.ns.test"])});
    younger(&direct, &older, &json!({}), &good).await;
    let digest = direct.settled("younger").await;
    direct.bed.annotate("older", "enabled", Some("no")).await;
    let backend = json!([{"host": "app.ns.test", "http": {"paths": [path("/", "Prefix", "api", 9000)]}}]);
    direct.bed.patch("younger", json!({"spec": {"rules": backend}})).await;
    eventually("the younger one is still served", PATIENCE, || async {
        let now = direct.settled("younger").await;
        if now == digest { Err(direct.bed.events().await) } else { Ok(()) }
    })
    .await;
    direct.answers("app.ns.test", "/", "api", 9000).await;
}

/// The next owner of a host is refused by Pangolin, or by what Pangolin can express: the endpoint of the deleted Ingress is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_ingress_is_withdrawn_although_the_next_owner_is_rejected() {
    for version in [Version::V1_10, Version::V1_22] {
        let bed = Bed::bare(signpost_testkit::sandbox_cluster().await).await;
        let direct = Direct { bed, server: Pangolin::of(version).await };
        let _running = start(&direct.bed, &direct.server);
        let older = direct.bed.expose("older", &["app.ns.test"]).await;
        direct.settled("older").await;
        // 1.10 has no priorities; 1.22 refuses an address outside the subnet of a wireguard site.
        let paths = json!([path("/", "Prefix", "app", 80), path("/api", "Exact", "api", 9000)]);
        let spec =
            json!({"ingressClassName": "pangolin", "rules": [{"host": "app.ns.test", "http": {"paths": paths}}]});
        let annotations =
            if version == Version::V1_22 { json!({"pangolin.ingress.k8s.io/tunnel-name": "guard"}) } else { json!({}) };
        younger(&direct, &older, &annotations, &spec).await;
        direct.bed.event("Warning", "HostConflict").await;
        direct.bed.delete("older").await;
        direct.bed.event("Warning", "ProviderRejected").await;
        direct.answers_with("app.ns.test", "/", Answer::NoRouter).await;
    }
}

/// Access that is made stricter is applied while the Ingress cannot be used otherwise, and is as wanted again afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stricter_access_is_applied_while_the_ingress_is_refused() {
    let direct = Direct::new(signpost_testkit::sandbox_cluster().await).await;
    let _running = start(&direct.bed, &direct.server);
    direct.bed.expose("app", &["app.ns.test"]).await;
    direct.settled("app").await;
    let has = async |expected: (Option<bool>, bool)| {
        eventually(&format!("access is {expected:?}"), PATIENCE, || async {
            let row = direct.server.state().resources.values().next().unwrap().clone();
            let seen = (row.sso, row.block_access);
            if seen == expected { Ok(()) } else { Err((seen, direct.bed.events().await)) }
        })
        .await;
    };
    direct.bed.annotate("app", "tunnel-name", Some("nowhere")).await;
    direct.bed.event("Warning", "TunnelNotFound").await;
    direct.bed.annotate("app", "block-access", Some("true")).await;
    has((Some(false), true)).await;
    assert_eq!(direct.server.visit("app.ns.test", "/"), Visit::Blocked);
    direct.bed.annotate("app", "sso", Some("true")).await;
    has((Some(true), true)).await;
    assert_eq!(direct.server.visit("app.ns.test", "/"), Visit::Blocked);
    direct.answers("app.ns.test", "/", "app", 80).await;
    let without = json!({"pangolin.ingress.k8s.io/tunnel-name": null, "pangolin.ingress.k8s.io/sso": null, "pangolin.ingress.k8s.io/block-access": null});
    direct.bed.patch("app", json!({"metadata": {"annotations": without}})).await;
    has((Some(false), false)).await;
    assert_eq!(direct.server.visit("app.ns.test", "/"), Visit::Open(direct.served("app", 80)));
}

/// The headers of one Ingress never reach the Service of the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_headers_of_an_ingress_do_not_reach_the_service_of_the_next_one() {
    use crate::common::pangolins::{Fate, Fragile};
    use std::sync::Mutex;
    let direct = Direct::new(signpost_testkit::sandbox_cluster().await).await;
    let server = Arc::new(direct.server);
    let (fate, wrong) = (Fate::never(), Arc::new(Mutex::new(Vec::new())));
    fate.judged_by({
        let (server, wrong) = (server.clone(), wrong.clone());
        move |what| {
            let state = server.state();
            let secret = state
                .resources
                .values()
                .any(|row| row.headers.as_ref().is_some_and(|all| all.to_string().contains("secret")));
            let next = state.targets.values().any(|target| *target.field("port") == json!(9000));
            if secret && next {
                wrong.lock().unwrap().push(what.to_owned());
            }
        }
    });
    let fragile = Fragile { inner: client(&server.url(), ORG, Pangolin::KEY), fate };
    let _running = start_with(&direct.bed, policy(&direct.bed), Arc::new(fragile));
    let annotations = json!({"pangolin.ingress.k8s.io/headers": "Authorization: Bearer secret"});
    direct.bed.create("old", &annotations, to_service("app", 80)).await;
    let served = async |service: &str, port: u16| until_answers(&direct.bed, &server, service, port).await;
    served("app", 80).await;
    direct.bed.create("new", &json!({}), to_service("api", 9000)).await;
    direct.bed.event("Warning", "HostConflict").await;
    direct.bed.delete("old").await;
    served("api", 9000).await;
    assert_eq!(*wrong.lock().unwrap(), Vec::<String>::new());
    assert_eq!(server.state().resources.values().next().unwrap().headers, None);
}

/// The headers of an Ingress never reach the Service of the one before it, also where access becomes stricter first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_headers_of_an_ingress_do_not_reach_the_service_of_the_one_before() {
    use crate::common::pangolins::{Fate, Fragile};
    use std::sync::Mutex;
    let direct = Direct::new(signpost_testkit::sandbox_cluster().await).await;
    let server = Arc::new(direct.server);
    let (fate, wrong) = (Fate::never(), Arc::new(Mutex::new(Vec::new())));
    let has_secret = {
        let server = server.clone();
        move || {
            let state = server.state();
            state
                .resources
                .values()
                .any(|row| row.headers.as_ref().is_some_and(|all| all.to_string().contains("secret")))
        }
    };
    fate.judged_by({
        let (server, wrong, has_secret) = (server.clone(), wrong.clone(), has_secret.clone());
        move |what| {
            let secret = has_secret();
            let state = server.state();
            let before = state.targets.values().any(|target| *target.field("port") == json!(80));
            let open = state.resources.values().any(|row| row.sso != Some(true));
            let next = state.targets.values().any(|target| *target.field("port") == json!(9000));
            if (secret && before) || (open && next) {
                wrong.lock().unwrap().push(what.to_owned());
            }
        }
    });
    let fragile = Fragile { inner: client(&server.url(), ORG, Pangolin::KEY), fate };
    let _running = start_with(&direct.bed, policy(&direct.bed), Arc::new(fragile));
    direct.bed.create("old", &json!({}), to_service("app", 80)).await;
    let served = async |service: &str, port: u16| until_answers(&direct.bed, &server, service, port).await;
    served("app", 80).await;
    let annotations = json!({"pangolin.ingress.k8s.io/headers": "Authorization: Bearer secret", "pangolin.ingress.k8s.io/sso": "true"});
    direct.bed.create("new", &annotations, to_service("api", 9000)).await;
    direct.bed.event("Warning", "HostConflict").await;
    direct.bed.delete("old").await;
    served("api", 9000).await;
    eventually("the headers are there", PATIENCE, || async { if has_secret() { Ok(()) } else { Err("no headers") } })
        .await;
    assert_eq!(*wrong.lock().unwrap(), Vec::<String>::new());
}
