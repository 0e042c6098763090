//! The operator's permissions in a cluster: the rules of the systems' specs, as `deploy/rbac.yaml` and `signpost rbac` grant them.
//!
//! A test runs every system on the sandbox. It fails when no rule of a system allows its request, or when a rule is not used.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use signpost_engine::{Rule, SystemSpec};

use crate::cli::RbacArgs;
use crate::config::{is_namespace_name, is_object_name};
use crate::crds;

/// The permissions of the process itself, independent of the systems.
const PROCESS: &[Rule] = &[
    Rule {
        own_namespace: true,
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: &["get", "create", "update"],
        why: "leader election",
    },
    Rule {
        own_namespace: false,
        group: "",
        resources: &["events"],
        names: &[],
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

/// Resources that are granted by name alone: nothing else in their namespace can be read.
const BY_NAME: &[&str] = &["secrets"];

/// Whether a rule is granted by [`secrets`], for the names that are asked for.
fn is_by_name(rule: &Rule) -> bool {
    rule.resources.iter().any(|resource| BY_NAME.contains(resource))
}

/// A Role per namespace that allows these systems to read these Secrets, each as namespace and name, and nothing for systems that read none.
pub fn secrets(name: &str, namespace: &str, wanted: &BTreeSet<(String, String)>, systems: &[SystemSpec]) -> Vec<Value> {
    let places: BTreeSet<&str> = wanted.iter().map(|(place, _)| place.as_str()).collect();
    let granted = places.into_iter().flat_map(|place| {
        let names: Vec<&str> = wanted.iter().filter(|(at, _)| at == place).map(|(_, name)| name.as_str()).collect();
        let by_name = rules(systems).filter(|rule| is_by_name(rule)).map(|rule| {
            let mut granted = to_json(rule, rule.resources);
            granted["resourceNames"] = json!(names);
            granted
        });
        let rules: Vec<Value> = by_name.collect();
        let roles = bound_to(name, "Role", &format!("{name}-secrets"), Some(place), &rules, namespace);
        roles.into_iter().filter(move |_| !rules.is_empty())
    });
    granted.collect()
}

/// The Kubernetes objects that grant the rules, in the order to apply them. All have this name, so that several sets can be applied side by
/// side.
pub fn manifests_named(name: &str, namespace: &str, systems: &[SystemSpec]) -> Vec<Value> {
    let labels = json!({"app.kubernetes.io/name": "signpost"});
    let rules = |own: bool| -> Vec<Value> {
        let here = rules(systems).filter(|rule| rule.own_namespace == own && !is_by_name(rule));
        here.map(|rule| to_json(rule, rule.resources)).collect()
    };
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace, "labels": labels}});
    let cluster = bound("ClusterRole", name, None, &rules(false), namespace);
    let own = bound("Role", name, Some(namespace), &rules(true), namespace);
    std::iter::once(account).chain(cluster).chain(own).collect()
}

/// The kinds of Kubernetes itself, among the resources of the rules, that belong to no namespace.
const CLUSTER_SCOPED: &[&str] = &["namespaces", "ingressclasses"];

/// The resources that belong to no namespace: those of Kubernetes, and those of the CRDs of these systems and of ours, because a system may read
/// the kinds of another one. A test compares them with what the API server reports.
pub fn cluster_scoped(systems: &[SystemSpec]) -> BTreeSet<String> {
    let crds = crds::all().into_iter().chain(crds::of(systems));
    let custom = crds.filter(|crd| crd.spec.scope == "Cluster").map(|crd| crd.spec.names.plural);
    CLUSTER_SCOPED.iter().map(|&name| name.to_owned()).chain(custom).collect()
}

/// Where an operator works that may not read the whole cluster.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The namespaces that it watches.
    pub watched: BTreeSet<String>,
    /// The namespaces of tunnels that are not beside their Ingress.
    pub tunnels: BTreeSet<String>,
}

/// The Kubernetes objects that grant the rules in these namespaces alone: a Role in each, and a ClusterRole for kinds that belong to no
/// namespace.
pub fn manifests_in(name: &str, namespace: &str, places: &Places, systems: &[SystemSpec]) -> Vec<Value> {
    let mut all = manifests_named(name, namespace, systems);
    // The service account stays; the roles are made again, each for its place.
    all.truncate(1);
    let of = |keep: &dyn Fn(&Rule, &str) -> bool| -> Vec<Value> {
        let only = |rule: &'static Rule| {
            let resources: Vec<&str> = rule.resources.iter().copied().filter(|one| keep(rule, one)).collect();
            (!resources.is_empty()).then(|| to_json(rule, &resources))
        };
        rules(systems).filter(|rule| !is_by_name(rule)).filter_map(only).collect()
    };
    let without_namespace = cluster_scoped(systems);
    let is_cluster_scoped = |resource: &str| without_namespace.contains(resource.split('/').next().unwrap_or_default());
    let cluster = of(&|rule, resource| !rule.own_namespace && is_cluster_scoped(resource));
    if !cluster.is_empty() {
        all.extend(bound("ClusterRole", name, None, &cluster, namespace));
    }
    let mut at: BTreeSet<&str> = places.watched.iter().map(String::as_str).collect();
    at.insert(namespace);
    at.extend(places.tunnels.iter().map(String::as_str));
    // Kubernetes keeps the events of objects without a namespace there. Systems have events about objects whose status they write.
    let changes =
        |rule: &Rule| rule.verbs.contains(&"patch") && rule.resources.iter().any(|one| is_cluster_scoped(one));
    let default = rules(systems).any(changes).then_some("default");
    at.extend(default);
    for place in at {
        let (own, is_watched) = (place == namespace, places.watched.contains(place));
        let is_tunnels = places.tunnels.contains(place);
        let granted = of(&|rule, resource| {
            let tunnel = is_tunnels && systems.iter().any(|system| system.shared.contains(&resource));
            // Events about a whole server are on the operator's own Deployment.
            let reported = (own || Some(place) == default) && resource == "events";
            let here = if rule.own_namespace { own } else { is_watched || tunnel || reported };
            here && !is_cluster_scoped(resource)
        });
        all.extend(bound("Role", name, Some(place), &granted, namespace));
    }
    all
}

/// A role and its binding to the operator's service account.
fn bound(kind: &str, name: &str, place: Option<&str>, rules: &[Value], namespace: &str) -> [Value; 2] {
    bound_to(name, kind, name, place, rules, namespace)
}

/// A role and its binding to this service account.
fn bound_to(
    account: &str,
    kind: &str,
    name: &str,
    place: Option<&str>,
    rules: &[Value],
    namespace: &str,
) -> [Value; 2] {
    let mut metadata = json!({"name": name, "labels": {"app.kubernetes.io/name": "signpost"}});
    if let Some(place) = place {
        metadata["namespace"] = json!(place);
    }
    let api = "rbac.authorization.k8s.io";
    let subject = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace}]);
    [
        json!({"apiVersion": format!("{api}/v1"), "kind": kind, "metadata": metadata, "rules": rules}),
        json!({"apiVersion": format!("{api}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": kind, "name": name}, "subjects": subject}),
    ]
}

fn to_json(rule: &Rule, resources: &[&str]) -> Value {
    let mut json = json!({"apiGroups": [rule.group], "resources": resources, "verbs": rule.verbs});
    if !rule.names.is_empty() {
        json["resourceNames"] = json!(rule.names);
    }
    json
}

/// The Kubernetes objects of the whole operator.
pub fn manifests(namespace: &str, systems: &[SystemSpec]) -> Vec<Value> {
    manifests_named("signpost", namespace, systems)
}

/// The Kubernetes objects that `signpost rbac` prints. The error names the flag that is wrong.
pub fn asked_for(args: &RbacArgs, systems: &[SystemSpec]) -> Result<Vec<Value>, String> {
    let named = |flag: &str, name: &str| {
        is_namespace_name(name)
            .then(|| name.to_owned())
            .ok_or_else(|| format!("{flag}: {name:?} is not the name of a namespace, such as shop"))
    };
    let namespace = named("--namespace", args.namespace.trim())?;
    let (name, systems) = match args.mode.as_deref().map(str::trim) {
        None => ("signpost".to_owned(), systems.to_vec()),
        Some(mode) => of_mode(mode, systems)?,
    };
    let names = args.watch_namespaces.split(',').map(str::trim).filter(|name| !name.is_empty());
    let watched = names.map(|name| named("--watch-namespaces", name)).collect::<Result<BTreeSet<_>, _>>()?;
    let names = args.tunnel_namespace.iter().flat_map(|names| names.split(',')).map(str::trim);
    let tunnels = names.map(|name| named("--tunnel-namespace", name)).collect::<Result<BTreeSet<_>, _>>()?;
    let by_name = by_name(args, &namespace, &systems)?;
    let mut all = if watched.is_empty() {
        manifests_named(&name, &namespace, &systems)
    } else {
        manifests_in(&name, &namespace, &Places { watched, tunnels }, &systems)
    };
    all.extend(secrets(&name, &namespace, &by_name, &systems));
    Ok(all)
}

/// The Secrets of `--secrets`, each as namespace and name.
fn by_name(args: &RbacArgs, namespace: &str, systems: &[SystemSpec]) -> Result<BTreeSet<(String, String)>, String> {
    const FLAG: &str = "--secrets";
    let texts = args.secrets.split(',').map(str::trim).filter(|text| !text.is_empty());
    let secret = |text: &str| {
        let (place, name) = text.split_once('/').unwrap_or((namespace, text));
        let fine = is_namespace_name(place) && is_object_name(name);
        let wrong = || format!("{FLAG}: {text:?} is not a Secret; write NAME or NAMESPACE/NAME, such as shop/east-ca");
        fine.then(|| (place.to_owned(), name.to_owned())).ok_or_else(wrong)
    };
    let wanted = texts.map(secret).collect::<Result<BTreeSet<_>, _>>()?;
    if !wanted.is_empty() && !rules(systems).any(is_by_name) {
        return Err(format!("{FLAG}: none of the systems reads Secrets; name one that does in --systems"));
    }
    Ok(wanted)
}

/// The name of the objects, and the systems with the permissions of one mode.
fn of_mode(mode: &str, systems: &[SystemSpec]) -> Result<(String, Vec<SystemSpec>), String> {
    let with = systems.iter().filter(|spec| !spec.variants.is_empty());
    let known: Vec<&str> = with.clone().flat_map(|spec| spec.variants).map(|(name, _)| *name).collect();
    let found = with.flat_map(|spec| spec.variants.iter().map(move |variant| (spec, variant)));
    let Some((spec, (variant, rules))) = found.into_iter().find(|(_, (name, _))| *name == mode) else {
        let there = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(format!("--mode: {mode:?} is not a mode of these systems; there are {there}"));
    };
    let others: Vec<&str> = systems.iter().map(|one| one.name).filter(|name| *name != spec.name).collect();
    if !others.is_empty() {
        return Err(format!("--mode {mode} is for {} alone; add --systems {}", spec.name, spec.name));
    }
    Ok((format!("signpost-{}-{variant}", spec.name), vec![SystemSpec { rules, ..*spec }]))
}
