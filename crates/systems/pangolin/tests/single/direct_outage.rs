//! Direct mode when the server itself fails in the middle of a pass. The clock is paused.

use std::time::Duration;

use serde_json::json;
use signpost_system_pangolin::Policy;

use super::direct::policy;
use super::direct_turns::{Quiet, seconds};
use crate::common::bed::rules;

const HOSTS: [&str; 3] = ["a.ns.test", "b.ns.test", "c.ns.test"];
const CREATE: &str = "PUT /v1/org/home-org/resource";
const DELETE: &str = "DELETE /v1/resource/";

/// Calls take no time here: the first pass is over, and the pause before the next one is not.
async fn first_pass() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

impl Quiet {
    /// How often a call was made since the last time.
    fn count(&self, start: &str) -> usize {
        self.server.calls().iter().filter(|call| call.starts_with(start)).count()
    }

    /// The hosts in the status of the Ingress `app`.
    async fn status(&self) -> Vec<String> {
        let ingress = self.bed.ingresses.get("app").await.unwrap();
        let balancer = ingress.status.and_then(|status| status.load_balancer?.ingress).unwrap_or_default();
        balancer.into_iter().filter_map(|entry| entry.hostname).collect()
    }

    fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> =
            self.server.state().resources.values().map(|row| row.full_domain.clone()).collect();
        hosts.sort();
        hosts
    }
}

/// A server that is down is not asked about each host of an Ingress. Where it fails at one host, the others are tried.
#[tokio::test(start_paused = true)]
async fn a_pass_stops_at_an_answer_about_the_server_and_goes_on_after_one_about_a_host() {
    for (status, expected) in [(500, 3), (502, 1), (503, 1), (504, 1), (401, 1), (429, 1), (400, 3)] {
        let quiet = Quiet::new().await;
        seconds(5).await;
        quiet.server.calls();
        quiet.server.fail_with(CREATE, status);
        quiet.bed.expose("app", &HOSTS).await;
        first_pass().await;
        assert_eq!(quiet.count(CREATE), expected, "{status}");
        quiet.server.mend();
        seconds(330).await;
        assert_eq!(quiet.hosts(), HOSTS, "{status}");
    }
    let quiet = Quiet::new().await;
    seconds(5).await;
    quiet.server.calls();
    quiet.server.cut(CREATE);
    quiet.bed.expose("app", &HOSTS).await;
    first_pass().await;
    assert_eq!(quiet.count(CREATE), 1, "a dropped connection");
    quiet.server.mend();
    seconds(120).await;
    assert_eq!(quiet.hosts(), HOSTS);
}

/// The same for deletions. Each host that stays public is reported.
#[tokio::test(start_paused = true)]
async fn deletions_stop_at_a_server_that_is_down_and_each_host_is_reported() {
    let quiet = Quiet::new().await;
    quiet.bed.expose("app", &HOSTS).await;
    seconds(20).await;
    quiet.server.calls();
    quiet.server.fail_with(DELETE, 503);
    quiet.bed.delete("app").await;
    first_pass().await;
    assert_eq!(quiet.count(DELETE), 1);
    seconds(5).await;
    let events = quiet.bed.events().await;
    for host in HOSTS {
        let about = |event: &&(String, String, String)| event.1 == "StillExposed" && event.2.contains(host);
        assert_eq!(events.iter().filter(about).count(), 1, "{host}: {events:?}");
    }
    quiet.server.mend();
    seconds(120).await;
    assert_eq!(quiet.hosts(), Vec::<String>::new());
}

/// The status of an Ingress has no host that a pass did not come to.
#[tokio::test(start_paused = true)]
async fn the_status_has_no_host_that_was_not_made_yet() {
    for slow in [false, true] {
        let quiet = Quiet::with(|bed| Policy { ingress_status: true, ..policy(bed) }).await;
        quiet.bed.expose("app", &HOSTS[..1]).await;
        seconds(20).await;
        assert_eq!(quiet.status().await, HOSTS[..1]);
        if slow {
            // A pass ends after four minutes, and the next one goes on.
            quiet.server.slow(CREATE, Duration::from_secs(250));
        } else {
            quiet.server.fail_with(CREATE, 503);
        }
        quiet.bed.patch("app", json!({"spec": {"rules": rules(&HOSTS)}})).await;
        seconds(2).await;
        // Long enough to see the status between two passes.
        quiet.server.pause_each(Duration::from_secs(5));
        for _ in 0..270 {
            seconds(1).await;
            let (shown, there) = (quiet.status().await, quiet.hosts());
            assert!(shown.iter().all(|host| there.contains(host)), "slow: {slow}, {shown:?} of {there:?}");
        }
        quiet.server.mend();
        quiet.server.pause_each(Duration::ZERO);
        seconds(120).await;
        assert_eq!(quiet.status().await, HOSTS, "slow: {slow}");
    }
}

/// A resource that was created, and could not be marked or has no target, answers nothing: its host is not in the status.
#[tokio::test(start_paused = true)]
async fn the_status_has_no_host_whose_resource_is_half_made() {
    // The update that marks it, and the creation of its target.
    for call in ["POST /v1/resource/", "PUT /v1/resource/"] {
        let quiet = Quiet::with(|bed| Policy { ingress_status: true, ..policy(bed) }).await;
        seconds(5).await;
        quiet.server.fail_with(call, 500);
        quiet.bed.expose("app", &HOSTS[..1]).await;
        for second in 0..120 {
            seconds(1).await;
            assert_eq!(quiet.status().await, Vec::<String>::new(), "{call} failed, second {second}");
        }
        assert_eq!(quiet.hosts(), HOSTS[..1], "{call}: the resource is there");
        quiet.server.mend();
        seconds(60).await;
        assert_eq!(quiet.status().await, HOSTS[..1], "{call}");
        // One that was made stays in the status while a change of it fails.
        quiet.server.fail_with("POST /v1/", 500);
        quiet.bed.annotate("app", "sticky-session", Some("true")).await;
        seconds(60).await;
        assert_eq!(quiet.status().await, HOSTS[..1], "{call}");
    }
}

/// The old host is deleted after the new one is made. While that fails, the old one is public, which is reported.
#[tokio::test(start_paused = true)]
async fn a_removed_host_that_waits_for_a_failing_one_is_reported() {
    let quiet = Quiet::new().await;
    quiet.bed.expose("app", &HOSTS[..1]).await;
    seconds(20).await;
    quiet.server.fail(CREATE);
    quiet.bed.patch("app", json!({"spec": {"rules": rules(&HOSTS[1..2])}})).await;
    seconds(60).await;
    assert_eq!(quiet.hosts(), HOSTS[..1]);
    let events = quiet.bed.events().await;
    let about = |event: &&(String, String, String)| event.1 == "StillExposed" && event.2.starts_with("a.ns.test ");
    assert_eq!(events.iter().filter(about).count(), 1, "{events:?}");
    quiet.server.mend();
    seconds(60).await;
    assert_eq!(quiet.hosts(), HOSTS[1..2]);
}
