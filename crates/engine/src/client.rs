//! The way to the API server, and clear words when there is none.

use std::path::{Path, PathBuf};

use kube::Client;

/// Why there is no connection to a cluster, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No kubeconfig and not in a cluster.
    #[error("no cluster: {0}")]
    NoCluster(String),
    /// The kubeconfig cannot be read or understood.
    #[error("the kubeconfig {} cannot be used: {reason}", path.display())]
    BadKubeconfig {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The API server does not answer.
    #[error("the API server {url} does not answer: {reason}")]
    Unreachable {
        /// Its address.
        url: String,
        /// What happened.
        reason: String,
    },
    /// The API server does not know us.
    #[error("the API server {url} does not accept the credentials: {reason}")]
    Unauthorized {
        /// Its address.
        url: String,
        /// What it said.
        reason: String,
    },
}

/// A client for the cluster that the kubeconfig (or, without one, the environment) names.
pub async fn connect(_kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    Client::try_default().await.map_err(|error| ConnectError::NoCluster(error.to_string()))
}
