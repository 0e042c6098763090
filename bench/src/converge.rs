//! `converge`: N record sets → all served and all reported, on the real kube-apiserver and the real PowerDNS.
//!
//! `waiting`: they exist, then the operator starts. `arriving`: the operator runs, then they are created at full speed.

use std::time::{Duration, Instant};

use crate::measurement::{Goal, Measurement, Measurements};
use crate::operator::Operator;
use crate::servers;
use crate::strategies::{self, Direct};
use crate::{Bench, seconds};

const DEADLINE: Duration = Duration::from_mins(3);
/// A burst that has slowed down the users of an API server.
const BURST: usize = 2000;

/// The results of one run of one mode.
struct Run {
    served: Duration,
    reported: Duration,
    /// Writes to the API server by the operator.
    writes: u64,
    /// PATCHes to PowerDNS, by the operator's own count.
    patches: f64,
    /// Increments of the zone's serial.
    steps: u64,
    cpu: f64,
    rss: f64,
    peak: f64,
}

impl Run {
    async fn of(
        operator: &Operator,
        direct: &Direct,
        zone: &str,
        [served, reported]: [Duration; 2],
        writes: u64,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            served,
            reported,
            writes,
            patches: operator.counter("signpost_powerdns_patches_total").await?,
            steps: direct.serial(zone).await?,
            cpu: operator.cpu_seconds()?,
            rss: operator.rss_mb()?,
            peak: operator.peak_mb()?,
        })
    }
}

/// Runs the benchmark.
pub(crate) async fn run(bench: &Bench, measurements: &mut Measurements) -> anyhow::Result<()> {
    let direct = Direct::new(&bench.powerdns)?;
    let client = bench.cluster.client();

    bench.report("start-up: the operator with one zone and nothing in it");
    let namespace = bench.cluster.namespace("bench-start").await;
    servers::create_zone(&client, &namespace, "start.bench").await?;
    let mut operator = bench.operator(&namespace)?;
    let startup = operator.ready(DEADLINE).await?;
    operator.stop().await?;
    servers::clear(&client, &namespace).await?;
    direct.delete_zone("start.bench").await?;
    measurements.push(Measurement::new("converge.startup", seconds(startup), "s", Goal::AtMost(2.0)));

    bench.report("per-record strategy: 1,000 record sets, one at a time");
    let namespace = bench.cluster.namespace("bench-per-record").await;
    servers::create_rrsets(&client, &namespace, "per-record.bench", 1000).await?;
    direct.create_zone("per-record.bench").await?;
    let per_record = strategies::per_record(&client, &direct, &namespace, "per-record.bench", 1000).await?;
    servers::clear(&client, &namespace).await?;
    direct.delete_zone("per-record.bench").await?;
    measurements.push(Measurement::new("converge.per_record.1000", seconds(per_record), "s", Goal::None));

    let (alone, bare) = no_operator(bench, &direct, 1000, measurements).await?;

    let waiting = waiting(bench, &direct, 1000, measurements).await?;
    measurements.push(Measurement::new(
        "converge.waiting.1000.speedup",
        seconds(per_record) / seconds(waiting.served),
        "x",
        Goal::AtLeast(20.0),
    ));
    let beyond_start = waiting.reported.saturating_sub(startup);
    measurements.push(Measurement::new(
        "converge.waiting.1000.of_bare",
        seconds(beyond_start) / seconds(bare),
        "x",
        Goal::AtMost(1.5),
    ));

    let many = self::waiting(bench, &direct, 10_000, measurements).await?;
    measurements.push(Measurement::new(
        "converge.waiting.growth",
        seconds(many.served) / seconds(waiting.served),
        "x",
        Goal::AtMost(12.0),
    ));

    for n in [1000, BURST, 10_000] {
        // Creating so many without an operator, and the bare cost of reporting them, in the same run.
        let (alone, bare) =
            if n == 1000 { (alone, bare) } else { no_operator(bench, &direct, n, measurements).await? };
        let arriving = arriving(bench, &direct, n, (alone, bare), measurements).await?;
        if n == 1000 {
            // Those two start with all objects created; this one also waits for the last to be created.
            for (name, other) in [("of_per_record", per_record), ("of_bare", bare)] {
                let name = format!("converge.arriving.1000.{name}");
                measurements.push(Measurement::new(name, seconds(arriving.reported) / seconds(other), "x", Goal::None));
            }
        }
    }
    Ok(())
}

/// How long it takes to create `n` record sets with no operator, and to write by hand what an operator would.
async fn no_operator(
    bench: &Bench,
    direct: &Direct,
    n: usize,
    measurements: &mut Measurements,
) -> anyhow::Result<(Duration, Duration)> {
    bench.report(&format!("no operator: {n} record sets are created and written by hand"));
    let client = bench.cluster.client();
    let namespace = bench.cluster.namespace("bench-bare").await;
    let zone = format!("bare-{n}.bench");
    direct.create_zone(&zone).await?;
    let start = Instant::now();
    servers::create_rrsets(&client, &namespace, &zone, n).await?;
    let alone = start.elapsed();
    let bare = strategies::bare(&client, direct, &namespace, &zone, n).await?;
    servers::clear(&client, &namespace).await?;
    direct.delete_zone(&zone).await?;
    measurements.push(Measurement::new(format!("converge.alone.{n}"), seconds(alone), "s", Goal::None));
    measurements.push(Measurement::new(format!("converge.bare.{n}"), seconds(bare), "s", Goal::None));
    Ok((alone, bare))
}

async fn waiting(bench: &Bench, direct: &Direct, n: usize, measurements: &mut Measurements) -> anyhow::Result<Run> {
    bench.report(&format!("waiting: {n} record sets exist, the operator starts"));
    let client = bench.cluster.client();
    let namespace = bench.cluster.namespace("bench-waiting").await;
    let zone = format!("waiting-{n}.bench");
    servers::create_zone(&client, &namespace, &zone).await?;
    servers::create_rrsets(&client, &namespace, &zone, n).await?;
    let writes = servers::writes_seen(&client).await?;
    let operator = bench.operator(&namespace)?;
    let start = operator.started();
    let (served, reported) = tokio::try_join!(
        servers::all_served(bench.powerdns.dns_addr(), &zone, n, 0, DEADLINE),
        servers::all_reported(&client, &namespace, n, DEADLINE)
    )?;
    settle(&client).await?;
    let writes = servers::writes_seen(&client).await? - writes;
    let run = Run::of(&operator, direct, &zone, [served - start, reported - start], writes).await?;
    push_run(measurements, &format!("converge.waiting.{n}"), &run, n);

    bench.report(&format!("waiting: all {n} change, then nothing changes"));
    let writes = servers::writes_seen(&client).await?;
    servers::change_rrsets(&client, &namespace, &zone, n, 1).await?;
    servers::all_served(bench.powerdns.dns_addr(), &zone, n, 1, DEADLINE).await?;
    servers::all_reported(&client, &namespace, n, DEADLINE).await?;
    settle(&client).await?;
    let ours = (servers::writes_seen(&client).await? - writes).saturating_sub(n as u64);
    measurements.push(Measurement::new(
        format!("converge.change.{n}.writes_per_object"),
        per(ours, n),
        "writes",
        Goal::AtMost(1.1),
    ));
    operator.stop().await?;

    bench.report(&format!("second pass over {n} unchanged record sets"));
    let (writes, serial) = (servers::writes_seen(&client).await?, direct.serial(&zone).await?);
    let mut operator = bench.operator(&namespace)?;
    operator.ready(DEADLINE).await?;
    // Ready is before the first pass: wait until a pass has compared everything and ended.
    operator.reached("signpost_powerdns_reads_total{depth=\"records\"}", 1.0, DEADLINE).await?;
    operator.reached("signpost_passes_total{system=\"powerdns\",outcome=\"done\"}", 1.0, DEADLINE).await?;
    settle(&client).await?;
    let again = servers::writes_seen(&client).await? - writes + (direct.serial(&zone).await? - serial);
    measurements.push(Measurement::new(
        format!("converge.again.{n}.writes"),
        count(again),
        "writes",
        Goal::AtMost(0.0),
    ));
    operator.stop().await?;
    servers::clear(&client, &namespace).await?;
    direct.delete_zone(&zone).await?;
    Ok(run)
}

async fn arriving(
    bench: &Bench,
    direct: &Direct,
    n: usize,
    (alone, bare): (Duration, Duration),
    measurements: &mut Measurements,
) -> anyhow::Result<Run> {
    bench.report(&format!("arriving: the operator runs, {n} record sets are created"));
    let client = bench.cluster.client();
    let namespace = bench.cluster.namespace("bench-arriving").await;
    let zone = format!("arriving-{n}.bench");
    servers::create_zone(&client, &namespace, &zone).await?;
    let mut operator = bench.operator(&namespace)?;
    operator.ready(DEADLINE).await?;
    settle(&client).await?;
    let before = servers::writes_seen(&client).await?;
    let start = Instant::now();
    let (created_at, served_at, reported) = tokio::try_join!(
        servers::create_rrsets(&client, &namespace, &zone, n),
        servers::each_served(bench.powerdns.dns_addr(), &zone, n, 0, DEADLINE),
        servers::all_reported(&client, &namespace, n, DEADLINE)
    )?;
    let last = |at: &[Instant]| at.iter().max().copied().unwrap_or(start);
    let (created, served) = (last(&created_at) - start, last(&served_at));
    let mut waits: Vec<Duration> =
        created_at.iter().zip(&served_at).map(|(created, served)| served.saturating_duration_since(*created)).collect();
    waits.sort_unstable();
    settle(&client).await?;
    let writes = (servers::writes_seen(&client).await? - before).saturating_sub(n as u64);
    let run = Run::of(&operator, direct, &zone, [served - start, reported - start], writes).await?;
    let name = format!("converge.arriving.{n}");
    measurements.push(Measurement::new(format!("{name}.creation"), seconds(created), "s", Goal::None));
    // The slowdown for users of the API server.
    measurements.push(Measurement::new(
        format!("{name}.of_alone"),
        seconds(created) / seconds(alone),
        "x",
        Goal::AtMost(1.5),
    ));
    let reporting = run.reported.saturating_sub(created);
    measurements.push(Measurement::new(
        format!("{name}.reported_of_bare"),
        seconds(reporting) / seconds(bare),
        "x",
        Goal::AtMost(1.5),
    ));
    let p99 = waits.get(waits.len() * 99 / 100).copied().unwrap_or_default();
    measurements.push(Measurement::new(format!("{name}.p99_create_to_served"), seconds(p99), "s", Goal::None));
    let after = run.served.saturating_sub(created);
    measurements.push(Measurement::new(
        format!("{name}.lag_of_creation"),
        seconds(after) / seconds(created),
        "x",
        Goal::AtMost(0.10),
    ));
    push_run(measurements, &name, &run, n);
    operator.stop().await?;
    servers::clear(&client, &namespace).await?;
    direct.delete_zone(&zone).await?;
    Ok(run)
}

fn push_run(measurements: &mut Measurements, name: &str, run: &Run, n: usize) {
    let mut push = |what: &str, value, unit, goal| {
        measurements.push(Measurement::new(format!("{name}.{what}"), value, unit, goal));
    };
    push("served", seconds(run.served), "s", Goal::None);
    push("reported", seconds(run.reported), "s", Goal::None);
    push("patches", run.patches, "PATCHes", Goal::None);
    // Creating the zone is the first step, every PATCH one more.
    push("serial", count(run.steps), "steps", Goal::AtMost(run.patches + 1.0));
    push("writes_per_object", per(run.writes, n), "writes", Goal::AtMost(2.1));
    push("cpu", run.cpu, "s", Goal::None);
    push("rss", run.rss, "MB", Goal::AtMost(60.0));
    push("rss_peak", run.peak, "MB", Goal::None);
}

/// Waits until the API server gets no more writes: two equal counts half a second apart.
async fn settle(client: &kube::Client) -> anyhow::Result<()> {
    let mut last = servers::writes_seen(client).await?;
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = servers::writes_seen(client).await?;
        if now == last {
            return Ok(());
        }
        last = now;
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // counts of a benchmark are far below 2^52
fn count(n: u64) -> f64 {
    n as f64
}

#[allow(clippy::cast_precision_loss)] // counts of a benchmark are far below 2^52
fn per(writes: u64, n: usize) -> f64 {
    writes as f64 / n as f64
}
