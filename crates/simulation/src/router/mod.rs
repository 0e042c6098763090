//! `router` under simulation. Only this file knows how the system is installed.
//!
//! There is no provider: the operator writes DNSEndpoints and Istio Gateways. A small external-dns reads the DNSEndpoints (`twin.rs`), and the
//! sandbox deletes what has lost its owner, as a cluster does.

pub mod action;
pub mod model;
pub mod oracle;
pub mod twin;
pub mod writes;

use std::{
    any::Any,
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use signpost_engine::Operator;
use signpost_system_router::{RouterConfig, install};
use tokio::time::{Instant, sleep};

use self::{
    action::{Action, Edit, GATEWAYS, Kind, MANAGED_BY, Object, ServiceObject},
    model::{State, Thing},
    writes::Seen,
};
use crate::{
    bed::{Bed, Moment},
    history::History,
    process::Process,
    world::{self, World},
};

/// The annotation that names the controller of a DNSEndpoint, as the operator is configured: one of these.
const ANNOTATIONS: [&str; 2] = ["external-dns.alpha.kubernetes.io/controller", "external-dns.kubernetes.io/controller"];
/// How long the name of a gateway is kept without its Gateway, at least.
const WITHDRAW_AFTER: Duration = Duration::from_mins(1);
/// The kinds that users write.
const USERS: [Kind; 6] =
    [Kind::ClusterIdentity, Kind::DnsConfiguration, Kind::Gateway, Kind::DnsPolicy, Kind::ServiceRoute, Kind::Service];

/// An object: kind, namespace and name.
type Key = (Kind, String, String);

/// One cluster.
pub struct RouterBed {
    world: Arc<World>,
    client: kube::Client,
    began: Instant,
    /// The states of the cluster so far, each since its time.
    states: Mutex<Vec<(Instant, Arc<State>)>>,
    /// Objects of generated kinds that users made, as they left them.
    foreign: Mutex<BTreeMap<Key, Thing>>,
    /// The generated objects as the operator wrote them.
    seen: Mutex<Seen>,
    /// When users last touched an object of a generated kind.
    touched: Mutex<Option<Instant>>,
    /// When the place of a singleton was last seen to be vacant.
    vacant: Mutex<Option<Instant>>,
    /// How many actions are in progress.
    acting: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RouterBed {
    fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        let resource = kind.resource();
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    /// All objects of a kind; none when it is not installed.
    async fn list(&self, kind: Kind) -> Vec<Thing> {
        let listed = self.api(kind, "").list(&ListParams::default()).await;
        listed.map(|list| list.items.iter().map(Thing::of).collect()).unwrap_or_default()
    }

    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Thing> {
        self.api(kind, namespace).get_opt(name).await.ok().flatten().map(|object| Thing::of(&object))
    }

    /// The state of the cluster now.
    async fn state(&self) -> State {
        let mut all = BTreeMap::new();
        for kind in USERS {
            all.insert(kind, self.list(kind).await);
        }
        State(all)
    }

    /// Notes the state of the cluster, and forgets generated objects that are not there any more.
    async fn snapshot(&self) {
        let state = self.state().await;
        lock(&self.states).push((Instant::now(), Arc::new(state)));
    }

    /// Forgets generated objects that users, or the cluster, have deleted.
    async fn refresh(&self) {
        for kind in [Kind::DnsEndpoint, Kind::IstioGateway] {
            let there: Vec<Thing> = self.list(kind).await;
            lock(&self.seen).retain(kind, &there);
        }
    }

    /// Whether faults may explain that the operator knows less than it should.
    fn is_disturbed(&self) -> bool {
        let calm = self.world.calm_since();
        calm > self.began && calm + Duration::from_mins(5) > Instant::now()
    }

    fn touch(&self) {
        *lock(&self.touched) = Some(Instant::now());
    }

    async fn apply(&self, kind: Kind, namespace: &str, name: &str, body: &Value) -> Option<Thing> {
        let resource = kind.resource();
        let mut object = body.clone();
        object["apiVersion"] = json!(resource.api_version);
        object["kind"] = json!(resource.kind);
        object["metadata"]["name"] = json!(name);
        let params = PatchParams::apply("user").force();
        let answer = self.api(kind, namespace).patch(name, &params, &Patch::Apply(&object)).await;
        let failed = answer.as_ref().err().map(ToString::to_string);
        self.world.note(&format!("user puts {kind:?} {namespace}/{name} {body}: {failed:?}"));
        answer.ok().map(|object| Thing::of(&object))
    }

    async fn put(&self, object: &Object) {
        self.apply(object.kind, &object.namespace, &object.name, &json!({ "spec": object.spec })).await;
        self.snapshot().await;
    }

    async fn put_service(&self, service: &ServiceObject) {
        let ServiceObject { namespace, name, istio, balancer, points } = service;
        let labels = istio.as_ref().map(|istio| json!({ "istio": istio })).unwrap_or(json!({}));
        let kind = if *balancer { "LoadBalancer" } else { "ClusterIP" };
        let body = json!({
            "metadata": { "labels": labels }, "spec": { "type": kind, "ports": [{ "name": "https", "port": 443 }] },
        });
        self.apply(Kind::Service, namespace, name, &body).await;
        self.snapshot().await;
        let point = |text: &String| {
            let field = if text.parse::<IpAddr>().is_ok() { "ip" } else { "hostname" };
            json!({ field: text })
        };
        let points: Vec<Value> = points.iter().map(point).collect();
        let status = json!({ "status": { "loadBalancer": { "ingress": points } } });
        let api = self.api(Kind::Service, namespace);
        let answer = api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await;
        self.world.note(&format!("load balancer of {namespace}/{name}: {status} {}", answer.is_ok()));
        self.snapshot().await;
    }

    async fn delete(&self, kind: Kind, namespace: &str, name: &str) {
        if kind.is_generated() {
            self.touch();
            let key = (kind, namespace.to_owned(), name.to_owned());
            lock(&self.foreign).remove(&key);
            lock(&self.seen).forget(&key);
        }
        let answer = self.api(kind, namespace).delete(name, &DeleteParams::default()).await;
        self.world.note(&format!("user deletes {kind:?} {namespace}/{name}: {}", answer.is_ok()));
        self.snapshot().await;
        self.refresh().await;
    }

    async fn replace(self: &Arc<Self>, object: &Object, away: u64) {
        self.delete(object.kind, &object.namespace, &object.name).await;
        if away == 0 {
            return self.put(object).await;
        }
        let (bed, object) = (self.clone(), object.clone());
        tokio::spawn(async move {
            sleep(Duration::from_millis(away)).await;
            bed.world.acts();
            bed.acting.fetch_add(1, Ordering::Relaxed);
            bed.put(&object).await;
            bed.acting.fetch_sub(1, Ordering::Relaxed);
        });
    }

    async fn make_foreign(&self, object: &Object) {
        let Object { kind, namespace, name, spec } = object;
        if self.get(*kind, namespace, name).await.is_some() {
            return;
        }
        self.touch();
        if let Some(made) = self.apply(*kind, namespace, name, &json!({ "spec": spec })).await {
            lock(&self.foreign).insert((*kind, namespace.clone(), name.clone()), made);
        }
    }

    async fn edit(&self, kind: Kind, index: usize, how: Edit) {
        let generated = |thing: &Thing| thing.label(MANAGED_BY.0) == MANAGED_BY.1;
        let all: Vec<Thing> = self.list(kind).await.into_iter().filter(generated).collect();
        let Some(thing) = all.get(index % all.len().max(1)) else { return };
        let (namespace, name) = thing.path();
        if how == Edit::Delete {
            return self.delete(kind, namespace, name).await;
        }
        self.touch();
        let spec = match kind {
            Kind::DnsEndpoint => {
                json!({ "endpoints": [{ "dnsName": "edited.example.com", "recordType": "A", "targets": ["192.0.2.8"] }] })
            }
            _ => {
                json!({ "servers": [{ "port": { "number": 443, "name": "x", "protocol": "HTTP" }, "hosts": ["edited.example.com"] }] })
            }
        };
        let patch = match how {
            Edit::Spec => json!({ "spec": spec }),
            Edit::Labels => {
                let labels = match kind {
                    Kind::DnsEndpoint => json!({ "router.io/region": "edited", "router.io/controller": "edited" }),
                    _ => json!({ "router.io/gateway": "edited" }),
                };
                json!({ "metadata": { "labels": labels } })
            }
            Edit::Unlabel => json!({ "metadata": { "labels": { MANAGED_BY.0: null } } }),
            Edit::Disown | Edit::Delete => {
                json!({ "metadata": { "labels": { MANAGED_BY.0: null }, "ownerReferences": null } })
            }
        };
        let key = (kind, namespace.to_owned(), name.to_owned());
        lock(&self.seen).edited(&key);
        let answer = self.api(kind, namespace).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        self.world.note(&format!("user edits {kind:?} {namespace}/{name} {patch}: {}", answer.is_ok()));
        if let (Edit::Disown, Ok(object)) = (how, answer) {
            lock(&self.seen).forget(&key);
            lock(&self.foreign).insert(key, Thing::of(&object));
        }
    }

    async fn remove_crd(self: &Arc<Self>, kind: Kind, away: u64) {
        let resource = kind.resource();
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let name = format!("{}.{}", resource.plural, resource.group);
        self.touch();
        let until = Instant::now() + Duration::from_millis(away);
        self.world.disturb(until);
        self.world.strikes.strike_all(until);
        if kind.is_generated() {
            lock(&self.foreign).retain(|key, _| key.0 != kind);
            lock(&self.seen).retain(kind, &[]);
        }
        let removed = crds.delete(&name, &DeleteParams::default()).await;
        self.world.note(&format!("user deletes the definition {name}: {}", removed.is_ok()));
        self.snapshot().await;
        self.refresh().await;
        let bed = self.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(away)).await;
            let Some(crd) = CRDS.iter().find(|crd| crd.metadata.name.as_ref() == Some(&name)) else { return };
            for _ in 0..600 {
                if crds.create(&PostParams::default(), crd).await.is_ok() {
                    bed.world.note(&format!("user installs the definition {name}"));
                    return;
                }
                sleep(Duration::from_secs(1)).await;
            }
        });
    }

    async fn route(&self, name: &str) {
        let spec = json!({ "serviceName": name, "gatewayName": "gw", "environment": "prod", "application": "shop" });
        self.put(&Object { kind: Kind::ServiceRoute, namespace: "one".to_owned(), name: name.to_owned(), spec }).await;
    }
}

/// Every definition, made once: their schemas are derived from types.
static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
    let mut all = signpost_apis::router::crds();
    all.extend([signpost_apis::externaldns::crd(), signpost_apis::istio::crd()]);
    all
});

/// How the system runs: the usual way, and others that a restart may bring.
fn config(pace: usize) -> RouterConfig {
    let usual = RouterConfig { withdraw_after: WITHDRAW_AFTER, ..RouterConfig::default() };
    match pace {
        1 => RouterConfig { withdraw_after: Duration::from_mins(3), ..usual },
        2 => RouterConfig { annotation: ANNOTATIONS[1].to_owned(), ..usual },
        3 => RouterConfig { type_change_after: Duration::from_mins(4), ..usual },
        _ => usual,
    }
}

impl Bed for RouterBed {
    const NAME: &'static str = "router";
    type Action = Action;

    fn draw(seed: u64) -> History<Action> {
        action::draw(seed)
    }

    async fn prepare(client: kube::Client) -> Result<(), kube::Error> {
        world::create_definitions(&client, &CRDS).await?;
        world::create_namespaces(&client, &["one", "two", GATEWAYS]).await
    }

    async fn open(world: Arc<World>, history: &History<Action>) -> Arc<Self> {
        let client = world.sandbox.client();
        let bed = Arc::new(Self {
            world: world.clone(),
            client,
            began: Instant::now(),
            states: Mutex::new(vec![(Instant::now(), Arc::default())]),
            foreign: Mutex::default(),
            seen: Mutex::default(),
            touched: Mutex::default(),
            vacant: Mutex::default(),
            acting: AtomicUsize::new(0),
        });
        world.on_metadata(&bed, |bed, path| async move { bed.written(&path).await });
        let interval = history.find(|action| match action {
            Action::Setup { external_dns } => Some(*external_dns),
            _ => None,
        });
        if let Some(interval) = interval.filter(|interval| *interval > 0) {
            tokio::spawn(twin::external_dns(bed.clone(), Duration::from_millis(interval)));
        }
        bed
    }

    async fn act(self: &Arc<Self>, action: &Action) {
        self.acting.fetch_add(1, Ordering::Relaxed);
        match action {
            Action::Setup { .. } => {}
            Action::Put(object) => self.put(object).await,
            Action::Delete { kind, namespace, name } => self.delete(*kind, namespace, name).await,
            Action::Replace { object, away } => self.replace(object, *away).await,
            Action::Service(service) => self.put_service(service).await,
            Action::Foreign(object) => self.make_foreign(object).await,
            Action::Edit { kind, index, how } => self.edit(*kind, *index, *how).await,
            Action::RemoveCrd { kind, away } => self.remove_crd(*kind, *away).await,
        }
        self.acting.fetch_sub(1, Ordering::Relaxed);
    }

    async fn churn(self: &Arc<Self>, round: usize, delete: bool) {
        if round == 0 && !delete {
            let put = |kind, name: &str, namespace: &str, spec| Object {
                kind,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                spec,
            };
            let identity =
                json!({ "region": "weu", "cluster": "c1", "domain": "example.com", "environmentLetter": "p" });
            let controllers = json!({ "externalDNSControllers": [{ "name": "external-dns-weu", "region": "weu" }] });
            let gateway = json!({ "controller": "istio-a", "credentialName": "cert", "targetPostfix": "internal" });
            self.put(&put(Kind::ClusterIdentity, "cluster-identity", "", identity)).await;
            self.put(&put(Kind::DnsConfiguration, "dns-config", "", controllers)).await;
            self.put(&put(Kind::Gateway, "gw", GATEWAYS, gateway)).await;
            self.put(&put(Kind::DnsPolicy, "policy", "one", json!({ "mode": "Active" }))).await;
        }
        for name in (0..40).map(|number| format!("r{round}-{number}")) {
            if delete {
                self.delete(Kind::ServiceRoute, "one", &name).await;
            } else {
                self.route(&name).await;
            }
        }
        // What users did before is not looked at in a measurement of memory.
        let last = lock(&self.states).pop();
        *lock(&self.states) = last.into_iter().collect();
    }

    fn install(self: &Arc<Self>, operator: &mut Operator, _: &Process, pace: usize) -> Box<dyn Any + Send> {
        install(operator, config(pace));
        Box::new(())
    }

    async fn look(self: &Arc<Self>) -> bool {
        oracle::look(self).await
    }

    async fn check(self: &Arc<Self>, moment: Moment) {
        oracle::check(self, moment).await;
    }
}
