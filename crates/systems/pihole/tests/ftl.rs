//! Cases from a running FTL: one bad host, one locked list or one restart must not delay anything else.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::time::Duration;

use common::{Bed, Draft, PATIENCE, TARGET, logs, named, serves, takes_away, until, v6};
use signpost_system_pihole::{HOSTS, Policy, TARGET_CNAME, TARGET_IP};
use signpost_testkit::pihole::{PiholeV6, V6Options};
use signpost_testkit::{eventually, on_both};

/// Longer than any of these tests waits: whoever waits for it fails.
const TOO_LONG: Duration = Duration::from_mins(30);

fn metric(reason: &str, count: u32) -> String {
    format!("signpost_pihole_refusals{{instance=\"v6\",reason=\"{reason}\"}} {count}\n")
}

on_both! {
    async fn a_hundred_bad_hosts_of_one_ingress_hold_up_nobody(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let bad: Vec<String> = (0..100).map(|n| format!("a{n:03}.lan-")).collect();
        bed.create(Draft::new("evil", &["x.lan"]).registered().annotate(HOSTS, &bad.join(","))).await;
        bed.register("good", &["good.lan", "better.lan"]).await;
        let policy = Policy { backoff: TOO_LONG, ..bed.policy() };
        let running = bed.start_with(policy, vec![v6(&server)]);
        serves(server.dns(), "good.lan", &[TARGET]).await;
        until("they are counted", || running.metrics.encode().contains(&metric("InvalidHost", 100))).await;
        assert!(server.hosts().iter().all(|line| line.ends_with(" # signpost=home")), "{:?}", server.hosts());
    }

    async fn refusals_of_ingresses_are_counted_and_no_longer_once_they_are_corrected(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let running = bed.start(vec![v6(&server)]);
        bed.create(Draft::new("address", &["a.lan"]).registered().annotate(TARGET_IP, "nowhere")).await;
        bed.create(Draft::new("wildcard", &["*.lan", "b.lan"]).registered()).await;
        bed.create(Draft::new("none", &[]).any_host().registered()).await;
        let counted = |counts: [u32; 3]| {
            let reasons = ["InvalidAnnotation", "InvalidHost", "NoHosts"];
            let text = running.metrics.encode();
            reasons.iter().zip(counts).all(|(reason, count)| text.contains(&metric(reason, count)))
        };
        until("all three are counted", || counted([1, 1, 1])).await;
        bed.annotate("address", TARGET_IP, None).await;
        bed.set_hosts("wildcard", &["b.lan"]).await;
        bed.delete("none").await;
        until("nothing is wrong any more", || counted([0, 0, 0])).await;
    }

    async fn a_locked_alias_list_holds_up_no_address(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::with(V6Options { cnames_env_locked: true, ..V6Options::default() }).await;
        let name = format!("locked-{}", bed.namespace);
        bed.create(Draft::new("www", &["www.lan"]).registered().annotate(TARGET_CNAME, "good.lan")).await;
        let policy = Policy { backoff: Duration::from_secs(2), ..bed.policy() };
        let running = bed.start_with(policy, vec![named(&name, &server.url(), PiholeV6::PASSWORD)]);
        until("it is reported", || !logs::of_instance(&name, "pi-hole api error").is_empty()).await;
        let note = bed.event("EnvLocked").await;
        assert!(note.contains("dns.cnameRecords") && note.contains("addresses are written"), "{note}");
        for n in 0..5 {
            bed.register(&format!("good-{n}"), &[&format!("good-{n}.lan")]).await;
            serves(server.dns(), &format!("good-{n}.lan"), &[TARGET]).await;
        }
        let tries = server.requests().iter().filter(|request| request.starts_with("PATCH")).count();
        assert_eq!(tries, 1, "and the locked list is not tried with each of them");
        let series = format!("signpost_pihole_trouble{{instance=\"{name}\",reason=\"EnvLocked\"}}");
        assert!(running.metrics.encode().contains(&series));
        server.set(|options| options.cnames_env_locked = false);
        until("the alias is there", || !server.cnames().is_empty()).await;
        until("it is over", || !running.metrics.encode().contains(&series)).await;
    }

    async fn a_locked_alias_list_is_not_an_error_once_no_alias_is_wanted(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::with(V6Options { cnames_env_locked: true, ..V6Options::default() }).await;
        let name = format!("unwanted-{}", bed.namespace);
        bed.create(Draft::new("www", &["www.lan"]).registered().annotate(TARGET_CNAME, "good.lan")).await;
        let running = bed.start(vec![named(&name, &server.url(), PiholeV6::PASSWORD)]);
        let series = format!("signpost_pihole_trouble{{instance=\"{name}\",reason=\"EnvLocked\"}}");
        until("it is an error", || running.metrics.encode().contains(&series)).await;
        bed.delete("www").await;
        until("it is over", || !running.metrics.encode().contains(&series)).await;
    }

    async fn a_line_of_ours_with_other_blanks_is_ours_before_and_after_a_write(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        server.edit(|hosts, _| {
            hosts.push(format!("{TARGET}   orphan.lan # signpost=home"));
            hosts.push(format!("{TARGET}\tapp.lan # signpost=home"));
            hosts.push("10.0.0.9\tmine.lan".into());
        });
        bed.register("app", &["app.lan"]).await;
        let _running = bed.start(vec![v6(&server)]);
        let wanted = [format!("{TARGET} app.lan # signpost=home"), "10.0.0.9 mine.lan".to_owned()];
        until("the orphan is deleted and nothing else", || server.hosts() == wanted).await;
        bed.shows("app", Some("app.lan")).await;
    }

    async fn a_pihole_that_answers_again_is_written_at_once(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let name = format!("back-{}", bed.namespace);
        let policy = Policy { backoff: TOO_LONG, ..bed.policy() };
        let _running = bed.start_with(policy, vec![named(&name, &server.url(), PiholeV6::PASSWORD)]);
        bed.register("one", &["one.lan"]).await;
        serves(server.dns(), "one.lan", &[TARGET]).await;
        bed.shows("one", Some("one.lan")).await;
        takes_away(&server).await;
        bed.register("two", &["two.lan"]).await;
        until("a pass has failed", || !logs::of_instance(&name, "pi-hole api error").is_empty()).await;
        server.release_restarts();
        until("two.lan is there", || server.hosts().iter().any(|line| line.contains("two.lan"))).await;
        bed.shows("two", Some("two.lan")).await;
    }

    async fn app_sudo_that_is_switched_on_is_noticed_soon_and_reported_once_before(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::with(V6Options { app_password: Some("app".into()), ..V6Options::default() }).await;
        let name = format!("sudo-{}", bed.namespace);
        // A third of it passes between two checks; ten times as much is longer than this test waits.
        let policy = Policy { backoff: Duration::from_secs(7), ..bed.policy() };
        bed.register("app", &["app.lan"]).await;
        let _running = bed.start_with(policy, vec![named(&name, &server.url(), "app")]);
        bed.event("AppSudoOff").await;
        let checks = || server.requests().iter().filter(|request| request.contains("app_sudo")).count();
        until("it was checked twice", || checks() >= 2).await;
        assert_eq!(logs::of_instance(&name, "pi-hole api error").len(), 1);
        server.set(|options| options.app_sudo = true);
        serves(server.dns(), "app.lan", &[TARGET]).await;
    }

    async fn a_free_host_of_a_broken_ingress_is_shown_by_the_one_that_has_it(cluster) {
        let bed = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        bed.create(Draft::new("broken", &["x.lan"]).registered().annotate(TARGET_IP, "nowhere")).await;
        let older = bed.get("broken").await.metadata.creation_timestamp.unwrap();
        eventually("a second has passed", PATIENCE, || async {
            bed.create(Draft::new("good", &["x.lan"]).registered().annotate(TARGET_IP, "10.0.0.2")).await;
            let younger = bed.get("good").await.metadata.creation_timestamp.unwrap();
            if younger.0 > older.0 { return Ok(()); }
            bed.delete("good").await;
            Err("the same second")
        }).await;
        let _running = bed.start(vec![v6(&server)]);
        serves(server.dns(), "x.lan", &["10.0.0.2"]).await;
        bed.shows("good", Some("x.lan")).await;
        assert_eq!(bed.view("broken").await, None);
        // Corrected, the older one has it.
        bed.annotate("broken", TARGET_IP, Some("10.0.0.1")).await;
        serves(server.dns(), "x.lan", &["10.0.0.1"]).await;
        bed.shows("broken", Some("x.lan")).await;
        bed.shows("good", None).await;
    }

    async fn two_clusters_without_an_owner_leave_each_others_records_alone(cluster) {
        let bed = Bed::new(cluster.clone()).await;
        let other = Bed::new(cluster).await;
        let server = PiholeV6::start().await;
        let nameless = |bed: &Bed| Policy { cluster_id: true, ..bed.policy() };
        bed.register("app", &["app.lan"]).await;
        let _one = bed.start_with(nameless(&bed), vec![v6(&server)]);
        serves(server.dns(), "app.lan", &[TARGET]).await;
        other.register("web", &["web.lan"]).await;
        let two = other.start_with(nameless(&other), vec![v6(&server)]);
        serves(server.dns(), "web.lan", &[TARGET]).await;
        two.stop().await;
        // Started again, it has the same id and sweeps only what is its own.
        other.delete("web").await;
        let _two = other.start_with(nameless(&other), vec![v6(&server)]);
        serves(server.dns(), "web.lan", &[]).await;
        let [line] = server.hosts().try_into().unwrap();
        let id = line.strip_prefix(&format!("{TARGET} app.lan # signpost=c")).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(id.len(), 8, "{line}");
    }
}
