//! How the operator handles the answers of a Pi-hole, of both dialects and of old versions; and the permissions it needs.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::time::Duration;

use common::{Bed, Both, Draft, PATIENCE, Running, TARGET, logs, named, serves, takes_away, until, v6};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use signpost_provider_pihole::{Dialect, Timing, connect};
use signpost_sandbox::{Fault, FaultPlan};
use signpost_system_pihole::{HOSTS, Instance, Policy, TARGET_IP};
use signpost_testkit::pihole::{PiholeSpec, PiholeV6, Upset, V6Options};
use signpost_testkit::{eventually, on_both};

fn writes(requests: &[String]) -> Vec<&str> {
    requests.iter().map(String::as_str).filter(|request| !request.starts_with("GET")).collect()
}

async fn ledger_is_empty(bed: &Bed, instance: &str) {
    eventually("the ledger is empty", PATIENCE, || async {
        let ledger = bed.ledger(instance).await;
        if ledger.is_empty() { Ok(()) } else { Err(ledger) }
    })
    .await;
}

/// The permissions in `examples/pihole/rbac.yaml`, for one namespace.
struct Permissions(Vec<DynamicObject>);

impl Permissions {
    fn of_the_example(namespace: &str) -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/pihole/rbac.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let mut objects: Vec<DynamicObject> =
            text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect();
        objects.retain(|object| object.types.as_ref().unwrap().kind != "Namespace");
        for object in &mut objects {
            if object.types.as_ref().unwrap().kind.starts_with("Cluster") {
                // One of its own for each test: they share a cluster.
                object.metadata.name = object.metadata.name.take().map(|name| format!("{name}-{namespace}"));
            } else {
                object.metadata.namespace = Some(namespace.to_owned());
            }
            if let Some(role) = object.data.get_mut("roleRef").filter(|role| role["kind"] == "ClusterRole") {
                role["name"] = json!(format!("{}-{namespace}", role["name"].as_str().unwrap()));
            }
            for subject in object.data.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
                subject["namespace"] = json!(namespace);
            }
        }
        Self(objects)
    }

    /// The same without those to one resource.
    fn without(mut self, resource: &str) -> Self {
        for object in &mut self.0 {
            if let Some(rules) = object.data.get_mut("rules").and_then(Value::as_array_mut) {
                rules.retain(|rule| !rule["resources"].as_array().unwrap().contains(&json!(resource)));
            }
        }
        self
    }

    /// Gives them to the service account, and answers with a client that has them and no other.
    async fn client(self, bed: &Bed) -> kube::Client {
        for object in &self.0 {
            let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap());
            let api: kube::Api<DynamicObject> = match &object.metadata.namespace {
                Some(namespace) => kube::Api::namespaced_with(bed.cluster.client(), namespace, &resource),
                None => kube::Api::all_with(bed.cluster.client(), &resource),
            };
            let params = kube::api::PatchParams::apply("test").force();
            let name = object.metadata.name.clone().unwrap();
            api.patch(&name, &params, &kube::api::Patch::Apply(object)).await.unwrap();
        }
        let Some(sandbox) = bed.cluster.sandbox() else {
            let user = format!("system:serviceaccount:{}:signpost", bed.namespace);
            return bed.cluster.client_as(&user, &["system:serviceaccounts", "system:authenticated"]).await;
        };
        // The sandbox does not evaluate roles: this client does.
        let own = bed.namespace.clone();
        sandbox.client_with(FaultPlan::new(move |info, _| {
            let granted = info.resource.is_empty()
                || self.0.iter().any(|object| {
                    let here = object.metadata.namespace.is_none() || info.namespace == own;
                    here && object.data.get("rules").and_then(Value::as_array).is_some_and(|rules| {
                        rules.iter().any(|rule| {
                            let has =
                                |field: &str, value: &str| rule[field].as_array().unwrap().contains(&json!(value));
                            let resource = [info.resource.as_str(), info.subresource.as_str()].join("/");
                            has("apiGroups", &info.group)
                                && has("resources", resource.trim_end_matches('/'))
                                && has("verbs", &info.verb)
                        })
                    })
                });
            if granted {
                return Fault::None;
            }
            eprintln!("not granted: {info:?}");
            Fault::status(403, "Forbidden", "not granted")
        }))
    }
}

/// Both under names that only this test's log lines have.
fn both_named(bed: &Bed, piholes: &Both) -> ([String; 2], Vec<Instance>) {
    let names = ["v6", "spec"].map(|dialect| format!("{dialect}-{}", bed.namespace));
    let instances = vec![
        named(&names[0], &piholes.v6.url(), PiholeV6::PASSWORD),
        named(&names[1], &piholes.spec.url(), PiholeSpec::TOKEN),
    ];
    (names, instances)
}

on_both! {
    async fn row_31_and_51_documented_calls_and_the_correct_secret_are_sent(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let ([v6, spec], instances) = both_named(&bed, &piholes);
        piholes.v6.change_password("not yet");
        piholes.spec.set_token("not yet");
        bed.register("app", &["app.lan"]).await;
        let _running = bed.start(instances);
        for name in [&v6, &spec] {
            until("the secret is refused", || !logs::of_instance(name, "pi-hole api error").is_empty()).await;
            assert_eq!(logs::of_instance(name, "pi-hole api error")[0].field("reason"), "Unauthorized");
        }
        assert_eq!(piholes.writes(), 0);
        piholes.v6.change_password(PiholeV6::PASSWORD);
        piholes.spec.set_token(PiholeSpec::TOKEN);
        piholes.serve("app.lan", &[TARGET]).await;
        bed.shows("app", Some("app.lan")).await;
        bed.delete("app").await;
        piholes.serve("app.lan", &[]).await;
        let (path, line) = ("/admin/api/dns/local", format!("{TARGET}%20app.lan%20%23%20signpost%3Dhome"));
        let asked = piholes.spec.requests();
        assert_eq!(writes(&asked), [format!("POST {path}"), format!("DELETE {path}/app.lan")]);
        assert!(asked.iter().filter(|request| request.starts_with("GET")).all(|request| *request == format!("GET {path}")));
        let asked = piholes.v6.requests();
        let changes: Vec<&str> = writes(&asked).into_iter().filter(|request| !request.starts_with("POST /api/auth")).collect();
        assert_eq!(changes, [format!("PUT /api/config/dns/hosts/{line}"), format!("DELETE /api/config/dns/hosts/{line}")]);
    }

    async fn row_32_any_2xx_is_success(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let ([v6, spec], instances) = both_named(&bed, &piholes);
        let _running = bed.start(instances);
        for status in [200, 201, 202, 204] {
            let (name, host) = (format!("app-{status}"), format!("app-{status}.lan"));
            for (create, delete) in [(true, false), (false, true)] {
                let (v6_method, spec_method) = if create { ("PUT", "POST") } else { ("DELETE", "DELETE") };
                piholes.v6.upset(Upset { effective: true, ..Upset::status(v6_method, "/api/config", status, 1) });
                piholes.spec.upset(Upset { effective: true, ..Upset::status(spec_method, "/admin", status, 1) });
                if create {
                    bed.register(&name, &[&host]).await;
                    piholes.serve(&host, &[TARGET]).await;
                    bed.shows(&name, Some(&host)).await;
                }
                if delete {
                    bed.delete(&name).await;
                    piholes.serve(&host, &[]).await;
                }
            }
        }
        for name in [&v6, &spec] {
            assert!(logs::of_instance(name, "pi-hole api error").is_empty());
        }
    }

    async fn row_35_a_404_is_success_on_delete_and_worth_another_try_elsewhere(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let ([v6, spec], instances) = both_named(&bed, &piholes);
        let _running = bed.start(instances);
        bed.register("app", &["app.lan"]).await;
        piholes.serve("app.lan", &[TARGET]).await;
        bed.shows("app", Some("app.lan")).await;
        // The record is deleted already, and the answer is 404.
        piholes.v6.upset(Upset { effective: true, ..Upset::status("DELETE", "/api/config", 404, 1) });
        piholes.spec.upset(Upset { effective: true, ..Upset::status("DELETE", "/admin", 404, 1) });
        bed.delete("app").await;
        piholes.serve("app.lan", &[]).await;
        until("the deletion is logged for both", || logs::about(&bed.path("app"), "dns record deleted").len() == 2).await;
        ledger_is_empty(&bed, &spec).await;
        for name in [&v6, &spec] {
            assert!(logs::of_instance(name, "pi-hole api error").is_empty());
        }
        piholes.spec.upset(Upset::status("POST", "/admin", 404, 1));
        piholes.v6.upset(Upset::status("PUT", "/api/config", 404, 1));
        bed.register("next", &["next.lan"]).await;
        serves(piholes.spec.dns(), "next.lan", &[TARGET]).await;
        assert_eq!(logs::of_instance(&spec, "pi-hole api error").len(), 1, "tried again after an error");
        assert!(bed.event("LineRefused").await.contains("404"), "on a Pi-hole v6 it is a path that will never be right");
    }

    async fn row_36_and_40_a_restart_costs_quick_retries_and_no_pause(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let name = format!("quick-{}", bed.namespace);
        // The pause after an error is too long for this test. The last quick retry is late, so that this test is in time.
        let policy = Policy { backoff: Duration::from_mins(30), ..bed.policy() };
        let mut connection = common::connection(&server.url(), PiholeV6::PASSWORD);
        connection.timing = Timing { quick: [500, 1_000, 20_000].map(Duration::from_millis), ..Timing::default() };
        let _running = bed.start_with(policy, vec![Instance::new(&name, connect(connection, Dialect::Auto).unwrap())]);
        bed.register("one", &["one.lan"]).await;
        serves(server.dns(), "one.lan", &[TARGET]).await;
        // Its pass is over.
        bed.shows("one", Some("one.lan")).await;
        takes_away(&server).await;
        bed.register("two", &["two.lan"]).await;
        // Usually at once. A pass that was reading when the Pi-hole stopped may come first, and then it tries again.
        let started = until("it is being tried", || !logs::about(&bed.path("two"), "reconcile started").is_empty());
        let _ = tokio::time::timeout(Duration::from_secs(5), started).await;
        server.release_restarts();
        until("two.lan is there", || server.hosts().iter().any(|line| line.contains("two.lan"))).await;
        assert_eq!(logs::of_instance(&name, "pi-hole api error"), []);
        assert_eq!(server.counters().logins, 1, "with the same session");
    }

    async fn row_43_the_permissions_in_the_example_are_enough(cluster) {
        let bed = Bed::new(cluster).await;
        let client = Permissions::of_the_example(&bed.namespace).client(&bed).await;
        let piholes = Both::start().await;
        piholes.v6.edit(|hosts, _| hosts.push("10.0.0.1 taken.lan".into()));
        let policy = Policy { finalizer: true, ..bed.policy() };
        let _running = Running::start(client, Some(&bed.namespace), policy, piholes.instances());
        bed.register("app", &["app.lan", "taken.lan"]).await;
        piholes.serve("app.lan", &[TARGET]).await;
        bed.shows("app", Some("app.lan,taken.lan")).await;
        bed.event("ForeignRecord").await;
        eventually("the ledger is written", PATIENCE, || async {
            let ledger = bed.ledger("spec").await;
            if ledger.contains("app.lan") { Ok(()) } else { Err(ledger) }
        }).await;
        bed.delete("app").await;
        piholes.serve("app.lan", &[]).await;
        eventually("the Ingress is deleted", PATIENCE, || async {
            match bed.api.get_opt("app").await.unwrap() { None => Ok(()), Some(object) => Err(object.metadata) }
        }).await;
    }

    async fn row_19_and_43_without_permission_for_its_ledger_nothing_is_written(cluster) {
        let bed = Bed::new(cluster).await;
        let client = Permissions::of_the_example(&bed.namespace).without("configmaps").client(&bed).await;
        let piholes = Both::start().await;
        piholes.spec.add("mine.lan", TARGET);
        let running = Running::start(client, Some(&bed.namespace), bed.policy(), piholes.instances());
        bed.register("app", &["app.lan"]).await;
        serves(piholes.v6.dns(), "app.lan", &[TARGET]).await;
        assert!(bed.event("Ledger").await.contains("no permission to get the ConfigMap"));
        let metric = "signpost_pihole_trouble{instance=\"spec\",reason=\"Ledger\"} 1";
        until("the metric is 1", || running.metrics.encode().contains(metric)).await;
        assert_eq!(piholes.spec.counters().writes, 0);
        bed.delete("app").await;
        serves(piholes.v6.dns(), "app.lan", &[]).await;
        assert_eq!(piholes.spec.records(), [("mine.lan".to_owned(), TARGET.to_owned())]);
    }

    async fn row_52_hosts_come_from_rules_annotation_neither_and_both(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        bed.register("rules", &["one.lan", "two.lan"]).await;
        bed.create(Draft::new("annotation", &[]).any_host().registered().annotate(HOSTS, "three.lan, four.lan")).await;
        bed.create(Draft::new("neither", &[]).any_host().registered()).await;
        bed.create(Draft::new("both", &["rule.lan"]).registered().annotate(HOSTS, "five.lan,not a host")).await;
        bed.create(Draft::new("mixed", &["six.lan", "*.six.lan"]).any_host().registered()).await;
        let _running = bed.start(piholes.instances());
        let wanted = ["one.lan", "two.lan", "three.lan", "four.lan", "five.lan", "six.lan"];
        for host in wanted {
            piholes.serve(host, &[TARGET]).await;
        }
        for (name, view) in [("rules", Some("one.lan,two.lan")), ("annotation", Some("four.lan,three.lan")), ("neither", None), ("both", Some("five.lan")), ("mixed", Some("six.lan"))] {
            bed.shows(name, view).await;
        }
        assert_eq!((piholes.v6.hosts().len(), piholes.spec.records().len()), (wanted.len(), wanted.len()));
    }

    async fn row_53_addresses_are_the_default_or_valid_annotations(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        bed.register("default", &["default.lan"]).await;
        bed.create(Draft::new("own", &["own.lan"]).registered().annotate(TARGET_IP, " 10.1.2.3 ")).await;
        bed.create(Draft::new("bad", &["bad.lan"]).registered().annotate(TARGET_IP, "10.1.2")).await;
        let _running = bed.start(piholes.instances());
        piholes.serve("default.lan", &[TARGET]).await;
        piholes.serve("own.lan", &["10.1.2.3"]).await;
        until("it is logged", || logs::about(&bed.path("bad"), "invalid annotation").len() == 1).await;
        piholes.serve("bad.lan", &[]).await;
        bed.annotate("own", TARGET_IP, None).await;
        piholes.serve("own.lan", &[TARGET]).await;
    }

    async fn row_55_a_list_above_64_kib_is_changed_line_by_line_and_stays_the_users(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let user: Vec<String> = (0..2400).map(|n| format!("10.9.0.1 somebody-{n:04}.lan")).collect();
        server.edit(|hosts, _| hosts.clone_from(&user));
        for n in 0..12 {
            bed.register(&format!("app-{n}"), &[&format!("app-{n}.lan")]).await;
        }
        let running = bed.start(vec![v6(&server)]);
        for n in 0..12 {
            serves(server.dns(), &format!("app-{n}.lan"), &[TARGET]).await;
        }
        assert_eq!(server.hosts()[..user.len()], user[..]);
        bed.annotate("app-3", TARGET_IP, Some("10.1.2.3")).await;
        serves(server.dns(), "app-3.lan", &["10.1.2.3"]).await;
        let asked = server.requests();
        assert!(!writes(&asked).iter().any(|request| request.starts_with("PATCH")), "no request that the Pi-hole would drop");
        for n in 0..12 {
            bed.delete(&format!("app-{n}")).await;
        }
        until("only the user's are left", || server.hosts() == user).await;
        assert_eq!((server.counters().most_writes_at_once, server.counters().logins), (1, 1));
        drop(running);
    }

    async fn an_ftl_before_6_0_3_gets_a_ledger_instead_of_markers(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::with(V6Options { comments: false, ..V6Options::default() }).await;
        let user = ["10.0.0.1 mine.lan".to_owned(), format!("{TARGET} same-address.lan")];
        server.edit(|hosts, _| hosts.extend(user.clone()));
        bed.register("one", &["one.lan", "two.lan"]).await;
        bed.register("other", &["other.lan"]).await;
        let running = bed.start(vec![v6(&server)]);
        serves(server.dns(), "two.lan", &[TARGET]).await;
        serves(server.dns(), "other.lan", &[TARGET]).await;
        assert!(bed.event("CommentsRefused").await.contains("ConfigMap"));
        assert!(bed.ledger("v6").await.contains("one.lan"));
        bed.set_hosts("one", &["two.lan"]).await;
        serves(server.dns(), "one.lan", &[]).await;
        running.stop().await;
        bed.delete("other").await;
        // Down while an Ingress was deleted: the ledger knows what was ours.
        let running = bed.start(vec![v6(&server)]);
        serves(server.dns(), "other.lan", &[]).await;
        running.stop().await;
        assert_eq!(server.hosts(), [&user[..], &[format!("{TARGET} two.lan")]].concat());
        server.set(|options| options.comments = true);
        let _running = bed.start(vec![v6(&server)]);
        until("the line has its marker", || server.hosts().contains(&format!("{TARGET} two.lan # signpost=home"))).await;
        ledger_is_empty(&bed, "v6").await;
        bed.delete("one").await;
        until("only the user's are left", || server.hosts() == user).await;
    }

    async fn row_34_and_41_an_error_of_a_whole_pihole_is_one_event_and_one_metric(cluster) {
        type Change = fn(&mut V6Options);
        let troubles: [(&str, &str, Change, Change); 4] = [
            ("EnvLocked", "FTLCONF_dns_hosts", |options| options.env_locked = true, |options| options.env_locked = false),
            ("ReadOnly", "misc.readOnly", |options| options.read_only = true, |options| options.read_only = false),
            ("TwoFactor", "app password", |options| options.totp = true, |options| options.totp = false),
            ("SeatsFull", "max_sessions", |options| options.seats = 0, |options| options.seats = 16),
        ];
        for (reason, advice, breaks, mends) in troubles {
            let bed = Bed::new(cluster.clone()).await;
            let server = PiholeV6::start().await;
            server.edit(|hosts, _| hosts.push("10.0.0.1 mine.lan".into()));
            server.set(breaks);
            for name in ["one", "two", "three"] {
                bed.register(name, &[&format!("{name}.lan")]).await;
            }
            let running = bed.start(vec![v6(&server)]);
            assert!(bed.event(reason).await.contains(advice), "the message of {reason} has the fix");
            let metric = format!("signpost_pihole_trouble{{instance=\"v6\",reason=\"{reason}\"}} 1");
            until("the metric is 1", || running.metrics.encode().contains(&metric)).await;
            bed.register("four", &["four.lan"]).await;
            assert_eq!(server.counters().writes, 0, "{reason}: nothing is tried that cannot work");
            server.set(mends);
            for name in ["one", "four"] {
                serves(server.dns(), &format!("{name}.lan"), &[TARGET]).await;
            }
            until("the metric is removed", || !running.metrics.encode().contains("signpost_pihole_trouble{")).await;
            let reported = bed.events().await.into_iter().filter(|(seen, _)| seen == reason).count();
            assert_eq!(reported, 1, "{reason}: once for the Pi-hole, not once for each Ingress");
            assert_eq!(server.hosts()[0], "10.0.0.1 mine.lan");
        }
    }

    async fn row_34_a_rate_limited_app_password_is_retried_without_an_error(cluster) {
        let bed = Bed::new(cluster).await;
        let options = V6Options { app_password: Some("app".into()), app_sudo: true, ..V6Options::default() };
        let server = PiholeV6::with(options).await;
        let name = format!("trap-{}", bed.namespace);
        bed.register("app", &["app.lan"]).await;
        // Two other tools have logged in within this second, which is over when the third was refused.
        server.next_second_after_refusal();
        for _ in 0..2 {
            connect(common::connection(&server.url(), "app"), Dialect::V6).unwrap().list().await.unwrap();
        }
        let mut connection = common::connection(&server.url(), "app");
        connection.timing = Timing::default();
        let _running = bed.start(vec![Instance::new(&name, connect(connection, Dialect::V6).unwrap())]);
        serves(server.dns(), "app.lan", &[TARGET]).await;
        assert_eq!((server.counters().login_attempts, server.counters().logins), (4, 3));
        assert_eq!(logs::of_instance(&name, "pi-hole api error"), []);
    }

    async fn row_33_a_server_of_the_other_dialect_is_reported_and_retried(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let name = format!("other-{}", bed.namespace);
        bed.register("app", &["app.lan"]).await;
        let spoken = |dialect| Instance::new(&name, connect(common::connection(&server.url(), PiholeV6::PASSWORD), dialect).unwrap());
        let running = bed.start(vec![spoken(Dialect::Spec)]);
        assert!(bed.event("WrongDialect").await.contains("PIHOLE_API_DIALECT=auto"));
        until("it is tried again", || logs::of_instance(&name, "pi-hole api error").len() > 1).await;
        assert_eq!((server.counters().writes, server.counters().login_attempts), (0, 0));
        running.stop().await;
        let _running = bed.start(vec![spoken(Dialect::Auto)]);
        serves(server.dns(), "app.lan", &[TARGET]).await;
    }

    async fn a_ledger_that_another_leader_wrote_is_read_at_the_next_full_check(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeSpec::start().await;
        server.add("mine.lan", TARGET);
        let policy = Policy { resync: Some(Duration::from_millis(200)), ..bed.policy() };
        let _running = bed.start_with(policy, vec![named("led", &server.url(), PiholeSpec::TOKEN)]);
        bed.register("app", &["app.lan"]).await;
        serves(server.dns(), "app.lan", &[TARGET]).await;
        bed.shows("app", Some("app.lan")).await;
        // Another replica led for a while: it created a record whose Ingress is deleted by now.
        let api = kube::Api::<ConfigMap>::namespaced(bed.cluster.client(), &bed.namespace);
        let patch = json!({"data": {"hosts": format!("{TARGET} app.lan\n{TARGET} theirs.lan\n")}});
        let params = kube::api::PatchParams::default();
        server.add("theirs.lan", TARGET);
        // An earlier check ends: it would take the line for one whose record is deleted.
        let checks = server.counters().requests;
        until("earlier checks have ended", || server.counters().requests >= checks + 3).await;
        api.patch("signpost-pihole-home-led", &params, &kube::api::Patch::Merge(patch)).await.unwrap();
        serves(server.dns(), "theirs.lan", &[]).await;
        eventually("it is struck out", PATIENCE, || async {
            let ledger = bed.ledger("led").await;
            if ledger == format!("{TARGET} app.lan\n") { Ok(()) } else { Err(ledger) }
        }).await;
        assert_eq!(server.records().len(), 2, "the user's record and the claimed one");
    }
}
