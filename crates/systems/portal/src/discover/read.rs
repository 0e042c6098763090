//! Objects that name hosts, as this system needs them: annotations, hosts and targets. Pure.
//!
//! The annotations are those of external-dns, under both of its prefixes, and those of SRE Portal.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signpost_apis::externaldns::DnsEndpoint;
use signpost_apis::ingress::Ingress;
use signpost_apis::portal::TargetMatch;
use signpost_apis::service::{LoadBalancer, Service};

use crate::plan::component::COMPONENT;

/// The prefixes of external-dns's annotations, the first one counts more.
const PREFIXES: [&str; 2] = ["external-dns.alpha.kubernetes.io/", "external-dns.kubernetes.io/"];
/// The portal that shows the names of an object.
pub(crate) const PORTAL: &str = "sreportal.io/portal";
/// The groups of its names.
const GROUPS: &str = "sreportal.io/groups";
/// Whether its names are left out.
const IGNORE: &str = "sreportal.io/ignore";
/// The group of names without any.
pub(crate) const DEFAULT_GROUP: &str = "Services";

/// Names and values of one object beyond this are left out, which is reported.
pub(crate) const MOST: usize = 10_000;
/// Targets of one name beyond this are left out; one of the others is enough then. Of longer lists one more is kept, which shows that they are longer.
const MOST_TARGETS: usize = 100;
/// Groups of one object beyond this are left out.
const MOST_GROUPS: usize = 32;
/// The label of objects that `router` generates: their names are known from the routes.
const GENERATED: (&str, &str) = ("app.kubernetes.io/managed-by", "service-router-operator");

/// What the annotations of an object ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// More hosts.
    pub(crate) hosts: Vec<String>,
    /// Hosts of the address inside the cluster.
    pub(crate) internal: Vec<String>,
    /// Targets instead of those of the object.
    pub(crate) targets: Vec<String>,
    /// Whether hosts of the specification count, and whether those of the annotation do.
    pub(crate) hosts_from: (bool, bool),
    /// The Ingress whose addresses an Istio Gateway has.
    pub(crate) ingress: Option<String>,
    /// The portal that shows the names.
    pub(crate) portal: Option<String>,
    /// Their groups.
    pub(crate) groups: Vec<String>,
    /// Whether the names are left out.
    pub(crate) ignored: bool,
    /// Whether they are left out wherever the object is read, and not only because another controller than external-dns publishes them.
    pub(crate) hidden: bool,
    /// The annotations about a component.
    pub(crate) component: BTreeMap<String, String>,
    /// Whether `router` generated the object.
    pub(crate) generated: bool,
}

impl Notes {
    /// Reads annotations.
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        let plain = |key: &str| meta.annotations.as_ref()?.get(key).map(|text| text.trim()).filter(|t| !t.is_empty());
        let given = |name: &str| PREFIXES.iter().find_map(|prefix| plain(&format!("{prefix}{name}")));
        let list = |text: Option<&str>, most: usize| -> Vec<String> {
            let parts = text.into_iter().flat_map(|text| text.split(',')).map(str::trim);
            parts.filter(|part| !part.is_empty()).take(most).map(str::to_owned).collect()
        };
        let from = given("ingress-hostname-source").or_else(|| given("gateway-hostname-source"));
        let other_controller = given("controller").is_some_and(|controller| controller != "dns-controller");
        let mut groups = list(plain(GROUPS), MOST_GROUPS);
        if groups.is_empty() {
            groups.push(DEFAULT_GROUP.to_owned());
        }
        Self {
            hosts: list(given("hostname"), MOST),
            internal: list(given("internal-hostname"), MOST),
            targets: list(given("target"), MOST_TARGETS + 1),
            hosts_from: match from {
                Some("defined-hosts-only") => (true, false),
                Some("annotation-only") => (false, true),
                _ => (true, true),
            },
            ingress: given("ingress").map(str::to_owned),
            portal: plain(PORTAL).map(str::to_owned),
            groups,
            ignored: plain(IGNORE) == Some("true") || other_controller,
            hidden: plain(IGNORE) == Some("true"),
            component: about_component(meta.annotations.as_ref()),
            generated: meta
                .labels
                .as_ref()
                .and_then(|labels| labels.get(GENERATED.0))
                .is_some_and(|by| by == GENERATED.1),
        }
    }

    /// Where the names of the object are shown.
    pub(crate) fn place(&self) -> (Option<&str>, &[String], bool) {
        (self.portal.as_deref(), &self.groups, self.hidden)
    }

    /// The hosts of an object that defines these.
    pub(crate) fn hosts<'a>(&'a self, defined: impl Iterator<Item = &'a str>) -> Vec<String> {
        let (from_spec, from_notes) = self.hosts_from;
        let defined = defined.filter(|_| from_spec);
        let mut seen = BTreeSet::new();
        let all = defined.chain(self.hosts.iter().map(String::as_str).filter(|_| from_notes)).map(str::trim);
        let named = all.filter(|host| !host.is_empty() && *host != "*" && seen.insert(*host));
        named.map(str::to_owned).collect()
    }

    /// The names of an object that defines these hosts and has these targets. Defined hosts that were left out before are counted.
    pub(crate) fn names<'a>(
        &'a self,
        defined: impl Iterator<Item = &'a str>,
        omitted: usize,
        targets: &[String],
    ) -> Names {
        let mut names = named(&self.hosts(defined), targets);
        names.omitted += if self.hosts_from.0 { omitted } else { 0 };
        names
    }

    /// The targets of an object that has these of its own.
    pub(crate) fn targets(&self, own: Vec<String>) -> Vec<String> {
        if self.targets.is_empty() { own } else { self.targets.clone() }
    }
}

/// The annotations about a component, where one is asked for.
pub(crate) fn about_component(annotations: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let asked = annotations.filter(|all| all.get(COMPONENT).is_some_and(|title| !title.trim().is_empty()));
    let about = asked.into_iter().flatten().filter(|(key, _)| key.starts_with(COMPONENT));
    about.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// A name with its type and values, as an entry of a DNS object has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) host: String,
    /// `None` where the type follows from the values.
    pub(crate) rtype: Option<String>,
    /// Names of one object share them.
    pub(crate) targets: Arc<[String]>,
    /// How the answer is compared with the targets.
    pub(crate) how: TargetMatch,
}

/// The names of one object. There are at most [`MOST`] of them, and [`MOST`] targets of all names together: a host in one annotation and a target in
/// another would otherwise be multiplied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) all: Vec<Named>,
    /// How many names are left out.
    pub(crate) omitted: usize,
    /// The targets of all names, at least one for each.
    values: usize,
}

impl Names {
    /// Adds hosts that all have these targets: addresses by family, and the addresses of host names. A provider may answer for a host name with
    /// addresses instead of a CNAME record, so any type will do there.
    pub(crate) fn add(&mut self, hosts: &[String], targets: &[String]) {
        let how = if targets.len() > MOST_TARGETS { TargetMatch::Any } else { TargetMatch::Exact };
        let targets = targets.get(..MOST_TARGETS).unwrap_or(targets);
        let is = |wanted: fn(&IpAddr) -> bool| -> Arc<[String]> {
            targets.iter().filter(|text| text.parse().is_ok_and(|ip: IpAddr| wanted(&ip))).cloned().collect()
        };
        let (v4, v6) = (is(IpAddr::is_ipv4), is(IpAddr::is_ipv6));
        let mut sets: Vec<(Option<&str>, Arc<[String]>)> = Vec::new();
        if v4.len() + v6.len() < targets.len() || targets.is_empty() {
            // Mixed with addresses, the answer has all of them.
            sets.push((None, targets.into()));
        } else {
            sets.extend((!v4.is_empty()).then_some((Some("A"), v4)));
            sets.extend((!v6.is_empty()).then_some((Some("AAAA"), v6)));
        }
        let values = targets.len().max(1);
        let most = MOST.saturating_sub(self.values) / values;
        self.omitted += hosts.len().saturating_sub(most) * sets.len();
        for host in hosts.iter().take(most) {
            self.values += values;
            self.all.extend(sets.iter().map(|(rtype, targets)| Named {
                host: host.clone(),
                rtype: rtype.map(str::to_owned),
                targets: targets.clone(),
                how,
            }));
        }
    }
}

/// Hosts that all have these targets.
fn named(hosts: &[String], targets: &[String]) -> Names {
    let mut names = Names::default();
    names.add(hosts, targets);
    names
}

/// Where a load balancer is reached.
pub(crate) fn points(balancer: &LoadBalancer) -> Vec<String> {
    let point = |point: &signpost_apis::service::LoadBalancerIngress| {
        point.ip.clone().or_else(|| point.hostname.clone()).filter(|text| !text.trim().is_empty())
    };
    counting_targets(balancer.ingress.iter().filter_map(point))
}

/// So many of these targets as count.
pub(crate) fn counting_targets(targets: impl Iterator<Item = String>) -> Vec<String> {
    targets.take(MOST_TARGETS + 1).collect()
}

/// The names of an Ingress: the hosts of its rules and certificates, and those of the annotation.
pub(crate) fn of_ingress(ingress: &Ingress, notes: &Notes) -> Names {
    let certificates = ingress.spec.tls.iter().flat_map(|tls| tls.hosts.iter().map(String::as_str));
    let hosts = notes.hosts(ingress.hosts().chain(certificates));
    named(&hosts, &notes.targets(points(&ingress.status.load_balancer)))
}

/// The names of a Service of type LoadBalancer, which only annotations give.
pub(crate) fn of_service(service: &Service, notes: &Notes) -> Names {
    if !service.is_load_balancer() {
        return Names::default();
    }
    let mut names = named(&notes.hosts(std::iter::empty()), &notes.targets(points(&service.status.load_balancer)));
    let inside: Vec<String> =
        service.spec.cluster_ip.iter().filter(|ip| ip.parse::<IpAddr>().is_ok()).cloned().collect();
    names.add(&notes.internal, &inside);
    names
}

/// The names of a DNSEndpoint, each with its own type and values. Several sets of one name and type differ in weight or region: together they are
/// what may be answered, and one of them is enough.
pub(crate) fn of_endpoint(endpoint: &DnsEndpoint) -> Names {
    let points = endpoint.spec.endpoints.iter().filter(|point| !point.dns_name.trim().is_empty());
    let mut sets: Vec<(&str, &str, Vec<&String>, TargetMatch)> = Vec::new();
    let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for point in points {
        let (host, rtype) = (point.dns_name.as_str(), point.record_type.trim());
        let how = if point.set_identifier.is_empty() { TargetMatch::Exact } else { TargetMatch::Subset };
        if let Some((_, _, targets, how)) = places.get(&(host, rtype)).and_then(|place| sets.get_mut(*place)) {
            targets.extend(&point.targets);
            *how = TargetMatch::Subset;
        } else {
            places.insert((host, rtype), sets.len());
            sets.push((host, rtype, point.targets.iter().collect(), how));
        }
    }
    // Each has targets of its own, so there are no more than fit into the object.
    let omitted = sets.len().saturating_sub(MOST);
    let read = |(host, rtype, targets, how): (&str, &str, Vec<&String>, TargetMatch)| Named {
        host: host.to_owned(),
        rtype: Some(rtype).filter(|text| !text.is_empty()).map(str::to_owned),
        targets: targets.into_iter().cloned().collect(),
        how,
    };
    let all: Vec<Named> = sets.into_iter().take(MOST).map(read).collect();
    Names { all, omitted, values: MOST }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ingress(annotations: &serde_json::Value) -> Vec<(String, Option<String>, String)> {
        let ingress: Ingress = serde_json::from_value(json!({
            "metadata": { "name": "app", "annotations": annotations },
            "spec": { "rules": [{ "host": "a.example.org" }, {}], "tls": [{ "hosts": ["a.example.org", "b.example.org"] }] },
            "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }, { "ip": "2001:db8::1" }] } },
        }))
        .unwrap();
        let names = of_ingress(&ingress, &Notes::of(&ingress.metadata));
        names.all.into_iter().map(|named| (named.host, named.rtype, named.targets.join(","))).collect()
    }

    fn row(host: &str, rtype: Option<&str>, targets: &str) -> (String, Option<String>, String) {
        (format!("{host}.example.org"), rtype.map(str::to_owned), targets.to_owned())
    }

    #[test]
    fn an_ingress_names_the_hosts_of_its_rules_certificates_and_annotations() {
        let (a, aaaa) = (Some("A"), Some("AAAA"));
        assert_eq!(
            ingress(&json!({ "external-dns.kubernetes.io/hostname": "c.example.org, a.example.org,," })),
            [("a", a), ("a", aaaa), ("b", a), ("b", aaaa), ("c", a), ("c", aaaa)].map(|(host, rtype)| row(
                host,
                rtype,
                if rtype == a { "192.0.2.1" } else { "2001:db8::1" }
            ))
        );
        let alpha = "external-dns.alpha.kubernetes.io";
        let target = json!({ format!("{alpha}/target"): "lb.example.net", format!("{alpha}/hostname"): "c.example.org",
            format!("{alpha}/ingress-hostname-source"): "annotation-only" });
        assert_eq!(ingress(&target), [row("c", None, "lb.example.net")]);
        let defined = json!({ format!("{alpha}/hostname"): "c.example.org", format!("{alpha}/target"): "192.0.2.9",
            format!("{alpha}/ingress-hostname-source"): "defined-hosts-only" });
        assert_eq!(ingress(&defined), [row("a", a, "192.0.2.9"), row("b", a, "192.0.2.9")]);
    }

    #[test]
    fn notes_of_sre_portal_are_read() {
        let notes = |annotations: serde_json::Value| {
            Notes::of(&serde_json::from_value(json!({ "annotations": annotations })).unwrap())
        };
        let given = notes(json!({ "sreportal.io/portal": "team", "sreportal.io/groups": " Web, ,API " }));
        assert_eq!(
            (given.portal.as_deref(), given.groups.join("|"), given.ignored),
            (Some("team"), "Web|API".into(), false)
        );
        assert_eq!(notes(json!({})).groups, ["Services"]);
        assert!(
            notes(json!({ "sreportal.io/ignore": "true" })).ignored
                && !notes(json!({ "sreportal.io/ignore": "1" })).ignored
        );
        assert!(notes(json!({ "external-dns.alpha.kubernetes.io/controller": "other" })).ignored);
        assert!(!notes(json!({ "external-dns.alpha.kubernetes.io/controller": "dns-controller" })).ignored);
    }

    #[test]
    fn many_groups_in_an_annotation_are_cut() {
        let all: Vec<String> = (0..1000).map(|number| format!("g{number}")).collect();
        let meta = json!({ "annotations": { "sreportal.io/groups": all.join(",") } });
        assert_eq!(Notes::of(&serde_json::from_value(meta).unwrap()).groups.len(), MOST_GROUPS);
    }

    #[test]
    fn only_a_load_balancer_names_hosts_and_only_by_annotation() {
        let service = |type_: &str, annotations: serde_json::Value| -> Vec<Named> {
            let service: Service = serde_json::from_value(json!({
                "metadata": { "name": "lb", "annotations": annotations },
                "spec": { "type": type_, "clusterIP": "10.0.0.1" },
                "status": { "loadBalancer": { "ingress": [{ "hostname": "lb.example.net" }] } },
            }))
            .unwrap();
            of_service(&service, &Notes::of(&service.metadata)).all
        };
        let both = json!({ "external-dns.alpha.kubernetes.io/hostname": "a.example.org",
            "external-dns.alpha.kubernetes.io/internal-hostname": "in.example.org" });
        let names = service("LoadBalancer", both.clone());
        assert_eq!(
            names.iter().map(|named| named.targets.join(",")).collect::<Vec<_>>(),
            ["lb.example.net", "10.0.0.1"]
        );
        assert!(service("ClusterIP", both).is_empty() && service("LoadBalancer", json!({})).is_empty());
    }

    #[test]
    fn sets_of_one_name_in_a_dns_endpoint_are_one_name() {
        let endpoint: DnsEndpoint =
            serde_json::from_value(json!({ "metadata": { "name": "e" }, "spec": { "endpoints": [
            { "dnsName": "w.example.org", "recordType": "A", "targets": ["192.0.2.1"], "setIdentifier": "one" },
            { "dnsName": "w.example.org", "recordType": "A", "targets": ["192.0.2.2"], "setIdentifier": "two" },
            { "dnsName": "t.example.org", "recordType": "TXT", "targets": ["hello"] }, { "dnsName": " " },
        ] } }))
            .unwrap();
        let names = of_endpoint(&endpoint).all;
        assert_eq!(names.iter().map(|named| named.targets.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(names.iter().map(|named| named.how).collect::<Vec<_>>(), [TargetMatch::Subset, TargetMatch::Exact]);
    }

    #[test]
    fn hosts_and_targets_of_one_object_are_not_multiplied_without_a_limit() {
        let list = |count: usize, name: fn(usize) -> String| (0..count).map(name).collect::<Vec<_>>().join(",");
        let service = |hosts: usize, targets: usize| -> Names {
            let prefix = "external-dns.alpha.kubernetes.io";
            let service: Service = serde_json::from_value(json!({
                "metadata": { "name": "lb", "annotations": {
                    format!("{prefix}/hostname"): list(hosts, |number| format!("h{number}.example.org")),
                    format!("{prefix}/target"): list(targets, |number| format!("t{number}.example.net")),
                } },
                "spec": { "type": "LoadBalancer" },
            }))
            .unwrap();
            of_service(&service, &Notes::of(&service.metadata))
        };
        let most = service(MOST, MOST);
        assert_eq!((most.all.len(), most.omitted), (MOST / MOST_TARGETS, MOST - MOST / MOST_TARGETS));
        assert_eq!((most.all[0].targets.len(), most.all[0].how), (MOST_TARGETS, TargetMatch::Any));
        assert!(Arc::ptr_eq(&most.all[0].targets, &most.all[1].targets), "names share their targets");
        let few = service(200, MOST_TARGETS / 2);
        assert_eq!((few.all.len(), few.omitted, few.all[0].how), (200, 0, TargetMatch::Exact));
        assert_eq!((service(MOST, 1).all.len(), service(MOST, 1).omitted), (MOST, 0));
    }

    #[test]
    fn the_rules_of_an_ingress_are_limited_together_with_its_targets() {
        let rules: Vec<_> = (0..300).map(|number| json!({ "host": format!("h{number}.example.org") })).collect();
        let targets: Vec<String> = (0..5_000).map(|number| format!("t{number}.example.net")).collect();
        let ingress: Ingress = serde_json::from_value(json!({
            "metadata": { "name": "app", "annotations": { "external-dns.kubernetes.io/target": targets.join(",") } },
            "spec": { "rules": rules },
        }))
        .unwrap();
        let names = of_ingress(&ingress, &Notes::of(&ingress.metadata));
        assert_eq!((names.all.len(), names.omitted), (100, 200));
    }
}
