//! The API over plain HTTP on loopback, for kubectl and other processes.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use http_body_util::BodyExt;
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Shared, faults::Session, service};

/// A served sandbox; it stops when this is dropped.
#[derive(Debug)]
pub struct Served {
    addr: SocketAddr,
    stop: CancellationToken,
}

impl Served {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of the API.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A kubeconfig that points here.
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: sandbox\nclusters:\n- name: sandbox\n  cluster:\n    server: http://{}\ncontexts:\n- name: sandbox\n  context:\n    cluster: sandbox\n    user: sandbox\n    namespace: default\nusers:\n- name: sandbox\n  user: {{}}\n",
            self.addr
        )
    }

    /// Stops serving.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) async fn serve(shared: Arc<Shared>, addr: SocketAddr) -> io::Result<Served> {
    let listener = TcpListener::bind(addr).await?;
    let addr = listener.local_addr()?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                () = stopped.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                // Most likely the process is out of file descriptors.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            let (shared, stopped) = (shared.clone(), stopped.clone());
            tokio::spawn(async move {
                let handler = service_fn(move |request: Request<Incoming>| {
                    let shared = shared.clone();
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                        let request = Request::from_parts(parts, body);
                        service::serve(shared, Session::default(), request).await.map_err(io::Error::other)
                    }
                });
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), handler);
                tokio::select! {
                    () = stopped.cancelled() => {}
                    _ = connection => {}
                }
            });
        }
    });
    Ok(Served { addr, stop })
}
