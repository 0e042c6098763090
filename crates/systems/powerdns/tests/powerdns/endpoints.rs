//! DNSEndpoints as a source of records: on the sandbox and on a real API server, with a real `pdns_server`.

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use signpost_apis::externaldns::{self, DnsEndpoint};
use signpost_engine::Selector;
use signpost_system_powerdns::EndpointSource;
use signpost_testkit::{Cluster, dig, eventually, foreign_crds, on_both, skip};

use crate::rig::{PATIENCE, Rig, zone_spec};

/// An operator that publishes DNSEndpoints, with a zone. `None` when a server is missing.
async fn rig(cluster: Cluster) -> Option<Rig> {
    rig_with(cluster, |_| {}).await
}

pub async fn rig_with(cluster: Cluster, tune: impl FnOnce(&mut EndpointSource)) -> Option<Rig> {
    install_crd(&cluster).await?;
    let mut rig = Rig::new(cluster).await?;
    rig.stop().await;
    let mut source = EndpointSource::default();
    tune(&mut source);
    rig.set_pace(|pace| pace.endpoints = Some(source));
    rig.start();
    rig.zone().await;
    Some(rig)
}

/// The definition of external-dns on the real API server; on the sandbox ours will do.
pub async fn install_crd(cluster: &Cluster) -> Option<()> {
    let crds = foreign_crds("dnsendpoint").or_else(|| (!cluster.is_real()).then(|| vec![externaldns::crd()]));
    let Some(crds) = crds else {
        skip("DNSEndpoints on the real API server", "its CRD is not in the cache; run dev/setup crds to get it");
        return None;
    };
    cluster.install(&crds).await;
    Some(())
}

impl Rig {
    pub fn endpoints(&self) -> Api<DnsEndpoint> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Applies a DNSEndpoint as a user would.
    pub async fn publish(&self, name: &str, endpoints: Value) {
        self.publish_as(name, json!({}), endpoints).await;
    }

    pub async fn publish_as(&self, name: &str, mut metadata: Value, endpoints: Value) {
        metadata["name"] = json!(name);
        let object = json!({
            "apiVersion": externaldns::API_VERSION, "kind": "DNSEndpoint",
            "metadata": metadata, "spec": { "endpoints": endpoints },
        });
        let params = PatchParams::apply("user").force();
        self.endpoints().patch(name, &params, &Patch::Apply(&object)).await.unwrap();
    }

    pub fn endpoint(&self, name: &str, rtype: &str, targets: &[&str]) -> Value {
        json!({ "dnsName": self.fqdn(name).trim_end_matches('.'), "recordType": rtype, "targets": targets })
    }

    pub async fn withdraw(&self, name: &str) {
        self.endpoints().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn until_observed(&self, name: &str) {
        eventually(&format!("DNSEndpoint {name} is observed"), PATIENCE, || async {
            let object = self.endpoints().get(name).await.map_err(|error| error.to_string())?;
            if object.is_observed() { Ok(()) } else { Err(format!("{:?}", object.status)) }
        })
        .await;
    }

    /// Waits for an event about the object with this reason and these words.
    pub async fn until_told(&self, name: &str, reason: &str, words: &[&str]) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        eventually(&format!("{name} is told {reason}: {words:?}"), PATIENCE, || async {
            let list = events.list(&kube::api::ListParams::default()).await.map_err(|error| error.to_string())?;
            let about =
                |event: &Event| event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(name);
            let told = |event: Event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default());
            let notes: Vec<(String, String)> = list.items.into_iter().filter(about).map(told).collect();
            let found = notes.iter().any(|(why, note)| why == reason && words.iter().all(|word| note.contains(word)));
            if found { Ok(()) } else { Err(format!("{notes:?}")) }
        })
        .await;
    }

    pub async fn until_missing(&self, name: &str, rtype: &str) {
        eventually(&format!("{name} {rtype} is deleted from the server"), PATIENCE, || async {
            match self.set(name, rtype).await {
                None => Ok(()),
                Some(set) => Err(format!("{set:?}")),
            }
        })
        .await;
    }

    /// The lines of endpoints on the zone object: NAME and TYPE. Marks have neither.
    pub async fn listed(&self) -> Vec<String> {
        let status = self.get("Zone", &self.zone).await["status"].clone();
        let lines = status["endpoints"].as_array().cloned().unwrap_or_default();
        let line = |line: &Value| Some(line.as_str().unwrap().rsplit_once(' ')?.0.to_owned());
        lines.iter().filter_map(line).collect()
    }

    async fn until_listed(&self, lines: &[&str]) {
        eventually(&format!("the zone object lists {lines:?}"), PATIENCE, || async {
            let listed = self.listed().await;
            if listed == lines { Ok(()) } else { Err(listed) }
        })
        .await;
    }
}

on_both! {
    async fn every_endpoint_is_served_and_the_generation_is_observed(cluster) {
        let Some(mut rig) = rig(cluster).await else { return };
        let mut address = rig.endpoint("app", "A", &["192.0.2.1", "192.0.2.2"]);
        address["recordTTL"] = json!(60);
        rig.publish("app", json!([
            address,
            rig.endpoint("app", "AAAA", &["2001:db8::1"]),
            rig.endpoint("www", "CNAME", &["app.example.org"]),
            rig.endpoint("note", "TXT", &["plain text", "\"quoted text\""]),
            rig.endpoint("mail", "MX", &["10 mx.example.org"]),
        ])).await;
        rig.until_served("app", "A", &["192.0.2.1", "192.0.2.2"]).await;
        rig.until_served("app", "AAAA", &["2001:db8::1"]).await;
        rig.until_served("www", "CNAME", &["app.example.org."]).await;
        rig.until_served("note", "TXT", &["\"plain text\"", "\"quoted text\""]).await;
        rig.until_served("mail", "MX", &["10 mx.example.org."]).await;
        assert_eq!(dig(rig.dns, &rig.fqdn("app"), "A").await.ttl, Some(60));
        assert_eq!(dig(rig.dns, &rig.fqdn("www"), "CNAME").await.ttl, Some(300), "as external-dns writes it");
        rig.until_observed("app").await;
        rig.until_listed(&["app A", "app AAAA", "mail MX", "note TXT", "www CNAME"]).await;
        let object = rig.endpoints().get("app").await.unwrap();
        assert_eq!(object.metadata.finalizers, None, "nobody expects a finalizer on a DNSEndpoint");

        // An edit writes what changed, and nothing else.
        let writes = rig.after_a_resync().await;
        let two = json!([rig.endpoint("app", "A", &["192.0.2.9"]), rig.endpoint("www", "CNAME", &["app.example.org"])]);
        rig.publish("app", two).await;
        rig.until_served("app", "A", &["192.0.2.9"]).await;
        for (name, rtype) in [("app", "AAAA"), ("note", "TXT"), ("mail", "MX")] {
            rig.until_missing(name, rtype).await;
        }
        rig.until_observed("app").await;
        rig.until_listed(&["app A", "www CNAME"]).await;
        assert!(rig.after_a_resync().await > writes);
        let rest = rig.after_a_resync().await;
        assert_eq!(rig.after_a_resync().await, rest, "at rest, no writes");

        // An object that was published is observed also when it is empty, and when that happens while the operator is stopped.
        rig.stop().await;
        rig.publish("app", json!([])).await;
        rig.start();
        rig.until_missing("app", "A").await;
        rig.until_missing("www", "CNAME").await;
        rig.until_listed(&[]).await;
        rig.until_observed("app").await;
    }

    async fn one_bad_endpoint_does_not_block_the_others(cluster) {
        let Some(rig) = rig(cluster).await else { return };
        rig.publish("mixed", json!([
            rig.endpoint("good", "A", &["192.0.2.1"]),
            rig.endpoint("bad", "A", &["not an address"]),
            rig.endpoint("odd", "NONSENSE!", &["x"]),
            rig.endpoint("empty", "A", &[]),
            rig.endpoint("good", "A", &["192.0.2.2"]),
            rig.endpoint("@", "SOA", &["ns. host. 1 2 3 4 5"]),
            rig.endpoint("also", "A", &["192.0.2.3"]),
            {},
        ])).await;
        rig.until_served("good", "A", &["192.0.2.1"]).await;
        rig.until_served("also", "A", &["192.0.2.3"]).await;
        rig.until_observed("mixed").await;
        rig.until_told("mixed", "InvalidRecord", &["spec.endpoints[1]", "bad."]).await;
        rig.until_told("mixed", "InvalidType", &["spec.endpoints[2]"]).await;
        rig.until_told("mixed", "NoRecords", &["spec.endpoints[3]"]).await;
        rig.until_told("mixed", "InvalidSpec", &["spec.endpoints[4]", "listed twice"]).await;
        rig.until_told("mixed", "Unsupported", &["spec.endpoints[5]"]).await;
        // An edit that breaks an endpoint keeps what it published.
        rig.publish("mixed", json!([rig.endpoint("good", "A", &["broken"])])).await;
        rig.until_told("mixed", "InvalidRecord", &["spec.endpoints[0]"]).await;
        rig.until_missing("also", "A").await;
        rig.until_served("good", "A", &["192.0.2.1"]).await;
        // Also one that breaks its name. Another edit withdraws what is not wanted any more.
        rig.publish("mixed", json!([rig.endpoint("good", "A", &["192.0.2.1"])])).await;
        rig.until_observed("mixed").await;
        rig.publish("mixed", json!([rig.endpoint("a..good", "A", &["192.0.2.1"])])).await;
        rig.until_told("mixed", "InvalidName", &["spec.endpoints[0]"]).await;
        rig.after_a_resync().await;
        rig.until_served("good", "A", &["192.0.2.1"]).await;
        rig.publish("mixed", json!([rig.endpoint("better", "A", &["192.0.2.1"])])).await;
        rig.until_served("better", "A", &["192.0.2.1"]).await;
        rig.until_missing("good", "A").await;
        rig.until_observed("mixed").await;
    }

    async fn an_address_becomes_an_alias_in_one_patch(cluster) {
        let Some(rig) = rig(cluster).await else { return };
        rig.publish("app", json!([rig.endpoint("app", "A", &["192.0.2.1"])])).await;
        rig.until_served("app", "A", &["192.0.2.1"]).await;
        rig.until_listed(&["app A"]).await;
        rig.publish("app", json!([rig.endpoint("app", "CNAME", &["lb.example.org"])])).await;
        rig.until_served("app", "CNAME", &["lb.example.org."]).await;
        rig.until_listed(&["app CNAME"]).await;
        rig.publish("app", json!([rig.endpoint("app", "A", &["192.0.2.1"])])).await;
        rig.until_served("app", "A", &["192.0.2.1"]).await;
        rig.until_listed(&["app A"]).await;
    }

    async fn an_object_deleted_while_the_operator_is_down_is_cleaned_up(cluster) {
        let Some(mut rig) = rig(cluster).await else { return };
        rig.publish("kept", json!([rig.endpoint("kept", "A", &["192.0.2.1"])])).await;
        rig.publish("gone", json!([rig.endpoint("gone", "A", &["192.0.2.2"]), rig.endpoint("changed", "A", &["192.0.2.3"])])).await;
        rig.until_served("kept", "A", &["192.0.2.1"]).await;
        rig.until_served("changed", "A", &["192.0.2.3"]).await;
        rig.until_served("gone", "A", &["192.0.2.2"]).await;
        rig.until_listed(&["changed A", "gone A", "kept A"]).await;
        rig.crash().await;
        rig.withdraw("gone").await;
        // A foreign change of a name since then is not ours.
        rig.tamper("changed", "A", Some(&["198.51.100.1"])).await;
        rig.tamper("foreign", "A", Some(&["198.51.100.2"])).await;
        rig.start();
        rig.until_missing("gone", "A").await;
        rig.until_listed(&["kept A"]).await;
        rig.until_served("kept", "A", &["192.0.2.1"]).await;
        rig.until_served("changed", "A", &["198.51.100.1"]).await;
        rig.until_served("foreign", "A", &["198.51.100.2"]).await;
    }

    async fn marks_clean_up_what_was_deleted_while_the_operator_was_down(cluster) {
        let Some(mut rig) = rig(cluster).await else { return };
        rig.stop().await;
        rig.set_pace(|pace| pace.packs_above = 0);
        rig.start();
        rig.publish("kept", json!([rig.endpoint("kept", "A", &["192.0.2.1"]), rig.endpoint("lost", "A", &["192.0.2.4"])])).await;
        rig.publish("gone", json!([rig.endpoint("gone", "A", &["192.0.2.2"]), rig.endpoint("changed", "A", &["192.0.2.3"])])).await;
        rig.until_observed("kept").await;
        rig.until_observed("gone").await;
        rig.until_marked(4).await;
        rig.crash().await;
        rig.withdraw("gone").await;
        // A foreign change of a name since then is not ours; what is lost is written again.
        rig.tamper("changed", "A", Some(&["198.51.100.1"])).await;
        rig.tamper("foreign", "A", Some(&["198.51.100.2"])).await;
        rig.tamper("lost", "A", None).await;
        rig.start();
        rig.until_missing("gone", "A").await;
        rig.until_served("lost", "A", &["192.0.2.4"]).await;
        rig.until_marked(2).await;
        rig.until_served("kept", "A", &["192.0.2.1"]).await;
        rig.until_served("changed", "A", &["198.51.100.1"]).await;
        rig.until_served("foreign", "A", &["198.51.100.2"]).await;
        // A short list has names again where that is set.
        rig.stop().await;
        rig.set_pace(|pace| pace.packs_above = 1_000);
        rig.start();
        rig.until_listed(&["kept A", "lost A"]).await;
        rig.withdraw("kept").await;
        rig.until_missing("kept", "A").await;
        rig.until_listed(&[]).await;
    }

    async fn switching_the_source_off_withdraws_nothing(cluster) {
        let Some(mut rig) = rig(cluster).await else { return };
        rig.publish("app", json!([rig.endpoint("app", "A", &["192.0.2.1"])])).await;
        rig.until_served("app", "A", &["192.0.2.1"]).await;
        rig.until_listed(&["app A"]).await;
        rig.stop().await;
        rig.set_pace(|pace| pace.endpoints = None);
        rig.start();
        rig.served("www", "www", "A", &["192.0.2.7"]).await;
        rig.after_a_resync().await;
        rig.until_served("app", "A", &["192.0.2.1"]).await;
        assert_eq!(rig.listed().await, ["app A"]);
        // Switched on again, it is still known to be ours.
        rig.stop().await;
        rig.set_pace(|pace| pace.endpoints = Some(EndpointSource::default()));
        rig.withdraw("app").await;
        rig.start();
        rig.until_missing("app", "A").await;
        rig.until_served("www", "A", &["192.0.2.7"]).await;
    }

    async fn a_zone_that_is_deleted_and_made_again_gets_its_endpoints_back(cluster) {
        let Some(rig) = rig(cluster).await else { return };
        rig.publish("app", json!([rig.endpoint("app", "A", &["192.0.2.1"])])).await;
        rig.until_served("app", "A", &["192.0.2.1"]).await;
        rig.delete("Zone", &rig.zone).await;
        rig.until_gone("Zone", &rig.zone).await;
        rig.until_told("app", "ZoneMissing", &[&rig.zone]).await;
        rig.zone().await;
        rig.until_served("app", "A", &["192.0.2.1"]).await;
        // A zone that is retained keeps its records, and its next object takes them up.
        let mut retained = zone_spec();
        retained["deletionPolicy"] = json!("Retain");
        rig.put("Zone", &rig.zone, retained.clone()).await;
        rig.until("Zone", &rig.zone, "Succeeded").await;
        rig.delete("Zone", &rig.zone).await;
        rig.until_gone("Zone", &rig.zone).await;
        rig.until_served("app", "A", &["192.0.2.1"]).await;
        rig.put("Zone", &rig.zone, retained).await;
        rig.until_listed(&["app A"]).await;
        rig.withdraw("app").await;
        rig.until_missing("app", "A").await;
    }

    async fn filters_by_label_and_annotation_select_objects(cluster) {
        let tune = |source: &mut EndpointSource| {
            source.labels = Some("region in (weu)".to_owned());
            source.annotations = Selector::parse("example.org/controller=weu").unwrap();
        };
        let Some(rig) = rig_with(cluster, tune).await else { return };
        let meta = |region: &str, controller: &str| {
            json!({ "labels": { "region": region }, "annotations": { "example.org/controller": controller } })
        };
        rig.publish_as("both", meta("weu", "weu"), json!([rig.endpoint("both", "A", &["192.0.2.1"])])).await;
        rig.publish_as("label", meta("weu", "neu"), json!([rig.endpoint("label", "A", &["192.0.2.2"])])).await;
        rig.publish_as("annotation", meta("neu", "weu"), json!([rig.endpoint("annotation", "A", &["192.0.2.3"])])).await;
        rig.until_served("both", "A", &["192.0.2.1"]).await;
        rig.until_observed("both").await;
        for name in ["label", "annotation"] {
            assert!(rig.set(name, "A").await.is_none(), "{name}");
            assert!(rig.endpoints().get(name).await.unwrap().status.is_none(), "{name}");
        }
        // An object that stops matching is withdrawn.
        rig.publish_as("label", meta("weu", "weu"), json!([rig.endpoint("label", "A", &["192.0.2.2"])])).await;
        rig.until_served("label", "A", &["192.0.2.2"]).await;
        rig.publish_as("label", meta("neu", "weu"), json!([rig.endpoint("label", "A", &["192.0.2.2"])])).await;
        rig.until_missing("label", "A").await;
        rig.publish_as("both", meta("weu", "neu"), json!([rig.endpoint("both", "A", &["192.0.2.1"])])).await;
        rig.until_missing("both", "A").await;
    }

    async fn the_oldest_object_has_a_name_and_the_next_takes_over_without_a_gap(cluster) {
        let Some(rig) = rig(cluster).await else { return };
        rig.served("held", "held", "A", &["192.0.2.1"]).await;
        tokio::time::sleep(Duration::from_millis(1100)).await; // creation times are in seconds
        rig.publish("late", json!([rig.endpoint("held", "A", &["192.0.2.2"]), rig.endpoint("free", "A", &["192.0.2.3"])])).await;
        rig.until_served("free", "A", &["192.0.2.3"]).await;
        rig.until_told("late", "ClaimedByAnother", &["RRset", "held"]).await;
        rig.until_served("held", "A", &["192.0.2.1"]).await;
        rig.delete("RRset", "held").await;
        rig.until_served("held", "A", &["192.0.2.2"]).await;
        rig.until_listed(&["free A", "held A"]).await;
        // The same records in two objects are no conflict, and stay until both are deleted.
        rig.publish("again", json!([rig.endpoint("free", "A", &["192.0.2.3"])])).await;
        rig.until_observed("again").await;
        rig.withdraw("late").await;
        rig.until_missing("held", "A").await;
        rig.until_served("free", "A", &["192.0.2.3"]).await;
        rig.withdraw("again").await;
        rig.until_missing("free", "A").await;
    }

    async fn what_external_dns_owns_is_refused_by_name_until_it_is_taken_over(cluster) {
        let Some(mut rig) = rig(cluster).await else { return };
        let registry = "\"heritage=external-dns,external-dns/owner=weu,external-dns/resource=crd/demo/app\"";
        rig.tamper("app", "A", Some(&["198.51.100.1"])).await;
        rig.tamper("weu-a-app", "TXT", Some(&[registry])).await;
        rig.after_a_resync().await;
        rig.publish("app", json!([rig.endpoint("app", "A", &["192.0.2.1"]), rig.endpoint("other", "A", &["192.0.2.2"])])).await;
        rig.until_served("other", "A", &["192.0.2.2"]).await;
        rig.until_told("app", "ForeignRecord", &["app.", "weu", "weu-a-app", "PDNS_DNSENDPOINTS_TAKE_OVER"]).await;
        rig.until_served("app", "A", &["198.51.100.1"]).await;
        rig.until_listed(&["other A"]).await;
        // external-dns publishes it, so its status is left to external-dns, also when it becomes empty: a record type may change after that.
        rig.publish("app", json!([])).await;
        rig.until_missing("other", "A").await;
        rig.after_a_resync().await;
        assert!(rig.endpoints().get("app").await.unwrap().status.is_none(), "not published by this operator");
        rig.publish("app", json!([rig.endpoint("app", "A", &["192.0.2.1"]), rig.endpoint("other", "A", &["192.0.2.2"])])).await;
        rig.until_served("other", "A", &["192.0.2.2"]).await;
        // Deleting the object leaves the record of external-dns alone.
        rig.withdraw("app").await;
        rig.until_missing("other", "A").await;
        rig.until_served("app", "A", &["198.51.100.1"]).await;
        // Told to, it takes the name and its entry in the registry, in one step.
        rig.stop().await;
        rig.set_pace(|pace| pace.endpoints = Some(EndpointSource { take_over: true, ..EndpointSource::default() }));
        rig.start();
        rig.publish("app", json!([rig.endpoint("app", "A", &["192.0.2.1"])])).await;
        rig.until_served("app", "A", &["192.0.2.1"]).await;
        rig.until_missing("weu-a-app", "TXT").await;
        rig.until_listed(&["app A"]).await;
        rig.until_observed("app").await;
    }

    async fn external_dns_owns_a_name_whatever_its_type(cluster) {
        let Some(mut rig) = rig(cluster).await else { return };
        let registry = "\"heritage=external-dns,external-dns/owner=weu,external-dns/resource=crd/demo/app\"";
        rig.tamper("app", "AAAA", Some(&["2001:db8::1"])).await;
        rig.tamper("weu-aaaa-app", "TXT", Some(&[registry])).await;
        rig.tamper("gw", "A", Some(&["198.51.100.1"])).await;
        rig.tamper("weu-a-gw", "TXT", Some(&[registry])).await;
        rig.after_a_resync().await;
        rig.publish("app", json!([rig.endpoint("app", "A", &["192.0.2.1"])])).await;
        rig.publish("gw", json!([rig.endpoint("gw", "CNAME", &["lb.example.org"])])).await;
        rig.until_told("app", "ForeignRecord", &["app.", "AAAA", "\"weu\"", "weu-aaaa-app"]).await;
        rig.until_told("gw", "ForeignRecord", &["gw.", "\"weu\"", "weu-a-gw"]).await;
        assert!(rig.set("app", "A").await.is_none(), "no two writers at one name");
        rig.until_served("gw", "A", &["198.51.100.1"]).await;
        // Taken over, the type changes in one write, and what may stay beside the new record stays.
        rig.stop().await;
        rig.set_pace(|pace| pace.endpoints = Some(EndpointSource { take_over: true, ..EndpointSource::default() }));
        rig.start();
        rig.until_served("gw", "CNAME", &["lb.example.org."]).await;
        rig.until_missing("weu-a-gw", "TXT").await;
        rig.until_served("app", "A", &["192.0.2.1"]).await;
        rig.until_served("app", "AAAA", &["2001:db8::1"]).await;
        rig.until_listed(&["app A", "gw CNAME"]).await;
    }

    async fn a_name_is_written_only_where_its_namespace_may(cluster) {
        let Some(mut rig) = rig(cluster).await else { return };
        let other = rig.cluster.namespace("other").await;
        let endpoint = json!([rig.endpoint("app", "A", &["192.0.2.1"])]);
        let object = json!({
            "apiVersion": externaldns::API_VERSION, "kind": "DNSEndpoint",
            "metadata": { "name": "app" }, "spec": { "endpoints": endpoint },
        });
        let params = PatchParams::apply("user").force();
        let theirs: Api<DnsEndpoint> = Api::namespaced(rig.client.clone(), &other);
        theirs.patch("app", &params, &Patch::Apply(&object)).await.unwrap();
        rig.namespace = other;
        rig.until_told("app", "ZoneNotReady", &["belongs to Zone", "ClusterZone"]).await;
        assert!(rig.set("app", "A").await.is_none());
        // A longer zone has its names, also when it comes later.
        let below = format!("below.{}", rig.zone);
        rig.put("Zone", &below, zone_spec()).await;
        theirs.delete("app", &DeleteParams::default()).await.unwrap();
        rig.publish("deep", json!([rig.endpoint("app.below", "A", &["192.0.2.4"])])).await;
        rig.until_served("app.below", "A", &["192.0.2.4"]).await;
    }

    async fn a_zone_that_cannot_be_made_takes_no_names_from_the_zone_above(cluster) {
        let Some(rig) = rig(cluster).await else { return };
        rig.publish("app", json!([rig.endpoint("app", "A", &["192.0.2.1"])])).await;
        rig.until_served("app", "A", &["192.0.2.1"]).await;
        rig.until_listed(&["app A"]).await;
        let below = rig.fqdn("app").trim_end_matches('.').to_owned();
        let mut broken = zone_spec();
        broken["catalog"] = json!("a..b");
        rig.put("Zone", &below, broken).await;
        rig.until("Zone", &below, "Failed").await;
        rig.after_a_resync().await;
        assert_eq!(rig.listed().await, ["app A"], "still of the zone above");
        rig.until_served("app", "A", &["192.0.2.1"]).await;
        // A zone that the server has gets its names.
        rig.put("Zone", &below, zone_spec()).await;
        rig.until("Zone", &below, "Succeeded").await;
        rig.until_listed(&[]).await;
        rig.until_served("app", "A", &["192.0.2.1"]).await;
    }
}
