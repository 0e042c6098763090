//! The command `simulate`: many seeds on all cores, one line per system, and each failing seed shrunk.

use std::{
    env,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Instant,
};

use crate::{
    bed::Bed, history::History, pangolin::PangolinBed, pihole::PiholeBed, portal::PortalBed, powerdns::PowerDnsBed,
    router::RouterBed, run::play, shrink::shrink,
};

/// The systems that are simulated.
const SYSTEMS: [&str; 5] = [PowerDnsBed::NAME, PiholeBed::NAME, PangolinBed::NAME, RouterBed::NAME, PortalBed::NAME];

/// The run.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How many seeds per system.
    pub seeds: u64,
    /// The first seed.
    pub from: u64,
    /// Only this system.
    pub system: Option<String>,
    /// Only this seed.
    pub seed: Option<u64>,
    /// Only this scenario file.
    pub file: Option<String>,
    /// Print the trace of the one seed or file.
    pub trace: bool,
    /// Stop after so many failing seeds of a system.
    pub failures: usize,
    /// Shrink failing seeds.
    pub shrink: bool,
    /// Violations that hold this text do not count: to look for others while one is known.
    pub ignore: Option<String>,
}

impl Settings {
    /// Reads the environment.
    pub fn from_env() -> Result<Self, String> {
        let text = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
        let number = |name: &str, default: u64| match text(name) {
            None => Ok(default),
            Some(text) => text.parse::<u64>().map_err(|_| format!("{name}={text} is not a number")),
        };
        let system = text("SYSTEM");
        if let Some(name) = system.as_deref().filter(|name| !SYSTEMS.contains(name)) {
            return Err(format!("SYSTEM={name} is not simulated; use one of {}", SYSTEMS.join(", ")));
        }
        if text("FILE").is_some() && system.is_none() {
            return Err("FILE needs SYSTEM, whose scenario it is".to_owned());
        }
        Ok(Self {
            seeds: number("SEEDS", 1_000)?,
            from: number("FROM", 0)?,
            system,
            seed: text("SEED").map(|_| number("SEED", 0)).transpose()?,
            file: text("FILE"),
            trace: text("TRACE").is_some(),
            failures: usize::try_from(number("FAILURES", 5)?).unwrap_or(usize::MAX),
            ignore: text("IGNORE"),
            shrink: text("SHRINK").as_deref() != Some("0"),
        })
    }

    fn counts(&self, violation: &str) -> bool {
        self.ignore.as_ref().is_none_or(|ignored| !ignored.split('|').any(|part| violation.contains(part)))
    }

    fn wants(&self, system: &str) -> bool {
        self.system.as_deref().is_none_or(|name| name == system)
    }
}

/// Runs what the settings ask for. True when nothing failed. Several systems share the seeds among them.
pub fn run(settings: &Settings, print: &mut dyn FnMut(&str)) -> bool {
    let systems = SYSTEMS.iter().filter(|name| settings.wants(name)).count();
    let share = settings.seeds.div_ceil(u64::try_from(systems.max(1)).unwrap_or(1));
    let settings = &Settings { seeds: share, ..settings.clone() };
    let mut good = true;
    if settings.wants(PowerDnsBed::NAME) {
        good &= system::<PowerDnsBed>(settings, print);
    }
    if settings.wants(PiholeBed::NAME) {
        good &= system::<PiholeBed>(settings, print);
    }
    if settings.wants(PangolinBed::NAME) {
        good &= system::<PangolinBed>(settings, print);
    }
    if settings.wants(RouterBed::NAME) {
        good &= system::<RouterBed>(settings, print);
    }
    if settings.wants(PortalBed::NAME) {
        good &= system::<PortalBed>(settings, print);
    }
    good
}

/// A seed that failed.
struct Failure<A> {
    history: History<A>,
    violations: Vec<String>,
}

fn system<B: Bed>(settings: &Settings, print: &mut dyn FnMut(&str)) -> bool {
    if let Some(file) = &settings.file {
        let read = std::fs::read_to_string(file).map_err(|error| error.to_string());
        return match read.and_then(|text| History::from_yaml(&text)) {
            Ok(history) => one::<B>(history, settings, print),
            Err(error) => {
                print(&format!("FILE={file}: {error}"));
                false
            }
        };
    }
    if let Some(seed) = settings.seed {
        return one::<B>(B::draw(seed), settings, print);
    }
    let began = Instant::now();
    let next = AtomicU64::new(settings.from);
    let end = settings.from.saturating_add(settings.seeds);
    let (report, reports) = mpsc::channel::<Option<Failure<B::Action>>>();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (mut played, mut failed) = (0, 0);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            let (report, next) = (report.clone(), &next);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let history = B::draw(seed);
                    let mut violations = play::<B>(&history, false).violations;
                    violations.retain(|violation| settings.counts(violation));
                    let failure = (!violations.is_empty()).then_some(Failure { history, violations });
                    if report.send(failure).is_err() {
                        return;
                    }
                }
            });
        }
        drop(report);
        for failure in reports {
            played += 1;
            if let Some(failure) = failure
                && failed < settings.failures
            {
                failed += 1;
                show::<B>(&failure, settings, print);
                if failed == settings.failures {
                    next.store(end, Ordering::Relaxed);
                }
            }
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    print(&format!("simulate {}: {played} seeds from {}, {failed} failures, {seconds:.1} s", B::NAME, settings.from));
    failed == 0
}

fn show<B: Bed>(failure: &Failure<B::Action>, settings: &Settings, print: &mut dyn FnMut(&str)) {
    let Failure { history, violations } = failure;
    print(&format!("SEED={} SYSTEM={} failed:", history.seed, B::NAME));
    for violation in violations.iter().take(8) {
        print(&format!("  {violation}"));
    }
    if settings.shrink {
        let short = shrink::<B>(history, &violations[0]);
        print(&format!("# shrunk from {} to {} events", history.events.len(), short.events.len()));
        print(&short.to_yaml());
    }
}

fn one<B: Bed>(history: History<B::Action>, settings: &Settings, print: &mut dyn FnMut(&str)) -> bool {
    print(&history.to_yaml());
    let played = play::<B>(&history, settings.trace);
    for line in &played.lines {
        print(line);
    }
    let good = played.violations.is_empty();
    print(&format!("SEED={} SYSTEM={}: trace {:016x}", history.seed, B::NAME, played.trace));
    if good {
        print("nothing found");
    } else {
        show::<B>(&Failure { history, violations: played.violations }, settings, print);
    }
    good
}
