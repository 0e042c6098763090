//! Portals of other clusters that are large, slow, many, deleted or replaced, and objects of others in their way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use signpost_apis::portal::{DNS, Portal};
use signpost_provider_portal::{PortalOptions, Portals, RemoteError, RemoteNames};
use signpost_system_portal::Lookups;
use signpost_testkit::{ConnectPortal, eventually, on_both, sandbox_cluster};

use crate::bed::{Bed, PATIENCE};
use crate::remote::fqdn;

/// Longer than a test: what happens, happens without it.
const NEVER: Duration = Duration::from_hours(1);

fn url(server: &ConnectPortal) -> String {
    format!("http://{}", server.addr())
}

impl Bed {
    /// Waits until so many names are in the inventory, so many of them stale, from so many DNS objects.
    async fn has_remote(&self, names: usize, stale: usize, objects: &[&str]) {
        eventually(&format!("{names} names, {stale} stale, of {objects:?}"), PATIENCE, || async {
            let snapshot = self.inventory.snapshot();
            let is_stale = |labels: &std::collections::BTreeMap<_, _>| labels.contains_key("sreportal.io/stale");
            let marked = snapshot.iter().filter(|view| is_stale(&view.provenance().labels)).count();
            let mut copies: Vec<String> = self
                .api::<DNS>()
                .list(&ListParams::default())
                .await
                .unwrap()
                .iter()
                .map(ResourceExt::name_any)
                .collect();
            copies.sort();
            let seen = (snapshot.len(), marked, copies);
            if seen.0 == names && seen.1 == stale && seen.2 == objects { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    async fn copy(&self) -> Option<DNS> {
        self.api::<DNS>().get_opt("remote-east").await.unwrap()
    }
}

/// Portals that take a moment each, and count how many are read at once.
#[derive(Debug, Default)]
struct Counted {
    open: AtomicUsize,
    most: AtomicUsize,
}

impl Portals for Counted {
    fn names<'a>(&'a self, _: PortalOptions, _: Option<&'a str>) -> BoxFuture<'a, Result<RemoteNames, RemoteError>> {
        Box::pin(async move {
            let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(open, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(3)).await;
            self.open.fetch_sub(1, Ordering::SeqCst);
            Ok(RemoteNames::default())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn few_remote_portals_are_read_at_once_and_each_has_its_turn() {
    let bed = Bed::without_operator(sandbox_cluster().await).await;
    let portals = Arc::new(Counted::default());
    let lookups = Lookups { portals: portals.clone(), ..Lookups::from(bed.resolver.clone()) };
    bed.start_at(bed.cluster.client(), bed.options(), lookups, |pace| pace.refresh = NEVER);
    for number in 0..20 {
        let portal: Portal = serde_json::from_value(json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "Portal", "metadata": { "name": format!("east{number}") },
            "spec": { "title": "East", "remote": { "url": "http://192.0.2.1" } },
        }))
        .unwrap();
        bed.api::<Portal>().create(&PostParams::default(), &portal).await.unwrap();
    }
    eventually("every portal was read", PATIENCE, || async {
        let listed = bed.api::<Portal>().list(&ListParams::default()).await.unwrap().items;
        let is_read = |portal: &&Portal| portal.status.as_ref().is_some_and(|status| status.remote_sync.is_some());
        let read = listed.iter().filter(is_read).count();
        if read == 20 { Ok(()) } else { Err(read) }
    })
    .await;
    assert_eq!(portals.most.load(Ordering::SeqCst), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_portal_that_is_created_again_with_another_url_is_read_there() {
    let (first, second) = (ConnectPortal::start("main", 10).await, ConnectPortal::start("main", 10).await);
    first.set_fqdns(vec![fqdn("a", "sync")]);
    let bed = Bed::without_operator(sandbox_cluster().await).await;
    bed.start_at(bed.cluster.client(), bed.options(), bed.resolver.clone(), |pace| pace.refresh = NEVER);
    bed.remote(&url(&first), Value::Null).await;
    bed.takes_over(&["a sync remote Web east"]).await;
    bed.portal_is("RemoteSyncSuccess").await;
    // The copy is not deleted with its portal, so the operator has no pass between the two portals.
    let held = json!({ "metadata": { "finalizers": ["example.org/held"] } });
    bed.api::<DNS>().patch("remote-east", &PatchParams::default(), &Patch::Merge(held)).await.unwrap();
    bed.api::<Portal>().delete("east", &DeleteParams::default()).await.unwrap();
    bed.remote(&url(&second), Value::Null).await;
    eventually("the other portal is read", PATIENCE, || async {
        if second.calls() > 0 { Ok(()) } else { Err("it is not") }
    })
    .await;
}

on_both! {
    async fn names_that_do_not_fit_into_one_object_are_in_the_inventory(cluster) {
        let server = ConnectPortal::start("main", 1_000).await;
        let large = |number: usize| {
            let mut name = fqdn(&format!("n{number}"), if number.is_multiple_of(100) { "notFound" } else { "sync" });
            name["description"] = json!("d".repeat(1_000));
            name
        };
        server.set_fqdns((0..1_800).map(large).collect());
        let bed = Bed::without_operator(cluster).await;
        bed.start_at(bed.cluster.client(), bed.options(), bed.resolver.clone(), |pace| pace.refresh = Duration::from_secs(2));
        bed.remote(&url(&server), Value::Null).await;
        let three = ["remote-east", "remote2-east", "remote3-east"];
        bed.has_remote(1_800, 0, &three).await;
        let sync = bed.portal_is("RemoteSyncSuccess").await.status.unwrap().remote_sync.unwrap();
        assert_eq!(sync.fqdn_count, Some(1_800));
        let mut total = 0;
        for object in three {
            let status = bed.status(object).await;
            total += status.total.unwrap();
            assert_eq!(status.omitted, None, "{object}");
        }
        assert_eq!(total, 1_800);
        // A failure keeps and marks all of them, and fewer names need fewer objects.
        server.fail(Some((500, "")));
        bed.has_remote(1_800, 1_800, &three).await;
        server.set_fqdns((0..10).map(large).collect());
        server.fail(None);
        bed.has_remote(10, 0, &["remote-east"]).await;
    }

    async fn a_remote_portal_that_is_too_slow_is_reported_and_its_names_are_stale(cluster) {
        let server = ConnectPortal::start("main", 10).await;
        server.set_fqdns(vec![fqdn("a", "sync")]);
        let bed = Bed::without_operator(cluster).await;
        // No call takes too long, but all of them together do.
        bed.start_at(bed.cluster.client(), bed.options(), bed.resolver.clone(), |pace| pace.visit = Duration::from_secs(5));
        bed.remote(&url(&server), Value::Null).await;
        bed.takes_over(&["a sync remote Web east"]).await;
        server.set_delay(Duration::from_secs(4));
        let portal = bed.portal_is("RemoteFetchFailed").await;
        let message = portal.status.unwrap().conditions[0].message.clone();
        assert!(message.contains("did not send all of its names within 5s"), "{message}");
        bed.takes_over(&["a sync remote Web east stale"]).await;
        server.set_delay(Duration::ZERO);
        bed.takes_over(&["a sync remote Web east"]).await;
    }

    async fn a_password_in_the_url_of_a_portal_is_refused_and_shown_nowhere(cluster) {
        let bed = Bed::new(cluster).await;
        bed.remote("http://reader:hunter2@127.0.0.1:9/", Value::Null).await;
        let shown = |portal: Portal| serde_json::to_string(&portal.status).unwrap();
        let status = shown(bed.portal_is("RemoteConnectionFailed").await);
        assert!(status.contains("user name or a password") && !status.contains("hunter2"), "{status}");
        // Nothing but the place of a URL is shown.
        let patch = json!({ "spec": { "remote": { "url": "http://127.0.0.1:9/?token=hunter2" } } });
        let patch = kube::api::Patch::Merge(patch);
        bed.api::<Portal>().patch("east", &kube::api::PatchParams::default(), &patch).await.unwrap();
        eventually("the place is named", PATIENCE, || async {
            let status = shown(bed.portal_is("RemoteConnectionFailed").await);
            assert!(!status.contains("hunter2"), "{status}");
            if status.contains("http://127.0.0.1:9 cannot be reached") { Ok(()) } else { Err(status) }
        }).await;
    }

    async fn a_foreign_object_in_the_place_of_a_copy_is_left_alone_and_reported(cluster) {
        let server = ConnectPortal::start("main", 10).await;
        server.set_fqdns(vec![fqdn("a", "sync")]);
        let bed = Bed::without_operator(cluster).await;
        let foreign: DNS = serde_json::from_value(json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "DNS", "metadata": { "name": "remote-east" },
            "spec": { "portalRef": "east", "isRemote": true, "groups": [] },
        })).unwrap();
        bed.api::<DNS>().create(&PostParams::default(), &foreign).await.unwrap();
        bed.start_at(bed.cluster.client(), bed.options(), bed.resolver.clone(), |pace| pace.refresh = NEVER);
        bed.remote(&url(&server), Value::Null).await;
        let message = bed.portal_is("RemoteFetchFailed").await.status.unwrap().conditions[0].message.clone();
        assert!(message.contains("remote-east"), "{message}");
        assert!(bed.copy().await.unwrap().status.is_none_or(|status| status.groups.is_empty()), "it is not overwritten");
        // As soon as it is deleted, the portal has its own.
        bed.api::<DNS>().delete("remote-east", &DeleteParams::default()).await.unwrap();
        bed.portal_is("RemoteSyncSuccess").await;
        bed.takes_over(&["a sync remote Web east"]).await;
    }

    async fn a_deleted_copy_of_a_remote_portal_is_made_again_at_once(cluster) {
        let server = ConnectPortal::start("main", 10).await;
        server.set_fqdns(vec![fqdn("a", "sync")]);
        let bed = Bed::without_operator(cluster).await;
        bed.start_at(bed.cluster.client(), bed.options(), bed.resolver.clone(), |pace| pace.refresh = NEVER);
        bed.remote(&url(&server), Value::Null).await;
        bed.takes_over(&["a sync remote Web east"]).await;
        let before = bed.copy().await.unwrap().uid();
        bed.api::<DNS>().delete("remote-east", &DeleteParams::default()).await.unwrap();
        eventually("another copy with the names", PATIENCE, || async {
            let copy = bed.copy().await;
            let names = copy.as_ref().and_then(|copy| copy.status.as_ref()).map_or(0, |status| status.groups.len());
            if copy.as_ref().is_some_and(|copy| copy.uid() != before) && names == 1 { Ok(()) } else { Err(copy) }
        }).await;
        bed.takes_over(&["a sync remote Web east"]).await;
    }

    async fn a_main_portal_that_cannot_be_created_is_reported(cluster) {
        let bed = Bed::without_operator(cluster).await;
        let portal: Portal = serde_json::from_value(json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "Portal", "metadata": { "name": "main" }, "spec": { "title": "Mine" },
        })).unwrap();
        bed.api::<Portal>().create(&PostParams::default(), &portal).await.unwrap();
        bed.start();
        eventually("an event on the operator's own Deployment", PATIENCE, || async {
            let events = bed.api::<Event>().list(&ListParams::default()).await.unwrap().items;
            let reported = |event: &Event| {
                event.reason.as_deref() == Some("PortalNotFound")
                    && event.involved_object.kind.as_deref() == Some("Deployment")
                    && event.message.as_ref().is_some_and(|note| note.contains("main cannot be created"))
            };
            if events.iter().any(reported) { Ok(()) } else { Err(events) }
        }).await;
    }
}
