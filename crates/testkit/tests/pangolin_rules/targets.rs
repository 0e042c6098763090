//! Targets, and what the edge makes of them.

use super::*;
use signpost_sandbox::edge::Answer;

fn id_of(body: &Value) -> i64 {
    body["data"]["targetId"].as_i64().unwrap()
}

/// "create on newt / local: 201; newt gets an internalPort, local has internalPort null".
#[tokio::test]
async fn a_target_of_a_newt_site_gets_a_port() {
    let (_server, caller) = server().await;
    let id = caller.created("d-ns", "a").await;
    let (_, newt) = caller.target(id, json!({})).await;
    let (_, local) = caller.target(id, json!({ "siteId": 1 })).await;
    assert!(newt["data"]["internalPort"].is_i64() && local["data"]["internalPort"].is_null());
}

/// "missing siteId, ip or port; numeric strings; unknown key; priority 0 or 1001: 400"; "priority absent or null: 201, stored 100"; "method absent, null, or any word: 201".
#[tokio::test]
async fn a_target_is_strict_about_numbers_and_not_about_words() {
    let (_server, caller) = server().await;
    let id = caller.created("d-ns", "a").await;
    for more in [
        json!({ "siteId": "absent" }),
        json!({ "ip": "absent" }),
        json!({ "port": "absent" }),
        json!({ "port": "80" }),
        json!({ "port": 0 }),
        json!({ "foo": 1 }),
        json!({ "priority": 0 }),
        json!({ "priority": 1001 }),
        json!({ "pathMatchType": "glob" }),
    ] {
        assert_eq!(caller.target(id, more.clone()).await.0, 400, "{more}");
    }
    for more in [
        json!({ "priority": "absent" }),
        json!({ "priority": null }),
        json!({ "method": "gopher" }),
        json!({ "method": null }),
    ] {
        let (status, body) = caller.target(id, more.clone()).await;
        assert_eq!((status, &body["data"]["priority"]), (201, &json!(100)), "{more}");
    }
}

/// "missing site: 404; site of another org: 201"; "wireguard site, ip outside subnet: 400 on create, nothing stored; update does not check"; "exact duplicate: 201".
#[tokio::test]
async fn a_site_of_another_organisation_is_accepted() {
    let (server, caller) = server().await;
    let id = caller.created("d-ns", "a").await;
    assert_eq!(caller.target(id, json!({ "siteId": 99 })).await.0, 404);
    assert_eq!(caller.target(id, json!({ "siteId": 4 })).await.0, 201);
    assert_eq!(caller.target(id, json!({ "siteId": 3 })).await.0, 400);
    let (_, inside) = caller.target(id, json!({ "siteId": 3, "ip": "10.9.0.7" })).await;
    let outside = json!({ "siteId": 3, "ip": "10.8.0.7", "port": 80 });
    assert_eq!(caller.change_target(id_of(&inside), outside).await.0, 200);
    for _ in 0..2 {
        assert_eq!(caller.target(id, json!({})).await.0, 201);
    }
    assert_eq!(server.state().targets.len(), 4);
}

/// "ip: DNS name, single label, underscore, `::1`: 201; \"\" and `10.0.0.300` also 201; `[::1]`, trailing dot, URL, space, leading `-`, non-ASCII, `*`, label over 63: 400".
#[tokio::test]
async fn an_address_is_checked_loosely() {
    let (_server, caller) = server().await;
    let id = caller.created("d-ns", "a").await;
    for ip in ["a.b.svc", "app", "my_app", "::1", "", "10.0.0.300"] {
        assert_eq!(caller.target(id, json!({ "ip": ip })).await.0, 201, "{ip:?}");
    }
    for ip in ["[::1]", "a.b.", "http://a", "a b", "-a", "ä", "*", &"x".repeat(64)] {
        assert_eq!(caller.target(id, json!({ "ip": ip })).await.0, 400, "{ip:?}");
    }
}

/// "path without slash, \"\", any regex text, 3,000 characters, path without match type, match type without path, rewrite without path: all 201, nothing is validated".
#[tokio::test]
async fn paths_are_not_validated() {
    let (_server, caller) = server().await;
    let id = caller.created("d-ns", "a").await;
    for more in [
        json!({ "path": "api", "pathMatchType": "prefix" }),
        json!({ "path": "", "pathMatchType": "prefix" }),
        json!({ "path": "^/(", "pathMatchType": "regex" }),
        json!({ "path": "x".repeat(3000), "pathMatchType": "exact" }),
        json!({ "path": "/a`) || Host(`b" , "pathMatchType": "prefix" }),
        json!({ "path": "/api" }),
        json!({ "pathMatchType": "exact" }),
        json!({ "rewritePath": "/", "rewritePathType": "stripPrefix" }),
    ] {
        assert_eq!(caller.target(id, more.clone()).await.0, 201, "{more}");
    }
}

/// "update without siteId or ip / `{}` / unknown: 400"; "priority null: 400 (create accepts null)"; "method: update: 1 to 10 characters".
#[tokio::test]
async fn an_update_of_a_target_needs_its_site_and_address() {
    let (_server, caller) = server().await;
    let resource = caller.created("d-ns", "a").await;
    let id = id_of(&caller.target(resource, json!({})).await.1);
    for body in [
        json!({}),
        json!({ "ip": "a" }),
        json!({ "siteId": 2 }),
        json!({ "siteId": 2, "ip": "a", "foo": 1 }),
        json!({ "siteId": 2, "ip": "a", "priority": null }),
        json!({ "siteId": 2, "ip": "a", "method": "" }),
        json!({ "siteId": 2, "ip": "a", "method": "x".repeat(11) }),
    ] {
        assert_eq!(caller.change_target(id, body.clone()).await.0, 400, "{body}");
    }
}

/// "update siteId + ip + port only: 200; new internalPort each time, even for identical content; path, match, rewrite, priority, method, enabled kept; hcEnabled false;
/// hcHeaders null; other hc fields kept"; "site changed to local: 200; an internalPort is allocated anyway".
#[tokio::test]
async fn every_update_moves_the_port_and_switches_the_check_off() {
    let (_server, caller) = server().await;
    let resource = caller.created("d-ns", "a").await;
    let more = json!({
        "path": "/x", "pathMatchType": "prefix", "rewritePath": "/", "rewritePathType": "stripPrefix", "priority": 300, "enabled": false,
        "hcEnabled": true, "hcHostname": "app", "hcInterval": 9, "hcHeaders": [{ "name": "a", "value": "b" }],
    });
    let (_, made) = caller.target(resource, more).await;
    let id = id_of(&made);
    let mut ports = vec![made["data"]["internalPort"].as_i64().unwrap()];
    for site in [2, 2, 1] {
        let (status, body) =
            caller.change_target(id, json!({ "siteId": site, "ip": "app.demo.svc", "port": 80 })).await;
        assert_eq!(status, 200);
        ports.push(body["data"]["internalPort"].as_i64().unwrap());
        let row = &body["data"];
        let kept = json!([
            row["path"],
            row["pathMatchType"],
            row["rewritePath"],
            row["priority"],
            row["method"],
            row["enabled"],
            row["hcInterval"]
        ]);
        assert_eq!(kept, json!(["/x", "prefix", "/", 300, "http", false, 9]));
        assert_eq!((&row["hcEnabled"], &row["hcHeaders"]), (&json!(false), &json!(null)));
    }
    ports.dedup();
    assert_eq!(ports.len(), 4);
}

/// "same, on a target whose check is `unhealthy`: hcEnabled false but hcHealth stays `unhealthy` (1.18.2 and later). Explicit `hcEnabled:false` sets `unknown`".
#[tokio::test]
async fn a_check_that_is_left_out_freezes_the_target_as_unhealthy() {
    for (version, frozen) in [(Version::V1_16, false), (Version::V1_18, true), (Version::V1_22, true)] {
        let (server, caller) = of(version).await;
        let resource = caller.created("d-ns", "a").await;
        let (_, made) = caller.target(resource, json!({ "hcEnabled": true, "hcHostname": "app" })).await;
        let id = id_of(&made);
        server.set_health(id, "unhealthy");
        let bare = json!({ "siteId": 2, "ip": "app.demo.svc", "port": 80 });
        caller.change_target(id, bare.clone()).await;
        assert_eq!(server.state().targets[&id].health == "unhealthy", frozen, "{version:?}");
        let expected = if frozen { Answer::NoServer } else { Answer::Served(vec!["app.demo.svc:80".to_owned()]) };
        assert_eq!(server.get("a.ns.test", "/"), expected);
        let mut explicit = bare;
        explicit["hcEnabled"] = json!(false);
        caller.change_target(id, explicit).await;
        assert_eq!(server.get("a.ns.test", "/"), Answer::Served(vec!["app.demo.svc:80".to_owned()]));
    }
}

/// "hcEnabled without hcHostname: 400; 201 on 1.19.0 and older"; "hcEnabled omitted while on + hcHostname null: 400".
#[tokio::test]
async fn a_check_needs_its_hostname() {
    let (_server, caller) = server().await;
    let resource = caller.created("d-ns", "a").await;
    assert_eq!(caller.target(resource, json!({ "hcEnabled": true })).await.0, 400);
    let (_, made) = caller.target(resource, json!({ "hcEnabled": true, "hcHostname": "app" })).await;
    let omitted = json!({ "siteId": 2, "ip": "a", "port": 80, "hcHostname": null });
    assert_eq!(caller.change_target(id_of(&made), omitted).await.0, 400);
}

/// "pathMatchType null: clears match type and rewrite, keeps path"; "path null: clears path only".
#[tokio::test]
async fn a_null_clears_more_than_it_names_or_less() {
    let (_server, caller) = server().await;
    let resource = caller.created("d-ns", "a").await;
    let more = json!({ "path": "/x", "pathMatchType": "prefix", "rewritePath": "/", "rewritePathType": "stripPrefix" });
    let id = id_of(&caller.target(resource, more.clone()).await.1);
    let shown =
        |body: &Value| json!([body["data"]["path"], body["data"]["pathMatchType"], body["data"]["rewritePath"]]);
    let (_, body) = caller.change_target(id, json!({ "siteId": 2, "ip": "a", "pathMatchType": null })).await;
    assert_eq!(shown(&body), json!(["/x", null, null]));
    let id = id_of(&caller.target(resource, more).await.1);
    let (_, body) = caller.change_target(id, json!({ "siteId": 2, "ip": "a", "path": null })).await;
    assert_eq!(shown(&body), json!([null, "prefix", "/"]));
}

/// "hcHeaders: create answer: JSON string; get and list: array"; "`DELETE /resource/{r}/target/{t}`: HTML 404; `DELETE /target/{t}`: 200, then 404".
#[tokio::test]
async fn headers_of_a_check_are_text_in_the_answer_and_a_list_afterwards() {
    let (_server, caller) = server().await;
    let resource = caller.created("d-ns", "a").await;
    let headers = json!([{ "name": "a", "value": "b" }]);
    let (_, made) =
        caller.target(resource, json!({ "hcEnabled": true, "hcHostname": "x", "hcHeaders": headers })).await;
    assert!(made["data"]["hcHeaders"].is_string());
    let id = id_of(&made);
    assert_eq!(caller.get(&format!("/v1/target/{id}")).await.1["data"]["hcHeaders"], headers);
    assert_eq!(caller.call("DELETE", &format!("/v1/resource/{resource}/target/{id}"), None).await, (404, Value::Null));
    for expected in [200, 404] {
        assert_eq!(caller.call("DELETE", &format!("/v1/target/{id}"), None).await.0, expected);
    }
}

/// "method null, ip \"\": router with an empty server list"; "IPv6 ip on a local or wireguard site: URL without brackets, unusable".
#[tokio::test]
async fn targets_that_cannot_be_dialled_leave_an_empty_router() {
    for more in [json!({ "method": null }), json!({ "ip": "" }), json!({ "siteId": 1, "ip": "::1" })] {
        let (server, caller) = server().await;
        let resource = caller.created("d-ns", "a").await;
        caller.target(resource, more.clone()).await;
        assert_eq!(server.get("a.ns.test", "/"), Answer::NoServer, "{more}");
    }
}
