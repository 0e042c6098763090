//! `pihole` under simulation. Only this file knows how the system is installed.

pub mod action;
pub mod oracle;
pub mod twin;

use std::{
    any::Any,
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::FutureExt;
use k8s_openapi::api::{core::v1::Namespace, networking::v1::Ingress};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use signpost_engine::Operator;
use signpost_provider_pihole::OwnerId;
use signpost_system_pihole::{Instance, Policy, install_instances};
use tokio::time::{Instant, sleep};

use self::{
    action::{Action, DEFAULT_TARGET, IngressObject, Setup},
    twin::{PiholeWire, Twin},
};
use crate::{
    bed::{Bed, Moment},
    history::{History, What},
    process::Process,
    world::World,
};

/// Who the operator is in the lines that it marks.
const OWNER: &str = "sim";

/// One cluster and its Pi-holes.
pub struct PiholeBed {
    world: Arc<World>,
    client: kube::Client,
    setup: Setup,
    twins: Vec<Arc<Twin>>,
    /// When each Ingress that was deleted was deleted, by uid; with the hosts it had.
    deleted: Mutex<BTreeMap<String, Deleted>>,
}

/// An Ingress that a user deleted.
#[derive(Clone, Debug)]
struct Deleted {
    name: String,
    at: Instant,
    hosts: Vec<String>,
}

impl PiholeBed {
    fn api(&self) -> Api<Ingress> {
        Api::namespaced(self.client.clone(), "one")
    }

    fn deleted(&self) -> MutexGuard<'_, BTreeMap<String, Deleted>> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn put(&self, ingress: &IngressObject) {
        let there = self.api().get_opt(&ingress.name).await.ok().flatten();
        if there.is_some_and(|there| there.metadata.deletion_timestamp.is_some()) {
            return;
        }
        let params = PatchParams::apply("user").force();
        let answer = self.api().patch(&ingress.name, &params, &Patch::Apply(ingress.object())).await;
        self.world.note(&format!("user puts {ingress:?}: {:?}", answer.err().map(|error| error.to_string())));
    }

    async fn delete(&self, name: &str) {
        if let Ok(Some(there)) = self.api().get_opt(name).await
            && there.metadata.deletion_timestamp.is_none()
        {
            let rules = there.spec.and_then(|spec| spec.rules).unwrap_or_default();
            let hosts = rules.into_iter().filter_map(|rule| rule.host).collect();
            let deleted = Deleted { name: name.to_owned(), at: Instant::now(), hosts };
            self.deleted().insert(there.metadata.uid.unwrap_or_default(), deleted);
        }
        let answer = self.api().delete(name, &DeleteParams::default()).await;
        self.world.note(&format!("user deletes {name}: {}", answer.is_ok()));
    }

    async fn recreate(self: &Arc<Self>, ingress: &IngressObject) {
        self.delete(&ingress.name).await;
        let (bed, ingress) = (self.clone(), ingress.clone());
        tokio::spawn(async move {
            for _ in 0..200 {
                if let Ok(None) = bed.api().get_opt(&ingress.name).await {
                    bed.put(&ingress).await;
                    return;
                }
                sleep(Duration::from_millis(300)).await;
            }
        });
    }
}

fn bulk(number: usize) -> IngressObject {
    IngressObject {
        name: format!("bulk-{number}"),
        register: true,
        hosts: vec![format!("bulk{number}.lan")],
        target: None,
        target_ipv6: None,
        target_cname: None,
    }
}

impl Bed for PiholeBed {
    const NAME: &'static str = "pihole";
    type Action = Action;

    fn draw(seed: u64) -> History<Action> {
        action::draw(seed)
    }

    async fn open(world: Arc<World>, history: &History<Action>) -> Arc<Self> {
        let client = world.sandbox.client();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        for name in ["one", "signpost"] {
            let namespace: Value = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            if let Ok(namespace) = serde_json::from_value(namespace) {
                drop(namespaces.create(&PostParams::default(), &namespace).await);
            }
        }
        let setup = history.events.iter().find_map(|event| match &event.what {
            What::User(Action::Setup(setup)) => Some(setup.clone()),
            _ => None,
        });
        let setup = setup.unwrap_or_default();
        let names = ["one", "two", "three"];
        let twins = names.iter().take(setup.piholes.max(1)).map(|name| Twin::new(&world, name, setup.speaks)).collect();
        let bed = Arc::new(Self { world: world.clone(), client, setup, twins, deleted: Mutex::default() });
        let hooked = Arc::downgrade(&bed);
        world.on_metadata(Box::new(move |path| {
            let bed = hooked.upgrade();
            async move {
                if let (Some(bed), true) = (bed, path.contains("/ingresses/")) {
                    oracle::check_release(&bed).await;
                }
            }
            .boxed()
        }));
        bed
    }

    async fn act(self: &Arc<Self>, action: &Action) {
        match action {
            Action::Setup(_) => {}
            Action::Ingress(ingress) => self.put(ingress).await,
            Action::Delete { name } => self.delete(name).await,
            Action::Recreate(ingress) => self.recreate(ingress).await,
            Action::Bulk { count } => {
                for number in 0..*count {
                    self.put(&bulk(number)).await;
                }
            }
            Action::DeleteBulk => {
                let listed = self.api().list(&kube::api::ListParams::default()).await;
                let names = listed.into_iter().flatten().filter_map(|ingress| ingress.metadata.name);
                for name in names.filter(|name| name.starts_with("bulk-")) {
                    self.delete(&name).await;
                }
            }
            Action::HandAdd { pihole, line } => self.twins.get(*pihole).into_iter().for_each(|twin| twin.add(line)),
            Action::HandRemove { pihole, index } => {
                self.twins.get(*pihole).into_iter().for_each(|twin| twin.remove(false, *index));
            }
            Action::HandSteal { pihole, index } => {
                self.twins.get(*pihole).into_iter().for_each(|twin| twin.remove(true, *index));
            }
            Action::Wipe { pihole } => self.twins.get(*pihole).into_iter().for_each(|twin| twin.wipe()),
        }
    }

    fn install(self: &Arc<Self>, operator: &mut Operator, process: &Process, pace: usize) -> Box<dyn Any + Send> {
        let Ok(owner) = OwnerId::parse(OWNER) else { return Box::new(()) };
        let target: Ipv4Addr = DEFAULT_TARGET.parse().unwrap_or(Ipv4Addr::LOCALHOST);
        let usual = Policy { finalizer: self.setup.finalizer, ..Policy::new(owner, target) };
        let policy = match pace {
            1 => Policy { resync: Some(Duration::from_mins(1)), ..usual },
            2 => Policy { gather: Duration::ZERO, ..usual },
            3 => Policy { finalizer: !self.setup.finalizer, ..usual },
            _ => usual,
        };
        let instance = |twin: &Arc<Twin>| Instance::new(twin.name(), Arc::new(PiholeWire::new(twin, process)));
        install_instances(operator, policy, self.twins.iter().map(instance).collect());
        Box::new(())
    }

    async fn check(self: &Arc<Self>, moment: Moment) {
        oracle::check(self, moment).await;
    }
}
