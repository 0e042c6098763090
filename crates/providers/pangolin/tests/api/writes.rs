//! Create, update and delete, on every version.

use serde_json::json;
use signpost_provider_pangolin::{
    Deleted, DomainId, Header, HealthCheck, Matching, NiceId, Pangolin as _, PangolinError, ResourceSettings,
    RoutePath, SiteId, TargetSettings,
};
use signpost_sandbox::edge::Answer;
use signpost_testkit::pangolin::{ORG, Options, Pangolin, Version};
use signpost_testkit::{Fault, FaultProxy, Rule};

use super::{ANY_AGE, client_for, exposed, name, new, of, settings, start, target, with};

fn served(by: &str) -> Answer<String> {
    Answer::Served(vec![by.to_owned()])
}

#[tokio::test]
async fn a_host_is_exposed_with_three_writes_on_every_version() {
    for version in Version::ALL {
        let (server, client) = of(version).await;
        let made = exposed(&client, "app.ns.test").await;
        assert_eq!(made.sso, Some(false), "{version:?}");
        assert_eq!(server.get("app.ns.test", "/"), served("app.demo.svc:80"), "{version:?}");
        // 1.9 and 1.10 do not know all keys of a target, which is found out once.
        let more = usize::from(version < Version::V1_11);
        assert_eq!(server.writes().len(), 3 + more, "{version:?}: {:?}", server.writes());
        assert_eq!(server.state().resources.values().next().unwrap().nice_id, "sp-home-1");
    }
}

#[tokio::test]
async fn what_is_as_wanted_is_not_sent_again() {
    let (server, client) = start().await;
    let made = exposed(&client, "app.ns.test").await;
    let before = client.targets(made.id).await.unwrap();
    server.forget_requests();
    let again = client.update_resource(&made, &settings("app.ns.test")).await.unwrap();
    let same = client.update_target(&before[0], &target("app.demo.svc", 80)).await.unwrap();
    assert_eq!((again, &same), (made, &before[0]));
    assert_eq!(server.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn every_setting_is_written_read_back_and_cleared() {
    for version in [Version::V1_11, Version::V1_16, Version::V1_19, Version::V1_22] {
        let (_server, client) = of(version).await;
        let made = exposed(&client, "app.ns.test").await;
        let full = ResourceSettings {
            enabled: false,
            ssl: false,
            sso: true,
            block_access: true,
            sticky_session: true,
            tls_server_name: Some("tls.test".into()),
            set_host_header: Some("inner.test".into()),
            headers: vec![Header { name: "X-A".into(), value: "1".into() }],
            ..settings("app.ns.test")
        };
        let changed = client.update_resource(&made, &full).await.unwrap();
        assert!(full.match_resource(&changed), "{version:?}: {changed:?}");
        assert!(full.match_resource(&client.resource(made.id).await.unwrap()), "{version:?}");
        let cleared = client.update_resource(&changed, &settings("app.ns.test")).await.unwrap();
        assert!(settings("app.ns.test").match_resource(&cleared), "{version:?}: {cleared:?}");
    }
}

#[tokio::test]
async fn a_changed_host_moves_in_one_call_to_any_name_of_any_domain() {
    let (server, client) = start().await;
    let mut current = exposed(&client, "app.ns.test").await;
    for (host, domain) in [
        ("b.ns.test", "d-ns"),
        ("ns.test", "d-ns"),
        ("w.wild.test", "d-wild"),
        ("wild.test", "d-wild"),
        ("one.cname.test", "d-cname"),
    ] {
        server.forget_requests();
        let wanted = ResourceSettings { domain: DomainId(domain.into()), ..settings(host) };
        current = client.update_resource(&current, &wanted).await.unwrap();
        assert_eq!(server.requests().len(), 1, "{host}: {:?}", server.requests());
        assert_eq!(server.get(host, "/"), served("app.demo.svc:80"), "{host}");
    }
    assert_eq!(server.state().resources.len(), 1);
}

#[tokio::test]
async fn a_changed_backend_is_one_call_and_nothing_of_the_old_one_stays() {
    let (server, client) = start().await;
    let made = exposed(&client, "app.ns.test").await;
    let current = client.targets(made.id).await.unwrap().remove(0);
    server.forget_requests();
    client.update_target(&current, &target("other.demo.svc", 81)).await.unwrap();
    assert_eq!(server.requests().len(), 1);
    assert_eq!(server.get("app.ns.test", "/"), served("other.demo.svc:81"));
}

#[tokio::test]
async fn a_path_is_set_and_cleared_with_its_match() {
    let (server, client) = start().await;
    let made = exposed(&client, "app.ns.test").await;
    let path = RoutePath::new(Matching::Regex, "^/api(/|$)").unwrap();
    let routed = TargetSettings { path: Some(path), priority: 300, ..target("api.demo.svc", 80) };
    let api = client.create_target(made.id, &routed).await.unwrap();
    assert!(routed.match_target(&api));
    assert_eq!(server.get("app.ns.test", "/api/x"), served("api.demo.svc:80"));
    assert_eq!(server.get("app.ns.test", "/apiary"), served("app.demo.svc:80"));
    // What others left there is removed with it.
    server.state().targets.get_mut(&api.id.0).unwrap().fields.insert("rewritePath".into(), json!("/x"));
    let left = client.targets(made.id).await.unwrap().into_iter().find(|target| target.id == api.id).unwrap();
    assert!(!routed.match_target(&left));
    let plain = target("api.demo.svc", 80);
    let cleared = client.update_target(&left, &plain).await.unwrap();
    assert!(plain.match_target(&cleared), "{cleared:?}");
    assert_eq!(client.delete_target(made.id, api.id).await.unwrap(), Deleted::Done);
    assert_eq!(client.delete_target(made.id, api.id).await.unwrap(), Deleted::Absent);
}

fn check() -> HealthCheck {
    HealthCheck {
        hostname: "app.demo.svc".into(),
        port: 80,
        path: "/healthz".into(),
        scheme: "http".into(),
        method: "GET".into(),
        interval: 30,
        unhealthy_interval: 10,
        timeout: 5,
        status: Some(204),
        follow_redirects: true,
        headers: vec![Header { name: "a".into(), value: "b".into() }],
        tls_server_name: None,
    }
}

#[tokio::test]
async fn a_health_check_is_switched_off_so_that_the_target_is_served_again() {
    for version in [Version::V1_13, Version::V1_19, Version::V1_22] {
        let (server, client) = of(version).await;
        let made = exposed(&client, "app.ns.test").await;
        let current = client.targets(made.id).await.unwrap().remove(0);
        let checked = TargetSettings { health: Some(check()), ..target("app.demo.svc", 80) };
        let current = client.update_target(&current, &checked).await.unwrap();
        assert!(checked.match_target(&current), "{version:?}: {current:?}");
        server.set_health(current.id.0, "unhealthy");
        assert_eq!(server.get("app.ns.test", "/"), Answer::NoServer);
        let current = client.targets(made.id).await.unwrap().remove(0);
        client.update_target(&current, &target("app.demo.svc", 80)).await.unwrap();
        assert_eq!(server.get("app.ns.test", "/"), served("app.demo.svc:80"), "{version:?}");
    }
}

#[tokio::test]
async fn a_target_that_somebody_froze_as_unhealthy_is_not_as_wanted() {
    let (server, client) = start().await;
    let made = exposed(&client, "app.ns.test").await;
    server.state().targets.values_mut().for_each(|row| row.health = "unhealthy");
    let current = client.targets(made.id).await.unwrap().remove(0);
    client.update_target(&current, &target("app.demo.svc", 80)).await.unwrap();
    assert_eq!(server.get("app.ns.test", "/"), served("app.demo.svc:80"));
}

#[tokio::test]
async fn deleting_a_resource_removes_the_exposure_and_twice_is_once() {
    let (server, client) = start().await;
    let made = exposed(&client, "app.ns.test").await;
    client.resources(ANY_AGE).await.unwrap();
    assert_eq!(client.delete_resource(made.id).await.unwrap(), Deleted::Done);
    assert_eq!(client.delete_resource(made.id).await.unwrap(), Deleted::Absent);
    assert_eq!(server.get("app.ns.test", "/"), Answer::NoRouter);
    assert!(client.resources(ANY_AGE).await.unwrap().is_empty(), "the known list has it no more");
}

#[tokio::test]
async fn a_taken_identifier_changes_nothing() {
    let (server, client) = start().await;
    exposed(&client, "a.ns.test").await;
    let made = client.create_resource(&new("b.ns.test")).await.unwrap();
    let error = client.update_resource(&made, &settings("b.ns.test")).await.unwrap_err();
    assert_eq!(error, PangolinError::NiceIdTaken { nice_id: "sp-home-1".into() });
    assert_eq!(server.state().resources[&made.id.0].sso, Some(true), "it is still protected");
    let other = ResourceSettings { nice_id: NiceId::parse("sp-home-2").unwrap(), ..settings("b.ns.test") };
    client.update_resource(&made, &other).await.unwrap();
}

#[tokio::test]
async fn a_shared_policy_is_sent_again_or_the_update_is_refused() {
    for licensed in [true, false] {
        let (server, client) = with(Options { licensed, ..Options::default() }).await;
        let made = exposed(&client, "a.ns.test").await;
        {
            let mut state = server.state();
            let row = state.resources.get_mut(&made.id.0).unwrap();
            (row.policy, row.password) = (Some(7), true);
        }
        let current = client.resource(made.id).await.unwrap();
        let wanted = ResourceSettings { enabled: false, ..settings("a.ns.test") };
        let done = client.update_resource(&current, &wanted).await;
        if licensed {
            assert_eq!(done.unwrap().policy, Some(7));
        } else {
            assert_eq!(done, Err(PangolinError::SharedPolicy { id: made.id }));
        }
        assert!(server.state().resources[&made.id.0].password, "licensed: {licensed}");
    }
}

#[tokio::test]
async fn a_site_in_the_address_of_a_target_is_checked_by_number() {
    let (server, client) = start().await;
    let made = exposed(&client, "a.ns.test").await;
    for (site, error) in [(4, PangolinError::ForeignSite { site: 4 }), (99, PangolinError::ForeignSite { site: 99 })] {
        let wanted = TargetSettings { site: SiteId(site), ..target("x", 80) };
        assert_eq!(client.create_target(made.id, &wanted).await, Err(error));
    }
    assert_eq!(server.state().targets.len(), 1);
    assert_eq!(client.resource(made.id).await.unwrap().host, Some(name("a.ns.test")));
}

/// Refuses the next matching request as a server does that does not know these keys.
fn does_not_know(keys: &str) -> Fault {
    let message = format!("Validation error: Unrecognized key(s) in object: {keys}");
    let body =
        json!({ "data": null, "success": false, "error": true, "message": message, "status": 400, "stack": null });
    Fault::Answer { status: 400, headers: vec![("content-type", "application/json".into())], body: body.to_string() }
}

#[tokio::test]
async fn a_server_without_the_older_pair_gets_a_mode_from_then_on() {
    let (server, _) = start().await;
    let proxy = FaultProxy::start(&server.url()).await;
    let client = client_for(&proxy.url(), ORG, Pangolin::KEY);
    proxy.add(Rule::nth(1, does_not_know("'http', 'protocol'")).method(http::Method::PUT));
    client.create_resource(&new("a.ns.test")).await.unwrap();
    client.create_resource(&new("b.ns.test")).await.unwrap();
    let bodies: Vec<String> =
        proxy.seen().into_iter().filter(|seen| seen.method == http::Method::PUT).map(|seen| seen.body).collect();
    let modes: Vec<bool> = bodies.iter().map(|body| body.contains("\"mode\":\"http\"")).collect();
    assert_eq!(modes, [false, true, true], "{bodies:?}");
}

#[tokio::test]
async fn a_key_that_an_old_server_does_not_know_is_left_out_unless_it_is_needed() {
    let (server, _) = start().await;
    let proxy = FaultProxy::start(&server.url()).await;
    let client = client_for(&proxy.url(), ORG, Pangolin::KEY);
    let made = client.create_resource(&new("a.ns.test")).await.unwrap();
    proxy.add(Rule::nth(1, does_not_know("'headers'")).method(http::Method::POST));
    let marked = client.update_resource(&made, &settings("a.ns.test")).await.unwrap();
    let disabled = ResourceSettings { enabled: false, ..settings("a.ns.test") };
    let marked = client.update_resource(&marked, &disabled).await.unwrap();
    let with_headers = |body: &str| body.contains("\"headers\"");
    let sent: Vec<bool> = proxy
        .seen()
        .iter()
        .filter(|seen| seen.method == http::Method::POST)
        .map(|seen| with_headers(&seen.body))
        .collect();
    assert_eq!(sent, [true, false, false]);
    proxy.clear();
    proxy.add(Rule::every(does_not_know("'headers'")).method(http::Method::POST));
    let headers = vec![Header { name: "X-A".into(), value: "1".into() }];
    let wanted = ResourceSettings { headers, ..settings("a.ns.test") };
    let error = client.update_resource(&marked, &wanted).await.unwrap_err();
    assert_eq!(error, PangolinError::Unsupported { keys: vec!["headers".into()] });
}

#[tokio::test]
async fn what_an_old_version_cannot_route_is_refused_with_the_names_of_the_keys() {
    for (version, missing) in [(Version::V1_9, "path"), (Version::V1_10, "priority")] {
        let (server, client) = of(version).await;
        let made = exposed(&client, "app.ns.test").await;
        let path = RoutePath::new(Matching::Exact, "/api".to_owned()).unwrap();
        let wanted = TargetSettings { path: Some(path), priority: 500, ..target("api.demo.svc", 80) };
        let error = client.create_target(made.id, &wanted).await.unwrap_err();
        let PangolinError::Unsupported { keys } = &error else { panic!("{version:?}: {error:?}") };
        assert!(keys.iter().any(|key| key == missing), "{version:?}: {keys:?}");
        assert_eq!(server.get("app.ns.test", "/api"), served("app.demo.svc:80"), "{version:?}: nothing is changed");
        // A changed backend is one call.
        server.forget_requests();
        let known = client.targets(made.id).await.unwrap();
        client.update_target(&known[0], &target("other.demo.svc", 81)).await.unwrap();
        assert_eq!(server.writes().len(), 1, "{version:?}: {:?}", server.writes());
        assert_eq!(server.get("app.ns.test", "/"), served("other.demo.svc:81"), "{version:?}");
    }
}

/// An upgrade while the client runs: what the old version did not know is sent again, before a row keeps an earlier value of it.
#[tokio::test]
async fn a_server_that_is_upgraded_gets_every_key_again() {
    for old in [Version::V1_9, Version::V1_10] {
        let (server, client) = of(old).await;
        let made = exposed(&client, "app.ns.test").await;
        let mut known = client.targets(made.id).await.unwrap().remove(0);
        known = client.update_target(&known, &target("app.demo.svc", 81)).await.unwrap();
        server.upgrade(Version::V1_22);
        let path = RoutePath::new(Matching::Exact, "/api".to_owned()).unwrap();
        let routed =
            TargetSettings { path: Some(path), priority: 500, health: Some(check()), ..target("app.demo.svc", 81) };
        known = client.update_target(&known, &routed).await.unwrap();
        server.set_health(known.id.0, "unhealthy");
        known = client.update_target(&known, &target("app.demo.svc", 80)).await.unwrap();
        assert_eq!(server.get("app.ns.test", "/"), served("app.demo.svc:80"), "{old:?}: no path and no check is left");
        assert!(target("app.demo.svc", 80).match_target(&known), "{old:?}: {known:?}");
    }
}
