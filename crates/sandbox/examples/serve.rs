//! Serves an empty cluster on a loopback port and prints its kubeconfig.
//!
//! `cargo run -p signpost-sandbox --example serve -- 127.0.0.1:8001 > /tmp/kubeconfig`

use std::io::Write;

use signpost_sandbox::Sandbox;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let addr = addr.parse().map_err(std::io::Error::other)?;
    let served = Sandbox::default().serve(addr).await?;
    let mut out = std::io::stdout();
    out.write_all(served.kubeconfig().as_bytes())?;
    out.flush()?;
    tokio::signal::ctrl_c().await
}
