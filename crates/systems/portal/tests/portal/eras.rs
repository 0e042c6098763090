//! Objects that were written for the old program, with the statuses that it left behind.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use signpost_testkit::on_both;

use crate::bed::Bed;

fn api(bed: &Bed, kind: &str, plural: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "sreportal.io".into(),
        version: "v1alpha1".into(),
        api_version: "sreportal.io/v1alpha1".into(),
        kind: kind.into(),
        plural: plural.into(),
    };
    Api::namespaced_with(bed.cluster.client(), &bed.namespace, &resource)
}

/// Applies an object as its user has it, and its status as the old program wrote it.
async fn put(bed: &Bed, (kind, plural): (&str, &str), name: &str, spec: Value, mut status: Value) {
    let api = api(bed, kind, plural);
    let body =
        json!({ "apiVersion": "sreportal.io/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec });
    api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&body)).await.unwrap();
    status["conditions"] = json!([{ "type": "Ready", "status": "True", "reason": "ReconcileSucceeded", "message": "",
        "lastTransitionTime": "2026-04-01T00:00:00Z" }]);
    let patch = json!({ "status": status });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

on_both! {
    async fn objects_of_the_old_program_are_taken_over_unchanged(cluster) {
        let bed = Bed::without_operator(cluster).await;
        bed.answers("www.example.org", "A", &["192.0.2.1"]);
        let kinds = [("Portal", "portals"), ("DNS", "dns"), ("Component", "components")];
        let [portal, dns, component] = kinds;
        put(&bed, portal, "main", json!({ "title": "Main Portal", "main": true, "subPath": "main" }), json!({ "ready": true })).await;
        let fqdn = |name: &str, status: &str| json!({ "fqdn": name, "syncStatus": status, "lastSeen": "2026-04-01T00:00:00Z" });
        let fqdns = [fqdn("gone.example.org", "notavailable"), fqdn("www.example.org", "notsync")];
        let entries = [json!({ "fqdn": "www.example.org", "description": "the site" }), json!({ "fqdn": "gone.example.org" })];
        let spec = json!({ "portalRef": "main", "groups": [{ "name": "apps", "description": "all", "entries": entries }] });
        let status = json!({ "groups": [{ "name": "apps", "source": "manual", "fqdns": fqdns }], "lastReconcileTime": "2026-04-01T00:00:00Z" });
        put(&bed, dns, "team", spec, status).await;
        let spec = json!({ "displayName": "Shop", "group": "apps", "portalRef": "main", "status": "degraded", "link": "https://shop.example.org" });
        let status = json!({ "computedStatus": "degraded", "activeIncidents": 0, "lastStatusChange": "2026-04-01T00:00:00Z",
            "dailyWorstStatus": [{ "date": "2026-04-01", "worstStatus": "degraded" }] });
        put(&bed, component, "shop", spec, status).await;
        bed.start();
        bed.shows("team", &[("gone.example.org", "notFound/NoSuchName"), ("www.example.org", "sync/Exists")]).await;
        bed.lists(&["gone.example.org notFound", "www.example.org sync"]).await;
        for ((kind, plural), name) in kinds.into_iter().zip(["main", "team", "shop"]) {
            let object = api(&bed, kind, plural).get(name).await.unwrap();
            assert_eq!(object.metadata.generation, Some(1), "the spec of {kind} {name} was not written");
        }
    }
}
