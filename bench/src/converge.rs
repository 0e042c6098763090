//! `converge`: N record sets → all served and all reported, on the real kube-apiserver and the real PowerDNS.
//!
//! `waiting`: they exist, then the operator starts. `arriving`: the operator runs, then they are created at full speed.

use std::time::{Duration, Instant};

use crate::figure::{Figure, Figures, Goal};
use crate::operator::Operator;
use crate::strategies::{self, Direct};
use crate::world;
use crate::{Bench, seconds};

const DEADLINE: Duration = Duration::from_mins(3);
/// The burst that a user of the API server was seen to suffer from.
const BURST: usize = 2000;

/// What one run of one mode showed.
struct Run {
    served: Duration,
    reported: Duration,
    /// Writes to the API server by the operator.
    writes: u64,
    /// PATCHes to PowerDNS, by the operator's own count.
    patches: f64,
    /// How far the zone's serial moved.
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
pub(crate) async fn run(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let direct = Direct::new(&bench.powerdns)?;
    let client = bench.cluster.client();

    bench.say("start-up: the operator with one zone and nothing in it");
    let namespace = bench.cluster.namespace("bench-start").await;
    world::create_zone(&client, &namespace, "start.bench").await?;
    let mut operator = bench.operator(&namespace)?;
    let startup = operator.ready(DEADLINE).await?;
    operator.stop().await?;
    world::clear(&client, &namespace).await?;
    figures.push(Figure::new("converge.startup", seconds(startup), "s", Goal::AtMost(2.0)));

    bench.say("per-record strategy: 1,000 record sets, one at a time");
    let namespace = bench.cluster.namespace("bench-per-record").await;
    world::create_rrsets(&client, &namespace, "per-record.bench", 1000).await?;
    direct.create_zone("per-record.bench").await?;
    let per_record = strategies::per_record(&client, &direct, &namespace, "per-record.bench", 1000).await?;
    world::clear(&client, &namespace).await?;
    figures.push(Figure::new("converge.per_record.1000", seconds(per_record), "s", Goal::Told));

    let (alone, bare) = no_operator(bench, &direct, 1000, figures).await?;

    let waiting = waiting(bench, &direct, 1000, figures).await?;
    figures.push(Figure::new(
        "converge.waiting.1000.speedup",
        seconds(per_record) / seconds(waiting.served),
        "x",
        Goal::AtLeast(20.0),
    ));
    let beyond_start = waiting.reported.saturating_sub(startup);
    figures.push(Figure::new(
        "converge.waiting.1000.of_bare",
        seconds(beyond_start) / seconds(bare),
        "x",
        Goal::AtMost(1.5),
    ));

    let many = self::waiting(bench, &direct, 10_000, figures).await?;
    figures.push(Figure::new(
        "converge.waiting.growth",
        seconds(many.served) / seconds(waiting.served),
        "x",
        Goal::AtMost(12.0),
    ));

    for n in [1000, BURST, 10_000] {
        // Creating so many without an operator, and the bare cost of reporting them, in the same run.
        let (alone, bare) = if n == 1000 { (alone, bare) } else { no_operator(bench, &direct, n, figures).await? };
        let arriving = arriving(bench, &direct, n, (alone, bare), figures).await?;
        if n == 1000 {
            // Those two start with everything there; this one also waits for the last to be created.
            for (name, other) in [("of_per_record", per_record), ("of_bare", bare)] {
                let name = format!("converge.arriving.1000.{name}");
                figures.push(Figure::new(name, seconds(arriving.reported) / seconds(other), "x", Goal::Told));
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
    figures: &mut Figures,
) -> anyhow::Result<(Duration, Duration)> {
    bench.say(&format!("no operator: {n} record sets are created and written by hand"));
    let client = bench.cluster.client();
    let namespace = bench.cluster.namespace("bench-bare").await;
    let zone = format!("bare-{n}.bench");
    direct.create_zone(&zone).await?;
    let start = Instant::now();
    world::create_rrsets(&client, &namespace, &zone, n).await?;
    let alone = start.elapsed();
    let bare = strategies::bare(&client, direct, &namespace, &zone, n).await?;
    world::clear(&client, &namespace).await?;
    direct.delete_zone(&zone).await?;
    figures.push(Figure::new(format!("converge.alone.{n}"), seconds(alone), "s", Goal::Told));
    figures.push(Figure::new(format!("converge.bare.{n}"), seconds(bare), "s", Goal::Told));
    Ok((alone, bare))
}

async fn waiting(bench: &Bench, direct: &Direct, n: usize, figures: &mut Figures) -> anyhow::Result<Run> {
    bench.say(&format!("waiting: {n} record sets exist, the operator starts"));
    let client = bench.cluster.client();
    let namespace = bench.cluster.namespace("bench-waiting").await;
    let zone = format!("waiting-{n}.bench");
    world::create_zone(&client, &namespace, &zone).await?;
    world::create_rrsets(&client, &namespace, &zone, n).await?;
    let writes = world::writes_seen(&client).await?;
    let operator = bench.operator(&namespace)?;
    let start = operator.started();
    let (served, reported) = tokio::try_join!(
        world::all_served(bench.powerdns.dns_addr(), &zone, n, 0, DEADLINE),
        world::all_reported(&client, &namespace, n, DEADLINE)
    )?;
    settle(&client).await?;
    let writes = world::writes_seen(&client).await? - writes;
    let run = Run::of(&operator, direct, &zone, [served - start, reported - start], writes).await?;
    tell(figures, &format!("converge.waiting.{n}"), &run, n);

    bench.say(&format!("waiting: all {n} change, then nothing changes"));
    let writes = world::writes_seen(&client).await?;
    world::change_rrsets(&client, &namespace, &zone, n, 1).await?;
    world::all_served(bench.powerdns.dns_addr(), &zone, n, 1, DEADLINE).await?;
    world::all_reported(&client, &namespace, n, DEADLINE).await?;
    settle(&client).await?;
    let ours = (world::writes_seen(&client).await? - writes).saturating_sub(n as u64);
    figures.push(Figure::new(
        format!("converge.change.{n}.writes_per_object"),
        per(ours, n),
        "writes",
        Goal::AtMost(1.1),
    ));
    operator.stop().await?;

    bench.say(&format!("second pass over {n} unchanged record sets"));
    let (writes, serial) = (world::writes_seen(&client).await?, direct.serial(&zone).await?);
    let mut operator = bench.operator(&namespace)?;
    operator.ready(DEADLINE).await?;
    // Ready is before the first pass: what counts is that one has compared everything and ended.
    operator.reached("signpost_powerdns_reads_total{depth=\"records\"}", 1.0, DEADLINE).await?;
    operator.reached("signpost_passes_total{system=\"powerdns\",outcome=\"done\"}", 1.0, DEADLINE).await?;
    settle(&client).await?;
    let again = world::writes_seen(&client).await? - writes + (direct.serial(&zone).await? - serial);
    figures.push(Figure::new(format!("converge.again.{n}.writes"), count(again), "writes", Goal::AtMost(0.0)));
    operator.stop().await?;
    world::clear(&client, &namespace).await?;
    direct.delete_zone(&zone).await?;
    Ok(run)
}

async fn arriving(
    bench: &Bench,
    direct: &Direct,
    n: usize,
    (alone, bare): (Duration, Duration),
    figures: &mut Figures,
) -> anyhow::Result<Run> {
    bench.say(&format!("arriving: the operator runs, {n} record sets are created"));
    let client = bench.cluster.client();
    let namespace = bench.cluster.namespace("bench-arriving").await;
    let zone = format!("arriving-{n}.bench");
    world::create_zone(&client, &namespace, &zone).await?;
    let mut operator = bench.operator(&namespace)?;
    operator.ready(DEADLINE).await?;
    settle(&client).await?;
    let before = world::writes_seen(&client).await?;
    let start = Instant::now();
    let (created_at, served_at, reported) = tokio::try_join!(
        world::create_rrsets(&client, &namespace, &zone, n),
        world::each_served(bench.powerdns.dns_addr(), &zone, n, 0, DEADLINE),
        world::all_reported(&client, &namespace, n, DEADLINE)
    )?;
    let last = |at: &[Instant]| at.iter().max().copied().unwrap_or(start);
    let (created, served) = (last(&created_at) - start, last(&served_at));
    let mut waits: Vec<Duration> =
        created_at.iter().zip(&served_at).map(|(created, served)| served.saturating_duration_since(*created)).collect();
    waits.sort_unstable();
    settle(&client).await?;
    let writes = (world::writes_seen(&client).await? - before).saturating_sub(n as u64);
    let run = Run::of(&operator, direct, &zone, [served - start, reported - start], writes).await?;
    let name = format!("converge.arriving.{n}");
    figures.push(Figure::new(format!("{name}.creation"), seconds(created), "s", Goal::Told));
    // Users of the API server feel the operator as little as this.
    figures.push(Figure::new(format!("{name}.of_alone"), seconds(created) / seconds(alone), "x", Goal::AtMost(1.5)));
    let reporting = run.reported.saturating_sub(created);
    figures.push(Figure::new(
        format!("{name}.reported_of_bare"),
        seconds(reporting) / seconds(bare),
        "x",
        Goal::AtMost(1.5),
    ));
    let p99 = waits.get(waits.len() * 99 / 100).copied().unwrap_or_default();
    figures.push(Figure::new(format!("{name}.p99_create_to_served"), seconds(p99), "s", Goal::Told));
    let after = run.served.saturating_sub(created);
    figures.push(Figure::new(
        format!("{name}.lag_of_creation"),
        seconds(after) / seconds(created),
        "x",
        Goal::AtMost(0.10),
    ));
    tell(figures, &name, &run, n);
    operator.stop().await?;
    world::clear(&client, &namespace).await?;
    direct.delete_zone(&zone).await?;
    Ok(run)
}

fn tell(figures: &mut Figures, name: &str, run: &Run, n: usize) {
    let mut told =
        |what: &str, value, unit, goal| figures.push(Figure::new(format!("{name}.{what}"), value, unit, goal));
    told("served", seconds(run.served), "s", Goal::Told);
    told("reported", seconds(run.reported), "s", Goal::Told);
    told("patches", run.patches, "PATCHes", Goal::Told);
    // Making the zone is the first step, every PATCH one more.
    told("serial", count(run.steps), "steps", Goal::AtMost(run.patches + 1.0));
    told("writes_per_object", per(run.writes, n), "writes", Goal::AtMost(2.1));
    told("cpu", run.cpu, "s", Goal::Told);
    told("rss", run.rss, "MB", Goal::AtMost(60.0));
    told("rss_peak", run.peak, "MB", Goal::Told);
}

/// Waits until the API server sees no more writes: two equal counts half a second apart.
async fn settle(client: &kube::Client) -> anyhow::Result<()> {
    let mut last = world::writes_seen(client).await?;
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = world::writes_seen(client).await?;
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
