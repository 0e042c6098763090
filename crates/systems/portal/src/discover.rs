//! Names on objects that no system of this operator publishes: Ingress, Service, DNSEndpoint, the Gateway API and Istio. Read only.
//!
//! ```text
//!  Ingress, Service, DNSEndpoint ─────────────► names ─┐
//!  HTTPRoute, GRPCRoute, TLSRoute + Gateway ──► names ─┼─► facts of the object, as a DNS object has them ─► Objects
//!  Istio Gateway + Service, VirtualService ───► names ─┘        without names that a system publishes from the same object
//! ```
//!
//! A kind that is not installed has no names. The engine reports deletions only when the API server did, so a kind that cannot be listed
//! keeps its names.
//!
//! A change of an object is passed on to the objects that refer to it, and to no others: a cluster may have thousands of each kind.
//!
//! An object that asks for a component by its annotations has one, also when a system of this operator has all of its names.

pub(crate) mod attach;
pub(crate) mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signpost_apis::externaldns::DnsEndpoint;
use signpost_apis::gatewayapi::{Gateway, GrpcRoute, HttpRoute, Listener, TlsRoute, TlsRouteAlpha};
use signpost_apis::ingress::Ingress;
use signpost_apis::istio::{IstioGateway, VirtualService};
use signpost_apis::portal::{DnsEntry, DnsGroup};
use signpost_apis::service::Service;
use signpost_dns::Fqdn;
use signpost_engine::project::origin;
use signpost_engine::{Identity, Index, ObjectId, Operator, Watch};
use signpost_inventory::{Change, Inventory, Origin, Source, Stage, Subscription, Update, View};

use self::attach::{Route, Served, istio_host};
use self::read::{MOST, Named, Names, Notes, counting_targets, of_endpoint, of_ingress, of_service, points};
use crate::NAME;
use crate::index::{DnsFacts, Objects, least};
use crate::plan::entries::{self, Group};

/// Who publishes the objects that the router generates.
const EXTERNAL_DNS: &str = "external-dns";

/// Gateways of one VirtualService, and listeners of one Gateway, beyond this are left out. The Gateway API allows 64 listeners.
const MOST_GATEWAYS: usize = 64;

/// Hosts of an object, each once. Hosts beyond [`MOST`] are left out.
#[derive(Clone, Debug, Default)]
struct Hosts {
    hosts: Vec<String>,
    omitted: usize,
}

impl Hosts {
    fn new<'a>(all: impl Iterator<Item = &'a String>) -> Self {
        let mut seen = BTreeSet::new();
        let distinct: Vec<&String> = all.filter(|host| seen.insert(*host)).collect();
        let omitted = distinct.len().saturating_sub(MOST);
        Self { hosts: distinct.into_iter().take(MOST).cloned().collect(), omitted }
    }
}

/// The content of an object, as far as it names hosts.
#[derive(Clone, Debug)]
enum Content {
    /// They are all in the object.
    Names(Names),
    /// A Gateway of the Gateway API: listeners and addresses. It names nothing by itself.
    Gateway(Vec<Listener>, Vec<String>),
    /// A route to Gateways.
    Route(Route),
    /// An Istio Gateway: hosts, the same to compare others with, and the labels that it selects.
    IstioGateway(Hosts, Arc<Served>, BTreeMap<String, String>),
    /// A VirtualService: hosts and Gateways, as namespace and name.
    VirtualService(Hosts, BTreeSet<(String, String)>),
}

#[derive(Clone, Debug)]
struct Found {
    identity: Identity,
    notes: Notes,
    content: Content,
}

impl Found {
    /// The Ingress whose addresses an Istio Gateway has, as namespace and name.
    fn ingress(&self) -> Option<(&str, &str)> {
        let ingress = self.notes.ingress.as_deref()?;
        let own = self.identity.id.namespace.as_deref().unwrap_or_default();
        Some(ingress.split_once('/').unwrap_or((own, ingress)))
    }

    /// The same object in its newer version, which has the names where it is served.
    fn newer(&self) -> Option<ObjectId> {
        let id = &self.identity.id;
        id.is::<TlsRouteAlpha>().then(|| ObjectId::new::<TlsRoute>(id.namespace.as_deref(), &id.name))
    }

    /// The objects that it refers to by name, and that its own names depend on.
    fn referred(&self) -> Vec<ObjectId> {
        match &self.content {
            Content::Names(_) | Content::Gateway(..) => Vec::new(),
            Content::Route(route) => {
                let gateways = route.gateways().map(|(space, name)| ObjectId::new::<Gateway>(Some(space), name));
                gateways.chain(self.newer()).collect()
            }
            Content::IstioGateway(..) => {
                let ingress = self.ingress().map(|(space, name)| ObjectId::new::<Ingress>(Some(space), name));
                ingress.into_iter().collect()
            }
            Content::VirtualService(_, gateways) => {
                gateways.iter().map(|(space, name)| ObjectId::new::<IstioGateway>(Some(space), name)).collect()
            }
        }
    }
}

/// The selector and the addresses of a LoadBalancer Service.
type Balancer = (BTreeMap<String, String>, Vec<String>);

#[derive(Debug, Default)]
struct State {
    found: BTreeMap<Arc<ObjectId>, Found>,
    balancers: BTreeMap<ObjectId, Balancer>,
    /// The addresses of Ingresses, by namespace and name.
    ingresses: BTreeMap<(String, String), Vec<String>>,
    /// The labels of namespaces.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The objects that name a host, and the hosts of each.
    by_name: BTreeSet<(Fqdn, Arc<ObjectId>)>,
    named: BTreeMap<Arc<ObjectId>, Vec<Fqdn>>,
    /// The objects that refer to an object: routes to Gateways, VirtualServices to Istio Gateways, and these to an Ingress.
    referring: BTreeMap<ObjectId, BTreeSet<Arc<ObjectId>>>,
    /// The Istio Gateways, which select Services by labels.
    istio_gateways: BTreeSet<Arc<ObjectId>>,
}

/// Every object that is read for its names.
pub(crate) struct Discovery {
    objects: Arc<Objects>,
    inventory: Arc<Inventory>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovery").finish_non_exhaustive()
    }
}

/// Watches every kind that may name hosts.
pub(crate) fn install(operator: &mut Operator, objects: &Arc<Objects>, inventory: &Arc<Inventory>) {
    let (objects, inventory) = (objects.clone(), inventory.clone());
    let (_, changes) = inventory.subscribe();
    let discovery = Arc::new(Discovery { objects, inventory, state: Mutex::default() });
    discovery.objects.discovered_by(&discovery);
    let watch = Watch::optional;
    operator.watch::<Ingress>(NAME, watch(), discovery.clone() as Arc<dyn Index<Ingress>>);
    operator.watch::<Service>(NAME, watch(), discovery.clone() as Arc<dyn Index<Service>>);
    operator.watch::<DnsEndpoint>(NAME, watch(), discovery.clone() as Arc<dyn Index<DnsEndpoint>>);
    operator.watch::<Gateway>(NAME, watch(), discovery.clone() as Arc<dyn Index<Gateway>>);
    operator.watch::<HttpRoute>(NAME, watch(), discovery.clone() as Arc<dyn Index<HttpRoute>>);
    operator.watch::<GrpcRoute>(NAME, watch(), discovery.clone() as Arc<dyn Index<GrpcRoute>>);
    operator.watch::<TlsRoute>(NAME, watch(), discovery.clone() as Arc<dyn Index<TlsRoute>>);
    operator.watch::<TlsRouteAlpha>(NAME, watch(), discovery.clone() as Arc<dyn Index<TlsRouteAlpha>>);
    operator.watch::<IstioGateway>(NAME, watch(), discovery.clone() as Arc<dyn Index<IstioGateway>>);
    operator.watch::<VirtualService>(NAME, watch(), discovery.clone() as Arc<dyn Index<VirtualService>>);
    operator.watch::<Namespace>(NAME, watch(), discovery.clone() as Arc<dyn Index<Namespace>>);
    operator.spawn(discovery.follow(changes));
}

impl Discovery {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges the objects of a name again when a system publishes it, refuses it, or does not have it any more.
    async fn follow(self: Arc<Self>, mut changes: Subscription) {
        loop {
            let concerned: BTreeSet<Arc<ObjectId>> = match changes.next().await {
                Update::Lagged(_) => self.lock().found.keys().cloned().collect(),
                Update::Changes(batch) => {
                    let state = self.lock();
                    let views = batch.changes.iter().map(|change| match change {
                        Change::Added(view) | Change::Modified(view) | Change::Removed(view) => view,
                    });
                    let others = views.filter(|view| view.owner().system != NAME);
                    others.flat_map(|view| state.naming(view.name())).cloned().collect()
                }
            };
            for id in concerned {
                self.show(&id);
            }
        }
    }

    /// Stores the content of an object, and passes on its names.
    fn put(&self, identity: Identity, notes: Notes, content: Content) {
        let id = identity.id.clone();
        let mut state = self.lock();
        let moved = match state.found.get(&id) {
            Some(found) => found.notes.place() != notes.place(),
            None => notes.place() != Notes::of(&ObjectMeta::default()).place(),
        };
        state.insert(Found { identity, notes, content });
        drop(state);
        if moved {
            self.objects.places_changed();
        }
        self.show(&id);
        self.show_dependents(&id);
    }

    fn remove(&self, id: &ObjectId) {
        let removed = self.lock().remove(id);
        if let Some(id) = removed {
            self.show(&id);
            self.show_dependents(&id);
        }
    }

    /// What the annotations of the object that a name comes from ask for.
    pub(crate) fn notes_of(&self, origin: &Origin) -> Option<Notes> {
        let namespace = Some(&*origin.namespace);
        let id = match &*origin.kind {
            "Ingress" => ObjectId::new::<Ingress>(namespace, &origin.name),
            "DNSEndpoint" => ObjectId::new::<DnsEndpoint>(namespace, &origin.name),
            _ => return None,
        };
        self.lock().found.get(&id).map(|found| found.notes.clone())
    }

    /// Judges again what refers to an object, and what refers to that in turn: an Ingress, an Istio Gateway, a VirtualService.
    fn show_dependents(&self, id: &ObjectId) {
        let concerned = self.lock().referring.get(id).cloned().unwrap_or_default();
        for id in concerned {
            self.show(&id);
            self.show_dependents(&id);
        }
    }

    /// Judges again the Istio Gateways that select one of these Services.
    fn show_selecting(&self, balancers: &[&Balancer]) {
        let state = self.lock();
        let concerned = |id: &&Arc<ObjectId>| match state.found.get(*id).map(|found| &found.content) {
            Some(Content::IstioGateway(.., selector)) => balancers.iter().any(|(labels, _)| selects(selector, labels)),
            Some(_) | None => false,
        };
        let gateways: Vec<Arc<ObjectId>> = state.istio_gateways.iter().filter(concerned).cloned().collect();
        drop(state);
        for id in gateways {
            self.show(&id);
            self.show_dependents(&id);
        }
    }

    /// Passes on the names of an object as they are now.
    fn show(&self, id: &Arc<ObjectId>) {
        let mut state = self.lock();
        let found = state.found.get(id).filter(|found| !state.is_older(found)).cloned();
        let Names { all: mut names, mut omitted, .. } =
            found.as_ref().filter(|found| !found.notes.ignored).map(|found| state.names(found)).unwrap_or_default();
        let parsed = |named: &Named| Fqdn::parse(named.host.trim()).ok();
        for name in state.named.remove(id).unwrap_or_default() {
            state.by_name.remove(&(name, id.clone()));
        }
        let hosts: Vec<Fqdn> = names.iter().filter_map(parsed).collect();
        for name in &hosts {
            state.by_name.insert((name.clone(), id.clone()));
        }
        if !hosts.is_empty() {
            state.named.insert(id.clone(), hosts);
        }
        let (snapshot, from) = (self.inventory.snapshot(), origin(id));
        let generated = found.as_ref().is_some_and(|found| found.notes.generated);
        let published = |view: &Arc<View>| {
            let provenance = view.provenance();
            let by_router = || generated && *provenance.publisher == *EXTERNAL_DNS;
            // A name that a system refused may be published by others.
            view.owner().system != NAME && view.stage() != Stage::Refused && (provenance.origin == from || by_router())
        };
        let asked = found.as_ref().filter(|_| !names.is_empty()).map(|found| found.notes.component.clone());
        let component = asked.unwrap_or_default();
        // An entry that is not a name is kept: it is reported.
        names.retain(|named| parsed(named).is_none_or(|name| !snapshot.get(&name).any(published)));
        omitted += names.len().saturating_sub(MOST);
        names.truncate(MOST);
        // With the lock held: the newest names of an object are also the last ones that are passed on.
        let is_shown = |found: &Found| {
            !names.is_empty() || !component.is_empty() || !self.objects.owned_by(&found.identity).is_empty()
        };
        match found.filter(is_shown) {
            Some(found) => {
                let facts = DnsFacts { omitted, ..facts(&found.notes, names, component) };
                self.objects.put_source(found.identity, &facts);
            }
            None => self.objects.remove_source(id),
        }
    }

    /// Judges again the object with one of these UIDs, which owns a component; it may be known in two versions.
    pub(crate) fn show_owner(&self, owners: &[String]) {
        let state = self.lock();
        let is = |found: &&Found| owners.iter().any(|uid| **uid == *found.identity.uid);
        let found: Vec<Arc<ObjectId>> =
            state.found.values().filter(is).map(|found| found.identity.id.clone()).collect();
        drop(state);
        for id in found {
            self.show(&id);
        }
    }
}

/// The names as a DNS object has them: every group has all of them.
fn facts(notes: &Notes, names: Vec<Named>, component: BTreeMap<String, String>) -> DnsFacts {
    let entry = |Named { host, rtype, targets, how }: Named| DnsEntry {
        fqdn: host,
        record_type: rtype,
        targets: targets.to_vec(),
        match_: Some(how),
        ..DnsEntry::default()
    };
    let all = DnsGroup { entries: names.into_iter().map(entry).collect(), ..DnsGroup::default() };
    let read = entries::aggregate(entries::collect(&[all]));
    let names: Arc<Vec<_>> = read.into_iter().next().map(|group| group.names).unwrap_or_default();
    let groups: BTreeSet<&String> = notes.groups.iter().collect();
    let group = |name: &String| Group { name: name.as_str().into(), description: None, names: names.clone() };
    DnsFacts {
        portal: notes.portal.clone().unwrap_or_default(),
        source: Source::ExternalDns,
        groups: Arc::new(groups.into_iter().map(group).collect()),
        annotations: component,
        size: 0,
        seed: Arc::default(),
        taken: Arc::default(),
        owners: Vec::new(),
        reported: 0,
        omitted: 0,
    }
}

/// Whether an Istio Gateway with this selector is reached at a Service with this one.
fn selects(gateway: &BTreeMap<String, String>, service: &BTreeMap<String, String>) -> bool {
    !gateway.is_empty() && gateway.iter().all(|(key, value)| service.get(key) == Some(value))
}

impl State {
    /// The objects that name a host.
    fn naming(&self, host: &Fqdn) -> impl Iterator<Item = &Arc<ObjectId>> {
        let from = (host.clone(), least());
        let named = self.by_name.range(from..).take_while(move |(name, _)| name == host);
        named.map(|(_, id)| id)
    }

    fn insert(&mut self, found: Found) {
        let id = found.identity.id.clone();
        self.remove(&id);
        for referred in found.referred() {
            self.referring.entry(referred).or_default().insert(id.clone());
        }
        if matches!(found.content, Content::IstioGateway(..)) {
            self.istio_gateways.insert(id.clone());
        }
        self.found.insert(id, found);
    }

    fn remove(&mut self, id: &ObjectId) -> Option<Arc<ObjectId>> {
        let (id, found) = self.found.remove_entry(id)?;
        for referred in found.referred() {
            if let Some(ids) = self.referring.get_mut(&referred) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.referring.remove(&referred);
                }
            }
        }
        self.istio_gateways.remove(&id);
        Some(id)
    }

    /// The names of an object, together with the objects that it refers to.
    fn names(&self, found: &Found) -> Names {
        let notes = &found.notes;
        match &found.content {
            Content::Names(names) => names.clone(),
            Content::Gateway(..) => Names::default(),
            Content::Route(route) => self.names_of_route(found, route),
            Content::IstioGateway(hosts, ..) => {
                let defined = hosts.hosts.iter().map(|host| istio_host(host));
                notes.names(defined, hosts.omitted, &self.istio_targets(found))
            }
            Content::VirtualService(hosts, gateways) => {
                let gateways: Vec<(&Found, &Served)> = gateways
                    .iter()
                    .filter_map(|(namespace, name)| {
                        let id = ObjectId::new::<IstioGateway>(Some(namespace), name);
                        let gateway = self.found.get(&id)?;
                        if let Content::IstioGateway(_, served, _) = &gateway.content {
                            Some((gateway, &**served))
                        } else {
                            None
                        }
                    })
                    .collect();
                // A host counts where a Gateway serves it; without any, it is a name inside the mesh. Each is compared with each Gateway, so there are
                // fewer hosts where there are many Gateways.
                let most = MOST / gateways.len().max(1);
                let serves = |host: &&str| gateways.iter().any(|(_, served)| served.accepts(host));
                let compared = hosts.hosts.iter().take(most).map(String::as_str);
                let defined = compared.filter(|host| !notes.targets.is_empty() || serves(host));
                let mut own: Vec<String> =
                    gateways.iter().flat_map(|(gateway, _)| self.istio_targets(gateway)).collect();
                own.sort();
                own.dedup();
                let omitted = hosts.omitted + hosts.hosts.len().saturating_sub(most);
                notes.names(defined, omitted, &notes.targets(own))
            }
        }
    }

    /// Whether it is a route that is read in its newer version too. Both have one UID, so each would take the components of the other for its own.
    fn is_older(&self, found: &Found) -> bool {
        found.newer().is_some_and(|newer| self.found.contains_key(&newer))
    }

    fn names_of_route(&self, found: &Found, route: &Route) -> Names {
        let nothing = BTreeMap::new();
        let labels = self.namespaces.get(&route.namespace).unwrap_or(&nothing);
        let mut by_host: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut targets: Vec<Vec<String>> = Vec::new();
        let gateways: BTreeSet<(&str, &str)> = route.gateways().collect();
        for (namespace, name) in gateways {
            let Some(gateway) = self.found.get(&ObjectId::new::<Gateway>(Some(namespace), name)) else { continue };
            let Content::Gateway(listeners, addresses) = &gateway.content else { continue };
            let Some(defined) = route.hosts_at((namespace, name), listeners, labels) else { continue };
            for host in found.notes.hosts(defined.iter().map(String::as_str)) {
                by_host.entry(host).or_default().push(targets.len());
            }
            targets.push(gateway.notes.targets(addresses.clone()));
        }
        // Hosts at the same Gateways have the same targets.
        let mut by_gateways: BTreeMap<Vec<usize>, Vec<String>> = BTreeMap::new();
        for (host, gateways) in by_host {
            by_gateways.entry(gateways).or_default().push(host);
        }
        let mut names = Names::default();
        for (gateways, hosts) in by_gateways {
            let reached = gateways.iter().filter_map(|number| targets.get(*number)).flatten();
            let reached: BTreeSet<&String> = reached.collect();
            names.add(&hosts, &reached.into_iter().cloned().collect::<Vec<_>>());
        }
        names
    }

    /// Where an Istio Gateway is reached: as annotated, at an Ingress, or at the Services that it selects.
    fn istio_targets(&self, gateway: &Found) -> Vec<String> {
        let Content::IstioGateway(.., selector) = &gateway.content else { return Vec::new() };
        let own = if let Some((namespace, name)) = gateway.ingress() {
            self.ingresses.get(&(namespace.to_owned(), name.to_owned())).cloned().unwrap_or_default()
        } else {
            let selected = self.balancers.values().filter(|(of, _)| selects(selector, of));
            counting_targets(selected.flat_map(|(_, points)| points.iter().cloned()))
        };
        gateway.notes.targets(own)
    }
}

/// An index that stores the content of objects.
macro_rules! found {
    ($kind:ty, |$object:ident, $notes:ident| $content:expr) => {
        impl Index<$kind> for Discovery {
            fn applied(&self, $object: &$kind) {
                let $notes = Notes::of(&$object.metadata);
                let content = $content;
                self.put(Identity::of($object), $notes, content);
            }

            fn deleted(&self, id: &ObjectId) {
                self.remove(id);
            }
        }
    };
}

/// An index of routes.
macro_rules! route {
    ($kind:ty, $name:literal) => {
        found!($kind, |object, notes| {
            let _ = &notes;
            let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
            Content::Route(Route::new($name, namespace, &object.spec, &object.status))
        });
    };
}

found!(DnsEndpoint, |object, notes| {
    let _ = &notes;
    Content::Names(of_endpoint(object))
});
found!(Gateway, |object, notes| {
    let _ = &notes;
    let addresses = object.status.addresses.iter().map(|address| address.value.clone());
    let addresses = counting_targets(addresses.filter(|value| !value.is_empty()));
    Content::Gateway(object.spec.listeners.iter().take(MOST_GATEWAYS).cloned().collect(), addresses)
});
route!(HttpRoute, "HTTPRoute");
route!(GrpcRoute, "GRPCRoute");
route!(TlsRoute, "TLSRoute");
route!(TlsRouteAlpha, "TLSRoute");
found!(IstioGateway, |object, notes| {
    let _ = &notes;
    let hosts = Hosts::new(object.spec.servers.iter().flat_map(|server| &server.hosts));
    let served = Served::new(hosts.hosts.iter().map(|host| istio_host(host)));
    Content::IstioGateway(hosts, Arc::new(served), object.spec.selector.clone())
});
found!(VirtualService, |object, notes| {
    let _ = &notes;
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let mut gateways = BTreeSet::new();
    for name in object.spec.gateways.iter().filter(|name| *name != "mesh") {
        let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
        if gateways.len() < MOST_GATEWAYS {
            gateways.insert((namespace.to_owned(), name.to_owned()));
        }
    }
    Content::VirtualService(Hosts::new(object.spec.hosts.iter()), gateways)
});

impl Index<Ingress> for Discovery {
    fn applied(&self, object: &Ingress) {
        let notes = Notes::of(&object.metadata);
        let identity = Identity::of(object);
        let place = (object.metadata.namespace.clone().unwrap_or_default(), identity.id.name.clone());
        // Only those with an address: that is what an Istio Gateway takes from an Ingress.
        let points = points(&object.status.load_balancer);
        if points.is_empty() {
            self.lock().ingresses.remove(&place);
        } else {
            self.lock().ingresses.insert(place, points);
        }
        let names = of_ingress(object, &notes);
        self.put(identity, notes, Content::Names(names));
    }

    fn deleted(&self, id: &ObjectId) {
        self.lock().ingresses.remove(&(id.namespace.clone().unwrap_or_default(), id.name.clone()));
        self.remove(id);
    }
}

impl Index<Service> for Discovery {
    fn applied(&self, object: &Service) {
        let id = ObjectId::of(object);
        if !object.is_load_balancer() {
            return Index::<Service>::deleted(self, &id);
        }
        let notes = Notes::of(&object.metadata);
        let balancer = (object.spec.selector.clone(), points(&object.status.load_balancer));
        let before = self.lock().balancers.insert(id, balancer.clone());
        let names = of_service(object, &notes);
        self.put(Identity::of(object), notes, Content::Names(names));
        if before.as_ref() != Some(&balancer) {
            self.show_selecting(&before.iter().chain([&balancer]).collect::<Vec<_>>());
        }
    }

    fn deleted(&self, id: &ObjectId) {
        let before = self.lock().balancers.remove(id);
        self.remove(id);
        if let Some(before) = before {
            self.show_selecting(&[&before]);
        }
    }
}

impl Index<Namespace> for Discovery {
    fn applied(&self, object: &Namespace) {
        let name = object.metadata.name.clone().unwrap_or_default();
        let labels = object.metadata.labels.clone().unwrap_or_default();
        self.label(&name, Some(&labels));
    }

    fn deleted(&self, id: &ObjectId) {
        self.label(&id.name, None);
    }
}

impl Discovery {
    /// Takes the labels of a namespace; its routes are judged again when they changed.
    fn label(&self, namespace: &str, labels: Option<&BTreeMap<String, String>>) {
        let mut state = self.lock();
        let before = match labels {
            Some(labels) => state.namespaces.insert(namespace.to_owned(), labels.clone()),
            None => state.namespaces.remove(namespace),
        };
        if before.as_ref() == labels {
            return;
        }
        let routes = state
            .found
            .iter()
            .filter(|(_, found)| matches!(&found.content, Content::Route(route) if route.namespace == namespace));
        let routes: Vec<Arc<ObjectId>> = routes.map(|(id, _)| id.clone()).collect();
        drop(state);
        for id in routes {
            self.show(&id);
        }
    }
}

#[cfg(test)]
mod tests;
