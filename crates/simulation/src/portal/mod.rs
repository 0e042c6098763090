//! `portal` under simulation. Only this file knows how the system is installed.
//!
//! The resolver is simulated behind the trait `Lookup`. Portals of other clusters, the Gateway API and Istio are not part of it.

pub mod action;
pub mod oracle;
pub mod twin;

use std::{
    any::Any,
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::networking::v1::Ingress, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use signpost_engine::Operator;
use signpost_inventory::Inventory;
use signpost_system_portal::{Pace, install_with};
use signpost_testkit::any_crd;
use tokio::time::Instant;

use self::{
    action::{Action, DnsObject, EntryObject},
    twin::Twin,
};
use crate::{
    bed::{Bed, Moment},
    history::History,
    process::Process,
    provider::Wire,
    world::{self, World},
};

/// The namespace of the objects of users.
const NAMESPACE: &str = "one";
/// The operator's own namespace.
const OWN: &str = "signpost";
/// The label of Components that the operator created.
const MANAGED: &str = "sreportal.io/managed-by";

/// One cluster and its resolver.
pub struct PortalBed {
    world: Arc<World>,
    client: kube::Client,
    twin: Arc<Twin>,
    discover: bool,
    /// The inventory of the last process of each replica.
    inventories: Mutex<BTreeMap<String, Arc<Inventory>>>,
    known: Mutex<Known>,
}

/// What users did so far.
#[derive(Debug)]
struct Known {
    /// When a DNS object was last changed, by name.
    dns: BTreeMap<String, Instant>,
    /// When a Portal was last changed.
    portals: Instant,
    /// Foreign Components, by name.
    foreign: BTreeMap<String, Value>,
    /// Components that have a foreign one in their place, as portal and title: their name follows from these.
    replaced: Vec<(String, String)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PortalBed {
    fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let plural = if kind == "DNS" { "dns".to_owned() } else { format!("{}s", kind.to_lowercase()) };
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("sreportal.io", "v1alpha1", kind), &plural);
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    fn ingresses(&self) -> Api<Ingress> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// Every object of a kind in a namespace.
    async fn list(&self, kind: &str, namespace: &str) -> Vec<DynamicObject> {
        self.api(kind, namespace).list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default()
    }

    async fn put(&self, kind: &str, name: &str, object: &Value) {
        let params = PatchParams::apply("user").force();
        let answer = self.api(kind, NAMESPACE).patch(name, &params, &Patch::Apply(object)).await;
        self.world.note(&format!("user puts {object}: {:?}", answer.err().map(|error| error.to_string())));
    }

    async fn delete(&self, kind: &str, namespace: &str, name: &str) {
        let answer = self.api(kind, namespace).delete(name, &DeleteParams::default()).await;
        self.world.note(&format!("user deletes {kind} {namespace}/{name}: {}", answer.is_ok()));
    }

    async fn put_dns(&self, dns: &DnsObject) {
        self.known().dns.insert(dns.name.clone(), Instant::now());
        self.put("DNS", &dns.name, &dns.object()).await;
    }

    /// Deletes a Component that the operator created. Returns it.
    async fn delete_component(&self, index: usize) -> Option<DynamicObject> {
        let managed =
            |object: &DynamicObject| object.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(MANAGED));
        let component = self.list("Component", NAMESPACE).await.into_iter().filter(managed).nth(index)?;
        self.delete("Component", NAMESPACE, component.metadata.name.as_ref()?).await;
        Some(component)
    }

    /// Puts a foreign Component into the place of one that the operator created.
    async fn replace_component(&self, index: usize) {
        let Some(component) = self.delete_component(index).await else { return };
        let Some(name) = component.metadata.name else { return };
        let spec = json!({ "displayName": "foreign", "group": "own", "portalRef": "team", "status": "operational" });
        let object: DynamicObject = match serde_json::from_value(json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "Component", "metadata": { "name": name }, "spec": spec,
        })) {
            Ok(object) => object,
            Err(_) => return,
        };
        // The operator may have been faster.
        if self.api("Component", NAMESPACE).create(&PostParams::default(), &object).await.is_ok() {
            self.world.note(&format!("user creates a foreign Component {name}"));
            let field = |field: &str| component.data["spec"][field].as_str().unwrap_or_default().to_owned();
            let mut known = self.known();
            known.foreign.insert(name, spec);
            known.replaced.push((field("portalRef"), field("displayName")));
        }
    }
}

/// The pace of the system: the usual one, and others that a restart may bring.
fn pace(number: usize, discover: bool) -> Pace {
    let usual = Pace { discover, ..Pace::default() };
    match number {
        1 => Pace { refresh: Duration::from_mins(2), ..usual },
        2 => Pace { lookups: 1, ..usual },
        3 => Pace { again: Duration::from_secs(20), ..usual },
        _ => usual,
    }
}

/// The kinds of others that the operator reads names from. A kind that is not installed is asked for every few seconds, which would be most
/// of the requests of a seed.
fn discovered_kinds() -> Vec<CustomResourceDefinition> {
    let (gateway_api, istio) = (signpost_apis::gatewayapi::GROUP, signpost_apis::istio::GROUP);
    let routes = ["Gateway", "HTTPRoute", "GRPCRoute"].map(|kind| any_crd(gateway_api, &["v1"], kind));
    let gateways = ["Gateway", "VirtualService"].map(|kind| any_crd(istio, &["v1"], kind));
    let others = [signpost_apis::externaldns::crd(), any_crd(gateway_api, &["v1", "v1alpha2"], "TLSRoute")];
    routes.into_iter().chain(gateways).chain(others).collect()
}

impl Bed for PortalBed {
    const NAME: &'static str = "portal";
    type Action = Action;

    fn draw(seed: u64) -> History<Action> {
        action::draw(seed)
    }

    async fn prepare(client: kube::Client) -> Result<(), kube::Error> {
        world::create_definitions(&client, &[signpost_apis::portal::crds(), discovered_kinds()].concat()).await?;
        world::create_namespaces(&client, &[NAMESPACE, OWN]).await
    }

    async fn open(world: Arc<World>, history: &History<Action>) -> Arc<Self> {
        let discover = history.find(|action| match action {
            Action::Setup { discover } => Some(*discover),
            _ => None,
        });
        let known =
            Known { dns: BTreeMap::new(), portals: Instant::now(), foreign: BTreeMap::new(), replaced: Vec::new() };
        Arc::new(Self {
            client: world.sandbox.client(),
            twin: Twin::new(&world),
            world,
            discover: discover.unwrap_or_default(),
            inventories: Mutex::default(),
            known: Mutex::new(known),
        })
    }

    async fn act(self: &Arc<Self>, action: &Action) {
        match action {
            Action::Setup { .. } => {}
            Action::Dns(dns) => self.put_dns(dns).await,
            Action::DeleteDns { name } => self.delete("DNS", NAMESPACE, name).await,
            Action::Recreate(dns) => {
                self.delete("DNS", NAMESPACE, &dns.name).await;
                self.put_dns(dns).await;
            }
            Action::Portal(portal) => {
                self.known().portals = Instant::now();
                self.put("Portal", &portal.name, &portal.object()).await;
            }
            Action::DeletePortal { namespace, name } => {
                self.known().portals = Instant::now();
                self.delete("Portal", namespace, name).await;
            }
            Action::Ingress(ingress) => {
                let params = PatchParams::apply("user").force();
                let answer = self.ingresses().patch(&ingress.name, &params, &Patch::Apply(ingress.object())).await;
                self.world.note(&format!("user puts {ingress:?}: {:?}", answer.err().map(|error| error.to_string())));
            }
            Action::DeleteIngress { name } => {
                let answer = self.ingresses().delete(name, &DeleteParams::default()).await;
                self.world.note(&format!("user deletes Ingress {name}: {}", answer.is_ok()));
            }
            Action::Answer { name, rtype, values } => self.twin.set(name, rtype, values),
            Action::DeleteComponent { index } => drop(self.delete_component(*index).await),
            Action::ReplaceComponent { index } => self.replace_component(*index).await,
        }
    }

    async fn churn(self: &Arc<Self>, round: usize, delete: bool) {
        for name in (0..40).map(|number| format!("r{round}-{number}")) {
            if delete {
                self.delete("DNS", NAMESPACE, &name).await;
                self.known().dns.remove(&name);
                continue;
            }
            let fqdn = format!("{name}.example.test");
            let entries = vec![EntryObject { fqdn, rtype: None, targets: Vec::new(), how: None }];
            self.put_dns(&DnsObject { name, portal: "team".to_owned(), entries, component: None }).await;
        }
    }

    fn install(self: &Arc<Self>, operator: &mut Operator, process: &Process, number: usize) -> Box<dyn Any + Send> {
        let inventory = Arc::new(Inventory::new());
        // `replica-NUMBER-START`
        let replica = process.name().rsplit_once('-').map_or(process.name(), |(replica, _)| replica);
        lock(&self.inventories).insert(replica.to_owned(), inventory.clone());
        let wire = Arc::new(Wire::new(&self.world, &self.twin, process));
        install_with(operator, wire, &inventory, pace(number, self.discover));
        Box::new(())
    }

    async fn look(self: &Arc<Self>) -> bool {
        oracle::look(self).await
    }

    async fn check(self: &Arc<Self>, moment: Moment) {
        oracle::check(self, moment).await;
    }
}
