//! Direct mode: every annotation beyond the seed's four, read from what the server has. Each change is one write and keeps the others.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use signpost_sandbox::edge::{Answer, Visit};
use signpost_testkit::pangolin::{ORG, Pangolin};
use signpost_testkit::{eventually, on_both};

use super::direct::{Direct, client, policy, start, start_with};
use crate::common::bed::{PATIENCE, path, rules};
use crate::common::pangolins::{Fate, Fragile};

/// The column of the resource or of its target that an annotation sets, and its value.
struct Row {
    annotation: &'static str,
    value: &'static str,
    column: &'static str,
    set: Value,
    /// What the column has without the annotation.
    unset: Value,
}

fn row(annotation: &'static str, value: &'static str, column: &'static str, set: Value, unset: Value) -> Row {
    Row { annotation, value, column, set, unset }
}

fn table(service: &str) -> Vec<Row> {
    let inner = "inner.example.com";
    let header = json!([{"name": "X-A", "value": "1"}]);
    vec![
        row("sso", "true", "sso", json!(true), json!(false)),
        row("block-access", "true", "blockAccess", json!(true), json!(false)),
        row("ssl", "false", "ssl", json!(false), json!(true)),
        row("sticky-session", "true", "stickySession", json!(true), json!(false)),
        row("tls-server-name", inner, "tlsServerName", json!(inner), Value::Null),
        row("set-host-header", inner, "setHostHeader", json!(inner), Value::Null),
        row("headers", "{\"X-A\": \"1\"}", "headers", header.clone(), Value::Null),
        // The check is on while the rest of it is changed.
        row("healthcheck-enabled", "true", "hcEnabled", json!(true), json!(false)),
        row("healthcheck-path", "/healthz", "hcPath", json!("/healthz"), json!("/")),
        row("healthcheck-scheme", "https", "hcScheme", json!("https"), json!("http")),
        row("healthcheck-hostname", inner, "hcHostname", json!(inner), json!(service)),
        row("healthcheck-port", "9090", "hcPort", json!(9090), json!(80)),
        row("healthcheck-interval", "17", "hcInterval", json!(17), json!(30)),
        row("healthcheck-unhealthy-interval", "18", "hcUnhealthyInterval", json!(18), json!(30)),
        row("healthcheck-timeout", "9", "hcTimeout", json!(9), json!(5)),
        row("healthcheck-method", "HEAD", "hcMethod", json!("HEAD"), json!("GET")),
        row("healthcheck-status", "204", "hcStatus", json!(204), Value::Null),
        row("healthcheck-follow-redirects", "false", "hcFollowRedirects", json!(false), json!(true)),
        row("healthcheck-headers", "X-A: 1", "hcHeaders", header, json!([])),
        row("healthcheck-tls-server-name", inner, "hcTlsServerName", json!(inner), Value::Null),
    ]
}

/// A column of the only resource, or of its only target.
fn column(direct: &Direct, name: &str) -> Value {
    let state = direct.server.state();
    let resource = state.resources.values().next().unwrap();
    match name {
        "sso" => json!(resource.sso),
        "blockAccess" => json!(resource.block_access),
        "ssl" => json!(resource.ssl),
        "stickySession" => json!(resource.sticky_session),
        "tlsServerName" => json!(resource.tls_server_name),
        "setHostHeader" => json!(resource.set_host_header),
        "headers" => resource.headers.clone().unwrap_or_default(),
        check => state.targets.values().next().unwrap().field(check).clone(),
    }
}

/// Waits for the digest to become another one, and returns the calls until then.
async fn changed(direct: &Direct, digest: &mut String, what: &str) -> Vec<String> {
    *digest = eventually(what, PATIENCE, || async {
        let now = direct.settled("app").await;
        if now == *digest { Err((now, direct.bed.events().await)) } else { Ok(now) }
    })
    .await;
    direct.server.requests()
}

on_both! {
async fn every_annotation_is_one_write_and_keeps_the_others(cluster) {
    let direct = Direct::new(cluster).await;
    let _running = start(&direct.bed, &direct.server);
    direct.bed.expose("app", &["app.ns.test"]).await;
    let mut digest = direct.settled("app").await;
    let table = table(&format!("app.{}.svc.cluster.local", direct.bed.namespace));
    for (number, row) in table.iter().enumerate() {
        direct.server.forget_requests();
        direct.bed.annotate("app", row.annotation, Some(row.value)).await;
        let calls = changed(&direct, &mut digest, row.annotation).await;
        assert!(calls.len() == 1 && calls[0].starts_with("POST "), "{}: {calls:?}", row.annotation);
        for set in &table[..=number] {
            assert_eq!(column(&direct, set.column), set.set, "{} after {}", set.annotation, row.annotation);
        }
    }
    // A change of something else keeps them all.
    direct.server.forget_requests();
    let backend = json!([{"host": "app.ns.test", "http": {"paths": [path("/", "Prefix", "app", 8080)]}}]);
    direct.bed.patch("app", json!({"spec": {"rules": backend}})).await;
    assert_eq!(changed(&direct, &mut digest, "another backend").await.len(), 1);
    for row in &table {
        assert_eq!(column(&direct, row.column), row.set, "{}", row.annotation);
    }
    direct.bed.patch("app", json!({"spec": {"rules": rules(&["app.ns.test"])}})).await;
    changed(&direct, &mut digest, "the first backend").await;
    // The other way round: what is removed has its usual value again, with one write.
    for (number, row) in table.iter().enumerate().rev() {
        direct.server.forget_requests();
        direct.bed.annotate("app", row.annotation, None).await;
        let calls = changed(&direct, &mut digest, row.annotation).await;
        assert!(calls.len() == 1 && calls[0].starts_with("POST "), "{}: {calls:?}", row.annotation);
        assert_eq!(column(&direct, row.column), row.unset, "{} is removed", row.annotation);
        for set in &table[..number] {
            assert_eq!(column(&direct, set.column), set.set, "{} without {}", set.annotation, row.annotation);
        }
    }
    direct.answers("app.ns.test", "/", "app", 80).await;
}

async fn who_may_enter_follows_sso_and_block_access(cluster) {
    let direct = Direct::new(cluster).await;
    let server = Arc::new(direct.server);
    // Whoever visits the host that is protected from its creation is never let in.
    let (fate, entered) = (Fate::never(), Arc::new(Mutex::new(Vec::new())));
    fate.judged_by({
        let (server, entered) = (server.clone(), entered.clone());
        move |what| {
            let seen = server.visit("secret.ns.test", "/");
            if matches!(seen, Visit::Open(Answer::Served(_))) {
                entered.lock().unwrap().push(what.to_owned());
            }
        }
    });
    let fragile = Fragile { inner: client(&server.url(), ORG, Pangolin::KEY), fate };
    let _running = start_with(&direct.bed, policy(&direct.bed), Arc::new(fragile));
    let visit = async |host: &str, expected: Visit<String>| {
        eventually(&format!("a visitor of {host} gets {expected:?}"), PATIENCE, || async {
            let seen = server.visit(host, "/");
            if seen == expected { Ok(()) } else { Err((seen, direct.bed.events().await)) }
        }).await;
    };
    let served = |service: &str, port: u16| {
        Visit::Open(Answer::Served(vec![format!("{service}.{}.svc.cluster.local:{port}", direct.bed.namespace)]))
    };
    direct.bed.expose("app", &["app.ns.test"]).await;
    visit("app.ns.test", served("app", 80)).await;
    direct.bed.annotate("app", "sso", Some("true")).await;
    visit("app.ns.test", Visit::Login).await;
    direct.bed.annotate("app", "block-access", Some("true")).await;
    visit("app.ns.test", Visit::Blocked).await;
    direct.bed.annotate("app", "sso", None).await;
    direct.bed.annotate("app", "block-access", None).await;
    visit("app.ns.test", served("app", 80)).await;
    for (annotation, expected) in [("sso", Visit::Login), ("block-access", Visit::Blocked)] {
        let annotations = json!({format!("pangolin.ingress.k8s.io/{annotation}"): "true"});
        let spec = json!({"ingressClassName": "pangolin", "rules": rules(&["secret.ns.test"])});
        direct.bed.create("secret", &annotations, spec).await;
        visit("secret.ns.test", expected.clone()).await;
        // A change of its backend opens nothing in between.
        let backend = json!([{"host": "secret.ns.test", "http": {"paths": [path("/", "Prefix", "api", 9000)]}}]);
        direct.bed.patch("secret", json!({"spec": {"rules": backend}})).await;
        let routed = Answer::Served(vec![format!("api.{}.svc.cluster.local:9000", direct.bed.namespace)]);
        eventually("the other backend", PATIENCE, || async {
            let seen = server.get("secret.ns.test", "/");
            if seen == routed { Ok(()) } else { Err(seen) }
        }).await;
        assert_eq!(server.visit("secret.ns.test", "/"), expected);
        direct.bed.delete("secret").await;
        visit("secret.ns.test", Visit::Open(Answer::NoRouter)).await;
    }
    assert_eq!(*entered.lock().unwrap(), Vec::<String>::new(), "it was open after these writes");
}
}
