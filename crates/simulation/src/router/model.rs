//! What the objects of a cluster ask for, written apart from the operator: hosts, controllers, owners of names, load balancers.
//!
//! ```text
//! identity, configuration (one of each is used) ─► policy of a namespace ─► controllers
//! route ─► host ─► its owner: the oldest route        gateway ─► name ─► its owner: the oldest Gateway of the postfix
//! ```

use std::collections::{BTreeMap, BTreeSet};

use kube::api::DynamicObject;
use serde_json::Value;

use super::action::{GATEWAYS, Kind};

/// An object of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Thing {
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When it was created, in seconds.
    pub created: i64,
    /// Its generation.
    pub generation: i64,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The kinds, names and UIDs of its owners.
    pub owners: Vec<(String, String, String)>,
    /// Its spec.
    pub spec: Value,
    /// Its status.
    pub status: Value,
}

impl Thing {
    /// The facts of an object.
    pub fn of(object: &DynamicObject) -> Self {
        let meta = &object.metadata;
        let owner = |owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
            (owner.kind.clone(), owner.name.clone(), owner.uid.clone())
        };
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            generation: meta.generation.unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
            owners: meta.owner_references.iter().flatten().map(owner).collect(),
            spec: object.data["spec"].clone(),
            status: object.data["status"].clone(),
        }
    }

    /// A field of the spec that is a text.
    pub fn text(&self, field: &str) -> &str {
        self.spec[field].as_str().unwrap_or_default()
    }

    /// A label.
    pub fn label(&self, key: &str) -> &str {
        self.labels.get(key).map_or("", String::as_str)
    }

    /// Namespace and name.
    pub fn path(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    /// Whether it was refused because another object of its kind is used.
    fn is_surplus(&self) -> bool {
        let conditions = self.status["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|condition| condition["reason"] == "SingletonViolation")
    }

    fn age(&self) -> (i64, &str, &str) {
        (self.created, &self.namespace, &self.name)
    }
}

/// An external-dns controller: its name and its region.
pub type Controller = (String, String);

/// Who the cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its region.
    pub region: String,
    /// Its name.
    pub cluster: String,
    domain: String,
    letter: String,
    /// The regions that it adopts.
    pub adopts: Vec<String>,
}

/// The controllers of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// These.
    Active(Vec<Controller>),
    /// None: the policy is for another cluster.
    Inactive,
    /// Nobody knows, for this reason.
    Unknown(&'static str),
}

/// The state of a route: its phase and reason, and what it publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteState {
    /// A CNAME from the host to the target, by each controller.
    Published {
        /// Its host.
        host: String,
        /// The name of its gateway.
        target: String,
        /// Its controllers.
        controllers: Vec<Controller>,
    },
    /// Nothing new is published.
    Obstructed {
        /// Its phase.
        phase: &'static str,
        /// Its reason.
        reason: &'static str,
    },
}

/// The addresses of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Points {
    v4: BTreeSet<std::net::Ipv4Addr>,
    v6: BTreeSet<std::net::Ipv6Addr>,
    names: BTreeSet<String>,
}

/// A record: name, type and targets.
pub type Record = (String, String, Vec<String>);

impl Points {
    /// Those of a Service.
    pub fn of(service: &Thing) -> Self {
        let mut points = Self::default();
        for point in service.status["loadBalancer"]["ingress"].as_array().into_iter().flatten() {
            if let Some(ip) = point["ip"].as_str() {
                points.v4.extend(ip.parse::<std::net::Ipv4Addr>());
                points.v6.extend(ip.parse::<std::net::Ipv6Addr>());
            } else if let Some(name) = point["hostname"].as_str() {
                points.names.insert(name.to_owned());
            }
        }
        points
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty() && self.names.is_empty()
    }

    /// Whether they are host names only.
    pub fn is_alias(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty() && !self.names.is_empty()
    }

    /// The records of a name with these addresses.
    pub fn records(&self, host: &str) -> Vec<Record> {
        let record = |rtype: &str, targets: Vec<String>| (host.to_owned(), rtype.to_owned(), targets);
        let v4: Vec<String> = self.v4.iter().map(ToString::to_string).collect();
        let v6: Vec<String> = self.v6.iter().map(ToString::to_string).collect();
        let all = [record("A", v4), record("AAAA", v6)];
        let addresses: Vec<Record> = all.into_iter().filter(|(.., targets)| !targets.is_empty()).collect();
        match self.names.first() {
            Some(name) if addresses.is_empty() => vec![record("CNAME", vec![name.clone()])],
            _ => addresses,
        }
    }
}

/// The objects of users at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State(pub BTreeMap<Kind, Vec<Thing>>);

impl State {
    /// The objects of a kind, in order.
    pub fn all(&self, kind: Kind) -> &[Thing] {
        self.0.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// One object.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Thing> {
        self.all(kind).iter().find(|thing| thing.path() == (namespace, name))
    }

    /// The object of a kind in a namespace that is used, or is the next one to be: the oldest, then the first by name. One that was refused is
    /// used only where no other one exists, so that an object that is replaced keeps its place.
    pub fn used(&self, kind: Kind, namespace: &str) -> Option<&Thing> {
        let all = self.all(kind).iter().filter(|thing| thing.namespace == namespace);
        all.min_by_key(|thing| (thing.is_surplus(), thing.age()))
    }

    /// Whether the used object of a kind was deleted, and one that was refused is the next one to be used.
    pub fn has_vacancy(&self) -> bool {
        let kinds = [Kind::ClusterIdentity, Kind::DnsConfiguration, Kind::DnsPolicy];
        let all = kinds.into_iter().flat_map(|kind| self.all(kind).iter().map(move |thing| (kind, thing)));
        all.filter_map(|(kind, thing)| self.used(kind, &thing.namespace)).any(Thing::is_surplus)
    }

    /// Who the cluster is, where that is known.
    pub fn identity(&self) -> Option<Identity> {
        let used = self.used(Kind::ClusterIdentity, "")?;
        let text = |field: &str| used.text(field).to_owned();
        let adopts = used.spec["adoptsRegions"].as_array().into_iter().flatten();
        Some(Identity {
            region: text("region"),
            cluster: text("cluster"),
            domain: text("domain"),
            letter: text("environmentLetter"),
            adopts: adopts.filter_map(|region| region.as_str().map(str::to_owned)).collect(),
        })
    }

    /// Every controller, where the configuration is valid.
    pub fn controllers(&self) -> Option<Vec<Controller>> {
        let used = self.used(Kind::DnsConfiguration, "")?;
        let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let listed = used.spec["externalDNSControllers"].as_array().into_iter().flatten();
        let listed: Vec<Controller> = listed.map(|it| (text(it, "name"), text(it, "region"))).collect();
        let names: BTreeSet<&String> = listed.iter().map(|(name, _)| name).collect();
        (names.len() == listed.len() && !listed.is_empty()).then_some(listed)
    }

    /// The controllers of a policy.
    pub fn select(&self, policy: &Thing) -> Selection {
        let Some(identity) = self.identity() else { return Selection::Unknown("ClusterIdentityNotAvailable") };
        let Some(all) = self.controllers() else { return Selection::Unknown("DNSConfigurationNotAvailable") };
        let elsewhere = |field: &str, own: &str| !policy.text(field).is_empty() && policy.text(field) != own;
        if elsewhere("sourceRegion", &identity.region) || elsewhere("sourceCluster", &identity.cluster) {
            return Selection::Inactive;
        }
        if policy.text("mode") == "RegionBound" {
            return Selection::Active(all);
        }
        let mut selected: Vec<Controller> = Vec::new();
        for region in std::iter::once(&identity.region).chain(&identity.adopts) {
            let more: Vec<_> = all.iter().filter(|it| it.1 == *region && !selected.contains(it)).cloned().collect();
            selected.extend(more);
        }
        Selection::Active(selected)
    }

    /// The host of a route: `None` without an identity, an error where it is not a host name.
    pub fn host(&self, route: &Thing) -> Option<Result<String, ()>> {
        let identity = self.identity()?;
        let [service, environment, application] =
            ["serviceName", "environment", "application"].map(|field| route.text(field));
        let label = format!("{service}-ns-{}-{environment}-{application}", identity.letter).to_lowercase();
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let good = label.len() <= 63 && label.chars().all(legal) && !label.starts_with('-') && !label.ends_with('-');
        Some(if good { Ok(format!("{label}.{}", identity.domain)) } else { Err(()) })
    }

    fn has_host(&self, route: &Thing, host: &str) -> bool {
        self.host(route).is_some_and(|own| own.as_deref() == Ok(host))
    }

    /// The routes that ask for a host, the oldest first.
    pub fn claimants(&self, host: &str) -> Vec<&Thing> {
        let mut all: Vec<&Thing> =
            self.all(Kind::ServiceRoute).iter().filter(|route| self.has_host(route, host)).collect();
        all.sort_by_key(|route| route.age());
        all
    }

    /// The Gateway that a route names.
    pub fn gateway_of<'a>(&self, route: &'a Thing) -> (&'a str, &'a str) {
        let namespace = route.text("gatewayNamespace");
        (if namespace.is_empty() { GATEWAYS } else { namespace }, route.text("gatewayName"))
    }

    /// Whether the Gateway of a route exists, so that the route follows its name.
    pub fn has_gateway(&self, route: &Thing) -> bool {
        let (namespace, name) = self.gateway_of(route);
        self.get(Kind::Gateway, namespace, name).is_some()
    }

    /// The name of the gateways of a postfix.
    pub fn target_host(&self, postfix: &str) -> Option<String> {
        let Identity { cluster, region, domain, .. } = self.identity()?;
        Some(format!("{cluster}-{region}-{postfix}.{domain}"))
    }

    /// What the policy of a namespace selects; `None` without a policy.
    pub fn selection(&self, namespace: &str) -> Option<Selection> {
        self.used(Kind::DnsPolicy, namespace).map(|policy| self.select(policy))
    }

    /// What a route asks for.
    pub fn route(&self, route: &Thing) -> RouteState {
        let stop = |phase, reason| RouteState::Obstructed { phase, reason };
        if route.text("serviceName").trim().is_empty() {
            return stop("Failed", "ValidationFailed");
        }
        let host = match self.host(route) {
            None => return stop("Pending", "ClusterIdentityNotAvailable"),
            Some(Err(())) => return stop("Failed", "InvalidHost"),
            Some(Ok(host)) => host,
        };
        if self.claimants(&host).first().is_some_and(|owner| owner.path() != route.path()) {
            return stop("Failed", "HostConflict");
        }
        let controllers = match self.selection(&route.namespace) {
            None => return stop("Pending", "DNSPolicyNotFound"),
            Some(Selection::Unknown(reason)) => return stop("Pending", reason),
            Some(Selection::Inactive) => return stop("Pending", "DNSPolicyInactive"),
            Some(Selection::Active(controllers)) => controllers,
        };
        let (namespace, name) = self.gateway_of(route);
        let Some(gateway) = self.get(Kind::Gateway, namespace, name) else { return stop("Failed", "GatewayNotFound") };
        match self.target_host(gateway.text("targetPostfix")) {
            _ if controllers.is_empty() => stop("Failed", "NoControllers"),
            Some(target) => RouteState::Published { host, target, controllers },
            None => stop("Pending", "ClusterIdentityNotAvailable"),
        }
    }

    /// The Gateways of a controller and postfix.
    pub fn gateways<'a>(&'a self, controller: &'a str, postfix: &'a str) -> impl Iterator<Item = &'a Thing> {
        let of = move |it: &&Thing| it.text("controller") == controller && it.text("targetPostfix") == postfix;
        self.all(Kind::Gateway).iter().filter(of)
    }

    /// The Gateway that owns the name of a postfix.
    pub fn owner_of_postfix(&self, postfix: &str) -> Option<&Thing> {
        let of = |gateway: &&Thing| gateway.text("targetPostfix") == postfix;
        self.all(Kind::Gateway).iter().filter(of).min_by_key(|gateway| gateway.age())
    }

    /// The load balancers of a controller and postfix.
    pub fn balancers(&self, controller: &str, postfix: &str) -> Vec<&Thing> {
        let serves = |service: &&Thing| {
            let named = || {
                let mut gateways = self.gateways(controller, postfix);
                service.name == controller && gateways.any(|gateway| gateway.namespace == service.namespace)
            };
            service.text("type") == "LoadBalancer" && (service.label("istio") == controller || named())
        };
        self.all(Kind::Service).iter().filter(serves).collect()
    }

    /// Whether this state is a reason to withdraw the host of a route from a controller.
    pub fn withdraws_route(&self, route: (&str, &str), controller: &str, host: &str) -> bool {
        let Some(route) = self.get(Kind::ServiceRoute, route.0, route.1) else { return true };
        let another_host = match self.host(route) {
            Some(Ok(own)) => own != host,
            Some(Err(())) | None => false,
        };
        let another_owner = self.claimants(host).first().is_some_and(|owner| owner.path() != route.path());
        let not_selected = match self.selection(&route.namespace) {
            Some(Selection::Active(selected)) => !selected.iter().any(|(name, _)| name == controller),
            Some(Selection::Inactive) => true,
            Some(Selection::Unknown(_)) | None => false,
        };
        another_host || another_owner || not_selected
    }

    /// Whether this state is a reason to withdraw the name of a gateway from a controller, other than an absent Gateway or Service. Another name of
    /// the gateway is not, while a route points at this one.
    pub fn withdraws_target(
        &self,
        target: (&str, &str),
        controller: &str,
        host: &str,
        alias: bool,
        pointed_at: bool,
    ) -> bool {
        let (istio, postfix) = target;
        let another_host = !pointed_at && self.target_host(postfix).is_some_and(|own| own != host);
        let another_owner = self.owner_of_postfix(postfix).is_some_and(|owner| owner.text("controller") != istio);
        let removed = self.controllers().is_some_and(|all| !all.iter().any(|(name, _)| name == controller));
        let points: Vec<Points> = self.balancers(istio, postfix).into_iter().map(Points::of).collect();
        let another_type = points.iter().any(|points| !points.is_empty() && points.is_alias() != alias);
        another_host || another_owner || removed || another_type
    }

    /// Whether a route that owns this host names this Gateway.
    pub fn wants_host(&self, gateway: (&str, &str), host: &str) -> bool {
        self.claimants(host).first().is_some_and(|owner| self.gateway_of(owner) == gateway)
    }
}
