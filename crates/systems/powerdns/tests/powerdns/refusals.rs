//! Records that the server refuses, and served records that their user probably did not intend.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use signpost_apis::powerdns::{RRset, RRsetStatus, ZoneStatus};
use signpost_provider_powerdns::{Call, Fault, ServerError};
use signpost_system_powerdns::Pace;
use signpost_testkit::eventually;

use crate::{
    rig::{PATIENCE, fast, rrset},
    scene::{NAME, Scene, without_resync},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loser_keeps_what_it_wrote_until_the_winner_is_written() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let refuses = Arc::new(AtomicBool::new(false));
    let gate = refuses.clone();
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Patch(..) if gate.load(Ordering::SeqCst) => {
            Fault::Before(ServerError::Refused { words: format!("RRset www.{NAME}. IN A: not this one") })
        }
        _ => Fault::None,
    })));
    let pace = Pace { retry_refused: Duration::from_mins(10), ..fast() };
    let replica = scene.start(pace);
    scene.until_zone("Succeeded").await;
    scene.create("older", "www", "TXT", "\"x\"").await;
    scene.until_set("older", "Succeeded").await;
    scene.create_younger("younger", "older", "www", "A", "192.0.2.2").await;
    scene.until_set("younger", "Succeeded").await;
    refuses.store(true, Ordering::SeqCst);
    let patch = json!({ "spec": { "type": "A", "records": ["192.0.2.1"] } });
    scene.sets.patch("older", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    scene.until_set("older", "Failed").await;
    scene.until_set("younger", "Failed").await;
    assert!(scene.status("younger").await.applied.is_some(), "its record is still the one that is served");
    assert_eq!(scene.served().unwrap().len(), 2);
    refuses.store(false, Ordering::SeqCst);
    scene.delete("younger").await;
    scene.until_gone("younger").await;
    scene.delete("older").await;
    scene.until_gone("older").await;
    assert_eq!(scene.served().unwrap(), Vec::<String>::new());
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_older_set_keeps_no_younger_one_from_its_name() {
    let (scene, replica) = Scene::served_by(without_resync()).await;
    replica.stop().await;
    let words = format!("RRset www.{NAME}. IN A: not this one");
    scene.fault_once(|call| matches!(call, Call::Patch(..)), Fault::Before(ServerError::Refused { words }));
    scene.create("older", "www", "A", "192.0.2.1").await;
    scene.create_younger("younger", "older", "www", "CNAME", "web.example.org.").await;
    // No resync: that the server refuses the one is the reason to look at the other.
    let replica = scene.start(without_resync());
    scene.until_set("younger", "Succeeded").await;
    scene.until_set("older", "Failed").await;
    assert_eq!(scene.served().unwrap(), [format!("www.{NAME}. CNAME web.example.org.")]);
    // The served record stays when the other one could be written: a change of the zone object makes it tried again.
    scene.touch_zone("again").await;
    eventually("the change of the zone object is reported", PATIENCE, || async {
        let zone = scene.zones.get(NAME).await.unwrap();
        let status = zone.status.unwrap_or_default();
        if status.observed_generation == zone.metadata.generation { Ok(()) } else { Err(status) }
    })
    .await;
    assert_eq!(scene.served().unwrap(), [format!("www.{NAME}. CNAME web.example.org.")]);
    scene.delete("younger").await;
    scene.until_set("older", "Succeeded").await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_record_costs_no_zone_status_when_it_is_tried_again() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    scene.server.set_gate(Some(Arc::new(|call| match call {
        Call::Patch(..) => {
            Fault::Before(ServerError::Refused { words: format!("RRset www.{NAME}. IN A: not this one") })
        }
        _ => Fault::None,
    })));
    let retry_refused = Duration::from_mins(10);
    let replica = scene.start(Pace { retry_refused, ..fast() });
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Failed").await;
    scene.looks(2).await;
    let sandbox = scene.cluster.sandbox().unwrap();
    sandbox.take_log();
    let patches = || scene.calls(|call| matches!(call, Call::Patch(..)));
    for _ in 0..3 {
        let before = patches();
        scene.clock.skew_by((retry_refused + Duration::from_secs(1)).try_into().unwrap());
        eventually("www is tried again", PATIENCE, || async {
            if patches() > before { Ok(()) } else { Err(patches()) }
        })
        .await;
        scene.looks(2).await;
    }
    let log = sandbox.take_log();
    let writes: Vec<_> = log.iter().filter(|entry| entry.is_write() && entry.info.resource == "zones").collect();
    assert!(writes.is_empty(), "{writes:?}");
    // Once the object is deleted, nothing is listed any more.
    scene.delete("www").await;
    scene.until_gone("www").await;
    scene.until_ledger_clear().await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_record_keeps_no_line_of_another_one_in_the_ledger() {
    let (scene, replica) = Scene::served_by(Pace { retry_refused: Duration::from_mins(10), ..fast() }).await;
    let words = format!("RRset www.{NAME}. IN A: not this one");
    let refuses =
        scene.fault_while(|call| matches!(call, Call::Patch(..)), Fault::Before(ServerError::Refused { words }));
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Failed").await;
    refuses.store(false, Ordering::SeqCst);
    scene.create("api", "api", "A", "192.0.2.1").await;
    scene.until_set("api", "Succeeded").await;
    // A line that stays would claim a record that is written by hand after the object is deleted.
    eventually("only what is refused is listed", PATIENCE, || async {
        let lines = scene.zone_status().await.in_flight;
        if lines.len() == 1 && lines[0].starts_with("www A ") { Ok(()) } else { Err(lines) }
    })
    .await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_whole_zone_takes_few_requests() {
    let pace = || Pace { resync: Duration::from_millis(600), ..Pace::default() };
    let (scene, replica) = Scene::served_by(pace()).await;
    scene.until_ledger_clear().await;
    replica.stop().await;
    let before = scene.calls(|call| matches!(call, Call::Patch(..)));
    let refuses = scene.fault_while(
        |call| matches!(call, Call::Patch(..)),
        Fault::Before(ServerError::Refused { words: format!("Failed to rectify '{NAME}.' Exception") }),
    );
    // All of them are in the first pass of the next process.
    scene.create_many(300).await;
    let replica = scene.start(pace());
    scene.until_set("r299", "Failed").await;
    scene.until_zone("Failed").await;
    scene.looks(3).await;
    let patches = scene.calls(|call| matches!(call, Call::Patch(..))) - before;
    assert!(patches < 30, "{patches} PATCHes for 300 record sets in a zone that takes none");
    let ready = |status: ZoneStatus| status.conditions.into_iter().find(|c| c.type_ == "Ready").unwrap();
    let ready = ready(scene.zone_status().await);
    assert!(ready.reason == "ProviderRejected" && ready.message.contains("rectify"), "{ready:?}");
    // A change of the zone object is a reason to try again.
    refuses.store(false, Ordering::SeqCst);
    scene.touch_zone("again").await;
    scene.until_served(300).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_the_server_refuses_are_not_sent_on_every_pass() {
    let (scene, replica) = Scene::served_by(Pace { resync: Duration::from_millis(300), ..Pace::default() }).await;
    scene.server.set_gate(Some(Arc::new(|call| match call {
        Call::Configure(_) => Fault::Before(ServerError::Refused { words: "no such account".into() }),
        _ => Fault::None,
    })));
    scene.touch_zone("x").await;
    scene.until_zone("Failed").await;
    scene.looks(5).await;
    let sent = || scene.calls(|call| matches!(call, Call::Configure(_)));
    assert_eq!(sent(), 1);
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Succeeded").await;
    assert_eq!(sent(), 1);
    scene.until_zone("Failed").await;
    scene.touch_zone("y").await;
    eventually("other settings are tried at once", PATIENCE, || async {
        if sent() == 2 { Ok(()) } else { Err(sent()) }
    })
    .await;
    replica.stop().await;
}

/// On a clock that only moves when everything waits: a busy machine does not count.
#[tokio::test(start_paused = true)]
async fn a_conflict_that_does_not_end_is_retried_ever_more_slowly() {
    let (scene, replica) = Scene::served_by(without_resync()).await;
    let tries: Arc<Mutex<Vec<tokio::time::Instant>>> = Arc::default();
    let note = tries.clone();
    scene.server.set_gate(Some(Arc::new(move |call| match call {
        Call::Patch(..) => {
            note.lock().unwrap().push(tokio::time::Instant::now());
            Fault::Before(ServerError::Conflict { words: "Conflict".into() })
        }
        _ => Fault::None,
    })));
    scene.create("www", "www", "A", "192.0.2.1").await;
    scene.until_set("www", "Failed").await;
    eventually("it was tried six times", PATIENCE, || async {
        let tried = tries.lock().unwrap().len();
        if tried >= 6 { Ok(()) } else { Err(tried) }
    })
    .await;
    // Pauses double, with jitter: of five, the last is well over the first.
    let tries = tries.lock().unwrap().clone();
    let pauses: Vec<Duration> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[4] > 3 * pauses[0].max(Duration::from_millis(50)), "{pauses:?}");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comment_on_a_server_that_keeps_none_does_not_block_its_record() {
    let scene = Scene::new().await;
    scene.server.refuse_comments();
    scene.zone(json!({})).await;
    let replica = scene.start(fast());
    let mut spec = rrset(NAME, "Zone", "www", "A", &["192.0.2.1"]);
    spec["comment"] = json!("not here");
    let set = RRset::new("www", serde_json::from_value(spec).unwrap());
    scene.sets.create(&PostParams::default(), &set).await.unwrap();
    scene.create("plain", "plain", "A", "192.0.2.2").await;
    scene.until_set("www", "Succeeded").await;
    scene.until_set("plain", "Succeeded").await;
    let notice = |status: RRsetStatus| status.conditions.into_iter().find(|condition| condition.type_ == "Notice");
    let notice_of_www = notice(scene.status("www").await).unwrap();
    assert_eq!((notice_of_www.status.as_str(), notice_of_www.reason.as_str()), ("True", "CommentNotKept"));
    assert_eq!(notice(scene.status("plain").await), None);
    scene.until_served(2).await;
    replica.stop().await;
    // A new process does not try the comment again.
    let writes = || scene.calls(Call::is_write);
    let before = writes();
    let replica = scene.start(Pace { full_read: Duration::from_millis(1), ..fast() });
    scene.looks(4).await;
    assert_eq!(writes(), before);
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_repeats_its_zone_is_served_with_a_warning() {
    let scene = Scene::new().await;
    scene.zone(json!({})).await;
    let replica = scene.start(fast());
    scene.create("api", &format!("api.{NAME}"), "A", "192.0.2.1").await;
    scene.until_set("api", "Succeeded").await;
    assert_eq!(scene.served().unwrap(), [format!("api.{NAME}.{NAME}. A 192.0.2.1")]);
    let status = scene.status("api").await;
    let notice = status.conditions.iter().find(|condition| condition.type_ == "Notice").unwrap();
    assert_eq!((notice.status.as_str(), notice.reason.as_str()), ("True", "NameRepeatsZone"));
    assert!(notice.message.contains("create it with the name api"), "{}", notice.message);
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::all(scene.cluster.client());
    eventually("there is a warning", PATIENCE, || async {
        let items = events.list(&ListParams::default()).await.unwrap().items;
        let warned = |event: &k8s_openapi::api::events::v1::Event| {
            event.type_.as_deref() == Some("Warning") && event.reason.as_deref() == Some("NameRepeatsZone")
        };
        if items.iter().any(warned) { Ok(()) } else { Err(items.len()) }
    })
    .await;
    replica.stop().await;
}
