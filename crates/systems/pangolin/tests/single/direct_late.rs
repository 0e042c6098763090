//! Direct mode against answers and effects that come late, in every order. The clock is paused.
//!
//! A client gives a call up after 15 seconds. What it gave up may still have its effect, which is looked for a minute later.

use std::time::Duration;

use serde_json::json;
use signpost_sandbox::edge::{Answer, Visit};

use super::direct_turns::{Quiet, seconds};
use crate::common::bed::{path, rules};

impl Quiet {
    /// Identifiers and hosts of all resources.
    fn stored(&self) -> Vec<(String, String)> {
        let state = self.server.state();
        state.resources.values().map(|row| (row.nice_id.clone(), row.full_domain.clone())).collect()
    }

    async fn reported(&self, reason: &str) -> Vec<String> {
        let events = self.bed.events().await;
        events.into_iter().filter(|event| event.1 == reason).map(|event| event.2).collect()
    }
}

/// The resource appears after its creator gave up, and after its Ingress was deleted.
#[tokio::test(start_paused = true)]
async fn a_late_creation_for_a_deleted_ingress_is_deleted() {
    for (late, patience) in [(20, 120), (70, 420), (250, 420)] {
        let quiet = Quiet::new().await;
        seconds(5).await;
        quiet.server.delay("PUT /v1/org/home-org/resource", Duration::from_secs(late));
        quiet.create("app", "app", 80).await;
        seconds(2).await;
        quiet.bed.delete("app").await;
        seconds(late).await;
        assert_eq!(quiet.server.state().answer("app.ns.test", "/"), Answer::NoRouter, "it has no target");
        seconds(patience).await;
        assert_eq!(quiet.stored(), [], "{late} seconds late");
    }
}

/// The same, and an Ingress of the same name is there again by then: one resource, which is served and open.
#[tokio::test(start_paused = true)]
async fn a_late_creation_for_an_ingress_that_was_created_again_is_one_resource() {
    for late in [10, 20, 70] {
        let quiet = Quiet::new().await;
        seconds(5).await;
        quiet.server.delay("PUT /v1/org/home-org/resource", Duration::from_secs(late));
        quiet.create("app", "app", 80).await;
        seconds(2).await;
        quiet.bed.delete("app").await;
        seconds(1).await;
        quiet.create("app", "api", 9000).await;
        seconds(420).await;
        quiet.assert_served("api", 9000);
        let stored = quiet.stored();
        assert!(stored.len() == 1 && stored[0].0.starts_with("sp-"), "{late} seconds late: {stored:?}");
    }
}

/// A late change that would open a host to everybody is taken back.
#[tokio::test(start_paused = true)]
async fn a_late_change_of_access_is_taken_back() {
    let quiet = Quiet::new().await;
    quiet.create("app", "app", 80).await;
    quiet.bed.annotate("app", "sso", Some("true")).await;
    seconds(120).await;
    assert_eq!(quiet.server.state().visit("app.ns.test", "/"), Visit::Login);
    quiet.server.delay("POST /v1/resource/", Duration::from_secs(40));
    quiet.bed.annotate("app", "sso", None).await;
    seconds(2).await;
    quiet.bed.annotate("app", "sso", Some("true")).await;
    seconds(30).await;
    assert_eq!(quiet.server.state().visit("app.ns.test", "/"), Visit::Login, "not late yet");
    seconds(70).await;
    assert_eq!(quiet.server.state().visit("app.ns.test", "/"), Visit::Login);
}

/// A target that appears after its path was removed again is deleted.
#[tokio::test(start_paused = true)]
async fn a_late_target_of_a_path_that_is_not_wanted_any_more_is_deleted() {
    let quiet = Quiet::new().await;
    quiet.create("app", "app", 80).await;
    seconds(120).await;
    quiet.server.delay("PUT /v1/resource/", Duration::from_secs(40));
    let both = json!([{"host": "app.ns.test", "http": {"paths": [path("/", "Prefix", "app", 80), path("/api", "Exact", "api", 9000)]}}]);
    quiet.bed.patch("app", json!({"spec": {"rules": both}})).await;
    seconds(2).await;
    quiet.bed.patch("app", json!({"spec": {"rules": Quiet::to("app", 80)}})).await;
    seconds(120).await;
    assert_eq!(quiet.server.state().targets.len(), 1);
    quiet.assert_served("app", 80);
}

/// A list that was read before newer writes, and arrives after them, undoes none of them.
#[tokio::test(start_paused = true)]
async fn a_list_that_arrives_after_newer_writes_undoes_none_of_them() {
    let quiet = Quiet::new().await;
    quiet.create("app", "app", 80).await;
    quiet.bed.expose("doomed", &["doomed.ns.test"]).await;
    seconds(120).await;
    // The comparison reads the list, which is on its way for ten seconds.
    quiet.server.lag("GET /v1/org/home-org/resources", Duration::from_secs(10));
    let before = quiet.running.metric("pic_reconcile_total");
    while quiet.server.is_lagging() {
        seconds(1).await;
    }
    quiet.bed.patch("app", json!({"spec": {"rules": Quiet::to("app", 8080)}})).await;
    quiet.bed.expose("new", &["new.ns.test"]).await;
    quiet.bed.delete("doomed").await;
    seconds(30).await;
    assert!(quiet.running.metric("pic_reconcile_total") > before);
    quiet.assert_served("app", 8080);
    let mut hosts: Vec<String> = quiet.stored().into_iter().map(|(_, host)| host).collect();
    hosts.sort();
    assert_eq!(hosts, ["app.ns.test", "new.ns.test"]);
    let writes = |calls: &[String]| calls.iter().filter(|call| !call.starts_with("GET")).count();
    quiet.server.calls();
    seconds(900).await;
    assert_eq!(writes(&quiet.server.calls()), 0, "nothing is left to correct");
}

/// The connection is dropped at the deletion itself, and Pangolin is down afterwards.
#[tokio::test(start_paused = true)]
async fn a_deletion_whose_connection_is_dropped_is_reported() {
    for at in ["", "DELETE", "GET /v1/resource/"] {
        let quiet = Quiet::new().await;
        quiet.create("app", "app", 80).await;
        seconds(20).await;
        quiet.server.cut(at);
        quiet.bed.delete("app").await;
        seconds(300).await;
        let reported = quiet.reported("StillExposed").await;
        assert!(reported.len() == 1 && reported[0].starts_with("app.ns.test stays public"), "{at:?}: {reported:?}");
        quiet.assert_served("app", 80);
        quiet.server.mend();
        seconds(120).await;
        assert_eq!(quiet.stored(), []);
    }
}

/// Each deletion during an outage is reported once, also of an Ingress that was created again in the meantime.
#[tokio::test(start_paused = true)]
async fn every_deletion_during_an_outage_is_reported_once() {
    let quiet = Quiet::new().await;
    quiet.create("app", "app", 80).await;
    seconds(20).await;
    quiet.server.fail("");
    for times in 1..=2 {
        quiet.bed.delete("app").await;
        seconds(400).await;
        assert_eq!(quiet.reported("StillExposed").await.len(), times);
        quiet.create("app", "app", 80).await;
        seconds(400).await;
    }
    assert_eq!(quiet.reported("StillExposed").await.len(), 2, "an Ingress that exists is not reported");
    quiet.server.mend();
    seconds(120).await;
    quiet.assert_served("app", 80);
    let stored = quiet.stored();
    assert_eq!(stored.len(), 1, "{stored:?}");
    // A deletion that works is not reported.
    quiet.bed.delete("app").await;
    seconds(120).await;
    assert_eq!(quiet.reported("StillExposed").await.len(), 2);
    assert_eq!(quiet.stored(), []);
}

/// Many leftovers are deleted in several passes, none of which is cut off by its deadline.
#[tokio::test(start_paused = true)]
async fn many_slow_deletions_are_done_in_several_passes() {
    let quiet = Quiet::new().await;
    let hosts: Vec<String> = (0..40).map(|number| format!("h{number}.ns.test")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    quiet.bed.expose("many", &hosts).await;
    seconds(120).await;
    assert_eq!(quiet.stored().len(), 40);
    // Each call takes ten seconds, so all of them take more than the deadline of a pass.
    quiet.server.pause_each(Duration::from_secs(10));
    quiet.bed.patch("many", json!({"spec": {"rules": rules(&hosts[..1])}})).await;
    seconds(1800).await;
    assert_eq!(quiet.stored().len(), 1);
    let overrun = quiet.running.metric("signpost_passes_total{system=\"pangolin\",outcome=\"deadline\"}");
    assert!(overrun < 0.1, "{overrun} passes were cut off");
}
