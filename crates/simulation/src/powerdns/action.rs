//! The actions of users of `powerdns`, and how a history of it is drawn.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::scene;
use crate::{
    dice::Dice,
    history::{self, History},
};

/// A content that the server refuses with 422, whenever it is written.
pub const REFUSED: &str = "192.0.2.66";

/// The zones of a history.
pub const ZONES: [&str; 2] = ["a.test", "b.test"];

/// The kinds whose definitions users remove.
const DEFINITIONS: [&str; 3] = ["zones", "rrsets", "dnsendpoints"];

/// An action of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// The operator publishes DNSEndpoints; read before the start.
    PublishEndpoints,
    /// Creates or changes a DNSEndpoint.
    Endpoints(EndpointObject),
    /// Deletes a DNSEndpoint.
    DeleteEndpoints {
        /// Namespace.
        namespace: String,
        /// Name of the object.
        name: String,
    },
    /// Creates or changes a zone object.
    Zone(ZoneObject),
    /// Deletes a zone object.
    DeleteZone {
        /// Namespace; empty for a ClusterZone.
        namespace: String,
        /// Name of the object.
        name: String,
    },
    /// Creates or changes a record set object.
    Record(RecordObject),
    /// Deletes a record set object.
    DeleteRecord {
        /// Namespace; empty for a ClusterRRset.
        namespace: String,
        /// Name of the object.
        name: String,
    },
    /// Deletes a record set object and creates this one as soon as it is deleted.
    Recreate(RecordObject),
    /// Creates many record set objects, `bulk-0` and so on.
    Bulk {
        /// How many.
        count: usize,
        /// The zone they are in, of namespace `one`.
        zone: String,
    },
    /// Deletes all that `bulk` created.
    DeleteBulk,
    /// Creates what `bulk` creates, and deletes it a moment later together with its zone object.
    BulkInPassing {
        /// How many.
        count: usize,
        /// The zone they are in, of namespace `one`.
        zone: String,
        /// Milliseconds until they are deleted.
        after: u64,
    },
    /// Writes a record set at the server by hand.
    HandSet {
        /// The zone.
        zone: String,
        /// The name, relative to the zone.
        name: String,
        /// The type.
        rtype: String,
        /// The record.
        record: String,
    },
    /// Deletes a record set at the server by hand.
    HandDelete {
        /// The zone.
        zone: String,
        /// The name, relative to the zone.
        name: String,
        /// The type.
        rtype: String,
    },
    /// Creates a zone at the server by hand.
    HandZone {
        /// The zone.
        zone: String,
    },
    /// The server loses its database.
    Wipe,
    /// Deletes a definition, and with it every object of its kind. It is installed again after a while.
    RemoveCrd {
        /// The plural of the kind.
        plural: String,
        /// Milliseconds until it is installed again.
        away: u64,
    },
}

/// A Zone or ClusterZone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneObject {
    /// Namespace; empty for a ClusterZone.
    pub namespace: String,
    /// Name of the object, and of the zone.
    pub name: String,
    /// `spec.kind`.
    pub kind: String,
    /// `spec.nameservers`.
    pub nameservers: Vec<String>,
    /// `spec.soa_edit_api`.
    pub soa_edit_api: String,
    /// `spec.adoptionPolicy` is Refuse.
    pub refuse: bool,
    /// `spec.deletionPolicy` is Retain.
    pub retain: bool,
}

impl ZoneObject {
    /// A Zone without anything special.
    pub fn plain(name: &str) -> Self {
        Self {
            namespace: "one".to_owned(),
            name: name.to_owned(),
            kind: "Native".to_owned(),
            nameservers: vec!["ns1.example.org".to_owned()],
            soa_edit_api: "DEFAULT".to_owned(),
            refuse: false,
            retain: false,
        }
    }

    /// The spec of the object.
    pub fn spec(&self) -> Value {
        let mut spec = json!({
            "kind": self.kind,
            "nameservers": self.nameservers,
            "soa_edit_api": self.soa_edit_api,
            "adoptionPolicy": if self.refuse { "Refuse" } else { "Adopt" },
            "deletionPolicy": if self.retain { "Retain" } else { "Delete" },
        });
        if self.kind == "Slave" {
            spec["masters"] = json!(["192.0.2.53"]);
        }
        spec
    }
}

/// An RRset or ClusterRRset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordObject {
    /// Namespace; empty for a ClusterRRset.
    pub namespace: String,
    /// Name of the object.
    pub object: String,
    /// The zone object it refers to.
    pub zone: String,
    /// Whether that is a ClusterZone.
    pub cluster_zone: bool,
    /// `spec.name`.
    pub name: String,
    /// `spec.type`.
    pub rtype: String,
    /// `spec.ttl`.
    pub ttl: u32,
    /// `spec.records`.
    pub records: Vec<String>,
    /// `spec.deletionPolicy` is Retain.
    pub retain: bool,
}

impl RecordObject {
    /// The spec of the object.
    pub fn spec(&self) -> Value {
        json!({
            "type": self.rtype,
            "name": self.name,
            "ttl": self.ttl,
            "records": self.records,
            "zoneRef": { "name": self.zone, "kind": if self.cluster_zone { "ClusterZone" } else { "Zone" } },
            "deletionPolicy": if self.retain { "Retain" } else { "Delete" },
        })
    }
}

/// A DNSEndpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointObject {
    /// Namespace.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Its endpoints, no two of one name and type.
    pub endpoints: Vec<Endpoint>,
}

/// An endpoint of a DNSEndpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// The zone that its name is in.
    pub zone: String,
    /// Its name, relative to the zone.
    pub name: String,
    /// `recordType`.
    pub rtype: String,
    /// `recordTTL`.
    pub ttl: u32,
    /// Its only target, as external-dns takes it: without quotes or a trailing dot.
    pub target: String,
}

impl EndpointObject {
    /// The spec of the object.
    pub fn spec(&self) -> Value {
        let endpoint = |endpoint: &Endpoint| {
            let name = match endpoint.name.as_str() {
                "@" => endpoint.zone.clone(),
                name => format!("{name}.{}", endpoint.zone),
            };
            json!({
                "dnsName": name, "recordType": endpoint.rtype, "recordTTL": endpoint.ttl, "targets": [endpoint.target],
            })
        };
        json!({ "endpoints": self.endpoints.iter().map(endpoint).collect::<Vec<_>>() })
    }

    /// The record sets that it asks for.
    pub fn records(&self) -> Vec<RecordObject> {
        let record = |endpoint: &Endpoint| RecordObject {
            namespace: self.namespace.clone(),
            object: self.name.clone(),
            zone: endpoint.zone.clone(),
            cluster_zone: false,
            name: endpoint.name.clone(),
            rtype: endpoint.rtype.clone(),
            ttl: endpoint.ttl,
            records: vec![match endpoint.rtype.as_str() {
                "TXT" => format!("\"{}\"", endpoint.target),
                "CNAME" => format!("{}.", endpoint.target),
                _ => endpoint.target.clone(),
            }],
            retain: false,
        };
        self.endpoints.iter().map(record).collect()
    }
}

/// The names of a history: few, so that they collide.
struct Stage {
    zones: Vec<String>,
    objects: usize,
    names: Vec<String>,
    types: Vec<&'static str>,
    /// Chances in percent.
    cluster: usize,
    refuse: usize,
    retain: usize,
    hand: usize,
    bulk: usize,
    edits: usize,
    refused: usize,
    endpoints: usize,
}

impl Stage {
    fn draw(dice: &mut Dice) -> Self {
        let some = |dice: &mut Dice, from: &[&str], most: usize| {
            let count = 1 + dice.below(most);
            (0..count).map(|_| dice.pick(from).to_owned()).collect::<Vec<_>>()
        };
        Self {
            zones: some(dice, &ZONES, 2),
            objects: dice.pick(&[1, 2, 3, 5]),
            names: some(dice, &["www", "api", "@", "*", "x.www"], 3),
            types: match dice.below(4) {
                0 => vec!["A"],
                1 => vec!["A", "CNAME"],
                2 => vec!["A", "TXT", "AAAA"],
                _ => vec!["A", "CNAME", "TXT", "AAAA", "NS"],
            },
            cluster: dice.pick(&[0, 0, 15, 40]),
            refuse: dice.pick(&[0, 0, 30, 90]),
            retain: dice.pick(&[0, 0, 15, 60]),
            hand: dice.pick(&[0, 3, 12]),
            bulk: dice.pick(&[0, 0, 0, 25]),
            edits: dice.pick(&[3, 10, 25]),
            refused: dice.pick(&[0, 5, 30]),
            endpoints: dice.pick(&[0, 0, 30]),
        }
    }

    fn namespace(&self, dice: &mut Dice) -> String {
        if dice.chance(self.cluster) {
            return dice.pick(&["", "two"]).to_owned();
        }
        "one".to_owned()
    }

    fn zone(&self, dice: &mut Dice) -> ZoneObject {
        let edits = if dice.chance(12) { dice.pick(&["INCREASE", "EPOCH", "DEFAULT"]) } else { "DEFAULT" };
        ZoneObject {
            namespace: self.namespace(dice),
            name: dice.pick(&self.zones),
            kind: if dice.chance(6) { "Master".to_owned() } else { "Native".to_owned() },
            nameservers: dice
                .pick(&[vec!["ns1.example.org"], vec!["ns1.example.org"], vec!["ns2.example.org"], vec![]])
                .into_iter()
                .map(str::to_owned)
                .collect(),
            soa_edit_api: edits.to_owned(),
            refuse: dice.chance(self.refuse),
            retain: dice.chance(self.retain),
        }
    }

    fn record(&self, dice: &mut Dice) -> RecordObject {
        let namespace = self.namespace(dice);
        let rtype = dice.pick(&self.types);
        let number = 1 + dice.below(3);
        let record = match rtype {
            "A" if dice.chance(self.refused) => REFUSED.to_owned(),
            "A" => format!("192.0.2.{number}"),
            "AAAA" => format!("2001:db8::{number}"),
            "TXT" => format!("\"text {number}\""),
            _ => format!("target{number}.example.org."),
        };
        RecordObject {
            cluster_zone: namespace.is_empty() || dice.chance(self.cluster),
            namespace,
            object: format!("r{}", dice.below(self.objects)),
            zone: dice.pick(&self.zones),
            name: dice.pick(&self.names),
            rtype: rtype.to_owned(),
            ttl: dice.pick(&[60, 300]),
            records: vec![record],
            retain: dice.chance(self.retain),
        }
    }

    fn endpoint(&self, dice: &mut Dice) -> Endpoint {
        let rtype = dice.pick(&["A", "A", "AAAA", "TXT", "CNAME"]);
        let number = 1 + dice.below(3);
        Endpoint {
            zone: dice.pick(&self.zones),
            name: dice.pick(&self.names),
            rtype: rtype.to_owned(),
            ttl: dice.pick(&[60, 300]),
            target: match rtype {
                "A" => format!("192.0.2.{number}"),
                "AAAA" => format!("2001:db8::{number}"),
                "TXT" => format!("text {number}"),
                _ => format!("target{number}.example.org"),
            },
        }
    }

    /// What a user does with a DNSEndpoint. One with many names that is deleted meets the guard of deletions.
    fn endpoints(&self, dice: &mut Dice) -> Action {
        let namespace = if dice.chance(self.cluster) { "two" } else { "one" }.to_owned();
        let name = format!("e{}", dice.below(self.objects));
        if dice.chance(30) {
            return Action::DeleteEndpoints { namespace, name };
        }
        let mut endpoints: Vec<Endpoint> = (0..=dice.below(3)).map(|_| self.endpoint(dice)).collect();
        if dice.chance(15) {
            let first = Endpoint { rtype: "A".to_owned(), target: "192.0.2.8".to_owned(), ..endpoints[0].clone() };
            endpoints = (0..12).map(|number| Endpoint { name: format!("many-{number}"), ..first.clone() }).collect();
        }
        endpoints
            .sort_by(|one, other| (&one.zone, &one.name, &one.rtype).cmp(&(&other.zone, &other.name, &other.rtype)));
        endpoints.dedup_by(|one, other| (&one.zone, &one.name, &one.rtype) == (&other.zone, &other.name, &other.rtype));
        Action::Endpoints(EndpointObject { namespace, name, endpoints })
    }

    fn hand(&self, dice: &mut Dice) -> Action {
        let zone = dice.pick(&self.zones);
        let own = dice.pick(&["hand", "by-hand"]).to_owned();
        let name = if dice.chance(60) { own } else { dice.pick(&self.names) };
        let rtype = dice.pick(&["A", "AAAA", "CNAME", "TXT"]).to_owned();
        let number = 1 + dice.below(2);
        let record = match rtype.as_str() {
            "A" => format!("198.51.100.{number}"),
            "AAAA" => format!("2001:db8:ffff::{number}"),
            "TXT" => format!("\"by hand {number}\""),
            _ => format!("by-hand{number}.example.org."),
        };
        match dice.below(8) {
            0..=3 => Action::HandSet { zone, name, rtype, record },
            4 | 5 => Action::HandDelete { zone, name, rtype },
            6 => Action::HandZone { zone },
            _ => Action::Wipe,
        }
    }

    /// Usually one action; at the start, a zone and some records.
    fn act(&self, dice: &mut Dice, first: bool) -> Vec<Action> {
        if first {
            if dice.chance(10) {
                return vec![Action::HandZone { zone: dice.pick(&self.zones) }];
            }
            let mut zone = self.zone(dice);
            "one".clone_into(&mut zone.namespace);
            let mut actions = vec![Action::Zone(zone)];
            for _ in 0..dice.below(4) {
                actions.push(Action::Record(self.record(dice)));
            }
            return actions;
        }
        if dice.chance(self.hand) {
            return vec![self.hand(dice)];
        }
        if dice.chance(self.bulk) {
            let zone = dice.pick(&self.zones);
            let bulk = Action::Bulk { count: 12, zone: zone.clone() };
            let with_zone = Action::DeleteZone { namespace: "one".to_owned(), name: zone.clone() };
            let after = dice.pick(&[12, 25, 60, 300, 2_000]);
            return dice.pick(&[
                vec![bulk.clone()],
                vec![bulk],
                vec![Action::DeleteBulk],
                vec![with_zone.clone(), Action::DeleteBulk],
                vec![Action::DeleteBulk, with_zone],
                vec![Action::BulkInPassing { count: 12, zone, after }],
            ]);
        }
        if dice.chance(self.endpoints) {
            return vec![self.endpoints(dice)];
        }
        let (zone, record) = (self.zone(dice), self.record(dice));
        let (namespace, name) = (record.namespace.clone(), record.object.clone());
        let delete_zone = Action::DeleteZone { namespace: zone.namespace.clone(), name: zone.name.clone() };
        let delete_record = Action::DeleteRecord { namespace, name };
        match dice.weighted(&[30, 14, 8, self.edits, 7, 1]) {
            0 => vec![Action::Record(record)],
            1 => vec![delete_record],
            2 => vec![Action::Recreate(record)],
            3 => vec![Action::Zone(zone)],
            4 => vec![delete_zone],
            _ => vec![Action::RemoveCrd {
                plural: dice.pick(&DEFINITIONS[..if self.endpoints > 0 { 3 } else { 2 }]).to_owned(),
                away: dice.pick(&[100, 20_000, 100_000]),
            }],
        }
    }
}

/// The history of a seed.
pub fn draw(seed: u64) -> History<Action> {
    let mut dice = Dice::new(seed);
    let stage = Stage::draw(&mut dice);
    let (endpoints, zone) = (stage.endpoints > 0, stage.zones[0].clone());
    let history = history::draw(seed, &mut dice, move |dice, first| stage.act(dice, first));
    let history = history.then(scene::draw(seed, &mut dice, &zone, endpoints));
    if endpoints { history.after(Action::PublishEndpoints) } else { history }
}
