//! Where the systems run in the demo: the operator of the demo's cluster, its name server, and further clusters on request.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use signpost_engine::demo::{BoxError, Names, Show, Stage};
use signpost_engine::health::Health;
use signpost_engine::{Operator, OperatorError, OperatorOptions, SystemSpec};
use signpost_sandbox::{Sandbox, SandboxOptions};
use tokio_util::sync::CancellationToken;

use super::examples;

/// A cluster that keeps no log of its requests: it is not read, and a demo may run for a long time.
pub(super) fn sandbox() -> Sandbox {
    Sandbox::new(SandboxOptions { log: false, ..SandboxOptions::default() })
}

/// A system of the demo that has started, with its name.
pub(super) type Shown = (&'static str, Box<dyn Show>);

/// The operators of the demo before they run.
pub(super) struct Clusters {
    operator: Operator,
    further: Vec<Operator>,
    names: Arc<dyn Names>,
    crds: Vec<CustomResourceDefinition>,
}

fn operator(client: Client, identity: &str) -> Operator {
    Operator::new(client, OperatorOptions { identity: identity.into(), ..OperatorOptions::default() })
}

impl Clusters {
    /// The demo's cluster, with the custom kinds installed.
    pub(super) async fn new(
        client: &Client,
        names: Arc<dyn Names>,
        crds: Vec<CustomResourceDefinition>,
    ) -> anyhow::Result<Self> {
        examples::install_crds(client, &crds).await?;
        Ok(Self { operator: operator(client.clone(), "demo"), further: Vec::new(), names, crds })
    }

    /// Starts every system that has a demo.
    pub(super) async fn start(&mut self, systems: &[SystemSpec]) -> anyhow::Result<Vec<Shown>> {
        let mut shows: Vec<Shown> = Vec::new();
        for spec in systems {
            if let Some(demo) = spec.demo {
                let show = (demo.start)(self).await.map_err(|error| anyhow::anyhow!("{}: {error}", spec.name))?;
                shows.push((spec.name, show));
            }
        }
        for operator in &mut self.further {
            for (_, show) in &shows {
                show.join(operator);
            }
        }
        Ok(shows)
    }

    /// The health of the demo's cluster, and of the further ones.
    pub(super) fn health(&self) -> (Health, Vec<Health>) {
        (self.operator.health(), self.further.iter().map(Operator::health).collect())
    }

    /// Runs every operator until asked to stop, or until one ends.
    pub(super) async fn run(self, stop: CancellationToken) -> Result<(), OperatorError> {
        let operators = std::iter::once(self.operator).chain(self.further);
        futures::future::try_join_all(operators.map(|operator| operator.run(stop.clone()))).await.map(drop)
    }
}

impl Stage for Clusters {
    fn operator(&mut self) -> &mut Operator {
        &mut self.operator
    }

    fn names(&self) -> Arc<dyn Names> {
        Arc::clone(&self.names)
    }

    fn cluster<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<&'a mut Operator, BoxError>> {
        Box::pin(async move {
            let client = sandbox().client();
            examples::install_crds(&client, &self.crds).await?;
            self.further.push(operator(client, &format!("demo-{name}")));
            self.further.last_mut().ok_or_else(|| "a cluster that was added is not there".into())
        })
    }
}
