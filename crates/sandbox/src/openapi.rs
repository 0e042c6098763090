//! OpenAPI documents: what `kubectl explain` and kubectl's checks read.

use bytes::Bytes;
use serde_json::json;

use crate::{render, status::ApiError, world::World};

/// Answers a path under `/openapi`.
pub(crate) fn serve(world: &World, path: &str) -> Result<Bytes, ApiError> {
    let _ = world;
    match path.trim_end_matches('/') {
        "/openapi/v2" => Ok(render::to_bytes(&json!({
            "swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.3"}, "paths": {}, "definitions": {}
        }))),
        _ => Err(ApiError::no_such_path()),
    }
}
