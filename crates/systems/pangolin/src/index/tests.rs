use std::sync::Arc;

use serde_json::{Value, json};
use signpost_apis::ingress::{Ingress, IngressClass};
use signpost_apis::pangolin::{PangolinResource, PangolinTunnel};
use signpost_apis::service::Service;
use signpost_dns::Fqdn;
use signpost_engine::{Index, ObjectId, Queue};
use signpost_exposure::BaseDomain;

use super::{ChildState, FoundTunnel, Key, Keys, PangolinIndex, Reach};
use crate::settings::{Mode, Policy, TargetMode};

struct Folded {
    index: PangolinIndex,
    queue: Keys,
}

impl Folded {
    fn new() -> Self {
        Self::with(Policy::default())
    }

    fn with(policy: Policy) -> Self {
        let queue = Queue::new();
        Self { index: PangolinIndex::new(Arc::new(policy), queue.clone(), None), queue }
    }

    fn ingress(&self, name: &str, class: &str, host: &str, second: u32) {
        let ingress: Ingress = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "prod", "uid": format!("uid-{name}"), "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
            "spec": {"ingressClassName": class, "rules": [{"host": host, "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "app", "port": {"number": 80}}}}]}}]},
        }))
        .unwrap();
        self.index.applied(&ingress);
    }

    fn tunnel(&self, status: &Value) {
        let tunnel: PangolinTunnel =
            serde_json::from_value(json!({"metadata": {"name": "default", "namespace": "prod"}, "status": status}))
                .unwrap();
        self.index.applied(&tunnel);
    }

    /// The Ingresses that were touched, each ended as done.
    async fn touched(&self) -> Vec<String> {
        let mut names = Vec::new();
        while let Ok(job) = tokio::time::timeout(std::time::Duration::from_secs(2), self.queue.next()).await {
            if let Key::Ingress(id) = &job.key {
                names.push(id.name.clone());
            }
            self.queue.finish(&job.key, signpost_engine::Outcome::Done);
        }
        names.sort();
        names
    }

    fn named(&self, reference: &str, namespace: &str) -> FoundTunnel {
        self.index.find_tunnel(&self.index.lock(), reference, namespace)
    }

    fn holder(&self, host: &str) -> Option<String> {
        self.index.holder(&Fqdn::parse(host).unwrap()).map(|id| id.name.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn the_oldest_ingress_owns_a_host_and_whoever_is_concerned_is_touched() {
    let folded = Folded::new();
    folded.ingress("young", "pangolin", "app.example.com", 2);
    folded.touched().await;
    folded.ingress("old", "pangolin", "app.example.com", 1);
    assert_eq!(folded.touched().await, ["old", "young"]);
    assert_eq!(folded.holder("app.example.com").as_deref(), Some("old"));
    Index::<Ingress>::deleted(&folded.index, &ObjectId::new::<Ingress>(Some("prod"), "old"));
    assert_eq!(folded.touched().await, ["old", "young"]);
    assert_eq!(folded.holder("app.example.com").as_deref(), Some("young"));
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_touches_nothing_and_a_tunnel_that_becomes_ready_does() {
    let folded = Folded::new();
    folded.ingress("app", "pangolin", "app.example.com", 1);
    folded.tunnel(&json!({"status": "Waiting"}));
    folded.touched().await;
    folded.tunnel(&json!({"status": "Waiting", "conditions": [{"lastTransitionTime": "2026-01-01T00:00:00Z"}]}));
    assert!(folded.touched().await.is_empty());
    folded.tunnel(&json!({"status": "Ready"}));
    assert_eq!(folded.touched().await, ["app"]);
    assert!(matches!(folded.named("default", "prod"), FoundTunnel::One { ready: true, .. }));
    assert!(matches!(folded.named("default", "other"), FoundTunnel::One { .. }), "the only one of the name");
    assert_eq!(folded.named("other/default", "prod"), FoundTunnel::None);
}

#[tokio::test(start_paused = true)]
async fn a_class_of_another_controller_is_not_ours_and_one_of_ours_is_by_any_name() {
    let folded = Folded::new();
    let class = |name: &str, controller: &str| -> IngressClass {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"controller": controller}})).unwrap()
    };
    folded.ingress("app", "pangolin", "app.example.com", 1);
    folded.ingress("other", "public", "other.example.com", 1);
    assert_eq!(folded.touched().await, ["app"]);
    folded.index.applied(&class("public", crate::CONTROLLER));
    assert_eq!(folded.touched().await, ["other"]);
    assert_eq!(folded.holder("other.example.com").as_deref(), Some("other"));
    folded.index.applied(&class("pangolin", "theirs.example/controller"));
    assert_eq!(folded.touched().await, ["app"]);
    assert_eq!(folded.holder("app.example.com"), None);
}

#[tokio::test(start_paused = true)]
async fn a_service_touches_who_names_it_and_a_child_needs_label_and_owner() {
    let folded = Folded::new();
    folded.ingress("app", "pangolin", "app.example.com", 1);
    folded.touched().await;
    let service = |name: &str| -> Service {
        serde_json::from_value(
            json!({"metadata": {"name": name, "namespace": "prod"}, "spec": {"ports": [{"port": 80}]}}),
        )
        .unwrap()
    };
    folded.index.applied(&service("unrelated"));
    assert!(folded.touched().await.is_empty());
    folded.index.applied(&service("app"));
    assert_eq!(folded.touched().await, ["app"]);
    let child = |labels: Value, owners: Value| -> PangolinResource {
        serde_json::from_value(
            json!({"metadata": {"name": "pic", "namespace": "prod", "labels": labels, "ownerReferences": owners}}),
        )
        .unwrap()
    };
    let label = json!({super::UID_LABEL: "uid-app"});
    let owner = json!([{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "app", "uid": "uid-app"}]);
    for (labels, owners, ours) in
        [(json!({}), owner.clone(), false), (label.clone(), json!([]), false), (label, owner, true)]
    {
        folded.index.applied(&child(labels, owners));
        assert_eq!(!folded.touched().await.is_empty(), ours);
    }
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_replaced_by_ours_brings_its_ingresses() {
    let folded = Folded::new();
    let class = |controller: &str| {
        let class: IngressClass =
            serde_json::from_value(json!({"metadata": {"name": "pangolin"}, "spec": {"controller": controller}}))
                .unwrap();
        folded.index.applied(&class);
    };
    class("example.com/other");
    folded.ingress("app", "pangolin", "app.example.com", 1);
    assert!(folded.touched().await.is_empty());
    Index::<IngressClass>::deleted(&folded.index, &ObjectId::new::<IngressClass>(None, "pangolin"));
    class("pangolin.io/ingress-controller");
    assert_eq!(folded.touched().await, ["app"]);
    assert_eq!(folded.holder("app.example.com").as_deref(), Some("app"));
}

#[tokio::test(start_paused = true)]
async fn a_class_without_its_alias_claims_no_host() {
    let folded = Folded::new();
    folded.ingress("typo", "pangolin-", "app.example.com", 1);
    folded.ingress("app", "pangolin", "app.example.com", 2);
    assert_eq!(folded.holder("app.example.com").as_deref(), Some("app"));
}

#[tokio::test(start_paused = true)]
async fn the_domains_of_the_organisation_decide_which_host_is_claimed() {
    let folded = Folded::with(Policy { mode: Mode::Api, ..Policy::default() });
    let annotated: Ingress = serde_json::from_value(json!({
        "metadata": {"name": "young", "namespace": "prod", "uid": "uid-young", "creationTimestamp": "2026-01-01T00:00:09Z",
            "annotations": {"pangolin.ingress.k8s.io/subdomain": "shop"}},
        "spec": {"ingressClassName": "pangolin", "rules": [{"host": "x.apps.example.com"}]},
    }))
    .unwrap();
    folded.index.applied(&annotated);
    folded.ingress("old", "pangolin", "shop.apps.example.com", 1);
    assert_eq!(folded.holder("shop.example.com").as_deref(), Some("young"), "by the public suffix list");
    folded.touched().await;
    let domain = |name: &str| BaseDomain {
        name: Fqdn::parse(name).unwrap(),
        id: Some("d".to_owned()),
        shape: signpost_exposure::Shape::Tree,
        verified: true,
    };
    folded.index.set_organization(&[domain("apps.example.com")].into());
    assert_eq!(folded.touched().await, ["young"]);
    assert_eq!(folded.holder("shop.example.com"), None);
    assert_eq!(folded.holder("shop.apps.example.com").as_deref(), Some("old"));
    let young = folded.index.claimant(&Arc::new(ObjectId::new::<Ingress>(Some("prod"), "young"))).unwrap();
    let taken = folded.index.taken(&young);
    assert_eq!(taken.into_values().map(|id| id.name.clone()).collect::<Vec<_>>(), ["old"]);
    folded.index.set_organization(&[domain("apps.example.com")].into());
    assert!(folded.touched().await.is_empty(), "the same domains again");
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_deleted_withdraws_nothing_that_was_exposed_with_it() {
    let folded = Folded::new();
    let class = |controller: &str| -> IngressClass {
        serde_json::from_value(json!({"metadata": {"name": "public"}, "spec": {"controller": controller}})).unwrap()
    };
    let deleted = || Index::<IngressClass>::deleted(&folded.index, &ObjectId::new::<IngressClass>(None, "public"));
    let exposed: Ingress = serde_json::from_value(json!({
        "metadata": {"name": "exposed", "namespace": "prod", "uid": "uid-exposed",
            "annotations": {super::APPLIED_ANNOTATION: "0123@public"}},
        "spec": {"ingressClassName": "public", "rules": [{"host": "exposed.example.com"}]},
    }))
    .unwrap();
    folded.index.applied(&class(crate::CONTROLLER));
    folded.index.applied(&exposed);
    folded.ingress("new", "public", "new.example.com", 1);
    folded.touched().await;
    deleted();
    assert_eq!(folded.touched().await, ["new"], "nothing was noted for it");
    assert_eq!(folded.holder("exposed.example.com").as_deref(), Some("exposed"));
    assert_eq!(folded.holder("new.example.com"), None);
    // A class of another controller is a decision.
    folded.index.applied(&class("theirs.example/controller"));
    assert_eq!(folded.touched().await, ["exposed"]);
    assert_eq!(folded.holder("exposed.example.com"), None);
    deleted();
    let other: Ingress = serde_json::from_value(json!({
        "metadata": {"name": "exposed", "namespace": "prod", "uid": "uid-exposed",
            "annotations": {super::APPLIED_ANNOTATION: "0123@public"}},
        "spec": {"ingressClassName": "nginx", "rules": [{"host": "exposed.example.com"}]},
    }))
    .unwrap();
    folded.index.applied(&other);
    assert_eq!(folded.holder("exposed.example.com"), None, "the class of the Ingress was changed");
}

#[tokio::test(start_paused = true)]
async fn a_pass_of_every_ingress_leaves_those_of_other_classes_alone() {
    let folded = Folded::new();
    folded.ingress("ours", "pangolin", "ours.example.com", 1);
    folded.ingress("theirs", "nginx", "theirs.example.com", 1);
    folded.touched().await;
    folded.index.touch_all();
    assert_eq!(folded.touched().await, ["ours"]);
}

/// A resource that was left for the next owner of its host is looked at again when that one goes without having taken it.
#[tokio::test(start_paused = true)]
async fn whoever_left_a_resource_comes_again_when_nobody_wants_its_host() {
    let folded = Folded::with(Policy { mode: Mode::Api, ..Policy::default() });
    let host = Fqdn::parse("app.example.com").unwrap();
    let id = |name: &str| ObjectId::new::<Ingress>(Some("prod"), name);
    let old = Key::Ingress(Arc::new(id("old")));
    for (taken_over, expected) in [(false, vec!["new", "old"]), (true, vec!["new"])] {
        for deleted in [true, false] {
            folded.ingress("new", "pangolin", "app.example.com", 1);
            folded.index.leave(&host, &old);
            if taken_over {
                folded.index.take_over(&host);
            }
            assert_eq!(folded.touched().await, ["new"]);
            if deleted {
                Index::<Ingress>::deleted(&folded.index, &id("new"));
            } else {
                folded.ingress("new", "pangolin", "other.example.com", 1);
            }
            assert_eq!(folded.touched().await, expected, "taken over: {taken_over}, deleted: {deleted}");
        }
    }
    folded.index.leave(&host, &old);
    assert_eq!(folded.touched().await, ["old"], "nobody wants it already");
    // A third Ingress that claims the host takes it over instead.
    folded.ingress("new", "pangolin", "app.example.com", 1);
    folded.ingress("third", "pangolin", "app.example.com", 2);
    folded.index.leave(&host, &old);
    folded.touched().await;
    Index::<Ingress>::deleted(&folded.index, &id("new"));
    assert_eq!(folded.touched().await, ["new", "third"]);
    Index::<Ingress>::deleted(&folded.index, &id("third"));
    assert_eq!(folded.touched().await, ["old", "third"]);
}

/// What a pass may not delete: a host that its Ingress did not want when the pass was planned, and wants by now.
#[tokio::test(start_paused = true)]
async fn a_host_is_wanted_again_only_when_its_ingress_has_changed_since() {
    let folded = Folded::new();
    let id = Arc::new(ObjectId::new::<Ingress>(Some("prod"), "app"));
    let again = |host: &str, then: Option<&super::Claimant>| folded.index.is_wanted_again(&id, host, then);
    folded.ingress("app", "pangolin", "other.example.com", 1);
    let planned = folded.index.claimant(&id).unwrap();
    let then = Some(&*planned);
    assert!(!again("other.example.com", then), "one of two resources for a host is deleted");
    assert!(!again("app.example.com", then));
    folded.ingress("app", "pangolin", "app.example.com", 1);
    assert!(again("app.example.com", then));
    assert!(again("app.example.com", None), "it was deleted, and is there again");
    assert!(!again("other.example.com", then), "it changed, and does not want this one");
    Index::<Ingress>::deleted(&folded.index, &id);
    assert!(!again("app.example.com", then));
}

/// A PangolinResource keeps the domain that its organisation had, also when the resource is seen before or after its Ingress.
#[tokio::test(start_paused = true)]
async fn a_resource_keeps_its_domain_while_the_organisation_is_not_known() {
    for resource_first in [false, true] {
        let folded = Folded::new();
        folded.tunnel(&json!({"status": "Ready"}));
        let ingress: Ingress = serde_json::from_value(json!({
            "metadata": {"name": "app", "namespace": "prod", "uid": "uid-app", "creationTimestamp": "2026-01-01T00:00:09Z",
                "annotations": {"pangolin.ingress.k8s.io/subdomain": "shop"}},
            "spec": {"ingressClassName": "pangolin", "rules": [{"host": "x.apps.example.com"}]},
        }))
        .unwrap();
        let child: PangolinResource = serde_json::from_value(json!({
            "metadata": {"name": "pic", "namespace": "prod", "labels": {super::UID_LABEL: "uid-app"},
                "ownerReferences": [{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "app", "uid": "uid-app"}]},
            "spec": {"httpConfig": {"domainId": "d1", "domainName": "apps.example.com", "subdomain": "shop"}},
        }))
        .unwrap();
        if resource_first {
            folded.index.applied(&child);
        }
        folded.index.applied(&ingress);
        if !resource_first {
            assert_eq!(folded.holder("shop.example.com").as_deref(), Some("app"), "by the public suffix list");
            folded.index.applied(&child);
        }
        assert_eq!(folded.holder("shop.apps.example.com").as_deref(), Some("app"));
        assert_eq!(folded.holder("shop.example.com"), None);
        let app = folded.index.claimant(&Arc::new(ObjectId::new::<Ingress>(Some("prod"), "app"))).unwrap();
        let FoundTunnel::One { domains: Some(domains), .. } = folded.index.tunnel(&app) else { panic!("no domains") };
        assert_eq!((domains.len(), domains[0].id.as_deref()), (1, Some("d1")));
        // Its end is the end of what it kept.
        Index::<PangolinResource>::deleted(&folded.index, &ObjectId::of(&child));
        assert_eq!(folded.holder("shop.example.com").as_deref(), Some("app"));
    }
}

/// In the mode `service` addresses are not stored, so that a changed address touches no Ingress.
#[tokio::test(start_paused = true)]
async fn c35_a_service_is_reached_by_its_name_or_by_an_address() {
    let at = |address: &str| Reach::At(address.into());
    let balanced = |addresses: serde_json::Value| json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}, "status": {"loadBalancer": {"ingress": addresses}}});
    let (cluster, balancer) = (TargetMode::ClusterIp, TargetMode::LoadBalancer);
    for (mode, service, expected) in [
        (TargetMode::Service, json!({"spec": {"clusterIP": "10.0.0.1"}}), Reach::Name),
        (TargetMode::Service, json!({"spec": {"clusterIP": "None"}}), Reach::Name),
        (cluster, json!({"spec": {"clusterIP": "10.0.0.1"}}), at("10.0.0.1")),
        (cluster, json!({"spec": {"clusterIP": "fd00::1", "clusterIPs": ["fd00::1", "10.0.0.1"]}}), at("10.0.0.1")),
        (cluster, json!({"spec": {"clusterIP": "FD00:0::1", "clusterIPs": ["FD00:0::1"]}}), at("fd00::1")),
        (cluster, json!({"spec": {"clusterIP": "None"}}), Reach::Not("is headless and has no cluster IP")),
        (cluster, json!({"spec": {"clusterIP": ""}}), Reach::Not("has no cluster IP yet")),
        (cluster, json!({}), Reach::Not("has no cluster IP yet")),
        (cluster, json!({"spec": {"clusterIP": "elsewhere"}}), Reach::Not("has no cluster IP yet")),
        (cluster, json!({"spec": {"type": "ExternalName", "externalName": "db.example.net."}}), at("db.example.net")),
        (balancer, json!({"spec": {"type": "ExternalName", "externalName": "db.example.net"}}), at("db.example.net")),
        (balancer, balanced(json!([{"ip": "2001:db8::1"}, {"ip": "192.0.2.1"}])), at("192.0.2.1")),
        (balancer, balanced(json!([{"hostname": "lb.example.net", "ip": "2001:db8::1"}])), at("2001:db8::1")),
        (balancer, balanced(json!([{"hostname": ""}, {"hostname": "lb.example.net"}])), at("lb.example.net")),
        (balancer, balanced(json!([])), Reach::Not("has no address of a load balancer yet")),
        (
            balancer,
            json!({"spec": {"type": "NodePort"}, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}),
            Reach::Not("is not of type LoadBalancer and has no address outside the cluster"),
        ),
    ] {
        let read: Service = serde_json::from_value(service.clone()).unwrap();
        assert_eq!(super::read::service(&read, mode).reach, expected, "{mode:?} {service}");
    }
    let folded = Folded::new();
    folded.ingress("app", "pangolin", "app.example.com", 1);
    let service = |address: &str| -> Service {
        serde_json::from_value(json!({"metadata": {"name": "app", "namespace": "prod"},
            "spec": {"clusterIP": address, "ports": [{"port": 80}]}}))
        .unwrap()
    };
    folded.index.applied(&service("10.0.0.1"));
    folded.touched().await;
    folded.index.applied(&service("10.0.0.2"));
    assert_eq!(folded.touched().await, [""; 0]);
}

/// C10: the fields that pangolin-operator writes count, then those of the seed; a report about an older generation counts for nothing.
#[test]
fn c10_the_state_of_a_resource_is_read_from_the_real_fields_then_from_those_of_the_seed() {
    let ready = || ChildState::Ready { host: None, targets: true };
    for (status, expected) in [
        (json!({"status": "Ready", "targetIds": ["1"]}), ready()),
        (json!({"phase": "Ready", "targetIds": ["1"]}), ready()),
        (json!({"status": "Waiting", "phase": "Ready", "targetIds": ["1"]}), ChildState::Waiting),
        (json!({"phase": "Failed"}), ChildState::Failed("no message".to_owned())),
        (json!({"phase": "Pending"}), ChildState::Waiting),
        (json!({}), ChildState::Waiting),
        (json!({"status": "Ready", "targetIds": ["1"], "observedGeneration": 2}), ready()),
        (json!({"status": "Ready", "targetIds": ["1"], "observedGeneration": 1}), ChildState::Waiting),
        (json!({"status": "Error", "observedGeneration": 1}), ChildState::Waiting),
        (
            json!({"status": "Ready", "targetIds": ["1"], "conditions": [{"type": "Ready", "status": "False"}]}),
            ChildState::Waiting,
        ),
    ] {
        let child: PangolinResource = serde_json::from_value(json!({
            "metadata": {"name": "pic", "namespace": "prod", "generation": 2, "labels": {super::UID_LABEL: "uid-app"},
                "ownerReferences": [{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "app", "uid": "uid-app"}]},
            "spec": {"httpConfig": {"domainName": "example.com", "subdomain": "app"}},
            "status": status,
        }))
        .unwrap();
        let (owner, facts) = super::read::child(&child).unwrap();
        assert_eq!(
            (owner.as_str(), facts.host.as_deref(), facts.state),
            ("app", Some("app.example.com"), expected),
            "{status}"
        );
    }
}
