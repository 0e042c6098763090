//! Events on the objects of other systems when the status of a name that they published changes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use signpost_apis::powerdns::RRset;
use signpost_dns::{Fqdn, RecordType};
use signpost_engine::Identity;
use signpost_engine::project::{entry_of, wanted_by};
use signpost_inventory::{Entry, Owner};
use signpost_testkit::{eventually, on_both};

use crate::bed::{Bed, PATIENCE};

const TARGET: &str = "192.0.2.1";

fn name(number: usize) -> String {
    format!("n{number:02}.example.org")
}

impl Bed {
    /// So many record sets, published by `powerdns` in one zone and answered.
    async fn published(&self, count: usize) -> Vec<RRset> {
        let mut objects = Vec::new();
        for number in 0..count {
            let object: RRset = serde_json::from_value(json!({
                "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "RRset", "metadata": { "name": format!("n{number:02}") },
                "spec": { "type": "A", "name": format!("n{number:02}"), "ttl": 60, "records": [TARGET],
                    "zoneRef": { "name": "example.org", "kind": "Zone" } },
            }))
            .unwrap();
            objects.push(self.api::<RRset>().create(&PostParams::default(), &object).await.unwrap());
            self.answers(&name(number), "A", &[TARGET]);
        }
        let entry = |(number, object): (usize, &RRset)| {
            let identity = Identity::of(object);
            let fqdn = Fqdn::parse(&name(number)).unwrap();
            let mut entry = Entry::new(fqdn, Some(RecordType::A), wanted_by(&identity.id, &identity.uid, "powerdns"));
            entry.targets = [TARGET].into_iter().collect();
            entry_of(entry, &identity, true, None)
        };
        let entries = objects.iter().enumerate().map(entry).collect();
        self.inventory.replace(&Owner::new("powerdns", "example.org"), entries, jiff::Timestamp::now());
        for number in 0..count {
            self.has_result(&name(number), "sync/Match").await;
        }
        objects
    }

    /// `reason name: note` of every event about a record set.
    async fn turns(&self) -> BTreeSet<String> {
        let events = self.api::<Event>().list(&ListParams::default()).await.unwrap().items;
        let about = |event: &Event| event.involved_object.kind.as_deref() == Some("RRset");
        let line = |event: Event| {
            let object = event.involved_object.name.unwrap_or_default();
            format!("{} {object}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default())
        };
        events.into_iter().filter(about).map(line).collect()
    }

    async fn has_turns(&self, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|line| (*line).to_owned()).collect();
        eventually(&format!("the events {expected:?}"), PATIENCE, || async {
            let seen = self.turns().await;
            if seen == expected { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}

on_both! {
    async fn a_published_name_whose_status_changes_is_an_event_on_its_object(cluster) {
        cluster.install(&signpost_apis::powerdns::crds()).await;
        let bed = Bed::new(cluster).await;
        let objects = bed.published(2).await;
        assert_eq!(bed.turns().await, BTreeSet::new(), "the first result is not a change");
        bed.answers(&name(1), "A", &["192.0.2.9"]);
        let broken = "Mismatch n01: n01.example.org is notFound, it was sync; observed: 192.0.2.9";
        bed.has_turns(&[broken]).await;
        let events = bed.api::<Event>().list(&ListParams::default()).await.unwrap().items;
        let event = events.iter().find(|event| event.reason.as_deref() == Some("Mismatch")).unwrap();
        assert_eq!((event.involved_object.uid.clone(), event.type_.as_deref()), (objects[1].uid(), Some("Warning")));
        bed.answers(&name(1), "A", &[TARGET]);
        bed.has_turns(&[broken, "InSync n01: n01.example.org is in sync, it was notFound"]).await;
        // An outage changes no status.
        bed.resolver.set_down(true);
        let asked = bed.resolver.asked();
        eventually("more lookups", PATIENCE, || async {
            if bed.resolver.asked() >= asked + 6 { Ok(()) } else { Err(bed.resolver.asked()) }
        }).await;
        assert_eq!(bed.turns().await.len(), 2);
    }

    async fn many_names_of_a_zone_that_change_at_once_are_few_events(cluster) {
        cluster.install(&signpost_apis::powerdns::crds()).await;
        let bed = Bed::without_operator(cluster).await;
        // One pass looks all of them up.
        bed.start_at(bed.cluster.client(), bed.options(), bed.resolver.clone(), |pace| pace.refresh = std::time::Duration::from_secs(3));
        bed.published(30).await;
        // Together, as when a zone is emptied.
        bed.resolver.clear();
        for number in 0..30 {
            bed.has_result(&name(number), "notFound/NoSuchName").await;
        }
        let turns = eventually("the events of the pass", PATIENCE, || async {
            let seen = bed.turns().await;
            if seen.iter().any(|line| line.starts_with("MoreChanges ")) { Ok(seen) } else { Err(seen) }
        }).await;
        assert!(turns.len() <= 22, "ten of each pass, and one for the others: {turns:?}");
    }
}
