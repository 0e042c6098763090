//! DNSEndpoints: each endpoint is a record of its own, in the zone with the longest name that has it.
//!
//! In: DNSEndpoints from the watch. Out: records like those of RRsets, under the id `OBJECT/NAME/TYPE`, and what is reported on the object.
//! A DNSEndpoint that is being deleted counts as deleted: it has no finalizer of ours.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::json;
use signpost_apis::{
    externaldns::{DnsEndpoint, Endpoint},
    powerdns::ClusterZone,
};
use signpost_dns::Fqdn;
use signpost_engine::{Finalizers, Identity, Index, ObjectId, Touch, Wanted, is_reported};
use signpost_planning::{Reason, Refusal};

use super::{
    State, ZoneIndex,
    record::{Desired, Record, ZoneKey, desired},
};

/// The TTL of an endpoint that has none, as external-dns writes it to PowerDNS.
const DEFAULT_TTL: i64 = 300;

/// A DNSEndpoint.
#[derive(Debug)]
pub(super) struct EndpointObject {
    pub(super) identity: Identity,
    /// Its endpoints, in order. While one of them has a name that cannot be understood, also those that it had before.
    members: Vec<Arc<ObjectId>>,
    /// Whether its status is ours: this operator has published it, now or in an earlier process.
    reported: bool,
}

impl ZoneIndex {
    fn endpoint_applied(&self, object: &DnsEndpoint) {
        let identity = Identity::of(object);
        if identity.is_deleting() || !self.endpoint_filter.matches(object.metadata.annotations.as_ref()) {
            self.endpoint_deleted(&identity.id);
            return;
        }
        let mut touched = Vec::new();
        let report = {
            let mut state = self.write();
            let old = state.endpoints.get(&identity.id);
            if old.is_some_and(|old| !identity.is_newer_than(&old.identity)) {
                return;
            }
            let id = old.map_or_else(|| identity.id.clone(), |old| old.identity.id.clone());
            let before = old.map(|old| old.members.clone()).unwrap_or_default();
            let mut records = records(&identity, &id, &object.spec.endpoints);
            // A name that cannot be understood is in no zone: it is reported by whoever has other endpoints of the object. Which of the former
            // ones it is for is not known, so what they published stays.
            let concerned = !before.is_empty() || records.iter().any(|record| self.minds(&record.home));
            let keeps = records.iter().any(is_unnamed);
            records.retain(|record| self.minds(&record.home) || (concerned && is_unnamed(record)));
            if records.is_empty() && !object.spec.endpoints.is_empty() {
                // All of it is in zones that this process leaves to others.
                drop(state);
                self.endpoint_deleted(&identity.id);
                return;
            }
            let mut members: Vec<Arc<ObjectId>> = records.iter().map(|record| record.identity.id.clone()).collect();
            // As a set: an object may have 20,000 endpoints, and everything else waits for the lock.
            let listed: BTreeSet<&Arc<ObjectId>> = members.iter().collect();
            let former = before.iter().filter(|id| !listed.contains(id)).cloned().collect::<Vec<_>>();
            for id in former {
                // A former one that could not be understood either has published nothing.
                if keeps && state.records.get(&id).is_some_and(|record| !is_unnamed(record)) {
                    members.push(id);
                } else {
                    touched.extend(state.remove_record(&id));
                }
            }
            for record in records {
                touched.extend(state.put_endpoint(record));
            }
            let home = members.first().and_then(|id| state.records.get(id)).map(|record| record.home.clone());
            let reported = is_reported(&object.metadata);
            state.endpoints.insert(id.clone(), EndpointObject { identity, members, reported });
            (id, home.unwrap_or_else(|| ZoneKey::Unnamed(Arc::from(""))))
        };
        for (home, touch) in touched {
            self.queue.touch(home, touch);
        }
        // The generation may be the only change.
        self.queue.statuses().enqueue([report]);
    }

    fn endpoint_deleted(&self, id: &ObjectId) {
        let mut touched = Vec::new();
        {
            let mut state = self.write();
            let Some(old) = state.endpoints.remove(id) else { return };
            for member in &old.members {
                touched.extend(state.remove_record(member));
            }
        }
        for (home, touch) in touched {
            self.queue.touch(home, touch);
        }
    }

    /// Whether all DNSEndpoints have been listed: before that, none of them is known to be deleted.
    pub(crate) fn are_endpoints_listed(&self) -> bool {
        self.read().endpoints_listed
    }

    /// All DNSEndpoints are known: what was written for those that are deleted may be deleted now.
    fn all_endpoints_listed(&self) {
        let keys: BTreeSet<ZoneKey> = {
            let mut state = self.write();
            if std::mem::replace(&mut state.endpoints_listed, true) {
                return;
            }
            state.homes.keys().cloned().chain(state.zones.values().map(|zone| zone.key.clone())).collect()
        };
        for key in keys {
            self.queue.touch(key, Touch::All);
        }
    }

    /// The wanted status of a DNSEndpoint now: its generation is observed once every endpoint that can be understood is published. An object
    /// that another one publishes is not ours to report, and neither is an empty one that was never ours.
    pub(crate) fn endpoint_wanted(&self, id: &ObjectId) -> Option<Wanted> {
        let state = self.read();
        let object = state.endpoints.get(id)?;
        let done = |id: &Arc<ObjectId>| {
            let record = state.records.get(id)?;
            Some(record.status.as_deref()?.readiness().refusal().is_none() || record.desired.is_err())
        };
        let status = json!({ "observedGeneration": object.identity.generation });
        let identity = object.identity.clone();
        let all = object.members.iter().all(|id| done(id) == Some(true));
        (all && (object.reported || !object.members.is_empty()))
            .then(|| Wanted { status: Some(status), ..Wanted::nothing(identity) })
    }

    /// The refusals of the DNSEndpoints among these objects, complete for each.
    pub(crate) fn endpoint_refusals(&self, ids: &[Arc<ObjectId>]) -> Vec<(Identity, Vec<Refusal>)> {
        let ids: BTreeSet<&Arc<ObjectId>> = ids.iter().filter(|id| id.is::<DnsEndpoint>()).collect();
        let state = self.read();
        let refusals = |object: &EndpointObject| {
            let members = object.members.iter().filter_map(|id| state.records.get(id));
            let decided = members.filter_map(|record| record.status.as_deref());
            decided.filter_map(|decided| decided.readiness().refusal().cloned()).collect()
        };
        let objects = ids.into_iter().filter_map(|id| state.endpoints.get(id));
        objects.map(|object| (object.identity.clone(), refusals(object))).collect()
    }
}

impl State {
    /// Adds an endpoint, or puts it in the place of what it was before. Returns what is to be looked at.
    fn put_endpoint(&mut self, mut new: Record) -> Option<(ZoneKey, Touch<Arc<ObjectId>>)> {
        self.place_endpoint(&mut new);
        let id = new.identity.id.clone();
        if let Some(old) = self.records.get(&id).cloned() {
            let same = (&old.identity.uid, &old.written_name, &old.desired);
            if same == (&new.identity.uid, &new.written_name, &new.desired) {
                return None;
            }
            self.unlist(&old);
        }
        self.list(&new);
        let home = new.home.clone();
        self.records.insert(id.clone(), Arc::new(new));
        Some((home, Touch::One(id)))
    }

    /// Finds the zone of an endpoint: the longest name that a zone object claims and the server has. A zone that cannot be made has no names, so
    /// that it does not take those of a zone above it. Where the server has none yet, the longest claimed name counts; without one, its home is
    /// its own name.
    fn place_endpoint(&self, record: &mut Record) {
        let names = std::iter::successors(record.written_name.parse::<Fqdn>().ok(), Fqdn::parent);
        let claimed = names.filter_map(|name| {
            let key = ZoneKey::of(&name.to_string());
            Some((self.claims.holder_of(&key)?.holder.clone(), key))
        });
        let claimed: Vec<(Arc<ObjectId>, ZoneKey)> = claimed.collect();
        let exists = |(zone, _): &&(Arc<ObjectId>, ZoneKey)| self.zones.get(zone).is_some_and(|zone| zone.exists());
        let zone = claimed.iter().find(exists).or(claimed.first()).cloned();
        let (object, referred) = zone.unzip();
        record.zone = object.unwrap_or_else(|| no_zone(&record.written_name));
        record.settle_in(referred.as_ref());
    }

    /// Gives every endpoint its place after a zone object came, went or changed its name. Returns the keys concerned.
    pub(super) fn rehome_endpoints(&mut self) -> BTreeSet<ZoneKey> {
        let mut keys = BTreeSet::new();
        let members: Vec<Arc<ObjectId>> =
            self.endpoints.values().flat_map(|object| object.members.iter().cloned()).collect();
        for id in members {
            let Some(old) = self.records.get(&id).cloned() else { continue };
            let mut new = (*old).clone();
            self.place_endpoint(&mut new);
            if (&new.home, &new.zone) == (&old.home, &old.zone) {
                continue;
            }
            keys.extend([old.home.clone(), new.home.clone()]);
            new.status = None;
            self.unlist(&old);
            self.list(&new);
            self.records.insert(id, Arc::new(new));
        }
        keys
    }
}

/// Whether the name of an endpoint cannot be understood.
fn is_unnamed(record: &Record) -> bool {
    record.desired.as_ref().is_err_and(|refusal| refusal.reason == Reason::InvalidName)
}

/// The id of a zone object that does not exist.
fn no_zone(name: &str) -> Arc<ObjectId> {
    Arc::new(ObjectId::new::<ClusterZone>(None, name.trim_end_matches('.')))
}

/// The records of a DNSEndpoint. Of two endpoints with one name and type, the second is refused.
fn records(object: &Identity, id: &Arc<ObjectId>, endpoints: &[Endpoint]) -> Vec<Record> {
    let mut known: BTreeMap<String, Record> = BTreeMap::new();
    let mut order = Vec::new();
    for (place, endpoint) in endpoints.iter().enumerate() {
        let (record, path) = record(object, id, place, endpoint, &known);
        order.push(path.clone());
        known.insert(path, record);
    }
    order.into_iter().filter_map(|path| known.remove(&path)).collect()
}

fn record(
    object: &Identity,
    id: &Arc<ObjectId>,
    place: usize,
    endpoint: &Endpoint,
    known: &BTreeMap<String, Record>,
) -> (Record, String) {
    let (written, rtype) = (endpoint.dns_name.trim(), endpoint.record_type.trim().to_ascii_uppercase());
    let name = Fqdn::parse(written);
    let absolute = name.as_ref().map_or_else(|_| written.to_owned(), ToString::to_string);
    let mut path = format!("{}/{}/{rtype}", id.name, absolute.trim_end_matches('.'));
    let at = format!("spec.endpoints[{place}] {written} {rtype}: ");
    let refuse = |reason, message: String| Err(Refusal::new(reason, format!("{at}{message}")));
    let wanted = if known.contains_key(&path) {
        path = format!("{path}/{place}");
        refuse(Reason::InvalidSpec, "this name and type is listed twice; put all targets into one endpoint".to_owned())
    } else {
        match name {
            Err(error) => refuse(Reason::InvalidName, format!("dnsName: {error}")),
            Ok(_) if rtype == "SOA" => {
                refuse(Reason::Unsupported, "the start of authority belongs to the zone".to_owned())
            }
            Ok(_) => wanted(&at, &rtype, endpoint),
        }
    };
    let identity = Identity {
        id: Arc::new(ObjectId { name: path.clone(), ..(**id).clone() }),
        uid: object.uid.clone(),
        version: 0,
        generation: object.generation,
        created: object.created,
        deleting_since: None::<Timestamp>,
        finalizers: Finalizers::default(),
    };
    (Record::of_endpoint(identity, id.clone(), &absolute, wanted), path)
}

fn wanted(at: &str, rtype: &str, endpoint: &Endpoint) -> Result<Desired, Refusal> {
    let ttl = endpoint.record_ttl.filter(|ttl| *ttl != 0).unwrap_or(DEFAULT_TTL);
    let quote = |target: &String| match rtype {
        "TXT" if !target.starts_with('"') => format!("\"{}\"", target.replace('\\', "\\\\").replace('"', "\\\"")),
        _ => target.clone(),
    };
    let targets: Vec<String> = endpoint.targets.iter().map(quote).collect();
    desired(at, rtype, ttl, &targets, None)
}

impl Index<DnsEndpoint> for ZoneIndex {
    fn applied(&self, object: &DnsEndpoint) {
        self.endpoint_applied(object);
    }
    fn deleted(&self, id: &ObjectId) {
        self.endpoint_deleted(id);
    }
    fn listed(&self) {
        self.all_endpoints_listed();
    }
    fn rewound(&self) {
        self.forget_versions();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_engine::Queue;

    fn object(version: u64, names: &[&str]) -> DnsEndpoint {
        let endpoint = |name: &&str| json!({ "dnsName": name, "recordType": "A", "targets": ["192.0.2.1"] });
        let endpoints: Vec<_> = names.iter().map(endpoint).collect();
        serde_json::from_value(json!({
            "metadata": { "name": "e", "namespace": "ns", "uid": "u", "resourceVersion": version.to_string(), "generation": version,
                "creationTimestamp": "2026-02-01T00:00:00Z" },
            "spec": { "endpoints": endpoints },
        }))
        .unwrap()
    }

    #[test]
    fn a_name_that_cannot_be_understood_is_forgotten_when_another_replaces_it() {
        let index = ZoneIndex::new(Queue::new(), None, false);
        index.endpoint_applied(&object(1, &["www.example.org", "api.example.org"]));
        assert_eq!(index.read().records.len(), 2);
        for version in 2..6 {
            index.endpoint_applied(&object(version, &["www.example.org", &format!("bad..{version}")]));
            assert_eq!(index.read().records.len(), 3, "{version}: api.example.org is kept meanwhile");
        }
        index.endpoint_applied(&object(6, &["www.example.org"]));
        assert_eq!(index.read().records.len(), 1);
    }
}
