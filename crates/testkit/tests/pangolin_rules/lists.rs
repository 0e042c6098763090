//! Lists: two kinds of paging, silent defaults, and what items do not show.

use super::*;

const RESOURCES: &str = "/v1/org/home-org/resources";

/// "sites, resources without parameters: page 1, pageSize 20, `pagination {total,pageSize,page}`"; "pageSize 1000, 100000: accepted, no upper bound";
/// "page beyond the end: 200, empty array, total still right".
#[tokio::test]
async fn a_list_without_parameters_is_its_first_twenty_items() {
    let (_server, caller) = server().await;
    for n in 0..25 {
        caller.created("d-ns", &format!("a{n}")).await;
    }
    let (_, body) = caller.get(RESOURCES).await;
    assert_eq!(body["data"]["resources"].as_array().unwrap().len(), 20);
    assert_eq!(body["data"]["pagination"], json!({ "total": 25, "pageSize": 20, "page": 1 }));
    let (_, body) = caller.get(&format!("{RESOURCES}?pageSize=100000")).await;
    assert_eq!(body["data"]["resources"].as_array().unwrap().len(), 25);
    let (_, body) = caller.get(&format!("{RESOURCES}?pageSize=20&page=9")).await;
    assert_eq!((&body["data"]["resources"], &body["data"]["pagination"]["total"]), (&json!([]), &json!(25)));
}

/// "`limit`/`offset`, `mode`, `niceId`, `domainId` or any other unknown key on sites/resources: 400 `Validation error: Unrecognized key: \"…\"`"; "`siteId=x`: 400".
#[tokio::test]
async fn an_unknown_name_in_a_query_is_refused_by_name() {
    let (_server, caller) = server().await;
    for name in ["limit", "mode", "niceId", "domainId"] {
        let (status, body) = caller.get(&format!("{RESOURCES}?{name}=1")).await;
        assert_eq!((status, message(&body)), (400, format!("Validation error: Unrecognized key: \"{name}\"").as_str()));
    }
    assert_eq!(caller.status("/v1/org/home-org/sites?offset=0").await, 400);
    assert_eq!(caller.status(&format!("{RESOURCES}?siteId=x")).await, 400);
}

/// "pageSize 0, -1, `abc`; page 0; bad enum values: 200, silently replaced by the default / filter ignored".
#[tokio::test]
async fn a_bad_value_in_a_query_is_replaced_silently() {
    let (_server, caller) = server().await;
    for query in ["pageSize=0", "pageSize=-1", "pageSize=abc", "page=0", "status=foo", "enabled=foo", "sort_by=foo"] {
        let (status, body) = caller.get(&format!("{RESOURCES}?{query}")).await;
        let expected = json!({ "total": 0, "pageSize": 20, "page": 1 });
        assert_eq!((status, &body["data"]["pagination"]), (200, &expected), "{query}");
    }
}

/// "resources default order: by name; a full walk in pages returned each exactly once".
#[tokio::test]
async fn a_walk_over_pages_returns_each_resource_once_by_name() {
    let (_server, caller) = server().await;
    for n in [3, 1, 2, 0, 4] {
        let id = caller.created("d-ns", &format!("a{n}")).await;
        caller.update(id, json!({ "name": format!("n{n}") })).await;
    }
    let mut names = Vec::new();
    for page in 1..=3 {
        let (_, body) = caller.get(&format!("{RESOURCES}?pageSize=2&page={page}")).await;
        names.extend(body["data"]["resources"].as_array().unwrap().iter().map(|item| item["name"].clone()));
    }
    assert_eq!(names, ["n0", "n1", "n2", "n3", "n4"]);
}

/// "`query`: case-insensitive substring over name, niceId, fullDomain; it is a SQL LIKE, so `%` and `_` are wildcards (`query=_` matches everything)".
#[tokio::test]
async fn a_query_is_a_substring_with_wildcards_over_three_columns() {
    let (_server, caller) = server().await;
    let id = caller.created("d-ns", "app").await;
    caller.created("d-ns", "other").await;
    caller.update(id, json!({ "name": "Shop", "niceId": "mine-1" })).await;
    for (query, found) in
        [("SHOP", 1), ("ine-", 1), ("app.ns", 1), ("ns.test", 2), ("_", 2), ("a%25p.ns", 1), ("nope", 0)]
    {
        let (_, body) = caller.get(&format!("{RESOURCES}?query={query}")).await;
        assert_eq!(body["data"]["pagination"]["total"], json!(found), "{query}");
    }
}

/// "`protocol=http` / `https`: HTTP resources with ssl off / ssl on".
#[tokio::test]
async fn the_protocol_filter_is_about_tls() {
    let (_server, caller) = server().await;
    caller.created("d-ns", "a").await;
    for (protocol, found) in [("http", 0), ("https", 1)] {
        let (_, body) = caller.get(&format!("{RESOURCES}?protocol={protocol}")).await;
        assert_eq!(body["data"]["pagination"]["total"], json!(found), "{protocol}");
    }
}

/// "domains, targets: limit (1000) / offset; pageSize is a 400. `limit=0`: domains 200 with empty list, targets 400; `limit=-1`, `abc`: 400".
#[tokio::test]
async fn domains_and_targets_have_the_other_kind_of_paging() {
    let (_server, caller) = server().await;
    let id = caller.created("d-ns", "a").await;
    let (domains, targets) = ("/v1/org/home-org/domains".to_owned(), format!("/v1/resource/{id}/targets"));
    let (_, body) = caller.get(&domains).await;
    assert_eq!(body["data"]["pagination"], json!({ "total": 4, "limit": 1000, "offset": 0 }));
    assert_eq!(
        (caller.status(&format!("{domains}?limit=0")).await, caller.status(&format!("{targets}?limit=0")).await),
        (200, 400)
    );
    for list in [domains, targets] {
        for query in ["pageSize=5", "limit=-1", "limit=abc"] {
            assert_eq!(caller.status(&format!("{list}?{query}")).await, 400, "{list}?{query}");
        }
    }
    assert_eq!(caller.status("/v1/resource/9/targets").await, 404);
}

/// "resources item: `sso` and `whitelist` are numbers 0/1; `targets[]` has targetId, siteId, ip, port, enabled, healthStatus, hcEnabled … but no method,
/// path, match type, priority; no subdomain".
#[tokio::test]
async fn an_item_of_the_list_shows_less_than_the_resource() {
    let (_server, caller) = server().await;
    let id = caller.created("d-ns", "a").await;
    caller.target(id, json!({ "path": "/x", "pathMatchType": "exact" })).await;
    let (_, body) = caller.get(RESOURCES).await;
    let item = &body["data"]["resources"][0];
    assert_eq!((&item["sso"], &item["whitelist"], item.get("subdomain")), (&json!(1), &json!(0), None));
    let target = &item["targets"][0];
    assert_eq!((&target["ip"], &target["port"], &target["siteId"]), (&json!("app.demo.svc"), &json!(80), &json!(2)));
    for key in ["method", "path", "pathMatchType", "priority"] {
        assert_eq!(target.get(key), None, "{key}");
    }
}

/// "sites item, local site: no `online` key; `GET /site/{id}` does have it"; "resource-names: data is a bare array of {resourceId, name}: no niceId".
#[tokio::test]
async fn a_local_site_has_no_online_in_the_list_and_names_have_no_nice_id() {
    let (_server, caller) = server().await;
    let (_, body) = caller.get("/v1/org/home-org/sites").await;
    let sites = body["data"]["sites"].as_array().unwrap();
    assert_eq!((sites[0].get("online"), sites[1].get("online")), (None, Some(&json!(true))));
    assert_eq!(caller.get("/v1/site/1").await.1["data"]["online"], json!(true));
    let id = caller.created("d-ns", "a").await;
    let (_, body) = caller.get("/v1/org/home-org/resource-names").await;
    assert_eq!(body["data"], json!([{ "resourceId": id, "name": "app" }]));
}
