//! The Pi-holes of a simulation: two lists each, a network to them, and an eye on every write.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use signpost_provider_pihole::{ApplyResult, Capabilities, ChangeSet, Dialect, Line, Listing, Pihole, PiholeError};
use tokio::time::Instant;

use super::action::Speaks;
use crate::{
    provider::{Call, Wire},
    weather::{Class, Effect},
    world::World,
};

/// The deadline of a call.
const DEADLINE: Duration = Duration::from_secs(10);
/// A line that is younger may be lost where lines are deleted by name only, or with the whole list: nobody can have seen it.
pub const YOUNG: Duration = Duration::from_mins(1);

/// A line and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its text.
    pub line: Line,
    /// Whether the operator wrote it.
    pub ours: bool,
    /// Since when.
    pub since: Instant,
}

/// One Pi-hole.
pub struct Twin {
    world: Arc<World>,
    name: String,
    speaks: Speaks,
    lists: Mutex<Lists>,
    /// Whether it was changed by hand.
    by_hand: AtomicBool,
    settings: Mutex<Settings>,
}

/// What a person may set on a Pi-hole v6, and who is logged in.
#[derive(Debug, Default)]
struct Settings {
    /// Since when `misc.readOnly` is on.
    read_only: Option<Instant>,
    /// `dns.cnameRecords` is set by an environment variable.
    locked: bool,
    sessions: BTreeSet<String>,
    logins: u64,
}

/// The lines of a Pi-hole.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// `dns.hosts`.
    pub hosts: Vec<Held>,
    /// `dns.cnameRecords`.
    pub cnames: Vec<Held>,
}

impl Twin {
    /// An empty Pi-hole.
    pub fn new(world: &Arc<World>, name: &str, speaks: Speaks) -> Arc<Self> {
        Arc::new(Self {
            world: world.clone(),
            name: name.to_owned(),
            speaks,
            lists: Mutex::default(),
            by_hand: AtomicBool::new(false),
            settings: Mutex::default(),
        })
    }

    /// Whether it was changed by hand.
    pub fn is_by_hand(&self) -> bool {
        self.by_hand.load(Ordering::Relaxed)
    }

    fn hand(&self) -> MutexGuard<'_, Lists> {
        self.by_hand.store(true, Ordering::Relaxed);
        self.lists()
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The simulation that it is part of.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// A new session.
    pub fn log_in(&self) -> String {
        let mut settings = self.settings();
        settings.logins += 1;
        let sid = format!("sid-{}", settings.logins);
        settings.sessions.insert(sid.clone());
        sid
    }

    /// Whether a session is open.
    pub fn knows(&self, session: &str) -> bool {
        self.settings().sessions.contains(session)
    }

    /// Restarts: every session ends.
    pub fn restart(&self) {
        self.world.note(&format!("{} restarts", self.name));
        self.settings().sessions.clear();
    }

    /// Switches `misc.readOnly`.
    pub fn set_read_only(&self, on: bool) {
        self.world.note(&format!("{} read-only: {on}", self.name));
        self.by_hand.store(true, Ordering::Relaxed);
        let mut settings = self.settings();
        settings.read_only = if on { settings.read_only.or(Some(Instant::now())) } else { None };
    }

    /// Whether its configuration is read-only.
    pub fn is_read_only(&self) -> bool {
        self.settings().read_only.is_some()
    }

    /// Whether that was switched on so late that a request under way need not know.
    pub fn is_newly_read_only(&self) -> bool {
        self.settings().read_only.is_some_and(|since| since.elapsed() < YOUNG)
    }

    /// Sets the list of aliases by an environment variable, or not.
    pub fn lock_aliases(&self, on: bool) {
        self.world.note(&format!("{} aliases locked: {on}", self.name));
        self.settings().locked = on;
    }

    /// Whether the list of aliases is set by an environment variable.
    pub fn is_locked(&self) -> bool {
        self.settings().locked
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its lines.
    pub fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn capabilities(&self) -> Capabilities {
        match self.speaks {
            Speaks::V6 => Capabilities::V6,
            Speaks::V6WithoutComments => Capabilities::V6_WITHOUT_COMMENTS,
            Speaks::Token => Capabilities::SPEC,
        }
    }

    fn listing(&self) -> Listing {
        let lists = self.lists();
        let lines = |held: &[Held]| held.iter().map(|held| held.line.clone()).collect();
        Listing {
            capabilities: self.capabilities(),
            hosts: lines(&lists.hosts),
            cnames: lines(&lists.cnames),
            write_error: None,
        }
    }

    /// Adds a line by hand.
    pub fn add(&self, line: &str) {
        self.world.note(&format!("{} by hand: {line}", self.name));
        self.hand().hosts.push(Held { line: Line::stored(line), ours: false, since: Instant::now() });
    }

    /// Removes a line by hand: one of the operator's or one of the user's.
    pub fn remove(&self, ours: bool, index: usize) {
        let mut lists = self.hand();
        let place =
            lists.hosts.iter().enumerate().filter(|(_, held)| held.ours == ours).nth(index).map(|(place, _)| place);
        if let Some(place) = place {
            let held = lists.hosts.remove(place);
            self.world.note(&format!("{} by hand removed: {}", self.name, held.line));
        }
    }

    /// Loses all lines.
    pub fn wipe(&self) {
        self.world.note(&format!("{} lost its lines", self.name));
        *self.hand() = Lists::default();
    }

    /// A change of the lists; what is not ours must come out of it as it went in.
    fn change(&self, changes: &ChangeSet) {
        let now = Instant::now();
        let by_name = self.speaks == Speaks::Token;
        let mut lists = self.lists();
        let foreign = |lists: &Lists| {
            let old = |held: &&Held| !held.ours && (!by_name || held.since + YOUNG < now);
            let all = lists.hosts.iter().chain(&lists.cnames);
            all.filter(old).map(|held| held.line.clone()).collect::<Vec<_>>()
        };
        let before = foreign(&lists);
        edit(&mut lists.hosts, &changes.add_hosts, &changes.remove_hosts, by_name);
        edit(&mut lists.cnames, &changes.add_cnames, &changes.remove_cnames, by_name);
        let after = foreign(&lists);
        if before != after {
            self.world.violation(format!("{}: foreign lines changed from {before:?} to {after:?}", self.name));
        }
        self.world.wrote(&format!("{} {changes:?}", self.name));
    }
}

/// The host of a line of the operator.
pub fn host_of(line: &Line) -> String {
    let text = line.as_str().split('#').next().unwrap_or_default();
    match text.split_once(',') {
        Some((alias, _)) => alias.trim().to_owned(),
        None => text.split_whitespace().nth(1).unwrap_or_default().to_owned(),
    }
}

fn edit(list: &mut Vec<Held>, add: &[Line], remove: &[Line], by_name: bool) {
    for line in remove {
        let is_meant = |held: &Held| if by_name { host_of(&held.line) == host_of(line) } else { held.line == *line };
        list.retain(|held| !is_meant(held));
    }
    for line in add {
        if !list.iter().any(|held| held.line == *line) {
            list.push(Held { line: line.clone(), ours: true, since: Instant::now() });
        }
    }
}

impl Wire<Twin> {
    async fn ask<T: Send + 'static>(
        &self,
        class: Class,
        what: &str,
        run: impl FnOnce(&Twin) -> T + Send + 'static,
    ) -> Result<T, PiholeError> {
        let call = Call {
            class,
            name: format!("{} {what}", self.twin.name),
            deadline: Some(DEADLINE),
            cut: || PiholeError::Unreachable { what: "connection reset by peer".to_owned(), quick: true },
            late: || PiholeError::Timeout,
            shown: |_| String::new(),
        };
        self.call(call, |twin, effect, _| match effect {
            Effect::Refused(code) => Err(refusal(code)),
            Effect::Answered | Effect::CutBefore | Effect::CutAfter => Ok(run(twin)),
        })
        .await
    }

    /// One request per line, as the token API wants it, or one for all.
    fn requests(&self, changes: &ChangeSet) -> Vec<ChangeSet> {
        if self.twin.capabilities().batch {
            return vec![changes.clone()];
        }
        let removes = changes
            .remove_hosts
            .iter()
            .map(|line| ChangeSet { remove_hosts: vec![line.clone()], ..ChangeSet::default() });
        let adds =
            changes.add_hosts.iter().map(|line| ChangeSet { add_hosts: vec![line.clone()], ..ChangeSet::default() });
        removes.chain(adds).collect()
    }
}

fn refusal(code: u16) -> PiholeError {
    match code {
        401 | 403 => PiholeError::Unauthorized,
        409 => PiholeError::Rejected { status: code, detail: String::new() },
        429 => PiholeError::RateLimited { retry_after: None },
        422 => PiholeError::ReadOnly,
        _ => PiholeError::Server { status: code, detail: String::new() },
    }
}

impl Pihole for Wire<Twin> {
    fn probe(&self) -> BoxFuture<'_, Result<(), PiholeError>> {
        self.ask(Class::Look, "probe", |_| ()).boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, PiholeError>> {
        self.ask(Class::Look, "list", Twin::listing).boxed()
    }

    fn apply<'a>(&'a self, changes: &'a ChangeSet) -> BoxFuture<'a, ApplyResult> {
        async move {
            let mut applied = ApplyResult::default();
            for request in self.requests(changes) {
                applied.writes += 1;
                let what = format!(
                    "write +{:?} -{:?} +{:?} -{:?}",
                    request.add_hosts, request.remove_hosts, request.add_cnames, request.remove_cnames
                );
                if let Err(error) = self.ask(Class::Records, &what, move |twin| twin.change(&request)).await {
                    applied.stopped = Some(error);
                    break;
                }
            }
            applied
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }

    fn dialect(&self) -> Option<Dialect> {
        Some(if self.twin.speaks == Speaks::Token { Dialect::Spec } else { Dialect::V6 })
    }
}
