//! Missing permissions: on the sandbox, which denies single requests, and on the real API server with RBAC.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failed step by panicking")]

use std::time::Duration;

use k8s_openapi::api::{
    core::v1::ConfigMap,
    networking::v1::Ingress,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use signpost_engine::{
    Child, ChildError, Event, EventKind, Identity, ObjectWrite, Operator, OperatorOptions, Proof, Recorder, WriteError,
    Writer,
    health::{Check, Health},
};
use signpost_sandbox::DenyRule;
use signpost_testkit::{Cluster, eventually, on_both};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long anything may take, on the busiest machine.
const TIMEOUT: Duration = Duration::from_mins(2);

/// The permissions of the replica of this suite.
const PERMISSIONS: [(&str, &str, &[&str]); 3] = [
    ("", "configmaps", &["get", "create", "patch", "delete"]),
    ("", "events", &["create", "patch"]),
    ("networking.k8s.io", "ingresses/status", &["patch"]),
];

/// A replica with few permissions, in a namespace of its own.
struct Replica {
    cluster: Cluster,
    namespace: String,
    writer: Writer,
    recorder: Recorder,
    health: Health,
    map: ConfigMap,
    ingress: Ingress,
    _stop: DropGuard,
}

impl Replica {
    async fn start(cluster: Cluster) -> Self {
        let namespace = cluster.namespace("permissions").await;
        let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
        let map = Api::namespaced(cluster.client(), &namespace).create(&PostParams::default(), &map).await.unwrap();
        let ingress: Ingress = serde_json::from_value(json!({
            "metadata": { "name": "a" },
            "spec": { "defaultBackend": { "service": { "name": "a", "port": { "number": 80 } } } },
        }))
        .unwrap();
        let ingress =
            Api::namespaced(cluster.client(), &namespace).create(&PostParams::default(), &ingress).await.unwrap();
        let client = cluster.client_as(&namespace, &["system:authenticated"]).await;
        let operator = Operator::new(client, OperatorOptions::default());
        let (writer, recorder, health) = (operator.writer(), operator.recorder(), operator.health());
        let stop = CancellationToken::new();
        tokio::spawn(operator.run(stop.clone()));
        let replica = Self { cluster, namespace, writer, recorder, health, map, ingress, _stop: stop.drop_guard() };
        replica.deny("", "").await;
        replica
    }

    /// Takes one permission away and grants all others.
    async fn deny(&self, verb: &str, resource: &str) {
        if let Some(sandbox) = self.cluster.sandbox() {
            let rule = DenyRule::new(verb, resource);
            sandbox.deny(if verb.is_empty() { Vec::new() } else { vec![rule] });
            return;
        }
        let rules: Vec<_> = PERMISSIONS
            .iter()
            .map(|(group, own, verbs)| {
                let verbs: Vec<_> = verbs.iter().filter(|own_verb| (**own_verb, *own) != (verb, resource)).collect();
                json!({ "apiGroups": [group], "resources": [own], "verbs": verbs })
            })
            .filter(|rule| rule["verbs"] != json!([]))
            .collect();
        let (role, binding) = ("rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io");
        let params = PatchParams::apply("test").force();
        Api::<Role>::namespaced(self.cluster.client(), &self.namespace)
            .patch(
                "few",
                &params,
                &Patch::Apply(
                    json!({ "apiVersion": role, "kind": "Role", "metadata": { "name": "few" }, "rules": rules }),
                ),
            )
            .await
            .unwrap();
        Api::<RoleBinding>::namespaced(self.cluster.client(), &self.namespace)
            .patch(
                "few",
                &params,
                &Patch::Apply(json!({
                    "apiVersion": role, "kind": "RoleBinding", "metadata": { "name": "few" },
                    "roleRef": { "apiGroup": binding, "kind": "Role", "name": "few" },
                    "subjects": [{ "apiGroup": binding, "kind": "User", "name": self.namespace }],
                })),
            )
            .await
            .unwrap();
    }

    /// Makes every kind of write once, with a new content each time.
    async fn work(&self, number: u32) {
        let labels = json!({ "labels": { "number": number.to_string() } });
        let metadata = ObjectWrite::metadata(&Identity::of(&self.map), labels);
        let balancer = json!({ "loadBalancer": { "ingress": [{ "ip": format!("192.0.2.{}", number % 250) }] } });
        let status = ObjectWrite::status(&Identity::of(&self.ingress), balancer);
        for write in [metadata, status] {
            let answer = self.writer.write(&write).await;
            assert!(matches!(answer, Ok(_) | Err(WriteError::Forbidden(_))), "{answer:?}");
        }
        let proof = Proof::Label { key: "signpost.dev/owner".into(), value: "test".into() };
        let child = Child::new::<ConfigMap>(Some(&self.namespace), "child", proof);
        let applied = self.writer.apply_child(&child, &json!({ "data": { "number": number.to_string() } })).await;
        let deleted = self.writer.delete_child(&child).await;
        for error in applied.err().into_iter().chain(deleted.err()) {
            assert!(matches!(error, ChildError::Write(WriteError::Forbidden(_))), "{error}");
        }
        let note = format!("number {number}");
        let object = Identity::of(&self.map).reference();
        self.recorder.record(Event { object, kind: EventKind::Normal, reason: "Tested".into(), note });
    }

    /// Works until the checks satisfy `condition`: a changed role takes effect with a delay.
    async fn works_until(&self, what: &str, condition: impl Fn(&Health) -> bool) {
        let number = std::cell::Cell::new(0);
        eventually(what, TIMEOUT, || async {
            number.set(number.get() + 1);
            self.work(number.get()).await;
            if condition(&self.health) { Ok(()) } else { Err(self.health.checks()) }
        })
        .await;
    }
}

on_both! {
    async fn a_missing_write_permission_is_on_readyz_until_granted(cluster) {
        let replica = Replica::start(cluster).await;
        let mut permissions = vec![
            ("patch", "ingresses/status", "ingresses.networking.k8s.io/status", "ingresses.networking.k8s.io --subresource=status"),
            ("get", "configmaps", "configmaps", "configmaps"),
            ("patch", "configmaps", "configmaps", "configmaps"),
            ("delete", "configmaps", "configmaps", "configmaps"),
        ];
        if replica.cluster.is_real() {
            // The sandbox checks one permission per request, and this one creates an object by a patch.
            permissions.push(("create", "configmaps", "configmaps", "configmaps"));
        }
        replica.works_until("nothing is missing", |health| health.checks().is_empty()).await;
        for (verb, resource, shown, asked) in permissions {
            replica.deny(verb, resource).await;
            let name = format!("permission to {verb} {shown}");
            replica.works_until(&format!("the {name} is missing"), |health| !health.is_ready()).await;
            let mut checks = replica.health.checks();
            checks.retain(|_, check| matches!(check, Check::Failing { .. }));
            assert_eq!(checks.keys().collect::<Vec<_>>(), [&name]);
            let Check::Failing { message, fix: Some(fix) } = &checks[&name] else { panic!("{checks:?}") };
            assert!(message.contains(&format!("cannot {verb} resource")), "{message}");
            assert!(fix.contains(&format!("kubectl auth can-i {verb} {asked}")), "{fix}");
            replica.deny("", "").await;
            replica.works_until(&format!("the {name} is there"), |health| health.checks().is_empty()).await;
        }
    }

    async fn missing_event_permissions_are_reported_and_leave_it_ready(cluster) {
        let replica = Replica::start(cluster).await;
        replica.works_until("nothing is missing", |health| health.checks().is_empty()).await;
        replica.deny("create", "events").await;
        replica.works_until("events are missed", |health| !health.checks().is_empty()).await;
        let checks = replica.health.checks();
        assert!(matches!(&checks["permission to create events"], Check::Degraded { message } if message.contains("can-i create events")), "{checks:?}");
        assert!(replica.health.is_ready());
        replica.deny("", "").await;
        replica.works_until("events are back", |health| health.checks().is_empty()).await;
    }
}
