//! The demo: the demo's cluster is in region weu, a second one in region neu, and both publish in the zone of neu.
//!
//! ```text
//!  neu: shop (Active) ──────────────► DNSEndpoint of neu ─┐
//!  weu: admin (RegionBound to weu) ─► DNSEndpoint of neu ─┴─► example.com, as clients of neu see it
//!  then: weu adopts neu, neu withdraws, and shop is answered by weu without a gap
//! ```

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use signpost_apis::{
    externaldns, istio,
    router::{CLUSTER_GROUP, ClusterIdentity, DNSConfiguration, DNSPolicy, Gateway, ROUTING_GROUP, ServiceRoute},
    service::Service,
};
use signpost_engine::demo::{BoxError, Demo, Names, Show, Stage, Starting, State, answered};

use crate::{RouterConfig, install};

pub(crate) const DEMO: Demo = Demo {
    examples: &[("router.yaml", include_str!("../../../../examples/demo/router.yaml"))],
    crds: || vec![externaldns::crd(), istio::crd()],
    start,
};

const SHOP: &str = "shop-ns-d-dev-web.example.com.";
const ADMIN: &str = "admin-ns-d-dev-web.example.com.";
const WEU: &str = "aks01-weu-internal.example.com.";
const NEU: &str = "aks02-neu-internal.example.com.";

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(5);

struct RouterDemo {
    names: Arc<dyn Names>,
    weu: Client,
    neu: Client,
}

fn start(stage: &mut dyn Stage) -> Starting<'_> {
    Box::pin(async move {
        let names = stage.names();
        install(stage.operator(), RouterConfig::default());
        let weu = stage.operator().client();
        let neu = stage.cluster("neu").await?;
        install(neu, RouterConfig::default());
        let neu = neu.client();
        balancer(&weu, "192.0.2.101").await?;
        balancer(&neu, "192.0.2.102").await?;
        furnish(&neu).await?;
        Ok(Box::new(RouterDemo { names, weu, neu }) as Box<dyn Show>)
    })
}

fn api<K: Resource<DynamicType = ()>>(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<K>(&());
    if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

/// Applies an object.
async fn put<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: &str,
    name: &str,
    mut object: Value,
) -> Result<(), BoxError> {
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    object["metadata"]["name"] = json!(name);
    let params = PatchParams::apply("signpost-demo").force();
    api::<K>(client, namespace).patch(name, &params, &Patch::Apply(&object)).await?;
    Ok(())
}

/// What a cloud does: a load balancer with an address.
async fn balancer(client: &Client, address: &str) -> Result<(), BoxError> {
    const NAME: &str = "istio-internal";
    put::<Namespace>(client, "", "demo", json!({})).await?;
    let spec = json!({ "type": "LoadBalancer", "ports": [{ "name": "https", "port": 443 }] });
    let labels = json!({ "labels": { "istio": NAME } });
    put::<Service>(client, "demo", NAME, json!({ "metadata": labels, "spec": spec })).await?;
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
    api::<Service>(client, "demo").patch_status(NAME, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

/// The objects of the second cluster: the same routes and policies as in the first one, in another region.
async fn furnish(client: &Client) -> Result<(), BoxError> {
    let identity = json!({ "region": "neu", "cluster": "aks02", "domain": "example.com", "environmentLetter": "d" });
    put::<ClusterIdentity>(client, "", "cluster-identity", json!({ "spec": identity })).await?;
    let controllers =
        ["weu", "neu"].map(|region| json!({ "name": format!("external-dns-{region}"), "region": region }));
    let configuration = json!({ "spec": { "externalDNSControllers": controllers } });
    put::<DNSConfiguration>(client, "", "dns-config", configuration).await?;
    let gateway = json!({ "controller": "istio-internal", "credentialName": "cert", "targetPostfix": "internal" });
    put::<Gateway>(client, "demo", "internal", json!({ "spec": gateway })).await?;
    put::<Namespace>(client, "", "demo-admin", json!({})).await?;
    for (namespace, name, policy) in [
        ("demo", "shop", json!({ "mode": "Active" })),
        ("demo-admin", "admin", json!({ "mode": "RegionBound", "sourceRegion": "weu" })),
    ] {
        put::<DNSPolicy>(client, namespace, "policy", json!({ "spec": policy })).await?;
        let route = json!({ "serviceName": name, "gatewayName": "internal", "gatewayNamespace": "demo", "environment": "dev", "application": "web" });
        put::<ServiceRoute>(client, namespace, name, json!({ "spec": route })).await?;
    }
    zone(client).await
}

/// The zone that the two clusters share, as the `powerdns` system reads it.
async fn zone(client: &Client) -> Result<(), BoxError> {
    let resource = ApiResource {
        group: "dns.cav.enablers.ob".into(),
        version: "v1alpha2".into(),
        api_version: "dns.cav.enablers.ob/v1alpha2".into(),
        kind: "ClusterZone".into(),
        plural: "clusterzones".into(),
    };
    let soa = json!({ "primary": "ns1.example.org", "mailbox": "hostmaster@example.org" });
    let object = json!({
        "apiVersion": resource.api_version, "kind": resource.kind, "metadata": { "name": "example.com" },
        "spec": { "kind": "Native", "nameservers": ["ns1.example.org"], "soa": soa },
    });
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    api.patch("example.com", &PatchParams::apply("signpost-demo").force(), &Patch::Apply(&object)).await?;
    Ok(())
}

fn ready(object: &Value) -> Option<&Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")
}

impl Show for RouterDemo {
    fn about(&self) -> String {
        "two clusters, in the regions weu (this one) and neu; both publish in the zone example.com".to_owned()
    }

    fn check<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Option<State>> {
        Box::pin(self.state(object))
    }

    fn then(&self) -> BoxFuture<'_, Result<Vec<String>, BoxError>> {
        Box::pin(self.adoption())
    }
}

impl RouterDemo {
    /// A route and a gateway count only when the name server answers for them.
    async fn state(&self, object: &Value) -> Option<State> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let group = object["apiVersion"].as_str()?.split('/').next()?;
        if group != CLUSTER_GROUP && group != ROUTING_GROUP {
            return None;
        }
        let Some(ready) = ready(object) else {
            return Some(State::Untouched("it has no Ready condition yet".to_owned()));
        };
        if ready["status"] != "True" {
            return Some(State::Refused { reason: text(&ready["reason"]), message: text(&ready["message"]) });
        }
        let host = format!("{}.", object["status"]["hostname"].as_str().unwrap_or_default());
        Some(match object["kind"].as_str()? {
            "ServiceRoute" => answered(&*self.names, [(host, "CNAME".to_owned())]).await,
            "Gateway" => answered(&*self.names, [(host, "A".to_owned())]).await,
            _ => State::Served(Vec::new()),
        })
    }

    /// The region neu moves to the cluster in weu. An answer that is missing or wrong on the way is an error.
    async fn adoption(&self) -> Result<Vec<String>, BoxError> {
        if api::<ServiceRoute>(&self.weu, "demo").get_opt("shop").await?.is_none() {
            return Ok(Vec::new()); // examples of the user
        }
        self.until(SHOP, &[], NEU).await?;
        self.until(ADMIN, &[], WEU).await?;
        self.until_inactive("demo-admin", "admin").await?;
        let mut lines = vec![
            "\ntwo regions, one zone: the answers for clients of neu".to_owned(),
            format!("  Active       {SHOP:<32} CNAME  {NEU}  from cluster neu, for its own region"),
            format!(
                "  RegionBound  {ADMIN:<32} CNAME  {WEU}  from cluster weu, for every region; in neu it is DNSPolicyInactive"
            ),
        ];
        let adopts = json!({ "spec": { "adoptsRegions": ["neu"] } });
        let params = PatchParams::default();
        api::<ClusterIdentity>(&self.weu, "").patch("cluster-identity", &params, &Patch::Merge(&adopts)).await?;
        let mut asked = self.until(SHOP, &[NEU], WEU).await?;
        let elsewhere = json!({ "spec": { "sourceRegion": "weu" } });
        api::<DNSPolicy>(&self.neu, "demo").patch("policy", &params, &Patch::Merge(&elsewhere)).await?;
        self.until_inactive("demo", "shop").await?;
        // Cluster neu has withdrawn its DNSEndpoint: the record of cluster weu stays.
        for _ in 0..50 {
            asked += self.until(SHOP, &[WEU], WEU).await?;
            tokio::time::sleep(PAUSE).await;
        }
        lines.push("cluster weu adopts the region neu, then cluster neu withdraws".to_owned());
        lines.push(format!(
            "  Adopted      {SHOP:<32} CNAME  {WEU}  from cluster weu; asked {asked} times on the way, always answered"
        ));
        Ok(lines)
    }

    /// Asks until this is the answer; until then, only `before` may be answered (anything, where it is empty). Returns how often it asked.
    async fn until(&self, name: &str, before: &[&str], wanted: &str) -> Result<usize, BoxError> {
        for asked in 1.. {
            let answer = self.names.ask(name, "CNAME").await?;
            if answer == [wanted] {
                return Ok(asked);
            }
            if !before.is_empty() && answer != before {
                return Err(format!("{name} was answered {answer:?} on its way from {before:?} to {wanted}").into());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(0)
    }

    /// Waits until a route of cluster neu has withdrawn its DNSEndpoints.
    async fn until_inactive(&self, namespace: &str, name: &str) -> Result<(), BoxError> {
        loop {
            let route = api::<ServiceRoute>(&self.neu, namespace).get(name).await?;
            let route = serde_json::to_value(route)?;
            let inactive = ready(&route).is_some_and(|ready| ready["reason"] == "DNSPolicyInactive");
            let left =
                api::<externaldns::DnsEndpoint>(&self.neu, namespace).list(&kube::api::ListParams::default()).await?;
            let of_route = |endpoint: &DynamicObject| {
                endpoint.metadata.name.iter().any(|have| have.starts_with(&format!("{name}-")))
            };
            if inactive && !left.items.iter().any(of_route) {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
