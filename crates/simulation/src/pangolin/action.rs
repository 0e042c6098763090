//! What users of `pangolin` do, and how a history of it is drawn.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use signpost_testkit::pangolin::Version;

use crate::{
    dice::Dice,
    history::{self, History},
    ingresses::IngressAction,
};

/// An action of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// What the Pangolin is and how the operator is configured; read before the start.
    Setup(Setup),
    /// Creates or deletes a Service.
    Service {
        /// Its name.
        name: String,
        /// Whether it exists from now on.
        exists: bool,
    },
    /// A user creates a resource at the dashboard.
    Foreign {
        /// Its host.
        host: String,
    },
    /// A user deletes such a resource.
    ForeignRemove {
        /// Which of them.
        index: usize,
    },
    /// A user changes a resource of the operator at the dashboard.
    Edit {
        /// Which of them.
        index: usize,
        /// What is changed.
        how: Edit,
    },
    /// Pangolin is down.
    Outage {
        /// For how many minutes.
        minutes: u64,
    },
    /// Acts on Ingresses.
    #[serde(untagged)]
    Objects(IngressAction<IngressObject>),
}

/// What a user changes at the dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Edit {
    /// The port of a target.
    Port,
    /// The resource is switched off.
    Disable,
    /// Single sign-on is switched on.
    Protect,
    /// A target is deleted.
    DropTarget,
    /// The resource is deleted.
    Delete,
    /// The path of a target, which no list shows.
    Path,
}

/// What the Pangolin is and how the operator is configured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Setup {
    /// The version, `1.22` for example.
    pub version: String,
    /// After so many minutes a comparison reads what no list shows.
    pub verify: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self { version: "1.22".to_owned(), verify: 60 }
    }
}

impl Setup {
    /// The version of the stand-in.
    pub fn version(&self) -> Version {
        match self.version.as_str() {
            "1.11" => Version::V1_11,
            "1.16" => Version::V1_16,
            "1.20" => Version::V1_20,
            "1.21" => Version::V1_21,
            _ => Version::V1_22,
        }
    }
}

/// An Ingress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressObject {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: String,
    /// `pangolin.ingress.k8s.io/enabled`.
    pub enabled: Option<String>,
    /// `pangolin.ingress.k8s.io/sso`; may be no value at all.
    pub sso: Option<String>,
    /// Its rules.
    pub rules: Vec<RuleObject>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleObject {
    /// Its host.
    pub host: String,
    /// Its paths.
    pub paths: Vec<PathObject>,
}

/// One path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathObject {
    /// The path.
    pub path: String,
    /// Whether it is an exact one.
    pub exact: bool,
    /// The Service.
    pub service: String,
    /// Its port.
    pub port: u16,
}

impl IngressObject {
    /// The object to apply.
    pub fn object(&self) -> Value {
        let mut annotations = serde_json::Map::new();
        for (name, value) in [("enabled", &self.enabled), ("sso", &self.sso)] {
            if let Some(value) = value {
                annotations.insert(format!("pangolin.ingress.k8s.io/{name}"), json!(value));
            }
        }
        let path = |path: &PathObject| {
            let kind = if path.exact { "Exact" } else { "Prefix" };
            let backend = json!({ "service": { "name": path.service, "port": { "number": path.port } } });
            json!({ "path": path.path, "pathType": kind, "backend": backend })
        };
        let rule = |rule: &RuleObject| {
            let paths: Vec<Value> = rule.paths.iter().map(path).collect();
            json!({ "host": rule.host, "http": { "paths": paths } })
        };
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": { "name": self.name, "namespace": "one", "annotations": annotations },
            "spec": { "ingressClassName": self.class, "rules": self.rules.iter().map(rule).collect::<Vec<_>>() },
        })
    }
}

struct Stage {
    setup: Setup,
    ingresses: usize,
    hosts: usize,
    hand: usize,
    bulk: usize,
    special: usize,
    outages: bool,
}

impl Stage {
    fn draw(dice: &mut Dice) -> Self {
        Self {
            setup: Setup {
                version: dice.pick(&["1.22", "1.22", "1.22", "1.21", "1.20", "1.16", "1.11"]).to_owned(),
                verify: dice.pick(&[5, 60]),
            },
            ingresses: dice.pick(&[1, 2, 4]),
            hosts: dice.pick(&[1, 2, 4]),
            hand: dice.pick(&[0, 5, 20]),
            bulk: dice.pick(&[0, 0, 10]),
            special: dice.pick(&[0, 10, 30]),
            outages: dice.chance(15),
        }
    }

    fn host(&self, dice: &mut Dice) -> String {
        let number = dice.below(self.hosts);
        format!("h{number}.{}", if number.is_multiple_of(2) { "ns.test" } else { "wild.test" })
    }

    fn paths(dice: &mut Dice) -> Vec<PathObject> {
        let mut paths: Vec<PathObject> = Vec::new();
        for _ in 0..dice.between(1, 3) {
            let (service, port) = dice.pick(&[("app", 80), ("app", 8080), ("api", 9000)]);
            let path = dice.pick(&["/", "/", "/api", "/api/v1"]).to_owned();
            let exact = path != "/" && dice.chance(30);
            if !paths.iter().any(|other| (&other.path, other.exact) == (&path, exact)) {
                paths.push(PathObject { path, exact, service: service.to_owned(), port });
            }
        }
        paths
    }

    fn ingress(&self, dice: &mut Dice) -> IngressObject {
        let mut rules: Vec<RuleObject> = Vec::new();
        for _ in 0..dice.between(1, 2) {
            let host = self.host(dice);
            if !rules.iter().any(|rule| rule.host == host) {
                rules.push(RuleObject { host, paths: Self::paths(dice) });
            }
        }
        let special = |dice: &mut Dice| dice.chance(self.special);
        IngressObject {
            name: format!("app{}", dice.below(self.ingresses)),
            class: if dice.chance(10) { "nginx" } else { "pangolin" }.to_owned(),
            enabled: special(dice).then(|| dice.pick(&["false", "true"]).to_owned()),
            sso: special(dice).then(|| dice.pick(&["true", "false", "rubbish"]).to_owned()),
            rules,
        }
    }

    fn by_hand(&self, dice: &mut Dice) -> Action {
        let host = if dice.chance(60) { self.host(dice) } else { "own.ns.test".to_owned() };
        let mut edits = vec![Edit::Port, Edit::Disable, Edit::Protect, Edit::DropTarget, Edit::Delete];
        if self.setup.verify == 5 {
            edits.push(Edit::Path);
        }
        match dice.weighted(&[4, 3, 5]) {
            0 => Action::Foreign { host },
            1 => Action::ForeignRemove { index: dice.below(3) },
            _ => Action::Edit { index: dice.below(4), how: dice.pick(&edits) },
        }
    }

    fn act(&self, dice: &mut Dice, first: bool) -> Vec<Action> {
        if first {
            return (0..dice.below(4)).map(|_| Action::Objects(IngressAction::Ingress(self.ingress(dice)))).collect();
        }
        if self.outages && dice.chance(10) {
            return vec![Action::Outage { minutes: dice.pick(&[1, 5, 60]) }];
        }
        if dice.chance(self.hand) {
            return vec![self.by_hand(dice)];
        }
        if dice.chance(self.bulk) {
            let bulk = [IngressAction::Bulk { count: 12 }, IngressAction::DeleteBulk];
            return vec![Action::Objects(dice.pick(&bulk))];
        }
        if dice.chance(self.special / 3) {
            let name = dice.pick(&["app", "api"]).to_owned();
            return vec![Action::Service { name, exists: dice.chance(70) }];
        }
        let ingress = self.ingress(dice);
        vec![Action::Objects(match dice.weighted(&[6, 4, 2]) {
            0 => IngressAction::Ingress(ingress),
            1 => IngressAction::Delete { name: ingress.name },
            _ => IngressAction::Recreate(ingress),
        })]
    }
}

/// The history of a seed.
pub fn draw(seed: u64) -> History<Action> {
    let mut dice = Dice::new(seed ^ 0x9a_9901_1100);
    let stage = Stage::draw(&mut dice);
    let setup = Action::Setup(stage.setup.clone());
    history::draw(seed, &mut dice, move |dice, first| stage.act(dice, first)).after(setup)
}
