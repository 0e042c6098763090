//! The shape of PangolinResource, from the API server's own schema. It is read at start, when its hash changes, and after a refusal.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use signpost_apis::pangolin::{GROUP, VERSION};
use tokio::sync::Mutex;

use crate::index::PangolinIndex;
use crate::plan::crd::Shape;
use crate::settings::Dialect;

/// How often the hash of the schema is compared.
const EVERY: Duration = Duration::from_secs(30);
/// Longest time for one request.
const DEADLINE: Duration = Duration::from_secs(10);

/// The schema of the API server.
pub(crate) struct Schema {
    client: Client,
    dialect: Dialect,
    known: Mutex<Option<(String, Shape)>>,
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
        if let Some((_, shape)) = &*known {
            return Ok(*shape);
        }
        let hash = self.hash().await?;
        let shape = self.read().await?;
        tracing::info!(?shape, "the shape of PangolinResource is known");
        *known = Some((hash, shape));
        Ok(shape)
    }

    /// Reads it again at its next use.
    pub(crate) async fn forget(&self) {
        *self.known.lock().await = None;
    }

    /// Compares the hash again and again. When the shape has changed, every Ingress gets a pass.
    pub(crate) async fn watch(self: Arc<Self>, index: Arc<PangolinIndex>) {
        if self.dialect != Dialect::Auto {
            return;
        }
        loop {
            tokio::time::sleep(EVERY).await;
            let before = self.known.lock().await.clone();
            let Some((hash, shape)) = before else { continue };
            match self.hash().await {
                Ok(now) if now != hash => {
                    self.forget().await;
                    if self.shape().await.is_ok_and(|now| now != shape) {
                        index.touch_all();
                    }
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// The hash of the group's document, as the API server's list of documents has it.
    async fn hash(&self) -> Result<String, String> {
        let index = self.get("/openapi/v3").await?;
        let url = index["paths"][format!("apis/{GROUP}/{VERSION}")]["serverRelativeURL"].as_str().map(str::to_owned);
        url.ok_or_else(|| format!("the API server has no schema for {GROUP}/{VERSION} yet"))
    }

    async fn read(&self) -> Result<Shape, String> {
        let document = self.get(&format!("/openapi/v3/apis/{GROUP}/{VERSION}")).await?;
        let schemas = document["components"]["schemas"].as_object();
        let is_resource = |schema: &&Value| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] == "PangolinResource"))
        };
        let schema = schemas.into_iter().flat_map(|all| all.values()).find(is_resource);
        Shape::read(schema.ok_or("the API server has no schema for PangolinResource yet")?)
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        match tokio::time::timeout(DEADLINE, self.client.request::<Value>(request)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err("the API server did not answer in time".to_owned()),
        }
    }
}
