//! The shape of PangolinResource, from the API server's own schema. It is read at start, every half minute, and after a refusal.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use signpost_apis::pangolin::{GROUP, VERSION};
use tokio::sync::Mutex;

use crate::index::PangolinIndex;
use crate::plan::crd::Shape;
use crate::settings::Dialect;

/// How often it is compared.
const EVERY: Duration = Duration::from_secs(30);
/// Longest time for one request.
const DEADLINE: Duration = Duration::from_secs(10);

/// The schema of the API server.
pub(crate) struct Schema {
    client: Client,
    dialect: Dialect,
    known: Mutex<Option<Shape>>,
}

impl Schema {
    pub(crate) fn new(client: Client, dialect: Dialect) -> Self {
        Self { client, dialect, known: Mutex::default() }
    }

    /// The writable fields.
    pub(crate) async fn shape(&self) -> Result<Shape, String> {
        match self.dialect {
            Dialect::Single => return Ok(Shape::SINGLE),
            Dialect::Multi => return Ok(Shape::MULTI),
            Dialect::Auto => {}
        }
        let mut known = self.known.lock().await;
        if let Some(shape) = *known {
            return Ok(shape);
        }
        let shape = self.read().await?;
        tracing::info!(?shape, "the shape of PangolinResource is known");
        *known = Some(shape);
        Ok(shape)
    }

    /// Reads it again at its next use.
    pub(crate) async fn forget(&self) {
        *self.known.lock().await = None;
    }

    /// Reads it beside the first lists, so that no pass has to wait for it; then again and again. When it has changed, every Ingress gets a
    /// pass.
    pub(crate) async fn watch(self: Arc<Self>, index: Arc<PangolinIndex>) {
        if self.dialect != Dialect::Auto {
            return;
        }
        // A failure is reported by the passes, which try it again.
        let mut announced = self.shape().await.ok();
        loop {
            tokio::time::sleep(EVERY).await;
            let Ok(shape) = self.read().await else { continue };
            *self.known.lock().await = Some(shape);
            // A pass may have read it first, for itself alone.
            if announced.replace(shape).is_some_and(|before| before != shape) {
                tracing::info!(?shape, "the shape of PangolinResource has changed");
                index.touch_all();
            }
        }
    }

    async fn read(&self) -> Result<Shape, String> {
        let request = http::Request::get(format!("/openapi/v3/apis/{GROUP}/{VERSION}")).body(Vec::new());
        let request = request.map_err(|error| error.to_string())?;
        let document = match tokio::time::timeout(DEADLINE, self.client.request::<Value>(request)).await {
            Ok(Ok(document)) => document,
            Ok(Err(kube::Error::Api(error))) if error.code == 404 => {
                return Err(format!("the API server has no schema for {GROUP}/{VERSION} yet"));
            }
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("the API server did not answer in time".to_owned()),
        };
        let schemas = document["components"]["schemas"].as_object();
        let is_resource = |schema: &&Value| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] == "PangolinResource"))
        };
        let schema = schemas.into_iter().flat_map(|all| all.values()).find(is_resource);
        Shape::read(schema.ok_or("the API server has no schema for PangolinResource yet")?)
    }
}
