//! Direct mode on a clock that only moves when everything waits: who writes when, and what a server that refuses the key costs.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use signpost_engine::health::Check;
use signpost_exposure::TunnelAllowance;
use signpost_provider_pangolin::{Connection, PangolinClient, Secret, parse_base_url};
use signpost_sandbox::edge::Answer;
use signpost_system_pangolin::Policy;
use signpost_testkit::pangolin::{ORG, Pangolin};
use signpost_testkit::sandbox_cluster;

use super::direct::{policy, start_with};
use crate::common::bed::{Bed, Running, path, rules};
use crate::common::logs;
use crate::common::pangolins::InProcess;

/// An operator in direct mode on a strict stand-in without a port.
pub(crate) struct Quiet {
    pub(crate) bed: Bed,
    pub(crate) server: Arc<InProcess>,
    pub(crate) running: Running,
}

impl Quiet {
    pub(crate) async fn new() -> Self {
        Self::with(policy).await
    }

    pub(crate) async fn with(policy: impl FnOnce(&Bed) -> Policy) -> Self {
        let bed = Bed::bare(sandbox_cluster().await).await;
        let server = Arc::new(InProcess::default());
        let running = Self::start_with(&bed, &server, policy(&bed));
        Self { bed, server, running }
    }

    pub(crate) fn start(bed: &Bed, server: &Arc<InProcess>) -> Running {
        Self::start_with(bed, server, policy(bed))
    }

    pub(crate) fn start_with(bed: &Bed, server: &Arc<InProcess>, policy: Policy) -> Running {
        let base = parse_base_url("http://pangolin.test").unwrap();
        let connection = Connection::new(base, ORG, Secret::Value(Pangolin::KEY.into()));
        let client = PangolinClient::over(Arc::clone(server) as Arc<_>, &connection);
        start_with(bed, policy, Arc::new(client))
    }

    /// Ends the operator, and starts the next one.
    pub(crate) async fn restarted(self) -> Self {
        let Self { bed, server, running } = self;
        running.stop().await;
        let running = Self::start(&bed, &server);
        Self { bed, server, running }
    }

    pub(crate) fn to(service: &str, port: u16) -> serde_json::Value {
        json!([{"host": "app.ns.test", "http": {"paths": [path("/", "Prefix", service, port)]}}])
    }

    pub(crate) async fn create(&self, name: &str, service: &str, port: u16) {
        let spec = json!({"ingressClassName": "pangolin", "rules": Self::to(service, port)});
        self.bed.create(name, &json!({}), spec).await;
    }

    pub(crate) fn assert_served(&self, service: &str, port: u16) {
        let expected = Answer::Served(vec![format!("{service}.{}.svc.cluster.local:{port}", self.bed.namespace)]);
        assert_eq!(self.server.state().answer("app.ns.test", "/"), expected);
    }
}

pub(crate) async fn seconds(number: u64) {
    tokio::time::sleep(Duration::from_secs(number)).await;
}

/// A pass that is still writing when its Ingress gives the host up does not write over the Ingress that takes the host.
#[tokio::test(start_paused = true)]
async fn a_slow_pass_does_not_write_over_the_ingress_that_takes_its_host() {
    let quiet = Quiet::new().await;
    quiet.create("old", "app", 80).await;
    seconds(20).await;
    quiet.assert_served("app", 80);
    quiet.server.slow("POST /v1/target/", Duration::from_secs(10));
    quiet.bed.patch("old", json!({"spec": {"rules": Quiet::to("app", 8080)}})).await;
    seconds(2).await;
    quiet.bed.patch("old", json!({"spec": {"rules": rules(&["other.ns.test"])}})).await;
    quiet.create("new", "api", 9000).await;
    seconds(60).await;
    quiet.assert_served("api", 9000);
}

/// Access becomes stricter while a slow pass makes one host after the other: it does not go on to make open ones.
#[tokio::test(start_paused = true)]
async fn a_slow_pass_ends_when_its_ingress_asks_for_a_login() {
    let quiet = Quiet::new().await;
    seconds(5).await;
    quiet.server.pause_each(Duration::from_secs(10));
    let hosts = ["a.ns.test", "b.ns.test", "c.ns.test", "d.ns.test"];
    quiet.bed.expose("app", &hosts).await;
    seconds(15).await;
    quiet.bed.annotate("app", "sso", Some("true")).await;
    let mut protected = None;
    for second in 0..400 {
        seconds(1).await;
        let state = quiet.server.state();
        let open: Vec<&str> = state
            .resources
            .values()
            .filter(|row| row.sso != Some(true) && state.targets.values().any(|target| target.resource == row.id))
            .map(|row| row.full_domain.as_str())
            .collect();
        assert!(open.iter().all(|host| *host == hosts[0]), "{open:?} after {second} seconds");
        if open.is_empty() && !state.targets.is_empty() {
            protected.get_or_insert(second);
        }
    }
    assert!(protected.is_some_and(|second| second < 60), "{protected:?}");
    assert_eq!(quiet.server.state().targets.len(), hosts.len());
}

/// An older Ingress takes a host and gives it back at once, while its first write is on its way: the younger one finds that nothing is to be
/// done, and looks again after that write.
#[tokio::test(start_paused = true)]
async fn a_slow_take_over_that_is_called_off_leaves_the_host_as_it_was() {
    let other = |rules: serde_json::Value| {
        let mut all = rules.as_array().unwrap().clone();
        all.extend(crate::common::bed::rules(&["other.ns.test"]).as_array().unwrap().clone());
        json!({"spec": {"rules": all}})
    };
    // Another Service, which the list of resources shows, and another path, which it does not show.
    let exact = json!([{"host": "app.ns.test", "http": {"paths": [path("/only", "Exact", "app", 80)]}}]);
    for taken in [Quiet::to("api", 9000), exact] {
        let quiet = Quiet::new().await;
        let [older, younger] = quiet.bed.two_ages(["a.ns.test", "b.ns.test"]).await;
        quiet.bed.patch(older, other(json!([]))).await;
        quiet.bed.patch(younger, json!({"spec": {"rules": Quiet::to("app", 80)}})).await;
        seconds(20).await;
        quiet.assert_served("app", 80);
        quiet.server.calls();
        quiet.server.slow("POST /v1/target/", Duration::from_secs(10));
        quiet.bed.patch(older, other(taken.clone())).await;
        seconds(2).await;
        assert!(quiet.server.calls().iter().any(|call| call.starts_with("POST /v1/target/")), "{taken}");
        quiet.bed.patch(older, other(json!([]))).await;
        seconds(30).await;
        quiet.assert_served("app", 80);
        let state = quiet.server.state();
        assert_eq!((state.resources.len(), state.targets.len()), (2, 2), "{taken}");
    }
}

/// A host that its Ingress gives up and names again, while the pass in between is still writing, is never deleted.
#[tokio::test(start_paused = true)]
async fn a_slow_pass_does_not_delete_a_host_that_its_ingress_wants_again() {
    // Before the host in between is made, and while the resource to delete is read.
    for slow in ["PUT /v1/org/home-org/resource", "GET /v1/resource/"] {
        let quiet = Quiet::new().await;
        quiet.create("app", "app", 80).await;
        seconds(20).await;
        quiet.assert_served("app", 80);
        let id = quiet.server.state().resources.values().next().unwrap().id;
        quiet.server.calls();
        quiet.server.slow(slow, Duration::from_secs(10));
        quiet.bed.patch("app", json!({"spec": {"rules": rules(&["other.ns.test"])}})).await;
        seconds(2).await;
        let calls = quiet.server.calls();
        assert!(calls.iter().any(|call| call.starts_with(slow)), "{calls:?}");
        quiet.bed.patch("app", json!({"spec": {"rules": Quiet::to("app", 80)}})).await;
        seconds(60).await;
        quiet.assert_served("app", 80);
        let deleted: Vec<String> =
            quiet.server.calls().into_iter().filter(|call| call.starts_with("DELETE /v1/resource/")).collect();
        assert!(!deleted.contains(&format!("DELETE /v1/resource/{id}")), "{slow}: {deleted:?}");
        assert_eq!(deleted.len(), 1, "the host in between is deleted: {deleted:?}");
        assert_eq!(quiet.server.state().answer("other.ns.test", "/"), Answer::NoRouter);
        // The host is deleted when it is really given up.
        quiet.bed.patch("app", json!({"spec": {"rules": rules(&["other.ns.test"])}})).await;
        seconds(60).await;
        assert_eq!(quiet.server.state().answer("app.ns.test", "/"), Answer::NoRouter);
    }
}

/// A deletion that is still under way does not take the resource from the Ingress that takes the host.
#[tokio::test(start_paused = true)]
async fn a_slow_deletion_leaves_the_next_ingress_its_host() {
    let quiet = Quiet::new().await;
    quiet.create("old", "app", 80).await;
    seconds(20).await;
    quiet.assert_served("app", 80);
    quiet.server.slow("DELETE /v1/resource/", Duration::from_secs(10));
    quiet.bed.delete("old").await;
    seconds(2).await;
    quiet.create("new", "api", 9000).await;
    seconds(60).await;
    quiet.assert_served("api", 9000);
}

/// A key that is refused is tried after longer and longer pauses, although domains, sites and resources are still remembered.
#[tokio::test(start_paused = true)]
async fn a_refused_key_is_not_forgotten_because_lists_are_remembered() {
    let quiet = Quiet::new().await;
    let names: Vec<String> = (0..20).map(|number| format!("app-{number}")).collect();
    for name in &names {
        quiet.bed.expose(name, &[&format!("{name}.ns.test")]).await;
    }
    seconds(60).await;
    quiet.server.state().rotate("minimum", "other");
    for name in &names {
        let backend =
            json!([{"host": format!("{name}.ns.test"), "http": {"paths": [path("/", "Prefix", "api", 9000)]}}]);
        quiet.bed.patch(name, json!({"spec": {"rules": backend}})).await;
    }
    seconds(30).await;
    quiet.server.calls();
    // Less than the time after which the lists would be read again anyway.
    for _ in 0..20 {
        seconds(10).await;
        let check = quiet.running.health.checks().get("pangolin").cloned();
        assert!(matches!(check, Some(Check::Failing { .. })), "{check:?}");
    }
    let calls: Vec<String> = quiet.server.calls().into_iter().filter(|call| call != "GET /v1").collect();
    assert!(!calls.is_empty() && calls.len() <= 10, "{} calls: {calls:?}", calls.len());
    let mut reported = logs::of_this_thread();
    reported.retain(|line| line.field("message") == "Pangolin cannot be used");
    assert_eq!(reported.len(), 1, "reported once: {reported:?}");
    // The key is seen to work again although no Ingress changes.
    quiet.server.state().rotate("minimum", "secret");
    seconds(120).await;
    assert_eq!(quiet.running.health.checks().get("pangolin"), Some(&Check::Ok));
    let changed = quiet.server.state().targets.values().filter(|target| *target.field("port") == json!(9000)).count();
    assert_eq!(changed, names.len());
}

/// One failed write, and nothing to do afterwards: readiness comes back by itself.
#[tokio::test(start_paused = true)]
async fn readiness_returns_without_any_ingress_that_asks() {
    let quiet = Quiet::new().await;
    quiet.create("app", "app", 80).await;
    seconds(20).await;
    quiet.server.delay("POST /v1/target/", Duration::from_secs(1));
    quiet.bed.patch("app", json!({"spec": {"rules": Quiet::to("app", 8080)}})).await;
    seconds(16).await;
    quiet.bed.delete("app").await;
    seconds(60).await;
    assert_eq!(quiet.running.health.checks().get("pangolin"), Some(&Check::Ok));
}

/// A write that has its effect after its caller gave up, and after another Ingress took the host over.
#[tokio::test(start_paused = true)]
async fn a_late_write_to_a_host_that_was_taken_over_is_found() {
    for late in ["POST /v1/target/", "DELETE /v1/resource/"] {
        let quiet = Quiet::new().await;
        quiet.create("old", "app", 80).await;
        quiet.bed.expose("new", &["other.ns.test"]).await;
        seconds(120).await;
        quiet.assert_served("app", 80);
        quiet.server.delay(late, Duration::from_secs(40));
        if late.starts_with("POST") {
            quiet.bed.patch("old", json!({"spec": {"rules": Quiet::to("app", 8080)}})).await;
            seconds(2).await;
        }
        quiet.bed.delete("old").await;
        seconds(2).await;
        // It knows all of its own resources, and has no reason to doubt them.
        let mut both = Quiet::to("api", 9000);
        both.as_array_mut().unwrap().push(rules(&["other.ns.test"])[0].clone());
        quiet.bed.patch("new", json!({"spec": {"rules": both}})).await;
        seconds(150).await;
        quiet.assert_served("api", 9000);
    }
}

/// A doubt about a late write survives a pass that could not read anything.
#[tokio::test(start_paused = true)]
async fn a_late_write_is_found_after_the_ingress_was_refused_for_a_while() {
    let quiet = Quiet::new().await;
    let spec = |at: &str| {
        json!({"spec": {"rules": [{"host": "app.ns.test", "http": {"paths": [
            path("/", "Prefix", "app", 80), path(at, "Prefix", "api", 9000)]}}]}})
    };
    quiet.create("app", "app", 80).await;
    quiet.bed.patch("app", spec("/one")).await;
    seconds(120).await;
    quiet.server.delay("POST /v1/target/", Duration::from_secs(80));
    quiet.bed.patch("app", spec("/two")).await;
    seconds(5).await;
    quiet.bed.patch("app", spec("/one")).await;
    seconds(40).await;
    quiet.bed.annotate("app", "sso", Some("ture")).await;
    seconds(60).await;
    quiet.bed.annotate("app", "sso", None).await;
    seconds(30).await;
    let served = |service: &str, port: u16| {
        Answer::Served(vec![format!("{service}.{}.svc.cluster.local:{port}", quiet.bed.namespace)])
    };
    assert_eq!(quiet.server.state().answer("app.ns.test", "/one"), served("api", 9000));
    assert_eq!(quiet.server.state().answer("app.ns.test", "/two"), served("app", 80));
}

/// One object that the server fails at does not stop the others, and does not make the process unready.
#[tokio::test(start_paused = true)]
async fn an_object_that_the_server_fails_at_does_not_stop_its_neighbours() {
    let quiet = Quiet::new().await;
    quiet.create("app", "app", 80).await;
    seconds(20).await;
    quiet.server.fail("POST /v1/target/");
    quiet.bed.patch("app", json!({"spec": {"rules": Quiet::to("app", 8080)}})).await;
    for number in 0..10 {
        let name = format!("next-{number}");
        quiet.bed.expose(&name, &[&format!("{name}.ns.test")]).await;
        seconds(5).await;
        let host = format!("{name}.ns.test");
        assert!(matches!(quiet.server.state().answer(&host, "/"), Answer::Served(_)), "{host}");
        assert_eq!(quiet.running.health.checks().get("pangolin"), Some(&Check::Ok));
    }
    let events = quiet.bed.events().await;
    let warnings: Vec<_> =
        events.iter().filter(|event| event.0 == "Warning" && !event.2.contains("app.ns.test")).collect();
    assert!(warnings.is_empty(), "{warnings:?}");
}

/// A paused Ingress keeps its resource, which answers nothing; a change in the meantime is there when it continues.
#[tokio::test(start_paused = true)]
async fn a_paused_ingress_keeps_its_resource_and_answers_nothing() {
    let quiet = Quiet::new().await;
    quiet.create("app", "app", 80).await;
    seconds(20).await;
    let marks = || {
        let state = quiet.server.state();
        state.resources.values().map(|row| (row.id, row.nice_id.clone())).collect::<Vec<_>>()
    };
    let before = marks();
    let unanswered = || assert_eq!(quiet.server.state().answer("app.ns.test", "/"), Answer::NoRouter);
    quiet.bed.annotate("app", "paused", Some("true")).await;
    seconds(20).await;
    unanswered();
    quiet.bed.patch("app", json!({"spec": {"rules": Quiet::to("app", 8080)}})).await;
    seconds(600).await;
    unanswered();
    assert_eq!(marks(), before);
    quiet.bed.annotate("app", "paused", None).await;
    seconds(20).await;
    quiet.assert_served("app", 8080);
    assert_eq!(marks(), before);
    // It is paused at once, also while its Service is missing.
    quiet.bed.patch("app", json!({"spec": {"rules": Quiet::to("absent", 80)}})).await;
    seconds(20).await;
    quiet.assert_served("app", 8080);
    quiet.bed.annotate("app", "paused", Some("true")).await;
    seconds(20).await;
    unanswered();
    // A value that cannot be read changes nothing.
    quiet.bed.annotate("app", "paused", Some("ture")).await;
    seconds(20).await;
    unanswered();
}

/// The annotation `domain-name` alone moves a host into another domain, which is reported once.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_moved_to_another_domain_is_reported_once() {
    let quiet = Quiet::new().await;
    let domain = json!({"pangolin.ingress.k8s.io/domain-name": "ns.test"});
    let spec = |host: &str| json!({"ingressClassName": "pangolin", "rules": rules(&[host])});
    quiet.bed.create("moved", &domain, spec("shop.example.com")).await;
    quiet.bed.create("below", &domain, spec("below.ns.test")).await;
    seconds(1200).await;
    let events = quiet.bed.events().await;
    let reported: Vec<_> = events.iter().filter(|event| event.1 == "HostOverridden").collect();
    let [(kind, _, note)] = &reported[..] else { panic!("{events:?}") };
    assert_eq!(kind, "Normal");
    assert!(note.contains("shop.example.com") && note.contains("so shop.ns.test is exposed"), "{note}");
}

/// An Ingress of a namespace that may not use a tunnel is refused, and keeps what it has.
#[tokio::test(start_paused = true)]
async fn a_tunnel_is_used_only_by_the_namespaces_that_may() {
    let allowed = |bed: &Bed| TunnelAllowance::parse(&format!("cluster={}, home=other", bed.namespace)).unwrap();
    let quiet = Quiet::with(|bed| Policy { allowed: allowed(bed), ..policy(bed) }).await;
    quiet.create("app", "app", 80).await;
    seconds(20).await;
    quiet.assert_served("app", 80);
    let sites =
        || quiet.server.state().targets.values().map(|target| target.field("siteId").clone()).collect::<Vec<_>>();
    let before = sites();
    quiet.bed.annotate("app", "tunnel-name", Some("home")).await;
    seconds(20).await;
    let note = quiet.bed.event("Warning", "TunnelNotAllowed").await;
    assert!(note.contains("may not use the tunnel \"home\"") && note.contains(&quiet.bed.namespace), "{note}");
    quiet.assert_served("app", 80);
    assert_eq!(sites(), before);
}

/// Whoever deletes an Ingress while Pangolin is down gets an event: its host is still public.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_waits_for_pangolin_is_reported() {
    let quiet = Quiet::new().await;
    quiet.create("app", "app", 80).await;
    seconds(20).await;
    quiet.server.fail("");
    quiet.bed.delete("app").await;
    seconds(120).await;
    let events = quiet.bed.events().await;
    let reported: Vec<_> = events.iter().filter(|event| event.1 == "StillExposed").collect();
    assert!(reported.len() == 1 && reported[0].2.contains("app.ns.test"), "{events:?}");
    quiet.server.mend();
    seconds(120).await;
    assert_eq!(quiet.server.state().answer("app.ns.test", "/"), Answer::NoRouter);
}

/// The process that gets the deletion has not written the resource itself: a start believes the digest.
#[tokio::test(start_paused = true)]
async fn a_deletion_after_a_restart_is_reported_while_pangolin_is_down() {
    for listed in [true, false] {
        let quiet = Quiet::new().await;
        quiet.create("app", "app", 80).await;
        seconds(20).await;
        let quiet = if listed {
            let quiet = quiet.restarted().await;
            seconds(20).await;
            quiet.server.fail("");
            quiet
        } else {
            // Pangolin is down before the start, and nothing is listed at all.
            quiet.server.fail("");
            quiet.restarted().await
        };
        seconds(600).await;
        quiet.bed.delete("app").await;
        seconds(120).await;
        let events = quiet.bed.events().await;
        let reported: Vec<_> = events.iter().filter(|event| event.1 == "StillExposed").collect();
        assert!(reported.len() == 1 && reported[0].2.starts_with("app.ns.test stays public"), "{listed}: {events:?}");
        quiet.server.mend();
        seconds(120).await;
        assert_eq!(quiet.server.state().answer("app.ns.test", "/"), Answer::NoRouter);
    }
}

/// The strict stand-in fails for an hour: nothing is lost meanwhile, and everything is caught up with.
#[tokio::test(start_paused = true)]
async fn a_pangolin_that_fails_for_an_hour_is_caught_up_with() {
    let quiet = Quiet::new().await;
    for name in ["kept", "changed", "doomed"] {
        quiet.bed.expose(name, &[&format!("{name}.ns.test")]).await;
    }
    seconds(20).await;
    let hosts = || {
        let mut hosts: Vec<String> =
            quiet.server.state().resources.values().map(|row| row.full_domain.clone()).collect();
        hosts.sort();
        hosts
    };
    quiet.server.fail("");
    quiet.bed.delete("doomed").await;
    quiet.bed.expose("late", &["late.ns.test"]).await;
    let backend = json!([{"host": "changed.ns.test", "http": {"paths": [path("/", "Prefix", "api", 9000)]}}]);
    quiet.bed.patch("changed", json!({"spec": {"rules": backend}})).await;
    seconds(3600).await;
    assert_eq!(hosts(), ["changed.ns.test", "doomed.ns.test", "kept.ns.test"], "nothing is lost");
    assert!(quiet.bed.ingresses.get_opt("doomed").await.unwrap().is_none(), "nothing holds it up");
    quiet.server.mend();
    seconds(120).await;
    assert_eq!(hosts(), ["changed.ns.test", "kept.ns.test", "late.ns.test"]);
    let served = Answer::Served(vec![format!("api.{}.svc.cluster.local:9000", quiet.bed.namespace)]);
    assert_eq!(quiet.server.state().answer("changed.ns.test", "/"), served);
}

/// Creates Ingresses, and returns how many resources were created in each of the next seconds.
async fn created_each_second(quiet: &Quiet, ingresses: usize, during: usize) -> Vec<usize> {
    for number in 0..ingresses {
        quiet.bed.expose(&format!("app-{number}"), &[&format!("app-{number}.ns.test")]).await;
    }
    let mut created = Vec::new();
    for _ in 0..during {
        quiet.server.calls();
        seconds(1).await;
        let calls = quiet.server.calls();
        created.push(calls.iter().filter(|call| call.starts_with("PUT /v1/org/home-org/resource")).count());
    }
    created
}

/// Each call costs Pangolin a password hash, so ten passes a second at most call it. A pass that calls nothing does not wait.
#[tokio::test(start_paused = true)]
async fn r087_ten_passes_a_second_call_pangolin_unless_another_rate_is_set() {
    let quiet = Quiet::new().await;
    seconds(5).await;
    let created = created_each_second(&quiet, 60, 8).await;
    assert!(created.iter().all(|made| *made <= 11), "{created:?}");
    assert!(created[1..4].iter().all(|made| *made >= 9), "{created:?}");
    assert_eq!(quiet.server.state().targets.len(), 60);
    seconds(60).await;
    let quiet = quiet.restarted().await;
    seconds(2).await;
    let passes = quiet.running.metric("pic_reconcile_total");
    assert!(passes >= 60.0, "{passes} passes in two seconds");
    let unlimited = Quiet::with(|bed| Policy { rate: Some(0), ..policy(bed) }).await;
    seconds(5).await;
    let created = created_each_second(&unlimited, 60, 1).await;
    assert_eq!(unlimited.server.state().targets.len(), 60, "{created:?}");
}

/// Until a deletion or a protection is done, something is public that nobody wants to be: neither waits for the rate.
#[tokio::test(start_paused = true)]
async fn r087_deletions_and_protections_are_not_limited() {
    let quiet = Quiet::new().await;
    seconds(5).await;
    created_each_second(&quiet, 60, 8).await;
    seconds(60).await;
    assert_eq!(quiet.server.state().resources.len(), 60);
    // Their Service is missing, so each is only protected.
    let services: kube::Api<k8s_openapi::api::core::v1::Service> =
        kube::Api::namespaced(quiet.bed.cluster.client(), &quiet.bed.namespace);
    services.delete("app", &kube::api::DeleteParams::default()).await.unwrap();
    seconds(20).await;
    for number in 0..60 {
        quiet.bed.annotate(&format!("app-{number}"), "sso", Some("true")).await;
    }
    seconds(2).await;
    let open = || quiet.server.state().resources.values().filter(|row| row.sso != Some(true)).count();
    assert_eq!(open(), 0, "protected in two seconds");
    for number in 0..60 {
        quiet.bed.delete(&format!("app-{number}")).await;
    }
    seconds(2).await;
    assert_eq!(quiet.server.state().resources.len(), 0, "deleted in two seconds");
}

/// New Ingresses wait for the rate; one that is deleted or gives up its class meanwhile is withdrawn before them.
#[tokio::test(start_paused = true)]
async fn r087_withdrawals_do_not_wait_for_a_burst_of_new_ingresses() {
    let quiet = Quiet::new().await;
    for old in ["deleted", "disabled"] {
        quiet.bed.expose(old, &[&format!("{old}.ns.test")]).await;
    }
    seconds(5).await;
    assert_eq!(quiet.server.state().resources.len(), 2);
    created_each_second(&quiet, 100, 1).await;
    quiet.bed.delete("deleted").await;
    quiet.bed.annotate("disabled", "enabled", Some("false")).await;
    seconds(3).await;
    let state = quiet.server.state();
    let hosts: Vec<&str> = state.resources.values().map(|row| row.full_domain.as_str()).collect();
    assert!(!hosts.contains(&"deleted.ns.test") && !hosts.contains(&"disabled.ns.test"), "{hosts:?}");
    assert!(hosts.len() < 70, "the burst is over: {}", hosts.len());
}

/// Everything gets a login at once, which is not limited although each resource is changed. Opening everything again is.
#[tokio::test(start_paused = true)]
async fn r087_stricter_access_is_not_limited() {
    let quiet = Quiet::new().await;
    seconds(5).await;
    created_each_second(&quiet, 60, 8).await;
    seconds(60).await;
    let open = || quiet.server.state().resources.values().filter(|row| row.sso != Some(true)).count();
    assert_eq!(open(), 60);
    let annotate = async |value: Option<&str>| {
        for number in 0..60 {
            quiet.bed.annotate(&format!("app-{number}"), "sso", value).await;
        }
        seconds(2).await;
    };
    annotate(Some("true")).await;
    assert_eq!(open(), 0, "protected in two seconds");
    seconds(60).await;
    annotate(None).await;
    assert!((1..=45).contains(&open()), "{} are open after two seconds", open());
}

/// A domain itself has no subdomain, which a PangolinResource cannot express and Pangolin can.
#[tokio::test(start_paused = true)]
async fn c11_a_domain_itself_is_exposed_in_direct_mode() {
    let quiet = Quiet::new().await;
    for (name, host) in [("one", "ns.test"), ("two", "wild.test")] {
        quiet.bed.expose(name, &[host]).await;
        seconds(5).await;
        let expected = Answer::Served(vec![format!("app.{}.svc.cluster.local:80", quiet.bed.namespace)]);
        assert_eq!(quiet.server.state().answer(host, "/"), expected, "{host}");
    }
}
