//! `powerdns` under simulation. Only this file knows how the system is installed.

pub mod action;
pub mod model;
pub mod oracle;
pub mod scene;
pub mod standing;
pub mod twin;

use std::{
    any::Any,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::json;
use signpost_engine::Operator;
use signpost_system_powerdns::{EndpointSource, Pace, install_with};
use tokio::time::{Instant, sleep};

use self::{
    action::{Action, RecordObject, ZoneObject},
    model::{Id, Kind, Model, Spec},
    twin::Twin,
};
use crate::{
    bed::{Bed, Moment},
    history::History,
    process::Process,
    provider::Wire,
    world::{self, World},
};

/// The API group of the four kinds.
const GROUP: &str = "dns.cav.enablers.ob";

/// One cluster and one server.
pub struct PowerDnsBed {
    world: Arc<World>,
    client: kube::Client,
    twin: Arc<Twin>,
    model: Arc<Mutex<Model>>,
    /// Whether the operator publishes DNSEndpoints.
    endpoints: bool,
    /// Bytes above which the list of endpoints has marks instead of lines.
    packs_above: usize,
}

/// In every second seed, the list of endpoints has marks instead of lines from the third endpoint or so.
const PACKS_ABOVE: usize = 60;

/// The pace of the system: the usual one, and others that a restart may bring.
fn pace(number: usize, endpoints: bool, packs_above: usize) -> Pace {
    let usual = Pace { endpoints: endpoints.then(EndpointSource::default), packs_above, ..Pace::default() };
    match number {
        1 => Pace { resync: Duration::from_secs(20), full_read: Duration::from_mins(3), ..usual },
        2 => Pace { zones_at_once: 1, ..usual },
        3 => Pace { retry_refused: Duration::from_mins(1), ..usual },
        _ => usual,
    }
}

impl PowerDnsBed {
    fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = resource(kind);
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies an object as a user does. An object that is being deleted is left alone.
    async fn put(&self, id: Id, spec: Spec) {
        let (of, namespace, name) = &id;
        let kind = kind_of(*of, namespace);
        let body = match &spec {
            Spec::Zone(object) => object.spec(),
            Spec::Record(object) => object.spec(),
            Spec::Endpoint(object) => object.spec(),
        };
        let api = self.api(kind, namespace);
        if let Ok(Some(there)) = api.get_opt(name).await {
            if there.metadata.deletion_timestamp.is_some() {
                return;
            }
            if *of == Kind::Zone {
                self.note_floor(&there);
            }
        }
        let version = resource(kind).api_version;
        let object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": body });
        let answer = api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await;
        self.world.note(&format!(
            "user puts {kind} {namespace}/{name}: {:?}",
            answer.as_ref().err().map(ToString::to_string)
        ));
        if let Ok(there) = answer {
            for record in spec.records() {
                self.twin.claimed(&record.key());
            }
            self.model().put(id, there.metadata.uid.unwrap_or_default(), spec);
        }
    }

    async fn delete(&self, id: &Id) {
        let (of, namespace, name) = id;
        let kind = kind_of(*of, namespace);
        let there = self.api(kind, namespace).get_opt(name).await.ok().flatten();
        let finalizer = there.is_some_and(|there| there.metadata.finalizers.is_some_and(|list| !list.is_empty()));
        if *of == Kind::Zone && finalizer {
            self.twin.seen().taken.insert(format!("{name}."));
        }
        // Noted first: the operator may release it before the user has the answer.
        self.model().delete(id, finalizer);
        let answer = self.api(kind, namespace).delete(name, &DeleteParams::default()).await;
        self.world.note(&format!("user deletes {kind} {namespace}/{name}: {}", answer.is_ok()));
        if self.api(kind, namespace).get_opt(name).await.is_ok_and(|there| there.is_none()) {
            self.model().release(id);
        }
    }

    /// Deletes an object and creates it again once it is deleted.
    async fn recreate(self: &Arc<Self>, record: &RecordObject) {
        let id = (Kind::Record, record.namespace.clone(), record.object.clone());
        self.delete(&id).await;
        let (bed, spec) = (self.clone(), Spec::Record(record.clone()));
        tokio::spawn(async move {
            let api = bed.api(kind_of(Kind::Record, &id.1), &id.1);
            for _ in 0..200 {
                match api.get_opt(&id.2).await {
                    Ok(None) => {
                        bed.put(id, spec).await;
                        return;
                    }
                    _ => sleep(Duration::from_millis(300)).await,
                }
            }
        });
    }

    /// Creates many record sets.
    async fn bulk(&self, count: usize, zone: &str) {
        for number in 0..count {
            let record = plain_record(&format!("bulk-{number}"), zone);
            self.put((Kind::Record, record.namespace.clone(), record.object.clone()), Spec::Record(record)).await;
        }
    }

    async fn delete_bulk(&self) {
        let ids: Vec<Id> =
            self.model().objects.keys().filter(|(_, _, name)| name.starts_with("bulk-")).cloned().collect();
        for id in ids {
            self.delete(&id).await;
        }
    }

    /// The serial must never be lower than a zone object has reported.
    fn note_floor(&self, object: &DynamicObject) {
        let (Some(uid), Some(name)) = (&object.metadata.uid, &object.metadata.name) else { return };
        let Some(serial) = object.data["status"]["serial"].as_u64() else { return };
        let zone = format!("{name}.");
        let mut model = self.model();
        let floor = model.floors.entry(zone).or_insert_with(|| (uid.clone(), serial));
        *floor = if floor.0 == *uid { (uid.clone(), serial.max(floor.1)) } else { (uid.clone(), serial) };
    }

    async fn note_floors(&self) {
        for (kind, namespace) in [("Zone", ""), ("ClusterZone", "")] {
            if let Ok(list) = self.api(kind, namespace).list(&kube::api::ListParams::default()).await {
                for object in &list.items {
                    self.note_floor(object);
                }
            }
        }
    }

    async fn remove_crd(self: &Arc<Self>, plural: &str, away: u64) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let Some(crd) = CRDS.iter().find(|crd| crd.spec.names.plural == plural) else { return };
        let name = crd.metadata.name.clone().unwrap_or_default();
        let removed = crds.delete(&name, &DeleteParams::default()).await;
        self.world.note(&format!("user deletes the definition {name}: {}", removed.is_ok()));
        if removed.is_err() {
            return;
        }
        self.world.strikes.strike_all(Instant::now() + Duration::from_millis(away));
        let of_kind = |id: &&Id| plural_of(id.0, &id.1) == plural;
        let ids: Vec<Id> = self.model().objects.keys().filter(of_kind).cloned().collect();
        for id in ids {
            self.model().delete(&id, false);
            let there = self.api(kind_of(id.0, &id.1), &id.1).get_opt(&id.2).await;
            match there {
                // Only an object with a finalizer is still there.
                Ok(Some(_)) => self.model().delete(&id, true),
                Ok(None) | Err(_) => self.model().release(&id),
            }
        }
        let bed = self.clone();
        let plural = plural.to_owned();
        tokio::spawn(async move {
            sleep(Duration::from_millis(away)).await;
            for _ in 0..600 {
                if crds.create(&PostParams::default(), crd).await.is_ok() {
                    bed.world.note(&format!("user installs the definition of {plural}"));
                    return;
                }
                sleep(Duration::from_secs(1)).await;
            }
        });
    }

    /// The operator wrote the metadata of an object: when that released the object, its records must be deleted.
    async fn metadata_written(&self, path: String) {
        let parts: Vec<&str> = path.trim_start_matches("/apis/").split('/').collect();
        let (namespace, plural, name) = match parts.as_slice() {
            [GROUP, _, "namespaces", namespace, plural, name] => (*namespace, *plural, *name),
            [GROUP, _, plural, name] => ("", *plural, *name),
            _ => return,
        };
        let kind = if plural.ends_with("zones") { Kind::Zone } else { Kind::Record };
        let id: Id = (kind, namespace.to_owned(), name.to_owned());
        let known = self.model().objects.get(&id).map(|object| object.uid.clone());
        let there = self.api(kind_of(id.0, namespace), namespace).get_opt(name).await;
        let mut model = self.model();
        let Some(object) = model.objects.get(&id).filter(|object| Some(&object.uid) == known.as_ref()) else {
            return;
        };
        let deleted = match &there {
            Ok(Some(there)) => there.metadata.uid.as_ref() != Some(&object.uid),
            Ok(None) => true,
            Err(_) => false,
        };
        if object.released.is_some() || !deleted {
            return;
        }
        let object = object.clone();
        model.release(&id);
        oracle::check_release(&self.world, &self.twin, &model, &id, &object);
    }
}

/// An A record whose object and name are the same.
fn plain_record(name: &str, zone: &str) -> RecordObject {
    RecordObject {
        namespace: "one".to_owned(),
        object: name.to_owned(),
        zone: zone.to_owned(),
        cluster_zone: false,
        name: name.to_owned(),
        rtype: "A".to_owned(),
        ttl: 60,
        records: vec!["192.0.2.9".to_owned()],
        retain: false,
    }
}

fn kind_of(kind: Kind, namespace: &str) -> &'static str {
    match (kind, namespace.is_empty()) {
        (Kind::Zone, false) => "Zone",
        (Kind::Zone, true) => "ClusterZone",
        (Kind::Record, false) => "RRset",
        (Kind::Record, true) => "ClusterRRset",
        (Kind::Endpoint, _) => "DNSEndpoint",
    }
}

fn plural_of(kind: Kind, namespace: &str) -> String {
    format!("{}s", kind_of(kind, namespace).to_lowercase())
}

fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "DNSEndpoint" => (signpost_apis::externaldns::GROUP, "v1alpha1"),
        _ => (GROUP, "v1alpha2"),
    };
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(group, version, kind),
        &format!("{}s", kind.to_lowercase()),
    )
}

/// Every definition, made once: their schemas are derived from types.
static CRDS: LazyLock<Vec<CustomResourceDefinition>> =
    LazyLock::new(|| signpost_apis::powerdns::crds().into_iter().chain([signpost_apis::externaldns::crd()]).collect());

impl Bed for PowerDnsBed {
    const NAME: &'static str = "powerdns";
    type Action = Action;

    fn draw(seed: u64) -> History<Action> {
        action::draw(seed)
    }

    async fn prepare(client: kube::Client) -> Result<(), kube::Error> {
        world::create_definitions(&client, &CRDS).await?;
        world::create_namespaces(&client, &["one", "two"]).await
    }

    async fn open(world: Arc<World>, history: &History<Action>) -> Arc<Self> {
        let client = world.sandbox.client();
        let model = Arc::new(Mutex::new(Model::new(world.clone())));
        let twin = Twin::new(world.clone(), model.clone());
        let endpoints = history.find(|action| (*action == Action::PublishEndpoints).then_some(())).is_some();
        let packs_above = if history.seed.is_multiple_of(2) { PACKS_ABOVE } else { Pace::default().packs_above };
        let bed = Arc::new(Self { world: world.clone(), client, twin, model, endpoints, packs_above });
        world.on_metadata(&bed, |bed, path| async move { bed.metadata_written(path).await });
        bed
    }

    async fn act(self: &Arc<Self>, action: &Action) {
        match action {
            Action::PublishEndpoints => {}
            Action::Endpoints(object) => {
                let id = (Kind::Endpoint, object.namespace.clone(), object.name.clone());
                self.put(id, Spec::Endpoint(object.clone())).await;
            }
            Action::DeleteEndpoints { namespace, name } => {
                self.delete(&(Kind::Endpoint, namespace.clone(), name.clone())).await;
            }
            Action::Zone(zone) => {
                self.put((Kind::Zone, zone.namespace.clone(), zone.name.clone()), Spec::Zone(zone.clone())).await;
            }
            Action::DeleteZone { namespace, name } => self.delete(&(Kind::Zone, namespace.clone(), name.clone())).await,
            Action::Record(record) => {
                self.put((Kind::Record, record.namespace.clone(), record.object.clone()), Spec::Record(record.clone()))
                    .await;
            }
            Action::DeleteRecord { namespace, name } => {
                self.delete(&(Kind::Record, namespace.clone(), name.clone())).await;
            }
            Action::Recreate(record) => self.recreate(record).await,
            Action::Bulk { count, zone } => self.bulk(*count, zone).await,
            Action::DeleteBulk => self.delete_bulk().await,
            Action::BulkInPassing { count, zone, after } => {
                self.bulk(*count, zone).await;
                let (bed, after) = (self.clone(), Duration::from_millis(*after));
                let zone: Id = (Kind::Zone, "one".to_owned(), zone.clone());
                tokio::spawn(async move {
                    sleep(after).await;
                    bed.delete_bulk().await;
                    bed.delete(&zone).await;
                });
            }
            Action::HandSet { zone, name, rtype, record } => self.twin.by_hand(zone, name, rtype, Some(record)),
            Action::HandDelete { zone, name, rtype } => self.twin.by_hand(zone, name, rtype, None),
            Action::HandZone { zone } => self.twin.zone_by_hand(zone),
            Action::Wipe => {
                self.note_floors().await;
                self.twin.wipe();
            }
            Action::RemoveCrd { plural, away } => self.remove_crd(plural, *away).await,
        }
    }

    async fn churn(self: &Arc<Self>, round: usize, delete: bool) {
        let zone = format!("z{round}.test");
        let zone_id: Id = (Kind::Zone, "one".to_owned(), zone.clone());
        let ids: Vec<Id> =
            (0..40).map(|number| (Kind::Record, "one".to_owned(), format!("r{round}-{number}"))).collect();
        if delete {
            for id in ids.iter().chain([&zone_id]) {
                self.delete(id).await;
            }
            return;
        }
        self.put(zone_id, Spec::Zone(ZoneObject::plain(&zone))).await;
        for id in ids {
            let record = plain_record(&id.2, &zone);
            self.put(id, Spec::Record(record)).await;
        }
    }

    fn install(self: &Arc<Self>, operator: &mut Operator, process: &Process, number: usize) -> Box<dyn Any + Send> {
        let pace = pace(number, self.endpoints, self.packs_above);
        install_with(operator, Arc::new(Wire::new(&self.world, &self.twin, process)), pace);
        Box::new(())
    }

    async fn look(self: &Arc<Self>) -> bool {
        standing::look(&self.world, &self.twin, &self.model())
    }

    async fn check(self: &Arc<Self>, moment: Moment) {
        oracle::check(self, moment).await;
    }
}
