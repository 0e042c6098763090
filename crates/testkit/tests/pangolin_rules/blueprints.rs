//! Blueprints: convenient, and not one transaction.

use data_encoding::BASE64;

use super::*;

pub(crate) async fn apply(caller: &Caller, document: Value) -> (u16, Value) {
    let text = BASE64.encode(document.to_string().as_bytes());
    caller.call("PUT", "/v1/org/home-org/blueprint", Some(json!({ "blueprint": text }))).await
}

pub(crate) fn entry(host: &str) -> Value {
    let targets = json!([{ "site": "cluster", "hostname": "app", "port": 80, "method": "http" }]);
    json!({ "name": host, "protocol": "http", "full-domain": host, "targets": targets })
}

/// "base64 of JSON: 201 \"Blueprint applied successfully\", data null; YAML or bad base64: 400; extra body key: 400; key without applyBlueprint: 403".
#[tokio::test]
async fn a_blueprint_is_base64_of_json() {
    let (server, caller) = server().await;
    let (status, body) = apply(&caller, json!({ "proxy-resources": { "a": entry("a.ns.test") } })).await;
    assert_eq!((status, message(&body), &body["data"]), (201, "Blueprint applied successfully", &Value::Null));
    for body in [
        json!({ "blueprint": "%" }),
        json!({ "blueprint": BASE64.encode(b"a: b") }),
        json!({ "blueprint": "e30=", "more": 1 }),
    ] {
        assert_eq!(caller.call("PUT", "/v1/org/home-org/blueprint", Some(body)).await.0, 400);
    }
    assert_eq!(apply(&Caller::new(&server, Pangolin::KEY), json!({})).await.0, 403);
}

/// "new resource: niceId = key, sso off, ssl on. Key not validated: dots and underscores go through"; "host in upper case: fullDomain stored in upper case".
#[tokio::test]
async fn a_blueprint_creates_an_open_resource_under_any_key() {
    let (server, caller) = server().await;
    apply(&caller, json!({ "public-resources": { "a_b.c": entry("A.ns.test") } })).await;
    let state = server.state();
    let row = state.resources.values().next().unwrap();
    assert_eq!(
        (row.nice_id.as_str(), row.sso, row.ssl, row.full_domain.as_str()),
        ("a_b.c", Some(false), true, "A.ns.test")
    );
}

/// "identical document again: same ids, internalPort unchanged"; "fewer targets / changed target: matched by position, rest deleted; omitted resources stay".
#[tokio::test]
async fn a_blueprint_again_keeps_ids_and_ports_and_matches_targets_by_position() {
    let (server, caller) = server().await;
    let mut two = entry("a.ns.test");
    two["targets"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "site": "cluster", "hostname": "b", "port": 81, "method": "http" }));
    let seen = || -> Vec<_> { server.state().targets.values().map(|row| (row.id, row.internal_port)).collect() };
    apply(&caller, json!({ "public-resources": { "a": two } })).await;
    let before = seen();
    apply(&caller, json!({ "public-resources": { "a": two } })).await;
    assert_eq!((seen(), before.len()), (before.clone(), 2));
    apply(&caller, json!({ "public-resources": { "a": entry("a.ns.test") } })).await;
    assert_eq!(seen(), before[..1]);
    apply(&caller, json!({ "public-resources": { "b": entry("b.ns.test") } })).await;
    assert_eq!(server.state().resources.len(), 2);
}

/// "one good + one bad resource: 400, but the good one was created (all nine versions). A failing site left a resource with no targets, sso off".
#[tokio::test]
async fn a_refused_blueprint_leaves_what_it_had_written() {
    let (server, caller) = server().await;
    let mut bad = entry("b.ns.test");
    bad["targets"][0]["site"] = json!("nowhere");
    assert_eq!(apply(&caller, json!({ "public-resources": { "a": entry("a.ns.test"), "b": bad } })).await.0, 400);
    let state = server.state();
    assert_eq!((state.resources.len(), state.targets.len()), (2, 1));
}

/// "unknown, unverified or other org's domain: 400 \"Domain not found for full-domain\""; "host already used: 201, duplicate, on 1.22; 400 on 1.11 to 1.21.1. Twice in one document: 400".
#[tokio::test]
async fn a_blueprint_checks_the_domain_and_its_organisation() {
    for (version, again) in [(Version::V1_21, 400), (Version::V1_22, 201)] {
        let (_server, caller) = of(version).await;
        for host in ["a.nowhere.test", "a.open.test", "a.other.test"] {
            let (status, body) = apply(&caller, json!({ "public-resources": { "a": entry(host) } })).await;
            assert_eq!((status, message(&body)), (400, "Domain not found for full-domain"), "{host}");
        }
        apply(&caller, json!({ "public-resources": { "a": entry("a.ns.test") } })).await;
        assert_eq!(apply(&caller, json!({ "public-resources": { "b": entry("a.ns.test") } })).await.0, again);
        let twice = json!({ "public-resources": { "c": entry("c.ns.test"), "d": entry("c.ns.test") } });
        assert_eq!(apply(&caller, twice).await.0, 400);
    }
}

/// "API change of sso, then re-apply: sso back to off"; "niceId renamed by API, old key re-applied: a second resource with the same host".
#[tokio::test]
async fn a_blueprint_undoes_what_others_changed() {
    let (server, caller) = server().await;
    let document = json!({ "public-resources": { "a": entry("a.ns.test") } });
    apply(&caller, document.clone()).await;
    let id = *server.state().resources.keys().next().unwrap();
    caller.update(id, json!({ "sso": true })).await;
    apply(&caller, document.clone()).await;
    assert_eq!(server.state().resources[&id].sso, Some(false));
    caller.update(id, json!({ "niceId": "renamed" })).await;
    apply(&caller, document).await;
    assert_eq!(server.state().resources.len(), 2);
}
