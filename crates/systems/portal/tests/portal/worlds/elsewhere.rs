//! A portal of another cluster in a drawn world: what it has, and what of that is shown here. A visit that fails keeps and marks the names of the last
//! one that did not.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use signpost_provider_portal::{RemoteError, RemoteName, RemoteNames};

use super::model::{NAMES, fqdn, state};

/// The Portal here, and where the other one is.
pub const PORTAL: &str = "east";
pub const URL: &str = "http://east.example.org/";
/// The DNS object with its names.
pub const COPY: &str = "remote-east";

const STATUSES: [&str; 5] = ["sync", "notFound", "error", "timeout", ""];

/// The names of the other portal by number, each with a target and a status; `None` while it does not answer.
pub type Names = Option<BTreeMap<u8, (u8, usize)>>;

pub fn names() -> impl Strategy<Value = Names> {
    let names = prop::collection::btree_map(0..NAMES, (0..3_u8, 0..STATUSES.len()), 0..5);
    prop::option::weighted(0.7, names)
}

#[derive(Debug, Default)]
pub struct Elsewhere {
    /// Whether the Portal here shows names; `None` without a Portal.
    portal: Option<bool>,
    /// What the other portal has, and in which state of it.
    names: Names,
    state: String,
    /// What is shown of it, and whether that is stale.
    taken: Vec<Taken>,
    stale: bool,
}

#[derive(Clone, Debug)]
struct Taken {
    name: u8,
    target: String,
    status: &'static str,
    group: String,
}

impl Taken {
    fn word(&self) -> String {
        format!("{} A {}", fqdn(self.name).undotted(), self.target)
    }
}

impl Elsewhere {
    pub fn set_portal(&mut self, portal: Option<bool>) {
        self.portal = portal;
        if portal.is_none() {
            (self.taken, self.stale) = (Vec::new(), false);
        }
    }

    pub fn set_names(&mut self, names: Names, generation: u32) {
        (self.names, self.state) = (names, state(generation));
    }

    /// The Portal as users write it.
    pub fn manifest(dns: bool) -> Value {
        json!({ "spec": { "title": "East", "remote": { "url": URL }, "features": { "dns": dns } } })
    }

    fn listed(&self) -> Option<Vec<Taken>> {
        let taken = |(name, (target, status)): (&u8, &(u8, usize))| Taken {
            name: *name,
            target: format!("192.0.2.{}", target + 1),
            status: STATUSES[*status],
            group: self.state.clone(),
        };
        Some(self.names.as_ref()?.iter().map(taken).collect())
    }

    /// What the other portal answers.
    pub fn answer(&self) -> Result<RemoteNames, RemoteError> {
        let listed = self.listed().ok_or_else(|| RemoteError::Answer("it is not there".into()))?;
        let name = |taken: Taken| RemoteName {
            name: fqdn(taken.name).undotted().to_owned(),
            groups: vec![taken.group],
            record_type: Some("A".into()),
            targets: vec![taken.target],
            sync_status: Some(taken.status.to_owned()).filter(|status| !status.is_empty()),
            ..RemoteName::default()
        };
        Ok(RemoteNames {
            portal: "main".into(),
            names: listed.into_iter().map(name).collect(),
            ..RemoteNames::default()
        })
    }

    /// All names of the copy in the state of this step.
    pub fn whole(&self) -> Option<(String, std::collections::BTreeSet<String>)> {
        Some((self.state.clone(), self.listed()?.iter().map(Taken::word).collect()))
    }

    /// A visit was due.
    pub fn settle(&mut self) {
        if self.portal.is_none() {
            return;
        }
        self.stale = self.names.is_none();
        if let Some(listed) = self.listed() {
            self.taken = listed;
        }
    }

    /// The names as the inventory has them: word, groups, portal, verdict.
    pub fn rows(&self) -> Vec<[String; 4]> {
        let row = |taken: &Taken| {
            let stale = if self.stale { " stale" } else { "" };
            let verdict = format!("{}/ []{stale}", taken.status);
            [taken.word(), taken.group.clone(), PORTAL.to_owned(), verdict]
        };
        let shown = self.taken.iter().filter(|_| self.portal == Some(true));
        shown.map(row).collect()
    }

    /// What the status of the copy lists.
    pub fn reported(&self) -> impl Iterator<Item = String> {
        self.taken.iter().map(|taken| format!("{COPY} {} {}", taken.word(), taken.status))
    }
}
