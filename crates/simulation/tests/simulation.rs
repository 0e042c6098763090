//! Plays a share of the seeds of every system (`make simulate` plays ten thousand), and every scenario file.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use signpost_simulation::{
    bed::Bed,
    command::{self, Settings},
    history::History,
    pangolin::PangolinBed,
    pihole::PiholeBed,
    portal::PortalBed,
    powerdns::PowerDnsBed,
    router::RouterBed,
    run::play,
    shrink::shrink,
};

/// Without optimisation a seed takes about a quarter of a second of CPU time.
const SHARE: u64 = 60;

fn same_trace<B: Bed>() {
    for seed in 0..16 {
        let history = History { replicas: 1 + usize::try_from(seed % 2).unwrap(), ..B::draw(seed) };
        let runs = [play::<B>(&history, true), play::<B>(&history, true)];
        let differ = runs[0].lines.iter().zip(&runs[1].lines).find(|(one, other)| one != other);
        assert_eq!(differ, None, "{} seed {seed}", B::NAME);
        assert_eq!(runs[0].trace, runs[1].trace, "{} seed {seed}", B::NAME);
    }
}

#[test]
fn the_same_seed_of_powerdns_gives_the_same_trace() {
    same_trace::<PowerDnsBed>();
}

#[test]
fn the_same_seed_of_pihole_gives_the_same_trace() {
    same_trace::<PiholeBed>();
}

#[test]
fn the_same_seed_of_pangolin_gives_the_same_trace() {
    same_trace::<PangolinBed>();
}

#[test]
fn the_same_seed_of_router_gives_the_same_trace() {
    same_trace::<RouterBed>();
}

#[test]
fn the_same_seed_of_portal_gives_the_same_trace() {
    same_trace::<PortalBed>();
}

#[test]
fn a_share_of_the_seeds_finds_nothing() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SHARE);
    let settings = Settings { seeds, failures: 3, shrink: true, ..Settings::default() };
    let mut lines = Vec::new();
    let good = command::run(&settings, &mut |line| lines.push(line.to_owned()));
    assert!(good, "{}", lines.join("\n"));
}

fn scenarios<B: Bed>() -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(B::NAME);
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in &files {
        let history: History<B::Action> = History::from_yaml(&std::fs::read_to_string(file).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(play::<B>(&history, false).violations, Vec::<String>::new(), "{}", file.display());
    }
    files.len()
}

#[test]
fn every_scenario_file_of_powerdns_finds_nothing() {
    assert!(scenarios::<PowerDnsBed>() > 0);
}

#[test]
fn every_scenario_file_of_pihole_finds_nothing() {
    assert!(scenarios::<PiholeBed>() > 0);
}

#[test]
fn every_scenario_file_of_pangolin_finds_nothing() {
    assert!(scenarios::<PangolinBed>() > 0);
}

#[test]
fn every_scenario_file_of_router_finds_nothing() {
    assert!(scenarios::<RouterBed>() > 0);
}

#[test]
fn every_scenario_file_of_portal_finds_nothing() {
    assert!(scenarios::<PortalBed>() > 0);
}

#[test]
fn a_history_reads_back_from_its_yaml() {
    for seed in 0..50 {
        let history = PowerDnsBed::draw(seed);
        assert_eq!(History::from_yaml(&history.to_yaml()).unwrap(), history);
        let history = PiholeBed::draw(seed);
        assert_eq!(History::from_yaml(&history.to_yaml()).unwrap(), history);
        let history = PangolinBed::draw(seed);
        assert_eq!(History::from_yaml(&history.to_yaml()).unwrap(), history);
        let history = RouterBed::draw(seed);
        assert_eq!(History::from_yaml(&history.to_yaml()).unwrap(), history);
        let history = PortalBed::draw(seed);
        assert_eq!(History::from_yaml(&history.to_yaml()).unwrap(), history);
    }
}

/// Without an operator nothing is served: the checks must find that, and shrinking must keep what matters.
fn nobody_serves<B: Bed>(seed: u64) {
    let history = History { replicas: 0, ..B::draw(seed) };
    let found = play::<B>(&history, false).violations;
    assert!(!found.is_empty(), "{} seed {seed}", B::NAME);
    let short = shrink::<B>(&history, &found[0]);
    assert!(short.events.len() < history.events.len(), "{}", short.to_yaml());
    assert!(!play::<B>(&short, false).violations.is_empty());
}

#[test]
fn the_checks_of_powerdns_find_that_nobody_serves() {
    nobody_serves::<PowerDnsBed>(1);
}

#[test]
fn the_checks_of_pihole_find_that_nobody_serves() {
    nobody_serves::<PiholeBed>(2);
}

#[test]
fn the_checks_of_pangolin_find_that_nobody_serves() {
    nobody_serves::<PangolinBed>(1);
}

#[test]
fn the_checks_of_router_find_that_nobody_publishes() {
    nobody_serves::<RouterBed>(1);
}

#[test]
fn the_checks_of_portal_find_that_nobody_looks_names_up() {
    nobody_serves::<PortalBed>(1);
}

/// The text of every source file below a folder.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// `cargo test --workspace` leaves out the test of the operator's memory, so `make test` must run it elsewhere.
#[test]
fn make_test_runs_the_memory_test_in_a_fast_build() {
    let makefile = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Makefile")).unwrap();
    let (_, memory) = makefile.split_once("\nmemory:").unwrap();
    let mut recipe = memory.lines().skip(1).take_while(|line| line.starts_with('\t'));
    assert!(recipe.any(|line| line.ends_with("$(TESTS) --bench memory")));
    assert!(makefile.lines().any(|line| line.starts_with("TESTS := ") && line.contains("--profile simulation")));
    assert!(makefile.lines().any(|line| line.starts_with("test:") && line.contains(" memory ")));
}

#[test]
fn every_test_that_the_readme_names_for_a_defect_exists() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(own.join("README.md")).unwrap();
    let (_, table) = readme.split_once("## Which test shows which defect").unwrap();
    let mut text = String::new();
    sources(own.parent().unwrap(), &mut text);
    let names: Vec<&str> = table.split('`').skip(1).step_by(2).filter(|name| name.contains('_')).collect();
    assert!(names.len() > 40, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !text.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_known_defect_can_be_put_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut patches: Vec<_> =
        std::fs::read_dir(root.join("dev/defects")).unwrap().map(|file| file.unwrap().path()).collect();
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    assert!(patches.len() >= 13, "{patches:?}");
    for patch in patches {
        let checked =
            std::process::Command::new("git").args(["apply", "--check"]).arg(&patch).current_dir(root).output();
        let checked = checked.expect("git checks whether a patch applies");
        assert!(checked.status.success(), "{}: {}", patch.display(), String::from_utf8_lossy(&checked.stderr));
    }
}
