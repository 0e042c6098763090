//! The demo: a Pangolin in memory, and which Service answers a URL of it.

use std::sync::Arc;

use futures::future::BoxFuture;
use regex::Regex;
use serde_json::Value;
use signpost_dns::Fqdn;
use signpost_engine::demo::{Answer, BoxError, Demo, Show, Stage, State};
use signpost_provider_pangolin::{Domain, DomainId, DomainKind, MemoryPangolin, Site, SiteId, SiteKind, Target};

use crate::{Policy, install_api};

/// The domain of the demo's organisation.
const DOMAIN: &str = "apps.example.org";

pub(crate) const DEMO: Demo = Demo {
    examples: &[("pangolin.yaml", include_str!("../../../../examples/demo/pangolin.yaml"))],
    crds: Vec::new,
    start: |stage| Box::pin(async { start(stage) }),
};

struct PangolinDemo(MemoryPangolin);

fn start(stage: &mut dyn Stage) -> Result<Box<dyn Show>, BoxError> {
    let domain =
        Domain { id: DomainId("demo".into()), base: Fqdn::parse(DOMAIN)?, kind: DomainKind::Wildcard, verified: true };
    let site = Site {
        id: SiteId(1),
        nice_id: "cluster".into(),
        name: "cluster".into(),
        kind: SiteKind::Newt,
        online: Some(true),
    };
    let pangolin = MemoryPangolin::new(vec![domain], vec![site]);
    let policy = Policy { owner: Some("demo".to_owned()), ..Policy::default() };
    install_api(stage.operator(), policy, Arc::new(pangolin.clone()));
    Ok(Box::new(PangolinDemo(pangolin)))
}

impl PangolinDemo {
    /// The backend of a request: the matching target with the highest priority.
    fn answer(&self, host: &str, path: &str) -> Option<String> {
        let matches = |target: &&Target| match (target.path.as_deref(), target.matching.as_deref()) {
            (Some(exact), Some("exact")) => exact == path,
            (Some(pattern), Some("regex")) => Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(path)),
            _ => true,
        };
        let stored = self.0.stored();
        let of_host =
            stored.iter().filter(|(resource, _)| resource.host.as_ref().is_some_and(|name| name.undotted() == host));
        let targets = of_host.filter(|(resource, _)| resource.enabled).flat_map(|(_, targets)| targets);
        let best = targets.filter(matches).max_by_key(|target| target.priority)?;
        let mut labels = best.host.split('.');
        let (service, namespace) = (labels.next()?, labels.next()?);
        Some(format!("Service {namespace}/{service}:{}", best.port))
    }
}

impl Show for PangolinDemo {
    fn about(&self) -> String {
        format!("Pangolin in memory, with the domain {DOMAIN}")
    }

    fn check<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Option<State>> {
        Box::pin(async { self.state(object) })
    }
}

impl PangolinDemo {
    /// An Ingress is served when its first backend answers for each host.
    fn state(&self, object: &Value) -> Option<State> {
        if object["kind"] != "Ingress" {
            return None;
        }
        if object["spec"]["ingressClassName"] != "pangolin" {
            return Some(State::Untouched("its class is not pangolin".to_owned()));
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if object["metadata"]["annotations"][crate::APPLIED_ANNOTATION].is_null() {
            return Some(State::Untouched(format!("Pangolin has nothing for Ingress {name} yet")));
        }
        let rules = object["spec"]["rules"].as_array().into_iter().flatten();
        let mut answers = Vec::new();
        for host in rules.filter_map(|rule| rule["host"].as_str()) {
            for path in ["/", "/api/orders", "/apiary"] {
                let question = format!("https://{host}{path}");
                match self.answer(host, path) {
                    Some(service) => answers.push(Answer { question, qtype: "GET".into(), data: vec![service] }),
                    None => return Some(State::NotYet(format!("nothing answers {question}"))),
                }
            }
        }
        Some(State::Served(answers))
    }
}
