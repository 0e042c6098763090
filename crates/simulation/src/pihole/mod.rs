//! `pihole` under simulation. Only this file knows how the system is installed.

pub mod action;
pub mod ftl;
pub mod oracle;
pub mod scene;
pub mod twin;

use std::{
    any::Any,
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use signpost_engine::Operator;
use signpost_provider_pihole::{Connection, OwnerId, Pihole, Secret, V6Dialect, parse_base_url};
use signpost_system_pihole::{Instance, Policy, install_instances};
use tokio::time::Instant;

use self::{
    action::{Action, DEFAULT_TARGET, IngressObject, Setup},
    twin::Twin,
};
use crate::{
    bed::{Bed, Moment},
    history::History,
    ingresses::{self, IngressBed, hosts},
    process::Process,
    provider::Wire,
    world::{self, World},
};

/// The owner id of the operator in the lines that it marks.
const OWNER: &str = "sim";

/// One cluster and its Pi-holes.
pub struct PiholeBed {
    world: Arc<World>,
    client: kube::Client,
    setup: Setup,
    twins: Vec<Arc<Twin>>,
    /// When each Ingress that was deleted was deleted, by uid; with the hosts it had.
    deleted: Mutex<BTreeMap<String, Deleted>>,
    /// Every Ingress that asked for records and was deleted.
    withdrawn: Mutex<Vec<Deleted>>,
    /// Whether an operator ran whose `USE_FINALIZER` was another one.
    switched: AtomicBool,
    /// When users last changed anything about a host, or an Ingress with it was deleted.
    touched: Mutex<BTreeMap<String, Instant>>,
}

/// An Ingress that a user deleted.
#[derive(Clone, Debug)]
struct Deleted {
    uid: String,
    name: String,
    at: Instant,
    hosts: Vec<String>,
}

impl PiholeBed {
    fn deleted(&self) -> MutexGuard<'_, BTreeMap<String, Deleted>> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self, hosts: impl IntoIterator<Item = String>) {
        self.world.acts();
        let now = Instant::now();
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        touched.extend(hosts.into_iter().map(|host| (host, now)));
    }

    /// Whether another Ingress asked for a host when this one was deleted, and was deleted since: the host was handed over to it, and the
    /// operator need not know yet that it is deleted.
    fn was_handed_over(&self, from: &Deleted, host: &String) -> bool {
        let to = |other: &Deleted| other.uid != from.uid && other.at >= from.at && other.hosts.contains(host);
        self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner).iter().any(to)
    }

    /// When anything about a host was last changed.
    fn touched(&self, host: &str) -> Option<Instant> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner).get(host).copied()
    }

    /// The way of a process to a Pi-hole: by the operator's own HTTP client, or without one.
    fn connect(&self, twin: &Arc<Twin>, process: &Process) -> Arc<dyn Pihole> {
        let wire = Wire::new(&self.world, twin, process);
        match parse_base_url("http://pi.hole") {
            Ok(base) if self.setup.http => {
                let connection = Connection::new(base, Secret::Value("secret".to_owned()));
                Arc::new(V6Dialect::over(Arc::new(wire), connection))
            }
            _ => Arc::new(wire),
        }
    }
}

impl IngressBed for PiholeBed {
    type Object = IngressObject;

    fn name(ingress: &IngressObject) -> &str {
        &ingress.name
    }

    fn plain(name: String) -> IngressObject {
        IngressObject {
            register: true,
            hosts: vec![format!("{name}.lan")],
            name,
            target: None,
            target_ipv6: None,
            target_cname: None,
            bad_host: false,
        }
    }

    fn api(&self) -> Api<Ingress> {
        Api::namespaced(self.client.clone(), "one")
    }

    async fn put(&self, ingress: &IngressObject) {
        let there = self.api().get_opt(&ingress.name).await.ok().flatten();
        if there.as_ref().is_some_and(|there| there.metadata.deletion_timestamp.is_some()) {
            return;
        }
        self.touch(there.map(hosts).unwrap_or_default());
        self.touch(ingress.hosts.iter().cloned());
        let params = PatchParams::apply("user").force();
        let answer = self.api().patch(&ingress.name, &params, &Patch::Apply(ingress.object())).await;
        self.world.note(&format!("user puts {ingress:?}: {:?}", answer.err().map(|error| error.to_string())));
    }

    async fn delete(&self, name: &str) {
        if let Ok(Some(there)) = self.api().get_opt(name).await
            && there.metadata.deletion_timestamp.is_none()
        {
            let uid = there.metadata.uid.clone().unwrap_or_default();
            let kept = there.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
            let annotations = there.metadata.annotations.clone().unwrap_or_default();
            let deleted = Deleted { uid, name: name.to_owned(), at: Instant::now(), hosts: hosts(there) };
            self.touch(deleted.hosts.iter().cloned());
            if annotations.get("pihole.io/register").is_some_and(|value| value == "true") {
                self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner).push(deleted.clone());
            }
            // Without a finalizer it is deleted at once, whatever is served.
            if kept {
                self.deleted().insert(deleted.uid.clone(), deleted);
            }
        }
        let answer = self.api().delete(name, &DeleteParams::default()).await;
        self.world.note(&format!("user deletes {name}: {}", answer.is_ok()));
    }
}

impl Bed for PiholeBed {
    const NAME: &'static str = "pihole";
    type Action = Action;

    fn draw(seed: u64) -> History<Action> {
        action::draw(seed)
    }

    async fn prepare(client: kube::Client) -> Result<(), kube::Error> {
        world::create_namespaces(&client, &["one", "signpost"]).await
    }

    async fn open(world: Arc<World>, history: &History<Action>) -> Arc<Self> {
        let client = world.sandbox.client();
        let setup = history.find(|action| match action {
            Action::Setup(setup) => Some(setup.clone()),
            _ => None,
        });
        let setup = setup.unwrap_or_default();
        let names = ["one", "two", "three"];
        let twins = names.iter().take(setup.piholes.max(1)).map(|name| Twin::new(&world, name, setup.speaks)).collect();
        let bed = Arc::new(Self {
            world: world.clone(),
            client,
            setup,
            twins,
            deleted: Mutex::default(),
            withdrawn: Mutex::default(),
            switched: AtomicBool::new(false),
            touched: Mutex::default(),
        });
        world.on_metadata(&bed, |bed, path| async move {
            if path.contains("/ingresses/") {
                oracle::check_release(&bed).await;
            }
        });
        bed
    }

    async fn act(self: &Arc<Self>, action: &Action) {
        match action {
            Action::Setup(_) => {}
            Action::Objects(action) => ingresses::act(self, action).await,
            Action::HandAdd { pihole, line } => self.twins.get(*pihole).into_iter().for_each(|twin| twin.add(line)),
            Action::HandRemove { pihole, index } => {
                self.twins.get(*pihole).into_iter().for_each(|twin| twin.remove(false, *index));
            }
            Action::HandSteal { pihole, index } => {
                self.twins.get(*pihole).into_iter().for_each(|twin| twin.remove(true, *index));
            }
            Action::ReadOnly { pihole, on } => {
                self.twins.get(*pihole).into_iter().for_each(|twin| twin.set_read_only(*on));
            }
            Action::LockAliases { pihole, on } => {
                self.twins.get(*pihole).into_iter().for_each(|twin| twin.lock_aliases(*on));
            }
            Action::Restart { pihole } => self.twins.get(*pihole).into_iter().for_each(|twin| twin.restart()),
            Action::Wipe { pihole } => self.twins.get(*pihole).into_iter().for_each(|twin| twin.wipe()),
        }
    }

    async fn churn(self: &Arc<Self>, round: usize, delete: bool) {
        ingresses::churn(self, round, delete).await;
    }

    fn install(self: &Arc<Self>, operator: &mut Operator, process: &Process, pace: usize) -> Box<dyn Any + Send> {
        let Ok(owner) = OwnerId::parse(OWNER) else { return Box::new(()) };
        let target: Ipv4Addr = DEFAULT_TARGET.parse().unwrap_or(Ipv4Addr::LOCALHOST);
        let usual = Policy { finalizer: self.setup.finalizer, ..Policy::new(owner, target) };
        let policy = match pace {
            1 => Policy { resync: Some(Duration::from_mins(1)), ..usual },
            2 => Policy { gather: Duration::ZERO, ..usual },
            3 => {
                // From now on, finalizers may be taken off objects whose records are served.
                self.switched.store(true, Ordering::Relaxed);
                Policy { finalizer: !self.setup.finalizer, ..usual }
            }
            _ => usual,
        };
        let instance = |twin: &Arc<Twin>| Instance::new(twin.name(), self.connect(twin, process));
        install_instances(operator, policy, self.twins.iter().map(instance).collect());
        Box::new(())
    }

    async fn look(self: &Arc<Self>) -> bool {
        oracle::look(self).await
    }

    async fn check(self: &Arc<Self>, moment: Moment) {
        oracle::check(self, moment).await;
    }
}
