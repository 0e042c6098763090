//! One long walk through everything a user of PowerDNS-Operator does, in one zone after another.

use serde_json::json;
use signpost_testkit::{dig, on_both};

use crate::rig::{Rig, condition, rrset, zone_spec};

on_both! {
    async fn a_walk_through_everything(cluster) {
        let Some(rig) = Rig::new(cluster).await else { return };
        let direct = rig.zone.clone();
        let reverse = format!("2.0.192.in-addr.arpa.{direct}");
        let cataloged = format!("cataloged.{direct}");
        let epoch = format!("epoch.{direct}");
        let in_direct = |name: &str, rtype: &str, records: &[&str]| rrset(&direct, "ClusterZone", name, rtype, records);

        // Zones: direct and reverse, with a catalog, with EPOCH, and the duplicates.
        rig.put("ClusterZone", &direct, zone_spec()).await;
        rig.put("ClusterZone", &reverse, zone_spec()).await;
        rig.put("Zone", &cataloged, json!({ "kind": "Master", "nameservers": ["ns1.example.org"], "catalog": "catalog.example" })).await;
        rig.put("Zone", &epoch, json!({ "kind": "Native", "nameservers": ["ns1.example.org"], "soa_edit_api": "EPOCH" })).await;
        rig.until("ClusterZone", &direct, "Succeeded").await;
        rig.until("ClusterZone", &reverse, "Succeeded").await;
        rig.until("Zone", &cataloged, "Succeeded").await;
        rig.until("Zone", &epoch, "Succeeded").await;
        rig.put("Zone", &direct, zone_spec()).await;
        rig.until_refused("Zone", &direct, "Duplicated").await;
        let other = rig.cluster.namespace("other").await;
        rig.put_in("Zone", &other, &epoch, zone_spec()).await;
        rig.until_in("Zone", &other, &epoch, "Failed").await;

        // Cluster record sets: mail at the apex, an address, a duplicate.
        let (mx, host, twin) = (format!("mx.{direct}"), format!("host.{direct}"), format!("twin.{direct}"));
        rig.put("ClusterRRset", &mx, in_direct(&rig.fqdn("@"), "MX", &["10 mail.example.org."])).await;
        rig.put("ClusterRRset", &host, in_direct("host", "A", &["192.0.2.1"])).await;
        rig.until("ClusterRRset", &mx, "Succeeded").await;
        rig.until("ClusterRRset", &host, "Succeeded").await;
        rig.put("ClusterRRset", &twin, in_direct("host", "A", &["192.0.2.2"])).await;
        rig.until_refused("ClusterRRset", &twin, "Duplicated").await;

        record_sets(&rig, &reverse).await;
        everything_is_deleted(&rig, [&direct, &reverse]).await;
    }
}

async fn record_sets(rig: &Rig, reverse: &str) {
    let direct = &rig.zone;
    let in_direct = |name: &str, rtype: &str, records: &[&str]| rrset(direct, "ClusterZone", name, rtype, records);
    // Record sets: a pointer, a service, and duplicates of the cluster's.
    rig.put("RRset", "pointer", rrset(reverse, "ClusterZone", "1", "PTR", &[&rig.fqdn("host")])).await;
    rig.put("RRset", "service", in_direct("_http._tcp", "SRV", &[&format!("1 50 80 {}", rig.fqdn("host"))])).await;
    rig.until("RRset", "pointer", "Succeeded").await;
    rig.until("RRset", "service", "Succeeded").await;
    rig.put("RRset", "mx", in_direct("@", "MX", &["20 evil.example."])).await;
    rig.put("RRset", "host", in_direct("host", "A", &["192.0.2.66"])).await;
    rig.until_refused("RRset", "mx", "Duplicated").await;
    rig.until_refused("RRset", "host", "Duplicated").await;

    // Names: absolute, a duplicate by another spelling, and a name that only looks absolute.
    rig.put("RRset", "absolute", in_direct(&rig.fqdn("absolute"), "A", &["192.0.2.3"])).await;
    rig.until("RRset", "absolute", "Succeeded").await;
    rig.put("RRset", "spelling", in_direct("absolute", "A", &["192.0.2.4"])).await;
    rig.until_refused("RRset", "spelling", "Duplicated").await;
    let long = format!("long.{direct}");
    rig.put("RRset", "long", in_direct(&long, "A", &["192.0.2.5"])).await;
    let status = rig.until("RRset", "long", "Succeeded").await;
    assert_eq!(status["dnsEntryName"], format!("{long}.{direct}."));

    // Two types at one name, an alias, a wildcard, text at the apex.
    for (object, name, rtype, record) in [
        ("both-4", "both", "A", "192.0.2.6"),
        ("both-6", "both", "AAAA", "2001:db8::6"),
        ("alias", "alias", "CNAME", "host.example.org."),
        ("wild", "*.wild", "A", "192.0.2.7"),
        ("text", "@", "TXT", "\"Welcome\""),
    ] {
        rig.put("RRset", object, in_direct(name, rtype, &[record])).await;
        rig.until("RRset", object, "Succeeded").await;
        rig.until_served(name, rtype, &[record]).await;
    }

    // A bad type beside a good one, and a record set without its zone.
    rig.put("RRset", "bad", in_direct("bad", "AAA", &["192.0.2.8"])).await;
    rig.put("RRset", "good", in_direct("good", "A", &["192.0.2.8"])).await;
    rig.until("RRset", "good", "Succeeded").await;
    rig.until("RRset", "bad", "Failed").await;
    let orphaned = rrset(&format!("nowhere.{direct}"), "Zone", "www", "A", &["192.0.2.9"]);
    rig.put("RRset", "orphan", orphaned).await;
    let status = rig.until("RRset", "orphan", "Pending").await;
    assert_eq!(condition(&status, "Available")["reason"], "ZoneMissing");

    rig.until_served("@", "MX", &["10 mail.example.org."]).await;
    rig.until_served("host", "A", &["192.0.2.1"]).await;
    rig.until_served("anything.wild", "A", &["192.0.2.7"]).await;
    let pointer = dig(rig.dns, &format!("1.{reverse}."), "PTR").await;
    assert_eq!(pointer.records, [rig.fqdn("host")]);
}

/// The zones go first, which is the worst order.
async fn everything_is_deleted(rig: &Rig, zones: [&str; 2]) {
    for zone in zones {
        rig.delete("ClusterZone", zone).await;
        rig.until_gone("ClusterZone", zone).await;
    }
    let sets = rig.api("RRset").list(&kube::api::ListParams::default()).await.unwrap();
    for set in sets {
        let name = set.metadata.name.unwrap();
        rig.delete("RRset", &name).await;
        rig.until_gone("RRset", &name).await;
    }
}
