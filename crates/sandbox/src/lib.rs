//! A Kubernetes API and an authoritative name server in one process.

pub mod apply;
pub mod schema;
