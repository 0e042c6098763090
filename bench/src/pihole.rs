//! `pihole`: 1,000 Ingresses → every name answered by a Pi-hole stand-in, against one call per record on another stand-in in the same run.
//!
//! On a real Pi-hole a write costs time, because every one stores the whole list: with FTL v6.4.1 on two cores, 100 PUTs took 11 ms each on
//! a short list with a connection each, 48 ms each on one connection, and 70 ms each on top of 1,000 lines; a PATCH of 1,000 lines took 18
//! ms. Both sides use the least of that: 11 ms for a write, and 22 ms more for every 1,000 existing lines. The time of one call per record
//! on a stand-in with free writes is printed too.

use std::time::{Duration, Instant};

use signpost_testkit::pihole::{Counters, PiholeV6, V6Options};
use tokio::net::UdpSocket;

use crate::measurement::{Goal, Measurement, Measurements};
use crate::{Bench, memory, seconds, servers};

const SIZE: usize = 1000;
const DEADLINE: Duration = Duration::from_mins(2);
/// The time of a write to an empty list, on both sides.
const WRITE: Duration = Duration::from_millis(11);
/// The additional time for each existing line.
const LINE: Duration = Duration::from_micros(22);

/// Runs the benchmark.
pub(crate) async fn run(bench: &Bench, measurements: &mut Measurements) -> anyhow::Result<()> {
    bench.report("one call per record: 1,000 PUTs, on a stand-in with free writes");
    let free = V6Options { write_time: Duration::ZERO, ..V6Options::default() };
    let per_record_free = per_record(free).await?;
    bench.report("one call per record: 1,000 PUTs, each as slow as on a real Pi-hole at its fastest");
    let costly = V6Options { write_time: WRITE, line_time: LINE, ..V6Options::default() };
    let per_record = per_record(costly.clone()).await?;

    bench.report("creating 1,000 registered Ingresses");
    let namespace = bench.cluster.namespace("home").await;
    memory::create(bench, &namespace, 0..SIZE, true).await?;
    let pihole = PiholeV6::with(costly).await;

    bench.report("starting the operator");
    let kubeconfig = bench.cluster.kubeconfig();
    let mut operator = bench.pihole_operator(&namespace, &kubeconfig, &pihole.url())?;
    let ready = operator.ready(DEADLINE).await?;
    let served = answered(&pihole, DEADLINE).await? - operator.started();
    operator.rest(DEADLINE).await?;
    let (rss, cpu) = (operator.rss_mb()?, operator.cpu_seconds()?);
    operator.stop().await?;
    let Counters { logins, writes, most_writes_at_once, .. } = pihole.counters();
    measurements.extend([
        Measurement::new("pihole.stand_in.write", seconds(WRITE) * 1000.0, "ms", Goal::None),
        Measurement::new("pihole.stand_in.write_per_1000_lines", seconds(LINE) * 1_000_000.0, "ms", Goal::None),
        Measurement::new(
            "pihole.one_call_per_record.1000.writes_cost_nothing",
            seconds(per_record_free),
            "s",
            Goal::None,
        ),
        Measurement::new("pihole.one_call_per_record.1000", seconds(per_record), "s", Goal::None),
        Measurement::new("pihole.start_to_all_answered.1000", seconds(served), "s", Goal::None),
        Measurement::new(
            "pihole.speedup_over_one_call_per_record",
            seconds(per_record) / seconds(served),
            "x",
            Goal::AtLeast(20.0),
        ),
        Measurement::new("pihole.start_to_ready", seconds(ready), "s", Goal::AtMost(30.0)),
        Measurement::new("pihole.rss.1000", rss, "MB", Goal::AtMost(64.0)),
        Measurement::new("pihole.cpu", cpu, "s", Goal::None),
        Measurement::new("pihole.logins", count(logins), "logins", Goal::AtMost(1.0)),
        Measurement::new("pihole.writes", count(writes), "writes", Goal::AtMost(3.0)),
        Measurement::new("pihole.most_writes_in_flight", count(most_writes_at_once), "writes", Goal::AtMost(1.0)),
    ]);
    Ok(())
}

/// Waits until every host answers.
async fn answered(pihole: &PiholeV6, deadline: Duration) -> anyhow::Result<Instant> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    let start = Instant::now();
    for n in 0..SIZE {
        let name = format!("app-{n:05}.bench.lan.");
        while servers::ask(&socket, pihole.dns(), &name).await?.is_none() {
            anyhow::ensure!(start.elapsed() < deadline, "{name} was not answered after {deadline:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    Ok(Instant::now())
}

/// One login, then one PUT per record, one after the other, as a client without batches does.
async fn per_record(options: V6Options) -> anyhow::Result<Duration> {
    let pihole = PiholeV6::with(options).await;
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
