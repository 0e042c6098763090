//! The operator's permissions in a cluster: the rules of the systems' specs, as `deploy/rbac.yaml` and `signpost rbac` grant them.
//!
//! A test runs every system on the sandbox. It fails when no rule of a system allows its request, or when a rule is not used.

use serde_json::{Value, json};
use signpost_engine::{Rule, SystemSpec};

/// The permissions of the process itself, independent of the systems.
const PROCESS: &[Rule] = &[
    Rule {
        own_namespace: true,
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["get", "create", "update"],
        why: "leader election",
    },
    Rule {
        own_namespace: false,
        group: "",
        resources: &["events"],
        verbs: &["create", "patch"],
        why: "events on the objects",
    },
];

/// The permissions of the operator with these systems.
pub fn rules(systems: &[SystemSpec]) -> impl Iterator<Item = &'static Rule> {
    PROCESS.iter().chain(systems.iter().flat_map(|spec| spec.rules))
}

/// Whether a rule of the operator with these systems allows this request.
pub fn allows(systems: &[SystemSpec], verb: &str, group: &str, resource: &str) -> bool {
    rules(systems).any(|rule| rule.group == group && rule.resources.contains(&resource) && rule.verbs.contains(&verb))
}

/// The Kubernetes objects that grant the rules, in the order to apply them. All have this name, so that several sets can be applied side by
/// side.
pub fn manifests_named(name: &str, namespace: &str, systems: &[SystemSpec]) -> Vec<Value> {
    let labels = json!({"app.kubernetes.io/name": "signpost"});
    let rules = |own: bool| -> Vec<Value> {
        rules(systems)
            .filter(|rule| rule.own_namespace == own)
            .map(|rule| json!({"apiGroups": [rule.group], "resources": rule.resources, "verbs": rule.verbs}))
            .collect()
    };
    let subject = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace, "labels": labels}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name, "labels": labels}, "rules": rules(false)}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name, "labels": labels},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}, "subjects": subject}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name, "namespace": namespace, "labels": labels}, "rules": rules(true)}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}, "subjects": subject}),
    ]
}

/// The Kubernetes objects of the whole operator.
pub fn manifests(namespace: &str, systems: &[SystemSpec]) -> Vec<Value> {
    manifests_named("signpost", namespace, systems)
}
