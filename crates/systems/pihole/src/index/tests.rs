//! Rows 2, 5 to 8, 10, 11, 21, 52 and 53: what an Ingress asks for, read from plain objects.

use signpost_engine::Touched;

use jiff::Timestamp;

use super::*;

const DEFAULT: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 10);

fn ingress(name: &str, annotations: &[(&str, &str)], hosts: &[&str]) -> Ingress {
    let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
    let rules: Vec<_> = hosts.iter().map(|host| serde_json::json!({ "host": host })).collect();
    serde_json::from_value(serde_json::json!({
        "metadata": {"namespace": "default", "name": name, "uid": name, "annotations": annotations, "resourceVersion": "1"},
        "spec": {"rules": rules},
    }))
    .unwrap()
}

fn registered(annotations: &[(&str, &str)], hosts: &[&str]) -> Claimant {
    let mut all = vec![(REGISTER, "true")];
    all.extend(annotations);
    read(&ingress("app", &all, hosts), DEFAULT, false).unwrap()
}

fn names(claimant: &Claimant) -> Vec<&str> {
    claimant.hosts.iter().map(Fqdn::undotted).collect()
}

#[test]
fn row_02_an_unregistered_ingress_is_not_kept_an_odd_value_is_reported() {
    assert_eq!(read(&ingress("app", &[], &["a.lan"]), DEFAULT, false), None);
    assert_eq!(read(&ingress("app", &[(REGISTER, "false")], &["a.lan"]), DEFAULT, false), None);
    for odd in ["True", "yes", "1", ""] {
        let claimant = read(&ingress("app", &[(REGISTER, odd)], &["a.lan"]), DEFAULT, false).unwrap();
        assert!(claimant.hosts.is_empty());
        assert!(matches!(&claimant.problems[..], [Problem::Annotation { annotation: REGISTER, .. }]), "{odd}");
    }
}

#[test]
fn row_52_hosts_from_rules_from_the_annotation_empty_and_mixed() {
    assert_eq!(names(&registered(&[], &["B.lan.", "a.lan", "b.lan"])), ["a.lan", "b.lan"]);
    assert_eq!(names(&registered(&[(HOSTS, " x.lan , y.lan,, ")], &["a.lan"])), ["x.lan", "y.lan"]);
    assert_eq!(registered(&[(HOSTS, "")], &["a.lan"]).problems, [Problem::NoHosts]);
    assert_eq!(registered(&[], &[]).problems, [Problem::NoHosts]);
    let mixed =
        registered(&[], &["*.wild.lan", "good.lan", "bad host", "10.0.0.1", "a/b.lan", "x#y", "münchen.lan", ""]);
    assert_eq!(names(&mixed), ["good.lan", "xn--mnchen-3ya.lan"]);
    assert_eq!(mixed.problems.len(), 5);
}

#[test]
fn hosts_beyond_a_thousand_are_left_out_and_reported() {
    let many: Vec<String> = (0..1002).map(|n| format!("h{n:04}.lan")).collect();
    let claimant = registered(&[(HOSTS, &many.join(","))], &[]);
    assert_eq!(claimant.hosts.len(), 1000);
    assert!(
        matches!(&claimant.problems[..], [Problem::Host { host, error }] if host == "h1000.lan" && error.contains("1000"))
    );
}

#[test]
fn row_53_addresses_default_override_and_invalid() {
    let v4 = |claimant: Claimant| match claimant.target {
        Target::Addresses { v4, .. } => v4,
        other => panic!("{other:?}"),
    };
    assert_eq!(v4(registered(&[], &["a.lan"])), Wanted::Value(DEFAULT));
    assert_eq!(v4(registered(&[(TARGET_IP, " 10.0.0.1 ")], &["a.lan"])), Wanted::Value("10.0.0.1".parse().unwrap()));
    for bad in ["::1", "1.2.3", "01.2.3.4", "1.2.3.4.5", "256.1.1.1", "lan", ""] {
        let claimant = registered(&[(TARGET_IP, bad)], &["a.lan"]);
        assert_eq!(claimant.problems.len(), 1, "{bad}");
        assert_eq!(v4(claimant), Wanted::Keep, "{bad}");
    }
    let dual = registered(&[(TARGET_IPV6, "fd00::1")], &["a.lan"]);
    assert!(matches!(dual.target, Target::Addresses { v6: Wanted::Value(_), .. }));
    assert!(matches!(registered(&[(TARGET_CNAME, "t.lan")], &["a.lan"]).target, Target::Alias(_)));
    assert_eq!(registered(&[(TARGET_CNAME, "not a name")], &["a.lan"]).target, Target::Keep);
}

fn index(instances: &[&str]) -> (IngressIndex, Queue<String, IngressId>) {
    let queue = Queue::new();
    let names = instances.iter().map(|name| (*name).to_owned()).collect();
    (IngressIndex::new(DEFAULT, false, names, queue.clone()), queue)
}

#[tokio::test]
async fn a_change_touches_every_pihole_and_no_change_touches_none() {
    let (index, queue) = index(&["one", "two"]);
    index.applied(&ingress("other", &[], &["x.lan"]));
    assert!(queue.waiting().is_empty());
    index.applied(&ingress("app", &[(REGISTER, "true")], &["a.lan"]));
    assert_eq!(queue.waiting().len(), 2);
    for key in ["one", "two"] {
        let job = queue.try_next().unwrap();
        assert_eq!((job.key.as_str(), matches!(job.touched, Touched::Some(_))), (key, true));
        queue.finish(&job.key, signpost_engine::Outcome::Done);
    }
    index.applied(&ingress("app", &[(REGISTER, "true")], &["a.lan"]));
    assert!(queue.waiting().is_empty(), "an equal object is not a change");
    index.expect_views([(ingress_id("default", "app"), Some("a.lan".into()))]);
    index.applied(&ingress("app", &[(REGISTER, "true"), (MANAGED_HOSTS, "a.lan")], &["a.lan"]));
    assert!(queue.waiting().is_empty(), "our own view is not a change");
    index.applied(&ingress("app", &[(REGISTER, "true"), (MANAGED_HOSTS, "forged.lan")], &["a.lan"]));
    assert_eq!(queue.waiting().len(), 2, "a forged view is a change");
}

#[tokio::test]
async fn a_host_is_released_until_every_pihole_has_confirmed() {
    let (index, _queue) = index(&["one", "two"]);
    index.applied(&ingress("app", &[(REGISTER, "true")], &["a.lan", "b.lan"]));
    index.applied(&ingress("app", &[(REGISTER, "true")], &["b.lan"]));
    index.deleted(&ObjectId::new::<Ingress>(Some("default"), "app"));
    assert_eq!(index.snapshot("one").released.len(), 2);
    let both = [Fqdn::parse("a.lan").unwrap(), Fqdn::parse("b.lan").unwrap()];
    index.confirm("one", &index.snapshot("one"), both);
    assert!(index.snapshot("one").released.is_empty());
    assert_eq!(index.snapshot("two").released.len(), 2);
    assert_eq!(index.snapshot("two").seen.len(), 2, "events showed both deletions");
    index.listed();
    assert!(index.snapshot("two").seen.is_empty(), "a new list may lack what was not deleted");
}

#[tokio::test]
async fn a_host_released_again_during_a_pass_is_not_confirmed_at_its_end() {
    let (index, _queue) = index(&["one"]);
    let shared = Fqdn::parse("a.lan").unwrap();
    for name in ["first", "second"] {
        index.applied(&ingress(name, &[(REGISTER, "true")], &["a.lan"]));
    }
    index.deleted(&ObjectId::new::<Ingress>(Some("default"), "first"));
    let pass = index.snapshot("one");
    index.deleted(&ObjectId::new::<Ingress>(Some("default"), "second"));
    index.confirm("one", &pass, [shared.clone()]);
    let left = index.snapshot("one");
    assert_eq!(left.released.get(&shared), Some(&ingress_id("default", "second")));
    index.confirm("one", &left, [shared]);
    assert!(index.snapshot("one").released.is_empty());
}

#[tokio::test]
async fn every_ingress_that_gave_up_a_host_waits_until_its_record_is_deleted() {
    let (index, _queue) = index(&["one"]);
    for name in ["first", "second"] {
        index.applied(&ingress(name, &[(REGISTER, "true")], &["a.lan"]));
    }
    for name in ["first", "second"] {
        index.deleted(&ObjectId::new::<Ingress>(Some("default"), name));
    }
    let both: BTreeSet<IngressId> = ["first", "second"].map(|name| ingress_id("default", name)).into();
    assert_eq!(index.unconfirmed(), both);
    index.confirm("one", &index.snapshot("one"), [Fqdn::parse("a.lan").unwrap()]);
    assert!(index.unconfirmed().is_empty());
}

#[tokio::test]
async fn an_unreadable_ingress_keeps_its_claims_or_makes_claims_unknown() {
    let (index, _queue) = index(&["one"]);
    index.applied(&ingress("app", &[(REGISTER, "true")], &["a.lan"]));
    index.unreadable(&Identity::of(&ingress("app", &[], &[])), "broken");
    assert_eq!((index.snapshot("one").claimants.len(), index.snapshot("one").blind), (1, false));
    let other = Identity::of(&ingress("other", &[], &[]));
    index.unreadable(&other, "broken");
    assert!(index.snapshot("one").blind);
    index.deleted(&other.id);
    assert!(!index.snapshot("one").blind);
}

/// Row 21: ten thousand Ingresses of three hosts each have to fit beside everything else in a 64 MB process.
#[tokio::test]
async fn row_21_ten_thousand_ingresses_take_a_few_megabytes() {
    // Memory can only be measured in a process that does nothing else.
    const ALONE: &str = "SIGNPOST_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = std::thread::current().name().expect("the test's name").to_owned();
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let output = alone.args(["--exact", &name, "--nocapture"]).env(ALONE, "1").output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && printed.contains("1 passed"),
            "{printed}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default() * 4096
    };
    let (index, _queue) = index(&["one"]);
    let before = resident();
    for n in 0..10_000 {
        let hosts =
            [format!("app-{n}.team-{}.home.arpa", n % 50), format!("www-{n}.home.arpa"), format!("api-{n}.home.arpa")];
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let view = hosts.join(",");
        index.applied(&ingress(&format!("app-{n}"), &[(REGISTER, "true"), (MANAGED_HOSTS, &view)], &hosts));
    }
    assert_eq!(index.snapshot("one").claimants.len(), 10_000);
    let grown = resident().saturating_sub(before);
    println!("10,000 Ingresses of three hosts: {} KB", grown / 1000);
    assert!(grown < 24_000_000, "{grown} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_newer_version_is_a_change_while_the_finalizer_is_wrong() {
    let queue = Queue::new();
    let index = IngressIndex::new(DEFAULT, true, vec!["one".into()], queue.clone());
    let key = ingress_id("default", "app");
    let seen = async |version: &str, finalizers: &[&str], deleting: bool, view: &str| {
        let mut object = ingress("app", &[(REGISTER, "true"), (MANAGED_HOSTS, view)], &["a.lan"]);
        object.metadata.resource_version = Some(version.to_owned());
        object.metadata.finalizers = Some(finalizers.iter().map(|name| (*name).to_owned()).collect());
        object.metadata.deletion_timestamp =
            deleting.then_some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
        index.expect_views([(key.clone(), Some(view.to_owned()))]);
        index.applied(&object);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        let job = queue.try_next();
        if let Some(job) = &job {
            queue.finish(&job.key, signpost_engine::Outcome::Done);
        }
        job.is_some()
    };
    assert!(seen("1", &[], false, "a.lan").await);
    assert!(seen("2", &[], false, "a.lan").await, "adding it with version 1 was refused");
    assert!(seen("3", &[FINALIZER], false, "a.lan").await);
    assert!(!seen("4", &[FINALIZER], false, "a.lan").await, "as it should be");
    assert!(seen("5", &[FINALIZER], true, "a.lan").await);
    assert!(seen("6", &[FINALIZER], true, "").await, "our own view, but removing it with version 5 was refused");
}

#[test]
fn a_problem_is_logged_once_and_again_only_after_it_had_ended() {
    let good = registered(&[], &["a.lan"]);
    let bad = registered(&[], &["*.lan", "a.lan"]);
    let logged = |old: Option<&Claimant>, new: Option<&Claimant>| new_problems(old, new).count();
    for _ in 0..2 {
        assert_eq!(logged(Some(&good), Some(&bad)), 1);
        assert_eq!(logged(Some(&bad), Some(&bad)), 0, "however often it is seen");
        assert_eq!(logged(Some(&bad), Some(&good)), 0);
    }
    assert_eq!((logged(None, Some(&bad)), logged(Some(&bad), None)), (1, 0));
}

#[test]
fn edge_hyphens_of_the_last_label_and_pi_hole_itself_are_not_hosts() {
    let claimant = registered(&[], &["a.lan-", "b.-lan", "pi.hole", "-c-.lan"]);
    assert_eq!(names(&claimant), ["-c-.lan"]);
    assert_eq!(claimant.problems.len(), 3);
    assert!(matches!(registered(&[(TARGET_CNAME, "pi.hole")], &["a.lan"]).target, Target::Alias(_)));
}
