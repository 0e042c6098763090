//! `router.answered`: a new ServiceRoute → its name is answered with the address of its gateway, by `router` and `powerdns` in one operator, without
//! external-dns.
//!
//! The bare cost is one apply of a DNSEndpoint, one PATCH of PowerDNS and the same query, one after the other, in the same run. The time of the route
//! starts with the answer of its creation: the operator's own watch has it by then.

use std::time::{Duration, Instant};

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::net::UdpSocket;

use crate::measurement::{Goal, Measurement, Measurements};
use crate::operator::Operator;
use crate::router::{ADDRESS, Apis, DOMAIN};
use crate::servers::{self, address, host};
use crate::strategies::Direct;
use crate::{Bench, seconds};

const ROUNDS: usize = 25;
/// The pause between two routes, so that each is processed alone.
const QUIET: Duration = Duration::from_millis(1200);
const DEADLINE: Duration = Duration::from_mins(3);
const BARE: &str = "router-bare.bench";

/// Runs the benchmark. Everything that it made is deleted at the end.
pub(crate) async fn run(bench: &Bench, measurements: &mut Measurements, apis: &Apis) -> anyhow::Result<()> {
    bench.report("one route → answered, and a bare apply with a bare PATCH, by turns");
    let zones = servers::api(&bench.cluster.client(), "ClusterZone", "clusterzones", None);
    let zone = json!({"apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "ClusterZone", "metadata": {"name": DOMAIN},
        "spec": {"kind": "Native", "nameservers": [format!("ns1.{DOMAIN}")]}});
    zones.patch(DOMAIN, &PatchParams::apply("bench").force(), &Patch::Apply(&zone)).await?;
    let direct = Direct::new(&bench.powerdns)?;
    direct.create_zone(BARE).await?;
    let operator = start(bench, apis)?;
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    let gateway = format!("bench-r0-internal.{DOMAIN}.");
    until_answered(&socket, bench, &gateway, ADDRESS).await?;

    let (mut routes, mut bare) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        tokio::time::sleep(QUIET).await;
        let route = json!({"apiVersion": "routing.router.io/v1alpha1", "kind": "ServiceRoute",
            "metadata": {"name": format!("answered-{round:02}")},
            "spec": {"serviceName": format!("answered{round:02}"), "gatewayName": "gw", "environment": "prod", "application": "app"}});
        apis.routes.create(&PostParams::default(), &serde_json::from_value(route)?).await?;
        let start = Instant::now();
        let name = format!("answered{round:02}-ns-p-prod-app.{DOMAIN}.");
        until_answered(&socket, bench, &name, ADDRESS).await?;
        routes.push(start.elapsed());

        let endpoint = json!({"apiVersion": "externaldns.k8s.io/v1alpha1", "kind": "DNSEndpoint",
            "metadata": {"name": format!("bare-{round:02}")},
            "spec": {"endpoints": [{"dnsName": format!("{}.{BARE}", host(round)), "recordType": "A", "targets": [address(round, 0)]}]}});
        let start = Instant::now();
        let params = PatchParams::apply("bench").force();
        apis.endpoints.patch(&format!("bare-{round:02}"), &params, &Patch::Apply(&endpoint)).await?;
        direct.patch(BARE, &[Direct::replace(BARE, round, 0)]).await?;
        until_answered(&socket, bench, &format!("{}.{BARE}.", host(round)), &address(round, 0)).await?;
        bare.push(start.elapsed());
    }
    routes.sort();
    bare.sort();
    let (answered, bare) = (routes[ROUNDS / 2], bare[ROUNDS / 2]);
    clear(apis, &zones).await?;
    operator.stop().await?;
    direct.delete_zone(BARE).await?;
    measurements.extend([
        Measurement::new("router.bare_apply_and_patch", seconds(bare) * 1000.0, "ms", Goal::None),
        Measurement::new("router.answered", seconds(answered) * 1000.0, "ms", Goal::None),
        Measurement::new("router.answered_slowest", seconds(routes[ROUNDS - 1]) * 1000.0, "ms", Goal::None),
        Measurement::new("router.answered_of_bare", seconds(answered) / seconds(bare), "x", Goal::AtMost(5.0)),
    ]);
    Ok(())
}

fn start(bench: &Bench, apis: &Apis) -> anyhow::Result<Operator> {
    let mut settings = bench.powerdns();
    settings.extend([
        ("KUBECONFIG", bench.cluster.kubeconfig().display().to_string()),
        ("POD_NAMESPACE", apis.namespace.clone()),
        ("SIGNPOST_SYSTEMS", "router,powerdns".to_owned()),
        ("ROUTER_GATEWAY_NAMESPACE", apis.namespace.clone()),
        ("PDNS_DNSENDPOINTS", "true".to_owned()),
        ("PDNS_DNSENDPOINTS_LABELS", "router.io/region=r0".to_owned()),
    ]);
    Operator::start(&bench.operator, &settings, &bench.logs.path().join("router-answered.log"))
}

async fn until_answered(socket: &UdpSocket, bench: &Bench, name: &str, wanted: &str) -> anyhow::Result<()> {
    let start = Instant::now();
    while servers::ask(socket, bench.powerdns.dns_addr(), name).await?.as_deref() != Some(wanted) {
        anyhow::ensure!(start.elapsed() < DEADLINE, "{name} was not answered with {wanted}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Deletes the routes and the zone, and waits until the operator has deleted what it made for them.
async fn clear(apis: &Apis, zones: &kube::Api<kube::api::DynamicObject>) -> anyhow::Result<()> {
    for round in 0..ROUNDS {
        apis.routes.delete(&format!("answered-{round:02}"), &DeleteParams::default()).await?;
        apis.endpoints.delete(&format!("bare-{round:02}"), &DeleteParams::default()).await?;
    }
    zones.delete(DOMAIN, &DeleteParams::default()).await?;
    let start = Instant::now();
    loop {
        let all = apis.endpoints.list_metadata(&ListParams::default()).await?;
        let is_of_route = |name: &String| name.starts_with("answered-");
        let left = all.items.iter().filter_map(|object| object.metadata.name.as_ref()).filter(|name| is_of_route(name));
        if left.count() == 0 && zones.get_metadata_opt(DOMAIN).await?.is_none() {
            return Ok(());
        }
        anyhow::ensure!(start.elapsed() < DEADLINE, "what the routes left was not deleted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
