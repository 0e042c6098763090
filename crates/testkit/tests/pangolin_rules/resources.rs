//! Create, update and delete of resources.

use super::*;

/// "legacy pair http+protocol / `mode: http` / both: 201 each; contradictory legacy + mode: mode wins"; "neither / `http:true` alone: 400"; "`http:true, protocol:udp`: 400".
#[tokio::test]
async fn a_create_takes_the_older_pair_or_a_mode() {
    let (server, caller) = server().await;
    let create = async |more: Value| {
        let mut body = json!({ "name": "a", "domainId": "d-ns" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        caller.call("PUT", "/v1/org/home-org/resource", Some(body)).await
    };
    for (more, expected) in [
        (json!({ "http": true, "protocol": "tcp" }), 201),
        (json!({ "mode": "http" }), 201),
        (json!({ "http": true, "protocol": "tcp", "mode": "http" }), 201),
        (json!({ "http": true, "protocol": "udp" }), 400),
        (json!({ "http": true, "protocol": "tcp", "mode": "ssh" }), 201),
    ] {
        assert_eq!(create(more.clone()).await.0, expected, "{more}");
    }
    assert_eq!(server.state().resources.values().next_back().unwrap().mode, "ssh");
    for more in [json!({}), json!({ "http": true })] {
        let (status, body) = create(more).await;
        assert_eq!(
            (status, message(&body)),
            (400, "Validation error: mode is required when deprecated fields are not provided")
        );
    }
}

/// "extra sso, ssl, enabled, siteId, niceId, targets, headers: 400 unrecognized key"; "name missing, \"\", 256 chars: 400; non-ASCII and repeated names accepted".
#[tokio::test]
async fn a_create_is_strict_about_its_keys_and_its_name() {
    let (_server, caller) = server().await;
    for key in ["sso", "ssl", "enabled", "siteId", "niceId", "targets", "headers"] {
        let (status, body) = caller.create("d-ns", json!({ key: true })).await;
        assert_eq!((status, message(&body)), (400, format!("Validation error: Unrecognized key: \"{key}\"").as_str()));
    }
    for (name, expected) in
        [(String::new(), 400), ("x".repeat(256), 400), ("Ünï".to_owned(), 201), ("Ünï".to_owned(), 201)]
    {
        assert_eq!(caller.create("d-ns", json!({ "name": name })).await.0, expected, "{name}");
    }
}

/// "created row: ssl true, enabled true, `sso: null` in the create answer, but `GET /resource/{id}` right after says `sso: true` (effective value)".
#[tokio::test]
async fn a_new_resource_is_protected_although_its_answer_shows_nothing() {
    let (_server, caller) = server().await;
    let (_, body) = caller.create("d-ns", json!({})).await;
    let made = &body["data"];
    assert_eq!((&made["ssl"], &made["enabled"], &made["sso"]), (&json!(true), &json!(true), &json!(null)));
    assert_eq!(caller.resource(made["resourceId"].as_i64().unwrap()).await["sso"], json!(true));
}

/// "domain unknown / not verified: 400 \"Domain with ID … not found\" / \"… is not verified\""; "domain that exists but belongs only to another org: 201".
#[tokio::test]
async fn a_domain_has_to_be_verified_but_not_ones_own() {
    let (_server, caller) = server().await;
    let (unknown, open) = (caller.create("nope", json!({})).await, caller.create("d-open", json!({})).await);
    assert_eq!((unknown.0, message(&unknown.1)), (400, "Domain with ID nope not found"));
    assert_eq!((open.0, message(&open.1)), (400, "Domain with ID d-open is not verified"));
    assert_eq!(caller.create("d-other", json!({})).await.0, 201);
}

/// "fullDomain already used by an HTTP resource, same org, other org, other letter case: 201 on 1.22"; "http vs inference (either order): 409; inference vs inference: 201; ssh vs http: 201".
#[tokio::test]
async fn hosts_are_only_refused_between_http_and_inference() {
    let (_server, caller) = server().await;
    let mut seen = Vec::new();
    for (sub, mode) in [
        ("a", "http"),
        ("A", "http"),
        ("a", "ssh"),
        ("a", "inference"),
        ("b", "inference"),
        ("b", "inference"),
        ("b", "http"),
    ] {
        let body = json!({ "name": "a", "domainId": "d-ns", "subdomain": sub, "mode": mode });
        seen.push(caller.call("PUT", "/v1/org/home-org/resource", Some(body)).await.0);
    }
    assert_eq!(seen, [201, 201, 201, 409, 201, 201, 409]);
}

/// "subdomain with `_`, space, leading `-`, trailing dot, non-ASCII, `@`: 400 \"Invalid subdomain\""; "`a.b.c`, punycode label, 64-character label: 201 (no DNS length check)".
#[tokio::test]
async fn a_subdomain_is_letters_digits_and_hyphens_of_any_length() {
    let (_server, caller) = server().await;
    for sub in ["a_b", "a b", "-a", "a.", "ä", "@"] {
        let (status, body) = caller.create("d-ns", json!({ "subdomain": sub })).await;
        assert_eq!((status, message(&body)), (400, "Invalid subdomain"), "{sub}");
    }
    for sub in ["a.b.c", "xn--4ca", &"x".repeat(64)] {
        assert_eq!(caller.create("d-ns", json!({ "subdomain": sub })).await.0, 201, "{sub}");
    }
}

/// "upper case: 201; subdomain column keeps the case as sent, fullDomain is lower-cased"; "subdomain holding the whole host: 201, becomes `s1.wild.test.wild.test`".
#[tokio::test]
async fn the_subdomain_keeps_its_case_and_the_host_does_not() {
    let (_server, caller) = server().await;
    let id = caller.created("d-ns", "App").await;
    let row = caller.resource(id).await;
    assert_eq!((&row["subdomain"], &row["fullDomain"]), (&json!("App"), &json!("app.ns.test")));
    let id = caller.created("d-wild", "s1.wild.test").await;
    assert_eq!(caller.resource(id).await["fullDomain"], json!("s1.wild.test.wild.test"));
}

/// The table of domain types: wildcard null/absent apex, "" 400, "s1" 201; ns "" apex; cname drops the subdomain ("still syntax-checked").
#[tokio::test]
async fn the_type_of_a_domain_decides_about_its_apex() {
    let (_server, caller) = server().await;
    let absent = json!({});
    let of = |value: Value| json!({ "subdomain": value });
    for (domain, more, expected) in [
        ("d-wild", of(json!(null)), Ok("wild.test")),
        ("d-wild", absent.clone(), Ok("wild.test")),
        ("d-wild", of(json!("")), Err(400)),
        ("d-wild", of(json!("s1")), Ok("s1.wild.test")),
        ("d-ns", of(json!(null)), Ok("ns.test")),
        ("d-ns", absent.clone(), Ok("ns.test")),
        ("d-ns", of(json!("")), Ok("ns.test")),
        ("d-ns", of(json!("s1")), Ok("s1.ns.test")),
        ("d-cname", of(json!(null)), Ok("one.cname.test")),
        ("d-cname", of(json!("")), Ok("one.cname.test")),
        ("d-cname", of(json!("s1")), Ok("one.cname.test")),
        ("d-cname", of(json!("a_b")), Err(400)),
    ] {
        let (status, body) = caller.create(domain, more.clone()).await;
        let host = body["data"]["fullDomain"].as_str();
        assert_eq!(if status == 201 { Ok(host.unwrap()) } else { Err(status) }, expected, "{domain} {more}");
    }
}

/// "`{}` / no body: 400 \"At least one field must be provided for update\""; "`mode`, `http`, `protocol`, `proxyPort`, unknown: 400".
#[tokio::test]
async fn an_update_is_strict_and_never_empty() {
    let (_server, caller) = server().await;
    let id = caller.created("d-ns", "a").await;
    let (status, body) = caller.update(id, json!({})).await;
    assert_eq!((status, message(&body)), (400, "Validation error: At least one field must be provided for update"));
    for key in ["mode", "http", "protocol", "proxyPort", "foo"] {
        assert_eq!(caller.update(id, json!({ key: true })).await.0, 400, "{key}");
    }
}

/// "subdomain alone (also null): 200; subdomain changes, fullDomain does not"; "domainId alone: 200; moves to the apex"; "domainId + subdomain: both change";
/// "domainId of another org: 200"; "to a host already in use: 200 on 1.22"; "to the dashboard host / wildcard: 409 / 403".
#[tokio::test]
async fn a_host_changes_only_with_domain_and_subdomain_together() {
    let (_server, caller) = server().await;
    caller.created("d-ns", "taken").await;
    let id = caller.created("d-ns", "a").await;
    for (change, expected, host) in [
        (json!({ "subdomain": "b" }), 200, "a.ns.test"),
        (json!({ "subdomain": null }), 200, "a.ns.test"),
        (json!({ "domainId": "d-ns", "subdomain": "c" }), 200, "c.ns.test"),
        (json!({ "domainId": "d-wild" }), 200, "wild.test"),
        (json!({ "domainId": "d-wild", "subdomain": "" }), 400, "wild.test"),
        (json!({ "domainId": "d-ns", "subdomain": "" }), 200, "ns.test"),
        (json!({ "domainId": "d-other", "subdomain": "x" }), 200, "x.other.test"),
        (json!({ "domainId": "d-ns", "subdomain": "taken" }), 200, "taken.ns.test"),
        (json!({ "domainId": "d-ns", "subdomain": "pangolin" }), 409, "taken.ns.test"),
        (json!({ "domainId": "d-ns", "subdomain": "*" }), 403, "taken.ns.test"),
    ] {
        assert_eq!(caller.update(id, change.clone()).await.0, expected, "{change}");
        assert_eq!(caller.resource(id).await["fullDomain"], json!(host), "{change}");
    }
}

/// "headers: stored; the update answer returns headers as a JSON string, GET as an array; empty array and empty value accepted; extra key in an item 400";
/// "tlsServerName \"\" / garbage: 200, stored as \"\" (not null) / 400"; "maintenanceModeEnabled: 200 but silently not applied"; "skipToIdpId of a missing idp: 500".
#[tokio::test]
async fn headers_are_text_in_the_answer_and_a_list_afterwards() {
    let (_server, caller) = server().await;
    let id = caller.created("d-ns", "a").await;
    let headers = json!([{ "name": "X-A", "value": "" }]);
    let (_, body) = caller.update(id, json!({ "headers": headers })).await;
    assert_eq!(serde_json::from_str::<Value>(body["data"]["headers"].as_str().unwrap()).unwrap(), headers);
    assert_eq!(caller.resource(id).await["headers"], headers);
    for (change, expected) in [
        (json!({ "headers": [] }), 200),
        (json!({ "headers": [{ "name": "a", "value": "b", "more": 1 }] }), 400),
        (json!({ "tlsServerName": "" }), 200),
        (json!({ "tlsServerName": "a b!" }), 400),
        (json!({ "maintenanceModeEnabled": true }), 200),
        (json!({ "skipToIdpId": 7 }), 500),
    ] {
        assert_eq!(caller.update(id, change.clone()).await.0, expected, "{change}");
    }
    let row = caller.resource(id).await;
    assert_eq!((&row["tlsServerName"], row.get("maintenanceModeEnabled")), (&json!(""), None));
}

/// "niceId: same value again / taken / taken in another org / differs only in case: 200 / 409 / 200 / 200"; "niceId with `_`, `.`, space, \"\", 256 chars: 400; `-a` and `9` accepted".
#[tokio::test]
async fn a_nice_id_is_unique_in_its_organisation_and_by_case() {
    let (server, caller) = server().await;
    let (one, two) = (caller.created("d-ns", "a").await, caller.created("d-ns", "b").await);
    let theirs = caller.created("d-ns", "c").await;
    server.state().resources.get_mut(&theirs).unwrap().org = "other-org".to_owned();
    server.state().resources.get_mut(&theirs).unwrap().nice_id = "theirs".to_owned();
    assert_eq!(caller.update(one, json!({ "niceId": "mine" })).await.0, 200);
    assert_eq!(caller.update(one, json!({ "niceId": "mine" })).await.0, 200);
    let (status, body) = caller.update(two, json!({ "niceId": "mine" })).await;
    assert_eq!((status, message(&body)), (409, "A resource with niceId \"mine\" already exists"));
    for (nice_id, expected) in
        [("theirs", 200), ("Mine", 200), ("-a", 200), ("9", 200), ("a_b", 400), ("a.b", 400), ("a b", 400), ("", 400)]
    {
        assert_eq!(caller.update(two, json!({ "niceId": nice_id })).await.0, expected, "{nice_id:?}");
    }
    assert_eq!(caller.update(two, json!({ "niceId": "x".repeat(256) })).await.0, 400);
}

/// "shared policy attached, update omits resourcePolicyId: 200; the resource-level password was deleted. Sending the current id: 403 without licence"; "same, GET: `sso: null` until the resource has its own value".
#[tokio::test]
async fn an_update_that_omits_the_shared_policy_takes_the_password_away() {
    let (server, caller) = server().await;
    let id = caller.created("d-ns", "a").await;
    {
        let mut state = server.state();
        let row = state.resources.get_mut(&id).unwrap();
        (row.policy, row.password, row.sso) = (Some(5), true, None);
    }
    assert_eq!(caller.resource(id).await["sso"], json!(null));
    assert_eq!(caller.update(id, json!({ "enabled": true, "resourcePolicyId": 5 })).await.0, 403);
    assert!(server.state().resources[&id].password);
    assert_eq!(caller.update(id, json!({ "enabled": true })).await.0, 200);
    assert!(!server.state().resources[&id].password);
    let licensed = Pangolin::with(Options { licensed: true, ..Options::default() }).await;
    let caller = Caller::new(&licensed, "all.secret");
    let id = caller.created("d-ns", "a").await;
    licensed.state().resources.get_mut(&id).unwrap().policy = Some(5);
    assert_eq!(caller.update(id, json!({ "enabled": true, "resourcePolicyId": 5 })).await.0, 200);
}

/// "name + niceId + sso + domainId + subdomain + enabled + ssl + null headers/tlsServerName/setHostHeader in one update: 200, all applied"; "update refused with 409 (niceId) or 400 (domain): nothing of it applied".
#[tokio::test]
async fn one_update_changes_everything_or_nothing() {
    let (_server, caller) = server().await;
    let (one, two) = (caller.created("d-ns", "a").await, caller.created("d-ns", "b").await);
    caller.update(two, json!({ "niceId": "taken" })).await;
    let whole = json!({
        "name": "n", "niceId": "mine", "sso": false, "domainId": "d-wild", "subdomain": "w", "enabled": false, "ssl": false,
        "headers": null, "tlsServerName": null, "setHostHeader": null,
    });
    assert_eq!(caller.update(one, whole).await.0, 200);
    let row = caller.resource(one).await;
    assert_eq!(
        json!([row["name"], row["niceId"], row["sso"], row["fullDomain"], row["enabled"], row["ssl"]]),
        json!(["n", "mine", false, "w.wild.test", false, false])
    );
    for bad in [json!({ "name": "other", "niceId": "taken" }), json!({ "name": "other", "domainId": "nope" })] {
        assert!(caller.update(one, bad).await.0 >= 400);
        assert_eq!(caller.resource(one).await["name"], json!("n"));
    }
}

/// "delete, delete again: 200 data:null, then 404; its targets answer 404 afterwards".
#[tokio::test]
async fn a_delete_takes_the_targets_with_it() {
    let (_server, caller) = server().await;
    let id = caller.created("d-ns", "a").await;
    let (_, body) = caller.target(id, json!({})).await;
    let (status, answer) = caller.call("DELETE", &format!("/v1/resource/{id}"), None).await;
    assert_eq!((status, &answer["data"]), (200, &Value::Null));
    assert_eq!(caller.call("DELETE", &format!("/v1/resource/{id}"), None).await.0, 404);
    assert_eq!(caller.status(&format!("/v1/target/{}", body["data"]["targetId"])).await, 404);
}
