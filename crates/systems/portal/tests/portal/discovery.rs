//! Names of objects that no system of this operator publishes, on the sandbox and on the real API server.

use std::collections::BTreeSet;

use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use signpost_apis::ingress::Ingress;
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_engine::Identity;
use signpost_engine::project::{entry_of, wanted_by};
use signpost_inventory::{Entry, Owner, Source};
use signpost_planning::{Reason, Refusal};
use signpost_testkit::{any_crd, eventually, on_both};

use crate::bed::{Bed, PATIENCE};

impl Bed {
    pub fn kind(&self, kind: &str) -> (Api<DynamicObject>, ApiResource) {
        let gateway_api = signpost_apis::gatewayapi::GROUP;
        let (group, version) = match kind {
            "Service" => ("", "v1"),
            "Ingress" => ("networking.k8s.io", "v1"),
            "DNSEndpoint" => ("externaldns.k8s.io", "v1alpha1"),
            "IstioGateway" | "VirtualService" => (signpost_apis::istio::GROUP, "v1"),
            "Portal" => ("sreportal.io", "v1alpha1"),
            _ => (gateway_api, "v1"),
        };
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let kind = kind.trim_start_matches("Istio");
        let plural = if kind == "Ingress" { "ingresses".to_owned() } else { format!("{}s", kind.to_lowercase()) };
        let (group, version, kind) = (group.to_owned(), version.to_owned(), kind.to_owned());
        let resource = ApiResource { group, version, api_version, kind, plural };
        (Api::namespaced_with(self.cluster.client(), &self.namespace, &resource), resource)
    }

    pub async fn put(&self, kind: &str, name: &str, mut body: Value) {
        let (api, resource) = self.kind(kind);
        body["apiVersion"] = json!(resource.api_version);
        body["kind"] = json!(resource.kind);
        body["metadata"]["name"] = json!(name);
        let status = body.as_object_mut().unwrap().remove("status");
        eventually(&format!("{kind} {name} is accepted"), PATIENCE, || async {
            api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&body)).await.map(drop)
        })
        .await;
        if let Some(status) = status {
            let patch = json!({ "status": status });
            api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        }
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        self.kind(kind).0.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// `kind name type [targets] portals/groups`, as the inventory shows the names of other publishers.
    pub async fn discovers(&self, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|line| (*line).to_owned()).collect();
        eventually("the discovered names", PATIENCE, || async {
            let snapshot = self.inventory.snapshot();
            let found = snapshot.iter().filter(|view| view.provenance().source == Source::ExternalDns);
            let seen: BTreeSet<String> = found
                .map(|view| {
                    let provenance = view.provenance();
                    let rtype = view.rtype().map_or("-".to_owned(), |rtype| rtype.as_str().to_owned());
                    let targets = view.targets().iter().collect::<Vec<_>>().join(",");
                    let (portals, groups) = (provenance.portals.join(","), provenance.groups.join(","));
                    let (kind, name) = (&provenance.origin.kind, view.name().undotted());
                    format!("{kind} {name} {rtype} [{targets}] {portals}/{groups}")
                })
                .collect();
            if seen == expected { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}

fn accepted(gateway: &str) -> Value {
    let condition = json!({ "type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    json!({ "parents": [{ "parentRef": { "name": gateway }, "controllerName": "example.org/gw", "conditions": [condition] }] })
}

on_both! {
    async fn names_of_every_installed_kind_are_found_and_removed_with_their_object(cluster) {
        let bed = Bed::new(cluster).await;
        let balancer = |ip: &str| json!({ "loadBalancer": { "ingress": [{ "ip": ip }] } });
        let alpha = "external-dns.alpha.kubernetes.io";
        bed.put("Ingress", "app", json!({ "metadata": { "annotations": { "sreportal.io/groups": "Web, API" } },
            "spec": { "rules": [{ "host": "app.example.org" }] }, "status": balancer("192.0.2.1") })).await;
        bed.put("Ingress", "hidden", json!({ "metadata": { "annotations": { "sreportal.io/ignore": "true" } },
            "spec": { "rules": [{ "host": "hidden.example.org" }] } })).await;
        bed.put("Service", "lb", json!({ "metadata": { "annotations": { format!("{alpha}/hostname"): "lb.example.org" } },
            "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] }, "status": balancer("192.0.2.2") })).await;
        bed.discovers(&["Ingress app.example.org A [192.0.2.1] main/API,Web", "Service lb.example.org A [192.0.2.2] main/Services"]).await;

        // Kinds that are installed later are picked up; an endpoint that another portal shows is shown there.
        bed.put("Portal", "team", json!({ "spec": { "title": "Team" } })).await;
        let gateway_api = signpost_apis::gatewayapi::GROUP;
        bed.cluster.install(&[
            signpost_apis::externaldns::crd(),
            any_crd(gateway_api, &["v1"], "Gateway"), any_crd(gateway_api, &["v1"], "HTTPRoute"), any_crd(gateway_api, &["v1"], "GRPCRoute"),
            any_crd(gateway_api, &["v1"], "TLSRoute"),
            any_crd(signpost_apis::istio::GROUP, &["v1"], "Gateway"), any_crd(signpost_apis::istio::GROUP, &["v1"], "VirtualService"),
        ]).await;
        bed.put("DNSEndpoint", "extra", json!({ "metadata": { "annotations": { "sreportal.io/portal": "team" } },
            "spec": { "endpoints": [{ "dnsName": "txt.example.org", "recordType": "TXT", "targets": ["hello"] }] } })).await;
        let listener = |name: &str, protocol: &str, hostname: &str| json!({ "name": name, "port": 443, "protocol": protocol, "hostname": hostname });
        bed.put("Gateway", "gw", json!({ "spec": { "gatewayClassName": "x", "listeners": [
                listener("web", "HTTPS", "*.example.org"), listener("tls", "TLS", "tls.example.org")] },
            "status": { "addresses": [{ "type": "IPAddress", "value": "192.0.2.3" }, { "type": "IPAddress", "value": "2001:db8::3" }] } })).await;
        let route = |hosts: &[&str]| json!({ "spec": { "hostnames": hosts, "parentRefs": [{ "name": "gw" }] }, "status": accepted("gw") });
        bed.put("HTTPRoute", "web", route(&["web.example.org", "web.example.net"])).await;
        bed.put("GRPCRoute", "rpc", route(&["rpc.example.org"])).await;
        bed.put("TLSRoute", "tls", route(&[])).await;
        bed.put("HTTPRoute", "refused", json!({ "spec": { "hostnames": ["no.example.org"], "parentRefs": [{ "name": "gw" }] } })).await;
        bed.put("Service", "istio", json!({ "spec": { "type": "LoadBalancer", "selector": { "istio": "gw", "app": "x" }, "ports": [{ "port": 80 }] },
            "status": { "loadBalancer": { "ingress": [{ "hostname": "elb.example.net" }] } } })).await;
        bed.put("IstioGateway", "edge", json!({ "spec": { "selector": { "istio": "gw" },
            "servers": [{ "hosts": ["./istio.example.org", "*/*.mesh.example.org"] }] } })).await;
        bed.put("VirtualService", "vs", json!({ "spec": { "hosts": ["a.mesh.example.org", "reviews"], "gateways": ["edge", "mesh"] } })).await;
        let all = [
            "Ingress app.example.org A [192.0.2.1] main/API,Web", "Service lb.example.org A [192.0.2.2] main/Services",
            "DNSEndpoint txt.example.org TXT [\"hello\"] team/Services",
            "HTTPRoute web.example.org A [192.0.2.3] main/Services", "HTTPRoute web.example.org AAAA [2001:db8::3] main/Services",
            "GRPCRoute rpc.example.org A [192.0.2.3] main/Services", "GRPCRoute rpc.example.org AAAA [2001:db8::3] main/Services",
            "TLSRoute tls.example.org A [192.0.2.3] main/Services", "TLSRoute tls.example.org AAAA [2001:db8::3] main/Services",
            "Gateway istio.example.org - [elb.example.net] main/Services", "Gateway *.mesh.example.org - [elb.example.net] main/Services",
            "VirtualService a.mesh.example.org - [elb.example.net] main/Services",
        ];
        bed.discovers(&all).await;

        // They are looked up like the names of DNS objects.
        let served = Fqdn::parse("app.example.org").unwrap();
        bed.resolver.set(&served, RecordType::A, vec![Rdata::parse(&RecordType::A, "192.0.2.1").unwrap()]);
        eventually("a discovered name is in sync", PATIENCE, || async {
            let status = bed.inventory.snapshot().get(&served).next().map(|view| view.status().as_str());
            if status == Some("sync") { Ok(()) } else { Err(status) }
        }).await;

        // Without its Gateway, a route has no name; the last object of a kind takes its names along.
        bed.delete("Gateway", "gw").await;
        bed.delete("IstioGateway", "edge").await;
        bed.delete("DNSEndpoint", "extra").await;
        bed.delete("Ingress", "app").await;
        bed.discovers(&["Service lb.example.org A [192.0.2.2] main/Services"]).await;
    }

    async fn a_weighted_endpoint_is_in_sync_with_one_of_its_sets(cluster) {
        let bed = Bed::without_operator(cluster).await;
        bed.cluster.install(&[signpost_apis::externaldns::crd()]).await;
        bed.start();
        let set = |target: &str, id: &str| json!({ "dnsName": "w.example.org", "recordType": "A", "targets": [target], "setIdentifier": id });
        bed.answers("w.example.org", "A", &["192.0.2.2"]);
        bed.put("DNSEndpoint", "weighted", json!({ "spec": { "endpoints": [set("192.0.2.1", "one"), set("192.0.2.2", "two")] } })).await;
        bed.has_result("w.example.org", "sync/Match").await;
        bed.answers("w.example.org", "A", &["192.0.2.3"]);
        bed.has_result("w.example.org", "notFound/Mismatch").await;
        // An entry that cannot be read is reported on its own; the others are shown.
        let bad = json!({ "dnsName": "v6.example.org", "recordType": "A", "targets": ["2001:db8::1"] });
        bed.put("DNSEndpoint", "mixed", json!({ "spec": { "endpoints": [bad, { "dnsName": "ok.example.org", "recordType": "TXT", "targets": ["x"] }] } })).await;
        bed.has_result("ok.example.org", "notFound/NoSuchName").await;
        eventually("the bad entry is in an event", PATIENCE, || async {
            let events = bed.api::<k8s_openapi::api::core::v1::Event>().list(&kube::api::ListParams::default()).await.unwrap().items;
            let notes: Vec<String> = events.into_iter().filter_map(|event| event.message).collect();
            if notes.iter().any(|note| note.contains("v6.example.org")) { Ok(()) } else { Err(notes) }
        }).await;
    }

    async fn a_name_that_a_system_refused_is_discovered_and_looked_up(cluster) {
        let bed = Bed::new(cluster).await;
        bed.answers("app.example.org", "A", &["192.0.2.1"]);
        bed.put("Ingress", "app", json!({ "spec": { "rules": [{ "host": "app.example.org" }] },
            "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } })).await;
        let shown = ["Ingress app.example.org A [192.0.2.1] main/Services"];
        bed.discovers(&shown).await;
        let identity = Identity::of(&bed.api::<Ingress>().get("app").await.unwrap());
        let project = |published: bool, refusal: Option<&Refusal>| {
            let name = Fqdn::parse("app.example.org").unwrap();
            let entry = Entry::new(name, Some(RecordType::A), wanted_by(&identity.id, &identity.uid, "pihole home"));
            let entries = vec![entry_of(entry, &identity, published, refusal)];
            bed.inventory.replace(&Owner::new("pihole", "home"), entries, jiff::Timestamp::now());
        };
        project(true, None);
        bed.discovers(&[]).await;
        project(false, Some(&Refusal::new(Reason::HostTaken, "another Ingress is older")));
        bed.discovers(&shown).await;
        bed.lists(&["app.example.org ", "app.example.org sync"]).await;
        // What is to be published is the system's again.
        project(false, None);
        bed.discovers(&[]).await;
    }

    async fn a_portal_of_another_namespace_does_not_hide_discovered_names(cluster) {
        let bed = Bed::without_operator(cluster).await;
        let foreign = bed.cluster.namespace("a-portal").await;
        let hidden: signpost_apis::portal::Portal = serde_json::from_value(json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "Portal", "metadata": { "name": "x" },
            "spec": { "title": "X", "main": true, "features": { "dns": false } },
        })).unwrap();
        let portals: Api<signpost_apis::portal::Portal> = Api::namespaced(bed.cluster.client(), &foreign);
        portals.create(&kube::api::PostParams::default(), &hidden).await.unwrap();
        // All namespaces are watched.
        let options = signpost_engine::OperatorOptions::default();
        bed.start_with(bed.cluster.client(), options, bed.resolver.clone());
        let name = format!("{}.example.org", bed.namespace);
        bed.put("Ingress", "app", json!({ "spec": { "rules": [{ "host": name }] } })).await;
        bed.has_result(&name, "notFound/NoSuchName").await;
        let view = bed.inventory.snapshot().get(&Fqdn::parse(&name).unwrap()).next().cloned().unwrap();
        assert_eq!(view.provenance().portals.join(","), "main");
        portals.delete("x", &DeleteParams::default()).await.unwrap();
    }
}
