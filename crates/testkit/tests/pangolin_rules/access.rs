//! Keys, the envelope, and what is answered outside the API.

use super::*;

/// "`GET /v1`, `GET /v1/` without key: 200, body is only `{"message":"Healthy"}`: not in the envelope".
#[tokio::test]
async fn the_probe_needs_no_key_and_has_no_envelope() {
    let (_server, mut caller) = server().await;
    caller.key = None;
    for path in ["/v1", "/v1/"] {
        assert_eq!(caller.get(path).await, (200, json!({ "message": "Healthy" })));
    }
}

/// "no Authorization / `Basic` / `Bearer ` empty / lower-case `bearer x.y`: 401 \"API key required\" (scheme is case-sensitive)".
#[tokio::test]
async fn a_request_without_a_bearer_key_is_unauthorized() {
    let (_server, mut caller) = server().await;
    caller.key = None;
    for value in ["", "Basic all.secret", "Bearer ", "bearer all.secret"] {
        let request = caller.request("GET", "/v1/org/home-org/sites").header("authorization", value);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 401, "{value:?}");
        let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        assert_eq!(message(&body), "API key required");
    }
}

/// "unknown key id: 401"; "right id, wrong secret: 401"; "`Bearer <id>` without a dot: 500"; "`Bearer id.secret.extra`: 200".
#[tokio::test]
async fn a_key_is_an_id_and_a_secret_and_a_malformed_one_is_answered_with_500() {
    let (server, _) = server().await;
    for (key, expected) in [("nobody.secret", 401), ("all.wrong", 401), ("all", 500), ("all.secret.extra", 200)] {
        assert_eq!(Caller::new(&server, key).status("/v1/org/home-org/sites").await, expected, "{key}");
    }
}

/// "key lacks the action: 403"; "root key without actions: 403: root does not imply actions"; "org key on `GET /orgs`: 403 \"Key does not have root access\"".
#[tokio::test]
async fn every_call_needs_its_action_with_a_root_key_too() {
    let (server, _) = server().await;
    for key in ["none.secret", "powerless.secret"] {
        let (status, body) = Caller::new(&server, key).get("/v1/org/home-org/sites").await;
        assert_eq!((status, message(&body)), (403, "Key does not have permission perform this action"), "{key}");
    }
    let (status, body) = Caller::new(&server, "all.secret").get("/v1/orgs").await;
    assert_eq!((status, message(&body)), (403, "Key does not have root access"));
    assert_eq!(Caller::new(&server, "root.secret").status("/v1/orgs").await, 200);
    assert_eq!(Caller::new(&server, "root.secret").status("/v1/orgs?pageSize=1").await, 400);
}

/// "key of another org, or an org that does not exist: 403 \"Key does not have access to this organization\"".
#[tokio::test]
async fn a_foreign_organisation_is_answered_like_one_that_does_not_exist() {
    let (server, caller) = server().await;
    for (caller, org) in [(Caller::new(&server, "other.secret"), "home-org"), (caller, "nowhere")] {
        let (status, body) = caller.get(&format!("/v1/org/{org}/domains")).await;
        assert_eq!((status, message(&body)), (403, "Key does not have access to this organization"), "{org}");
    }
}

/// "root key, non-existing org, list sites/domains/resources: 200 with empty lists; create resource and `GET /org/{id}` there: 404".
#[tokio::test]
async fn a_root_key_sees_empty_lists_of_an_organisation_that_does_not_exist() {
    let (server, _) = server().await;
    let caller = Caller::new(&server, "root.secret");
    for list in ["sites", "domains", "resources"] {
        let (status, body) = caller.get(&format!("/v1/org/nowhere/{list}")).await;
        assert_eq!((status, &body["data"][list]), (200, &json!([])));
    }
    assert_eq!(caller.status("/v1/org/nowhere").await, 404);
    let body = json!({ "name": "a", "domainId": "d-ns", "http": true, "protocol": "tcp" });
    let (status, body) = caller.call("PUT", "/v1/org/nowhere/resource", Some(body)).await;
    assert_eq!((status, message(&body)), (404, "Organization with ID nowhere not found"));
}

/// "object id of another org: 403 (so existence is visible); missing id: 404 before the action check, even for a key with no action".
#[tokio::test]
async fn a_missing_object_is_404_before_and_a_foreign_one_403() {
    let (server, caller) = server().await;
    let id = caller.created("d-ns", "a").await;
    assert_eq!(Caller::new(&server, "other.secret").status(&format!("/v1/resource/{id}")).await, 403);
    let powerless = Caller::new(&server, "none.secret");
    for path in ["/v1/resource/99", "/v1/target/99", "/v1/site/99"] {
        assert_eq!(powerless.status(path).await, 404, "{path}");
    }
}

/// "`GET /site/abc` / `GET /resource/abc`: 400 \"Invalid site ID\" / 404 \"Resource with ID abc not found\"".
#[tokio::test]
async fn an_id_that_is_not_a_number_is_400_for_a_site_and_404_for_a_resource() {
    let (_server, caller) = server().await;
    let (site, resource) = (caller.get("/v1/site/abc").await, caller.get("/v1/resource/abc").await);
    assert_eq!((site.0, message(&site.1)), (400, "Invalid site ID"));
    assert_eq!((resource.0, message(&resource.1)), (404, "Resource with ID abc not found"));
}

/// "unknown path under /v1 with a valid key; wrong method: 404 `text/html`"; "without a key: 401 JSON"; "outside /v1: 404 `text/html` without auth;
/// `/api/...`: 404 JSON envelope"; "get resource by niceId: HTML 404 although the OpenAPI document lists the first".
#[tokio::test]
async fn an_unknown_route_is_a_page_and_not_the_envelope() {
    let (_server, mut caller) = server().await;
    for (method, path) in
        [("GET", "/v1/nothing"), ("PATCH", "/v1/org/home-org/resource"), ("GET", "/v1/org/home-org/resource/app")]
    {
        let response = caller.request(method, path).send().await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
        assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/html"), "{path}");
    }
    caller.key = None;
    assert_eq!(caller.get("/v1/nothing").await.0, 401);
    for path in ["/", "/foo", "//v1/org/home-org/sites"] {
        assert_eq!(caller.get(path).await, (404, Value::Null), "{path}");
    }
    assert_eq!(caller.get("/api/v1/orgs").await.1["success"], json!(false));
}

/// "trailing slash, upper-case `/V1/...`: 200, same as canonical"; "get site by niceId: 200 works; 404 \"Site not found\"".
#[tokio::test]
async fn paths_are_taken_with_a_slash_at_the_end_and_in_upper_case() {
    let (_server, caller) = server().await;
    for path in ["/v1/org/home-org/sites/", "/V1/org/home-org/sites", "/v1/org/home-org/site/cluster"] {
        assert_eq!(caller.status(path).await, 200, "{path}");
    }
    let (status, body) = caller.get("/v1/org/home-org/site/nothing").await;
    assert_eq!((status, message(&body)), (404, "Site not found"));
}

/// "invalid JSON body, with or without key: 400 JSON (parsed before auth)"; "body over 100 kB: 413".
#[tokio::test]
async fn a_body_is_read_before_the_key() {
    let (_server, mut caller) = server().await;
    caller.key = None;
    for (body, expected) in [("{".to_owned(), 400), ("x".repeat(103_000), 413)] {
        let request = caller.request("PUT", "/v1/org/home-org/resource").header("content-type", "application/json");
        assert_eq!(request.body(body).send().await.unwrap().status(), expected);
    }
}

/// "create with no body or without JSON content type: 500 (update: 400)".
#[tokio::test]
async fn a_create_without_a_body_is_a_server_error_and_an_update_is_not() {
    let (_server, caller) = server().await;
    let id = caller.created("d-ns", "a").await;
    assert_eq!(caller.call("PUT", "/v1/org/home-org/resource", None).await.0, 500);
    assert_eq!(caller.call("POST", &format!("/v1/resource/{id}"), None).await.0, 400);
}

/// "every error: keys data:null, success:false, error:true, message, status, stack (null in production)".
#[tokio::test]
async fn errors_have_the_envelope_with_all_its_keys() {
    let (_server, caller) = server().await;
    let (_, body) = caller.get("/v1/resource/9").await;
    let expected = json!({
        "data": null, "success": false, "error": true, "message": "Resource with ID 9 not found", "status": 404, "stack": null,
    });
    assert_eq!(body, expected);
}

/// "repeat GET with `If-None-Match`: 304, empty body (weak ETag on every JSON answer)".
#[tokio::test]
async fn a_repeated_read_is_304_by_its_weak_tag() {
    let (_server, caller) = server().await;
    let first = caller.request("GET", "/v1/org/home-org/sites").send().await.unwrap();
    let tag = first.headers()["etag"].clone();
    assert!(tag.to_str().unwrap().starts_with("W/"));
    let again = caller.request("GET", "/v1/org/home-org/sites").header("if-none-match", tag).send().await.unwrap();
    assert_eq!(again.status(), 304);
    assert!(again.bytes().await.unwrap().is_empty());
}

/// "server closes idle connections after 5 s; reuse after 6.5 s gives a reset without answer".
#[tokio::test]
async fn an_idle_connection_is_closed_by_the_server() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = Pangolin::with(Options { idle: Duration::from_millis(100), ..Options::default() }).await;
    let address = server.url().trim_start_matches("http://").to_owned();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /v1/ HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut text = Vec::new();
    // Ends when the server closes; the answer allowed another request.
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("it is closed").unwrap();
    let text = String::from_utf8(text).unwrap().to_lowercase();
    assert!(text.starts_with("http/1.1 200") && !text.contains("connection: close"), "{text}");
}

/// "Our minimum permission set (13 actions) was enough for the whole flow: domains, sites, site by niceId, create, get, update (sso, niceId), targets,
/// delete. `GET /org/{id}` needs getOrg on top (403)". The site by niceId (`getSite`) and a target by its number (`getTarget`) are not needed here: 11 are.
#[tokio::test]
async fn the_minimum_of_permissions_is_enough_for_the_whole_flow() {
    let (server, _) = server().await;
    let caller = Caller::new(&server, Pangolin::KEY);
    for path in ["domains", "sites", "resources"] {
        assert_eq!(caller.status(&format!("/v1/org/home-org/{path}")).await, 200, "{path}");
    }
    let id = caller.created("d-ns", "a").await;
    assert_eq!(caller.update(id, json!({ "sso": false, "niceId": "mine" })).await.0, 200);
    let (status, target) = caller.target(id, json!({})).await;
    assert_eq!(status, 201);
    let target = target["data"]["targetId"].as_i64().unwrap();
    assert_eq!(caller.change_target(target, json!({ "siteId": 2, "ip": "b", "port": 81 })).await.0, 200);
    assert_eq!(caller.status(&format!("/v1/resource/{id}/targets")).await, 200);
    assert_eq!(caller.call("DELETE", &format!("/v1/target/{target}"), None).await.0, 200);
    assert_eq!(caller.call("DELETE", &format!("/v1/resource/{id}"), None).await.0, 200);
    for more in ["", "/site/cluster"] {
        assert_eq!(caller.status(&format!("/v1/org/home-org{more}")).await, 403, "{more}");
    }
}
