//! The demo: a DNS object whose names are looked up with the demo's own name server, and the inventory of every system beside it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use signpost_engine::demo::{BoxError, Demo, Show, Stage, State};
use signpost_inventory::{Inventory, Snapshot, Source, Stage as Reached, SyncStatus, View};
use signpost_provider_resolver::{Options, Resolvers, Upstream};

use crate::{Pace, install_with};

/// The label of an entry with the status that its name is expected to have, where that is not `sync`.
const EXPECT: &str = "demo.signpost/expect";

pub(crate) const DEMO: Demo = Demo {
    examples: &[("portal.yaml", include_str!("../../../../examples/demo/portal.yaml"))],
    crds: Vec::new,
    start: |stage| Box::pin(async { Ok(start(stage)) }),
};

/// The pause between two looks at the inventory, and how many there are at most for names of other systems.
const PAUSE: Duration = Duration::from_millis(20);
const LOOKS: usize = 100;

/// The statuses of the names of the DNS objects, by name and type.
type Results = BTreeMap<(String, String), String>;

struct PortalDemo {
    inventory: Arc<Inventory>,
    server: String,
    results: Mutex<Results>,
}

fn start(stage: &mut dyn Stage) -> Box<dyn Show> {
    let server = stage.names().address();
    let options = Options { resolvers: vec![Upstream::Server(server)], ..Options::default() };
    let inventory = Arc::new(Inventory::new());
    let pace = Pace {
        // The names are published while this starts; nobody waits five seconds for the next lookup in a demo.
        again: Duration::from_millis(200),
        // The examples have a main portal.
        namespace: String::new(),
        ..Pace::default()
    };
    install_with(stage.operator(), Arc::new(Resolvers::new(&options)), &inventory, pace);
    Box::new(PortalDemo { inventory, server: server.to_string(), results: Mutex::default() })
}

impl Show for PortalDemo {
    fn about(&self) -> String {
        format!("names are looked up at {}; the inventory has those of every system", self.server)
    }

    fn check<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Option<State>> {
        Box::pin(async {
            let (state, results) = state(object)?;
            self.results.lock().unwrap_or_else(PoisonError::into_inner).extend(results);
            Some(state)
        })
    }

    fn then(&self) -> BoxFuture<'_, Result<Vec<String>, BoxError>> {
        Box::pin(async {
            let mut looks = 0;
            loop {
                let snapshot = self.inventory.snapshot();
                if self.is_shown_by(&snapshot) && (looks >= LOOKS || is_complete(&snapshot)) {
                    return Ok(lines(&snapshot));
                }
                looks += 1;
                tokio::time::sleep(PAUSE).await;
            }
        })
    }

    fn commands(&self, kubectl: &str, _served: &[signpost_engine::demo::Answer]) -> Vec<String> {
        vec![format!("{kubectl} get dns -n demo web -o yaml")]
    }
}

impl PortalDemo {
    /// Whether the inventory has what the statuses have. It follows them a moment later.
    fn is_shown_by(&self, snapshot: &Snapshot) -> bool {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let manual = || snapshot.iter().filter(|view| view.provenance().source == Source::Manual);
        results.iter().all(|((name, rtype), status)| {
            manual().any(|view| {
                let of = (view.name().undotted(), type_of(view), view.status().as_str());
                of == (name.as_str(), rtype.clone(), status.as_str())
            })
        })
    }
}

/// Whether every published or discovered name has been looked up.
fn is_complete(snapshot: &Snapshot) -> bool {
    let waits = |view: &Arc<View>| matches!(view.stage(), Reached::Published | Reached::Known);
    !snapshot.iter().any(|view| view.status() == SyncStatus::Unchecked && waits(view))
}

/// The verdicts on the names of DNS objects, and how many names there are.
fn lines(snapshot: &Snapshot) -> Vec<String> {
    let manual = snapshot.iter().filter(|view| view.provenance().source == Source::Manual);
    let mut lines = vec![String::new()];
    lines.extend(manual.map(|view| line(view)));
    let mut counts: BTreeMap<SyncStatus, usize> = BTreeMap::new();
    for view in snapshot.iter() {
        *counts.entry(view.status()).or_default() += 1;
    }
    let count = |(status, count): (&SyncStatus, &usize)| match status {
        SyncStatus::Unchecked => format!("{count} not looked up"),
        status => format!("{count} {}", status.as_str()),
    };
    let counts: Vec<String> = counts.iter().map(count).collect();
    let conflicts = snapshot.conflicts().count();
    lines.push(format!(
        "  the inventory has {} names of all systems: {}; {conflicts} conflicts",
        snapshot.len(),
        counts.join(", ")
    ));
    lines
}

fn type_of(view: &View) -> String {
    view.rtype().map(|rtype| rtype.as_str().to_owned()).unwrap_or_default()
}

fn line(view: &View) -> String {
    let rtype = type_of(view);
    let observed = view.observed().iter().collect::<Vec<_>>().join(", ");
    let origin = &view.provenance().origin;
    let result = format!("{} ({})", view.status().as_str(), view.reason().as_str());
    let name = format!("{}.", view.name().undotted());
    format!(
        "  checked  {name:<28} {rtype:<6} {result:<24} {observed:<24} {} {}/{}",
        origin.kind, origin.namespace, origin.name
    )
}

/// A DNS object has its result when every name has the status that is expected of it, a Portal when it is ready. With the statuses of the names.
fn state(object: &Value) -> Option<(State, Results)> {
    let status = &object["status"];
    let not_yet = |why: String| Some((State::NotYet(why), Results::new()));
    match object["kind"].as_str()? {
        "Portal" if status["ready"] == true => Some((State::Served(Vec::new()), Results::new())),
        "Portal" => not_yet("it is not ready".to_owned()),
        "DNS" => {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let results: Results = listed(status, "groups", "fqdns")
                .map(|name| ((text(&name["fqdn"]), text(&name["recordType"])), text(&name["syncStatus"])))
                .collect();
            for entry in listed(&object["spec"], "groups", "entries") {
                let expected = entry["labels"][EXPECT].as_str().unwrap_or(SyncStatus::Sync.as_str());
                let key = (text(&entry["fqdn"]), text(&entry["recordType"]));
                match results.get(&key).map(String::as_str) {
                    Some(seen) if seen == expected => {}
                    seen => {
                        let seen = seen.filter(|seen| !seen.is_empty()).unwrap_or("not looked up");
                        return not_yet(format!("{} is {seen}, and {expected} is expected", key.0));
                    }
                }
            }
            Some((State::Served(Vec::new()), results))
        }
        _ => None,
    }
}

/// The members of every group of an object.
fn listed<'a>(parent: &'a Value, groups: &'a str, members: &'a str) -> impl Iterator<Item = &'a Value> {
    let groups = parent[groups].as_array().into_iter().flatten();
    groups.flat_map(move |group| group[members].as_array().into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_dns_object_has_its_result_when_every_name_is_as_expected() {
        let object = |www: Value, old: &str| {
            json!({ "kind": "DNS",
            "spec": { "groups": [{ "entries": [{ "fqdn": "www.example.org", "recordType": "A" },
                { "fqdn": "old.example.org", "labels": { EXPECT: "notFound" } }] }] },
            "status": { "groups": [{ "fqdns": [
                { "fqdn": "www.example.org", "recordType": "A", "syncStatus": www }, { "fqdn": "old.example.org", "syncStatus": old }] }] } })
        };
        let of = |www: Value, old: &str| state(&object(www, old)).map(|(state, _)| state);
        assert_eq!(of(json!("sync"), "notFound"), Some(State::Served(Vec::new())));
        for (www, old) in [(Value::Null, "notFound"), (json!("notFound"), "notFound"), (json!("sync"), "sync")] {
            assert!(matches!(of(www, old), Some(State::NotYet(_))));
        }
        assert!(state(&json!({ "kind": "Ingress" })).is_none());
    }
}
