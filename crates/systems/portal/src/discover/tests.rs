//! Which objects an event judges again.

use serde_json::{Value, json};
use signpost_apis::portal::Component;

use super::*;
use crate::index::Keys;

struct Cluster {
    discovery: Discovery,
    objects: Arc<Objects>,
}

impl Cluster {
    fn new() -> Self {
        let objects = Arc::new(Objects::new(Keys::default(), ""));
        let (inventory, state) = (Arc::new(Inventory::new()), Mutex::default());
        Self { discovery: Discovery { objects: objects.clone(), inventory, state }, objects }
    }

    fn put<K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + 'static>(
        &self,
        name: &str,
        mut body: Value,
    ) -> ObjectId
    where
        Discovery: Index<K>,
    {
        body["metadata"]["name"] = json!(name);
        body["metadata"]["namespace"] = json!("a");
        body["metadata"]["uid"] = json!(name);
        let object: K = serde_json::from_value(body).unwrap();
        Index::<K>::applied(&self.discovery, &object);
        ObjectId::of(&object)
    }

    /// The names of an object. Each time that it is judged, they are made again.
    fn shown(&self, id: &ObjectId) -> Arc<Vec<Group>> {
        self.objects.get(id).unwrap().dns().unwrap().groups.clone()
    }

    fn targets(&self, id: &ObjectId) -> String {
        let shown = self.shown(id);
        shown[0].names.iter().flat_map(|wanted| wanted.targets.iter()).collect::<Vec<_>>().join(",")
    }
}

fn reached_at(ip: &str) -> Value {
    json!({ "loadBalancer": { "ingress": [{ "ip": ip }] } })
}

fn ingress_at(ip: &str) -> Value {
    json!({ "metadata": {}, "spec": {}, "status": reached_at(ip) })
}

fn service_at(ip: &str, selector: &str) -> Value {
    let spec = json!({ "type": "LoadBalancer", "selector": { "istio": selector } });
    json!({ "metadata": {}, "spec": spec, "status": reached_at(ip) })
}

fn gateway(annotations: &Value, selector: &Value, host: &str) -> Value {
    json!({ "metadata": { "annotations": annotations }, "spec": { "selector": selector, "servers": [{ "hosts": [host] }] } })
}

fn virtual_service(gateway: &str, host: &str) -> Value {
    json!({ "metadata": {}, "spec": { "hosts": [host], "gateways": [gateway] } })
}

#[test]
fn an_ingress_concerns_the_gateways_that_refer_to_it_and_no_others() {
    let cluster = Cluster::new();
    let annotation = |name: &str| json!({ "external-dns.alpha.kubernetes.io/ingress": name });
    let edge = cluster.put::<IstioGateway>("edge", gateway(&annotation("front"), &json!({}), "*.edge.example.org"));
    let other =
        cluster.put::<IstioGateway>("other", gateway(&annotation("b/front"), &json!({}), "*.other.example.org"));
    let of_edge = cluster.put::<VirtualService>("one", virtual_service("edge", "a.edge.example.org"));
    let of_other = cluster.put::<VirtualService>("two", virtual_service("other", "a.other.example.org"));
    let before = [cluster.shown(&other), cluster.shown(&of_other)];

    let front = cluster.put::<Ingress>("front", ingress_at("192.0.2.1"));
    assert_eq!([cluster.targets(&edge), cluster.targets(&of_edge)], ["192.0.2.1", "192.0.2.1"]);
    for (id, before) in [&other, &of_other].into_iter().zip(&before) {
        assert!(Arc::ptr_eq(&cluster.shown(id), before), "{id} was judged again");
    }
    // The Gateway refers to another Ingress now.
    cluster.put::<IstioGateway>("edge", gateway(&annotation("back"), &json!({}), "*.edge.example.org"));
    assert_eq!([cluster.targets(&edge), cluster.targets(&of_edge)], ["", ""]);
    let before = cluster.shown(&edge);
    cluster.put::<Ingress>("front", ingress_at("192.0.2.2"));
    Index::<Ingress>::deleted(&cluster.discovery, &front);
    assert!(Arc::ptr_eq(&cluster.shown(&edge), &before));
    cluster.put::<Ingress>("back", ingress_at("192.0.2.3"));
    assert_eq!([cluster.targets(&edge), cluster.targets(&of_edge)], ["192.0.2.3", "192.0.2.3"]);
}

#[test]
fn a_service_concerns_the_gateways_that_select_it_and_no_others() {
    let cluster = Cluster::new();
    let selecting = |value: &str, host: &str| gateway(&json!({}), &json!({ "istio": value }), host);
    let edge = cluster.put::<IstioGateway>("edge", selecting("edge", "*.edge.example.org"));
    let other = cluster.put::<IstioGateway>("other", selecting("other", "*.other.example.org"));
    let of_edge = cluster.put::<VirtualService>("one", virtual_service("edge", "a.edge.example.org"));
    let of_other = cluster.put::<VirtualService>("two", virtual_service("other", "a.other.example.org"));
    let before = [cluster.shown(&other), cluster.shown(&of_other)];

    let service = cluster.put::<Service>("lb", service_at("192.0.2.1", "edge"));
    assert_eq!([cluster.targets(&edge), cluster.targets(&of_edge)], ["192.0.2.1", "192.0.2.1"]);
    cluster.put::<Service>("lb", service_at("192.0.2.2", "edge"));
    assert_eq!([cluster.targets(&edge), cluster.targets(&of_edge)], ["192.0.2.2", "192.0.2.2"]);
    for (id, before) in [&other, &of_other].into_iter().zip(&before) {
        assert!(Arc::ptr_eq(&cluster.shown(id), before), "{id} was judged again");
    }
    let unchanged = cluster.shown(&edge);
    cluster.put::<Service>("lb", service_at("192.0.2.2", "edge"));
    assert!(Arc::ptr_eq(&cluster.shown(&edge), &unchanged), "the Service is the same");
    // Who selected it before is concerned too.
    cluster.put::<Service>("lb", service_at("192.0.2.2", "other"));
    assert_eq!([cluster.targets(&edge), cluster.targets(&of_edge)], ["", ""]);
    assert_eq!([cluster.targets(&other), cluster.targets(&of_other)], ["192.0.2.2", "192.0.2.2"]);
    Index::<Service>::deleted(&cluster.discovery, &service);
    assert_eq!([cluster.targets(&other), cluster.targets(&of_other)], ["", ""]);
}

#[test]
fn a_route_in_two_versions_has_its_component_once() {
    let cluster = Cluster::new();
    let route = json!({ "metadata": { "annotations": { "sreportal.io/component": "Shop" } }, "spec": { "hostnames": ["a.example.org"] } });
    let component: Component = serde_json::from_value(json!({
        "apiVersion": "sreportal.io/v1alpha1", "kind": "Component",
        "metadata": {
            "name": "shop", "namespace": "a", "uid": "c", "labels": { "sreportal.io/managed-by": "source-controller" },
            "ownerReferences": [{ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "TLSRoute", "name": "tls", "uid": "tls" }],
        },
        "spec": { "displayName": "Shop", "group": "apps", "portalRef": "main", "status": "operational" },
    }))
    .unwrap();
    Index::<Component>::applied(&*cluster.objects, &component);
    let older = cluster.put::<TlsRouteAlpha>("tls", route.clone());
    assert!(cluster.objects.get(&older).is_some(), "it is the only version");
    let newer = cluster.put::<TlsRoute>("tls", route.clone());
    cluster.put::<TlsRouteAlpha>("tls", route);
    // The older version has no names of its own, and would delete the component that it does not ask for.
    assert!(cluster.objects.get(&older).is_none());
    assert!(cluster.objects.get(&newer).is_some());
    Index::<TlsRoute>::deleted(&cluster.discovery, &newer);
    assert!(cluster.objects.get(&older).is_some() && cluster.objects.get(&newer).is_none());
}
