//! An unmodified kube client against the sandbox: Api, watcher, finalizer, lease.

#![allow(clippy::expect_used, reason = "helpers of tests are tests")]

use std::{collections::BTreeMap, pin::pin, time::Duration};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    runtime::{
        WatchStreamExt,
        finalizer::{Event as Finalizer, finalizer},
        watcher,
    },
};
use signpost_sandbox::{Fault, FaultPlan, Sandbox, SandboxOptions, Session};

fn config_map(name: &str, value: &str) -> ConfigMap {
    let mut object = ConfigMap { data: Some(BTreeMap::from([("k".into(), value.into())])), ..ConfigMap::default() };
    object.metadata.name = Some(name.into());
    object
}

async fn next<S: futures::Stream + Unpin>(stream: &mut S) -> S::Item {
    tokio::time::timeout(Duration::from_secs(30), stream.next())
        .await
        .expect("an event in time")
        .expect("an open stream")
}

#[tokio::test]
async fn objects_are_created_read_changed_and_deleted() {
    let sandbox = Sandbox::default();
    let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    let made = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert!(made.uid().is_some() && made.creation_timestamp().is_some());
    let again = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap_err();
    assert!(again.to_string().contains("configmaps \"a\" already exists"), "{again}");

    let mut changed = made.clone();
    changed.data.as_mut().unwrap().insert("k".into(), "2".into());
    let changed = api.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert_ne!(changed.resource_version(), made.resource_version());
    let stale = api.replace("a", &PostParams::default(), &made).await.unwrap_err();
    assert!(stale.to_string().contains("the object has been modified"), "{stale}");

    let same = api.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert_eq!(same.resource_version(), changed.resource_version(), "a no-op keeps the version");

    assert!(api.delete("a", &DeleteParams::default()).await.unwrap().is_right());
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_namespace_must_exist_and_takes_its_content_with_it() {
    let sandbox = Sandbox::default();
    let client = sandbox.client();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    let missing = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap_err();
    assert!(missing.to_string().contains("namespaces \"team\" not found"), "{missing}");
    let namespaces: Api<Namespace> = Api::all(client);
    let mut team = Namespace::default();
    team.metadata.name = Some("team".into());
    namespaces.create(&PostParams::default(), &team).await.unwrap();
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    assert!(namespaces.get_opt("team").await.unwrap().is_none());
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_watcher_sees_every_change() {
    for streaming in [false, true] {
        let sandbox = Sandbox::default();
        let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
        api.create(&PostParams::default(), &config_map("old", "1")).await.unwrap();
        let config = if streaming { watcher::Config::default().streaming_lists() } else { watcher::Config::default() };
        let mut events = pin!(watcher(api.clone(), config));
        assert!(matches!(next(&mut events).await.unwrap(), watcher::Event::Init));
        assert!(matches!(next(&mut events).await.unwrap(), watcher::Event::InitApply(o) if o.name_any() == "old"));
        assert!(matches!(next(&mut events).await.unwrap(), watcher::Event::InitDone));
        api.create(&PostParams::default(), &config_map("new", "1")).await.unwrap();
        assert!(matches!(next(&mut events).await.unwrap(), watcher::Event::Apply(o) if o.name_any() == "new"));
        api.delete("old", &DeleteParams::default()).await.unwrap();
        assert!(matches!(next(&mut events).await.unwrap(), watcher::Event::Delete(o) if o.name_any() == "old"));
    }
}

#[tokio::test]
async fn a_watch_from_before_the_window_gets_an_error() {
    let sandbox = Sandbox::default();
    let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    let first = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    api.create(&PostParams::default(), &config_map("b", "1")).await.unwrap();
    sandbox.compact();
    let mut events = Box::pin(api.watch(&WatchParams::default(), &first.resource_version().unwrap()).await.unwrap());
    match next(&mut events).await.unwrap() {
        WatchEvent::Error(status) => assert_eq!((status.code, status.reason.as_str()), (410, "Expired")),
        other => panic!("expected an error event, got {other:?}"),
    }
}

#[tokio::test]
async fn pages_show_one_moment() {
    let sandbox = Sandbox::default();
    let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    for n in 0..5 {
        api.create(&PostParams::default(), &config_map(&format!("c{n}"), "1")).await.unwrap();
    }
    let page = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(page.metadata.remaining_item_count, Some(3));
    api.delete("c3", &DeleteParams::default()).await.unwrap();
    api.create(&PostParams::default(), &config_map("c9", "1")).await.unwrap();
    let token = page.metadata.continue_.unwrap();
    let rest = api.list(&ListParams::default().limit(10).continue_token(&token)).await.unwrap();
    assert_eq!(rest.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["c2", "c3", "c4"]);
}

#[tokio::test]
async fn the_finalizer_flow_of_kube_runs_unmodified() {
    let sandbox = Sandbox::default();
    let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    let made = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let run = |object: ConfigMap| {
        let api = api.clone();
        async move {
            finalizer(&api, "example.com/hold", object.into(), |event| async move {
                match event {
                    Finalizer::Apply(_) | Finalizer::Cleanup(_) => {
                        Ok::<_, std::convert::Infallible>(kube::runtime::controller::Action::await_change())
                    }
                }
            })
            .await
        }
    };
    run(made).await.unwrap();
    let object = api.get("a").await.unwrap();
    assert_eq!(object.finalizers(), ["example.com/hold"]);
    assert!(api.delete("a", &DeleteParams::default()).await.unwrap().is_left(), "still there");
    let going = api.get("a").await.unwrap();
    assert!(going.metadata.deletion_timestamp.is_some());
    run(going).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_lost_answer_has_happened() {
    let sandbox = Sandbox::default();
    let plan = FaultPlan::first(1, |info| info.verb == "create", Fault::LoseAnswer);
    let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client_with(plan));
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap_err();
    assert!(api.get_opt("a").await.unwrap().is_some());
}

#[tokio::test]
async fn a_crashed_client_is_cut_off_and_the_other_is_not() {
    let sandbox = Sandbox::default();
    let session = Session::default();
    let api: Api<ConfigMap> = Api::default_namespaced(sandbox.session_client(&session));
    let mut events = Box::pin(api.watch(&WatchParams::default(), "0").await.unwrap());
    session.crash();
    assert!(next(&mut events).await.is_err());
    assert!(api.list(&ListParams::default()).await.is_err());
    let other: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    assert!(other.list(&ListParams::default()).await.is_ok());
}

#[tokio::test]
async fn a_watcher_survives_cut_and_expired_watches() {
    let sandbox = Sandbox::default();
    for fault in [Fault::CutWatch { after: 0 }, Fault::ExpireWatch { after: 1 }, Fault::EndWatch { after: 1 }] {
        let api: Api<ConfigMap> =
            Api::default_namespaced(sandbox.client_with(FaultPlan::first(1, |i| i.verb == "watch", fault)));
        let mut names = pin!(
            watcher(api.clone(), watcher::Config::default())
                .default_backoff()
                .applied_objects()
                .map_ok(|o| o.name_any())
                .filter_map(|o| async { o.ok() })
        );
        let plain: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
        for name in ["x", "y", "z"] {
            plain.patch(name, &PatchParams::apply("t").force(), &Patch::Apply(config_map(name, "1"))).await.unwrap();
        }
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < 3 {
            seen.insert(next(&mut names).await);
        }
        for name in ["x", "y", "z"] {
            plain.delete(name, &DeleteParams::default()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_same_seed_makes_the_same_cluster() {
    let run = || async {
        let time = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = signpost_sandbox::SandboxClock::from_fn(move || time);
        let sandbox = Sandbox::new(SandboxOptions { clock, seed: 9, ..SandboxOptions::default() });
        let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
        let mut object = config_map("", "1");
        object.metadata.name = None;
        object.metadata.generate_name = Some("x-".into());
        let made = api.create(&PostParams::default(), &object).await.unwrap();
        format!("{:?}", made.metadata)
    };
    assert_eq!(run().await, run().await);
}

#[tokio::test]
async fn the_log_counts_writes() {
    let sandbox = Sandbox::default();
    let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    api.list(&ListParams::default()).await.unwrap();
    assert_eq!(sandbox.writes(), 1);
    assert_eq!(sandbox.request_counts()[&("list".to_owned(), "configmaps".to_owned())], 1);
    assert_eq!(sandbox.take_log().len(), 2);
    assert_eq!(sandbox.writes(), 0);
}

#[tokio::test]
async fn an_unused_log_is_not_kept() {
    let sandbox = Sandbox::new(SandboxOptions { log: false, ..SandboxOptions::default() });
    let api: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert_eq!(sandbox.log(), []);
    assert_eq!(sandbox.writes(), 0);
}
