//! The connection to the API server, and an error that explains why it failed.
//!
//! In: a kubeconfig path, or the usual places (`KUBECONFIG`, `~/.kube/config`, the pod's service account). Out: a client that has reached
//! the API server once, or an error that names the next step. The client does not retry: the hub and the writer do, by class of error. They
//! receive the time to wait that the API server names.

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    time::Duration,
};

use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tokio::time::timeout;
use tower::util::AndThenLayer;

mod retry_after;

/// Longest time for a connection, and for the first answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no connection to a cluster, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No kubeconfig and not in a cluster.
    #[error(
        "no cluster to talk to: there is no kubeconfig at {} and this is not a pod; give a kubeconfig with --kubeconfig or KUBECONFIG, or try \"signpost demo\", which needs no cluster",
        looked_at.display()
    )]
    NoCluster {
        /// The path that was checked.
        looked_at: PathBuf,
    },
    /// The kubeconfig cannot be opened.
    #[error("the kubeconfig {} cannot be read: {reason}; check the path and its permissions", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// The operating system's error.
        reason: String,
    },
    /// The kubeconfig is invalid.
    #[error("the kubeconfig {} cannot be used: {reason}; check it with: kubectl --kubeconfig {} config view", path.display(), path.display())]
    Broken {
        /// Which file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// Inside a pod, but the service account cannot be used.
    #[error("the service account of this pod cannot be used: {reason}; check automountServiceAccountToken")]
    ServiceAccount {
        /// The problem.
        reason: String,
    },
    /// The credentials cannot be obtained: a plugin fails, a certificate or key is broken.
    #[error("the credentials for {url} cannot be used: {reason}; log in to the cluster again, or get a new kubeconfig")]
    Credentials {
        /// The API server they are for.
        url: String,
        /// The problem.
        reason: String,
    },
    /// The API server does not answer.
    #[error(
        "the API server {url} does not answer: {reason}; check that the cluster runs and that the address is right"
    )]
    Unreachable {
        /// Its address.
        url: String,
        /// The error.
        reason: String,
    },
    /// The certificate of the server does not match the kubeconfig.
    #[error(
        "the API server {url} does not prove who it is: {reason}; the kubeconfig may be for another cluster, or a certificate has expired"
    )]
    Untrusted {
        /// Its address.
        url: String,
        /// The mismatch.
        reason: String,
    },
    /// The API server does not accept the credentials.
    #[error(
        "the API server {url} does not accept the credentials (they may have expired): {reason}; log in to the cluster again, or get a new kubeconfig"
    )]
    Unauthorized {
        /// Its address.
        url: String,
        /// Its message.
        reason: String,
    },
    /// The API server answers with an error that may pass.
    #[error("the API server {url} is too busy or failing: {reason}; try again in a moment")]
    Failing {
        /// Its address.
        url: String,
        /// Its message.
        reason: String,
    },
    /// The answer is not that of an API server.
    #[error("the API server {url} answered {reason}; check that the address is that of a Kubernetes API server")]
    Strange {
        /// Its address.
        url: String,
        /// The answer.
        reason: String,
    },
}

/// A client for the cluster that the kubeconfig names or, without one, the environment.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let mut config = config(kubeconfig).await?;
    config.default_retry = false;
    config.connect_timeout = Some(TIMEOUT);
    let url = config.cluster_url.to_string();
    let client = ClientBuilder::try_from(config)
        .map(|builder| builder.with_layer(&AndThenLayer::new(retry_after::into_status)).build())
        .map_err(|error| ConnectError::Credentials { url: url.clone(), reason: with_causes(&error) })?;
    match timeout(TIMEOUT, client.apiserver_version()).await {
        Ok(Ok(version)) => {
            tracing::debug!(url, version = version.git_version, "connected");
            Ok(client)
        }
        // The version is not public on this API server. Other missing permissions are reported on `/readyz`.
        Ok(Err(kube::Error::Api(status))) if status.code == 403 && status.reason == "Forbidden" => {
            tracing::debug!(url, "connected");
            Ok(client)
        }
        Ok(Err(error)) => Err(refusal(url, &error)),
        Err(_) => Err(ConnectError::Unreachable { url, reason: format!("no answer within {TIMEOUT:?}") }),
    }
}

async fn config(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    if let Some(path) = kubeconfig {
        let read = Kubeconfig::read_from(path).map_err(|error| bad_file(path, error))?;
        return from_file(path, read).await;
    }
    let given = env::var_os("KUBECONFIG").filter(|value| !value.is_empty()).map(PathBuf::from);
    let usual = env::home_dir().unwrap_or_default().join(".kube").join("config");
    match given {
        // May be several files joined by colons; kube knows how to merge them.
        Some(path) => {
            let read = Kubeconfig::read().map_err(|error| bad_file(&path, error))?;
            from_file(&path, read).await
        }
        None if usual.exists() => {
            let read = Kubeconfig::read_from(&usual).map_err(|error| bad_file(&usual, error))?;
            from_file(&usual, read).await
        }
        None if env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
            Config::incluster().map_err(|error| ConnectError::ServiceAccount { reason: with_causes(&error) })
        }
        None => Err(ConnectError::NoCluster { looked_at: usual }),
    }
}

async fn from_file(path: &Path, kubeconfig: Kubeconfig) -> Result<Config, ConnectError> {
    let has_proxy = names_a_proxy(&kubeconfig);
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| bad_file(path, error))?;
    if !has_proxy {
        // From HTTPS_PROXY. Only the proxy of the kubeconfig is used: providers are not contacted through HTTPS_PROXY either.
        config.proxy_url = None;
    }
    if let Some(scheme) = config.proxy_url.as_ref().map(|url| url.scheme_str().unwrap_or("no scheme"))
        && !["http", "https", "socks5"].contains(&scheme)
    {
        let reason = format!("its proxy-url has {scheme:?} where http, https or socks5 is expected");
        return Err(ConnectError::Broken { path: path.to_path_buf(), reason });
    }
    Ok(config)
}

/// Whether the current context's cluster has a `proxy-url`.
fn names_a_proxy(kubeconfig: &Kubeconfig) -> bool {
    let context = kubeconfig.contexts.iter().find(|context| Some(&context.name) == kubeconfig.current_context.as_ref());
    let cluster = context.and_then(|context| context.context.as_ref()).map(|context| &context.cluster);
    let selected = kubeconfig.clusters.iter().find(|named| Some(&named.name) == cluster);
    let proxy = selected.and_then(|named| named.cluster.as_ref()).and_then(|cluster| cluster.proxy_url.as_deref());
    proxy.is_some_and(|url| !url.is_empty())
}

fn bad_file(path: &Path, error: KubeconfigError) -> ConnectError {
    let path = path.to_path_buf();
    match error {
        KubeconfigError::ReadConfig(error, _) => ConnectError::Unreadable { path, reason: error.to_string() },
        KubeconfigError::CurrentContextNotSet => {
            ConnectError::Broken { path, reason: "it has no current-context".to_owned() }
        }
        KubeconfigError::LoadContext(name) => {
            ConnectError::Broken { path, reason: format!("it has no context {name:?}") }
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            ConnectError::Broken { path, reason: format!("it has no cluster {name:?}") }
        }
        KubeconfigError::Parse(error) => {
            // The parser may quote the lines around the error, and those may contain a token.
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            ConnectError::Broken { path, reason: format!("it is not valid YAML of a kubeconfig ({first})") }
        }
        other => ConnectError::Broken { path, reason: with_causes(&other) },
    }
}

fn refusal(url: String, error: &kube::Error) -> ConnectError {
    let reason = with_causes(error);
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            ConnectError::Unauthorized { url, reason: status.message.clone() }
        }
        kube::Error::Api(status) => {
            let reason = format!("{} {}", status.code, status.message);
            match status.code {
                429 | 500.. => ConnectError::Failing { url, reason },
                _ => ConnectError::Strange { url, reason },
            }
        }
        kube::Error::Auth(_) => ConnectError::Credentials { url, reason },
        kube::Error::SerdeError(_) => ConnectError::Strange { url, reason: "something that is not JSON".to_owned() },
        _ if reason.contains("certificate") || reason.contains("handshake") => ConnectError::Untrusted { url, reason },
        _ => ConnectError::Unreachable { url, reason },
    }
}

/// An error with its causes, each mentioned once.
fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = error.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::AsyncWriteExt,
        net::{TcpListener, TcpSocket},
    };

    fn file(content: &str) -> PathBuf {
        use std::hash::{Hash, Hasher};
        let mut hasher = std::hash::DefaultHasher::new();
        content.hash(&mut hasher);
        let path = env::temp_dir().join(format!("signpost-kubeconfig-{}-{:x}", std::process::id(), hasher.finish()));
        std::fs::write(&path, content).unwrap();
        path
    }

    fn kubeconfig(server: &str, token: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: u, user: {{token: \"{token}\"}}}}]\n"
        )
    }

    async fn refused(content: &str) -> String {
        let path = file(content);
        let error = connect(Some(&path)).await.err().expect("no connection").to_string();
        std::fs::remove_file(path).unwrap();
        error
    }

    /// A server that gives every request the same answer.
    async fn server(answer: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = [0; 4096];
                let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut buffer).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        format!("http://{address}")
    }

    /// An API server's answer to a request that it denies.
    fn failure(code: u16, reason: &str, message: &str) -> String {
        let body = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code,
        })
        .to_string();
        format!(
            "HTTP/1.1 {code} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let error = connect(Some(Path::new("/nowhere/kubeconfig"))).await.err().unwrap().to_string();
        assert!(error.contains("/nowhere/kubeconfig") && error.contains("check the path"), "{error}");
    }

    #[tokio::test]
    async fn a_broken_kubeconfig_is_explained_without_showing_a_token() {
        let error = refused("users:\n- name: u\n  user:\n    token: hunter2\n  : [\n").await;
        assert!(error.contains("not valid YAML") && error.contains("config view"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_context_is_named() {
        let error = refused("apiVersion: v1\nkind: Config\ncurrent-context: prod\n").await;
        assert!(error.contains("no context \"prod\""), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_does_not_listen_is_unreachable() {
        // Bound and not listening: connections are refused, and no other process gets the port.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let error = refused(&kubeconfig(&format!("http://{address}"), "hunter2")).await;
        assert!(error.contains("does not answer") && error.contains("check that the cluster runs"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    fn through(proxy: &str, server: &str) -> String {
        kubeconfig(server, "t").replacen("cluster: {server:", &format!("cluster: {{proxy-url: \"{proxy}\", server:"), 1)
    }

    #[tokio::test]
    async fn the_proxy_of_the_kubeconfig_is_used() {
        let api = server(failure(403, "Forbidden", "forbidden")).await;
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = proxy.local_addr().unwrap();
        let target = api.trim_start_matches("http://").to_owned();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = proxy.accept().await.unwrap();
            let mut buffer = [0; 4096];
            let length = tokio::io::AsyncReadExt::read(&mut stream, &mut buffer).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut upstream = tokio::net::TcpStream::connect(target).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut upstream).await;
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        });
        let path = file(&through(&format!("http://{address}"), &api));
        let connected = connect(Some(&path)).await;
        std::fs::remove_file(path).unwrap();
        assert!(connected.is_ok(), "{}", connected.err().unwrap());
        drop(connected);
        let asked = asked.await.unwrap();
        assert!(asked.starts_with(&format!("CONNECT {}", api.trim_start_matches("http://"))), "{asked}");
    }

    #[tokio::test]
    async fn an_unusable_proxy_is_explained_without_its_password() {
        let error = refused(&through("ftp://me:hunter2@127.0.0.1:1", "http://127.0.0.1:1")).await;
        assert!(error.contains("proxy-url") && error.contains("socks5"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let proxy = format!("http://me:hunter2@{}", socket.local_addr().unwrap());
        let error = refused(&through(&proxy, "http://127.0.0.1:1")).await;
        assert!(error.contains("does not answer"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[tokio::test]
    async fn expired_credentials_ask_for_a_new_login() {
        let url = server(failure(401, "Unauthorized", "Unauthorized")).await;
        let error = refused(&kubeconfig(&url, "hunter2")).await;
        assert!(error.contains("may have expired") && error.contains("log in"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_denies_its_version_is_accepted() {
        let url = server(failure(403, "Forbidden", r#"forbidden: User "x" cannot get path "/version""#)).await;
        let path = file(&kubeconfig(&url, "t"));
        let connected = connect(Some(&path)).await;
        std::fs::remove_file(path).unwrap();
        assert!(connected.is_ok(), "{}", connected.err().unwrap());
    }

    #[tokio::test]
    async fn a_failing_server_is_reported_as_failing_and_not_as_a_wrong_address() {
        for (code, reason) in [(429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable")] {
            let url = server(failure(code, reason, "etcd has no leader")).await;
            let error = refused(&kubeconfig(&url, "t")).await;
            assert!(error.contains("etcd has no leader") && error.contains("try again"), "{error}");
            assert!(!error.contains("check that the address"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_not_from_an_api_server_is_explained() {
        for head in ["200 OK", "403 Forbidden", "404 Not Found"] {
            let answer = format!("HTTP/1.1 {head}\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello");
            let error = refused(&kubeconfig(&server(answer).await, "t")).await;
            assert!(error.contains("check that the address"), "{head}: {error}");
        }
    }
}
