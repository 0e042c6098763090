//! `change`: one change in a zone of 10,000 record sets → served, against the bare PATCH on the same server.
//!
//! The time starts with the watch event of the change, as a second watch receives it. The time of the change itself at the API server is
//! included in `change.request_to_served`.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::StreamExt;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::json;
use tokio::net::UdpSocket;

use crate::measurement::{Goal, Measurement, Measurements};
use crate::servers::{self, address, host};
use crate::strategies::Direct;
use crate::{Bench, seconds};

const ROUNDS: usize = 25;
/// The pause between two changes, so that each is processed alone.
const QUIET: Duration = Duration::from_millis(1200);
const SIZE: usize = 10_000;
const DEADLINE: Duration = Duration::from_mins(3);

/// Runs the benchmark.
pub(crate) async fn run(bench: &Bench, measurements: &mut Measurements) -> anyhow::Result<()> {
    let direct = Direct::new(&bench.powerdns)?;
    let client = bench.cluster.client();
    let namespace = bench.cluster.namespace("bench-change").await;
    let zone = "change.bench";
    bench.report("filling a zone with 10,000 record sets");
    servers::create_zone(&client, &namespace, zone).await?;
    servers::create_rrsets(&client, &namespace, zone, SIZE).await?;
    let operator = bench.operator(&namespace)?;
    servers::all_served(bench.powerdns.dns_addr(), zone, SIZE, 0, DEADLINE).await?;
    servers::all_reported(&client, &namespace, SIZE, DEADLINE).await?;

    // A zone of the same size for the bare PATCHes: in the operator's own zone they would be foreign changes, and cost it a read.
    let bare = "change-bare.bench";
    direct.create_zone(bare).await?;
    let filling: Vec<_> = (0..SIZE).map(|n| Direct::replace(bare, n, 0)).collect();
    for chunk in filling.chunks(5000) {
        direct.patch(bare, chunk).await?;
    }

    bench.report("changing one record set, and a bare PATCH, by turns");
    let api = servers::rrsets(&client, &namespace);
    let mut events = Box::pin(watcher(api.clone(), watcher::Config::default().any_semantic()));
    while !matches!(events.next().await.context("the watch ended")??, watcher::Event::InitDone) {}
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    let (mut changes, mut requests, mut patches) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        tokio::time::sleep(QUIET).await;
        let n = round * 97 % SIZE;
        let edition = 7;
        let patch = json!({"spec": {"records": [address(n, edition)]}});
        let name = format!("{}.{zone}", host(n));
        let requested = Instant::now();
        let request = async {
            api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            served(&socket, bench, zone, n, edition).await?;
            anyhow::Ok(Instant::now())
        };
        let event = async {
            loop {
                let event = events.next().await.context("the watch ended")??;
                if let watcher::Event::Apply(object) = event
                    && object.metadata.name.as_ref() == Some(&name)
                    && object.data["spec"]["records"][0] == address(n, edition)
                {
                    return anyhow::Ok(Instant::now());
                }
            }
        };
        let (done, seen) = tokio::try_join!(request, event)?;
        changes.push(done.saturating_duration_since(seen));
        requests.push(done - requested);

        let start = Instant::now();
        direct.patch(bare, &[Direct::replace(bare, n, edition)]).await?;
        served(&socket, bench, bare, n, edition).await?;
        patches.push(start.elapsed());
    }
    let (change, request, patch) = (median(&mut changes), median(&mut requests), median(&mut patches));
    operator.stop().await?;
    servers::clear(&client, &namespace).await?;
    direct.delete_zone(zone).await?;
    direct.delete_zone(bare).await?;
    measurements.extend([
        Measurement::new("change.bare_patch", seconds(patch) * 1000.0, "ms", Goal::None),
        Measurement::new("change.served", seconds(change) * 1000.0, "ms", Goal::None),
        Measurement::new("change.request_to_served", seconds(request) * 1000.0, "ms", Goal::None),
        Measurement::new("change.of_bare_patch", seconds(change) / seconds(patch), "x", Goal::AtMost(3.0)),
    ]);
    Ok(())
}

async fn served(socket: &UdpSocket, bench: &Bench, zone: &str, n: usize, edition: u8) -> anyhow::Result<()> {
    let start = Instant::now();
    let (name, wanted) = (format!("{}.{zone}.", host(n)), address(n, edition));
    while servers::ask(socket, bench.powerdns.dns_addr(), &name).await?.as_deref() != Some(&wanted) {
        anyhow::ensure!(start.elapsed() < DEADLINE, "{name} was not served with {wanted}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
