//! What the operator may do in a cluster, and why: the one table behind `deploy/rbac.yaml`.
//!
//! A test runs every system on the sandbox and fails when a request is made that no rule here allows, and the other way round.

use serde_json::{Value, json};

/// One thing the operator may do.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Which part needs it: `process`, or a system's name.
    pub part: &'static str,
    /// Only in the operator's own namespace.
    pub own_namespace: bool,
    /// API group; empty is core.
    pub group: &'static str,
    /// Resources, with their subresources spelt `resource/subresource`.
    pub resources: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Why it is needed.
    pub why: &'static str,
}

/// Everything the operator may do.
pub const RULES: &[Rule] = &[
    Rule {
        part: "process",
        own_namespace: true,
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["get", "create", "update"],
        why: "leader election",
    },
    Rule {
        part: "process",
        own_namespace: false,
        group: "",
        resources: &["events"],
        verbs: &["create", "patch"],
        why: "events on the objects",
    },
    Rule {
        part: "powerdns",
        own_namespace: false,
        group: "dns.cav.enablers.ob",
        resources: &["zones", "clusterzones", "rrsets", "clusterrrsets"],
        verbs: &["list", "watch", "patch"],
        why: "read what is wanted; patch adds and removes the finalizer",
    },
    Rule {
        part: "powerdns",
        own_namespace: false,
        group: "dns.cav.enablers.ob",
        resources: &["zones/status", "clusterzones/status", "rrsets/status", "clusterrrsets/status"],
        verbs: &["patch"],
        why: "report what was done",
    },
    Rule {
        part: "pihole",
        own_namespace: false,
        group: "networking.k8s.io",
        resources: &["ingresses"],
        verbs: &["list", "watch", "patch"],
        why: "read hosts; patch writes pihole.io/managed-hosts and the optional finalizer",
    },
    Rule {
        part: "pihole",
        own_namespace: true,
        group: "",
        resources: &["configmaps"],
        verbs: &["get", "create", "update"],
        why: "the ledger of records in a Pi-hole that has no room for a mark",
    },
];

/// Whether some rule allows this request.
pub fn allows(verb: &str, group: &str, resource: &str) -> bool {
    RULES.iter().any(|rule| rule.group == group && rule.resources.contains(&resource) && rule.verbs.contains(&verb))
}

/// The Kubernetes objects that grant the rules, in the order to apply them.
pub fn manifests(namespace: &str) -> Vec<Value> {
    let labels = json!({"app.kubernetes.io/name": "signpost"});
    let rules = |own: bool| -> Vec<Value> {
        RULES
            .iter()
            .filter(|rule| rule.own_namespace == own)
            .map(|rule| json!({"apiGroups": [rule.group], "resources": rule.resources, "verbs": rule.verbs}))
            .collect()
    };
    let subject = json!([{"kind": "ServiceAccount", "name": "signpost", "namespace": namespace}]);
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "signpost", "namespace": namespace, "labels": labels}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "signpost", "labels": labels}, "rules": rules(false)}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "signpost", "labels": labels},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "signpost"}, "subjects": subject}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "signpost", "namespace": namespace, "labels": labels}, "rules": rules(true)}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "signpost", "namespace": namespace, "labels": labels},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "signpost"}, "subjects": subject}),
    ]
}
