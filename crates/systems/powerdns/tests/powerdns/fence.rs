//! A replica that may not write any more sends nothing more, however far a pass has come. Sandbox and in-memory server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use kube::{Api, api::PostParams};
use signpost_apis::powerdns::{RRset, Zone};
use signpost_engine::{
    Operator, OperatorError, OperatorOptions,
    lease::{LeaseOptions, Role},
};
use signpost_provider_powerdns::{Call, Fault, MemoryServer, ZoneServer};
use signpost_sandbox::{FaultPlan, Session};
use signpost_system_powerdns::{Pace, install_with};
use signpost_testkit::{eventually, sandbox_cluster};
use tokio_util::sync::CancellationToken;

use crate::rig::{PATIENCE, fast, rrset, zone_spec};

const NAME: &str = "fenced.example";

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leader_that_loses_its_lease_in_the_middle_of_a_batch_sends_nothing_more() {
    let cluster = sandbox_cluster().await;
    cluster.install(&signpost_apis::powerdns::crds()).await;
    let namespace = cluster.namespace("fence").await;
    let zones: Api<Zone> = Api::namespaced(cluster.client(), &namespace);
    let sets: Api<RRset> = Api::namespaced(cluster.client(), &namespace);
    let zone = Zone::new(NAME, serde_json::from_value(zone_spec()).unwrap());
    zones.create(&PostParams::default(), &zone).await.unwrap();
    // More than one PATCH can carry.
    let text = vec![format!("\"{}\"", "x".repeat(250)); 200].join(" ");
    for n in 0..50 {
        let name = format!("r{n}");
        let spec = serde_json::from_value(rrset(NAME, "Zone", &name, "TXT", &[&text])).unwrap();
        sets.create(&PostParams::default(), &RRset::new(&name, spec)).await.unwrap();
    }

    // From the first PATCH on the lease cannot be renewed, and that PATCH is answered when it has run out: as if the
    // process had been frozen in the middle of it.
    let lost = Arc::new(AtomicBool::new(false));
    let losing = lost.clone();
    let session = Session::new(FaultPlan::new(move |info, _| {
        if info.resource == "leases" && losing.load(Ordering::SeqCst) {
            return signpost_sandbox::Fault::status(500, "InternalError", "not now");
        }
        signpost_sandbox::Fault::None
    }));
    let lease = LeaseOptions {
        duration: Duration::from_secs(12),
        renew_deadline: Duration::from_secs(6),
        retry: Duration::from_millis(200),
        ..LeaseOptions::new(&namespace, "signpost")
    };
    let options = OperatorOptions { lease: Some(lease), ..OperatorOptions::default() };
    let mut operator = Operator::new(cluster.sandbox().unwrap().session_client(&session), options);
    let role = operator.role();
    let memory = MemoryServer::new();
    memory.set_gate(Some(Arc::new(move |call| {
        let until = Instant::now() + PATIENCE;
        if matches!(call, Call::Patch(..)) && !lost.swap(true, Ordering::SeqCst) {
            while *role.borrow() == Role::Leader && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Fault::None
    })));
    let server: Arc<dyn ZoneServer> = Arc::new(memory.clone());
    // The health check keeps it until it next wakes up.
    install_with(&mut operator, server.clone(), Pace { probe: Duration::from_secs(1), ..fast() });
    let ended = tokio::spawn(operator.run(CancellationToken::new())).await.unwrap();
    assert!(matches!(ended, Err(OperatorError::LeaseLost)), "{ended:?}");
    eventually("the pass has ended", PATIENCE, || async {
        let holders = Arc::strong_count(&server);
        if holders == 1 { Ok(()) } else { Err(holders) }
    })
    .await;
    let writes: Vec<Call> = memory.log().into_iter().filter(Call::is_write).collect();
    let patches = writes.iter().filter(|call| matches!(call, Call::Patch(..))).count();
    assert_eq!(patches, 1, "the batch had more to send: {writes:?}");
    assert!(matches!(writes.last(), Some(Call::Patch(..))), "{writes:?}");
}
