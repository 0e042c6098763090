//! Calls of the benchmarks to the API server and the name server: create zones and record sets, wait until they are served and reported,
//! count the writes of the API server.

use std::collections::BTreeSet;
use std::iter::StepBy;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use hickory_proto::op::{Message, Query};
use hickory_proto::rr::{Name, RData, RecordType};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::net::UdpSocket;

/// Concurrent writes to the API server; more are not faster on two cores.
pub(crate) const WRITERS: usize = 16;

/// Runs `each` for every item, [`WRITERS`] at once; the first error ends it.
pub(crate) async fn at_full_speed<T, F: Future<Output = anyhow::Result<()>>>(
    items: impl IntoIterator<Item = T>,
    each: impl Fn(T) -> F,
) -> anyhow::Result<()> {
    stream::iter(items).map(each).buffer_unordered(WRITERS).try_collect().await
}

/// API of a powerdns kind in a namespace.
pub(crate) fn api(client: &Client, kind: &str, plural: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "dns.cav.enablers.ob".into(),
        version: "v1alpha2".into(),
        api_version: "dns.cav.enablers.ob/v1alpha2".into(),
        kind: kind.into(),
        plural: plural.into(),
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Record sets of a namespace.
pub(crate) fn rrsets(client: &Client, namespace: &str) -> Api<DynamicObject> {
    api(client, "RRset", "rrsets", Some(namespace))
}

/// Creates a namespaced zone whose serial increases by one with every PATCH, so that the serial counts them.
pub(crate) async fn create_zone(client: &Client, namespace: &str, zone: &str) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "Zone",
        "metadata": {"name": zone, "namespace": namespace},
        "spec": {"kind": "Native", "nameservers": [format!("ns1.{zone}")], "soa_edit_api": "INCREASE"},
    });
    api(client, "Zone", "zones", Some(namespace))
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    Ok(())
}

/// Name of the nth record set's owner, relative to its zone.
pub(crate) fn host(n: usize) -> String {
    format!("host-{n:05}")
}

/// Address of the nth record set in a given edition of the test data.
pub(crate) fn address(n: usize, edition: u8) -> String {
    format!("10.{edition}.{}.{}", n / 256, n % 256)
}

/// The nth record set of a zone.
pub(crate) fn rrset(namespace: &str, zone: &str, n: usize, edition: u8) -> serde_json::Value {
    json!({
        "apiVersion": "dns.cav.enablers.ob/v1alpha2", "kind": "RRset",
        "metadata": {"name": format!("{}.{zone}", host(n)), "namespace": namespace},
        "spec": {"type": "A", "name": host(n), "ttl": 300, "records": [address(n, edition)], "zoneRef": {"name": zone, "kind": "Zone"}},
    })
}

/// Creates `count` record sets at full speed; returns when each of them was created.
pub(crate) async fn create_rrsets(
    client: &Client,
    namespace: &str,
    zone: &str,
    count: usize,
) -> anyhow::Result<Vec<Instant>> {
    let api = &rrsets(client, namespace);
    let created = Mutex::new(vec![Instant::now(); count]);
    at_full_speed(0..count, async |n| {
        let object: DynamicObject = serde_json::from_value(rrset(namespace, zone, n, 0))?;
        api.create(&PostParams::default(), &object).await?;
        created.lock().unwrap_or_else(PoisonError::into_inner)[n] = Instant::now();
        Ok(())
    })
    .await?;
    Ok(created.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Changes every record set to its address of another edition.
pub(crate) async fn change_rrsets(
    client: &Client,
    namespace: &str,
    zone: &str,
    count: usize,
    edition: u8,
) -> anyhow::Result<()> {
    let api = &rrsets(client, namespace);
    at_full_speed(0..count, async |n| {
        let patch = json!({"spec": {"records": [address(n, edition)]}});
        api.patch(&format!("{}.{zone}", host(n)), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    })
    .await
}

/// Queries one A record; `None` when the name does not exist (yet). A late answer to an earlier query is ignored.
pub(crate) async fn ask(socket: &UdpSocket, server: SocketAddr, name: &str) -> anyhow::Result<Option<String>> {
    let mut query = Message::query();
    query.add_query(Query::query(Name::from_ascii(name)?, RecordType::A));
    socket.send_to(&query.to_vec()?, server).await?;
    let answer = async {
        let mut buffer = [0_u8; 1500];
        loop {
            let (length, _) = socket.recv_from(&mut buffer).await?;
            let answer = Message::from_vec(&buffer[..length])?;
            if answer.metadata.id == query.metadata.id && answer.queries == query.queries {
                return anyhow::Ok(answer);
            }
        }
    };
    let Ok(answer) = tokio::time::timeout(Duration::from_millis(500), answer).await else { return Ok(None) };
    Ok(answer?.answers.iter().find_map(|record| match &record.data {
        RData::A(address) => Some(address.0.to_string()),
        _ => None,
    }))
}

/// Waits until every name answers with its address; returns when the last did.
pub(crate) async fn all_served(
    server: SocketAddr,
    zone: &str,
    count: usize,
    edition: u8,
    deadline: Duration,
) -> anyhow::Result<Instant> {
    let served = each_served(server, zone, count, edition, deadline).await?;
    served.into_iter().max().context("no name was asked for")
}

/// Waits until every name answers with its address; returns when each first did. The first name is queried until it answers, so that
/// waiting costs few queries; then all others, several at once.
pub(crate) async fn each_served(
    server: SocketAddr,
    zone: &str,
    count: usize,
    edition: u8,
    deadline: Duration,
) -> anyhow::Result<Vec<Instant>> {
    const ASKING: usize = 8;
    let start = Instant::now();
    let served = async |names: StepBy<Range<usize>>| {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let mut at = Vec::new();
        for n in names {
            let name = format!("{}.{zone}.", host(n));
            let wanted = address(n, edition);
            while ask(&socket, server, &name).await?.as_deref() != Some(&wanted) {
                if start.elapsed() > deadline {
                    bail!("{name} was not served with {wanted} after {deadline:?}");
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            at.push((n, Instant::now()));
        }
        anyhow::Ok(at)
    };
    served((0..1).step_by(1)).await?;
    let all = try_join_all((0..ASKING).map(|first| served((first..count).step_by(ASKING)))).await?;
    let mut at: Vec<(usize, Instant)> = all.into_iter().flatten().collect();
    at.sort_unstable();
    Ok(at.into_iter().map(|(_, at)| at).collect())
}

/// Waits until every record set of the namespace reports Succeeded for its current generation.
pub(crate) async fn all_reported(
    client: &Client,
    namespace: &str,
    count: usize,
    deadline: Duration,
) -> anyhow::Result<Instant> {
    let mut done = BTreeSet::new();
    let mut events = Box::pin(watcher(rrsets(client, namespace), watcher::Config::default().any_semantic()));
    let start = Instant::now();
    while done.len() < count {
        let event = tokio::time::timeout(deadline.saturating_sub(start.elapsed()), events.next())
            .await
            .with_context(|| {
                format!("only {} of {count} record sets were reported as done after {deadline:?}", done.len())
            })?
            .context("the watch ended")??;
        if let watcher::Event::Apply(object) | watcher::Event::InitApply(object) = event {
            let status = &object.data["status"];
            if status["syncStatus"] == "Succeeded"
                && status["observedGeneration"].as_i64() == object.metadata.generation
            {
                done.insert(object.name_any());
            } else {
                done.remove(&object.name_any());
            }
        }
    }
    Ok(Instant::now())
}

/// Writes of our kinds that the API server has accepted since its start, by its own count.
pub(crate) async fn writes_seen(client: &Client) -> anyhow::Result<u64> {
    writes_of(client, &["dns.cav.enablers.ob", "networking.k8s.io"]).await
}

/// The same, of the kinds of these groups.
pub(crate) async fn writes_of(client: &Client, groups: &[&str]) -> anyhow::Result<u64> {
    let metrics = client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?;
    let mut sum = 0.0;
    for line in metrics.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let ours = groups.iter().any(|group| line.contains(&format!("group=\"{group}\"")));
        let write =
            ["PATCH", "APPLY", "PUT", "POST", "DELETE"].iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")));
        if ours && write && line.contains("code=\"2") {
            sum += line.rsplit(' ').next().unwrap_or("0").parse::<f64>().unwrap_or(0.0);
        }
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a count
    Ok(sum as u64)
}

/// Deletes the objects of a benchmark without an operator: finalizers are removed first.
pub(crate) async fn clear(client: &Client, namespace: &str) -> anyhow::Result<()> {
    for (kind, plural) in [("RRset", "rrsets"), ("Zone", "zones")] {
        let api = &api(client, kind, plural, Some(namespace));
        let names: Vec<String> = api
            .list_metadata(&kube::api::ListParams::default())
            .await?
            .items
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        at_full_speed(names, async |name| {
            let patch = json!({"metadata": {"finalizers": null}});
            let _ = api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
            let _ = api.delete(&name, &DeleteParams::background()).await;
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::A;

    #[tokio::test]
    async fn a_late_answer_to_an_earlier_query_is_ignored() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let late = async {
            let mut asked = Vec::new();
            for _ in 0..2 {
                let mut buffer = [0_u8; 512];
                let (length, from) = server.recv_from(&mut buffer).await.unwrap();
                asked.push((Message::from_vec(&buffer[..length]).unwrap(), from));
            }
            for ((question, from), last) in asked.into_iter().zip(1..) {
                let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
                let query = question.queries[0].clone();
                answer.add_answer(Record::from_rdata(query.name().clone(), 60, RData::A(A::new(192, 0, 2, last))));
                answer.add_query(query);
                server.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
            }
        };
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let asking = async {
            assert_eq!(ask(&socket, address, "a.bench.").await.unwrap(), None, "the first is answered too late");
            ask(&socket, address, "a.bench.").await.unwrap()
        };
        let (answer, ()) = tokio::join!(asking, late);
        assert_eq!(answer.as_deref(), Some("192.0.2.2"));
    }
}
