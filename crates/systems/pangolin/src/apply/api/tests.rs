use signpost_provider_pangolin::{Matching, RoutePath, SiteId, Target, TargetId, TargetSettings};

use super::{TargetChanges, has_unwanted, target_changes};

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
