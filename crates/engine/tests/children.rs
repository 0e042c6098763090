//! Child objects on the sandbox and on the real API server: created once, corrected, deleted. Foreign objects are not touched.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failed step by panicking")]

use std::time::Duration;

use http::Method;
use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, Service},
        networking::v1::Ingress,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use signpost_engine::{
    Child, ChildApplied, ChildDeleted, ChildError, Proof, WriteError, Writer, health::Health, lease::Fence,
    metrics::Metrics, write::WriterOptions,
};
use signpost_testkit::{Cluster, Fault, FaultProxy, Rule, eventually, on_both};

fn writer(client: Client) -> Writer {
    Writer::new(client, WriterOptions::default(), Fence::open(), Health::new(Metrics::new()), Metrics::new())
}

fn label() -> Proof {
    Proof::Label { key: "signpost.dev/owner".into(), value: "test".into() }
}

fn child(namespace: &str, name: &str) -> Child {
    Child::new::<ConfigMap>(Some(namespace), name, label())
}

/// A writer whose requests pass a proxy that counts them and can delay them.
async fn through_proxy(cluster: &Cluster) -> (FaultProxy, Writer) {
    let mut config = cluster.config().await;
    let proxy = FaultProxy::start(&config.cluster_url.to_string()).await;
    config.cluster_url = proxy.url().parse().unwrap();
    (proxy, writer(Client::try_from(config).unwrap()))
}

async fn read(cluster: &Cluster, namespace: &str, name: &str) -> Option<ConfigMap> {
    Api::<ConfigMap>::namespaced(cluster.client(), namespace).get_opt(name).await.unwrap()
}

async fn make(cluster: &Cluster, namespace: &str, object: Value) -> ConfigMap {
    let object: ConfigMap = serde_json::from_value(object).unwrap();
    Api::namespaced(cluster.client(), namespace).create(&PostParams::default(), &object).await.unwrap()
}

async fn merge(cluster: &Cluster, namespace: &str, name: &str, patch: Value) {
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), namespace);
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

on_both! {
    async fn any_of_several_proofs_is_enough_and_a_lost_label_is_added_again(cluster) {
        let namespace = cluster.namespace("children").await;
        let writer = writer(cluster.client());
        let owner = make(&cluster, &namespace, json!({ "metadata": { "name": "owner" } })).await;
        let owner = OwnerReference {
            api_version: "v1".into(), kind: "ConfigMap".into(), name: "owner".into(), uid: owner.uid().unwrap(), ..OwnerReference::default()
        };
        let labels = Proof::Labels([("a", "1"), ("b", "2")].map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let proof = Proof::Any(vec![labels.clone(), Proof::Owner(Box::new(owner))]);
        let child = Child::new::<ConfigMap>(Some(&namespace), "x", proof);
        let content = json!({ "data": { "k": "v" } });
        assert_eq!(writer.apply_child(&child, &content).await, Ok(ChildApplied::Made));
        merge(&cluster, &namespace, "x", json!({ "metadata": { "labels": { "b": null } } })).await;
        // Without a watch, the writer remembers its own write; another process reads the object.
        let fresh = self::writer(cluster.client());
        assert_eq!(fresh.apply_child(&child, &content).await, Ok(ChildApplied::Changed));
        assert_eq!(read(&cluster, &namespace, "x").await.unwrap().labels()["b"], "2");
        make(&cluster, &namespace, json!({ "metadata": { "name": "y", "labels": { "a": "1" } } })).await;
        let other = Child::new::<ConfigMap>(Some(&namespace), "y", labels);
        let refused = fresh.delete_child(&other).await.unwrap_err();
        assert!(matches!(&refused, ChildError::NotOurs { proof, .. } if proof == "labels a=1,b=2"), "{refused}");
    }

    async fn a_child_is_created_once_and_not_sent_again_unchanged(cluster) {
        let namespace = cluster.namespace("children").await;
        let (proxy, writer) = through_proxy(&cluster).await;
        let content = json!({ "metadata": { "labels": { "a": "b" }, "annotations": {} }, "data": { "k": "v", "gone": null } });
        let child = child(&namespace, "a");
        assert_eq!(writer.apply_child(&child, &content).await, Ok(ChildApplied::Made));
        assert_eq!(writer.apply_child(&child, &content).await, Ok(ChildApplied::Unchanged));
        // Another process, without any memory, finds it up to date too.
        let (other, fresh) = through_proxy(&cluster).await;
        assert_eq!(fresh.apply_child(&child, &content).await, Ok(ChildApplied::Unchanged));
        assert_eq!((proxy.writes(), other.writes()), (1, 0));
        let made = read(&cluster, &namespace, "a").await.unwrap();
        assert_eq!(made.labels().iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>(), ["a=b", "signpost.dev/owner=test"]);
        assert_eq!(serde_json::to_value(&made.data).unwrap(), json!({ "k": "v" }));
    }

    async fn foreign_changes_are_reverted_and_foreign_additions_kept(cluster) {
        let namespace = cluster.namespace("children").await;
        let (proxy, writer) = through_proxy(&cluster).await;
        let child = child(&namespace, "a");
        let content = json!({ "data": { "k": "v" } });
        writer.apply_child(&child, &content).await.unwrap();
        merge(&cluster, &namespace, "a", json!({ "data": { "theirs": "x" } })).await;
        assert_eq!(writer.apply_child(&child, &content).await, Ok(ChildApplied::Unchanged));
        merge(&cluster, &namespace, "a", json!({ "data": { "k": "tampered" } })).await;
        assert_eq!(writer.apply_child(&child, &content).await, Ok(ChildApplied::Changed));
        let data = read(&cluster, &namespace, "a").await.unwrap().data;
        assert_eq!(serde_json::to_value(data).unwrap(), json!({ "k": "v", "theirs": "x" }));
        // A field that is no longer applied is removed; a foreign field is kept.
        assert_eq!(writer.apply_child(&child, &json!({ "data": { "l": "w" } })).await, Ok(ChildApplied::Changed));
        let data = read(&cluster, &namespace, "a").await.unwrap().data;
        assert_eq!(serde_json::to_value(data).unwrap(), json!({ "l": "w", "theirs": "x" }));
        assert_eq!(proxy.writes(), 3);
    }

    async fn lists_and_server_defaults_cause_no_write(cluster) {
        let namespace = cluster.namespace("children").await;
        let (proxy, writer) = through_proxy(&cluster).await;
        let service = Child::new::<Service>(Some(&namespace), "web", label());
        let ports = |last: u16| json!({ "spec": { "selector": { "app": "web" }, "ports": [
            { "name": "http", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": last },
        ] } });
        assert_eq!(writer.apply_child(&service, &ports(1)).await, Ok(ChildApplied::Made));
        assert_eq!(writer.apply_child(&service, &ports(1)).await, Ok(ChildApplied::Unchanged));
        assert_eq!(writer.apply_child(&service, &ports(2)).await, Ok(ChildApplied::Changed));
        let ingress = Child::new::<Ingress>(Some(&namespace), "web", label());
        let rules = |host: &str| json!({ "spec": { "rules": [{ "host": host, "http": { "paths": [
            { "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "web", "port": { "number": 80 } } } },
        ] } }] } });
        assert_eq!(writer.apply_child(&ingress, &rules("a.example.org")).await, Ok(ChildApplied::Made));
        assert_eq!(writer.apply_child(&ingress, &rules("a.example.org")).await, Ok(ChildApplied::Unchanged));
        assert_eq!(writer.apply_child(&ingress, &rules("b.example.org")).await, Ok(ChildApplied::Changed));
        assert_eq!(proxy.writes(), 4);
    }

    async fn a_foreign_object_is_neither_changed_nor_deleted(cluster) {
        let namespace = cluster.namespace("children").await;
        let (proxy, writer) = through_proxy(&cluster).await;
        let owner: OwnerReference = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": "11111111-1111-1111-1111-111111111111",
        })).unwrap();
        let theirs = [
            ("plain", json!({})),
            ("other-value", json!({ "labels": { "signpost.dev/owner": "another" } })),
            ("other-place", json!({ "annotations": { "signpost.dev/owner": "test" } })),
        ];
        for (name, mut metadata) in theirs {
            metadata["name"] = json!(name);
            let before = make(&cluster, &namespace, json!({ "metadata": metadata, "data": { "k": "theirs" } })).await;
            let proofs = [label(), Proof::Owner(Box::new(owner.clone())), Proof::Applied,
                Proof::Annotation { key: "signpost.dev/owner".into(), value: "me".into() }];
            for proof in proofs {
                let child = Child::new::<ConfigMap>(Some(&namespace), name, proof.clone());
                let refused = ChildError::NotOurs { id: child.id.clone(), proof: proof.to_string() };
                assert_eq!(writer.apply_child(&child, &json!({ "data": { "k": "ours" } })).await, Err(refused.clone()));
                assert_eq!(writer.delete_child(&child).await, Err(refused));
            }
            let after = read(&cluster, &namespace, name).await.unwrap();
            assert_eq!(after, before, "{name}");
        }
        assert_eq!(proxy.writes(), 0);
    }

    async fn every_proof_is_recognised_in_the_applied_object(cluster) {
        let namespace = cluster.namespace("children").await;
        let writer = writer(cluster.client());
        let parent = make(&cluster, &namespace, json!({ "metadata": { "name": "parent" } })).await;
        let owner = OwnerReference { api_version: "v1".into(), kind: "ConfigMap".into(), name: "parent".into(),
            uid: parent.uid().unwrap(), ..OwnerReference::default() };
        let proofs = [label(), Proof::Annotation { key: "signpost.dev/owner".into(), value: "test".into() },
            Proof::Owner(Box::new(owner)), Proof::Applied];
        for (number, proof) in proofs.into_iter().enumerate() {
            let child = Child::new::<ConfigMap>(Some(&namespace), &format!("c{number}"), proof);
            let content = json!({ "data": { "k": "v" } });
            assert_eq!(writer.apply_child(&child, &content).await, Ok(ChildApplied::Made), "{}", child.proof);
            assert_eq!(writer.apply_child(&child, &content).await, Ok(ChildApplied::Unchanged), "{}", child.proof);
            assert_eq!(writer.delete_child(&child).await, Ok(ChildDeleted::Asked), "{}", child.proof);
            assert_eq!(writer.delete_child(&child).await, Ok(ChildDeleted::Absent), "{}", child.proof);
        }
    }

    async fn an_object_that_others_created_first_is_kept(cluster) {
        let namespace = cluster.namespace("children").await;
        let (proxy, writer) = through_proxy(&cluster).await;
        // Between our read, which finds nothing, and our write, which is delayed, another object is created.
        proxy.add(Rule::next(1, Fault::Hang).method(Method::PATCH));
        let ours = child(&namespace, "a");
        let applying = tokio::spawn(async move { writer.apply_child(&ours, &json!({ "data": { "l": "ours" } })).await });
        eventually("the write is under way", Duration::from_mins(2), || async {
            if proxy.writes() == 1 { Ok(()) } else { Err("not yet") }
        }).await;
        let before = make(&cluster, &namespace, json!({ "metadata": { "name": "a" }, "data": { "k": "theirs" } })).await;
        proxy.clear();
        let refused = applying.await.unwrap();
        assert!(matches!(refused, Err(ChildError::NotOurs { .. })), "{refused:?}");
        assert_eq!(read(&cluster, &namespace, "a").await.unwrap(), before, "not a field of it was touched");
    }

    async fn a_child_replaced_by_a_foreign_object_is_not_deleted(cluster) {
        let namespace = cluster.namespace("children").await;
        let (proxy, writer) = through_proxy(&cluster).await;
        let ours = child(&namespace, "a");
        writer.apply_child(&ours, &json!({ "data": { "k": "v" } })).await.unwrap();
        proxy.add(Rule::next(1, Fault::Hang).method(Method::DELETE));
        let deleting = tokio::spawn(async move { writer.delete_child(&ours).await });
        eventually("the deletion is under way", Duration::from_mins(2), || async {
            if proxy.writes() == 2 { Ok(()) } else { Err("not yet") }
        }).await;
        let api: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
        api.delete("a", &DeleteParams::default()).await.unwrap();
        let before = make(&cluster, &namespace, json!({ "metadata": { "name": "a" }, "data": { "k": "theirs" } })).await;
        proxy.clear();
        let refused = deleting.await.unwrap();
        assert!(matches!(refused, Err(ChildError::NotOurs { .. })), "{refused:?}");
        assert_eq!(read(&cluster, &namespace, "a").await.unwrap(), before);
    }

    async fn a_child_that_is_being_deleted_is_waited_for(cluster) {
        let namespace = cluster.namespace("children").await;
        let writer = writer(cluster.client());
        let ours = child(&namespace, "a");
        let content = json!({ "data": { "k": "v" } });
        writer.apply_child(&ours, &content).await.unwrap();
        merge(&cluster, &namespace, "a", json!({ "metadata": { "finalizers": ["example.org/theirs"] } })).await;
        assert_eq!(writer.delete_child(&ours).await, Ok(ChildDeleted::Asked));
        assert_eq!(writer.delete_child(&ours).await, Ok(ChildDeleted::Absent));
        assert_eq!(writer.apply_child(&ours, &content).await, Err(ChildError::Leaving { id: ours.id.clone() }));
        merge(&cluster, &namespace, "a", json!({ "metadata": { "finalizers": null } })).await;
        assert_eq!(writer.apply_child(&ours, &content).await, Ok(ChildApplied::Made));
    }

    async fn a_child_that_cannot_be_created_reports_why(cluster) {
        let writer = writer(cluster.client());
        let lost = child("no-such-namespace", "a");
        let answer = writer.apply_child(&lost, &json!({ "data": { "k": "v" } })).await;
        assert!(matches!(&answer, Err(ChildError::Write(WriteError::Transient(why))) if why.contains("namespace")), "{answer:?}");
        let namespace = cluster.namespace("children").await;
        let answer = writer.apply_child(&child(&namespace, "a"), &json!("text")).await;
        assert!(matches!(&answer, Err(ChildError::Write(WriteError::Invalid(_)))), "{answer:?}");
        let bad = Child::new::<Service>(Some(&namespace), "a", label());
        let answer = writer.apply_child(&bad, &json!({ "spec": { "ports": [{ "port": 99_999 }] } })).await;
        assert!(matches!(&answer, Err(ChildError::Write(WriteError::Invalid(why))) if why.contains("port")), "{answer:?}");
        // Nothing is written by a replica that is stopping.
        writer.close();
        let answer = writer.apply_child(&child(&namespace, "b"), &json!({ "data": { "k": "v" } })).await;
        assert!(matches!(&answer, Err(ChildError::Write(WriteError::Transient(_)))), "{answer:?}");
        assert!(read(&cluster, &namespace, "b").await.is_none());
    }

    async fn many_children_are_answered_in_order(cluster) {
        let namespace = cluster.namespace("children").await;
        let writer = writer(cluster.client());
        make(&cluster, &namespace, json!({ "metadata": { "name": "c7" } })).await;
        let all = || (0..40).map(|n| (child(&namespace, &format!("c{n}")), json!({ "data": { "n": n.to_string() } }))).collect();
        for expected in [ChildApplied::Made, ChildApplied::Unchanged] {
            for (number, answer) in writer.apply_children(all()).await.into_iter().enumerate() {
                match answer {
                    Err(ChildError::NotOurs { id, .. }) => assert_eq!((number, id.name.as_str()), (7, "c7")),
                    other => assert_eq!(other, Ok(expected), "{number}"),
                }
            }
        }
    }
}
