//! The ledger in the zone object is correct, whatever fails. Sandbox and in-memory server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use signpost_apis::{
    externaldns::{self, DnsEndpoint},
    powerdns::{ClusterZone, FINALIZER, RRset, Zone},
};
use signpost_dns::{Fqdn, ZoneName};
use signpost_engine::OperatorOptions;
use signpost_provider_powerdns::{Call, Fault, MemoryServer, NewZone, ServerError, ZoneServer, ZoneSettings};
use signpost_sandbox::{FaultPlan, Session};
use signpost_system_powerdns::{EndpointSource, Pace};
use signpost_testkit::{Cluster, eventually, sandbox_cluster};

use crate::rig::{PATIENCE, fast, rrset, start_in, start_with, zone_spec};

const NAME: &str = "ledger.example";

async fn world() -> (Cluster, Api<Zone>, Api<RRset>) {
    let cluster = sandbox_cluster().await;
    cluster.install(&signpost_apis::powerdns::crds()).await;
    let namespace = cluster.namespace("ledger").await;
    let zones = Api::namespaced(cluster.client(), &namespace);
    let sets = Api::namespaced(cluster.client(), &namespace);
    (cluster, zones, sets)
}

async fn until_zone(zones: &Api<Zone>, sync: &str) {
    eventually(&format!("the zone is {sync} and its ledger clear"), PATIENCE, || async {
        let status = zones.get(NAME).await.unwrap().status.unwrap_or_default();
        if status.sync_status.as_deref() == Some(sync) && status.in_flight.is_empty() { Ok(()) } else { Err(status) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_made_by_hand_after_its_creation_was_refused_is_not_adopted() {
    let refused = ServerError::Refused { words: "no".into() };
    let conflict = ServerError::Conflict { words: "there already".into() };
    for error in [refused, conflict] {
        let (cluster, zones, _) = world().await;
        let server = MemoryServer::new();
        server.set_gate(Some(Arc::new(move |call| match call {
            Call::Create(_) => Fault::Before(error.clone()),
            _ => Fault::None,
        })));
        let mut spec = zone_spec();
        spec["adoptionPolicy"] = json!("Refuse");
        let object = Zone::new(NAME, serde_json::from_value(spec).unwrap());
        zones.create(&PostParams::default(), &object).await.unwrap();
        let replica = start_with(cluster.client(), Arc::new(server.clone()), fast());
        until_zone(&zones, "Failed").await;
        replica.stop().await;
        server.set_gate(None);
        let by_hand = NewZone {
            name: ZoneName::parse(NAME).unwrap(),
            kind: "Native".into(),
            nameservers: vec![Fqdn::parse("ns9.elsewhere.example").unwrap()],
            settings: ZoneSettings::default(),
        };
        server.create(&by_hand).await.unwrap();
        let replica = start_with(cluster.client(), Arc::new(server.clone()), fast());
        eventually("the zone is somebody else's", PATIENCE, || async {
            let status = zones.get(NAME).await.unwrap().status.unwrap_or_default();
            let foreign = status.conditions.iter().any(|condition| condition.reason == "ForeignRecord");
            if foreign { Ok(()) } else { Err(status) }
        })
        .await;
        zones.delete(NAME, &DeleteParams::default()).await.unwrap();
        eventually("the object is gone", PATIENCE, || async { zones.get_opt(NAME).await.unwrap().map_or(Ok(()), Err) })
            .await;
        assert!(server.contents(&by_hand.name).is_some());
        replica.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_while_the_ledger_cannot_be() {
    let (cluster, zones, sets) = world().await;
    let server = MemoryServer::new();
    let object = Zone::new(NAME, serde_json::from_value(zone_spec()).unwrap());
    zones.create(&PostParams::default(), &object).await.unwrap();
    let (refuse, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (refusing, count) = (refuse.clone(), refused.clone());
    let session = Session::new(FaultPlan::new(move |info, _| {
        let status = info.is_write() && info.resource == "zones" && info.subresource == "status";
        if status && refusing.load(Ordering::SeqCst) {
            count.fetch_add(1, Ordering::SeqCst);
            return signpost_sandbox::Fault::status(403, "Forbidden", "not now");
        }
        signpost_sandbox::Fault::None
    }));
    let client = cluster.sandbox().unwrap().session_client(&session);
    let pace = Pace { resync: Duration::from_mins(10), ..fast() };
    let replica = start_with(client, Arc::new(server.clone()), pace);
    until_zone(&zones, "Succeeded").await;
    let made = server.log().len();
    refuse.store(true, Ordering::SeqCst);
    let spec = serde_json::from_value(rrset(NAME, "Zone", "www", "A", &["192.0.2.1"])).unwrap();
    sets.create(&PostParams::default(), &RRset::new("www", spec)).await.unwrap();
    let patches = || server.log()[made..].iter().filter(|call| matches!(call, Call::Patch(..))).count();
    eventually("it was tried three times", PATIENCE, || async {
        let so_far = refused.load(Ordering::SeqCst);
        if so_far >= 3 || patches() > 0 { Ok(()) } else { Err(so_far) }
    })
    .await;
    assert_eq!(patches(), 0, "what is not in the ledger is not sent");
    eventually("the record set says what it waits for", PATIENCE, || async {
        let status = sets.get("www").await.unwrap().status.unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let told = ready.is_some_and(|ready| {
            ready.reason == "ZoneNotReady" && ready.message.contains("the zone object cannot be written")
        });
        if told { Ok(()) } else { Err(status) }
    })
    .await;
    refuse.store(false, Ordering::SeqCst);
    eventually("it is served", PATIENCE, || async { if patches() == 1 { Ok(()) } else { Err(patches()) } }).await;
    until_zone(&zones, "Succeeded").await;
    replica.stop().await;
}

async fn until_set(sets: &Api<RRset>, name: &str, generation: i64) {
    eventually(&format!("{name} says that it is served"), PATIENCE, || async {
        let status = sets.get(name).await.unwrap().status.unwrap_or_default();
        let current = status.observed_generation == Some(generation);
        if current && status.sync_status.as_deref() == Some("Succeeded") { Ok(()) } else { Err(status) }
    })
    .await;
}

fn record(rtype: &str, record: &str) -> serde_json::Value {
    rrset(NAME, "Zone", "www", rtype, &[record])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_changed_before_the_status_could_be_written_is_one_patch_and_no_gap() {
    let (cluster, zones, sets) = world().await;
    let server = MemoryServer::new();
    let object = Zone::new(NAME, serde_json::from_value(zone_spec()).unwrap());
    zones.create(&PostParams::default(), &object).await.unwrap();
    let refuse = Arc::new(AtomicBool::new(true));
    let refusing = refuse.clone();
    let session = Session::new(FaultPlan::new(move |info, _| {
        let write = info.is_write() && info.resource == "rrsets";
        if write && refusing.load(Ordering::SeqCst) {
            return signpost_sandbox::Fault::status(503, "ServiceUnavailable", "not now");
        }
        signpost_sandbox::Fault::None
    }));
    let client = cluster.sandbox().unwrap().session_client(&session);
    let pace = Pace { resync: Duration::from_hours(1), ..fast() };
    let replica = start_with(client, Arc::new(server.clone()), pace);
    until_zone(&zones, "Succeeded").await;
    // With the zone came its start of authority.
    let made = server.log().len();
    let spec = serde_json::from_value(record("A", "192.0.2.1")).unwrap();
    sets.create(&PostParams::default(), &RRset::new("www", spec)).await.unwrap();
    let zone = ZoneName::parse(NAME).unwrap();
    let types = || {
        let sets = server.contents(&zone).map(|contents| contents.sets).unwrap_or_default();
        let here = sets.iter().filter(|set| set.name != *zone.name());
        here.map(|set| set.rtype.to_string()).collect::<Vec<_>>()
    };
    eventually("the address is served", PATIENCE, || async { if types() == ["A"] { Ok(()) } else { Err(types()) } })
        .await;
    let patches = || {
        let log = server.log().into_iter().skip(made);
        log.filter_map(|call| if let Call::Patch(_, sets) = call { Some(sets) } else { None }).collect::<Vec<_>>()
    };
    assert_eq!(patches(), [1]);
    let patch = kube::api::Patch::Merge(json!({ "spec": record("CNAME", "web.example.org.") }));
    sets.patch("www", &kube::api::PatchParams::default(), &patch).await.unwrap();
    eventually("the alias is served", PATIENCE, || async { if types() == ["CNAME"] { Ok(()) } else { Err(types()) } })
        .await;
    assert_eq!(patches(), [1, 2], "the old type and the new one in one PATCH");
    refuse.store(false, Ordering::SeqCst);
    until_set(&sets, "www", 2).await;
    until_zone(&zones, "Succeeded").await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_new_record_set_is_four_writes_and_one_change_is_two() {
    let (cluster, zones, sets) = world().await;
    let sandbox = cluster.sandbox().unwrap();
    let server = MemoryServer::new();
    let object = Zone::new(NAME, serde_json::from_value(zone_spec()).unwrap());
    zones.create(&PostParams::default(), &object).await.unwrap();
    let pace = Pace { resync: Duration::from_hours(1), ..fast() };
    let replica = start_with(cluster.client(), Arc::new(server.clone()), pace);
    until_zone(&zones, "Succeeded").await;
    let until_told = async || {
        let serial = server.contents(&ZoneName::parse(NAME).unwrap()).unwrap().info.serial;
        eventually("the zone says its serial and its ledger is clear", PATIENCE, || async {
            let status = zones.get(NAME).await.unwrap().status.unwrap_or_default();
            let told = status.serial == Some(i64::from(serial)) && status.in_flight.is_empty();
            if told { Ok(()) } else { Err(status) }
        })
        .await;
    };
    // A write can be seen a moment before it is in the log.
    let until_written = async |expected: &[&str]| {
        let ours = |entry: &signpost_sandbox::RequestLogEntry| {
            entry.is_write() && entry.info.verb == "patch" && ["zones", "rrsets"].contains(&&*entry.info.resource)
        };
        eventually("the writes are in the log", PATIENCE, || async {
            let written = sandbox.log().iter().filter(|entry| ours(entry)).count();
            if written >= expected.len() { Ok(()) } else { Err(written) }
        })
        .await;
        let log = sandbox.take_log().into_iter().filter(ours);
        let written: Vec<_> = log.map(|entry| format!("{} {}", entry.info.resource, entry.info.subresource)).collect();
        assert_eq!(written, expected);
    };
    until_told().await;
    until_written(&["zones ", "zones status"]).await;
    let spec = serde_json::from_value(record("A", "192.0.2.1")).unwrap();
    sets.create(&PostParams::default(), &RRset::new("www", spec)).await.unwrap();
    until_set(&sets, "www", 1).await;
    until_told().await;
    until_written(&["zones status", "rrsets ", "rrsets status", "zones status"]).await;
    let changed = RRset::new("www", serde_json::from_value(record("A", "192.0.2.2")).unwrap());
    let version = sets.get("www").await.unwrap().metadata.resource_version;
    let mut replaced = changed;
    replaced.metadata.resource_version = version;
    replaced.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    sets.replace("www", &PostParams::default(), &replaced).await.unwrap();
    until_set(&sets, "www", 2).await;
    until_told().await;
    until_written(&["rrsets status", "zones status"]).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_whose_name_is_none_can_be_deleted() {
    let (cluster, zones, _) = world().await;
    let name = "x".repeat(70);
    let mut object = Zone::new(&name, serde_json::from_value(zone_spec()).unwrap());
    object.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    zones.create(&PostParams::default(), &object).await.unwrap();
    let replica = start_with(cluster.client(), Arc::new(MemoryServer::new()), fast());
    zones.delete(&name, &DeleteParams::default()).await.unwrap();
    eventually("the object is gone", PATIENCE, || async { zones.get_opt(&name).await.unwrap().map_or(Ok(()), Err) })
        .await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_operators_that_share_a_cluster_zone_do_not_quarrel_about_its_status() {
    let cluster = sandbox_cluster().await;
    cluster.install(&signpost_apis::powerdns::crds()).await;
    let zones: Api<ClusterZone> = Api::all(cluster.client());
    let object = ClusterZone::new(NAME, serde_json::from_value(zone_spec()).unwrap());
    zones.create(&PostParams::default(), &object).await.unwrap();
    // Each sees one namespace and has a server of its own, so each has another serial to tell.
    let mut operators = Vec::new();
    for count in [1, 4] {
        let namespace = cluster.namespace("team").await;
        let server = MemoryServer::new();
        let options = OperatorOptions { namespace: Some(namespace.clone()), ..OperatorOptions::default() };
        let pace = Pace { partial_view: true, ..fast() };
        let replica = start_in(cluster.client(), options, Arc::new(server.clone()), pace);
        let sets: Api<RRset> = Api::namespaced(cluster.client(), &namespace);
        for n in 0..count {
            let name = format!("r{n}");
            let spec = serde_json::from_value(rrset(NAME, "ClusterZone", &name, "A", &["192.0.2.1"])).unwrap();
            sets.create(&PostParams::default(), &RRset::new(&name, spec)).await.unwrap();
            eventually(&format!("{name} of {namespace} is served"), PATIENCE, || async {
                let status = sets.get(&name).await.unwrap().status.unwrap_or_default();
                if status.sync_status.as_deref() == Some("Succeeded") { Ok(()) } else { Err(status) }
            })
            .await;
        }
        let zone = ZoneName::parse(NAME).unwrap();
        assert_eq!(server.contents(&zone).unwrap().sets.len(), count + 2, "its own records, NS and SOA");
        operators.push((server, replica));
    }
    let looks = |server: &MemoryServer| server.log().iter().filter(|call| matches!(call, Call::Zone(_))).count();
    eventually("both look twice and nobody writes", PATIENCE, || async {
        cluster.sandbox().unwrap().take_log();
        let before: Vec<usize> = operators.iter().map(|(server, _)| looks(server)).collect();
        eventually("both look twice", PATIENCE, || async {
            let twice = operators.iter().zip(&before).all(|((server, _), before)| looks(server) >= before + 2);
            if twice { Ok(()) } else { Err(()) }
        })
        .await;
        let log = cluster.sandbox().unwrap().take_log();
        let writes: Vec<_> = log.into_iter().filter(signpost_sandbox::RequestLogEntry::is_write).collect();
        if writes.is_empty() { Ok(()) } else { Err(format!("{} writes, the first {:?}", writes.len(), writes.first())) }
    })
    .await;
    for (_, replica) in operators {
        replica.stop().await;
    }
}

/// Waits until the zone has these addresses on the server, and its object lists these names of endpoints.
async fn until_addresses(server: &MemoryServer, zones: &Api<Zone>, addresses: &[&str], listed: &[&str]) {
    let zone = ZoneName::parse(NAME).unwrap();
    eventually(&format!("{addresses:?} are served, {listed:?} are listed"), PATIENCE, || async {
        let sets = server.contents(&zone).map(|contents| contents.sets).unwrap_or_default();
        let names = sets.iter().filter(|set| set.rtype == signpost_dns::RecordType::A);
        let names: Vec<String> = names.map(|set| zone.relative(&set.name).unwrap_or_default().to_owned()).collect();
        let lines = zones.get(NAME).await.unwrap().status.unwrap_or_default().endpoints;
        let lines: Vec<String> = lines.iter().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect();
        if names == addresses && lines == listed { Ok(()) } else { Err((names, lines)) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_dnsendpoint_kind_stops_no_zone_and_deletes_nothing() {
    let (cluster, zones, sets) = world().await;
    let crd = externaldns::crd();
    cluster.install(std::slice::from_ref(&crd)).await;
    let server = MemoryServer::new();
    let object = Zone::new(NAME, serde_json::from_value(zone_spec()).unwrap());
    let zone = zones.create(&PostParams::default(), &object).await.unwrap();
    let endpoints: Api<DnsEndpoint> = Api::namespaced(cluster.client(), &zone.namespace().unwrap());
    let publish = async |name: &str| {
        let point = json!({ "dnsName": format!("{name}.{NAME}"), "recordType": "A", "targets": ["192.0.2.1"] });
        let object = json!({
            "apiVersion": externaldns::API_VERSION, "kind": "DNSEndpoint",
            "metadata": { "name": name }, "spec": { "endpoints": [point] },
        });
        endpoints.patch(name, &PatchParams::apply("user"), &Patch::Apply(&object)).await.unwrap();
    };
    let pace = || Pace { endpoints: Some(EndpointSource::default()), ..fast() };
    publish("app").await;
    publish("kept").await;
    let replica = start_with(cluster.client(), Arc::new(server.clone()), pace());
    until_addresses(&server, &zones, &["app", "kept"], &["app", "kept"]).await;
    replica.stop().await;

    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client());
    crds.delete(&crd.name_any(), &DeleteParams::default()).await.unwrap();
    let replica = start_with(cluster.client(), Arc::new(server.clone()), pace());
    let spec = serde_json::from_value(rrset(NAME, "Zone", "www", "A", &["192.0.2.7"])).unwrap();
    sets.create(&PostParams::default(), &RRset::new("www", spec)).await.unwrap();
    until_addresses(&server, &zones, &["app", "kept", "www"], &["app", "kept"]).await;
    let passes = |server: &MemoryServer| server.log().iter().filter(|call| matches!(call, Call::Zone(_))).count();
    let before = passes(&server);
    eventually("two more passes", PATIENCE, || async { if passes(&server) >= before + 2 { Ok(()) } else { Err(()) } })
        .await;
    until_addresses(&server, &zones, &["app", "kept", "www"], &["app", "kept"]).await;

    // Installed again, the objects that were deleted with it are known to be deleted.
    cluster.install(&[crd]).await;
    publish("new").await;
    until_addresses(&server, &zones, &["new", "www"], &["new"]).await;
    replica.stop().await;
}
