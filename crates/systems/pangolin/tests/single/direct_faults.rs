//! Direct mode when Pangolin, its key or this process fail.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use signpost_engine::health::Check;
use signpost_provider_pangolin::{
    Domain, DomainId, DomainKind, MemoryPangolin, NewResource, Pangolin as _, PangolinError, Site, SiteId, SiteKind,
};
use signpost_sandbox::edge::Answer;
use signpost_system_pangolin::Policy;
use signpost_testkit::pangolin::{ORG, Pangolin, Version};
use signpost_testkit::{Fault, FaultProxy, Rule, eventually, sandbox_cluster};

use super::direct::{Direct, client, policy, start, start_with};
use crate::common::bed::{Bed, PATIENCE, path, rules};
use crate::common::pangolins::{Fate, Fragile, InProcess};

/// Nothing of an organisation that cannot be read is ever deleted, and each way to be refused has its reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_does_not_fit_has_its_reason_and_deletes_nothing() {
    for (org, key, word) in [
        (ORG, "unknown.secret", "refuses the API key"),
        (ORG, "minimum.wrong", "refuses the API key"),
        (ORG, "other.secret", ORG),
        (ORG, "nodot", "id.secret"),
        ("other-org", Pangolin::KEY, "other-org"),
        ("no-such-org", "root.secret", "no-such-org"),
    ] {
        let direct = Direct::new(sandbox_cluster().await).await;
        let running = start(&direct.bed, &direct.server);
        direct.bed.expose("app", &["app.ns.test"]).await;
        direct.settled("app").await;
        running.stop().await;
        let running = start_with(&direct.bed, policy(&direct.bed), Arc::new(client(&direct.server.url(), org, key)));
        direct.bed.patch("app", json!({"spec": {"rules": rules(&["new.ns.test"])}})).await;
        let note = direct.bed.event("Warning", "ProviderUnauthorized").await;
        assert!(note.contains(word), "{org} {key}: {note}");
        direct.has(&["app.ns.test"]).await;
        eventually("readiness names it", PATIENCE, || async {
            match running.health.checks().get("pangolin") {
                Some(Check::Failing { message, .. }) if message.contains(word) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

/// A key file is read at each call: after a rotation the new key is used without a restart, and nothing is lost in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_key_is_used_without_a_restart() {
    use signpost_provider_pangolin::{Connection, PangolinClient, Secret, parse_base_url};
    let direct = Direct::new(sandbox_cluster().await).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, Pangolin::KEY).unwrap();
    let base = parse_base_url(&direct.server.url()).unwrap();
    let connection = Connection::new(base, ORG, Secret::File(file.clone()));
    let client = Arc::new(PangolinClient::new(&connection).unwrap());
    let _running = start_with(&direct.bed, policy(&direct.bed), client);
    direct.bed.expose("app", &["app.ns.test"]).await;
    direct.settled("app").await;
    direct.server.rotate("minimum", "other");
    direct.bed.expose("late", &["late.ns.test"]).await;
    let note = direct.bed.event("Warning", "ProviderUnauthorized").await;
    assert!(!note.contains("secret") && !note.contains("minimum"), "{note}");
    direct.has(&["app.ns.test"]).await;
    std::fs::write(&file, "minimum.other\n").unwrap();
    direct.answers("late.ns.test", "/", "app", 80).await;
    direct.has(&["app.ns.test", "late.ns.test"]).await;
}

/// 1.9 and 1.10 cannot route by paths with priorities: the host is refused with the names of the settings, and its neighbour is exposed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_an_old_pangolin_cannot_route_is_refused_and_its_neighbour_is_exposed() {
    for version in [Version::V1_9, Version::V1_10] {
        let bed = Bed::bare(sandbox_cluster().await).await;
        let direct = Direct { bed, server: Pangolin::of(version).await };
        let _running = start(&direct.bed, &direct.server);
        let paths = json!([path("/", "Prefix", "app", 80), path("/api", "Exact", "api", 9000)]);
        let spec =
            json!({"ingressClassName": "pangolin", "rules": [{"host": "app.ns.test", "http": {"paths": paths}}]});
        direct.bed.create("paths", &json!({}), spec).await;
        direct.bed.expose("plain", &["plain.ns.test"]).await;
        direct.answers("plain.ns.test", "/", "app", 80).await;
        let note = direct.bed.event("Warning", "ProviderRejected").await;
        assert!(note.contains("priority"), "{version:?}: {note}");
        direct.bed.patch("paths", json!({"spec": {"rules": rules(&["app.ns.test"])}})).await;
        direct.answers("app.ns.test", "/", "app", 80).await;
    }
}

/// Each of them is named when it is needed, and nothing that exists is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_permission_is_named() {
    let backend = |service: &str, port: u16| json!({"spec": {"rules": [{"host": "app.ns.test", "http": {"paths": [path("/", "Prefix", service, port)]}}]}});
    let paths = json!({"spec": {"rules": [{"host": "app.ns.test", "http": {"paths": [path("/", "Prefix", "app", 80), path("/a", "Exact", "api", 9000)]}}]}});
    let forget = json!({"metadata": {"annotations": {signpost_system_pangolin::APPLIED_ANNOTATION: null}}});
    for permission in signpost_testkit::pangolin::MINIMUM {
        let direct = Direct::new(sandbox_cluster().await).await;
        let running = start(&direct.bed, &direct.server);
        direct.bed.expose("app", &["app.ns.test"]).await;
        let digest = direct.settled("app").await;
        match *permission {
            "getResource" | "listTargets" => {
                running.stop().await;
                direct.bed.patch("app", forget.clone()).await;
            }
            "deleteTarget" => {
                direct.bed.patch("app", paths.clone()).await;
                eventually("the path is there", PATIENCE, || async {
                    let now = direct.settled("app").await;
                    if now == digest { Err(now) } else { Ok(()) }
                })
                .await;
                running.stop().await;
            }
            _ => running.stop().await,
        }
        direct.server.revoke("minimum", permission);
        let _running = start(&direct.bed, &direct.server);
        let mut reason = "ProviderUnauthorized";
        match *permission {
            "createResource" => {
                direct.bed.patch("app", json!({"spec": {"rules": rules(&["app.ns.test", "new.ns.test"])}})).await;
            }
            "createTarget" => direct.bed.patch("app", paths.clone()).await,
            "updateResource" => direct.bed.annotate("app", "sso", Some("true")).await,
            "deleteTarget" => direct.bed.patch("app", backend("app", 80)).await,
            "deleteResource" => {
                direct.bed.delete("app").await;
                reason = "StillExposed";
            }
            _ => direct.bed.patch("app", backend("api", 9000)).await,
        }
        let note = direct.bed.event("Warning", reason).await;
        assert!(note.contains(permission), "{permission}: {note}");
        let kept = direct.server.state().resources.values().any(|row| row.full_domain == "app.ns.test");
        assert!(kept, "{permission}");
    }
}

/// HTML, a server error, half a body, a lost answer: tried again, and nothing is made twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pangolin_that_fails_in_any_way_ends_with_one_resource() {
    let html =
        Fault::Answer { status: 404, headers: vec![("content-type", "text/html".into())], body: "<html>".into() };
    for fault in [Fault::status(500), html, Fault::CutBefore, Fault::CutAfter, Fault::CutBody(20), Fault::throttled(1)]
    {
        let direct = Direct::new(sandbox_cluster().await).await;
        let proxy = FaultProxy::start(&direct.server.url()).await;
        proxy.add(Rule::nth(1, fault.clone()).method(http::Method::PUT));
        proxy.add(Rule::nth(1, fault.clone()).method(http::Method::POST));
        proxy.add(Rule::nth(2, fault.clone()).method(http::Method::GET));
        let running = start_with(&direct.bed, policy(&direct.bed), Arc::new(client(&proxy.url(), ORG, Pangolin::KEY)));
        direct.bed.expose("app", &["app.ns.test"]).await;
        direct.answers("app.ns.test", "/", "app", 80).await;
        direct.settled("app").await;
        direct.has(&["app.ns.test"]).await;
        direct.bed.delete("app").await;
        direct.has(&[]).await;
        running.stop().await;
    }
}

fn twin() -> MemoryPangolin {
    let domain = Domain {
        id: DomainId("d".into()),
        base: signpost_dns::Fqdn::parse("ns.test").unwrap(),
        kind: DomainKind::Ns,
        verified: true,
    };
    let site = Site {
        id: SiteId(1),
        nice_id: "cluster".into(),
        name: "cluster".into(),
        kind: SiteKind::Newt,
        online: Some(true),
    };
    MemoryPangolin::new(vec![domain], vec![site])
}

/// A clock that only moves when everything waits: an hour, and a day, take no time.
#[tokio::test(start_paused = true)]
async fn a_pangolin_that_is_down_for_a_day_wedges_nothing_and_is_caught_up_with() {
    let bed = Bed::bare(sandbox_cluster().await).await;
    let pangolin = twin();
    let running = start_with(&bed, policy(&bed), Arc::new(pangolin.clone()));
    bed.expose("kept", &["kept.ns.test"]).await;
    bed.expose("doomed", &["doomed.ns.test"]).await;
    let hosts = || {
        let mut hosts: Vec<String> =
            pangolin.stored().iter().filter_map(|(row, _)| Some(row.host.as_ref()?.undotted().to_owned())).collect();
        hosts.sort();
        hosts
    };
    let has = async |expected: &[&str]| {
        eventually(&format!("{expected:?}"), PATIENCE, || async {
            if hosts() == expected { Ok(()) } else { Err((hosts(), bed.events().await)) }
        })
        .await;
    };
    has(&["doomed.ns.test", "kept.ns.test"]).await;
    let down = PangolinError::Unreachable { what: "connection refused".to_owned(), dropped: false };
    pangolin.fail(Some(down));
    bed.delete("doomed").await;
    assert!(bed.ingresses.get_opt("doomed").await.unwrap().is_none(), "nothing holds it up");
    bed.expose("late", &["late.ns.test"]).await;
    bed.event("Warning", "ProviderUnreachable").await;
    tokio::time::sleep(std::time::Duration::from_hours(24)).await;
    assert_eq!(hosts(), ["doomed.ns.test", "kept.ns.test"], "nothing is lost");
    let errors = running.metric("pic_reconcile_total{result=\"error\"}");
    assert!(errors < 20_000.0, "{errors} passes in a day");
    pangolin.fail(None);
    has(&["kept.ns.test", "late.ns.test"]).await;
    // The same while this process is down too.
    pangolin.fail(Some(PangolinError::Timeout));
    bed.delete("late").await;
    running.crash().await;
    let _running = start_with(&bed, policy(&bed), Arc::new(pangolin.clone()));
    tokio::time::sleep(std::time::Duration::from_hours(1)).await;
    pangolin.fail(None);
    has(&["kept.ns.test"]).await;
}

/// What is exposed is counted while Pangolin does not answer, and while its Ingress cannot be used.
#[tokio::test(start_paused = true)]
async fn the_managed_resources_are_counted_while_pangolin_is_down() {
    let bed = Bed::bare(sandbox_cluster().await).await;
    let pangolin = twin();
    let running = start_with(&bed, policy(&bed), Arc::new(pangolin.clone()));
    bed.expose("app", &["a.ns.test", "b.ns.test"]).await;
    let managed = || running.metric("pic_pangolinresource_managed ");
    eventually("both are counted", PATIENCE, || async {
        if (managed() - 2.0).abs() < 0.1 { Ok(()) } else { Err(managed()) }
    })
    .await;
    pangolin.fail(Some(PangolinError::Timeout));
    bed.patch("app", json!({"spec": {"rules": rules(&["a.ns.test", "c.ns.test"])}})).await;
    bed.event("Warning", "ProviderUnreachable").await;
    assert!((managed() - 2.0).abs() < 0.1, "{} while it is down", managed());
    pangolin.fail(None);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!((managed() - 2.0).abs() < 0.1, "{} afterwards", managed());
    bed.annotate("app", "sso", Some("ture")).await;
    bed.event("Warning", "InvalidAnnotation").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!((managed() - 2.0).abs() < 0.1, "{} while it is refused", managed());
    bed.delete("app").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(managed() < 0.1, "{} at the end", managed());
}

/// The rules of one step of a history: each host with its paths.
type Step = Vec<(&'static str, Vec<(&'static str, &'static str, u16)>)>;

fn history() -> Vec<Step> {
    vec![
        vec![("a.ns.test", vec![("/", "app", 80)])],
        vec![("a.ns.test", vec![("/", "app", 80), ("/api", "api", 9000)])],
        vec![
            ("a.ns.test", vec![("/", "api", 9000), ("/api", "app", 8080), ("/api/v1", "app", 80)]),
            ("b.wild.test", vec![("/", "app", 80)]),
        ],
        vec![("b.wild.test", vec![("/x", "api", 9000)])],
        vec![],
    ]
}

fn spec_of(step: &Step) -> Value {
    let rules: Vec<Value> = step
        .iter()
        .map(|(host, paths)| {
            let paths: Vec<Value> =
                paths.iter().map(|(at, service, port)| path(at, "Prefix", service, *port)).collect();
            json!({"host": host, "http": {"paths": paths}})
        })
        .collect();
    if rules.is_empty() {
        // The class is removed.
        return json!({"ingressClassName": "nginx"});
    }
    json!({"ingressClassName": "pangolin", "rules": rules})
}

const URLS: &[(&str, &str)] = &[
    ("a.ns.test", "/"),
    ("a.ns.test", "/api"),
    ("a.ns.test", "/api/v1"),
    ("a.ns.test", "/apiary"),
    ("b.wild.test", "/"),
    ("b.wild.test", "/x/y"),
];

/// The answer of Kubernetes to a step.
fn expected(step: &Step, host: &str, request: &str, namespace: &str) -> Answer<String> {
    use signpost_exposure::{PathRule, PathType, kubernetes_answer};
    let Some((_, paths)) = step.iter().find(|(known, _)| *known == host) else { return Answer::NoRouter };
    let rules: Vec<PathRule<String>> = paths
        .iter()
        .map(|(at, service, port)| PathRule {
            path: (*at).to_owned(),
            kind: PathType::Prefix,
            backend: format!("{service}.{namespace}.svc.cluster.local:{port}"),
        })
        .collect();
    kubernetes_answer(&rules, None, request).map_or(Answer::NoRouter, |name| Answer::Served(vec![name.clone()]))
}

/// Waits until every URL has the answer of the step, and Pangolin has its hosts alone.
async fn until_served(server: &Pangolin, step: &Step, namespace: &str) {
    eventually("the step is served", PATIENCE, || async {
        let open: Vec<String> = URLS
            .iter()
            .filter(|(host, request)| server.get(host, request) != expected(step, host, request, namespace))
            .map(|(host, request)| format!("{host}{request}: {:?}", server.get(host, request)))
            .collect();
        let mut hosts: Vec<String> = server.state().resources.values().map(|row| row.full_domain.clone()).collect();
        hosts.retain(|host| host != "foreign.ns.test");
        hosts.sort();
        let wanted: Vec<&str> = step.iter().map(|(host, _)| *host).collect();
        if open.is_empty() && hosts == wanted { Ok(()) } else { Err((open, hosts)) }
    })
    .await;
}

/// Plays the history; the process is stopped at one write of the whole history, with or without its effect. Returns how many writes there were.
async fn play(stop_at: i64, takes_effect: bool) -> usize {
    let direct = Direct::new(sandbox_cluster().await).await;
    let namespace = direct.bed.namespace.clone();
    let server = Arc::new(direct.server);
    let foreign = {
        let by_hand = client(&server.url(), ORG, Pangolin::KEY);
        let new = NewResource {
            name: "by hand".into(),
            domain: DomainId("d-ns".into()),
            host: signpost_dns::Fqdn::parse("foreign.ns.test").unwrap(),
        };
        let id = by_hand.create_resource(&new).await.unwrap().id.0;
        format!("{:?}", server.state().resources[&id])
    };
    let fate = Fate::never();
    // Every URL has the answer of the step before or of the step now, at every moment.
    let steps: Arc<Mutex<(Step, Step)>> = Arc::default();
    let wrong: Arc<Mutex<Vec<String>>> = Arc::default();
    fate.judged_by({
        let (steps, wrong, server, namespace) = (steps.clone(), wrong.clone(), server.clone(), namespace.clone());
        move |what| {
            let (before, now) = steps.lock().unwrap().clone();
            for (host, request) in URLS {
                let seen = server.get(host, request);
                let allowed = [expected(&before, host, request, &namespace), expected(&now, host, request, &namespace)];
                if !allowed.contains(&seen) {
                    wrong.lock().unwrap().push(format!("after {what}: {host}{request} is {seen:?}, not {allowed:?}"));
                }
            }
        }
    });
    let begin = || {
        let fragile = Fragile { inner: client(&server.url(), ORG, Pangolin::KEY), fate: fate.clone() };
        start_with(&direct.bed, policy(&direct.bed), Arc::new(fragile))
    };
    let mut running = begin();
    server.forget_requests();
    fate.stop_at(stop_at, takes_effect);
    let mut before = Step::new();
    for (number, step) in history().into_iter().enumerate() {
        *steps.lock().unwrap() = (before.clone(), step.clone());
        if number == 0 {
            direct.bed.create("app", &json!({}), spec_of(&step)).await;
        } else {
            let mut spec = spec_of(&step);
            if step.is_empty() {
                spec = json!({"ingressClassName": "nginx"});
            }
            direct.bed.patch("app", json!({"spec": spec})).await;
        }
        let done = until_served(&server, &step, &namespace);
        tokio::pin!(done);
        tokio::select! {
            () = &mut done => {}
            () = fate.stopped() => {
                running.crash().await;
                running = begin();
                done.await;
            }
        }
        before.clone_from(&step);
    }
    let wrong = wrong.lock().unwrap().clone();
    assert!(wrong.is_empty(), "stopped at {stop_at} ({takes_effect}): {wrong:#?}");
    let left: Vec<String> = server.state().resources.values().map(|row| format!("{row:?}")).collect();
    assert_eq!(left, [foreign], "stopped at {stop_at} ({takes_effect})");
    running.stop().await;
    server.writes().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stops_at_any_request_leaves_every_url_right() {
    let writes = play(-1, true).await;
    assert!(writes >= 12, "{writes}");
    for number in 1..=i64::try_from(writes).unwrap() {
        for takes_effect in [false, true] {
            play(number, takes_effect).await;
        }
    }
}

/// A Pangolin whose client keeps its list, on a clock that only moves when everything waits.
#[tokio::test(start_paused = true)]
async fn a_host_that_a_foreign_resource_frees_is_exposed_soon_and_cheaply() {
    use signpost_provider_pangolin::{Connection, PangolinClient, Secret, parse_base_url};
    let bed = Bed::bare(sandbox_cluster().await).await;
    let server = Arc::new(InProcess::default());
    let connection =
        Connection::new(parse_base_url("http://pangolin.test").unwrap(), ORG, Secret::Value(Pangolin::KEY.into()));
    let by_hand = PangolinClient::over(server.clone(), &connection);
    let new = NewResource {
        name: "by hand".into(),
        domain: DomainId("d-ns".into()),
        host: signpost_dns::Fqdn::parse("taken.ns.test").unwrap(),
    };
    let foreign = by_hand.create_resource(&new).await.unwrap().id;
    let policy = Policy { verify: Duration::from_hours(24), ..policy(&bed) };
    let _running = start_with(&bed, policy, Arc::new(PangolinClient::over(server.clone(), &connection)));
    bed.expose("free", &["free.ns.test"]).await;
    bed.expose("waits", &["taken.ns.test"]).await;
    bed.event("Warning", "ForeignResource").await;
    // While it waits: a list each minute at most, and nothing else.
    tokio::time::sleep(Duration::from_mins(30)).await;
    server.calls();
    tokio::time::sleep(Duration::from_mins(10)).await;
    let calls = server.calls();
    let lists = calls.iter().filter(|call| call.as_str() == "GET /v1/org/home-org/resources").count();
    let others: Vec<&String> = calls.iter().filter(|call| !call.starts_with("GET /v1/org/home-org/")).collect();
    assert!(lists <= 11 && others.iter().all(|call| call.as_str() == "GET /v1"), "{calls:?}");
    by_hand.delete_resource(foreign).await.unwrap();
    tokio::time::sleep(Duration::from_secs(150)).await;
    let hosts: Vec<String> = server.state().resources.values().map(|row| row.full_domain.clone()).collect();
    assert!(hosts.contains(&"taken.ns.test".to_owned()), "{hosts:?}");
    // Without a conflict there are the comparisons, and between them no call at all.
    tokio::time::sleep(Duration::from_mins(20)).await;
    server.calls();
    tokio::time::sleep(Duration::from_mins(10)).await;
    let calls: Vec<String> = server.calls().into_iter().filter(|call| call != "GET /v1").collect();
    assert!(calls.len() <= 12 && calls.iter().all(|call| call.starts_with("GET /v1/org/home-org/")), "{calls:?}");
}

/// A write that has its effect after its caller gave up, and after the user changed their mind, is found a minute later.
#[tokio::test(start_paused = true)]
async fn a_late_write_is_found_and_corrected_within_two_minutes() {
    use signpost_provider_pangolin::{Connection, PangolinClient, Secret, parse_base_url};
    let bed = Bed::bare(sandbox_cluster().await).await;
    let server = Arc::new(InProcess::default());
    let connection =
        Connection::new(parse_base_url("http://pangolin.test").unwrap(), ORG, Secret::Value(Pangolin::KEY.into()));
    let _running = start_with(&bed, policy(&bed), Arc::new(PangolinClient::over(server.clone(), &connection)));
    let spec = |path: &str| {
        json!({"spec": {"rules": [{"host": "app.ns.test", "http": {"paths": [
        crate::common::bed::path("/", "Prefix", "app", 80), crate::common::bed::path(path, "Prefix", "api", 9000)]}}]}})
    };
    bed.expose("app", &["app.ns.test"]).await;
    bed.patch("app", spec("/one")).await;
    let served = |service: &str, port: u16| {
        Answer::Served(vec![format!("{service}.{}.svc.cluster.local:{port}", bed.namespace)])
    };
    let answers = async |path: &str, expected: Answer<String>| {
        eventually(&format!("{path} is {expected:?}"), PATIENCE, || async {
            let seen = server.state().answer("app.ns.test", path);
            if seen == expected { Ok(()) } else { Err(seen) }
        })
        .await;
    };
    answers("/one", served("api", 9000)).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    // The next change of a target is done after 40 seconds; the caller waits for 15.
    server.delay("POST /v1/target/", Duration::from_secs(40));
    bed.patch("app", spec("/two")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bed.patch("app", spec("/one")).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(server.state().answer("app.ns.test", "/one"), served("api", 9000), "not late yet");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(server.state().answer("app.ns.test", "/two"), served("api", 9000), "the late write has its effect");
    tokio::time::sleep(Duration::from_secs(75)).await;
    assert_eq!(server.state().answer("app.ns.test", "/one"), served("api", 9000));
    assert_eq!(server.state().answer("app.ns.test", "/two"), served("app", 80));
}
