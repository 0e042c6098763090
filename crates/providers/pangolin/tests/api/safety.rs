//! What the server does not check, and the client does.

use signpost_provider_pangolin::{
    DomainId, NewResource, Pangolin as _, PangolinError, ResourceSettings, TargetSettings,
};
use signpost_testkit::pangolin::Version;

use super::{client_of, exposed, name, new, of, settings, start, target};

#[tokio::test]
async fn a_host_that_another_resource_has_is_not_created_on_any_version() {
    for version in Version::ALL {
        let (server, client) = of(version).await;
        exposed(&client, "app.ns.test").await;
        // Another client, which has never seen a list.
        let error = client_of(&server, "all.secret").create_resource(&new("app.ns.test")).await.unwrap_err();
        assert_eq!(error.reason(), "HostTaken", "{version:?}");
        assert!(error.to_string().contains("app.ns.test") && error.to_string().contains("sp-home-1"), "{error}");
        assert_eq!(server.state().resources.len(), 1, "{version:?}");
    }
}

#[tokio::test]
async fn two_creates_of_one_host_at_once_make_one_resource() {
    let (server, client) = start().await;
    let wanted = new("app.ns.test");
    let (one, two) = tokio::join!(client.create_resource(&wanted), client.create_resource(&wanted));
    assert_eq!(usize::from(one.is_ok()) + usize::from(two.is_ok()), 1);
    assert_eq!(server.state().resources.len(), 1);
}

#[tokio::test]
async fn a_domain_of_another_organisation_is_never_sent() {
    let (server, client) = start().await;
    for (id, host) in [("d-other", "x.other.test"), ("d-open", "x.open.test"), ("nope", "x.nope.test")] {
        let wanted = NewResource { domain: DomainId(id.into()), ..new(host) };
        let expected = PangolinError::ForeignDomain { domain: id.into() };
        assert_eq!(client.create_resource(&wanted).await, Err(expected.clone()));
        let made = exposed(&client, &format!("{id}.ns.test")).await;
        let moved = ResourceSettings { domain: DomainId(id.into()), ..settings(host) };
        assert_eq!(client.update_resource(&made, &moved).await, Err(expected));
        client.delete_resource(made.id).await.unwrap();
    }
    assert!(server.state().resources.is_empty());
}

#[tokio::test]
async fn a_host_that_its_domain_cannot_have_is_never_sent() {
    let (server, client) = start().await;
    for (id, host) in [("d-cname", "x.one.cname.test"), ("d-ns", "x.wild.test"), ("d-ns", "xns.test")] {
        let wanted = NewResource { domain: DomainId(id.into()), ..new(host) };
        assert_eq!(client.create_resource(&wanted).await.unwrap_err().reason(), "WrongHost", "{host}");
    }
    assert_eq!(server.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn an_address_that_cannot_be_dialled_is_never_sent() {
    let (server, client) = start().await;
    let made = exposed(&client, "app.ns.test").await;
    server.forget_requests();
    for host in ["", "10.0.0.300", "[::1]", "a b", "http://x"] {
        let error = client.create_target(made.id, &target(host, 80)).await.unwrap_err();
        assert_eq!(error.reason(), "BadAddress", "{host:?}");
    }
    let error = client.create_target(made.id, &TargetSettings { port: 0, ..target("x", 80) }).await.unwrap_err();
    assert_eq!(error.reason(), "BadAddress");
    assert_eq!(server.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    let all = [
        "listOrgDomains",
        "listSites",
        "listResources",
        "getResource",
        "createResource",
        "updateResource",
        "deleteResource",
        "listTargets",
        "createTarget",
        "updateTarget",
        "deleteTarget",
    ];
    for permission in all {
        let (server, client) = start().await;
        let made = exposed(&client, "app.ns.test").await;
        let targets = client.targets(made.id).await.unwrap();
        server.revoke("minimum", permission);
        client.forget();
        let age = std::time::Duration::ZERO;
        let changed = ResourceSettings { enabled: false, ..settings("app.ns.test") };
        let done = match permission {
            "listOrgDomains" => client.domains().await.map(drop),
            "listSites" => client.sites().await.map(drop),
            "listResources" => client.resources(age).await.map(drop),
            "getResource" => client.resource(made.id).await.map(drop),
            "createResource" => client.create_resource(&new("b.ns.test")).await.map(drop),
            "updateResource" => client.update_resource(&made, &changed).await.map(drop),
            "deleteResource" => client.delete_resource(made.id).await.map(drop),
            "listTargets" => client.targets(made.id).await.map(drop),
            "createTarget" => client.create_target(made.id, &target("b", 80)).await.map(drop),
            "updateTarget" => client.update_target(&targets[0], &target("b", 80)).await.map(drop),
            _ => client.delete_target(made.id, targets[0].id).await.map(drop),
        };
        assert_eq!(done, Err(PangolinError::Forbidden { permission }));
    }
}

#[tokio::test]
async fn a_resource_that_was_deleted_by_others_is_not_found() {
    let (server, client) = start().await;
    let made = exposed(&client, "app.ns.test").await;
    server.state().resources.clear();
    let changed = ResourceSettings { enabled: false, ..settings("app.ns.test") };
    assert_eq!(client.update_resource(&made, &changed).await.unwrap_err().reason(), "NotFound");
    assert_eq!(client.resource(made.id).await.unwrap_err().reason(), "NotFound");
    assert_eq!(made.host, Some(name("app.ns.test")));
}
