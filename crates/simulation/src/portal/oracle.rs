//! The expected verdicts, components and names, computed from the API objects and the name servers alone. None of the operator's code is used
//! here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::api::{DynamicObject, ListParams};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    MANAGED, NAMESPACE, OWN, PortalBed, lock,
    twin::{State, Truth},
};
use crate::{
    bed::Moment,
    strikes::Allowed,
    world::{START, World},
};

/// The values of `match`, in the order in which a status has entries that differ in nothing else.
const MATCHES: [&str; 3] = ["Exact", "Subset", "Any"];

/// The verdict on an entry: status and reason.
type Verdict = (&'static str, &'static str);

/// An entry of a DNS object.
#[derive(Debug)]
struct Entry {
    fqdn: String,
    rtype: Option<String>,
    targets: Vec<String>,
    how: String,
}

impl Entry {
    fn of(value: &Value) -> Self {
        let text = |field: &str| value[field].as_str().map(str::to_owned);
        let targets = value["targets"].as_array().into_iter().flatten().filter_map(|target| target.as_str());
        Self {
            fqdn: text("fqdn").unwrap_or_default(),
            rtype: text("recordType"),
            targets: targets.map(str::to_owned).collect(),
            how: text("match").unwrap_or_else(|| "Exact".to_owned()),
        }
    }

    /// What the entry asks for: a type that follows from the targets may be left out.
    fn meaning(&self) -> (&str, Option<&str>, BTreeSet<&str>, &str) {
        let inferred = (!self.targets.is_empty()).then_some("A");
        let targets = self.targets.iter().map(String::as_str).collect();
        (&self.fqdn, self.rtype.as_deref().or(inferred), targets, &self.how)
    }

    /// The place of its `match` in [`MATCHES`].
    fn rank(&self) -> Option<usize> {
        MATCHES.iter().position(|how| *how == self.how)
    }

    fn is_invalid(&self) -> bool {
        self.rtype.as_deref() == Some("A") && self.targets.iter().any(|target| target.contains(':'))
    }

    /// The verdict that the name servers justify.
    fn verdict(&self, servers: &State) -> Verdict {
        if self.is_invalid() {
            return ("error", "InvalidEntry");
        }
        let values = match servers.truth(&self.fqdn, self.rtype.as_deref().unwrap_or("A")) {
            Truth::NoSuchName => return ("notFound", "NoSuchName"),
            Truth::Loop => return ("error", "CnameLoop"),
            Truth::Values(values) => values,
        };
        if self.targets.is_empty() && (self.rtype.is_none() || !values.is_empty()) {
            return ("sync", "Exists");
        }
        if values.is_empty() {
            return ("notFound", "NoData");
        }
        let wanted: BTreeSet<&String> = self.targets.iter().collect();
        let served: BTreeSet<&String> = values.iter().collect();
        let same = match self.how.as_str() {
            "Subset" => served.is_subset(&wanted),
            "Any" => !served.is_disjoint(&wanted),
            _ => served == wanted,
        };
        if same { ("sync", "Match") } else { ("notFound", "Mismatch") }
    }
}

/// A DNS object or an Ingress, as the API has it.
struct Item {
    kind: &'static str,
    name: String,
    uid: String,
    created: i64,
    generation: Option<i64>,
    /// The title of the component that its annotations ask for.
    component: Option<String>,
    /// The portal that it names.
    asks: Option<String>,
    entries: Vec<Entry>,
    status: Value,
}

impl Item {
    fn of_dns(object: DynamicObject) -> Self {
        let (meta, data) = (object.metadata, object.data);
        let written = data.pointer("/spec/groups/0/entries").and_then(Value::as_array).into_iter().flatten();
        let mut entries: Vec<Entry> = Vec::new();
        for entry in written.map(Entry::of) {
            // An entry that is repeated counts once.
            if !entries.iter().any(|other| other.meaning() == entry.meaning()) {
                entries.push(entry);
            }
        }
        Self {
            kind: "DNS",
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            created: meta.creation_timestamp.map_or(0, |time| time.0.as_second()),
            generation: meta.generation,
            component: meta.annotations.and_then(|mut all| all.remove("sreportal.io/component")),
            asks: data.pointer("/spec/portalRef").and_then(Value::as_str).map(str::to_owned),
            entries,
            status: data["status"].clone(),
        }
    }

    fn of_ingress(object: k8s_openapi::api::networking::v1::Ingress) -> Self {
        let mut annotations = object.metadata.annotations.clone().unwrap_or_default();
        let meta = object.metadata.clone();
        let entry = |fqdn| Entry { fqdn, rtype: None, targets: Vec::new(), how: "Exact".to_owned() };
        Self {
            kind: "Ingress",
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            created: meta.creation_timestamp.map_or(0, |time| time.0.as_second()),
            generation: None,
            component: annotations.remove("sreportal.io/component"),
            asks: annotations.remove("sreportal.io/portal"),
            entries: crate::ingresses::hosts(object).into_iter().map(entry).collect(),
            status: Value::Null,
        }
    }

    /// The status of an entry. Entries that differ in `match` only have one status each, in the order of [`MATCHES`].
    fn reported(&self, entry: &Entry) -> Option<&Value> {
        let fqdns = self.status.pointer("/groups/0/fqdns")?.as_array()?;
        let (name, rtype, wanted, _) = entry.meaning();
        // An entry that cannot be read has no type in the status.
        let rtype = rtype.filter(|_| !entry.is_invalid());
        let same = |fqdn: &&Value| {
            let targets = fqdn["targets"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let targets: BTreeSet<&str> =
                targets.map(|target| target.trim_matches('"').trim_end_matches('.')).collect();
            fqdn["fqdn"] == name && fqdn["recordType"].as_str() == rtype && targets == wanted
        };
        let is_before = |other: &&Entry| {
            let (a, b) = (other.meaning(), entry.meaning());
            (a.0, a.1, &a.2) == (b.0, b.1, &b.2) && other.rank() < entry.rank()
        };
        fqdns.iter().filter(same).nth(self.entries.iter().filter(is_before).count())
    }

    fn condition(&self, type_: &str) -> Option<(&str, &str)> {
        let conditions = self.status["conditions"].as_array()?;
        let condition = conditions.iter().find(|condition| condition["type"] == type_)?;
        Some((condition["status"].as_str()?, condition["reason"].as_str()?))
    }
}

/// A portal: whether it shows names, and components.
#[derive(Clone, Debug)]
struct Portal {
    name: String,
    dns: bool,
    status_page: bool,
}

/// Everything that is looked at.
struct Cluster {
    items: Vec<Item>,
    portals: BTreeMap<(String, String), Portal>,
    main: Option<Portal>,
    components: Vec<DynamicObject>,
}

impl Cluster {
    async fn of(bed: &PortalBed) -> Self {
        let mut items: Vec<Item> = bed.list("DNS", NAMESPACE).await.into_iter().map(Item::of_dns).collect();
        if bed.discover {
            let listed = bed.ingresses().list(&ListParams::default()).await;
            items.extend(listed.into_iter().flatten().map(Item::of_ingress));
        }
        let (mut portals, mut main) = (BTreeMap::new(), None);
        for namespace in [NAMESPACE, OWN] {
            for object in bed.list("Portal", namespace).await {
                let name = object.metadata.name.unwrap_or_default();
                let on = |feature: &str| object.data["spec"]["features"][feature].as_bool().unwrap_or(true);
                let portal = Portal { name: name.clone(), dns: on("dns"), status_page: on("statusPage") };
                if object.data["spec"]["main"] == true {
                    main = Some(portal.clone());
                }
                portals.insert((namespace.to_owned(), name), portal);
            }
        }
        Self { items, portals, main, components: bed.list("Component", NAMESPACE).await }
    }

    /// The portal that shows an object.
    fn portal(&self, item: &Item) -> Option<&Portal> {
        let named = |namespace: &str| self.portals.get(&(namespace.to_owned(), item.asks.clone()?));
        match item.kind {
            "DNS" => named(NAMESPACE),
            _ => named(NAMESPACE).or_else(|| named(OWN)).or(self.main.as_ref()),
        }
    }

    /// Whether the names of an object are shown, and looked up.
    fn is_shown(&self, item: &Item) -> bool {
        self.portal(item).is_none_or(|portal| portal.dns)
    }
}

/// How long a verdict may be wrong.
const ALLOWED: Allowed = Allowed {
    // A name in sync is looked up every five minutes, spread by a tenth, and a status waits its turn.
    without_fault: Duration::from_secs(400),
    after_fault: Duration::from_mins(9),
    after_refusal: Duration::from_mins(14),
};

/// Looks for verdicts that no answer justifies, and for verdicts that have been wrong for longer than the faults of their own requests explain.
pub async fn look(bed: &Arc<PortalBed>) -> bool {
    let (now, mut clear) = (Instant::now(), true);
    let cluster = Cluster::of(bed).await;
    for item in cluster.items.iter().filter(|item| item.kind == "DNS" && cluster.is_shown(item)) {
        for entry in &item.entries {
            let (verdict, changed, bad) = {
                let servers = bed.twin.state();
                (entry.verdict(&servers), servers.changed, servers.bad.get(&entry.fqdn).copied())
            };
            let reported = item.reported(entry);
            let status = reported.and_then(|fqdn| fqdn["syncStatus"].as_str()).unwrap_or_default();
            if status == verdict.0 {
                continue;
            }
            clear = false;
            let broken = ["notFound", "error", "timeout"].contains(&status);
            if verdict.0 == "sync" && broken && bad.is_none() && created_after(&bed.world, item, changed) {
                bed.world.violation(format!(
                    "DNS {}: {} is {status} although every answer for it was right: {}",
                    item.name, entry.fqdn, item.status
                ));
            }
            let known = bed.known();
            let Some(put) = known.dns.get(&item.name) else { continue };
            let since = bad.into_iter().chain([changed, known.portals]).fold(*put, Instant::max);
            let concerns = |name: &str| {
                name.ends_with(&format!("/dns/{}/status", item.name))
                    || name.starts_with(&format!("resolve {}", entry.fqdn))
            };
            if now > bed.world.strikes.of(concerns).deadline(since, &ALLOWED) {
                bed.world.violation(format!(
                    "DNS {}: {} is {status:?} and should be {verdict:?}, without faults of its own: {}",
                    item.name, entry.fqdn, item.status
                ));
            }
        }
    }
    clear
}

/// Whether an object was created after the name servers last changed, so that nothing else was ever answered for it.
fn created_after(world: &World, item: &Item, changed: Instant) -> bool {
    let age = world.unix_seconds().saturating_sub(u64::try_from(item.created).unwrap_or(START.unsigned_abs()));
    // The time of creation has whole seconds, and an answer may be some seconds old.
    changed.elapsed() > Duration::from_secs(age + 10)
}

/// Checks everything.
pub async fn check(bed: &Arc<PortalBed>, moment: Moment) {
    let cluster = Cluster::of(bed).await;
    let wrong = |what: String| bed.world.violation(format!("{moment:?}: {what}"));
    for item in &cluster.items {
        if item.kind == "DNS" {
            verdicts(bed, &cluster, item, moment);
        }
        component(bed, &cluster, item, moment);
    }
    if cluster.main.is_none() {
        wrong("there is no main portal".to_owned());
    }
    for (name, spec) in &bed.known().foreign {
        let there = cluster.components.iter().find(|object| object.metadata.name.as_ref() == Some(name));
        if there.is_none_or(|there| there.data["spec"] != *spec) {
            wrong(format!("the foreign Component {name} was changed: {:?}", there.map(|there| &there.data)));
        }
    }
    let uids: BTreeSet<&String> = cluster.items.iter().map(|item| &item.uid).collect();
    for object in &cluster.components {
        let owners = object.metadata.owner_references.iter().flatten();
        for owner in owners.filter(|owner| !uids.contains(&owner.uid)) {
            wrong(format!(
                "Component {:?} is of {} {}, which does not exist",
                object.metadata.name, owner.kind, owner.name
            ));
        }
    }
    inventory(bed, &cluster, moment);
}

/// The status of a DNS object.
fn verdicts(bed: &PortalBed, cluster: &Cluster, item: &Item, moment: Moment) {
    let wrong = |what: String| {
        bed.world.violation(format!("{moment:?}: DNS {}: {what}: {}", item.name, item.status));
    };
    let shown = cluster.is_shown(item);
    let mut counts = (0, 0);
    for entry in &item.entries {
        let verdict = entry.verdict(&bed.twin.state());
        let reported = item.reported(entry);
        let text = |field: &str| reported.and_then(|fqdn| fqdn[field].as_str()).unwrap_or_default();
        let expected = if shown || entry.is_invalid() { verdict } else { ("", "") };
        if (text("syncStatus"), text("reason")) != expected {
            wrong(format!("{} {:?} should be {expected:?}", entry.fqdn, entry.rtype));
        }
        counts.0 += i64::from(expected.0 == "sync");
        counts.1 += i64::from(!["sync", ""].contains(&expected.0));
    }
    if moment == Moment::Served {
        return;
    }
    if item.status["observedGeneration"].as_i64() != item.generation {
        wrong(format!("the status is not about generation {:?}", item.generation));
    }
    let number = |field: &str| item.status[field].as_i64().unwrap_or(-1);
    if (number("sync"), number("broken")) != counts {
        wrong(format!("the counts of sync and broken should be {counts:?}"));
    }
    let ready = match cluster.portal(item) {
        None => ("False", "PortalNotFound"),
        Some(portal) if !portal.dns => ("True", "FeatureDisabled"),
        Some(portal) if portal.status_page && is_replaced(bed, cluster, item) => ("False", "ComponentFailed"),
        Some(_) => ("True", "ReconcileSucceeded"),
    };
    if item.condition("Ready") != Some(ready) {
        wrong(format!("Ready should be {ready:?}"));
    }
    if item.condition("Resolved") != Some(("True", "Answered")) {
        wrong("Resolved should be True".to_owned());
    }
}

/// Whether a foreign Component is in the place of the one that an object asks for.
fn is_replaced(bed: &PortalBed, cluster: &Cluster, item: &Item) -> bool {
    let (Some(title), Some(portal)) = (&item.component, cluster.portal(item)) else { return false };
    bed.known().replaced.contains(&(portal.name.clone(), title.clone()))
}

/// The component that the annotations of an object ask for: exactly one, owned by the object.
fn component(bed: &PortalBed, cluster: &Cluster, item: &Item, moment: Moment) {
    if moment == Moment::Served || is_replaced(bed, cluster, item) {
        return;
    }
    let of_item = |object: &&DynamicObject| {
        let labels = object.metadata.labels.as_ref();
        object.metadata.owner_references.iter().flatten().any(|owner| owner.uid == item.uid)
            && labels.is_some_and(|labels| labels.contains_key(MANAGED))
    };
    let owned: Vec<&DynamicObject> = cluster.components.iter().filter(of_item).collect();
    let titles: Vec<&str> =
        owned.iter().map(|object| object.data["spec"]["displayName"].as_str().unwrap_or_default()).collect();
    let right = match (&item.component, cluster.portal(item)) {
        (None, _) => owned.is_empty(),
        (Some(title), Some(portal)) if portal.status_page => {
            titles == [title.as_str()] && owned[0].data["spec"]["portalRef"] == portal.name.as_str()
        }
        // Without a portal for it, everything is left as it is.
        (Some(_), _) => true,
    };
    if !right {
        bed.world.violation(format!(
            "{moment:?}: {} {} asks for the component {:?}, and has {titles:?}",
            item.kind, item.name, item.component
        ));
    }
}

/// Every replica knows every name. With one replica, which looks the names up, also their verdicts are known.
fn inventory(bed: &PortalBed, cluster: &Cluster, moment: Moment) {
    let inventories = lock(&bed.inventories).clone();
    let alone = inventories.len() == 1;
    let mut expected: BTreeSet<(String, String, Option<&str>)> = BTreeSet::new();
    for item in cluster.items.iter().filter(|item| cluster.is_shown(item)) {
        for entry in &item.entries {
            let status = entry.verdict(&bed.twin.state()).0;
            expected.insert((format!("{} {}", item.kind, item.name), entry.fqdn.clone(), alone.then_some(status)));
        }
    }
    for (replica, inventory) in &inventories {
        let snapshot = inventory.snapshot();
        let view = |view: &Arc<signpost_inventory::View>| {
            let origin = &view.provenance().origin;
            let status = alone.then(|| view.status().as_str());
            (format!("{} {}", origin.kind, origin.name), view.name().undotted().to_owned(), status)
        };
        let there: BTreeSet<_> = snapshot.iter().map(view).collect();
        if there != expected {
            let missing: Vec<_> = expected.difference(&there).collect();
            let surplus: Vec<_> = there.difference(&expected).collect();
            bed.world
                .violation(format!("{moment:?}: the inventory of {replica} lacks {missing:?} and has {surplus:?}"));
        }
    }
}
