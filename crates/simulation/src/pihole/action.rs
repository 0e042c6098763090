//! The actions of users of `pihole`, and how a history of it is drawn.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::scene;
use crate::{
    dice::Dice,
    history::{self, History},
    ingresses::IngressAction,
};

/// The address of hosts whose Ingress names none.
pub const DEFAULT_TARGET: &str = "192.168.1.10";

/// An action of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// The capabilities of the Pi-holes and the configuration of the operator; read before the start.
    Setup(Setup),
    /// Adds a line to a Pi-hole by hand.
    HandAdd {
        /// Which Pi-hole.
        pihole: usize,
        /// The line.
        line: String,
    },
    /// Removes a line that was added by hand.
    HandRemove {
        /// Which Pi-hole.
        pihole: usize,
        /// Which of those lines.
        index: usize,
    },
    /// Removes a line of the operator by hand.
    HandSteal {
        /// Which Pi-hole.
        pihole: usize,
        /// Which of those lines.
        index: usize,
    },
    /// `misc.readOnly` is switched.
    ReadOnly {
        /// Which Pi-hole.
        pihole: usize,
        /// On or off.
        on: bool,
    },
    /// The list of aliases is set by an environment variable, or no longer.
    LockAliases {
        /// Which Pi-hole.
        pihole: usize,
        /// Set or not.
        on: bool,
    },
    /// A Pi-hole restarts, and forgets its sessions.
    Restart {
        /// Which Pi-hole.
        pihole: usize,
    },
    /// A Pi-hole loses all its lines.
    Wipe {
        /// Which Pi-hole.
        pihole: usize,
    },
    /// Acts on Ingresses.
    #[serde(untagged)]
    Objects(IngressAction<IngressObject>),
}

/// The capabilities of the Pi-holes and the configuration of the operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Setup {
    /// How many Pi-holes.
    pub piholes: usize,
    /// Their dialect.
    pub speaks: Speaks,
    /// `USE_FINALIZER`.
    pub finalizer: bool,
    /// Whether the operator's own HTTP client talks to them; else they are behind the trait `Pihole`.
    #[serde(default)]
    pub http: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self { piholes: 1, speaks: Speaks::V6, finalizer: false, http: false }
    }
}

/// The dialect of a Pi-hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Speaks {
    /// Pi-hole v6.
    V6,
    /// Pi-hole v6 before comments.
    V6WithoutComments,
    /// The token API.
    Token,
}

/// An Ingress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressObject {
    /// Its name.
    pub name: String,
    /// Whether it asks for records.
    pub register: bool,
    /// The hosts of its rules.
    pub hosts: Vec<String>,
    /// `pihole.io/target-ip`; may be no address at all.
    pub target: Option<String>,
    /// `pihole.io/target-ipv6`.
    pub target_ipv6: Option<String>,
    /// `pihole.io/target-cname`.
    pub target_cname: Option<String>,
    /// Whether `pihole.io/hosts` lists a further host, which no Pi-hole takes.
    #[serde(default)]
    pub bad_host: bool,
}

impl IngressObject {
    /// The object to apply.
    pub fn object(&self) -> Value {
        let mut annotations = serde_json::Map::new();
        if self.register {
            annotations.insert("pihole.io/register".to_owned(), json!("true"));
        }
        let targets = [
            ("pihole.io/target-ip", &self.target),
            ("pihole.io/target-ipv6", &self.target_ipv6),
            ("pihole.io/target-cname", &self.target_cname),
        ];
        for (name, value) in targets {
            if let Some(value) = value {
                annotations.insert(name.to_owned(), json!(value));
            }
        }
        if self.bad_host {
            annotations.insert("pihole.io/hosts".to_owned(), json!(format!("{},bad.lan-", self.hosts.join(","))));
        }
        let rules: Vec<Value> = self.hosts.iter().map(|host| json!({ "host": host })).collect();
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": { "name": self.name, "namespace": "one", "annotations": annotations },
            "spec": {
                "defaultBackend": { "service": { "name": "web", "port": { "number": 80 } } },
                "rules": rules,
            },
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
}

impl Stage {
    fn draw(seed: u64, dice: &mut Dice) -> Self {
        let mut setup = Setup {
            piholes: dice.pick(&[1, 1, 1, 2]),
            speaks: dice.pick(&[Speaks::V6, Speaks::V6, Speaks::V6, Speaks::V6WithoutComments, Speaks::Token]),
            finalizer: dice.chance(30),
            http: false,
        };
        setup.http = setup.speaks == Speaks::V6 && seed.is_multiple_of(2);
        Self {
            setup,
            ingresses: dice.pick(&[1, 2, 4]),
            hosts: dice.pick(&[1, 2, 4]),
            hand: dice.pick(&[0, 5, 20]),
            bulk: dice.pick(&[0, 0, 15]),
            special: dice.pick(&[0, 10, 30]),
        }
    }

    fn host(&self, dice: &mut Dice) -> String {
        format!("h{}.lan", dice.below(self.hosts))
    }

    fn ingress(&self, dice: &mut Dice) -> IngressObject {
        let count = 1 + dice.below(3);
        let mut hosts: Vec<String> = (0..count).map(|_| self.host(dice)).collect();
        hosts.sort();
        hosts.dedup();
        let marks = self.setup.speaks == Speaks::V6;
        IngressObject {
            name: format!("app{}", dice.below(self.ingresses)),
            register: !dice.chance(10),
            hosts,
            target: if dice.chance(self.special) {
                Some(dice.pick(&["192.168.1.20", "192.168.1.30", "rubbish"]).to_owned())
            } else {
                None
            },
            target_ipv6: (marks && dice.chance(self.special / 2)).then(|| "fd00::20".to_owned()),
            target_cname: (marks && dice.chance(self.special / 3)).then(|| format!("target{}.lan", dice.below(2))),
            bad_host: self.setup.http && dice.chance(self.special / 3),
        }
    }

    fn act(&self, dice: &mut Dice, first: bool) -> Vec<Action> {
        if first {
            return (0..dice.below(4)).map(|_| Action::Objects(IngressAction::Ingress(self.ingress(dice)))).collect();
        }
        let pihole = dice.below(self.setup.piholes);
        if dice.chance(self.hand) {
            let line = dice.pick(&["10.9.0.1 {}", "10.9.0.2\t{}  # mine", "fd00::9 {}", "10.9.0.3 nas.lan {}"]);
            let host = if dice.chance(50) { self.host(dice) } else { "own.lan".to_owned() };
            return vec![match dice.weighted(&[5, 4, 3, 1]) {
                0 => Action::HandAdd { pihole, line: line.replace("{}", &host) },
                1 => Action::HandRemove { pihole, index: dice.below(4) },
                2 => Action::HandSteal { pihole, index: dice.below(4) },
                _ => Action::Wipe { pihole },
            }];
        }
        if self.setup.http && dice.chance(10) {
            return vec![dice.pick(&[
                Action::ReadOnly { pihole, on: true },
                Action::ReadOnly { pihole, on: false },
                Action::LockAliases { pihole, on: true },
                Action::LockAliases { pihole, on: false },
                Action::Restart { pihole },
            ])];
        }
        if dice.chance(self.bulk) {
            let bulk = [IngressAction::Bulk { count: 15 }, IngressAction::DeleteBulk];
            return vec![Action::Objects(dice.pick(&bulk))];
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
    let mut dice = Dice::new(seed ^ 0x5e_ed0f_0071);
    let stage = Stage::draw(seed, &mut dice);
    let (setup, http) = (Action::Setup(stage.setup.clone()), stage.setup.http);
    let history = history::draw(seed, &mut dice, move |dice, first| stage.act(dice, first));
    history.then(scene::draw(seed, &mut dice, http)).after(setup)
}
