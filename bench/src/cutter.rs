//! A plain TCP relay whose connections can be cut: it ends the operator's watches in a benchmark.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

/// The relay. Dropping it ends it.
pub(crate) struct Cutter {
    addr: SocketAddr,
    cut: broadcast::Sender<()>,
    server: JoinHandle<()>,
}

impl Cutter {
    /// Relays to this address.
    pub(crate) async fn start(upstream: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let (cut, _) = broadcast::channel(1);
        let cuts = cut.clone();
        let server = tokio::spawn(async move {
            loop {
                let Ok((mut client, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let mut end = cuts.subscribe();
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
                    for stream in [&client, &server] {
                        stream.set_nodelay(true).ok();
                    }
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = end.recv() => {}
                    }
                });
            }
        });
        Ok(Self { addr, cut, server })
    }

    /// Where clients connect.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Cuts every open connection.
    pub(crate) fn cut(&self) {
        let _ = self.cut.send(());
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.server.abort();
    }
}
