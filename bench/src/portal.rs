//! `portal`: 10,000 names of 20 DNS objects, looked up with the real PowerDNS on the real API server.
//!
//! On loopback an answer takes a tenth of a millisecond, and lookups beside one another gain little there. So the operator, a bare client and
//! lookups one after another are compared with a name server 20 ms away: the real one behind a relay. The operator's time is that from the
//! creation of the objects to the last lookup. Straight at the name server, the resolver itself is compared with a bare client.
//!
//! Then: writes of statuses while nothing changes, and memory with 20,000 names: checks, discovery and `VERIFY` on, beside `powerdns`, `pihole` and
//! `pangolin` in one process. `router` is not among them, because it watches the whole cluster, and so the objects of other benchmarks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::future::try_join_all;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use signpost_apis::portal::DNS;
use signpost_dns::{Fqdn, RecordType};
use signpost_provider_resolver::{Lookup as _, Options, Reply, Resolvers, Upstream};
use signpost_testkit::pangolin::{ORG, Pangolin};
use signpost_testkit::pihole::PiholeV6;
use tokio::net::UdpSocket;

use crate::measurement::{Goal, Measurement, Measurements};
use crate::operator::Operator;
use crate::relay::Relay;
use crate::servers::{self, address, ask, at_full_speed, host};
use crate::strategies::Direct;
use crate::{Bench, memory, pihole_at, router, seconds};

const ZONE: &str = "portal.bench";
const NAMES: usize = 10_000;
const OBJECTS: usize = 20;
/// Looked up one after another; the time of all of them is in proportion.
const SAMPLE: usize = 2_000;
/// The time between a question and its answer behind the relay.
const AWAY: Duration = Duration::from_millis(20);
/// Lookups at once, of the operator and of the bare client.
const LOOKUPS: usize = 50;
/// Lookups at once straight at the name server: the default.
const DEFAULT_LOOKUPS: usize = 10;
const REFRESH: Duration = Duration::from_secs(30);
/// Refreshes that are watched for writes.
const REFRESHES: usize = 2;
/// Of the 20,000 names for the memory: those of RRsets, and Ingresses with three hosts each.
const RRSETS: usize = 4_000;
const INGRESSES: usize = 2_000;
const DEADLINE: Duration = Duration::from_mins(5);

/// Runs the benchmark.
pub(crate) async fn run(bench: &Bench, measurements: &mut Measurements) -> anyhow::Result<()> {
    bench.cluster.install(&signpost_apis::portal::crds()).await;
    let direct = Direct::new(&bench.powerdns)?;
    direct.create_zone(ZONE).await?;
    for part in 0..2 {
        let names = part * NAMES / 2..(part + 1) * NAMES / 2;
        direct.patch(ZONE, &names.map(|n| Direct::replace(ZONE, n, 0)).collect::<Vec<_>>()).await?;
    }
    let server = bench.powerdns.dns_addr();
    let relay = Relay::start(server, AWAY).await?;
    straight(bench, measurements, server).await?;

    bench.report(&format!("{SAMPLE} names one after another, {AWAY:?} away"));
    // Whoever is first would find the caches of the server empty.
    bare(server, NAMES, LOOKUPS).await?;
    let in_sequence = bare(relay.addr(), SAMPLE, 1).await? * u32::try_from(NAMES / SAMPLE)?;
    bench.report(&format!("{NAMES} names with {LOOKUPS} lookups at once, bare"));
    bare(server, NAMES, LOOKUPS).await?;
    let at_once = bare(relay.addr(), NAMES, LOOKUPS).await?;

    bench.report(&format!("the operator: {NAMES} names of {OBJECTS} DNS objects"));
    let namespace = &bench.cluster.namespace("bench-portal").await;
    let settings = vec![
        ("SIGNPOST_SYSTEMS", "portal".to_owned()),
        ("PORTAL_RESOLVERS", relay.addr().to_string()),
        ("PORTAL_LOOKUPS", LOOKUPS.to_string()),
        ("PORTAL_REFRESH", format!("{}s", REFRESH.as_secs())),
    ];
    let mut operator = bench.start(namespace, &bench.cluster.kubeconfig(), settings)?;
    operator.ready(DEADLINE).await?;
    operator.rest(DEADLINE).await?;
    bare(server, NAMES, LOOKUPS).await?;
    let lookups = format!("signpost_portal_lookups_total{{resolver=\"{}\",result=\"NOERROR\"}}", relay.addr());
    let began = Instant::now();
    create(bench, namespace).await?;
    let created = began.elapsed();
    operator.reached(&lookups, as_f64(NAMES), DEADLINE).await?;
    let looked_up = began.elapsed();
    all_in_sync(bench, namespace).await?;
    let reported = began.elapsed();
    measurements.extend([
        Measurement::new("portal.one_after_another.10000", seconds(in_sequence), "s", Goal::None),
        Measurement::new("portal.bare.10000", seconds(at_once), "s", Goal::None),
        Measurement::new("portal.created", seconds(created), "s", Goal::None),
        Measurement::new("portal.looked_up.10000", seconds(looked_up), "s", Goal::None),
        Measurement::new("portal.reported.10000", seconds(reported), "s", Goal::None),
        Measurement::new("portal.speedup", seconds(in_sequence) / seconds(looked_up), "x", Goal::AtLeast(20.0)),
        Measurement::new("portal.of_bare", seconds(looked_up) / seconds(at_once), "x", Goal::AtMost(1.5)),
    ]);
    at_rest(bench, measurements, &operator, &lookups).await?;
    measurements.push(Measurement::new("portal.rss_10000", operator.rss_mb()?, "MB", Goal::None));
    operator.stop().await?;
    everything(bench, measurements, namespace, &direct).await?;
    direct.delete_zone(ZONE).await
}

/// The nth name.
fn name(n: usize) -> String {
    format!("{}.{ZONE}.", host(n))
}

/// A bare client: so many workers, each with one question at a time, and a new socket for each. An answer to a known port is easily forged, so
/// every resolver uses a port once (RFC 5452).
async fn bare(server: SocketAddr, count: usize, workers: usize) -> anyhow::Result<Duration> {
    by_workers(count, workers, move |n| async move {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let answer = ask(&socket, server, &name(n)).await?;
        anyhow::ensure!(answer == Some(address(n, 0)), "{} is answered with {answer:?}", name(n));
        Ok(())
    })
    .await
}

/// How long so many workers take for so many questions, each worker with one question at a time.
async fn by_workers<F>(
    count: usize,
    workers: usize,
    question: impl Fn(usize) -> F + Clone + Send + Sync + 'static,
) -> anyhow::Result<Duration>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let began = Instant::now();
    let next = Arc::new(AtomicUsize::new(0));
    let worker = || {
        let (next, question) = (next.clone(), question.clone());
        tokio::spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return anyhow::Ok(());
                }
                question(n).await?;
            }
        })
    };
    for ended in try_join_all((0..workers).map(|_| worker())).await? {
        ended?;
    }
    Ok(began.elapsed())
}

/// The resolver against a bare client, straight at the name server.
async fn straight(bench: &Bench, measurements: &mut Measurements, server: SocketAddr) -> anyhow::Result<()> {
    bench.report(&format!("{NAMES} names straight at the name server, {DEFAULT_LOOKUPS} lookups at once"));
    let upstream = Upstream::Server(server);
    let options = Options { resolvers: vec![upstream], concurrency: DEFAULT_LOOKUPS, ..Options::default() };
    let resolvers = Arc::new(Resolvers::new(&options));
    let names = (0..NAMES).map(|n| Fqdn::parse(&name(n))).collect::<Result<Vec<_>, _>>()?;
    bare(server, NAMES, DEFAULT_LOOKUPS).await?;
    let client = bare(server, NAMES, DEFAULT_LOOKUPS).await?;
    let names = Arc::new(names);
    let resolver = by_workers(NAMES, DEFAULT_LOOKUPS, move |n| {
        let (resolvers, names) = (resolvers.clone(), names.clone());
        async move {
            let replies = resolvers.lookup(&names[n], RecordType::A).await;
            let is_found = |reply: &Reply| reply.result.as_ref().is_ok_and(|answer| answer.values.len() == 1);
            anyhow::ensure!(replies.iter().all(is_found), "{} is answered with {replies:?}", names[n]);
            Ok(())
        }
    })
    .await?;
    measurements.extend([
        Measurement::new("portal.straight.bare.10000", seconds(client), "s", Goal::None),
        Measurement::new("portal.straight.resolver.10000", seconds(resolver), "s", Goal::None),
        Measurement::new("portal.straight.of_bare", seconds(resolver) / seconds(client), "x", Goal::AtMost(1.5)),
    ]);
    Ok(())
}

/// Creates the DNS objects at full speed.
async fn create(bench: &Bench, namespace: &str) -> anyhow::Result<()> {
    let api: &Api<DNS> = &Api::namespaced(bench.cluster.client(), namespace);
    let each = NAMES / OBJECTS;
    at_full_speed(0..OBJECTS, async |object| {
        let entry = |n: usize| json!({"fqdn": name(n), "recordType": "A", "targets": [address(n, 0)]});
        let entries: Vec<_> = (object * each..(object + 1) * each).map(entry).collect();
        let dns = json!({"apiVersion": "sreportal.io/v1alpha1", "kind": "DNS", "metadata": {"name": format!("team-{object}")},
            "spec": {"portalRef": "main", "groups": [{"name": "all", "entries": entries}]}});
        api.create(&PostParams::default(), &serde_json::from_value(dns)?).await?;
        Ok(())
    })
    .await
}

/// Waits until every object reports all of its names in sync.
async fn all_in_sync(bench: &Bench, namespace: &str) -> anyhow::Result<()> {
    let api: Api<DNS> = Api::namespaced(bench.cluster.client(), namespace);
    let (began, each) = (Instant::now(), i64::try_from(NAMES / OBJECTS)?);
    loop {
        let all = api.list(&ListParams::default()).await?.items;
        let done = all.iter().filter(|dns| dns.status.as_ref().is_some_and(|status| status.sync == Some(each))).count();
        if done == OBJECTS {
            return Ok(());
        }
        anyhow::ensure!(began.elapsed() < DEADLINE, "{done} of {OBJECTS} objects are in sync after {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Writes while every name is looked up again and nothing changes, per refresh and object.
async fn at_rest(
    bench: &Bench,
    measurements: &mut Measurements,
    operator: &Operator,
    lookups: &str,
) -> anyhow::Result<()> {
    bench.report(&format!("{REFRESHES} refreshes of {REFRESH:?} in which nothing changes"));
    let group = "sreportal.io";
    operator.rest(DEADLINE).await?;
    let client = bench.cluster.client();
    let (writes, asked) = (servers::writes_of(&client, &[group]).await?, operator.counter(lookups).await?);
    operator.reached(lookups, asked + as_f64(NAMES * REFRESHES), DEADLINE).await?;
    operator.rest(DEADLINE).await?;
    let writes = servers::writes_of(&client, &[group]).await? - writes;
    let each = as_f64(usize::try_from(writes)?) / as_f64(OBJECTS * REFRESHES);
    let name = "portal.writes_per_refresh_and_object";
    measurements.push(Measurement::new(name, each, "writes", Goal::AtMost(0.0)));
    Ok(())
}

/// Memory with 20,000 names: those of the DNS objects, of record sets that are verified, and of Ingresses, with four systems in one process.
async fn everything(
    bench: &Bench,
    measurements: &mut Measurements,
    namespace: &str,
    direct: &Direct,
) -> anyhow::Result<()> {
    let (client, zone) = (bench.cluster.client(), "everything.bench");
    bench.report(&format!("{RRSETS} record sets and {INGRESSES} Ingresses beside the DNS objects"));
    bench.cluster.install(&router::foreign_crds()).await;
    servers::create_zone(&client, namespace, zone).await?;
    servers::create_rrsets(&client, namespace, zone, RRSETS).await?;
    // The hosts of the Ingresses exist too.
    direct.create_zone("bench.lan").await?;
    let wildcard = json!({"name": "*.bench.lan.", "type": "A", "ttl": 300, "changetype": "REPLACE",
        "records": [{"content": "192.0.2.1", "disabled": false}]});
    direct.patch("bench.lan", &[wildcard]).await?;
    memory::create(bench, namespace, 0..INGRESSES, false).await?;

    bench.report("the operator with four systems and everything on");
    let (pihole, pangolin) = (PiholeV6::start().await, Pangolin::start().await);
    let server = bench.powerdns.dns_addr();
    let own = vec![
        ("SIGNPOST_SYSTEMS", "powerdns,pihole,portal,pangolin".to_owned()),
        ("PORTAL_RESOLVERS", server.to_string()),
        ("PORTAL_SERVERS", format!("powerdns={server}")),
        ("VERIFY", "true".to_owned()),
        ("PIC_MODE", "api".to_owned()),
        ("PIC_API_URL", pangolin.url()),
        ("PIC_ORG_ID", ORG.to_owned()),
        ("PIC_API_KEY", Pangolin::KEY.to_owned()),
        ("PIC_DEFAULT_TUNNEL_NAME", "cluster".to_owned()),
        ("PIC_RECONCILE_RATE", "0".to_owned()),
    ];
    let settings = [own, bench.powerdns(), pihole_at(&pihole.url())].concat();
    let mut operator = bench.start(namespace, &bench.cluster.kubeconfig(), settings)?;
    operator.ready(DEADLINE).await?;
    let names = NAMES + RRSETS + 3 * INGRESSES;
    let began = Instant::now();
    loop {
        let in_sync = operator.sum("signpost_names{", "status=\"sync\"").await?;
        if in_sync >= as_f64(names) {
            break;
        }
        let all = operator.sum("signpost_names{", "").await?;
        anyhow::ensure!(began.elapsed() < DEADLINE, "{in_sync} of {all} names are in sync, and {names} should be");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let in_sync = operator.started().elapsed();
    servers::all_reported(&client, namespace, RRSETS, DEADLINE).await.context("the record sets")?;
    operator.rest(DEADLINE).await?;
    measurements.extend([
        Measurement::new("portal.everything.in_sync.20000", seconds(in_sync), "s", Goal::None),
        Measurement::new("portal.everything.rss.20000", operator.rss_mb()?, "MB", Goal::AtMost(100.0)),
        Measurement::new("portal.everything.rss_peak", operator.peak_mb()?, "MB", Goal::None),
    ]);
    operator.stop().await?;
    let ingresses: Api<Ingress> = Api::namespaced(client.clone(), namespace);
    ingresses.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let dns: Api<DNS> = Api::namespaced(client.clone(), namespace);
    dns.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    servers::clear(&client, namespace).await?;
    direct.delete_zone("bench.lan").await?;
    direct.delete_zone(zone).await
}

#[allow(clippy::cast_precision_loss)] // thousands
fn as_f64(number: usize) -> f64 {
    number as f64
}
