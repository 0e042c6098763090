use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use signpost_apis::ingress::Ingress;
use signpost_dns::Fqdn;
use signpost_engine::{Job, ObjectId, Operator, OperatorOptions, Queue, RetryClass, Touched};
use signpost_provider_pangolin::{
    DomainId, Matching, MemoryPangolin, NewResource, Resource, ResourceId, RoutePath, SiteId, Target, TargetId,
    TargetSettings,
};
use signpost_sandbox::{Sandbox, SandboxOptions};

use super::{TargetChanges, has_unwanted, target_changes};
use crate::PangolinSystem;
use crate::index::{Key, PangolinIndex};
use crate::observe::{link::Link, schema::Schema};
use crate::plan::api::ingress_mark;
use crate::plan::{Memory, plan};
use crate::settings::{Mode, Policy};

fn wanted(path: Option<&str>, host: &str, priority: u16) -> TargetSettings {
    TargetSettings {
        site: SiteId(1),
        host: host.to_owned(),
        port: 80,
        method: "http".to_owned(),
        enabled: true,
        path: path.map(|path| RoutePath::new(Matching::Exact, path).unwrap()),
        priority,
        health: None,
    }
}

fn have(id: i64, path: Option<&str>, host: &str, priority: u16) -> Target {
    Target {
        id: TargetId(id),
        host: host.to_owned(),
        site: SiteId(1),
        port: 80,
        method: Some("http".to_owned()),
        enabled: true,
        path: path.map(str::to_owned),
        matching: path.map(|_| "exact".to_owned()),
        rewrite: None,
        priority: Some(priority),
        health: None,
        unhealthy: false,
    }
}

#[test]
fn a_target_that_is_as_wanted_is_kept_and_one_of_the_path_is_changed_in_place() {
    let current = [have(1, None, "a", 100), have(2, Some("/x"), "b", 1000)];
    let changes = target_changes(&current, &[wanted(Some("/x"), "c", 1000), wanted(None, "a", 100)]);
    assert_eq!((changes.keep.len(), changes.update.len()), (1, 1));
    assert_eq!(changes.update[0].0.id, TargetId(2));
    assert!(changes.create.is_empty() && changes.delete.is_empty());
}

#[test]
fn one_path_instead_of_another_is_one_change() {
    let current = [have(1, None, "a", 100), have(2, Some("/x"), "b", 1000)];
    let changes = target_changes(&current, &[wanted(None, "a", 100), wanted(Some("/y"), "b", 1000)]);
    assert_eq!((changes.update.len(), changes.create.len(), changes.delete.len()), (1, 0, 0));
}

#[test]
fn specific_routes_are_created_first_and_deleted_last() {
    let current = [have(1, Some("/old"), "b", 1000), have(2, Some("/older"), "b", 102), have(3, None, "a", 100)];
    let changes = target_changes(
        &current,
        &[wanted(Some("/n"), "c", 103), wanted(Some("/new"), "c", 1000), wanted(None, "a", 100)],
    );
    assert_eq!(changes.create.iter().map(|one| one.priority).collect::<Vec<_>>(), [1000, 103]);
    assert_eq!(changes.delete.iter().map(|one| one.id.0).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn a_second_target_of_a_path_is_deleted() {
    let current = [have(1, None, "a", 100), have(2, None, "a", 100), have(3, None, "by-hand", 100)];
    let changes = target_changes(&current, &[wanted(None, "a", 100)]);
    assert_eq!(
        changes,
        TargetChanges { keep: vec![current[0].clone()], delete: current[1..].to_vec(), ..TargetChanges::default() }
    );
}

#[test]
fn a_target_that_changes_or_goes_is_unwanted_and_one_that_stays_is_not() {
    let current = [have(1, None, "a", 100)];
    assert!(has_unwanted(&current, &[wanted(None, "b", 100)]));
    assert!(has_unwanted(&current, &[]));
    assert!(!has_unwanted(&current, &[wanted(None, "a", 100), wanted(Some("/x"), "b", 1000)]));
    assert!(!has_unwanted(&[], &[wanted(None, "a", 100)]));
}

/// Whoever leads now continues. Nothing is wrong with Pangolin, and nothing is logged about it.
#[tokio::test(start_paused = true)]
async fn a_replica_that_no_longer_leads_reports_no_failure_of_pangolin() {
    let operator = Operator::new(Sandbox::new(SandboxOptions::default()).client(), OperatorOptions::default());
    let policy = Arc::new(Policy { mode: Mode::Api, owner: Some("home".to_owned()), ..Policy::default() });
    let id = Arc::new(ObjectId::new::<Ingress>(Some("prod"), "app"));
    let pangolin = MemoryPangolin::new(Vec::new(), Vec::new());
    for (number, host) in [(1, "a.example.com"), (2, "b.example.com")] {
        let new =
            NewResource { name: host.to_owned(), domain: DomainId("d".to_owned()), host: Fqdn::parse(host).unwrap() };
        let nice_id = format!("{}-00000000000{number}", ingress_mark("home", &id));
        let resource = Resource { nice_id, ..Resource::created(ResourceId(number), &new) };
        pangolin.edit(|resources| drop(resources.insert(resource.id, (resource, Vec::new()))));
    }
    let link = Arc::new(Link::new(Arc::new(pangolin.clone())));
    let index = Arc::new(PangolinIndex::new(Arc::clone(&policy), Queue::new(), None));
    let schema = Arc::new(Schema::new(operator.client(), policy.dialect));
    let system = PangolinSystem::new(&operator, policy, index, schema, Some(Arc::clone(&link)));
    let job = Job { key: Key::Ingress(id), touched: Touched::Some([()].into()), attempt: 0 };
    let planned = plan(system.see(&job, Memory::default()).await, Timestamp::UNIX_EPOCH);
    operator.writer().close();
    let applied = system.carry_out(planned).await;
    let none: [String; 0] = [];
    assert_eq!(applied.errors, none);
    assert!(applied.refusals.is_empty() && applied.notes.is_empty(), "{applied:?}");
    assert_eq!(applied.again, Some(RetryClass::Transient));
    assert_eq!(pangolin.stored().len(), 2, "nothing is deleted");
    assert!(link.read(Duration::MAX).await.is_ok(), "Pangolin counts as up");
}
