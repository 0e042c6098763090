//! Portals of other clusters: over TLS with certificates from Secrets, with stale names kept and marked.

use data_encoding::BASE64;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use signpost_apis::portal::{DNS, Portal};
use signpost_inventory::{At, View};
use signpost_testkit::{ConnectPortal, TlsFront, eventually, on_both};

use crate::bed::{Bed, PATIENCE};

pub fn fqdn(name: &str, status: &str) -> Value {
    json!({ "name": format!("{name}.example.org"), "source": "manual", "groups": ["Web"], "recordType": "A", "targets": ["192.0.2.1"],
        "syncStatus": status, "lastSeen": "2026-01-01T00:00:00Z", "portals": ["main"],
        "originRef": { "kind": "Ingress", "namespace": "shop", "name": name } })
}

impl Bed {
    pub async fn remote(&self, url: &str, tls: Value) {
        let portal: Portal = serde_json::from_value(json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "Portal", "metadata": { "name": "east" },
            "spec": { "title": "East", "remote": { "url": url, "tls": tls } },
        }))
        .unwrap();
        self.api::<Portal>().create(&PostParams::default(), &portal).await.unwrap();
    }

    /// Creates a Secret, or adds keys to it.
    async fn secret(&self, name: &str, data: &[(&str, &str)]) {
        let encoded = |(key, value): &(&str, &str)| ((*key).to_owned(), json!(BASE64.encode(value.as_bytes())));
        let data: serde_json::Map<String, Value> = data.iter().map(encoded).collect();
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "data": data });
        let params = PatchParams::apply("user").force();
        self.api::<Secret>().patch(name, &params, &Patch::Apply(secret)).await.unwrap();
    }

    pub async fn portal_is(&self, reason: &str) -> Portal {
        eventually(&format!("the portal has {reason}"), PATIENCE, || async {
            let portal = self.api::<Portal>().get("east").await.unwrap();
            let status = portal.status.clone().unwrap_or_default();
            let found = status.conditions.iter().any(|condition| condition.reason == reason);
            if found && status.ready == Some(reason == "RemoteSyncSuccess") { Ok(portal) } else { Err(status) }
        })
        .await
    }

    /// Waits until the condition `DNSSynced` of the portal has this reason, or does not exist, and the parts of the other portal are these.
    async fn is_synced(&self, reason: Option<&str>, features: Value) {
        eventually(&format!("DNSSynced is {reason:?}, with {features}"), PATIENCE, || async {
            let status = self.api::<Portal>().get("east").await.unwrap().status.unwrap_or_default();
            let condition = status.conditions.iter().find(|condition| condition.type_ == "DNSSynced");
            let as_wanted = condition.map(|condition| condition.reason.as_str()) == reason
                && condition.is_none_or(|c| (c.status == "True") == (c.reason == "DNSSyncSuccess"));
            let sync = status.remote_sync.clone().unwrap_or_default();
            if as_wanted && json!(sync.features) == features { Ok(()) } else { Err(status) }
        })
        .await;
    }

    /// Waits until the inventory has these names, as `name status source groups portals`, and ` stale`.
    pub async fn takes_over(&self, expected: &[&str]) {
        let line = |view: &View| {
            let provenance = view.provenance();
            let stale = if provenance.labels.contains_key("sreportal.io/stale") { " stale" } else { "" };
            format!(
                "{} {} {} {} {}{stale}",
                view.name().undotted().trim_end_matches(".example.org"),
                view.status().as_str(),
                provenance.source.as_str(),
                provenance.groups.join(","),
                provenance.portals.join(",")
            )
        };
        eventually(&format!("the inventory has {expected:?}"), PATIENCE, || async {
            let seen: Vec<String> = self.inventory.snapshot().iter().map(|view| line(view)).collect();
            if seen == expected { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}

/// A name without a group, which is in the default one, and a name that the other portal has from a third one, which is left out.
fn names() -> Vec<Value> {
    let third = json!({ "name": "copied.example.org", "source": "remote", "groups": ["Web"] });
    let mut plain = fqdn("c", "notavailable");
    plain["groups"] = json!([]);
    vec![fqdn("a", "sync"), fqdn("b", "notsync"), third, plain]
}

const TAKEN_OVER: &[&str] = &["a sync remote Web east", "b notFound remote Web east", "c error remote default east"];
const STALE: &[&str] =
    &["a sync remote Web east stale", "b notFound remote Web east stale", "c error remote default east stale"];

on_both! {
    async fn a_remote_portal_is_read_over_tls_with_certificates_of_secrets(cluster) {
        let server = ConnectPortal::start("main", 2).await;
        let front = TlsFront::open_for_clients(server.addr()).await;
        server.set_fqdns(names());
        let bed = Bed::new(cluster).await;
        bed.remote(&front.url(), json!({ "caSecretRef": { "name": "east-ca" }, "certSecretRef": { "name": "east-client" } })).await;
        let portal = bed.portal_is("TLSConfigFailed").await;
        let message = portal.status.unwrap().conditions[0].message.clone();
        assert!(message.contains("/east-ca does not exist"), "{message}");

        // Without the client certificate the other side does not talk to us.
        let ca = std::fs::read_to_string(front.ca_file()).unwrap();
        bed.secret("east-ca", &[("ca.crt", &ca)]).await;
        let (certificate, key) = TlsFront::client();
        bed.secret("east-client", &[("tls.crt", certificate)]).await;
        eventually("the missing key is reported", PATIENCE, || async {
            let status = bed.api::<Portal>().get("east").await.unwrap().status.unwrap_or_default();
            if status.conditions.iter().any(|c| c.message.contains("no key tls.key")) { Ok(()) } else { Err(status) }
        }).await;
        assert_eq!(server.calls(), 0, "nothing was asked without the certificates");
        bed.secret("east-client", &[("tls.crt", certificate), ("tls.key", key)]).await;
        let sync = bed.portal_is("RemoteSyncSuccess").await.status.unwrap().remote_sync.unwrap();
        assert_eq!((sync.remote_title.as_deref(), sync.fqdn_count, sync.last_sync_error), (Some("Elsewhere"), Some(3), None));
        bed.takes_over(TAKEN_OVER).await;
        let copy = bed.api::<DNS>().get("remote-east").await.unwrap();
        assert_eq!(copy.metadata.owner_references.unwrap()[0].kind, "Portal");
        assert_eq!(bed.resolver.asked(), 0, "the verdicts are those of the other portal");

        // At rest nothing is written.
        let version = || async { bed.api::<DNS>().get("remote-east").await.unwrap().metadata.resource_version };
        bed.condition("remote-east", "Ready", "RemoteSyncSuccess").await;
        let (before, calls) = (version().await, server.calls());
        eventually("more visits", PATIENCE, || async {
            let more = server.calls() - calls;
            if more >= 9 { Ok(()) } else { Err(more) }
        }).await;
        assert_eq!(version().await, before);
    }

    async fn the_verdict_of_a_remote_name_does_not_depend_on_its_spelling(cluster) {
        let server = ConnectPortal::start("main", 2).await;
        let written = |name: &str, rtype: &str, targets: &[&str]| {
            let mut fqdn = fqdn("x", "sync");
            (fqdn["name"], fqdn["recordType"], fqdn["targets"]) = (json!(name), json!(rtype), json!(targets));
            fqdn
        };
        server.set_fqdns(vec![
            written("Capital.example.org.", "a", &["192.0.2.2", "192.0.2.1"]), written("cname.example.org", "CNAME", &["lb.example.net"]),
            written("six.example.org", "AAAA", &["2001:DB8:0::1"]), written("text.example.org", "TXT", &["v=spf1 -all"]),
            written("odd.example.org", "A", &["not an address!"]),
        ]);
        let bed = Bed::new(cluster).await;
        bed.remote(&format!("http://{}", server.addr()), Value::Null).await;
        bed.takes_over(&["capital", "cname", "odd", "six", "text"].map(|name| format!("{name} sync remote Web east")).each_ref().map(String::as_str)).await;
        server.set_fqdns(names());
        bed.takes_over(TAKEN_OVER).await;
    }

    async fn the_names_of_a_remote_portal_outlive_it(cluster) {
        let server = ConnectPortal::start("main", 2).await;
        server.set_fqdns(names());
        let bed = Bed::new(cluster).await;
        bed.remote(&format!("http://{}", server.addr()), Value::Null).await;
        bed.takes_over(TAKEN_OVER).await;

        // What fails keeps the names and marks them, also over a restart.
        for failure in [(503, r#"{"code":"unavailable","message":"later"}"#), (200, "<html>"), (404, "")] {
            server.fail(Some(failure));
            bed.portal_is("RemoteFetchFailed").await;
            bed.takes_over(STALE).await;
            server.fail(None);
            bed.portal_is("RemoteSyncSuccess").await;
            bed.takes_over(TAKEN_OVER).await;
        }
        server.fail(Some((500, "")));
        bed.portal_is("RemoteFetchFailed").await;
        bed.stop();
        let next = bed.replica();
        next.start();
        next.takes_over(STALE).await;
        let sync = next.portal_is("RemoteFetchFailed").await.status.unwrap().remote_sync.unwrap();
        let visited = At::from(sync.last_sync_time.unwrap().0);
        eventually("stale names were last seen by the last visit", PATIENCE, || async {
            let seen: Vec<At> = next.inventory.snapshot().iter().map(|view| view.last_seen()).collect();
            if seen.iter().all(|at| *at == visited) { Ok(()) } else { Err((visited, seen)) }
        }).await;
        server.set_fqdns(vec![fqdn("a", "timeout")]);
        server.fail(None);
        next.takes_over(&["a timeout remote Web east"]).await;

        // Another portal there does not exist; then the portal is not remote any more.
        let patch = |remote: Value| json!({ "spec": { "remote": remote } });
        let api = next.api::<Portal>();
        api.patch("east", &PatchParams::default(), &Patch::Merge(patch(json!({ "portal": "west" })))).await.unwrap();
        next.portal_is("RemoteFetchFailed").await;
        next.takes_over(&["a timeout remote Web east stale"]).await;
        api.patch("east", &PatchParams::default(), &Patch::Merge(patch(Value::Null))).await.unwrap();
        next.takes_over(&[]).await;
        eventually("the copy is deleted", PATIENCE, || async {
            match next.api::<DNS>().get_opt("remote-east").await.unwrap() {
                None => Ok(()),
                Some(copy) => Err(copy),
            }
        }).await;
    }

    async fn a_remote_portal_reports_its_features_and_whether_its_names_are_synced(cluster) {
        let server = ConnectPortal::start("main", 10).await;
        let shows = |features: Value| {
            server.set_portals(vec![json!({ "name": "main", "title": "Elsewhere", "main": true, "features": features })]);
        };
        server.set_fqdns(vec![fqdn("a", "sync")]);
        let bed = Bed::new(cluster).await;
        bed.remote(&format!("http://{}", server.addr()), Value::Null).await;
        // A server of the time before the parts shows names.
        bed.is_synced(Some("DNSSyncSuccess"), Value::Null).await;
        bed.takes_over(&["a sync remote Web east"]).await;
        let all = |dns: bool| json!({ "dns": dns, "releases": false, "networkPolicy": false, "alerts": true, "statusPage": true,
            "imageInventory": false });
        // What is false is not sent.
        shows(json!({ "dns": true, "alerts": true, "statusPage": true }));
        bed.is_synced(Some("DNSSyncSuccess"), all(true)).await;
        server.fail(Some((500, "")));
        bed.is_synced(Some("DNSSyncFailed"), all(true)).await;
        bed.takes_over(&["a sync remote Web east stale"]).await;
        // Without names there, and without names here, none are synced.
        server.fail(None);
        shows(json!({ "alerts": true, "statusPage": true }));
        bed.is_synced(None, all(false)).await;
        bed.portal_is("RemoteSyncSuccess").await;
        bed.takes_over(&[]).await;
        shows(json!({ "dns": true, "alerts": true, "statusPage": true }));
        bed.takes_over(&["a sync remote Web east"]).await;
        let off = Patch::Merge(json!({ "spec": { "features": { "dns": false } } }));
        bed.api::<Portal>().patch("east", &PatchParams::default(), &off).await.unwrap();
        bed.is_synced(None, all(true)).await;
        bed.takes_over(&[]).await;
    }
}
