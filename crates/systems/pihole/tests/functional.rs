//! Rows 1 to 19 of the acceptance list: what the operator does, on the sandbox and on the real API server, with a Pi-hole
//! of each dialect side by side.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use common::{Bed, Both, Draft, PATIENCE, TARGET, logs, rules, serves, takes_away, until, v6};
use serde_json::json;
use signpost_system_pihole::{ConflictPolicy, FINALIZER, HOSTS, MANAGED_HOSTS, Policy, REGISTER, TARGET_IP};
use signpost_testkit::pihole::PiholeV6;
use signpost_testkit::{dig, eventually, on_both};

on_both! {
    async fn row_02_only_the_exact_value_true_registers(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        for (name, value) in [("upper", "True"), ("yes", "yes"), ("off", "false")] {
            bed.create(Draft::new(name, &[&format!("{name}.lan")]).annotate(REGISTER, value)).await;
        }
        bed.create(Draft::new("absent", &["absent.lan"])).await;
        bed.register("exact", &["exact.lan"]).await;
        let _running = bed.start(piholes.instances());
        piholes.serve("exact.lan", &[TARGET]).await;
        assert_eq!(piholes.v6.hosts().len(), 1);
        assert_eq!(piholes.spec.records().len(), 1);
        for name in ["upper", "yes"] {
            until("the odd value is reported", || logs::about(&bed.path(name), "invalid annotation").len() == 1).await;
            assert_eq!(logs::about(&bed.path(name), "invalid annotation")[0].field("annotation"), REGISTER);
        }
        assert!(logs::about(&bed.path("off"), "invalid annotation").is_empty());
    }

    async fn row_03_create_update_and_delete_are_followed(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let _running = bed.start(piholes.instances());
        bed.register("app", &["one.lan"]).await;
        piholes.serve("one.lan", &[TARGET]).await;
        bed.set_hosts("app", &["two.lan"]).await;
        piholes.serve("two.lan", &[TARGET]).await;
        piholes.serve("one.lan", &[]).await;
        bed.delete("app").await;
        piholes.serve("two.lan", &[]).await;
    }

    async fn row_04_the_annotation_may_come_and_go_later(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let _running = bed.start(piholes.instances());
        bed.create(Draft::new("app", &["app.lan"])).await;
        bed.register("other", &["other.lan"]).await;
        piholes.serve("other.lan", &[TARGET]).await;
        piholes.serve("app.lan", &[]).await;
        bed.annotate("app", REGISTER, Some("true")).await;
        piholes.serve("app.lan", &[TARGET]).await;
        bed.annotate("app", REGISTER, None).await;
        piholes.serve("app.lan", &[]).await;
        bed.shows("app", None).await;
        piholes.serve("other.lan", &[TARGET]).await;
    }

    async fn row_05_hosts_come_from_the_rules_each_once(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let _running = bed.start(piholes.instances());
        bed.register("app", &["b.lan", "a.lan", "b.lan"]).await;
        piholes.serve("a.lan", &[TARGET]).await;
        piholes.serve("b.lan", &[TARGET]).await;
        assert_eq!(piholes.v6.hosts().len(), 2);
        bed.shows("app", Some("a.lan,b.lan")).await;
    }

    async fn row_06_the_hosts_annotation_replaces_the_rules(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let _running = bed.start(piholes.instances());
        bed.create(Draft::new("app", &["rule.lan"]).registered().annotate(HOSTS, " One.LAN. ,, two.lan ,one.lan")).await;
        piholes.serve("one.lan", &[TARGET]).await;
        piholes.serve("two.lan", &[TARGET]).await;
        bed.shows("app", Some("one.lan,two.lan")).await;
        piholes.serve("rule.lan", &[]).await;
        // Present but empty means no hosts, not the hosts of the rules.
        bed.annotate("app", HOSTS, Some("")).await;
        piholes.serve("one.lan", &[]).await;
        piholes.serve("rule.lan", &[]).await;
        until("the missing hosts are logged", || logs::about(&bed.path("app"), "ingress skipped (no hosts)").len() == 1).await;
    }

    async fn row_07_rules_without_a_host_and_wildcards_are_skipped_alone(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let _running = bed.start(piholes.instances());
        bed.create(Draft::new("app", &["*.wild.lan", "good.lan"]).any_host().registered()).await;
        piholes.serve("good.lan", &[TARGET]).await;
        assert_eq!(piholes.v6.hosts().len(), 1);
        until("the wildcard is reported", || logs::about(&bed.path("app"), "invalid host").len() == 1).await;
        assert_eq!(logs::about(&bed.path("app"), "invalid host")[0].field("host"), "*.wild.lan");
        assert!(bed.event("InvalidHost").await.contains("*.wild.lan"));
    }

    async fn row_08_zero_hosts_is_a_no_op_only_when_nothing_is_managed(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let _running = bed.start(piholes.instances());
        until("the first check is over", || piholes.v6.requests().iter().any(|request| request.contains("cnameRecords"))
            && piholes.spec.counters().requests > 0).await;
        // Readiness asks elsewhere: whoever asks here, asks for an Ingress.
        let asked = || piholes.v6.requests().iter().filter(|request| request.contains("/api/config")).count();
        let before = asked();
        for name in ["none", "nothing"] {
            bed.create(Draft::new(name, &[]).any_host().registered()).await;
            // The second pass of a Pi-hole begins when the first is over.
            until("both have had a pass", || logs::about(&bed.path(name), "reconcile started").len() == 2).await;
        }
        until("the missing hosts are logged", || logs::about(&bed.path("none"), "ingress skipped (no hosts)").len() == 1).await;
        assert_eq!((asked(), piholes.writes()), (before, 0), "nothing is managed, so nothing is asked or written");
        bed.register("app", &["app.lan"]).await;
        piholes.serve("app.lan", &[TARGET]).await;
        bed.patch("app", json!({"spec": {"rules": Draft::new("x", &[]).any_host().object().spec.unwrap().rules}})).await;
        piholes.serve("app.lan", &[]).await;
    }

    async fn row_09_and_10_the_default_address_and_the_annotation_that_replaces_it(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let _running = bed.start(piholes.instances());
        bed.register("default", &["default.lan"]).await;
        bed.create(Draft::new("own", &["own.lan"]).registered().annotate(TARGET_IP, "10.1.2.3")).await;
        piholes.serve("default.lan", &[TARGET]).await;
        piholes.serve("own.lan", &["10.1.2.3"]).await;
    }

    async fn row_11_only_strict_ipv4_addresses_are_taken(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        for (number, value) in ["::1", "1.2.3", "01.2.3.4", "lan", ""].iter().enumerate() {
            let name = format!("bad-{number}");
            bed.create(Draft::new(&name, &[&format!("{name}.lan")]).registered().annotate(TARGET_IP, value)).await;
        }
        bed.register("good", &["good.lan"]).await;
        let _running = bed.start(piholes.instances());
        piholes.serve("good.lan", &[TARGET]).await;
        for number in 0..5 {
            let path = bed.path(&format!("bad-{number}"));
            until("the address is reported", || logs::about(&path, "invalid annotation").len() == 1).await;
            assert_eq!(logs::about(&path, "invalid annotation")[0].field("annotation"), TARGET_IP);
        }
        assert_eq!(piholes.v6.hosts().len(), 1);
    }

    async fn row_12_records_are_created_with_exactly_the_documented_calls(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let _running = bed.start(piholes.instances());
        bed.register("app", &["app.lan"]).await;
        piholes.serve("app.lan", &[TARGET]).await;
        assert_eq!(piholes.v6.hosts(), [format!("{TARGET} app.lan # signpost=home")]);
        assert_eq!(piholes.spec.records(), [("app.lan".to_owned(), TARGET.to_owned())]);
        let writes = |requests: Vec<String>| requests.into_iter().filter(|request| !request.starts_with("GET")).collect::<Vec<_>>();
        assert_eq!(writes(piholes.spec.requests()), ["POST /admin/api/dns/local"]);
        assert_eq!(
            writes(piholes.v6.requests()),
            ["POST /api/auth".to_owned(), format!("PUT /api/config/dns/hosts/{TARGET}%20app.lan%20%23%20signpost%3Dhome")]
        );
    }

    async fn row_13_a_new_address_replaces_the_old_one(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let _running = bed.start(piholes.instances());
        bed.register("app", &["app.lan"]).await;
        piholes.serve("app.lan", &[TARGET]).await;
        bed.annotate("app", TARGET_IP, Some("10.9.9.9")).await;
        piholes.serve("app.lan", &["10.9.9.9"]).await;
        assert_eq!((piholes.v6.hosts().len(), piholes.spec.records().len()), (1, 1));
        until("the change is logged", || logs::about(&bed.path("app"), "dns record updated").len() == 2).await;
        let line = &logs::about(&bed.path("app"), "dns record updated")[0];
        assert_eq!((line.field("old_ip"), line.field("new_ip"), line.field("host")), (TARGET, "10.9.9.9", "app.lan"));
    }

    async fn row_13_a_foreign_record_is_left_alone_by_default(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let line = "10.0.0.99 router.lan # mine";
        piholes.v6.edit(|hosts, _| hosts.push(line.into()));
        piholes.spec.add("router.lan", "10.0.0.99");
        let _running = bed.start(piholes.instances());
        bed.register("app", &["router.lan", "app.lan"]).await;
        piholes.serve("app.lan", &[TARGET]).await;
        assert!(bed.event("ForeignRecord").await.contains("router.lan"));
        bed.shows("app", Some("app.lan")).await;
        bed.delete("app").await;
        piholes.serve("app.lan", &[]).await;
        assert_eq!(piholes.v6.hosts(), [line]);
        assert_eq!(piholes.spec.records(), [("router.lan".to_owned(), "10.0.0.99".to_owned())]);
    }

    async fn row_13_with_overwrite_the_foreign_record_is_replaced_and_no_other(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        piholes.v6.edit(|hosts, _| hosts.extend(["10.0.0.99 app.lan".to_owned(), "10.0.0.98 two.lan names.lan".to_owned()]));
        piholes.spec.add("app.lan", "10.0.0.99");
        let policy = Policy { conflict: ConflictPolicy::Overwrite, ..bed.policy() };
        let _running = bed.start_with(policy, piholes.instances());
        bed.register("app", &["app.lan"]).await;
        bed.register("two", &["two.lan"]).await;
        piholes.serve("app.lan", &[TARGET]).await;
        assert!(bed.event("SharedLine").await.contains("two.lan"));
        serves(piholes.v6.dns(), "two.lan", &["10.0.0.98"]).await;
        serves(piholes.spec.dns(), "two.lan", &[TARGET]).await;
        until("the change is logged", || logs::about(&bed.path("app"), "dns record updated").len() == 2).await;
        for line in logs::about(&bed.path("app"), "dns record updated") {
            assert_eq!((line.field("old_ip"), line.field("new_ip")), ("10.0.0.99", TARGET), "the replaced value is logged");
        }
    }

    async fn row_13_with_overwrite_an_equal_record_is_taken_over_not_deleted(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        piholes.v6.edit(|hosts, _| hosts.push(format!("{TARGET} app.lan")));
        piholes.spec.add("app.lan", TARGET);
        bed.register("app", &["app.lan"]).await;
        let policy = Policy { conflict: ConflictPolicy::Overwrite, ..bed.policy() };
        let _running = bed.start_with(policy, piholes.instances());
        until("it has its mark", || piholes.v6.hosts() == [format!("{TARGET} app.lan # signpost=home")]).await;
        until("it is logged", || logs::about(&bed.path("app"), "dns record adopted").len() == 1).await;
        assert!(bed.ledger("spec").await.contains("app.lan"));
        bed.shows("app", Some("app.lan")).await;
        assert_eq!(piholes.spec.counters().writes, 0, "without a mark, the ledger is all that is written");
        assert_eq!(piholes.v6.counters().writes, 1, "in one write, without a moment when it is away");
        bed.delete("app").await;
        piholes.serve("app.lan", &[]).await;
    }

    async fn row_14_deleting_the_ingress_deletes_its_records(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        piholes.v6.edit(|hosts, _| hosts.push("10.0.0.1 user.lan".into()));
        piholes.spec.add("user.lan", "10.0.0.1");
        let _running = bed.start(piholes.instances());
        bed.register("app", &["a.lan", "b.lan"]).await;
        piholes.serve("b.lan", &[TARGET]).await;
        bed.delete("app").await;
        piholes.serve("a.lan", &[]).await;
        piholes.serve("b.lan", &[]).await;
        assert_eq!(piholes.v6.hosts(), ["10.0.0.1 user.lan"]);
        until("the deletion is logged", || logs::about(&bed.path("app"), "dns record deleted").len() == 4).await;
        eventually("the ledger is empty", PATIENCE, || async {
            let ledger = bed.ledger("spec").await;
            if ledger.is_empty() { Ok(()) } else { Err(ledger) }
        }).await;
    }

    async fn row_14_deletions_during_downtime_are_applied_at_the_next_start(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let user = ["10.0.0.1 user.lan", "192.168.1.10 same-address.lan", "10.0.0.7 other.lan # signpost=office"];
        piholes.v6.edit(|hosts, _| hosts.extend(user.map(str::to_owned)));
        piholes.spec.add("user.lan", "10.0.0.1");
        let running = bed.start(piholes.instances());
        bed.register("old", &["old.lan"]).await;
        bed.register("stays", &["stays.lan"]).await;
        piholes.serve("old.lan", &[TARGET]).await;
        piholes.serve("stays.lan", &[TARGET]).await;
        running.stop().await;
        assert_eq!(piholes.v6.sessions(), 0, "the session was given back");
        bed.delete("old").await;
        let _running = bed.start(piholes.instances());
        piholes.serve("old.lan", &[]).await;
        piholes.serve("stays.lan", &[TARGET]).await;
        assert_eq!(piholes.v6.hosts()[..3], user.map(str::to_owned));
        assert_eq!(piholes.v6.hosts().len(), 4);
        assert_eq!(piholes.spec.records().len(), 2);
    }

    async fn row_14_a_large_sweep_waits_for_a_second_identical_pass(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        server.edit(|hosts, _| hosts.extend((0..20).map(|n| format!("{TARGET} orphan-{n}.lan # signpost=home"))));
        // The second pass of this Pi-hole would come after the end of the test.
        let policy = Policy { brake: std::time::Duration::from_mins(10), ..bed.policy() };
        let running = bed.start_with(policy, vec![v6(&server)]);
        assert!(bed.event("DeletionsHeld").await.contains("20 of 20"));
        assert_eq!(server.hosts().len(), 20);
        running.stop().await;
        let before = server.requests().len();
        let _running = bed.start(vec![v6(&server)]);
        until("the second pass deletes them", || server.hosts().is_empty()).await;
        let asked = server.requests().split_off(before);
        let write = asked.iter().position(|request| request.starts_with("PATCH") || request.starts_with("DELETE /api/config"));
        let looks = asked[..write.unwrap()].iter().filter(|request| request.ends_with("/cnameRecords")).count();
        assert_eq!(looks, 2, "{asked:?}");
    }

    async fn row_14_watched_deletions_are_applied_at_once_however_many(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        // A second pass would come after the end of the test.
        let policy = Policy { brake: std::time::Duration::from_mins(10), ..bed.policy() };
        let _running = bed.start_with(policy, vec![v6(&server)]);
        server.edit(|hosts, _| hosts.push("10.0.0.1 mine.lan".into()));
        for n in 0..20 {
            bed.register(&format!("app-{n}"), &[&format!("app-{n}.lan")]).await;
        }
        until("all are there", || server.hosts().len() == 21).await;
        bed.api.delete_collection(&kube::api::DeleteParams::default(), &kube::api::ListParams::default()).await.unwrap();
        until("all are deleted", || server.hosts() == ["10.0.0.1 mine.lan"]).await;
    }

    async fn row_14_with_gc_off_orphans_stay_but_watched_deletions_are_applied(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        server.edit(|hosts, _| hosts.push(format!("{TARGET} orphan.lan # signpost=home")));
        let policy = Policy { sweep: false, ..bed.policy() };
        let _running = bed.start_with(policy, vec![v6(&server)]);
        bed.register("app", &["app.lan"]).await;
        serves(server.dns(), "app.lan", &[TARGET]).await;
        bed.delete("app").await;
        serves(server.dns(), "app.lan", &[]).await;
        assert_eq!(server.hosts(), [format!("{TARGET} orphan.lan # signpost=home")]);
    }

    async fn row_14_a_finalizer_keeps_the_ingress_until_its_records_are_deleted(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let policy = Policy { finalizer: true, ..bed.policy() };
        let running = bed.start_with(policy, piholes.instances());
        bed.register("app", &["app.lan"]).await;
        piholes.serve("app.lan", &[TARGET]).await;
        eventually("the finalizer is there", PATIENCE, || async {
            let finalizers = bed.get("app").await.metadata.finalizers.unwrap_or_default();
            if finalizers == [FINALIZER] { Ok(()) } else { Err(finalizers) }
        }).await;
        running.stop().await;
        bed.delete("app").await;
        assert!(bed.get("app").await.metadata.deletion_timestamp.is_some());
        let policy = Policy { finalizer: true, ..bed.policy() };
        let _running = bed.start_with(policy, piholes.instances());
        piholes.serve("app.lan", &[]).await;
        eventually("the Ingress is deleted", PATIENCE, || async {
            match bed.api.get_opt("app").await.unwrap() { None => Ok(()), Some(object) => Err(object.metadata) }
        }).await;
    }

    async fn row_14_a_finalizer_does_not_wait_indefinitely_for_a_dead_pihole(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let policy = Policy { finalizer: true, finalizer_patience: std::time::Duration::from_secs(2), ..bed.policy() };
        let _running = bed.start_with(policy, vec![v6(&server)]);
        bed.register("app", &["app.lan"]).await;
        serves(server.dns(), "app.lan", &[TARGET]).await;
        eventually("the finalizer is there", PATIENCE, || async {
            let finalizers = bed.get("app").await.metadata.finalizers.unwrap_or_default();
            if finalizers == [FINALIZER] { Ok(()) } else { Err(finalizers) }
        }).await;
        takes_away(&server).await;
        bed.delete("app").await;
        eventually("the Ingress is deleted", PATIENCE, || async {
            match bed.api.get_opt("app").await.unwrap() { None => Ok(()), Some(object) => Err(object.metadata) }
        }).await;
        until("it is logged", || logs::about(&bed.path("app"), "finalizer removed although a pi-hole did not confirm").len() == 1).await;
    }

    async fn row_15_removing_both_annotations_deletes_the_records_all_the_same(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let running = bed.start(piholes.instances());
        bed.register("app", &["app.lan"]).await;
        piholes.serve("app.lan", &[TARGET]).await;
        bed.shows("app", Some("app.lan")).await;
        running.stop().await;
        bed.patch("app", json!({"metadata": {"annotations": {REGISTER: null, MANAGED_HOSTS: null}}})).await;
        let _running = bed.start(piholes.instances());
        piholes.serve("app.lan", &[]).await;
    }

    async fn row_16_an_unlisted_host_is_deleted_unless_another_ingress_claims_it(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let _running = bed.start(piholes.instances());
        bed.register("first", &["shared.lan", "own.lan"]).await;
        bed.register("second", &["shared.lan"]).await;
        piholes.serve("own.lan", &[TARGET]).await;
        bed.shows("second", Some("shared.lan")).await;
        let writes = piholes.writes();
        bed.set_hosts("first", &["new.lan"]).await;
        piholes.serve("new.lan", &[TARGET]).await;
        piholes.serve("own.lan", &[]).await;
        piholes.serve("shared.lan", &[TARGET]).await;
        assert!(piholes.writes() > writes);
        bed.delete("second").await;
        piholes.serve("shared.lan", &[]).await;
    }

    async fn row_16_of_two_ingresses_the_older_wins_and_the_other_is_refused(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        bed.create(Draft::new("older", &["app.lan"]).registered().annotate(TARGET_IP, "10.0.0.1")).await;
        // Creation times have whole seconds; the younger one must be younger by the clock.
        let older = bed.get("older").await.metadata.creation_timestamp.unwrap();
        eventually("a second has passed", PATIENCE, || async {
            bed.create(Draft::new("younger", &["app.lan"]).registered().annotate(TARGET_IP, "10.0.0.2")).await;
            let younger = bed.get("younger").await.metadata.creation_timestamp.unwrap();
            if younger.0 > older.0 { return Ok(()); }
            bed.delete("younger").await;
            Err("the same second")
        }).await;
        let _running = bed.start(piholes.instances());
        piholes.serve("app.lan", &["10.0.0.1"]).await;
        assert!(bed.event("HostTaken").await.contains("older"));
        assert_eq!(bed.view("younger").await, None);
        bed.delete("older").await;
        piholes.serve("app.lan", &["10.0.0.2"]).await;
        bed.shows("younger", Some("app.lan")).await;
    }

    async fn row_18_a_forged_annotation_deletes_nothing_and_is_put_right(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        piholes.v6.edit(|hosts, _| hosts.push("10.0.0.1 router.lan".into()));
        piholes.spec.add("router.lan", "10.0.0.1");
        let _running = bed.start(piholes.instances());
        bed.create(Draft::new("evil", &["evil.lan"]).registered().annotate(MANAGED_HOSTS, "router.lan,evil.lan")).await;
        bed.register("victim", &["victim.lan"]).await;
        piholes.serve("evil.lan", &[TARGET]).await;
        piholes.serve("victim.lan", &[TARGET]).await;
        bed.shows("evil", Some("evil.lan")).await;
        bed.annotate("evil", MANAGED_HOSTS, Some("router.lan,victim.lan,evil.lan")).await;
        bed.shows("evil", Some("evil.lan")).await;
        bed.annotate("evil", MANAGED_HOSTS, Some("router.lan,victim.lan")).await;
        bed.delete("evil").await;
        piholes.serve("evil.lan", &[]).await;
        piholes.serve("router.lan", &["10.0.0.1"]).await;
        piholes.serve("victim.lan", &[TARGET]).await;
    }

    async fn row_18_a_record_of_the_same_address_is_not_adopted(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        piholes.v6.edit(|hosts, _| hosts.push(format!("{TARGET} app.lan")));
        piholes.spec.add("app.lan", TARGET);
        let _running = bed.start(piholes.instances());
        bed.register("app", &["app.lan", "new.lan"]).await;
        piholes.serve("new.lan", &[TARGET]).await;
        bed.delete("app").await;
        piholes.serve("new.lan", &[]).await;
        piholes.serve("app.lan", &[TARGET]).await;
    }

    async fn row_19_the_view_is_sorted_joined_with_commas_and_removed_when_empty(cluster) {
        let bed = Bed::new(cluster).await;
        let piholes = Both::start().await;
        let _running = bed.start(piholes.instances());
        bed.register("app", &["c.lan", "a.lan", "b.lan"]).await;
        bed.shows("app", Some("a.lan,b.lan,c.lan")).await;
        bed.set_hosts("app", &["b.lan"]).await;
        bed.shows("app", Some("b.lan")).await;
        bed.annotate("app", REGISTER, Some("false")).await;
        bed.shows("app", None).await;
        assert!(!bed.get("app").await.metadata.annotations.unwrap_or_default().contains_key(MANAGED_HOSTS));
        assert_eq!(dig(piholes.v6.dns(), "b.lan", "A").await.rcode, "NXDOMAIN");
        let _ = rules(&[]);
    }
}
