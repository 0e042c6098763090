//! Events of the watch, folded: the request of an object, and which keys it touches.
//!
//! ```text
//!  DNS ─► entries ─► key of the DNS object          Portal ─► key of the portal, and of the DNS objects that refer to it
//!    └──► verdicts of its last status                Component ─► its own key, and that of the DNS object that owns it
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use signpost_apis::portal::{Component, DNS, DnsEntry, DnsGroup, DnsStatus, FqdnGroupStatus, FqdnStatus, Portal};
use signpost_apis::powerdns::{ClusterRRset, RRset, RRsetStatus};
use signpost_engine::{Identity, Index, ObjectId, Touch};
use signpost_inventory::{Source, SyncReason, SyncStatus};

use super::known::{Facts, Known};
use super::{ComponentFacts, DnsFacts, Key, Objects, PortalFacts, Remote, Seed};
use crate::plan::Checked;
use crate::plan::component::{COMPONENT, DNS_CONTROLLER, MANAGED_BY, SOURCE_CONTROLLER, wish};
use crate::plan::entries;
use crate::plan::judge::Verdict;
use crate::report::SERVED;

impl Index<DNS> for Objects {
    fn applied(&self, object: &DNS) {
        let identity = Identity::of(object);
        let annotations = object.annotations().iter().filter(|(key, _)| key.starts_with(COMPONENT));
        let annotations: BTreeMap<String, String> =
            annotations.map(|(key, value)| (key.clone(), value.clone())).collect();
        let status = object.status.as_ref();
        let source = if object.spec.is_remote.unwrap_or(false) { Source::Remote } else { Source::Manual };
        let taken = status.filter(|_| source == Source::Remote).map(|status| status.groups.clone()).unwrap_or_default();
        let shown: Vec<DnsGroup> = taken.iter().map(as_spec).collect();
        let groups = if shown.is_empty() { &object.spec.groups } else { &shown };
        let groups = entries::aggregate(entries::collect(groups));
        // Names that have not changed are shared with the last decision, which has them too.
        let before = self.lock().get(&identity.id).and_then(Known::dns).map(|facts| facts.groups.clone());
        let groups = before.filter(|before| **before == groups).unwrap_or_else(|| Arc::new(groups));
        // With verdicts of this process, those of the status are not needed.
        let judged = self
            .lock()
            .get(&identity.id)
            .is_some_and(|known| known.verdicts.is_some() && known.identity.uid == identity.uid);
        let facts = DnsFacts {
            portal: object.spec.portal_ref.clone(),
            source,
            groups,
            taken: Arc::new(taken),
            reported: status.and_then(|status| status.observed_generation).unwrap_or_default(),
            omitted: status.and_then(|status| usize::try_from(status.omitted?).ok()).unwrap_or_default(),
            annotations: annotations.clone(),
            owners: object.owner_references().iter().map(|owner| owner.uid.clone()).collect(),
            size: size_of(object),
            seed: Arc::new(status.filter(|_| !judged).map(|status| seed(status, source)).unwrap_or_default()),
        };
        let same = |before: &Facts| matches!(before, Facts::Dns(before) if before.annotations == annotations);
        let conditions = status.map(|status| status.conditions.clone()).unwrap_or_default();
        let (first, unchanged) = self.store(identity.clone(), conditions, Facts::Dns(facts), same);
        if !unchanged || first {
            self.touch(&identity.id);
        } else {
            self.follow(&identity.id, true);
        }
        if source == Source::Remote && first {
            let portal = ObjectId::new::<Portal>(identity.id.namespace.as_deref(), &object.spec.portal_ref);
            self.touch(&Arc::new(portal));
        }
    }

    fn deleted(&self, id: &ObjectId) {
        let removed = self.lock().remove(id);
        if let Some(facts) = removed.as_ref().and_then(Known::dns).filter(|facts| facts.source == Source::Remote) {
            // The copy of a remote portal: it is made again.
            self.touch(&Arc::new(ObjectId::new::<Portal>(id.namespace.as_deref(), &facts.portal)));
        }
        let id = Arc::new(id.clone());
        self.forget(&id);
        self.queue.note(&Key::Object(id));
    }
}

/// The size of an object without its status, as JSON. What `kubectl apply` stores in an annotation is a part of it.
fn size_of(object: &DNS) -> usize {
    let annotations = object.annotations().iter().map(|(key, value)| key.len() + value.len() + 8).sum::<usize>();
    serde_json::to_vec(&object.spec).map_or(0, |json| json.len()) + annotations
}

/// The names of a remote portal's group as a user would write them.
fn as_spec(group: &FqdnGroupStatus) -> DnsGroup {
    let (name, description) = (group.name.clone(), group.description.clone());
    DnsGroup { name, description, entries: group.fqdns.iter().map(taken_over).collect() }
}

fn entry_of(fqdn: &FqdnStatus) -> DnsEntry {
    DnsEntry {
        fqdn: fqdn.fqdn.clone(),
        description: fqdn.description.clone(),
        record_type: fqdn.record_type.clone(),
        targets: fqdn.targets.clone(),
        ..DnsEntry::default()
    }
}

/// A name of a remote portal. Its targets are not judged here, so those that cannot be read do not hide the name.
fn taken_over(fqdn: &FqdnStatus) -> DnsEntry {
    let entry = entry_of(fqdn);
    if entries::read(&entry).question.is_ok() {
        return entry;
    }
    DnsEntry { record_type: None, targets: Vec::new(), ..entry }
}

/// The verdicts in a status, by name, type and targets in canonical form. Those of a remote portal have no reason. A status does not say how an entry is
/// compared: entries that differ in nothing else have no verdict here when their statuses differ.
fn seed(status: &DnsStatus, source: Source) -> Seed {
    let fqdns = status.groups.iter().flat_map(|group| &group.fqdns);
    let checked = |fqdn: &FqdnStatus| {
        let parsed = SyncStatus::parse(fqdn.sync_status.as_deref()?)?;
        let reason = SyncReason::parse(fqdn.reason.as_deref().unwrap_or_default())?;
        let wanted = entries::read(&if source == Source::Remote { taken_over(fqdn) } else { entry_of(fqdn) });
        let resolver = fqdn.resolver.as_deref().map(Arc::from);
        let verdict = Verdict { resolver, ..Verdict::new(parsed, reason, fqdn.observed.iter().collect()) };
        let (at, never) =
            (fqdn.checked_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0), Timestamp::UNIX_EPOCH);
        let rtype = wanted.question.ok()?.rtype.map(|rtype| rtype.as_str().to_owned());
        let subject = (wanted.shown, rtype, wanted.targets);
        Some((subject, Checked { verdict, at, next: never, from: never, failures: 0 }))
    };
    let (mut seed, mut ambiguous) = (Seed::new(), BTreeSet::new());
    for (subject, checked) in fqdns.filter_map(checked) {
        let status = checked.verdict.status;
        if let Some(other) = seed.insert(subject.clone(), checked)
            && other.verdict.status != status
            && source != Source::Remote
        {
            ambiguous.insert(subject);
        }
    }
    seed.retain(|subject, _| !ambiguous.contains(subject));
    seed
}

impl Index<Portal> for Objects {
    fn applied(&self, object: &Portal) {
        let identity = Identity::of(object);
        let on = |feature: fn(&signpost_apis::portal::PortalFeatures) -> Option<bool>| {
            object.spec.features.as_ref().and_then(feature).unwrap_or(true)
        };
        let facts = PortalFacts {
            main: object.spec.main.unwrap_or(false),
            remote: object.spec.remote.is_some(),
            dns: on(|features| features.dns),
            status_page: on(|features| features.status_page),
        };
        let conditions = object.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let sync = || object.status.as_ref().and_then(|status| status.remote_sync.clone());
        let remote = object.spec.remote.clone().map(|spec| Arc::new(Remote { spec, sync: sync() }));
        let place = object.spec.remote.as_ref();
        let same = |before: &Facts| matches!(before, Facts::Portal(before, at) if *before == facts && at.as_ref().map(|at| &at.spec) == place);
        let (_, unchanged) = self.store(identity.clone(), conditions, Facts::Portal(facts, remote.clone()), same);
        if !unchanged {
            self.portal_changed(&identity.id);
        }
        self.follow(&identity.id, unchanged);
    }

    fn deleted(&self, id: &ObjectId) {
        self.lock().remove(id);
        self.portal_changed(id);
    }

    fn listed(&self) {
        self.queue.touch(Key::Main, Touch::All);
    }
}

impl Index<Component> for Objects {
    fn applied(&self, object: &Component) {
        let identity = Identity::of(object);
        let by = object.labels().get(MANAGED_BY).map(String::as_str);
        let (decided, missed) = match self.lock().get(&identity.id) {
            Some(before) if before.identity.uid == identity.uid => before.history(),
            Some(_) | None => (None, None),
        };
        let facts = ComponentFacts {
            decided,
            missed,
            portal: object.spec.portal_ref.clone(),
            state: object.spec.status,
            owners: object.owner_references().iter().map(|owner| owner.uid.clone()).collect(),
            discovered: by == Some(SOURCE_CONTROLLER),
            managed: matches!(by, Some(SOURCE_CONTROLLER | DNS_CONTROLLER)),
            status: object.status.clone().unwrap_or_default(),
        };
        let conditions = facts.status.conditions.clone();
        let (owners, discovered) = (facts.owners.clone(), facts.discovered);
        let (_, unchanged) = self.store(identity.clone(), conditions, Facts::Component(facts), |_| true);
        self.follow(&identity.id, unchanged);
        if !unchanged && !self.owners_of(&owners) && discovered {
            // Its object may have no names, and no annotation any more.
            if let Some(discovery) = self.discovery.get().and_then(Weak::upgrade) {
                discovery.show_owner(&owners);
            }
        }
    }

    fn deleted(&self, id: &ObjectId) {
        let removed = self.lock().remove(id);
        if let Some(facts) = removed.as_ref().and_then(Known::component) {
            self.owners_of(&facts.owners);
            self.askers_of(id);
        }
    }
}

impl Index<RRset> for Objects {
    fn applied(&self, object: &RRset) {
        self.put_record(Identity::of(object), object.status.as_ref());
    }

    fn deleted(&self, id: &ObjectId) {
        self.lock().remove(id);
    }
}

impl Index<ClusterRRset> for Objects {
    fn applied(&self, object: &ClusterRRset) {
        self.put_record(Identity::of(object), object.status.as_ref());
    }

    fn deleted(&self, id: &ObjectId) {
        self.lock().remove(id);
    }
}

impl Objects {
    /// Takes a record set of `powerdns`. The result of its lookups is decided by a pass over the names of its zone.
    fn put_record(&self, identity: Identity, status: Option<&RRsetStatus>) {
        let conditions = status.iter().flat_map(|status| &status.conditions);
        let mut served: Vec<Condition> = conditions.filter(|condition| condition.type_ == SERVED).cloned().collect();
        // There is one, and there may be many record sets.
        served.shrink_to_fit();
        let id = identity.id.clone();
        let changed = self.lock().get(&id).map_or(&[][..], |known| &known.conditions) != served;
        let (_, unchanged) = self.store(identity, served, Facts::Record, |_| true);
        if changed {
            self.served.notify_one();
        }
        if unchanged {
            self.queue.statuses().enqueue([(id.clone(), Key::Object(id))]);
        }
    }

    /// Touches the objects that ask for a component of this name. The deleted one may have been foreign to them: one of a user, or of an object that was
    /// deleted and created again.
    fn askers_of(&self, component: &ObjectId) {
        let table = self.lock();
        let asking = table.asking(component.namespace.as_deref());
        let asking: Vec<(Arc<ObjectId>, DnsFacts)> = asking.map(|(id, facts)| (id.clone(), facts.clone())).collect();
        drop(table);
        for (id, facts) in asking {
            let portal = self.portal_of(&id, &facts).map(|(name, _)| name).unwrap_or_default();
            if wish(&facts.annotations, &portal, &facts.groups).is_some_and(|wish| wish.name == component.name) {
                self.touch(&id);
            }
        }
    }

    /// Touches the objects with names that have these UIDs. Returns whether there are any.
    fn owners_of(&self, owners: &[String]) -> bool {
        let table = self.lock();
        let found: BTreeSet<Arc<ObjectId>> = owners.iter().flat_map(|uid| table.with_uid(uid)).cloned().collect();
        drop(table);
        for id in &found {
            self.touch(id);
        }
        !found.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_have_not_changed_are_shared_with_those_before() {
        let objects = Objects::new(crate::index::Keys::default(), "");
        let put = |target: &str, status: &serde_json::Value| {
            let entry = json!({ "fqdn": "www.example.org", "recordType": "A", "targets": [target] });
            let object: DNS = serde_json::from_value(json!({
                "apiVersion": "sreportal.io/v1alpha1", "kind": "DNS", "metadata": { "name": "team", "namespace": "a", "uid": "u" },
                "spec": { "portalRef": "main", "groups": [{ "name": "apps", "entries": [entry] }] }, "status": status,
            }))
            .unwrap();
            Index::<DNS>::applied(&objects, &object);
            objects.get(&ObjectId::of(&object)).unwrap().dns().unwrap().groups.clone()
        };
        let first = put("192.0.2.1", &json!({ "groups": [] }));
        let reported = put("192.0.2.1", &json!({ "groups": [], "observedGeneration": 1 }));
        assert!(Arc::ptr_eq(&first, &reported), "the status was written");
        assert_ne!(*first, *put("192.0.2.2", &json!({ "groups": [] })));
    }

    #[test]
    fn entries_that_differ_in_match_only_have_no_verdict_of_the_status_when_theirs_differ() {
        let fqdn = |name: &str, status: &str, reason: &str| json!({ "fqdn": name, "recordType": "A", "targets": ["192.0.2.1"], "syncStatus": status, "reason": reason });
        let (good, bad) = (("sync", "Match"), ("notFound", "Mismatch"));
        let fqdns = [("one", good), ("one", bad), ("one", good), ("two", good), ("two", good), ("three", bad)];
        let fqdns: Vec<_> = fqdns.into_iter().map(|(name, (status, reason))| fqdn(name, status, reason)).collect();
        let groups = json!([{ "name": "apps", "source": "manual", "fqdns": fqdns }]);
        let status = DnsStatus { groups: serde_json::from_value(groups).unwrap(), ..DnsStatus::default() };
        let names = |source| seed(&status, source).into_keys().map(|(name, ..)| name).collect::<Vec<String>>();
        assert_eq!(names(Source::Manual), ["three", "two"]);
        assert_eq!(names(Source::Remote), ["one", "three", "two"], "entries of a remote portal are all compared alike");
    }
}
