//! The demo: a Pi-hole in memory, whose records the demo's name server answers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use signpost_dns::{Fqdn, RecordType};
use signpost_engine::demo::{BoxError, Demo, Mirror, Mirrored, Names, Show, Stage, State, answered};
use signpost_provider_pihole::{Listing, MemoryPihole, OwnerId};

use crate::{Instance, MANAGED_HOSTS, Policy, install_instances};

/// The default target of the names of the example Ingresses.
const TARGET: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);

pub(crate) const DEMO: Demo = Demo {
    examples: &[("ingress.yaml", include_str!("../../../../examples/demo/ingress.yaml"))],
    crds: Vec::new,
    start: |stage| Box::pin(async { start(stage) }),
};

struct PiholeDemo(Arc<dyn Names>);

fn start(stage: &mut dyn Stage) -> Result<Box<dyn Show>, BoxError> {
    let (pihole, mirror) = (MemoryPihole::new(), Mirror::new(stage.names()));
    pihole.on_change(move |listing| mirror.names(records(listing)));
    let policy = Policy::new(OwnerId::parse("demo")?, TARGET);
    install_instances(stage.operator(), policy, vec![Instance::new("demo", Arc::new(pihole))]);
    Ok(Box::new(PiholeDemo(stage.names())))
}

/// The lines of the Pi-hole as record sets, with a Pi-hole's TTL of 0.
fn records(listing: &Listing) -> Vec<Mirrored> {
    let mut sets: BTreeMap<(Fqdn, RecordType), Vec<String>> = BTreeMap::new();
    for line in &listing.hosts {
        let parts = line.address_parts();
        let Some(ip) = parts.ip else { continue };
        let rtype = if ip.is_ipv4() { RecordType::A } else { RecordType::Aaaa };
        for name in parts.names.iter().filter_map(|name| Fqdn::parse(name).ok()) {
            sets.entry((name, rtype)).or_default().push(ip.to_string());
        }
    }
    for line in &listing.cnames {
        let parts = line.alias_parts();
        let Some(target) = parts.target.and_then(|target| Fqdn::parse(target).ok()) else { continue };
        for alias in parts.aliases.iter().filter_map(|alias| Fqdn::parse(alias).ok()) {
            sets.entry((alias, RecordType::Cname)).or_default().push(target.to_string());
        }
    }
    sets.into_iter().map(|((name, rtype), data)| Mirrored { name, rtype, ttl: 0, data }).collect()
}

impl Show for PiholeDemo {
    fn about(&self) -> String {
        "Pi-hole in memory; the name server answers for its names".to_owned()
    }

    fn check<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Option<State>> {
        Box::pin(self.state(object))
    }
}

impl PiholeDemo {
    /// An Ingress is served when the name server answers for every host in its annotation.
    async fn state(&self, object: &Value) -> Option<State> {
        if object["kind"] != "Ingress" {
            return None;
        }
        let managed = object["metadata"]["annotations"][MANAGED_HOSTS].as_str().filter(|hosts| !hosts.is_empty());
        if let Some(hosts) = managed {
            let questions: Vec<_> = hosts.split(',').map(|host| (format!("{host}."), "A".to_owned())).collect();
            return Some(answered(&*self.0, questions).await);
        }
        let rules = object["spec"]["rules"].as_array().into_iter().flatten();
        for host in rules.filter_map(|rule| rule["host"].as_str()) {
            // A name outside of every zone is refused, which does not count as an answer.
            if self.0.ask(host, "A").await.is_ok_and(|data| !data.is_empty()) {
                return Some(State::NotYet(format!("{host} is answered, but the Ingress has no managed hosts")));
            }
        }
        Some(State::Untouched("it has no managed hosts yet".to_owned()))
    }
}
