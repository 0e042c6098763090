//! The actions of users of `portal`, and how a history of it is drawn.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    dice::Dice,
    history::{self, History},
};

/// The addresses that names have.
const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

/// An action of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// The configuration of the operator; read before the start.
    Setup {
        /// `PORTAL_DISCOVER`.
        discover: bool,
    },
    /// Creates or changes a DNS object.
    Dns(DnsObject),
    /// Deletes a DNS object.
    DeleteDns {
        /// Its name.
        name: String,
    },
    /// Deletes a DNS object and creates this one.
    Recreate(DnsObject),
    /// Creates or changes a Portal.
    Portal(PortalObject),
    /// Deletes a Portal.
    DeletePortal {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Creates or changes an Ingress.
    Ingress(IngressObject),
    /// Deletes an Ingress.
    DeleteIngress {
        /// Its name.
        name: String,
    },
    /// Sets what the name servers have for a name and type.
    Answer {
        /// The name.
        name: String,
        /// The type.
        rtype: String,
        /// The values; none where there is nothing.
        values: Vec<String>,
    },
    /// Deletes a Component that the operator created.
    DeleteComponent {
        /// Which of them.
        index: usize,
    },
    /// Deletes a Component that the operator created, and creates a foreign one of the same name.
    ReplaceComponent {
        /// Which of them.
        index: usize,
    },
}

/// A DNS object of namespace `one`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DnsObject {
    /// Its name.
    pub name: String,
    /// `spec.portalRef`.
    pub portal: String,
    /// The entries of its only group, no two of one name and type.
    pub entries: Vec<EntryObject>,
    /// The title of the component that its annotations ask for.
    pub component: Option<String>,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryObject {
    /// `fqdn`.
    pub fqdn: String,
    /// `recordType`.
    pub rtype: Option<String>,
    /// `targets`.
    pub targets: Vec<String>,
    /// `match`, where it is not Exact.
    pub how: Option<String>,
}

/// A Portal of namespace `one`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortalObject {
    /// Its name.
    pub name: String,
    /// `spec.features.dns`.
    pub dns: bool,
    /// `spec.features.statusPage`.
    pub status_page: bool,
}

/// An Ingress of namespace `one`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressObject {
    /// Its name.
    pub name: String,
    /// The hosts of its rules.
    pub hosts: Vec<String>,
    /// The portal that its annotation names.
    pub portal: Option<String>,
    /// The title of the component that its annotations ask for.
    pub component: Option<String>,
}

fn annotations(component: Option<&String>, portal: Option<&String>) -> Value {
    let mut annotations = serde_json::Map::new();
    annotations.extend(component.map(|title| ("sreportal.io/component".to_owned(), json!(title))));
    annotations.extend(portal.map(|portal| ("sreportal.io/portal".to_owned(), json!(portal))));
    Value::Object(annotations)
}

impl DnsObject {
    /// The object to apply.
    pub fn object(&self) -> Value {
        let entry = |entry: &EntryObject| {
            let mut object = json!({ "fqdn": entry.fqdn, "targets": entry.targets });
            if let Some(rtype) = &entry.rtype {
                object["recordType"] = json!(rtype);
            }
            if let Some(how) = &entry.how {
                object["match"] = json!(how);
            }
            object
        };
        let entries: Vec<Value> = self.entries.iter().map(entry).collect();
        json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "DNS",
            "metadata": { "name": self.name, "annotations": annotations(self.component.as_ref(), None) },
            "spec": { "portalRef": self.portal, "groups": [{ "name": "apps", "entries": entries }] },
        })
    }
}

impl PortalObject {
    /// The object to apply.
    pub fn object(&self) -> Value {
        json!({
            "apiVersion": "sreportal.io/v1alpha1", "kind": "Portal", "metadata": { "name": self.name },
            "spec": { "title": self.name, "features": { "dns": self.dns, "statusPage": self.status_page } },
        })
    }
}

impl IngressObject {
    /// The object to apply.
    pub fn object(&self) -> Value {
        let rules: Vec<Value> = self.hosts.iter().map(|host| json!({ "host": host })).collect();
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {
                "name": self.name, "annotations": annotations(self.component.as_ref(), self.portal.as_ref()),
            },
            "spec": { "defaultBackend": { "service": { "name": "web", "port": { "number": 80 } } }, "rules": rules },
        })
    }
}

/// The names of a history: few, so that they meet.
struct Stage {
    discover: bool,
    objects: usize,
    names: usize,
    /// Chances in percent.
    answers: usize,
    portals: usize,
    components: usize,
}

impl Stage {
    fn draw(dice: &mut Dice) -> Self {
        Self {
            discover: dice.chance(30),
            objects: dice.pick(&[1, 2, 3]),
            names: dice.pick(&[1, 2, 4]),
            answers: dice.pick(&[10, 25, 50]),
            portals: dice.pick(&[5, 20]),
            components: dice.pick(&[0, 30, 60]),
        }
    }

    fn host(&self, dice: &mut Dice) -> String {
        format!("n{}.example.test", dice.below(self.names))
    }

    fn entry(&self, dice: &mut Dice) -> EntryObject {
        let texts = |dice: &mut Dice, from: &[&str]| {
            let mut texts: Vec<String> = (0..=dice.below(2)).map(|_| dice.pick(from).to_owned()).collect();
            texts.sort();
            texts.dedup();
            texts
        };
        let (rtype, targets) = match dice.below(8) {
            0 => (None, Vec::new()),
            1 => (Some("A"), Vec::new()),
            2 => (None, texts(dice, &ADDRESSES)),
            3 | 4 => (Some("A"), texts(dice, &ADDRESSES)),
            5 => (Some("CNAME"), vec![self.host(dice)]),
            6 => (Some("TXT"), texts(dice, &["one", "two"])),
            _ => (Some("A"), vec!["2001:db8::1".to_owned()]),
        };
        let how = (!targets.is_empty() && dice.chance(25)).then(|| dice.pick(&["Subset", "Any"]).to_owned());
        EntryObject { fqdn: self.host(dice), rtype: rtype.map(str::to_owned), targets, how }
    }

    fn component(&self, dice: &mut Dice, object: &str) -> Option<String> {
        dice.chance(self.components).then(|| format!("{object} {}", dice.pick(&["web", "shop"])))
    }

    fn dns(&self, dice: &mut Dice) -> DnsObject {
        let name = format!("d{}", dice.below(self.objects));
        let mut entries: Vec<EntryObject> = (0..=dice.below(4)).map(|_| self.entry(dice)).collect();
        entries.sort_by(|one, other| (&one.fqdn, &one.rtype).cmp(&(&other.fqdn, &other.rtype)));
        entries.dedup_by(|one, other| (&one.fqdn, &one.rtype) == (&other.fqdn, &other.rtype));
        let portal = dice.pick(&["team", "team", "team", "other"]).to_owned();
        DnsObject { component: self.component(dice, &name), name, portal, entries }
    }

    fn portal(&self, dice: &mut Dice) -> PortalObject {
        let name = dice.pick(&["team", "team", "other"]).to_owned();
        PortalObject { name, dns: !dice.chance(self.portals), status_page: !dice.chance(self.portals) }
    }

    fn ingress(&self, dice: &mut Dice) -> IngressObject {
        let name = format!("i{}", dice.below(self.objects));
        let mut hosts: Vec<String> = (0..=dice.below(2)).map(|_| self.host(dice)).collect();
        hosts.sort();
        hosts.dedup();
        let portal = dice.chance(40).then(|| dice.pick(&["team", "other"]).to_owned());
        IngressObject { component: self.component(dice, &name), name, hosts, portal }
    }

    fn answer(&self, dice: &mut Dice) -> Action {
        let name = self.host(dice);
        let rtype = dice.pick(&["A", "A", "A", "TXT", "CNAME"]).to_owned();
        let from = if rtype == "A" { ADDRESSES } else { ["one", "two"] };
        let values = match dice.below(4) {
            0 => Vec::new(),
            _ if rtype == "CNAME" => vec![self.host(dice)],
            1 => from.iter().map(|value| (*value).to_owned()).collect(),
            _ => vec![dice.pick(&from).to_owned()],
        };
        Action::Answer { name, rtype, values }
    }

    fn act(&self, dice: &mut Dice, first: bool) -> Vec<Action> {
        if first {
            let mut actions = vec![Action::Portal(PortalObject { dns: true, status_page: true, ..self.portal(dice) })];
            actions.extend((0..dice.below(4)).map(|_| self.answer(dice)));
            actions.extend((0..=dice.below(2)).map(|_| Action::Dns(self.dns(dice))));
            return actions;
        }
        if dice.chance(self.answers) {
            return vec![self.answer(dice)];
        }
        if dice.chance(self.portals) {
            let portal = self.portal(dice);
            return vec![match dice.below(4) {
                0 => Action::DeletePortal { namespace: "one".to_owned(), name: portal.name },
                1 => Action::DeletePortal { namespace: "signpost".to_owned(), name: "main".to_owned() },
                _ => Action::Portal(portal),
            }];
        }
        if dice.chance(self.components / 4) {
            let index = dice.below(2);
            return vec![dice.pick(&[Action::DeleteComponent { index }, Action::ReplaceComponent { index }])];
        }
        if self.discover && dice.chance(40) {
            let ingress = self.ingress(dice);
            let delete = Action::DeleteIngress { name: ingress.name.clone() };
            return vec![if dice.chance(30) { delete } else { Action::Ingress(ingress) }];
        }
        let dns = self.dns(dice);
        vec![match dice.weighted(&[6, 3, 2]) {
            0 => Action::Dns(dns),
            1 => Action::DeleteDns { name: dns.name },
            _ => Action::Recreate(dns),
        }]
    }
}

/// The history of a seed.
pub fn draw(seed: u64) -> History<Action> {
    let mut dice = Dice::new(seed ^ 0x0090_57a1);
    let stage = Stage::draw(&mut dice);
    let setup = Action::Setup { discover: stage.discover };
    history::draw(seed, &mut dice, move |dice, first| stage.act(dice, first)).after(setup)
}
