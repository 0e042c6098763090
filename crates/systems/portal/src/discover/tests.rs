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

#[test]
fn repeated_gateways_of_a_virtual_service_count_once() {
    let cluster = Cluster::new();
    let open = |host: &str| gateway(&json!({}), &json!({}), host);
    cluster.put::<IstioGateway>("edge", open("*.edge.example.org"));
    let body = |hosts: &[String], gateways: &[String]| json!({ "metadata": {}, "spec": { "hosts": hosts, "gateways": gateways } });
    let gateways_of = |id: &ObjectId| match &cluster.discovery.lock().found.get(id).unwrap().content {
        Content::VirtualService(_, gateways) => gateways.len(),
        other => panic!("{other:?}"),
    };
    let mut hosts: Vec<String> = (0..2_000).map(|number| format!("h{number}.other.example.org")).collect();
    hosts.push("a.edge.example.org".to_owned());
    let id = cluster.put::<VirtualService>("one", body(&hosts, &vec!["edge".to_owned(); 20_000]));
    assert_eq!((gateways_of(&id), cluster.shown(&id)[0].names.len()), (1, 1));
    let all: Vec<String> = (0..1_000).map(|number| format!("g{number}")).collect();
    let id = cluster.put::<VirtualService>("two", body(&hosts, &all));
    assert_eq!(gateways_of(&id), MOST_GATEWAYS);
}

#[test]
fn hosts_of_a_virtual_service_are_limited_together_with_its_gateways() {
    let cluster = Cluster::new();
    let gateways: Vec<String> = (0..MOST_GATEWAYS).map(|number| format!("g{number}")).collect();
    for name in &gateways {
        cluster.put::<IstioGateway>(name, gateway(&json!({}), &json!({}), "*.example.org"));
    }
    let hosts: Vec<String> = (0..1_000).map(|number| format!("h{number}.example.org")).collect();
    let id = cluster
        .put::<VirtualService>("many", json!({ "metadata": {}, "spec": { "hosts": hosts, "gateways": gateways } }));
    let most = MOST / MOST_GATEWAYS;
    assert_eq!(cluster.shown(&id)[0].names.len(), most);
    assert_eq!(cluster.objects.get(&id).unwrap().dns().unwrap().omitted, 1_000 - most, "they are reported");
}

#[test]
fn hosts_of_a_route_are_limited_together_with_the_targets_of_its_gateway() {
    let cluster = Cluster::new();
    let list = |count: usize, name: fn(usize) -> String| (0..count).map(name).collect::<Vec<_>>().join(",");
    let prefix = "external-dns.alpha.kubernetes.io";
    let targets = list(5_000, |number| format!("t{number}.example.net"));
    let listener = json!({ "name": "web", "port": 80, "protocol": "HTTP" });
    cluster.put::<Gateway>(
        "gw",
        json!({ "metadata": { "annotations": { format!("{prefix}/target"): targets } }, "spec": { "listeners": [listener] } }),
    );
    let accepted = json!({ "type": "Accepted", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let hosts = list(9_999, |number| format!("h{number}.example.org"));
    let route = cluster.put::<HttpRoute>(
        "web",
        json!({
            "metadata": { "annotations": { format!("{prefix}/hostname"): hosts } },
            "spec": { "hostnames": ["a.example.org"], "parentRefs": [{ "name": "gw" }] },
            "status": { "parents": [{ "parentRef": { "name": "gw" }, "conditions": [accepted] }] },
        }),
    );
    assert_eq!(cluster.shown(&route)[0].names.len(), 100);
    assert_eq!(cluster.objects.get(&route).unwrap().dns().unwrap().omitted, 9_900, "they are reported");
}
