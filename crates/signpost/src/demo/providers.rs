//! The servers of the demo: PowerDNS and Pi-hole in memory, whose content the embedded name server answers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

use signpost_dns::{Fqdn, RecordSet, RecordType, Ttl, ZoneName};
use signpost_engine::Operator;
use signpost_provider_pihole::{Listing, MemoryPihole, OwnerId};
use signpost_provider_powerdns::{MemoryServer, ZoneContents};
use signpost_sandbox::nameserver::{NameServer, Records};
use signpost_system_pihole::{Instance, Policy};
use signpost_system_powerdns::Pace;

/// The default target of the names of the example Ingresses.
const TARGET: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);

/// Installs both systems on servers in memory, and makes the name server answer with their content.
pub(super) fn install(operator: &mut Operator, names: &NameServer) -> anyhow::Result<()> {
    let powerdns = MemoryServer::new();
    let records = names.records();
    let mirrored: Mutex<BTreeSet<(ZoneName, Fqdn, RecordType)>> = Mutex::default();
    powerdns.on_change(Arc::new(move |zone, contents| mirror_zone(&records, &mirrored, zone, contents)));
    signpost_system_powerdns::install_with(operator, Arc::new(powerdns), Pace::default());

    let pihole = MemoryPihole::new();
    let records = names.records();
    let shown: Mutex<BTreeSet<(Fqdn, RecordType)>> = Mutex::default();
    pihole.on_change(move |listing| mirror_lines(&records, &shown, listing));
    let policy = Policy::new(OwnerId::parse("demo")?, TARGET);
    signpost_system_pihole::install_instances(operator, policy, vec![Instance::new("demo", Arc::new(pihole))]);
    Ok(())
}

/// Copies the current content of a zone to the name server.
fn mirror_zone(
    records: &Records,
    mirrored: &Mutex<BTreeSet<(ZoneName, Fqdn, RecordType)>>,
    zone: &ZoneName,
    contents: Option<&ZoneContents>,
) {
    let mut mirrored = mirrored.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(contents) = contents else {
        mirrored.retain(|(of, _, _)| of != zone);
        records.remove_zone(zone);
        return;
    };
    records.add_zone(zone);
    let mut now = BTreeSet::new();
    for set in &contents.sets {
        let parsed = Ttl::new(set.ttl)
            .ok()
            .and_then(|ttl| RecordSet::parse(set.name.clone(), set.rtype, ttl, &set.contents).ok());
        if let Some(record_set) = parsed {
            records.set(&record_set);
            now.insert((zone.clone(), set.name.clone(), set.rtype));
        }
    }
    let removed: Vec<_> = mirrored.iter().filter(|entry| &entry.0 == zone && !now.contains(entry)).cloned().collect();
    for entry in removed {
        records.remove(&entry.1, &entry.2);
        mirrored.remove(&entry);
    }
    mirrored.extend(now);
}

/// Copies the lines of the Pi-hole to the name server, with a Pi-hole's TTL of 0.
fn mirror_lines(records: &Records, shown: &Mutex<BTreeSet<(Fqdn, RecordType)>>, listing: &Listing) {
    let mut wanted: BTreeMap<(Fqdn, RecordType), Vec<String>> = BTreeMap::new();
    for line in &listing.hosts {
        let parts = line.address_parts();
        let Some(ip) = parts.ip else { continue };
        let rtype = if ip.is_ipv4() { RecordType::A } else { RecordType::Aaaa };
        for name in parts.names.iter().filter_map(|name| Fqdn::parse(name).ok()) {
            wanted.entry((name, rtype)).or_default().push(IpAddr::to_string(&ip));
        }
    }
    for line in &listing.cnames {
        let parts = line.alias_parts();
        let Some(target) = parts.target.and_then(|target| Fqdn::parse(target).ok()) else { continue };
        for alias in parts.aliases.iter().filter_map(|alias| Fqdn::parse(alias).ok()) {
            wanted.entry((alias, RecordType::Cname)).or_default().push(target.to_string());
        }
    }
    let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, rtype) in shown.iter().filter(|entry| !wanted.contains_key(entry)) {
        records.remove(name, rtype);
    }
    for ((name, rtype), values) in &wanted {
        if let Ok(set) =
            Ttl::new(0).map_err(drop).and_then(|ttl| RecordSet::parse(name.clone(), *rtype, ttl, values).map_err(drop))
        {
            records.set(&set);
        }
    }
    *shown = wanted.into_keys().collect();
}
