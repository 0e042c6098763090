//! The demo: a PowerDNS in memory, whose zones the demo's name server answers. Further clusters publish their DNSEndpoints in it.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use signpost_engine::{
    Operator,
    demo::{Answer, Demo, Mirror, Mirrored, Names, Show, Stage, State, answered},
};
use signpost_provider_powerdns::MemoryServer;

use crate::{EndpointSource, Pace, install_with};

/// Which DNSEndpoints are published: those of one region, as an external-dns of that region would select them.
const SELECTED: &str = "router.io/region=neu";

pub(crate) const DEMO: Demo = Demo {
    examples: &[("powerdns.yaml", include_str!("../../../../examples/demo/powerdns.yaml"))],
    crds: || vec![signpost_apis::externaldns::crd()],
    start: |stage| Box::pin(async { Ok(start(stage)) }),
};

struct PowerDnsDemo {
    names: Arc<dyn Names>,
    server: Arc<MemoryServer>,
}

fn start(stage: &mut dyn Stage) -> Box<dyn Show> {
    let (server, mirror) = (MemoryServer::new(), Mirror::new(stage.names()));
    server.on_change(Arc::new(move |zone, contents| {
        let content = contents.map(|contents| {
            contents.sets.iter().map(|set| Mirrored {
                name: set.name.clone(),
                rtype: set.rtype,
                ttl: set.ttl,
                data: set.contents.iter().map(ToString::to_string).collect(),
            })
        });
        mirror.zone(zone, content);
    }));
    let demo = PowerDnsDemo { names: stage.names(), server: Arc::new(server) };
    demo.join(stage.operator());
    Box::new(demo)
}

impl Show for PowerDnsDemo {
    fn about(&self) -> String {
        format!("PowerDNS in memory; the name server answers for its zones. DNSEndpoints with {SELECTED} are published")
    }

    fn join(&self, operator: &mut Operator) {
        let endpoints = Some(EndpointSource { labels: Some(SELECTED.to_owned()), ..EndpointSource::default() });
        install_with(operator, self.server.clone(), Pace { endpoints, ..Pace::default() });
    }

    fn check<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Option<State>> {
        Box::pin(self.state(object))
    }

    fn commands(&self, kubectl: &str, served: &[Answer]) -> Vec<String> {
        let example = served.iter().any(|answer| answer.question == "www.example.org." && answer.qtype == "A");
        let patch = format!(
            "{kubectl} -n demo patch rrset www --type merge -p '{{\"spec\":{{\"records\":[\"192.0.2.99\"]}}}}'   # then dig again"
        );
        example.then_some(patch).into_iter().collect()
    }
}

impl PowerDnsDemo {
    /// An object with the condition Ready counts only when the name server answers for it.
    async fn state(&self, object: &Value) -> Option<State> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let status = &object["status"];
        let question = match object["kind"].as_str()? {
            "Zone" | "ClusterZone" => (text(&status["name"]), "SOA".to_owned()),
            "RRset" | "ClusterRRset" => (text(&status["dnsEntryName"]), text(&object["spec"]["type"])),
            _ => return None,
        };
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let Some(ready) = conditions.find(|condition| condition["type"] == "Ready") else {
            return Some(State::Untouched("it has no Ready condition yet".to_owned()));
        };
        if ready["status"] != "True" {
            return Some(State::Refused { reason: text(&ready["reason"]), message: text(&ready["message"]) });
        }
        // The records of a secondary zone come from its masters, which the demo does not have.
        if matches!(object["spec"]["kind"].as_str(), Some("Slave" | "Consumer")) {
            return Some(State::Served(Vec::new()));
        }
        Some(answered(&*self.names, [question]).await)
    }
}
