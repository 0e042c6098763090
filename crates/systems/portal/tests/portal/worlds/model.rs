//! The world as plain data, and the rows of the inventory computed from it from scratch.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};
use signpost_dns::{Fqdn, Rdata, RecordType};
use signpost_inventory::{Snapshot, SyncStatus, View};

use super::elsewhere::{self, Elsewhere};

/// The group of every name of an object that tells in which state of the object it was read.
pub const GENERATION: &str = "gen-";
pub const PUBLISHERS: u8 = 2;
pub const TYPES: [RecordType; 4] = [RecordType::A, RecordType::Aaaa, RecordType::Cname, RecordType::Txt];
pub const NAMES: u8 = 8;
/// The name whose targets may be answered in part.
const ANY: u8 = NAMES - 1;
const PORTALS: [&str; 2] = ["main", "team"];

pub fn fqdn(name: u8) -> Fqdn {
    Fqdn::parse(&format!("n{name}.example.org")).unwrap()
}

/// An entry of an object.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Typed(RecordType),
    /// Of type A, without targets.
    Exists,
    /// Without a type and without targets.
    Anything,
    Invalid,
}

#[derive(Clone, Copy, Debug)]
pub struct Wish {
    name: u8,
    kind: Kind,
    target: u8,
}

#[derive(Clone, Debug)]
pub struct DnsSpec {
    portal: u8,
    groups: Vec<Vec<Wish>>,
}

#[derive(Clone, Debug)]
pub struct IngressSpec {
    hosts: BTreeSet<u8>,
    ip: Option<u8>,
    portal: Option<u8>,
    ignored: bool,
}

/// An object from now on; `None` when it is deleted.
#[derive(Clone, Debug)]
pub enum Object {
    Dns(u8, Option<DnsSpec>),
    /// Whether it shows names.
    Portal(u8, Option<bool>),
    /// The Portal of another cluster, and whether it shows names.
    Remote(Option<bool>),
    Ingress(u8, Option<IngressSpec>),
    Endpoint(u8, Option<Vec<Wish>>),
}

impl Object {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Dns(..) => "DNS",
            Self::Portal(..) | Self::Remote(_) => "Portal",
            Self::Ingress(..) => "Ingress",
            Self::Endpoint(..) => "DNSEndpoint",
        }
    }

    pub fn name(&self) -> String {
        match self {
            Self::Dns(slot, _) => format!("d{slot}"),
            Self::Portal(slot, _) => PORTALS[usize::from(*slot)].to_owned(),
            Self::Remote(_) => elsewhere::PORTAL.to_owned(),
            Self::Ingress(slot, _) => format!("i{slot}"),
            Self::Endpoint(slot, _) => format!("e{slot}"),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Answer {
    Records(Vec<(RecordType, Vec<Rdata>)>),
    Late,
    Bad,
}

#[derive(Clone, Debug)]
pub enum What {
    Object(Object),
    /// Names that another system published: for an Ingress, or for an object of its own.
    Publish(u8, Vec<(u8, u8)>, Option<u8>),
    Answer(u8, Answer),
    /// The names of the portal of another cluster.
    Elsewhere(elsewhere::Names),
    Down(bool),
    /// The operator's clock is set, by so many hours.
    Clock(i64),
    Restart {
        crash: bool,
    },
}

#[derive(Clone, Debug)]
pub struct Step {
    pub what: What,
    pub bad_weather: bool,
    /// Seconds that every answer takes from now on: it is about the names as they were when it was asked for.
    pub late: u64,
    /// Whether the next step comes before the effect of this one.
    pub overlaps: bool,
}

impl What {
    /// Whether the effect of a step does not depend on what was known before it.
    fn is_repeatable(&self) -> bool {
        match self {
            Self::Object(object) => !matches!(object, Object::Remote(_)),
            Self::Publish(..) | Self::Answer(..) | Self::Clock(_) => true,
            // These keep what was known.
            Self::Elsewhere(_) | Self::Down(_) | Self::Restart { .. } => false,
        }
    }
}

impl Step {
    /// Whether nobody waits between this step and the next.
    pub fn runs_into(&self, next: Option<&Self>) -> bool {
        self.overlaps && self.what.is_repeatable() && next.is_some_and(|next| next.what.is_repeatable())
    }
}

fn value(rtype: RecordType, number: u8) -> Rdata {
    let text = match rtype {
        RecordType::A => format!("192.0.2.{}", number + 1),
        RecordType::Aaaa => format!("2001:db8::{}", number + 1),
        RecordType::Cname => fqdn(number).to_string(),
        _ => format!("\"text {number}\""),
    };
    Rdata::parse(&rtype, &text).unwrap()
}

fn text(value: &Rdata) -> String {
    match value {
        Rdata::Aaaa(ip) => ip.to_string(),
        other => other.to_string(),
    }
}

/// A type as text.
pub fn shown(rtype: Option<RecordType>) -> String {
    rtype.map_or_else(|| "-".to_owned(), |rtype| rtype.as_str().to_owned())
}

fn typed() -> impl Strategy<Value = RecordType> {
    prop_oneof![4 => Just(RecordType::A), 1 => Just(RecordType::Aaaa), 1 => Just(RecordType::Cname), 1 => Just(RecordType::Txt)]
}

fn wish() -> impl Strategy<Value = Wish> {
    let kind = prop_oneof![
        8 => typed().prop_map(Kind::Typed),
        1 => Just(Kind::Exists),
        2 => Just(Kind::Anything),
        1 => Just(Kind::Invalid),
    ];
    (0..NAMES, kind, 0..3_u8).prop_map(|(name, kind, target)| Wish { name, kind, target })
}

fn object() -> impl Strategy<Value = Object> {
    let group = prop::collection::vec(wish(), 0..5);
    let dns = (0..2_u8, prop::collection::vec(group, 0..3)).prop_map(|(portal, groups)| DnsSpec { portal, groups });
    let hosts = prop::collection::btree_set(0..NAMES, 1..4);
    let portal = prop::option::of(0..2_u8);
    let ingress = (hosts, prop::option::of(0..3_u8), portal, prop::bool::weighted(0.1))
        .prop_map(|(hosts, ip, portal, ignored)| IngressSpec { hosts, ip, portal, ignored });
    let typed = (0..NAMES, typed(), 0..3_u8);
    let endpoint = prop::collection::vec(typed, 1..4).prop_map(|wishes| {
        let wish = |(name, rtype, target)| ((name, rtype), Wish { name, kind: Kind::Typed(rtype), target });
        wishes.into_iter().map(wish).collect::<BTreeMap<_, _>>().into_values().collect::<Vec<_>>()
    });
    prop_oneof![
        6 => (0..3_u8, prop::option::weighted(0.8, dns)).prop_map(|(slot, spec)| Object::Dns(slot, spec)),
        3 => (0..2_u8, prop::option::weighted(0.8, ingress)).prop_map(|(slot, spec)| Object::Ingress(slot, spec)),
        2 => (0..1_u8, prop::option::weighted(0.7, endpoint)).prop_map(|(slot, spec)| Object::Endpoint(slot, spec)),
        1 => any::<bool>().prop_map(|dns| Object::Portal(0, Some(dns))),
        2 => prop::option::of(any::<bool>()).prop_map(|dns| Object::Portal(1, dns)),
        2 => prop::option::weighted(0.8, prop::bool::weighted(0.8)).prop_map(Object::Remote),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    let records = |rtype: RecordType, most: u8| {
        prop::collection::btree_set(0..most, 1..3).prop_map(move |numbers| {
            let numbers = numbers.into_iter().take(if rtype == RecordType::Cname { 1 } else { 2 });
            vec![(rtype, numbers.map(|number| value(rtype, number)).collect::<Vec<_>>())]
        })
    };
    let dual = (records(RecordType::A, 3), records(RecordType::Aaaa, 3));
    prop_oneof![
        1 => Just(Answer::Records(Vec::new())),
        5 => records(RecordType::A, 3).prop_map(Answer::Records),
        1 => dual.prop_map(|(a, b)| Answer::Records(a.into_iter().chain(b).collect())),
        2 => records(RecordType::Cname, NAMES).prop_map(Answer::Records),
        1 => records(RecordType::Txt, 3).prop_map(Answer::Records),
        1 => Just(Answer::Late),
        1 => Just(Answer::Bad),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    let names = prop::collection::btree_map(0..NAMES, 0..3_u8, 0..4);
    let published = (0..PUBLISHERS, names, prop::option::of(0..2_u8))
        .prop_map(|(slot, names, ingress)| What::Publish(slot, names.into_iter().collect(), ingress));
    let what = prop_oneof![
        8 => object().prop_map(What::Object),
        2 => published,
        5 => (0..NAMES, answer()).prop_map(|(name, answer)| What::Answer(name, answer)),
        2 => elsewhere::names().prop_map(What::Elsewhere),
        2 => any::<bool>().prop_map(What::Down),
        1 => (-48..48_i64).prop_map(What::Clock),
        2 => any::<bool>().prop_map(|crash| What::Restart { crash }),
    ];
    let late = prop_oneof![2 => Just(0), 1 => 1..5_u64];
    (what, prop::bool::weighted(0.3), late, prop::bool::weighted(0.4))
        .prop_map(|(what, bad_weather, late, overlaps)| Step { what, bad_weather, late, overlaps })
}

/// A name of an object, as it should be in the inventory.
#[derive(Clone, Debug)]
pub struct Row {
    pub kind: &'static str,
    pub object: String,
    pub name: u8,
    pub rtype: Option<RecordType>,
    pub targets: Vec<String>,
    pub generation: String,
    groups: BTreeSet<String>,
    portal: Option<&'static str>,
}

/// Object, name, type and targets: what a verdict belongs to.
type Subject = (String, u8, Option<RecordType>, Vec<String>);

impl Row {
    fn subject(&self) -> Subject {
        (format!("{} {}", self.kind, self.object), self.name, self.rtype, self.targets.clone())
    }

    fn word(&self) -> String {
        let rtype = shown(self.rtype);
        format!("{} {rtype} {}", fqdn(self.name).undotted(), self.targets.join(","))
    }
}

/// Status, reason and answer; the last one of verdicts that are not errors.
type Verdict = (&'static str, &'static str, Vec<String>);

/// Everything that users and servers have done.
#[derive(Debug, Default)]
pub struct Model {
    generation: u32,
    dns: BTreeMap<u8, (u32, DnsSpec)>,
    portals: BTreeMap<u8, bool>,
    ingresses: BTreeMap<u8, (u32, IngressSpec)>,
    endpoints: BTreeMap<u8, (u32, Vec<Wish>)>,
    #[allow(clippy::type_complexity)]
    published: BTreeMap<u8, (u32, Vec<(u8, u8)>, Option<u8>)>,
    answers: BTreeMap<u8, Answer>,
    pub elsewhere: Elsewhere,
    pub down: bool,
    verdicts: BTreeMap<Subject, Verdict>,
}

pub fn state(generation: u32) -> String {
    format!("{GENERATION}{generation}")
}

fn put<T>(map: &mut BTreeMap<u8, T>, slot: u8, value: Option<T>) {
    match value {
        Some(value) => map.insert(slot, value),
        None => map.remove(&slot),
    };
}

impl Wish {
    fn rtype(&self) -> Option<RecordType> {
        match self.kind {
            Kind::Typed(rtype) => Some(rtype),
            Kind::Exists | Kind::Invalid => Some(RecordType::A),
            Kind::Anything => None,
        }
    }

    fn targets(&self) -> Vec<String> {
        match self.kind {
            Kind::Typed(rtype) => vec![text(&value(rtype, self.target))],
            Kind::Invalid => vec![format!("192.0.2.{}", self.target + 1)],
            Kind::Exists | Kind::Anything => Vec::new(),
        }
    }

    fn shown(&self) -> String {
        if matches!(self.kind, Kind::Invalid) { "not a name".into() } else { fqdn(self.name).undotted().to_owned() }
    }

    fn entry(&self) -> Value {
        let mut entry = json!({ "fqdn": self.shown(), "targets": self.targets() });
        if let Some(rtype) = self.rtype() {
            entry["recordType"] = json!(rtype.as_str());
        }
        if self.name == ANY {
            entry["match"] = json!("Any");
        }
        entry
    }
}

impl Model {
    /// Takes over what a step changes.
    pub fn take(&mut self, what: &What) {
        self.generation += 1;
        let generation = self.generation;
        match what.clone() {
            What::Object(Object::Dns(slot, spec)) => put(&mut self.dns, slot, spec.map(|spec| (generation, spec))),
            What::Object(Object::Portal(slot, dns)) => put(&mut self.portals, slot, dns),
            What::Object(Object::Ingress(slot, spec)) => {
                put(&mut self.ingresses, slot, spec.map(|spec| (generation, spec)));
            }
            What::Object(Object::Endpoint(slot, wishes)) => {
                put(&mut self.endpoints, slot, wishes.map(|wishes| (generation, wishes)));
            }
            What::Publish(slot, names, ingress) => {
                self.published.insert(slot, (generation, names, ingress));
            }
            What::Object(Object::Remote(dns)) => self.elsewhere.set_portal(dns),
            What::Elsewhere(names) => self.elsewhere.set_names(names, generation),
            What::Answer(name, answer) => {
                self.answers.insert(name, answer);
            }
            What::Down(down) => self.down = down,
            What::Clock(_) => {}
            // Only the verdicts on DNS objects are in a status.
            What::Restart { .. } => self.verdicts.retain(|(object, ..), _| object.starts_with("DNS ")),
        }
    }

    /// An object as users write it; `None` when it does not exist.
    pub fn manifest(&self, object: &Object) -> Option<Value> {
        let annotations = |generation: u32, portal: Option<u8>, ignored: bool| {
            let mut annotations = json!({ "sreportal.io/groups": state(generation) });
            if let Some(portal) = portal {
                annotations["sreportal.io/portal"] = json!(PORTALS[usize::from(portal)]);
            }
            if ignored {
                annotations["sreportal.io/ignore"] = json!("true");
            }
            json!({ "annotations": annotations })
        };
        Some(match object {
            Object::Dns(_, spec) => {
                let spec = spec.as_ref()?;
                let entries = |wishes: &[Wish]| wishes.iter().map(Wish::entry).collect::<Vec<_>>();
                let mut groups: Vec<Value> = spec
                    .groups
                    .iter()
                    .enumerate()
                    .map(|(number, wishes)| json!({ "name": format!("g{number}"), "entries": entries(wishes) }))
                    .collect();
                let all: Vec<Wish> = spec.groups.iter().flatten().copied().collect();
                groups.push(json!({ "name": state(self.generation), "entries": entries(&all) }));
                json!({ "spec": { "portalRef": PORTALS[usize::from(spec.portal)], "groups": groups } })
            }
            Object::Portal(slot, dns) => json!({ "spec": {
                "title": "A portal", "main": *slot == 0, "features": { "dns": (*dns)? },
            } }),
            Object::Remote(dns) => Elsewhere::manifest((*dns)?),
            Object::Ingress(_, spec) => {
                let IngressSpec { hosts, ip, portal, ignored } = spec.as_ref()?;
                let rules: Vec<Value> = hosts.iter().map(|host| json!({ "host": fqdn(*host).undotted() })).collect();
                let points: Vec<Value> =
                    ip.iter().map(|ip| json!({ "ip": text(&value(RecordType::A, *ip)) })).collect();
                json!({ "metadata": annotations(self.generation, *portal, *ignored), "spec": { "rules": rules },
                    "status": { "loadBalancer": { "ingress": points } } })
            }
            Object::Endpoint(_, wishes) => {
                let point = |wish: &Wish| {
                    json!({ "dnsName": fqdn(wish.name).undotted(), "recordType": wish.rtype().unwrap().as_str(),
                        "targets": wish.targets() })
                };
                let points: Vec<Value> = wishes.as_ref()?.iter().map(point).collect();
                json!({ "metadata": annotations(self.generation, None, false), "spec": { "endpoints": points } })
            }
        })
    }

    /// The names that another system published.
    pub fn published(&self, slot: u8) -> Vec<Row> {
        let Some((generation, names, ingress)) = self.published.get(&slot) else { return Vec::new() };
        let (kind, object) = match ingress {
            Some(ingress) => ("Ingress", format!("i{ingress}")),
            None => ("RRset", format!("r{slot}")),
        };
        let row = |(name, target): &(u8, u8)| Row {
            kind,
            object: object.clone(),
            name: *name,
            rtype: Some(RecordType::A),
            targets: vec![text(&value(RecordType::A, *target))],
            generation: state(*generation),
            groups: BTreeSet::from([state(*generation)]),
            portal: None,
        };
        names.iter().map(row).collect()
    }

    /// Where discovered names are shown; `None` where that portal shows none.
    fn shown_by(&self, asked: Option<u8>) -> Option<&'static str> {
        let portal = asked.filter(|asked| *asked == 0 || self.portals.contains_key(asked)).unwrap_or(0);
        let dns = self.portals.get(&portal).copied().unwrap_or(true);
        dns.then_some(PORTALS[usize::from(portal)])
    }

    /// Every name, without verdicts.
    fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = (0..PUBLISHERS).flat_map(|slot| self.published(slot)).collect();
        let hidden: BTreeSet<(String, u8)> =
            rows.iter().filter(|row| row.kind == "Ingress").map(|row| (row.object.clone(), row.name)).collect();
        for (slot, (generation, spec)) in &self.dns {
            // A portal that does not exist hides nothing.
            if self.portals.get(&spec.portal) == Some(&false) {
                continue;
            }
            let portal = Some(PORTALS[usize::from(spec.portal)]);
            rows.extend(Self::rows_of(*slot, *generation, spec).into_iter().map(|row| Row { portal, ..row }));
        }
        for (slot, (generation, spec)) in &self.ingresses {
            let Some(portal) = self.shown_by(spec.portal).filter(|_| !spec.ignored) else { continue };
            let object = format!("i{slot}");
            let shown = spec.hosts.iter().filter(|host| !hidden.contains(&(object.clone(), **host)));
            rows.extend(shown.map(|host| Row {
                kind: "Ingress",
                object: object.clone(),
                name: *host,
                rtype: spec.ip.map(|_| RecordType::A),
                targets: spec.ip.iter().map(|ip| text(&value(RecordType::A, *ip))).collect(),
                generation: state(*generation),
                groups: BTreeSet::from([state(*generation)]),
                portal: Some(portal),
            }));
        }
        for (slot, (generation, wishes)) in &self.endpoints {
            let Some(portal) = self.shown_by(None) else { continue };
            rows.extend(wishes.iter().map(|wish| Row {
                kind: "DNSEndpoint",
                object: format!("e{slot}"),
                name: wish.name,
                rtype: wish.rtype(),
                targets: wish.targets(),
                generation: state(*generation),
                groups: BTreeSet::from([state(*generation)]),
                portal: Some(portal),
            }));
        }
        rows
    }

    /// The names of a DNS object: the same name in several groups is one row.
    fn rows_of(slot: u8, generation: u32, spec: &DnsSpec) -> Vec<Row> {
        let mut rows: BTreeMap<Subject, Row> = BTreeMap::new();
        for (number, wishes) in spec.groups.iter().enumerate() {
            for wish in wishes.iter().filter(|wish| !matches!(wish.kind, Kind::Invalid)) {
                let row = Row {
                    kind: "DNS",
                    object: format!("d{slot}"),
                    name: wish.name,
                    rtype: wish.rtype(),
                    targets: wish.targets(),
                    generation: state(generation),
                    groups: BTreeSet::from([state(generation)]),
                    portal: None,
                };
                rows.entry(row.subject()).or_insert(row).groups.insert(format!("g{number}"));
            }
        }
        rows.into_values().collect()
    }

    /// All names of an object that is changed by a step, and the name of its state.
    pub fn whole(&self, what: &What) -> Option<(String, BTreeSet<String>)> {
        let words = |rows: Vec<Row>| rows.iter().map(Row::word).collect();
        match what {
            What::Object(Object::Dns(slot, Some(spec))) => {
                Some((state(self.generation), words(Self::rows_of(*slot, self.generation, spec))))
            }
            What::Publish(slot, ..) => Some((state(self.generation), words(self.published(*slot)))),
            What::Elsewhere(_) => self.elsewhere.whole(),
            _ => None,
        }
    }

    /// The rows with their verdicts. During an outage the last ones are kept.
    pub fn settle(&mut self) -> Vec<String> {
        let (mut kept, mut lines) = (BTreeMap::new(), Vec::new());
        for row in self.rows() {
            let last = self.verdicts.get(&row.subject()).cloned();
            let verdict = if self.down { last } else { Some(self.judge(&row)) };
            let (status, reason, observed) = verdict.clone().unwrap_or(("", "", Vec::new()));
            let groups: Vec<&str> = row.groups.iter().map(String::as_str).collect();
            lines.push(line(
                (row.kind, &row.object),
                &row.word(),
                &groups.join(","),
                row.portal.unwrap_or_default(),
                &format!("{status}/{reason} [{}]", observed.join(",")),
            ));
            kept.extend(verdict.map(|verdict| (row.subject(), verdict)));
        }
        self.verdicts = kept;
        self.elsewhere.settle();
        for [word, groups, portal, verdict] in self.elsewhere.rows() {
            lines.push(line(("DNS", elsewhere::COPY), &word, &groups, &portal, &verdict));
        }
        lines.sort();
        lines
    }

    /// What the statuses of DNS objects list.
    pub fn reported(&self) -> Vec<String> {
        let mut lines: BTreeSet<String> = self.elsewhere.reported().collect();
        for (slot, (_, spec)) in &self.dns {
            for wish in spec.groups.iter().flatten() {
                let invalid = matches!(wish.kind, Kind::Invalid);
                let rtype = wish.rtype().filter(|_| !invalid);
                let subject = (format!("DNS d{slot}"), wish.name, wish.rtype(), wish.targets());
                let checked = self.verdicts.get(&subject).map_or("", |verdict| verdict.0);
                let rtype = rtype.map(|rtype| rtype.as_str().to_owned()).unwrap_or_default();
                let status = if invalid { "error" } else { checked };
                lines.insert(format!("d{slot} {} {rtype} {} {status}", wish.shown(), wish.targets().join(",")));
            }
        }
        lines.into_iter().collect()
    }

    /// Names and types that two objects want with different targets.
    pub fn conflicts(&self) -> BTreeSet<String> {
        let rows: Vec<Row> = self
            .rows()
            .into_iter()
            .filter(|row| !row.targets.is_empty() && (row.name != ANY || row.kind != "DNS"))
            .collect();
        let mut conflicts = BTreeSet::new();
        for a in &rows {
            let rivals = |b: &&Row| (b.name, b.rtype) == (a.name, a.rtype) && b.targets != a.targets;
            if rows.iter().filter(rivals).any(|b| (b.kind, &b.object) != (a.kind, &a.object)) {
                conflicts.insert(format!("{} {}", fqdn(a.name).undotted(), shown(a.rtype)));
            }
        }
        conflicts
    }

    /// The answer to a question: the aliases on the way, and the values or `None` where the name does not exist.
    fn resolve(&self, name: u8, rtype: RecordType) -> Result<(Vec<u8>, Option<Vec<Rdata>>), Verdict> {
        match self.answers.get(&name) {
            Some(Answer::Late) => return Err(("timeout", "Timeout", Vec::new())),
            Some(Answer::Bad) => return Err(("error", "BadAnswer", Vec::new())),
            _ => {}
        }
        let mut hops = vec![name];
        loop {
            let at = *hops.last().unwrap();
            let Some(Answer::Records(records)) = self.answers.get(&at).filter(|answer| !answer.is_empty()) else {
                return Ok((hops.split_off(1), None));
            };
            let of = |wanted: RecordType| records.iter().find(|(rtype, _)| *rtype == wanted).map(|(_, values)| values);
            if let Some(values) = of(rtype) {
                return Ok((hops.split_off(1), Some(values.clone())));
            }
            let Some(alias) = of(RecordType::Cname) else { return Ok((hops.split_off(1), Some(Vec::new()))) };
            let next = (0..NAMES).find(|name| value(RecordType::Cname, *name) == alias[0]).unwrap();
            if hops.contains(&next) {
                return Err(("error", "CnameLoop", Vec::new()));
            }
            hops.push(next);
        }
    }

    fn judge(&self, row: &Row) -> Verdict {
        let (hops, values) = match self.resolve(row.name, row.rtype.unwrap_or(RecordType::A)) {
            Ok(found) => found,
            Err(failure) => return failure,
        };
        let led = || hops.iter().map(|hop| format!("CNAME {}", fqdn(*hop))).collect();
        let Some(values) = values else { return ("notFound", "NoSuchName", led()) };
        let mut texts: Vec<String> = values.iter().map(text).collect();
        texts.sort();
        if row.targets.is_empty() && (row.rtype.is_none() || !texts.is_empty()) {
            return ("sync", "Exists", texts);
        }
        if texts.is_empty() {
            return ("notFound", "NoData", led());
        }
        // Only an entry of a DNS object tells how its targets are compared.
        let in_part = row.name == ANY && row.kind == "DNS" && texts.iter().any(|text| row.targets.contains(text));
        if texts == row.targets || in_part { ("sync", "Match", texts) } else { ("notFound", "Mismatch", texts) }
    }
}

impl Answer {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Records(records) if records.is_empty())
    }
}

fn line(from: (&str, &str), word: &str, groups: &str, portal: &str, verdict: &str) -> String {
    format!("{} {} | {word} | {groups} | {portal} | {verdict}", from.0, from.1)
}

/// The rows that the inventory has.
pub fn rows(snapshot: &Snapshot) -> Vec<String> {
    let row = |view: &View| {
        let provenance = view.provenance();
        let mut groups: Vec<&str> = provenance.groups.iter().map(|group| &**group).collect();
        groups.sort_unstable();
        let mut observed: Vec<&str> = view.observed().iter().collect();
        // The text of an error is not part of the model.
        if matches!(view.status(), SyncStatus::Error | SyncStatus::Timeout) {
            observed.clear();
        }
        let stale = if provenance.labels.contains_key("sreportal.io/stale") { " stale" } else { "" };
        line(
            (&provenance.origin.kind, &provenance.origin.name),
            &super::reader::word(view),
            &groups.join(","),
            &provenance.portals.join(","),
            &format!("{}/{} [{}]{stale}", view.status().as_str(), view.reason().as_str(), observed.join(",")),
        )
    };
    let mut rows: Vec<String> = snapshot.iter().map(|view| row(view)).collect();
    rows.sort();
    rows
}

/// The conflicts that the inventory has.
pub fn conflicts(snapshot: &Snapshot) -> BTreeSet<String> {
    let line =
        |name: Option<&Fqdn>, rtype: Option<RecordType>| format!("{} {}", name.unwrap().undotted(), shown(rtype));
    snapshot.conflicts().map(|conflict| line(conflict.name(), conflict.rtype())).collect()
}
