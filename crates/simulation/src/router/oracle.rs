//! Compares the generated objects and the statuses with what the objects of users ask for. Nothing here uses the operator's code.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use super::{
    ANNOTATIONS, RouterBed,
    action::{Kind, MANAGED_BY},
    lock,
    model::{Points, Record, RouteState, Selection, State, Thing},
    writes::{self, hosts, is_same, records},
};
use crate::{bed::Moment, strikes::Allowed};

/// How long the host of a route may be unpublished.
const ALLOWED: Allowed = Allowed {
    // Its pass, and a status that is read again.
    without_fault: Duration::from_secs(20),
    // A request that hangs, the longest pause after failures, and a lease that runs out.
    after_fault: Duration::from_mins(4),
    // Permissions are tried again after one to ten minutes.
    after_refusal: Duration::from_mins(12),
};

/// Looks for routes whose DNSEndpoints are missing for longer than the faults of their own requests explain.
pub async fn look(bed: &Arc<RouterBed>) -> bool {
    let (now, mut clear) = (Instant::now(), true);
    let states = lock(&bed.states).clone();
    let Some((_, state)) = states.last() else { return true };
    let endpoints = bed.list(Kind::DnsEndpoint).await;
    let touched = *lock(&bed.touched);
    // While a place is vacant, nothing is published, and the states so far may not show who has it.
    let live = bed.state().await;
    if live.has_vacancy() {
        *lock(&bed.vacant) = Some(now);
        return true;
    }
    let vacant = *lock(&bed.vacant);
    for route in state.all(Kind::ServiceRoute) {
        let wanted = state.route(route);
        if live.route(route) != wanted {
            continue;
        }
        let RouteState::Published { host, target, controllers } = &wanted else { continue };
        let record = (host.clone(), "CNAME".to_owned(), vec![target.clone()]);
        let missing = controllers.iter().find(|(controller, _)| {
            let name = format!("{}-{controller}", route.name);
            let foreign = (Kind::DnsEndpoint, route.namespace.clone(), name);
            let is_its = |it: &&Thing| owner_uid(it) == route.uid && it.label("router.io/controller") == controller;
            let points =
                |it: &Thing| records(it) == [record.clone()] || former_target(&endpoints, it, (host, target)).is_some();
            let published = endpoints.iter().filter(is_its).any(points);
            !published && !lock(&bed.foreign).contains_key(&foreign)
        });
        let Some((controller, _)) = missing else { continue };
        clear = false;
        let same = |state: &State| {
            let there = state.get(Kind::ServiceRoute, &route.namespace, &route.name);
            there.is_some_and(|there| there.uid == route.uid && state.route(there) == wanted)
        };
        let since = states.iter().rev().take_while(|(_, state)| same(state)).last().map_or(now, |(began, _)| *began);
        let since = since.max(touched.unwrap_or(since)).max(vacant.unwrap_or(since));
        let own = format!("/namespaces/{}/dnsendpoints/{}-", route.namespace, route.name);
        if now > bed.world.strikes.of(|name| name.contains(&own)).deadline(since, &ALLOWED) {
            bed.world.violation(format!(
                "ServiceRoute {}/{} asks for {host} without faults of its own, and {controller} has no DNSEndpoint of it",
                route.namespace, route.name
            ));
        }
    }
    clear
}

/// The name that a DNSEndpoint of a route points at, where gateways publish it by the same controller, and not yet the name of the route's
/// gateway.
fn former_target(endpoints: &[Thing], it: &Thing, (host, target): (&str, &str)) -> Option<String> {
    let of_gateways = |other: &&Thing| {
        other.owners.iter().any(|(kind, ..)| kind == "Service")
            && other.label("router.io/controller") == it.label("router.io/controller")
    };
    let published: Vec<Record> = endpoints.iter().filter(of_gateways).flat_map(records).collect();
    let has = |name: &str| published.iter().any(|(published, ..)| published == name);
    let have = records(it);
    let [(name, rtype, targets)] = have.as_slice() else { return None };
    let [former] = targets.as_slice() else { return None };
    (name == host && rtype == "CNAME" && former != target && has(former) && !has(target)).then(|| former.clone())
}

fn owner_uid(thing: &Thing) -> &str {
    thing.owners.first().map_or("", |(.., uid)| uid.as_str())
}

/// Everything that is compared.
struct Checked<'a> {
    bed: &'a RouterBed,
    moment: Moment,
    state: State,
    endpoints: Vec<Thing>,
    istio: Vec<Thing>,
}

/// Checks everything.
pub async fn check(bed: &Arc<RouterBed>, moment: Moment) {
    let state = bed.state().await;
    let (endpoints, istio) = (bed.list(Kind::DnsEndpoint).await, bed.list(Kind::IstioGateway).await);
    let checked = Checked { bed, moment, state, endpoints, istio };
    checked.foreign();
    checked.routes();
    checked.targets();
    checked.gateways();
    if moment == Moment::Rest {
        checked.singletons();
    }
}

impl Checked<'_> {
    fn wrong(&self, what: &str) {
        self.bed.world.violation(format!("{:?}: {what}", self.moment));
    }

    fn foreign(&self) {
        for (key, foreign) in lock(&self.bed.foreign).iter() {
            let all = if key.0 == Kind::DnsEndpoint { &self.endpoints } else { &self.istio };
            let live = all.iter().find(|thing| thing.path() == (&key.1, &key.2));
            if !live.is_some_and(|live| is_same(live, foreign)) {
                self.wrong(&format!("foreign {key:?} was {foreign:?} and is {live:?}"));
            }
        }
    }

    fn is_foreign(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        lock(&self.bed.foreign).contains_key(&(kind, namespace.to_owned(), name.to_owned()))
    }

    /// The phase and a condition of an object are these, for its generation.
    fn reports(&self, kind: Kind, thing: &Thing, phase: Option<&str>, (type_, reason): (&str, &str)) {
        if self.moment != Moment::Rest {
            return;
        }
        let conditions = thing.status["conditions"].as_array().into_iter().flatten();
        let found = conditions.clone().find(|condition| condition["type"] == type_);
        let there = found.map_or("none", |condition| condition["reason"].as_str().unwrap_or("none"));
        let generation = thing.status["observedGeneration"].as_i64();
        let has_phase = phase.is_none_or(|phase| thing.status["phase"] == phase);
        if there != reason || !has_phase || generation != Some(thing.generation) {
            self.wrong(&format!(
                "{kind:?} {}/{}: {type_} is {there} for generation {generation:?}, its phase {}, and should be {reason}, {phase:?}",
                thing.namespace, thing.name, thing.status["phase"]
            ));
        }
    }

    /// The DNSEndpoints that belong to an object.
    fn owned_by(&self, uid: &str) -> Vec<&Thing> {
        self.endpoints.iter().filter(|it| it.owners.iter().any(|(.., owner)| owner == uid)).collect()
    }

    /// What every DNSEndpoint of a controller has.
    fn handshake(&self, thing: &Thing, controller: &str, region: &str) {
        let annotation = ANNOTATIONS.iter().find_map(|key| thing.annotations.get(*key));
        let labels = [("router.io/controller", controller), ("router.io/region", region), MANAGED_BY];
        let wrong = labels.iter().find(|(key, value)| thing.label(key) != *value);
        if wrong.is_some() || annotation.map(String::as_str) != Some(controller) {
            self.wrong(&format!("DNSEndpoint {}/{} lacks {wrong:?} or its annotation", thing.namespace, thing.name));
        }
    }

    fn routes(&self) {
        let known: BTreeSet<&str> = self.state.all(Kind::ServiceRoute).iter().map(|route| route.uid.as_str()).collect();
        let is_orphan = |it: &&Thing| {
            it.owners.iter().any(|(kind, _, uid)| kind == "ServiceRoute" && !known.contains(uid.as_str()))
        };
        for orphan in self.endpoints.iter().filter(is_orphan) {
            self.wrong(&format!("DNSEndpoint {}/{} has no ServiceRoute", orphan.namespace, orphan.name));
        }
        for route in self.state.all(Kind::ServiceRoute) {
            let own = self.owned_by(&route.uid);
            let name = format!("ServiceRoute {}/{}", route.namespace, route.name);
            match self.state.route(route) {
                RouteState::Published { host, target, controllers } => {
                    let record = (host.clone(), "CNAME".to_owned(), vec![target.clone()]);
                    let (mut taken, mut former) = (false, None);
                    for (controller, region) in &controllers {
                        let of = |it: &&&Thing| it.label("router.io/controller") == controller;
                        let published: Vec<&&Thing> = own.iter().filter(of).collect();
                        match published.as_slice() {
                            [] if self.is_foreign(
                                Kind::DnsEndpoint,
                                &route.namespace,
                                &format!("{}-{controller}", route.name),
                            ) =>
                            {
                                taken = true;
                            }
                            [one] if records(one) == [record.clone()] => self.handshake(one, controller, region),
                            [one] if former_target(&self.endpoints, one, (&host, &target)).is_some() => {
                                self.handshake(one, controller, region);
                                former = former.or(former_target(&self.endpoints, one, (&host, &target)));
                            }
                            other => {
                                let have: Vec<_> = other.iter().map(|it| (&it.name, records(it))).collect();
                                self.wrong(&format!(
                                    "{name} is published by {controller} as {have:?}, not as {record:?}"
                                ));
                            }
                        }
                    }
                    let unwanted = |it: &&&Thing| {
                        !controllers.iter().any(|(controller, _)| it.label("router.io/controller") == controller)
                    };
                    for extra in own.iter().filter(unwanted) {
                        self.wrong(&format!("{name} has DNSEndpoint {}, whose controller is not selected", extra.name));
                    }
                    let (phase, reason) = match &former {
                        _ if taken => ("Failed", "NameTaken"),
                        Some(_) => ("Pending", "TargetNotPublished"),
                        None => ("Active", "ReconciliationSucceeded"),
                    };
                    self.reports(Kind::ServiceRoute, route, Some(phase), ("Ready", reason));
                    self.listed(route, &own, &host, former.as_ref().unwrap_or(&target));
                }
                RouteState::Obstructed { phase, reason } => {
                    self.reports(Kind::ServiceRoute, route, Some(phase), ("Ready", reason));
                    self.kept(route, &own, reason, &name);
                }
            }
        }
    }

    /// What a route that cannot be published may still have.
    fn kept(&self, route: &Thing, own: &[&Thing], reason: &str, name: &str) {
        let holder = self.state.host(route).and_then(Result::ok);
        let holder = holder.and_then(|host| self.state.claimants(&host).first().map(|owner| owner.uid.clone()));
        let of_holder = holder.filter(|_| reason == "HostConflict");
        let of_holder = of_holder.map(|uid| self.owned_by(&uid)).unwrap_or_default();
        // Of each controller, one of the two publishes the host.
        let is_lost = |it: &Thing| {
            let same = |other: &Thing| other.label("router.io/controller") == it.label("router.io/controller");
            of_holder.iter().any(|other| same(other))
        };
        // A label that was edited by hand is not repaired while nothing can be published: the name counts then.
        let is_of = |it: &Thing, controller: &str| {
            it.label("router.io/controller") == controller
                || it.name.starts_with(&format!("{}-{controller}", route.name))
        };
        let is_wanted = |it: &Thing| {
            let listed = |all: &[(String, String)]| all.iter().any(|(name, _)| is_of(it, name));
            match self.state.selection(&route.namespace) {
                Some(Selection::Inactive) => false,
                Some(Selection::Active(all)) if all.is_empty() => {
                    self.state.controllers().is_none_or(|all| listed(&all))
                }
                Some(Selection::Active(all)) => listed(&all),
                Some(Selection::Unknown(_)) | None => true,
            }
        };
        for extra in own.iter().filter(|it| is_lost(it) || !is_wanted(it)) {
            self.wrong(&format!("{name} is {reason} and keeps DNSEndpoint {} of {:?}", extra.name, records(extra)));
        }
    }

    /// The status of a route lists its DNSEndpoints.
    fn listed(&self, route: &Thing, own: &[&Thing], host: &str, target: &str) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let listed = route.status["dnsEndpoints"].as_array().into_iter().flatten();
        let listed: BTreeMap<String, bool> = listed.map(|it| (text(&it["name"]), it["observed"] == true)).collect();
        let is_observed = |it: &Thing| it.status["observedGeneration"].as_i64() == Some(it.generation);
        let there: BTreeMap<String, bool> = own.iter().map(|it| (it.name.clone(), is_observed(it))).collect();
        let names = (route.status["hostname"] == host, route.status["target"] == target);
        if self.moment == Moment::Rest && (listed != there || names != (true, true)) {
            self.wrong(&format!(
                "ServiceRoute {}/{} lists {listed:?}, there are {there:?}: {}",
                route.namespace, route.name, route.status
            ));
        }
    }

    fn targets(&self) {
        let of = |gateway: &Thing| (gateway.text("controller").to_owned(), gateway.text("targetPostfix").to_owned());
        let targets: BTreeSet<(String, String)> = self.state.all(Kind::Gateway).iter().map(of).collect();
        let label = |it: &Thing| {
            (it.label("router.io/istio-controller").to_owned(), it.label("router.io/target-postfix").to_owned())
        };
        for target in &targets {
            let ours = |it: &&Thing| !self.is_foreign(Kind::DnsEndpoint, &it.namespace, &it.name);
            let own: Vec<&Thing> = self.endpoints.iter().filter(|it| label(it) == *target).filter(ours).collect();
            let reason = self.target((&target.0, &target.1), &own);
            for gateway in self.state.gateways(&target.0, &target.1) {
                self.reports(Kind::Gateway, gateway, None, ("DNSReady", reason));
            }
        }
        // What another Gateway of the postfix has not replaced yet is kept.
        let replaced = |target: &(String, String)| {
            self.state.owner_of_postfix(&target.1).is_none_or(|owner| {
                let owner = of(owner);
                self.endpoints.iter().any(|it| label(it) == owner)
            })
        };
        let strays = self.endpoints.iter().filter(|it| it.label("router.io/resource-type") == "gateway-service");
        let strays = strays.filter(|it| !self.is_foreign(Kind::DnsEndpoint, &it.namespace, &it.name));
        let awaited = |it: &Thing| self.state.owner_of_postfix(&label(it).1).is_none() && self.is_awaited(it);
        for stray in strays.filter(|it| !targets.contains(&label(it)) && replaced(&label(it)) && !awaited(it)) {
            self.wrong(&format!("DNSEndpoint {}/{} has no Gateway", stray.namespace, stray.name));
        }
    }

    /// Whether one of these DNSEndpoints points at the name.
    fn is_pointed_at<'a>(mut endpoints: impl Iterator<Item = &'a Thing>, name: &str) -> bool {
        let points = |(_, rtype, targets): &Record| rtype == "CNAME" && targets.iter().any(|target| target == name);
        endpoints.any(|it| records(it).iter().any(points))
    }

    /// Whether a route whose Gateway exists, under another name, still points at a name of the DNSEndpoint.
    fn is_awaited(&self, it: &Thing) -> bool {
        let names: BTreeSet<String> = records(it).into_iter().map(|(name, ..)| name).collect();
        let mut routes = self.state.all(Kind::ServiceRoute).iter().filter(|route| self.state.has_gateway(route));
        routes.any(|route| {
            let own = self.owned_by(&route.uid);
            names.iter().any(|name| Self::is_pointed_at(own.iter().copied(), name))
        })
    }

    /// Whether a DNSEndpoint has the records of the name, and then the same of former names. At rest, a route points at each of these.
    fn has_records(&self, it: &Thing, points: &Points, host: &str) -> bool {
        let have = records(it);
        let mut names: Vec<&str> = have.iter().map(|(name, ..)| name.as_str()).collect();
        names.dedup();
        let wanted: Vec<Record> = names.iter().flat_map(|name| points.records(name)).collect();
        let is_route = |it: &&Thing| it.owners.iter().any(|(kind, ..)| kind == "ServiceRoute");
        let is_kept = |name: &&str| {
            self.moment == Moment::Served || Self::is_pointed_at(self.endpoints.iter().filter(is_route), name)
        };
        names.first() == Some(&host) && have == wanted && names.iter().skip(1).all(is_kept)
    }

    /// Checks the DNSEndpoints of a gateway's name; returns the reason that its Gateways should report.
    fn target(&self, (controller, postfix): (&str, &str), own: &[&Thing]) -> &'static str {
        let Some(host) = self.state.target_host(postfix) else { return "ClusterIdentityNotAvailable" };
        let Some(all) = self.state.controllers() else { return "DNSConfigurationNotAvailable" };
        let name = format!("the name of the gateways {controller} {postfix}");
        // As with routes, a label that was edited by hand is not repaired while nothing can be published.
        let is_of = |it: &Thing, dns: &str| {
            let plain = format!("gateway-controller-{controller}-{postfix}-{dns}");
            it.label("router.io/controller") == dns || it.name.starts_with(&plain)
        };
        let listed = |it: &Thing| all.iter().any(|(dns, _)| is_of(it, dns));
        for extra in own.iter().filter(|it| !listed(it)) {
            self.wrong(&format!("{name} has DNSEndpoint {} of a controller that was removed", extra.name));
        }
        let owner = self.state.owner_of_postfix(postfix);
        if let Some(owner) = owner.filter(|owner| owner.text("controller") != controller) {
            let of_owner = |it: &&Thing| {
                it.label("router.io/istio-controller") == owner.text("controller")
                    && it.label("router.io/target-postfix") == postfix
            };
            let published = self.endpoints.iter().any(|it| of_owner(&it));
            if published && !own.is_empty() {
                self.wrong(&format!("{name} is owned by another Gateway, and has DNSEndpoint {}", own[0].name));
            }
            return "HostConflict";
        }
        let balancers = self.state.balancers(controller, postfix);
        let reachable: Vec<&&Thing> = balancers.iter().filter(|service| !Points::of(service).is_empty()).collect();
        if reachable.is_empty() {
            return "LoadBalancerIPPending";
        }
        // Of several load balancers that publish, the oldest is used. Where a foreign object has the name that it needs, what another one has
        // published is kept, and the name is reported.
        let publishes = |service: &&&&Thing| own.iter().any(|it| it.owners.iter().any(|(.., uid)| *uid == service.uid));
        let used = reachable.iter().filter(publishes).min_by_key(|service| (service.created, service.path()));
        let mut taken = false;
        for (dns, region) in &all {
            let published: Vec<&&Thing> = own.iter().filter(|it| it.label("router.io/controller") == dns).collect();
            let right = |it: &Thing| {
                let service = reachable.iter().find(|service| it.owners.iter().any(|(.., uid)| *uid == service.uid));
                service.is_some_and(|service| self.has_records(it, &Points::of(service), &host))
            };
            let plain = format!("gateway-controller-{controller}-{postfix}-{dns}");
            let foreign =
                reachable.iter().any(|service| self.is_foreign(Kind::DnsEndpoint, &service.namespace, &plain));
            match published.as_slice() {
                [one] if right(one) => {
                    self.handshake(one, dns, region);
                    let by_another = |service: &&&&Thing| one.owners.iter().all(|(.., uid)| *uid != service.uid);
                    let is_taken = |service: &&&Thing| self.is_foreign(Kind::DnsEndpoint, &service.namespace, &plain);
                    taken |= used.filter(by_another).is_some_and(is_taken);
                }
                // What is published is kept, also where the name of its replacement is foreign.
                [] | [_] if foreign => taken = true,
                other => {
                    let have: Vec<_> = other.iter().map(|it| (&it.name, records(it))).collect();
                    let points: Vec<_> = reachable.iter().map(|service| (&service.name, Points::of(service))).collect();
                    self.wrong(&format!("{name} is published by {dns} as {have:?}; load balancers: {points:?}"));
                }
            }
        }
        if taken { "NameTaken" } else { "DNSEndpointsCreated" }
    }

    /// The route whose gateway serves a host: its owner, or the first of the others that publishes it while the owner does not.
    fn server_of(&self, host: &str) -> Option<&Thing> {
        let claimants = self.state.claimants(host);
        let publishes = |route: &&&Thing| {
            self.owned_by(&route.uid).iter().any(|it| records(it).iter().any(|(name, ..)| name == host))
        };
        claimants.iter().find(publishes).or(claimants.first()).copied()
    }

    fn gateways(&self) {
        let mut every: BTreeSet<String> = BTreeSet::new();
        let all = self.state.all(Kind::ServiceRoute).iter();
        every.extend(all.filter_map(|route| self.state.host(route)?.ok()));
        for gateway in self.state.all(Kind::Gateway) {
            let path = gateway.path();
            let name = format!("Gateway {}/{}", path.0, path.1);
            let live = self.istio.iter().find(|it| it.path() == path);
            let serves =
                |host: &&String| self.server_of(host).is_some_and(|route| self.state.gateway_of(route) == path);
            let mut wanted: BTreeSet<String> = every.iter().filter(serves).cloned().collect();
            let foreign = self.is_foreign(Kind::IstioGateway, path.0, path.1);
            let (pods, have) = live.filter(|_| !foreign).map(hosts).unwrap_or_default();
            let refused = gateway.text("credentialName").trim().is_empty();
            if refused {
                self.reports(Kind::Gateway, gateway, Some("Failed"), ("Ready", "ValidationFailed"));
                if self.state.identity().is_some() && !have.is_subset(&wanted) {
                    self.wrong(&format!("{name} is refused and keeps {have:?}, of which {wanted:?} are its own"));
                }
                continue;
            }
            if self.state.identity().is_none() {
                self.reports(Kind::Gateway, gateway, Some("Pending"), ("Ready", "ClusterIdentityNotAvailable"));
                continue;
            }
            // A host that another Istio Gateway of the pods has must wait, unless the object of this name has it already.
            let there = live.map(|live| hosts(live).1).unwrap_or_default();
            let others = self.istio.iter().filter(|it| it.path() != path).map(hosts);
            let others: Vec<BTreeSet<String>> =
                others.filter(|(pods, _)| pods == gateway.text("controller")).map(|(_, hosts)| hosts).collect();
            wanted.retain(|host| there.contains(host) || !others.iter().any(|hosts| hosts.contains(host)));
            let (phase, reason) = match wanted.is_empty() {
                true => ("Pending", "NoServiceRoutes"),
                false if foreign => ("Failed", "NameTaken"),
                false => ("Active", "GatewayCreated"),
            };
            self.reports(Kind::Gateway, gateway, Some(phase), ("Ready", reason));
            if foreign {
                continue;
            }
            if have != wanted || (!wanted.is_empty() && pods != gateway.text("controller")) {
                self.wrong(&format!("{name}: its Istio Gateway has {have:?} for {pods}, wanted is {wanted:?}"));
            }
            if wanted.is_empty() && live.is_some() {
                self.wrong(&format!("{name} has no hosts, and its Istio Gateway exists"));
            }
        }
        self.duplicates();
    }

    /// No host is in two Istio Gateways of the operator for the same pods.
    fn duplicates(&self) {
        let mut seen: BTreeMap<(String, String), &Thing> = BTreeMap::new();
        for gateway in self.istio.iter().filter(|it| it.label(MANAGED_BY.0) == MANAGED_BY.1) {
            let (pods, hosts) = writes::hosts(gateway);
            for host in hosts {
                if let Some(other) = seen.insert((pods.clone(), host.clone()), gateway) {
                    self.wrong(&format!("{host} is in the Istio Gateways {:?} and {:?}", other.path(), gateway.path()));
                }
            }
        }
    }

    /// A younger object is used only in the place of one that was deleted.
    fn oldest_or_replaced(&self, kind: Kind) {
        let state = &self.state;
        for thing in state.all(kind) {
            let older = |used: &&Thing| thing.created < used.created;
            let Some(used) = state.used(kind, &thing.namespace).filter(older) else { continue };
            let states = lock(&self.bed.states);
            let mut before = states.iter().flat_map(|(_, state)| state.all(kind));
            if !before.any(|it| it.namespace == used.namespace && state.all(kind).iter().all(|now| now.uid != it.uid)) {
                self.wrong(&format!("{kind:?} {:?} is used, and {:?} is older", used.path(), thing.path()));
            }
        }
    }

    fn singletons(&self) {
        for kind in [Kind::ClusterIdentity, Kind::DnsConfiguration, Kind::DnsPolicy] {
            self.oldest_or_replaced(kind);
        }
        let state = &self.state;
        let regions: Option<Vec<String>> = state.controllers().map(|all| all.into_iter().map(|it| it.1).collect());
        for identity in state.all(Kind::ClusterIdentity) {
            if state.used(Kind::ClusterIdentity, "") != Some(identity) {
                self.reports(Kind::ClusterIdentity, identity, Some("Failed"), ("Ready", "SingletonViolation"));
                continue;
            }
            self.reports(Kind::ClusterIdentity, identity, Some("Active"), ("Ready", "ValidationSucceeded"));
            let adopts = state.identity().map(|it| it.adopts).unwrap_or_default();
            let known = |region: &String| regions.as_ref().is_some_and(|regions| regions.contains(region));
            let reason = match adopts.iter().all(known) {
                _ if adopts.is_empty() => "NoAdoptedRegions",
                true => "AllAdoptedRegionsValid",
                false => "AdoptedRegionNotFound",
            };
            self.reports(Kind::ClusterIdentity, identity, Some("Active"), ("AdoptedRegionsValid", reason));
        }
        for configuration in state.all(Kind::DnsConfiguration) {
            let first = state.used(Kind::DnsConfiguration, "") == Some(configuration);
            let reason = match state.controllers() {
                _ if !first => "SingletonViolation",
                Some(_) => "ConfigurationValid",
                None => "InvalidSpec",
            };
            self.reports(Kind::DnsConfiguration, configuration, None, ("Ready", reason));
        }
        for policy in state.all(Kind::DnsPolicy) {
            let first = state.used(Kind::DnsPolicy, &policy.namespace) == Some(policy);
            let (phase, reason, selected) = match state.select(policy) {
                _ if !first => ("Failed", "SingletonViolation", Some((false, Vec::new()))),
                Selection::Active(all) => ("Active", "PolicyActive", Some((true, all))),
                Selection::Inactive => ("Inactive", "PolicyInactive", Some((false, Vec::new()))),
                Selection::Unknown(reason) => ("Pending", reason, None),
            };
            self.reports(Kind::DnsPolicy, policy, Some(phase), ("Ready", reason));
            if let Some((active, controllers)) = selected {
                let listed = policy.status["activeControllers"].as_array().into_iter().flatten();
                let listed: Vec<&str> = listed.filter_map(Value::as_str).collect();
                let names: Vec<&str> = controllers.iter().map(|(name, _)| name.as_str()).collect();
                if policy.status["active"] != active || listed != names {
                    self.wrong(&format!("DNSPolicy {:?} should select {names:?}: {}", policy.path(), policy.status));
                }
            }
        }
    }
}
