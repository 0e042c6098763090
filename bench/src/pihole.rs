//! `pihole`: 1,000 Ingresses → every name answered by the Pi-hole stand-in, against one call per record on another stand-in in the same run.

use std::time::{Duration, Instant};

use signpost_testkit::pihole::{Counters, PiholeV6, V6Options};
use tokio::net::UdpSocket;

use crate::figure::{Figure, Figures, Goal};
use crate::{Bench, memory, seconds, world};

const SIZE: usize = 1000;
const DEADLINE: Duration = Duration::from_mins(2);

/// Runs the benchmark.
pub(crate) async fn run(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    bench.say("one call per record: 1,000 PUTs");
    let per_record = per_record().await?;

    bench.say("creating 1,000 registered Ingresses");
    let namespace = bench.cluster.namespace("home").await;
    memory::create(bench, &namespace, SIZE, SIZE).await?;
    let pihole = PiholeV6::start().await;

    bench.say("starting the operator");
    let kubeconfig = bench.cluster.kubeconfig();
    let mut operator = bench.pihole_operator(&namespace, &kubeconfig, &pihole.url())?;
    let ready = operator.ready(DEADLINE).await?;
    let served = answered(&pihole, DEADLINE).await? - operator.started();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (rss, cpu) = (operator.rss_mb()?, operator.cpu_seconds()?);
    operator.stop().await?;
    let Counters { logins, writes, most_writes_at_once, .. } = pihole.counters();
    figures.extend([
        Figure::new("pihole.per_record.1000", seconds(per_record), "s", Goal::Told),
        Figure::new("pihole.served.1000", seconds(served), "s", Goal::Told),
        Figure::new("pihole.speedup", seconds(per_record) / seconds(served), "x", Goal::Told),
        Figure::new("pihole.start_to_ready", seconds(ready), "s", Goal::AtMost(30.0)),
        Figure::new("pihole.rss.1000", rss, "MB", Goal::AtMost(64.0)),
        Figure::new("pihole.cpu", cpu, "s", Goal::Told),
        Figure::new("pihole.logins", count(logins), "logins", Goal::AtMost(1.0)),
        Figure::new("pihole.writes", count(writes), "writes", Goal::AtMost(3.0)),
        Figure::new("pihole.most_writes_in_flight", count(most_writes_at_once), "writes", Goal::AtMost(1.0)),
    ]);
    Ok(())
}

/// Waits until every host answers.
async fn answered(pihole: &PiholeV6, deadline: Duration) -> anyhow::Result<Instant> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    let start = Instant::now();
    for n in 0..SIZE {
        let name = format!("app-{n:05}.bench.lan.");
        while world::ask(&socket, pihole.dns(), &name).await?.is_none() {
            anyhow::ensure!(start.elapsed() < deadline, "{name} was not answered after {deadline:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    Ok(Instant::now())
}

/// One login, then one PUT per record, one after the other, as a client without batches does.
async fn per_record() -> anyhow::Result<Duration> {
    let pihole = PiholeV6::start().await;
    let http = reqwest::Client::builder().timeout(Duration::from_secs(10)).build()?;
    let start = Instant::now();
    let login: serde_json::Value = http
        .post(format!("{}/api/auth", pihole.url()))
        .json(&serde_json::json!({"password": V6Options::default().password}))
        .send()
        .await?
        .json()
        .await?;
    let sid = login["session"]["sid"].as_str().unwrap_or_default().to_owned();
    for n in 0..SIZE {
        let line = format!("10.0.0.1%20app-{n:05}.bench.lan");
        let answer =
            http.put(format!("{}/api/config/dns/hosts/{line}", pihole.url())).header("X-FTL-SID", &sid).send().await?;
        anyhow::ensure!(answer.status().is_success(), "PUT {n} was answered {}", answer.status());
    }
    Ok(answered(&pihole, DEADLINE).await? - start)
}

#[allow(clippy::cast_precision_loss)] // counts of a benchmark are far below 2^52
fn count(n: u64) -> f64 {
    n as f64
}
