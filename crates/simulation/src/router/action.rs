//! The actions of users of `router`, and how a history of it is drawn.

use kube::api::{ApiResource, GroupVersionKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    dice::Dice,
    history::{self, History, Only, Side, What},
};

/// The namespace of gateways.
pub const GATEWAYS: &str = "istio-system";
/// The label and the value of everything that the operator generates.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "service-router-operator");

/// An action of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// The surroundings of the operator; read before the start.
    Setup {
        /// How often external-dns reads the DNSEndpoints, in milliseconds; 0 when there is no external-dns.
        external_dns: u64,
    },
    /// Creates or changes an object of the five kinds.
    Put(Object),
    /// Deletes an object.
    Delete {
        /// Its kind.
        kind: Kind,
        /// Its namespace; empty for cluster-scoped kinds.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Deletes an object and creates it again.
    Replace {
        /// The new one.
        object: Object,
        /// Milliseconds between the two.
        away: u64,
    },
    /// Creates or changes a Service.
    Service(ServiceObject),
    /// Creates an object of a generated kind by hand, where the name is free.
    Foreign(Object),
    /// Changes a generated object by hand.
    Edit {
        /// Its kind.
        kind: Kind,
        /// Which of the generated objects.
        index: usize,
        /// The change.
        how: Edit,
    },
    /// Deletes a definition, and with it every object of its kind. It is installed again after a while.
    RemoveCrd {
        /// The kind.
        kind: Kind,
        /// Milliseconds until it is installed again.
        away: u64,
    },
}

/// A kind of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// `cluster.router.io` ClusterIdentity.
    ClusterIdentity,
    /// `cluster.router.io` DNSConfiguration.
    DnsConfiguration,
    /// `routing.router.io` Gateway.
    Gateway,
    /// `routing.router.io` DNSPolicy.
    DnsPolicy,
    /// `routing.router.io` ServiceRoute.
    ServiceRoute,
    /// Service.
    Service,
    /// `externaldns.k8s.io` DNSEndpoint.
    DnsEndpoint,
    /// `networking.istio.io` Gateway.
    IstioGateway,
}

impl Kind {
    /// Its resource.
    pub fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::ClusterIdentity => ("cluster.router.io", "v1alpha1", "ClusterIdentity", "clusteridentities"),
            Self::DnsConfiguration => ("cluster.router.io", "v1alpha1", "DNSConfiguration", "dnsconfigurations"),
            Self::Gateway => ("routing.router.io", "v1alpha1", "Gateway", "gateways"),
            Self::DnsPolicy => ("routing.router.io", "v1alpha1", "DNSPolicy", "dnspolicies"),
            Self::ServiceRoute => ("routing.router.io", "v1alpha1", "ServiceRoute", "serviceroutes"),
            Self::Service => ("", "v1", "Service", "services"),
            Self::DnsEndpoint => ("externaldns.k8s.io", "v1alpha1", "DNSEndpoint", "dnsendpoints"),
            Self::IstioGateway => ("networking.istio.io", "v1", "Gateway", "gateways"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    /// Whether the operator generates it.
    pub fn is_generated(self) -> bool {
        matches!(self, Self::DnsEndpoint | Self::IstioGateway)
    }
}

/// An object that a user writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its spec.
    pub spec: Value,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceObject {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its label `istio`.
    pub istio: Option<String>,
    /// Whether its type is LoadBalancer.
    pub balancer: bool,
    /// The addresses and host names of its load balancer.
    pub points: Vec<String>,
}

/// A change by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Edit {
    /// Other records, or other hosts.
    Spec,
    /// Other values of labels.
    Labels,
    /// Without the label that everything generated has.
    Unlabel,
    /// It is deleted.
    Delete,
    /// Without that label and without owners: it is foreign from then on.
    Disown,
}

/// The names of a history: few, so that they collide.
struct Stage {
    regions: Vec<&'static str>,
    controllers: Vec<(&'static str, &'static str)>,
    namespaces: Vec<&'static str>,
    routes: Vec<&'static str>,
    services: Vec<&'static str>,
    gateways: Vec<&'static str>,
    istio: Vec<&'static str>,
    postfixes: Vec<&'static str>,
    /// Chances in percent.
    bad: usize,
    second: usize,
    hand: usize,
    foreign: usize,
    definitions: usize,
}

/// One of the items, usually the first: so that objects refer to others that exist.
fn some<'a>(dice: &mut Dice, items: &[&'a str]) -> &'a str {
    if dice.chance(50) { items[0] } else { dice.pick(items) }
}

impl Stage {
    fn draw(dice: &mut Dice) -> Self {
        let few = |dice: &mut Dice, all: &[&'static str]| all[..=dice.below(all.len())].to_vec();
        Self {
            regions: few(dice, &["weu", "neu"]),
            controllers: match dice.below(3) {
                0 => vec![("external-dns-weu", "weu")],
                1 => vec![("external-dns-weu", "weu"), ("external-dns-neu", "neu"), ("external-dns-frc", "frc")],
                // The DNSEndpoints of the routes `api` and `api-x` have the same name with these.
                _ => vec![("weu", "weu"), ("x-weu", "weu"), ("neu", "neu")],
            },
            namespaces: few(dice, &["one", "two"]),
            routes: few(dice, &["api", "web", "api-x"]),
            services: few(dice, &["api", "web"]),
            gateways: few(dice, &["gw", "edge"]),
            istio: few(dice, &["istio-a", "istio-b"]),
            postfixes: few(dice, &["internal", "external"]),
            bad: dice.pick(&[0, 3, 12]),
            second: dice.pick(&[0, 10, 35]),
            hand: dice.pick(&[0, 6, 20]),
            foreign: dice.pick(&[0, 0, 5, 15]),
            definitions: dice.pick(&[0, 0, 3]),
        }
    }

    fn put(kind: Kind, namespace: &str, name: &str, spec: Value) -> Object {
        Object { kind, namespace: namespace.to_owned(), name: name.to_owned(), spec }
    }

    fn identity(&self, dice: &mut Dice) -> Object {
        let name = if dice.chance(self.second) { "a-second" } else { "cluster-identity" };
        let domain = if dice.chance(8) { "example.org" } else { "example.com" };
        let adopts: Vec<&str> = dice.pick(&[vec![], vec![], vec!["frc"], vec!["neu"], vec!["neu", "frc", "weu"]]);
        let spec = json!({
            "region": some(dice, &self.regions), "cluster": "c1", "domain": domain, "environmentLetter": "p", "adoptsRegions": adopts,
        });
        Self::put(Kind::ClusterIdentity, "", name, spec)
    }

    fn configuration(&self, dice: &mut Dice) -> Object {
        let name = if dice.chance(self.second) { "a-second" } else { "dns-config" };
        let mut listed: Vec<(&str, &str)> = self.controllers.iter().filter(|_| dice.chance(75)).copied().collect();
        if listed.is_empty() {
            listed.push(self.controllers[0]);
        }
        if dice.chance(8) {
            // A controller of another region.
            listed[0].1 = "frc";
        }
        if dice.chance(self.bad) {
            listed.push(listed[0]);
        }
        let listed: Vec<Value> =
            listed.iter().map(|(name, region)| json!({ "name": name, "region": region })).collect();
        Self::put(Kind::DnsConfiguration, "", name, json!({ "externalDNSControllers": listed }))
    }

    fn gateway(&self, dice: &mut Dice) -> Object {
        let credential = if dice.chance(self.bad) { " " } else { "cert" };
        let spec = json!({
            "controller": some(dice, &self.istio), "credentialName": credential, "targetPostfix": some(dice, &self.postfixes),
        });
        let namespace = if dice.chance(10) { "one" } else { GATEWAYS };
        Self::put(Kind::Gateway, namespace, some(dice, &self.gateways), spec)
    }

    fn policy(&self, dice: &mut Dice) -> Object {
        let name = if dice.chance(self.second) { "a-second" } else { "policy" };
        let spec = match dice.weighted(&[5, 2, 2, 1]) {
            0 => json!({ "mode": "Active" }),
            1 => json!({ "mode": "RegionBound", "sourceRegion": dice.pick(&["weu", "neu"]) }),
            2 => json!({ "mode": "RegionBound", "sourceCluster": dice.pick(&["c1", "c1", "c2"]) }),
            _ => json!({ "mode": "Active", "sourceRegion": dice.pick(&["weu", "neu"]) }),
        };
        Self::put(Kind::DnsPolicy, some(dice, &self.namespaces), name, spec)
    }

    fn route(&self, dice: &mut Dice) -> Object {
        let bad = ["Bad_Name", " ", "a-name-that-is-far-too-long-for-one-label-of-a-host-name-in-dns"];
        let service = if dice.chance(self.bad) { dice.pick(&bad) } else { dice.pick(&self.services) };
        let mut spec = json!({
            "serviceName": service, "gatewayName": some(dice, &self.gateways), "environment": "prod", "application": "shop",
        });
        if dice.chance(8) {
            spec["gatewayNamespace"] = json!(dice.pick(&["one", GATEWAYS, "nowhere"]));
        }
        Self::put(Kind::ServiceRoute, some(dice, &self.namespaces), dice.pick(&self.routes), spec)
    }

    fn service(&self, dice: &mut Dice) -> ServiceObject {
        let controller = some(dice, &self.istio);
        let (name, istio) = match dice.below(6) {
            0..=3 => (controller, Some(controller)),
            4 => (controller, None),
            _ => ("other", Some(controller)),
        };
        let points = match dice.weighted(&[6, 2, 3, 2, 1, 1]) {
            0 => vec![dice.pick(&["10.0.0.1", "10.0.0.2"])],
            1 => vec!["10.0.0.1", "2001:db8::1"],
            2 => vec![],
            3 => vec!["lb.cloud.example"],
            4 => vec!["2001:db8::1"],
            _ => vec!["10.0.0.1", "10.0.0.2", "lb.cloud.example"],
        };
        ServiceObject {
            namespace: if dice.chance(15) { "one" } else { GATEWAYS }.to_owned(),
            name: name.to_owned(),
            istio: istio.map(str::to_owned),
            balancer: !dice.chance(5),
            points: points.into_iter().map(str::to_owned).collect(),
        }
    }

    fn foreign(&self, dice: &mut Dice) -> Vec<Action> {
        let (controller, region) = dice.pick(&self.controllers);
        let object = match dice.below(4) {
            0 | 1 => {
                let namespace = some(dice, &self.namespaces);
                let name = format!("{}-{controller}", dice.pick(&self.routes));
                (Kind::DnsEndpoint, namespace, name)
            }
            2 => {
                let (istio, postfix) = (some(dice, &self.istio), some(dice, &self.postfixes));
                (Kind::DnsEndpoint, GATEWAYS, format!("gateway-controller-{istio}-{postfix}-{controller}"))
            }
            _ => (Kind::IstioGateway, GATEWAYS, dice.pick(&["gw", "edge", "hand"]).to_owned()),
        };
        let (kind, namespace, name) = object;
        if dice.chance(40) {
            return vec![Action::Delete { kind, namespace: namespace.to_owned(), name }];
        }
        let spec = if kind == Kind::DnsEndpoint {
            let name = format!("by-hand-{region}.example.com");
            json!({ "endpoints": [{ "dnsName": name, "recordType": "A", "recordTTL": 60, "targets": ["192.0.2.7"] }] })
        } else {
            let host = match dice.below(3) {
                0 => format!("{}-ns-p-prod-shop.example.com", dice.pick(&self.services)),
                _ => "by-hand.example.com".to_owned(),
            };
            json!({
                "selector": { "istio": some(dice, &self.istio) },
                "servers": [{ "port": { "number": 443, "name": "https", "protocol": "HTTPS" }, "hosts": [host],
                    "tls": { "mode": "SIMPLE", "credentialName": "hand" } }],
            })
        };
        vec![Action::Foreign(Self::put(kind, namespace, &name, spec))]
    }

    fn any(&self, dice: &mut Dice) -> Object {
        match dice.weighted(&[2, 3, 4, 4, 8]) {
            0 => self.identity(dice),
            1 => self.configuration(dice),
            2 => self.gateway(dice),
            3 => self.policy(dice),
            _ => self.route(dice),
        }
    }

    /// Usually one action; at the start, everything that a route needs.
    fn act(&self, dice: &mut Dice, first: bool) -> Vec<Action> {
        if first {
            let mut all = vec![
                Action::Put(self.identity(dice)),
                Action::Put(self.configuration(dice)),
                Action::Put(self.gateway(dice)),
                Action::Service(self.service(dice)),
                Action::Put(self.policy(dice)),
            ];
            all.extend((0..=dice.below(3)).map(|_| Action::Put(self.route(dice))));
            if dice.chance(20) {
                all.remove(dice.below(all.len()));
            }
            return all;
        }
        if dice.chance(self.definitions) {
            let kinds = [Kind::DnsEndpoint, Kind::IstioGateway, Kind::DnsEndpoint, Kind::ServiceRoute, Kind::Gateway];
            return vec![Action::RemoveCrd { kind: dice.pick(&kinds), away: dice.pick(&[100, 20_000, 100_000]) }];
        }
        if dice.chance(self.foreign) {
            return self.foreign(dice);
        }
        if dice.chance(self.hand) {
            let how = dice.pick(&[Edit::Spec, Edit::Labels, Edit::Unlabel, Edit::Delete, Edit::Disown]);
            let kind = dice.pick(&[Kind::DnsEndpoint, Kind::DnsEndpoint, Kind::IstioGateway]);
            return vec![Action::Edit { kind, index: dice.below(8), how }];
        }
        let object = self.any(dice);
        match dice.weighted(&[12, 4, 4, 5, 1]) {
            0 => vec![Action::Put(object)],
            1 => vec![Action::Delete { kind: object.kind, namespace: object.namespace, name: object.name }],
            2 => vec![Action::Replace { object, away: dice.pick(&[0, 0, 30, 3_000, 40_000]) }],
            3 => vec![Action::Service(self.service(dice))],
            _ => {
                let ServiceObject { namespace, name, .. } = self.service(dice);
                vec![Action::Delete { kind: Kind::Service, namespace, name }]
            }
        }
    }
}

/// The history of a seed.
pub fn draw(seed: u64) -> History<Action> {
    let mut dice = Dice::new(seed);
    let external_dns = dice.pick(&[0, 10_000, 60_000]);
    let stage = Stage::draw(&mut dice);
    let mut history = history::draw(seed, &mut dice, move |dice, first| stage.act(dice, first));
    // There is no provider: the API gets those faults too.
    for event in &mut history.events {
        if let What::Spell(spell) = &mut event.what
            && spell.side == Side::Provider
        {
            spell.side = Side::Api;
            if matches!(spell.on, Only::Records | Only::Zones) {
                spell.on = Only::Metadata;
            }
        }
    }
    history.after(Action::Setup { external_dns })
}
