//! Names that the TXT registry of external-dns owns: refused, or taken over.

use super::*;

#[test]
fn what_external_dns_owns_with_another_type_is_refused_by_name() {
    for (owned, record, at, wanted, target) in [
        ("AAAA", "2001:db8::1", "weu-aaaa-app", "A", "192.0.2.1"),
        ("A", "192.0.2.1", "weu-a-app", "CNAME", "lb.example.org"),
        ("CNAME", "lb.example.org.", "weu-cname-app", "A", "192.0.2.1"),
    ] {
        let scene = Scene::new().on_server("app", owned, record).registered(at).endpoint("e", "app", wanted, target);
        let plan = scene.plan();
        assert!(plan.atoms.is_empty(), "{wanted} beside {owned}: {:?}", plan.atoms);
        let refusal = plan.decided[0].readiness.refusal().unwrap();
        assert_eq!(refusal.reason, Reason::ForeignRecord, "{refusal}");
        for word in [&format!("app.example.com. {owned}"), "\"weu\"", at] {
            assert!(refusal.message.contains(word), "{refusal}");
        }
    }
}

#[test]
fn a_take_over_changes_the_type_of_a_name_in_one_atom() {
    let scene =
        |at: &str| Scene { take_over: Some(true), ..Scene::new() }.on_server("gw", "A", "192.0.2.1").registered(at);
    assert_eq!(
        scene("weu-a-gw").endpoint("e", "gw", "CNAME", "lb.example.org").words(),
        "-gw.example.com. A -weu-a-gw.example.com. TXT +gw.example.com. CNAME (ledger) for e\n"
    );
    // The oldest form of the registry has its TXT record at the name itself.
    assert_eq!(
        scene("gw").on_server("gw", "AAAA", "2001:db8::1").endpoint("e", "gw", "CNAME", "lb.example.org").words(),
        "-gw.example.com. A -gw.example.com. AAAA -gw.example.com. TXT +gw.example.com. CNAME (ledger) for e\n"
    );
    // Two endpoints that need one place: it is cleared once.
    let alias = Scene { take_over: Some(true), ..Scene::new() }
        .on_server("gw", "CNAME", "lb.example.org.")
        .registered("weu-cname-gw");
    assert_eq!(
        alias.endpoint("e", "gw", "A", "192.0.2.1").endpoint("f", "gw", "AAAA", "2001:db8::1").words(),
        "-gw.example.com. CNAME -weu-cname-gw.example.com. TXT +gw.example.com. A (ledger) for e\n+gw.example.com. AAAA (ledger) for f\n"
    );
}

#[test]
fn a_take_over_leaves_types_that_may_stay_and_records_without_an_owner() {
    let scene = Scene { take_over: Some(true), ..Scene::new() };
    let scene =
        scene.on_server("app", "AAAA", "2001:db8::1").registered("weu-aaaa-app").endpoint("e", "app", "A", "192.0.2.1");
    assert_eq!(scene.words(), "+app.example.com. A (ledger) for e\n");
    let scene = Scene { take_over: Some(true), ..Scene::new() };
    let scene = scene.on_server("app", "A", "192.0.2.1").endpoint("e", "app", "CNAME", "lb.example.org");
    assert_eq!(scene.words(), "e: CnameConflict\n");
}
