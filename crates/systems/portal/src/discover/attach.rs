//! Routes attached to Gateways of the Gateway API, and Istio's to theirs: which hosts of a route a Gateway serves. Pure.
//!
//! ```text
//!  route: hostnames × parents ─► listeners that fit (name, port, protocol, namespace, kind) ─► hostnames that both accept
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use signpost_apis::gatewayapi::{GROUP, Listener, ParentRef, RouteSpec, RouteStatus};

/// Host names and parents of one route beyond this are left out. The Gateway API allows 16 and 32.
const MOST: usize = 64;

/// A route of the Gateway API.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) hostnames: Vec<String>,
    /// The Gateways it wants, and whether each accepts it.
    pub(crate) parents: Vec<(ParentRef, bool)>,
}

impl Route {
    pub(crate) fn new(kind: &'static str, namespace: &str, spec: &RouteSpec, status: &RouteStatus) -> Self {
        let gateway = |parent: &&ParentRef| {
            parent.kind.as_deref().unwrap_or("Gateway") == "Gateway"
                && parent.group.as_deref().unwrap_or(GROUP) == GROUP
        };
        let same = |a: &ParentRef, b: &ParentRef| {
            let of = |parent: &ParentRef| parent.namespace.clone().unwrap_or_else(|| namespace.to_owned());
            (&a.name, of(a), &a.section_name, a.port) == (&b.name, of(b), &b.section_name, b.port)
        };
        let accepted = |parent: &ParentRef| {
            let reported = status.parents.iter().filter(|reported| same(&reported.parent_ref, parent));
            let mut conditions = reported.flat_map(|reported| &reported.conditions);
            conditions.any(|condition| condition.type_ == "Accepted" && condition.status == "True")
        };
        let parents = spec.parent_refs.iter().filter(gateway).take(MOST);
        let parents = parents.map(|parent| (parent.clone(), accepted(parent))).collect();
        let hostnames = spec.hostnames.iter().take(MOST).cloned().collect();
        Self { kind, namespace: namespace.to_owned(), hostnames, parents }
    }

    /// The Gateways that it names, as namespace and name.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parents
            .iter()
            .map(|(parent, _)| (parent.namespace.as_deref().unwrap_or(&self.namespace), parent.name.as_str()))
    }

    /// The hosts of this route that the listeners of a Gateway serve; `None` where no listener accepts it. `labels` are those of the route's
    /// namespace.
    pub(crate) fn hosts_at(
        &self,
        gateway: (&str, &str),
        listeners: &[Listener],
        labels: &BTreeMap<String, String>,
    ) -> Option<Vec<String>> {
        let mut hosts: Option<Vec<String>> = None;
        for (parent, accepted) in &self.parents {
            let of = (parent.namespace.as_deref().unwrap_or(&self.namespace), parent.name.as_str());
            if !accepted || of != gateway {
                continue;
            }
            for listener in listeners.iter().filter(|listener| self.fits(parent, listener, gateway.0, labels)) {
                let any = [String::new()];
                let wanted = if self.hostnames.is_empty() { &any[..] } else { &self.hostnames };
                let accepted = listener.hostname.as_deref().unwrap_or_default();
                hosts.get_or_insert_default().extend(wanted.iter().filter_map(|wanted| common(wanted, accepted)));
            }
        }
        hosts
    }

    fn fits(
        &self,
        parent: &ParentRef,
        listener: &Listener,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> bool {
        let protocols: &[&str] = match self.kind {
            "TLSRoute" => &["TLS"],
            _ => &["HTTP", "HTTPS"],
        };
        let allowed = listener.allowed_routes.as_ref();
        let kinds = allowed.map(|allowed| &allowed.kinds[..]).unwrap_or_default();
        let kind = kinds.is_empty()
            || kinds.iter().any(|kind| kind.kind == self.kind && kind.group.as_deref().unwrap_or(GROUP) == GROUP);
        let namespaces = allowed.and_then(|allowed| allowed.namespaces.as_ref());
        let from = match namespaces.and_then(|namespaces| namespaces.from.as_deref()).unwrap_or("Same") {
            "All" => true,
            "Selector" => {
                namespaces.and_then(|it| it.selector.as_ref()).is_some_and(|selector| selects(selector, labels))
            }
            _ => self.namespace == namespace,
        };
        parent.section_name.as_ref().is_none_or(|section| *section == listener.name)
            && parent.port.is_none_or(|port| port == listener.port)
            && protocols.contains(&listener.protocol.as_str())
            && kind
            && from
    }
}

/// Whether a label selector of Kubernetes selects these labels.
fn selects(
    selector: &k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
    labels: &BTreeMap<String, String>,
) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let expressions = selector.match_expressions.iter().flatten().all(|expression| {
        let value = labels.get(&expression.key);
        let listed = value.is_some_and(|value| expression.values.iter().flatten().any(|one| one == value));
        match expression.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    });
    equal && expressions
}

/// The host that both accept: the more special one. Empty accepts everything, `*.` any labels before the rest.
pub(crate) fn common(one: &str, other: &str) -> Option<String> {
    let (a, b) = (folded(one), folded(other));
    let covers = |wide: &str, host: &str| match wide.strip_prefix('*') {
        Some(rest) => host.len() > rest.len() && host.ends_with(rest) && rest.starts_with('.'),
        None => false,
    };
    let host = match (a.as_str(), b.as_str()) {
        ("" | "*", host) | (host, "" | "*") => host.to_owned(),
        (a, b) if a == b => a.to_owned(),
        (wide, host) if covers(wide, host) => host.to_owned(),
        (host, wide) if covers(wide, host) => host.to_owned(),
        _ => return None,
    };
    (!host.is_empty() && host != "*").then_some(host)
}

fn folded(host: &str) -> String {
    host.trim().trim_end_matches('.').to_lowercase()
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

/// A longer text is not a host.
const LONGEST: usize = 255;

/// The hosts of an Istio Gateway. Both it and a VirtualService may have as many as fit into an object, so they are not compared one by one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    /// From the last character to the first: hosts with the same end are neighbours.
    hosts: BTreeSet<String>,
    /// Whether one of them accepts everything.
    any: bool,
}

impl Served {
    pub(crate) fn new<'a>(hosts: impl Iterator<Item = &'a str>) -> Self {
        let (any, hosts): (Vec<String>, Vec<String>) = hosts.map(folded).partition(|host| is_any(host));
        Self { hosts: hosts.iter().map(|host| reversed(host)).collect(), any: !any.is_empty() }
    }

    /// Whether this host has a [`common`] one with any of them.
    pub(crate) fn accepts(&self, host: &str) -> bool {
        let host = folded(host);
        if is_any(&host) {
            return !self.hosts.is_empty();
        }
        let ends = host.rmatch_indices('.').map(|(at, _)| host.split_at(at));
        let mut ends = ends.take_while(|(_, end)| end.len() <= LONGEST).filter(|(start, _)| !start.is_empty());
        self.any
            || self.hosts.contains(&reversed(&host))
            || ends.any(|(_, end)| self.hosts.contains(&reversed(&format!("*{end}"))))
            || host.strip_prefix('*').is_some_and(|end| end.starts_with('.') && self.has_below(end))
    }

    /// Whether one of them has this end, and something before it.
    fn has_below(&self, end: &str) -> bool {
        let end = reversed(end);
        let next = self.hosts.range::<str, _>((Bound::Excluded(end.as_str()), Bound::Unbounded)).next();
        next.is_some_and(|host| host.starts_with(&end))
    }
}

fn is_any(host: &str) -> bool {
    matches!(host, "" | "*")
}

/// The host of an Istio server, without its namespace.
pub(crate) fn istio_host(host: &str) -> &str {
    host.rsplit_once('/').map_or(host, |(_, host)| host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_more_special_host_is_common() {
        for (one, other, expected) in [
            ("a.example.org", "", Some("a.example.org")),
            ("", "*.example.org", Some("*.example.org")),
            ("A.example.org.", "*.example.org", Some("a.example.org")),
            ("*.example.org", "a.b.example.org", Some("a.b.example.org")),
            ("*.b.example.org", "*.example.org", Some("*.b.example.org")),
            ("example.org", "*.example.org", None),
            ("a.example.org", "b.example.org", None),
            ("xexample.org", "*.example.org", None),
            ("", "", None),
        ] {
            assert_eq!(common(one, other).as_deref(), expected, "{one} {other}");
        }
    }

    #[test]
    fn a_gateway_accepts_the_hosts_that_have_a_common_one_with_its_own() {
        let long = format!("{}.example.org", "a.".repeat(200));
        let hosts = [
            "",
            "*",
            "example.org",
            "A.example.org.",
            "a.b.example.org",
            "*.example.org",
            "*.b.example.org",
            "*example.org",
            "xexample.org",
            ".example.org",
            "*.org",
            "org",
            "a.example.net",
            &long,
        ];
        // Each alone, and each beside one that accepts little.
        for served in hosts.iter().flat_map(|host| [vec![*host], vec![*host, "z.example.com"]]) {
            let gateway = Served::new(served.iter().copied());
            for host in hosts {
                let expected = served.iter().any(|one| common(one, host).is_some());
                assert_eq!(gateway.accepts(host), expected, "{served:?} {host}");
            }
        }
        assert!(!Served::default().accepts("a.example.org"));
    }

    #[test]
    fn a_route_has_the_hosts_that_accepting_listeners_allow() {
        let spec: RouteSpec = serde_json::from_value(json!({
            "hostnames": ["a.example.org", "b.other.org"],
            "parentRefs": [{ "name": "gw", "namespace": "infra" }, { "name": "no" }, { "kind": "Service", "name": "mesh" }],
        }))
        .unwrap();
        let accepted = |status: &str| -> RouteStatus {
            let condition = json!({ "type": "Accepted", "status": status, "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
            serde_json::from_value(json!({ "parents": [{ "parentRef": { "name": "gw", "namespace": "infra" }, "conditions": [condition] }] })).unwrap()
        };
        let listener = |fields: serde_json::Value| -> Vec<Listener> {
            let mut listener = json!({ "name": "web", "port": 80, "protocol": "HTTP", "hostname": "*.example.org",
                "allowedRoutes": { "namespaces": { "from": "All" } } });
            listener.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            vec![serde_json::from_value(listener).unwrap()]
        };
        let labels = BTreeMap::from([("team".to_owned(), "web".to_owned())]);
        let hosts = |status: &str, fields: serde_json::Value| {
            let route = Route::new("HTTPRoute", "demo", &spec, &accepted(status));
            assert_eq!(route.gateways().collect::<Vec<_>>(), [("infra", "gw"), ("demo", "no")]);
            route.hosts_at(("infra", "gw"), &listener(fields), &labels).unwrap_or_default()
        };
        assert_eq!(hosts("True", json!({})), ["a.example.org"]);
        assert_eq!(hosts("True", json!({ "hostname": null })), ["a.example.org", "b.other.org"]);
        assert!(hosts("False", json!({})).is_empty(), "not accepted");
        assert!(hosts("True", json!({ "protocol": "TLS" })).is_empty());
        assert!(hosts("True", json!({ "allowedRoutes": {} })).is_empty(), "another namespace");
        assert!(
            hosts(
                "True",
                json!({ "allowedRoutes": { "namespaces": { "from": "All" }, "kinds": [{ "kind": "GRPCRoute" }] } })
            )
            .is_empty()
        );
        let selector = |value: &str| json!({ "allowedRoutes": { "namespaces": { "from": "Selector", "selector": { "matchLabels": { "team": value } } } } });
        assert_eq!(hosts("True", selector("web")), ["a.example.org"]);
        assert!(hosts("True", selector("other")).is_empty());
    }
}
