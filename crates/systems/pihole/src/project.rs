//! The hosts of Ingresses as names of the inventory, for one Pi-hole.
//!
//! What the last good pass of this process found counts. Before it, and on a replica that does not lead, a host is wanted.

use jiff::Timestamp;
use signpost_dns::RecordType;
use signpost_engine::{
    Project,
    project::{entry_of, wanted_by},
};
use signpost_inventory::{Entry, Values};
use signpost_planning::{Reason, Refusal};

use crate::index::{Claimant, Target, Wanted};
use crate::{PiholeSystem, plan};

impl Project<String> for PiholeSystem {
    fn project(&self, instance: &String, _now: Timestamp) -> Vec<Entry> {
        if !self.instances.contains_key(instance) {
            return Vec::new();
        }
        let (snapshot, standing) = (self.index.snapshot(instance), self.index.standing(instance));
        let claims = plan::claims_of(&snapshot);
        let publisher = format!("pihole {instance}");
        let mut entries = Vec::new();
        for claimant in &snapshot.claimants {
            let provenance = wanted_by(claimant.id(), &claimant.identity.uid, &publisher);
            for host in &claimant.hosts {
                let oldest = claims.holder_of(&host).and_then(|claim| snapshot.claimants.get(claim.holder));
                let instead = standing.yielded.get(host);
                let holder = instead.or(oldest.map(|oldest| oldest.id()));
                let holds = holder == Some(claimant.id());
                let present = standing.present.as_ref().is_some_and(|present| present.contains(host));
                let refused = standing.refused.get(&(claimant.id().clone(), host.clone())).cloned();
                let lost = || {
                    let message = format!("{host} is owned by {}, which is older", holder?);
                    Some(Refusal::new(Reason::HostTaken, message))
                };
                let refusal = refused.or_else(|| if holds { None } else { lost() });
                let published = present && holds && refusal.is_none();
                for (rtype, targets) in records(claimant) {
                    let mut entry = Entry::new(host.clone(), rtype, provenance.clone());
                    entry.targets = targets;
                    entries.push(entry_of(entry, &claimant.identity, published, refusal.as_ref()));
                }
            }
        }
        entries
    }
}

/// The records that an Ingress wants for each of its hosts. Where a target cannot be understood, any type will do.
fn records(claimant: &Claimant) -> Vec<(Option<RecordType>, Values)> {
    let one = |value: String| std::iter::once(value).collect::<Values>();
    let mut records = match &claimant.target {
        Target::Alias(name) => vec![(Some(RecordType::Cname), one(name.to_string()))],
        Target::Addresses { v4, v6 } => {
            let v4 = if let Wanted::Value(ip) = v4 { Some((RecordType::A, ip.to_string())) } else { None };
            let v6 = if let Wanted::Value(ip) = v6 { Some((RecordType::Aaaa, ip.to_string())) } else { None };
            [v4, v6].into_iter().flatten().map(|(rtype, ip)| (Some(rtype), one(ip))).collect()
        }
        Target::Keep => Vec::new(),
    };
    if records.is_empty() {
        records.push((None, Values::default()));
    }
    records
}
