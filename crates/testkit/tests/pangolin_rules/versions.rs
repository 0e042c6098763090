//! The table of versions, a test per row.

use super::*;

/// What a probe answers, by version that was observed.
async fn by_version<T>(probe: impl AsyncFn(&Pangolin, &Caller) -> T) -> Vec<T> {
    let mut answers = Vec::new();
    for version in Version::observed() {
        let (server, caller) = of(version).await;
        answers.push(probe(&server, &caller).await);
    }
    answers
}

/// "list paging: limit, limit, limit, page, …"; "default page, sites: 1000, 1000, 1000, 20, …".
#[tokio::test]
async fn pages_replace_limits_from_1_16_on() {
    let shown = by_version(async |_server: &Pangolin, caller: &Caller| {
        let (_, body) = caller.get("/v1/org/home-org/sites").await;
        body["data"]["pagination"].clone()
    })
    .await;
    let (old, new) =
        (json!({ "total": 3, "limit": 1000, "offset": 0 }), json!({ "total": 3, "pageSize": 20, "page": 1 }));
    assert_eq!(shown[..3], [old.clone(), old.clone(), old]);
    assert!(shown[3..].iter().all(|pagination| *pagination == new), "{shown:?}");
}

/// "unknown list key: ignored up to 1.19.0, 400 from 1.20.0 on": a client that sends limit and offset to 1.16 to 1.19 gets the first 20 only.
#[tokio::test]
async fn an_unknown_list_key_is_refused_from_1_20_on() {
    let seen =
        by_version(async |_server: &Pangolin, caller: &Caller| caller.status("/v1/org/home-org/sites?foo=1").await)
            .await;
    assert_eq!(seen, [200, 200, 200, 200, 200, 200, 400, 400, 400]);
    let (_server, caller) = of(Version::V1_18).await;
    for n in 0..25 {
        caller.created("d-ns", &format!("a{n}")).await;
    }
    let (_, body) = caller.get("/v1/org/home-org/resources?limit=1000&offset=0").await;
    assert_eq!(body["data"]["resources"].as_array().unwrap().len(), 20);
}

/// "`query` on resources: ignored, returns all on 1.11 to 1.15".
#[tokio::test]
async fn a_query_is_ignored_before_1_16() {
    let seen = by_version(async |_server: &Pangolin, caller: &Caller| {
        caller.created("d-ns", "a").await;
        caller.get("/v1/org/home-org/resources?query=nope").await.1["data"]["resources"].as_array().unwrap().len()
    })
    .await;
    assert_eq!(seen, [1, 1, 1, 0, 0, 0, 0, 0, 0]);
}

/// "domains total: counts every domain of the server on 1.11 to 1.16, right from 1.18.2 on".
#[tokio::test]
async fn the_total_of_domains_counts_foreign_ones_before_1_18() {
    let seen = by_version(async |_server: &Pangolin, caller: &Caller| {
        let (_, body) = caller.get("/v1/org/home-org/domains").await;
        (body["data"]["domains"].as_array().unwrap().len(), body["data"]["pagination"]["total"].as_i64().unwrap())
    })
    .await;
    assert_eq!(seen, [(4, 5), (4, 5), (4, 5), (4, 5), (4, 4), (4, 4), (4, 4), (4, 4), (4, 4)]);
}

/// "create `mode`: 400 up to 1.18.2, ok from 1.19.0 on"; "Same on all nine: legacy create".
#[tokio::test]
async fn mode_creates_from_1_19_on_and_the_older_pair_everywhere() {
    let seen = by_version(async |_server: &Pangolin, caller: &Caller| {
        let body = json!({ "name": "a", "domainId": "d-ns", "mode": "http" });
        let mode = caller.call("PUT", "/v1/org/home-org/resource", Some(body)).await.0;
        (mode, caller.create("d-ns", json!({ "subdomain": "b" })).await.0)
    })
    .await;
    let (old, new) = ((400, 201), (201, 201));
    assert_eq!(seen, [old, old, old, old, old, new, new, new, new]);
}

/// "sso in create answer: true up to 1.19.0, null from 1.20.0 on"; "sso in list: bool, then 0/1".
#[tokio::test]
async fn sso_is_shown_differently_by_create_get_and_list_from_1_20_on() {
    let seen = by_version(async |_server: &Pangolin, caller: &Caller| {
        let created = caller.create("d-ns", json!({})).await.1["data"].clone();
        let (_, list) = caller.get("/v1/org/home-org/resources").await;
        let got = caller.resource(created["resourceId"].as_i64().unwrap()).await["sso"].clone();
        json!([created["sso"], got, list["data"]["resources"][0]["sso"]])
    })
    .await;
    let (old, new) = (json!([true, true, true]), json!([null, true, 1]));
    assert_eq!(seen, [&old, &old, &old, &old, &old, &old, &new, &new, &new].map(Clone::clone));
}

/// "duplicate host: 409 up to 1.21.1, 201 on 1.22.0"; "dashboard host: 201 on 1.11 to 1.16, 409 later".
#[tokio::test]
async fn a_second_resource_with_a_host_is_accepted_on_1_22_only() {
    let seen = by_version(async |_server: &Pangolin, caller: &Caller| {
        caller.created("d-ns", "a").await;
        let twice = caller.create("d-ns", json!({ "subdomain": "A" })).await.0;
        (twice, caller.create("d-ns", json!({ "subdomain": "pangolin" })).await.0)
    })
    .await;
    let (old, mid) = ((409, 201), (409, 409));
    assert_eq!(seen, [old, old, old, old, mid, mid, mid, mid, (201, 409)]);
}

/// "target priority absent: 400 on 1.11.0"; "target `mode`: 400 up to 1.19.0"; "hcHostname enforced: from 1.20.0 on".
#[tokio::test]
async fn targets_are_checked_differently_by_version() {
    let seen = by_version(async |_server: &Pangolin, caller: &Caller| {
        let id = caller.created("d-ns", "a").await;
        let no_priority = caller.target(id, json!({ "priority": "absent" })).await.0;
        let mode = caller.target(id, json!({ "mode": "http" })).await.0;
        (no_priority, mode, caller.target(id, json!({ "hcEnabled": true })).await.0)
    })
    .await;
    let (old, new) = ((201, 400, 201), (201, 201, 400));
    assert_eq!(seen, [(400, 400, 201), old, old, old, old, old, new, new, new]);
}

/// "`/public-resource/{id}` alias: 200 (1.21.1 and 1.22 only; HTML 404 on 1.20 and older)".
#[tokio::test]
async fn the_alias_of_resources_exists_from_1_21_on() {
    let seen = by_version(async |_server: &Pangolin, caller: &Caller| {
        let id = caller.created("d-ns", "a").await;
        caller.status(&format!("/v1/public-resource/{id}")).await
    })
    .await;
    assert_eq!(seen, [404, 404, 404, 404, 404, 404, 404, 200, 200]);
}

/// "hcEnabled on a newt site: hcHealth starts `unhealthy` (`unknown` on 1.13 to 1.16)".
#[tokio::test]
async fn a_health_check_starts_unhealthy_from_1_18_on() {
    let seen = by_version(async |_server: &Pangolin, caller: &Caller| {
        let id = caller.created("d-ns", "a").await;
        let (_, body) = caller.target(id, json!({ "hcEnabled": true, "hcHostname": "app" })).await;
        body["data"]["hcHealth"].as_str().unwrap() == "unhealthy"
    })
    .await;
    assert_eq!(seen, [false, false, false, false, true, true, true, true, true]);
}

/// "`subdomain: \"*\"`: 403 licence message; 1.11 to 1.16: 400".
#[tokio::test]
async fn a_wildcard_is_a_matter_of_licence_from_1_18_on() {
    let seen = by_version(async |_server: &Pangolin, caller: &Caller| {
        caller.create("d-wild", json!({ "subdomain": "*" })).await.0
    })
    .await;
    assert_eq!(seen, [400, 400, 400, 400, 403, 403, 403, 403, 403]);
}

/// "to a host already in use: 200 on 1.22; 409 on 1.19 to 1.21.1".
#[tokio::test]
async fn an_update_to_a_used_host_is_refused_from_1_19_to_1_21() {
    let seen = by_version(async |_server: &Pangolin, caller: &Caller| {
        caller.created("d-ns", "taken").await;
        let id = caller.created("d-ns", "a").await;
        caller.update(id, json!({ "domainId": "d-ns", "subdomain": "taken" })).await.0
    })
    .await;
    assert_eq!(seen, [200, 200, 200, 200, 200, 409, 409, 409, 200]);
}

/// "a leftmost `*` or `*.x` subdomain since 1.18 […] licensed, not on cname domains"; "conflicts (409) with any existing concrete host under the same suffix
/// and vice versa".
#[tokio::test]
async fn a_licensed_wildcard_excludes_the_hosts_below_its_suffix() {
    let server = Pangolin::with(signpost_testkit::pangolin::Options { licensed: true, ..Default::default() }).await;
    let caller = Caller::new(&server, Pangolin::KEY);
    for (domain, subdomain, expected) in [
        ("d-cname", "*", 403),
        ("d-ns", "a.*", 403),
        ("d-ns", "*.-x", 400),
        ("d-ns", "plain", 201),
        ("d-ns", "*", 409),
        ("d-ns", "*.apps", 201),
        ("d-ns", "one.apps", 409),
        ("d-ns", "apps", 201),
        ("d-ns", "*.more", 201),
    ] {
        let (status, body) = caller.create(domain, json!({ "subdomain": subdomain })).await;
        assert_eq!(status, expected, "{domain} {subdomain}: {body}");
    }
    let hosts: Vec<String> = server.state().resources.values().map(|row| row.full_domain.clone()).collect();
    assert_eq!(hosts, ["plain.ns.test", "*.apps.ns.test", "apps.ns.test", "*.more.ns.test"]);
}

/// "local and wireguard always report unknown".
#[tokio::test]
async fn a_check_that_an_update_switches_on_is_unhealthy_at_newt_alone() {
    for (site, ip, expected) in [(1, "app", "unknown"), (2, "app", "unhealthy"), (3, "10.9.0.7", "unknown")] {
        let (_server, caller) = of(Version::V1_22).await;
        let id = caller.created("d-ns", "a").await;
        let (status, target) = caller.target(id, json!({ "siteId": site, "ip": ip })).await;
        assert_eq!(status, 201, "{target}");
        let target = target["data"]["targetId"].as_i64().unwrap();
        let on = json!({ "siteId": site, "ip": ip, "port": 80, "hcEnabled": true, "hcHostname": "app" });
        let (_, body) = caller.change_target(target, on).await;
        assert_eq!(body["data"]["hcHealth"], expected, "site {site}");
    }
}

/// "blueprint `public-resources`: on 1.11.0 silently ignored (201, nothing created)"; "Same on all nine: 404 HTML, 500 on a key without dot".
#[tokio::test]
async fn the_first_blueprints_ignore_public_resources() {
    let seen = by_version(async |server: &Pangolin, caller: &Caller| {
        let status =
            blueprints::apply(caller, json!({ "public-resources": { "a": blueprints::entry("a.ns.test") } })).await.0;
        assert_eq!(status, 201);
        assert_eq!(Caller::new(server, "all").status("/v1/org/home-org/sites").await, 500);
        assert_eq!(caller.get("/v1/org/home-org/resource/a").await, (404, Value::Null));
        server.state().resources.len()
    })
    .await;
    assert_eq!(seen, [0, 1, 1, 1, 1, 1, 1, 1, 1]);
}

/// "path/prefix on targets: 1.10; rewrite, priority, health checks: 1.11"; "Blueprints: 1.10/1.11". Bodies are strict.
#[tokio::test]
async fn targets_have_paths_from_1_10_on_and_priorities_and_checks_from_1_11_on() {
    let mut seen = Vec::new();
    for version in [Version::V1_9, Version::V1_10, Version::V1_11] {
        let (_server, caller) = of(version).await;
        let id = caller.created("d-ns", "a").await;
        let plain = caller.target(id, json!({ "priority": "absent" })).await.0;
        let path = json!({ "priority": "absent", "path": "/a", "pathMatchType": "prefix" });
        let path = caller.target(id, path).await.0;
        let priority = caller.target(id, json!({ "priority": 100 })).await.0;
        let check = caller.target(id, json!({ "priority": "absent", "hcEnabled": false })).await.0;
        let rewrite = caller.target(id, json!({ "priority": 100, "rewritePath": null })).await.0;
        let blueprint = blueprints::apply(&caller, json!({ "proxy-resources": {} })).await.0;
        seen.push([plain, path, priority, check, rewrite, blueprint]);
    }
    // On 1.11 a target without a priority is refused.
    assert_eq!(seen, [[201, 400, 400, 400, 400, 404], [201, 201, 400, 400, 400, 201], [400, 400, 201, 400, 201, 201]]);
}

/// "Resource creation moves from site to org; siteId moves to targets: 1.9"; "The legacy pair is accepted from 1.9 to 1.22"; lists have limits.
#[tokio::test]
async fn the_oldest_versions_create_in_the_organisation_and_list_with_limits() {
    for version in [Version::V1_9, Version::V1_10] {
        let (_server, caller) = of(version).await;
        assert_eq!(caller.create("d-ns", json!({ "siteId": 2 })).await.0, 400, "{version:?}");
        caller.created("d-ns", "a").await;
        let (_, list) = caller.get("/v1/org/home-org/resources?pageSize=1&page=1").await;
        assert_eq!(list["data"]["pagination"], json!({ "total": 1, "limit": 1000, "offset": 0 }), "{version:?}");
    }
}
