//! The twin in memory answers as the client does.

use signpost_provider_pangolin::{
    Deleted, DomainId, MemoryPangolin, NewResource, Pangolin, PangolinError, ResourceSettings, SiteId, TargetSettings,
};

use super::{ANY_AGE, new, settings, start, target};

/// What a caller sees of a history, whatever is behind the trait.
async fn history(pangolin: &dyn Pangolin) -> Vec<String> {
    let mut seen = Vec::new();
    let mut note = |what: &str, result: Result<String, PangolinError>| {
        seen.push(format!("{what}: {}", result.unwrap_or_else(|error| error.reason().to_owned())));
    };
    note("probe", pangolin.probe().await.map(|()| "ok".to_owned()));
    let foreign = NewResource { domain: DomainId("d-other".into()), ..new("x.other.test") };
    note("foreign domain", pangolin.create_resource(&foreign).await.map(|made| made.nice_id));
    let wrong = NewResource { domain: DomainId("d-cname".into()), ..new("x.one.cname.test") };
    note("wrong host", pangolin.create_resource(&wrong).await.map(|made| made.nice_id));
    let made = pangolin.create_resource(&new("app.ns.test")).await.unwrap();
    note("made", Ok(format!("{} {}", made.enabled, made.ssl)));
    note("twice", pangolin.create_resource(&new("app.ns.test")).await.map(|made| made.nice_id));
    let marked = pangolin.update_resource(&made, &settings("app.ns.test")).await.unwrap();
    note("marked", Ok(format!("{} {:?}", marked.nice_id, marked.sso)));
    let other = pangolin.create_resource(&new("b.ns.test")).await.unwrap();
    let taken = pangolin.update_resource(&other, &settings("b.ns.test")).await;
    note("taken mark", taken.map(|row| row.nice_id));
    let site = TargetSettings { site: SiteId(4), ..target("x", 80) };
    note("foreign site", pangolin.create_target(made.id, &site).await.map(|row| row.host));
    note("bad address", pangolin.create_target(made.id, &target("a b", 80)).await.map(|row| row.host));
    let row = pangolin.create_target(made.id, &target("app", 80)).await.unwrap();
    let row = pangolin.update_target(&row, &target("other", 81)).await.unwrap();
    note(
        "targets",
        pangolin.targets(made.id).await.map(|rows| format!("{} {}:{}", rows.len(), rows[0].host, rows[0].port)),
    );
    let moved = ResourceSettings { enabled: false, ..settings("ns.test") };
    note("moved", pangolin.update_resource(&marked, &moved).await.map(|row| format!("{:?} {}", row.host, row.enabled)));
    let listed = pangolin.resources(ANY_AGE).await.unwrap();
    for one in listed.iter() {
        let targets = one.targets.as_ref().map(|targets| targets.iter().map(|row| row.ip.clone()).collect::<Vec<_>>());
        note("listed", Ok(format!("{:?} {} {targets:?}", one.host, one.enabled)));
    }
    for _ in 0..2 {
        note("target deleted", pangolin.delete_target(made.id, row.id).await.map(|done| format!("{done:?}")));
    }
    for _ in 0..2 {
        note("deleted", pangolin.delete_resource(made.id).await.map(|done: Deleted| format!("{done:?}")));
    }
    note("missing", pangolin.resource(made.id).await.map(|row| row.nice_id));
    note("missing", pangolin.update_resource(&marked, &moved).await.map(|row| row.nice_id));
    note("missing", pangolin.create_target(made.id, &target("x", 80)).await.map(|row| row.host));
    seen
}

#[tokio::test]
async fn the_twin_in_memory_answers_as_the_client_does() {
    let (_server, client) = start().await;
    let twin = MemoryPangolin::new(client.domains().await.unwrap().to_vec(), client.sites().await.unwrap().to_vec());
    let (real, memory) = (history(&client).await, history(&twin).await);
    assert_eq!(real, memory);
    assert_eq!(real.len(), 20, "{real:?}");
}

#[tokio::test]
async fn the_twin_fails_on_request_and_reports_its_changes() {
    use std::sync::{Arc, Mutex};
    let (_server, client) = start().await;
    let twin = MemoryPangolin::new(client.domains().await.unwrap().to_vec(), client.sites().await.unwrap().to_vec());
    let counts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&counts);
    twin.on_change(move |stored| seen.lock().unwrap().push(stored.len()));
    twin.fail(Some(PangolinError::Timeout));
    assert_eq!(twin.create_resource(&new("a.ns.test")).await, Err(PangolinError::Timeout));
    twin.fail(None);
    twin.create_resource(&new("a.ns.test")).await.unwrap();
    assert_eq!((twin.writes(), counts.lock().unwrap().last().copied()), (1, Some(1)));
    twin.edit(std::collections::BTreeMap::clear);
    assert_eq!(counts.lock().unwrap().last().copied(), Some(0));
}
