//! `pangolin` in direct mode under simulation: the real client on the strict stand-in. Only this file knows how the system is installed.

pub mod action;
pub mod oracle;
pub mod twin;

use std::{
    any::Any,
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::{core::v1::Service, networking::v1::Ingress};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use signpost_engine::Operator;
use signpost_provider_pangolin::{Connection, PangolinClient, Secret, parse_base_url};
use signpost_system_pangolin::{Policy, install_api};
use signpost_testkit::pangolin::ORG;
use tokio::time::Instant;

use self::{
    action::{Action, IngressObject, PathObject, RuleObject, Setup},
    oracle::Settled,
    twin::{KEY, Twin},
};
use crate::{
    bed::{Bed, Moment},
    history::History,
    ingresses::{self, IngressBed, hosts},
    process::Process,
    provider::Wire,
    world::{self, World},
};

/// One cluster and its Pangolin.
pub struct PangolinBed {
    world: Arc<World>,
    client: kube::Client,
    setup: Setup,
    twin: Arc<Twin>,
    touched: Mutex<BTreeMap<String, Touched>>,
    /// Hosts that were served as their Ingress asks, and have not been touched since.
    settled: Mutex<BTreeMap<String, Settled>>,
}

/// When anything about a host was last changed.
#[derive(Clone, Copy, Debug)]
struct Touched {
    at: Instant,
    /// When a user last changed it at the dashboard, which only a comparison shows.
    by_hand: Option<Instant>,
}

impl PangolinBed {
    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "one")
    }

    fn settled(&self) -> MutexGuard<'_, BTreeMap<String, Settled>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self, hosts: impl IntoIterator<Item = String>, by_hand: bool) {
        self.world.acts();
        let at = Instant::now();
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        for host in hosts {
            self.settled().remove(&host);
            let before = touched.get(&host).and_then(|touched| touched.by_hand);
            touched.insert(host, Touched { at, by_hand: if by_hand { Some(at) } else { before } });
        }
    }

    /// When anything about a host was last changed.
    fn touched(&self, host: &str) -> Option<Touched> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner).get(host).copied()
    }

    async fn service(&self, name: &str, exists: bool) {
        let all: Vec<String> = self.settled().keys().cloned().collect();
        let listed = self.api().list(&ListParams::default()).await;
        self.touch(all.into_iter().chain(listed.into_iter().flatten().flat_map(hosts)), false);
        let done = if exists {
            create_service(&self.client, name).await.is_ok()
        } else {
            self.services().delete(name, &DeleteParams::default()).await.is_ok()
        };
        self.world.note(&format!("user sets Service {name} to {exists}: {done}"));
    }
}

impl IngressBed for PangolinBed {
    type Object = IngressObject;

    fn name(ingress: &IngressObject) -> &str {
        &ingress.name
    }

    fn plain(name: String) -> IngressObject {
        let path = PathObject { path: "/".to_owned(), exact: false, service: "app".to_owned(), port: 80 };
        let rules = vec![RuleObject { host: format!("{name}.ns.test"), paths: vec![path] }];
        IngressObject { name, class: "pangolin".to_owned(), enabled: None, sso: None, rules }
    }

    fn api(&self) -> Api<Ingress> {
        Api::namespaced(self.client.clone(), "one")
    }

    async fn put(&self, ingress: &IngressObject) {
        let there = self.api().get_opt(&ingress.name).await.ok().flatten();
        self.touch(there.map(hosts).unwrap_or_default(), false);
        self.touch(ingress.rules.iter().map(|rule| rule.host.clone()), false);
        let params = PatchParams::apply("user").force();
        let answer = self.api().patch(&ingress.name, &params, &Patch::Apply(ingress.object())).await;
        self.world.note(&format!("user puts {ingress:?}: {:?}", answer.err().map(|error| error.to_string())));
    }

    async fn delete(&self, name: &str) {
        let there = self.api().get_opt(name).await.ok().flatten();
        self.touch(there.map(hosts).unwrap_or_default(), false);
        let answer = self.api().delete(name, &DeleteParams::default()).await;
        self.world.note(&format!("user deletes {name}: {}", answer.is_ok()));
    }
}

async fn create_service(client: &kube::Client, name: &str) -> Result<(), kube::Error> {
    let ports = match name {
        "app" => json!([{ "name": "web", "port": 80 }, { "name": "other", "port": 8080 }]),
        _ => json!([{ "name": "http", "port": 9000 }]),
    };
    let object =
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name }, "spec": { "ports": ports } });
    let services: Api<Service> = Api::namespaced(client.clone(), "one");
    services.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(object)).await.map(drop)
}

impl Bed for PangolinBed {
    const NAME: &'static str = "pangolin";
    type Action = Action;

    fn draw(seed: u64) -> History<Action> {
        action::draw(seed)
    }

    async fn prepare(client: kube::Client) -> Result<(), kube::Error> {
        world::create_namespaces(&client, &["one", "signpost"]).await?;
        create_service(&client, "app").await?;
        create_service(&client, "api").await
    }

    async fn open(world: Arc<World>, history: &History<Action>) -> Arc<Self> {
        let client = world.sandbox.client();
        let setup = history.find(|action| match action {
            Action::Setup(setup) => Some(setup.clone()),
            _ => None,
        });
        let setup = setup.unwrap_or_default();
        let twin = Twin::new(&world, setup.version());
        let bed = Arc::new(Self { world, client, setup, twin, touched: Mutex::default(), settled: Mutex::default() });
        bed.twin.judged_by(&bed);
        bed
    }

    async fn act(self: &Arc<Self>, action: &Action) {
        match action {
            Action::Setup(_) => {}
            Action::Objects(action) => ingresses::act(self, action).await,
            Action::Service { name, exists } => self.service(name, *exists).await,
            Action::Foreign { host } => {
                self.twin.add(host);
                self.touch([host.clone()], true);
            }
            Action::ForeignRemove { index } => self.touch(self.twin.remove(*index), true),
            Action::Edit { index, how } => self.touch(self.twin.edit(*index, *how), true),
            Action::Outage { minutes } => {
                let until = Instant::now() + Duration::from_mins(*minutes);
                self.world.note(&format!("Pangolin is down for {minutes} minutes"));
                self.twin.stop_until(until);
                self.world.disturb(until);
                self.world.strikes.strike_all(until);
            }
        }
    }

    async fn churn(self: &Arc<Self>, round: usize, delete: bool) {
        ingresses::churn(self, round, delete).await;
    }

    fn install(self: &Arc<Self>, operator: &mut Operator, process: &Process, pace: usize) -> Box<dyn Any + Send> {
        let Ok(base) = parse_base_url("http://pangolin.test") else { return Box::new(()) };
        let usual = Policy {
            owner: Some("sim".to_owned()),
            default_tunnel: Some("cluster".to_owned()),
            verify: Duration::from_mins(self.setup.verify),
            ..Policy::default()
        };
        let policy = match pace {
            1 => Policy { resync: Some(Duration::from_mins(1)), ..usual },
            2 => Policy { rate: Some(5), ..usual },
            3 => Policy { concurrency: 1, ..usual },
            _ => usual,
        };
        let connection = Connection::new(base, ORG, Secret::Value(KEY.into()));
        let wire = Arc::new(Wire::new(&self.world, &self.twin, process));
        install_api(operator, policy, Arc::new(PangolinClient::over(wire, &connection)));
        Box::new(())
    }

    async fn look(self: &Arc<Self>) -> bool {
        oracle::look(self).await
    }

    async fn check(self: &Arc<Self>, moment: Moment) {
        oracle::check(self, moment).await;
    }
}
