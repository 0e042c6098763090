//! A server in memory that keeps PowerDNS's rules: what the demo's name server mirrors and what fast tests run on.
//!
//! The provider test suite runs the same cases on it and on the real server. A gate can delay or fail any call before or
//! after it takes effect; an observer sees every zone that changed.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::future::{BoxFuture, FutureExt};
use signpost_dns::{Fqdn, RecordKey, RecordType, ZoneName};

use crate::{
    Health, NewZone, Patched, ServerError, ServerInfo, ZoneContents, ZoneInfo, ZoneServer, ZoneSettings, encode,
    memory_rules as rules, spelling,
    types::{Action, Change, Comment, CommentChange, ServerSet},
};

/// Called with a zone that changed and what it is now; `None` when it was deleted.
pub type Observer = Arc<dyn Fn(&ZoneName, Option<&ZoneContents>) + Send + Sync>;
/// Asked before every call what is to happen to it.
pub type Gate = Arc<dyn Fn(&Call) -> Fault + Send + Sync>;

/// The seconds since 1970.
pub type Seconds = Arc<dyn Fn() -> u32 + Send + Sync>;

/// How many calls are remembered.
const MAX_LOG: usize = 10_000;

/// One call, as the gate and the log see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// The server's own description.
    Server,
    /// Settings of a zone.
    Zone(ZoneName),
    /// A zone with its records.
    Read(ZoneName),
    /// Creation.
    Create(ZoneName),
    /// Settings changed.
    Configure(ZoneName),
    /// So many record sets changed.
    Patch(ZoneName, usize),
    /// Deletion.
    Delete(ZoneName),
}

impl Call {
    /// True for calls that change something.
    pub fn is_write(&self) -> bool {
        match self {
            Self::Server | Self::Zone(_) | Self::Read(_) => false,
            Self::Create(_) | Self::Configure(_) | Self::Patch(..) | Self::Delete(_) => true,
        }
    }
}

/// The fault of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is executed.
    None,
    /// It fails and has no effect.
    Before(ServerError),
    /// It takes effect and its answer is lost.
    After(ServerError),
    /// It never answers, and has no effect.
    Hang,
    /// It is executed after so long.
    Slow(Duration),
    /// It fails after so long and has no effect.
    SlowBefore(Duration, ServerError),
    /// It fails now, and takes effect when [`MemoryServer::carry_out_late`] is called: the caller gave up, the server did
    /// not.
    Late(ServerError),
}

/// A request whose caller gave up.
type LateRequest = Box<dyn FnOnce(&mut State) + Send>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct MemoryZone {
    info: ZoneInfo,
    sets: BTreeMap<RecordKey, StoredSet>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredSet {
    ttl: u32,
    contents: Vec<Box<str>>,
    comments: Vec<Comment>,
}

#[derive(Default)]
struct State {
    zones: BTreeMap<ZoneName, MemoryZone>,
    observer: Option<Observer>,
    gate: Option<Gate>,
    /// The machine's clock where there is no other.
    clock: Option<Seconds>,
    log: VecDeque<Call>,
    version: Option<String>,
    late: Vec<LateRequest>,
    /// Whether comments are refused, as a server does whose backend has none.
    refuses_comments: bool,
}

/// Zones in memory. Cloning gives another handle to the same server.
#[derive(Clone, Default)]
pub struct MemoryServer {
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryServer").field("zones", &self.lock().zones.keys().collect::<Vec<_>>()).finish()
    }
}

impl MemoryServer {
    /// An empty server.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `observer` now for every zone and from now on for every change.
    pub fn on_change(&self, observer: Observer) {
        let mut state = self.lock();
        for (name, zone) in &state.zones {
            observer(name, Some(&zone.contents()));
        }
        state.observer = Some(observer);
    }

    /// Asks `gate` before every call from now on.
    pub fn set_gate(&self, gate: Option<Gate>) {
        self.lock().gate = gate;
    }

    /// From now on the server reports this version and has its rules, such as `5.1.4`.
    pub fn set_version(&self, version: &str) {
        self.lock().version = Some(version.to_owned());
    }

    /// Carries out every request that failed as [`Fault::Late`], in order. Returns how many there were.
    pub fn carry_out_late(&self) -> usize {
        let mut state = self.lock();
        let late = std::mem::take(&mut state.late);
        let count = late.len();
        for request in late {
            request(&mut state);
        }
        count
    }

    /// How many requests failed as [`Fault::Late`] and were not carried out yet.
    pub fn late(&self) -> usize {
        self.lock().late.len()
    }

    /// Refuses comments from now on, as a server on LMDB does.
    pub fn refuse_comments(&self) {
        self.lock().refuses_comments = true;
    }

    /// Takes the time for serials from `clock` from now on.
    pub fn set_clock(&self, clock: Seconds) {
        self.lock().clock = Some(clock);
    }

    /// The calls made so far, of very many the last ten thousand.
    pub fn log(&self) -> Vec<Call> {
        self.lock().log.iter().cloned().collect()
    }

    /// Forgets every zone, as a server does whose database was lost.
    pub fn wipe(&self) {
        let mut state = self.lock();
        let former = std::mem::take(&mut state.zones);
        if let Some(observer) = state.observer.clone() {
            for zone in former.keys() {
                observer(zone, None);
            }
        }
    }

    /// The content of a zone now, without a call.
    pub fn contents(&self, zone: &ZoneName) -> Option<ZoneContents> {
        self.lock().zones.get(zone).map(MemoryZone::contents)
    }

    /// The zones that it has now, without a call.
    pub fn zones(&self) -> Vec<ZoneName> {
        self.lock().zones.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call<T: Send>(
        &self,
        call: Call,
        run: impl FnOnce(&mut State) -> Result<T, ServerError> + Send + 'static,
    ) -> Result<T, ServerError> {
        let gate = {
            let mut state = self.lock();
            if state.log.len() == MAX_LOG {
                state.log.pop_front();
            }
            state.log.push_back(call.clone());
            state.gate.clone()
        };
        match gate.map_or(Fault::None, |gate| gate(&call)) {
            Fault::None => run(&mut self.lock()),
            Fault::Before(error) => Err(error),
            Fault::After(error) => run(&mut self.lock()).and(Err(error)),
            Fault::Hang => futures::future::pending().await,
            Fault::Slow(delay) => {
                tokio::time::sleep(delay).await;
                run(&mut self.lock())
            }
            Fault::SlowBefore(delay, error) => {
                tokio::time::sleep(delay).await;
                Err(error)
            }
            Fault::Late(error) => {
                let request: LateRequest = Box::new(|state| {
                    let _ = run(state);
                });
                self.lock().late.push(request);
                Err(error)
            }
        }
    }
}

impl MemoryZone {
    fn contents(&self) -> ZoneContents {
        let sets = self.sets.iter().map(|(key, stored)| ServerSet {
            name: key.name.clone(),
            rtype: key.rtype,
            ttl: stored.ttl,
            contents: stored.contents.clone(),
            disabled: false,
            comments: stored.comments.clone(),
        });
        ZoneContents { info: self.info.clone(), sets: sets.collect() }
    }

    fn apply(&mut self, changes: &[Change], key_names: bool, now: u32) -> Result<(), ServerError> {
        let mut seen = BTreeSet::new();
        for Change { name, rtype, action } in changes {
            rules::known_type(name, *rtype)?;
            let replace = matches!(action, Action::Replace { .. });
            if !seen.insert((name.clone(), *rtype, replace)) {
                return Err(rules::refuse(format!("Duplicate RRset {name} IN {rtype} with changetype: REPLACE")));
            }
            let key = RecordKey::new(name.clone(), *rtype);
            match action {
                Action::Delete => {
                    self.sets.remove(&key);
                }
                Action::Replace { content, comment } => {
                    rules::acceptable(&self.info.name, name, *rtype, content, key_names)?;
                    rules::compatible(&self.info.name, name, *rtype, self.types_at(name))?;
                    let comments = match comment {
                        CommentChange::Keep => {
                            self.sets.get(&key).map(|stored| stored.comments.clone()).unwrap_or_default()
                        }
                        CommentChange::Are(comments) => comments.to_vec(),
                    };
                    if *rtype == RecordType::Soa
                        && let Some(serial) = content.records.first().and_then(|soa| rules::soa_serial(soa))
                    {
                        self.info.serial = serial;
                    }
                    self.sets.insert(key, StoredSet { ttl: content.ttl, contents: content.records.to_vec(), comments });
                }
            }
        }
        self.bump(now);
        Ok(())
    }

    fn types_at<'a>(&'a self, name: &'a Fqdn) -> impl Iterator<Item = RecordType> + 'a {
        let from = RecordKey::new(name.clone(), RecordType::A);
        self.sets.range(from..).map(|(key, _)| key).take_while(move |key| key.name == *name).map(|key| key.rtype)
    }

    fn bump(&mut self, now: u32) {
        let next = self.info.serial.wrapping_add(1);
        self.info.serial = match self.info.soa_edit_api.as_str() {
            "EPOCH" => now,
            "DEFAULT" => next.max(rules::date_serial(now)),
            _ => next,
        };
        self.info.edited_serial = self.info.serial;
        let serial = self.info.serial;
        let soa = RecordKey::new(self.info.name.name().clone(), RecordType::Soa);
        if let Some(stored) = self.sets.get_mut(&soa) {
            stored.contents = stored.contents.iter().map(|soa| rules::with_serial(soa, serial)).collect();
        }
    }
}

fn seconds_now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}

impl State {
    fn changed(&self, zone: &ZoneName) {
        if let Some(observer) = &self.observer {
            observer(zone, self.zones.get(zone).map(MemoryZone::contents).as_ref());
        }
    }

    fn now(&self) -> u32 {
        self.clock.as_ref().map_or_else(seconds_now, |clock| clock())
    }

    fn create(&mut self, new: &NewZone) -> Result<ZoneInfo, ServerError> {
        if self.zones.contains_key(&new.name) {
            return Err(ServerError::Conflict { words: "Conflict".to_owned() });
        }
        if new.kind == "Consumer" && !new.nameservers.is_empty() {
            return Err(rules::refuse("Nameservers MUST NOT be given for Consumer zones".to_owned()));
        }
        let settings = &new.settings;
        let mut zone = MemoryZone {
            info: ZoneInfo {
                id: encode::zone_id(&new.name),
                name: new.name.clone(),
                kind: new.kind.clone(),
                serial: 0,
                notified_serial: 0,
                edited_serial: 0,
                masters: Vec::new(),
                dnssec: false,
                catalog: String::new(),
                account: String::new(),
                soa_edit_api: settings.soa_edit_api.clone().unwrap_or_else(|| "DEFAULT".to_owned()),
                api_rectify: true,
            },
            sets: BTreeMap::new(),
        };
        configure(&mut zone.info, settings);
        if !matches!(new.kind.as_str(), "Slave" | "Consumer") {
            let apex = new.name.name();
            let soa = format!("a.misconfigured.dns.server.invalid. hostmaster.{apex} 0 10800 3600 604800 3600");
            zone.sets.insert(
                RecordKey::new(apex.clone(), RecordType::Soa),
                StoredSet { ttl: 3600, contents: vec![soa.into()], comments: Vec::new() },
            );
            if !new.nameservers.is_empty() {
                let hosts = new.nameservers.iter().map(|host| host.to_string().into()).collect();
                zone.sets.insert(
                    RecordKey::new(apex.clone(), RecordType::Ns),
                    StoredSet { ttl: 3600, contents: hosts, comments: Vec::new() },
                );
            }
            zone.bump(self.now());
        }
        let info = zone.info.clone();
        self.zones.insert(new.name.clone(), zone);
        self.changed(&new.name);
        Ok(info)
    }
}

fn configure(info: &mut ZoneInfo, settings: &ZoneSettings) {
    let ZoneSettings { kind, masters, catalog, account, soa_edit_api, api_rectify, dnssec } = settings.clone();
    info.kind = kind.unwrap_or_else(|| info.kind.clone());
    info.masters = masters.unwrap_or_else(|| info.masters.clone());
    info.catalog = catalog.unwrap_or_else(|| info.catalog.clone());
    info.account = account.unwrap_or_else(|| info.account.clone());
    info.soa_edit_api = soa_edit_api.unwrap_or_else(|| info.soa_edit_api.clone());
    info.api_rectify = api_rectify.unwrap_or(info.api_rectify);
    info.dnssec = dnssec.unwrap_or(info.dnssec);
}

impl ZoneServer for MemoryServer {
    fn server(&self) -> BoxFuture<'_, Result<ServerInfo, ServerError>> {
        self.call(Call::Server, |state| {
            let version = state.version.clone().unwrap_or_else(|| "in memory".to_owned());
            Ok(ServerInfo { daemon_type: "authoritative".to_owned(), version })
        })
        .boxed()
    }

    fn zone<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneInfo>, ServerError>> {
        let name = zone.clone();
        self.call(Call::Zone(zone.clone()), move |state| Ok(state.zones.get(&name).map(|zone| zone.info.clone())))
            .boxed()
    }

    fn read<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneContents>, ServerError>> {
        let name = zone.clone();
        self.call(Call::Read(zone.clone()), move |state| Ok(state.zones.get(&name).map(MemoryZone::contents))).boxed()
    }

    fn create<'a>(&'a self, zone: &'a NewZone) -> BoxFuture<'a, Result<ZoneInfo, ServerError>> {
        let new = zone.clone();
        self.call(Call::Create(zone.name.clone()), move |state| state.create(&new)).boxed()
    }

    fn configure<'a>(
        &'a self,
        zone: &'a ZoneName,
        settings: &'a ZoneSettings,
    ) -> BoxFuture<'a, Result<(), ServerError>> {
        let (name, settings) = (zone.clone(), settings.clone());
        self.call(Call::Configure(zone.clone()), move |state| {
            configure(&mut state.zones.get_mut(&name).ok_or(ServerError::NoZone)?.info, &settings);
            Ok(())
        })
        .boxed()
    }

    fn patch<'a>(&'a self, zone: &'a ZoneName, changes: &'a [Change]) -> BoxFuture<'a, Result<Patched, ServerError>> {
        let (name, changes) = (zone.clone(), changes.to_vec());
        self.call(Call::Patch(zone.clone(), changes.len()), move |state| {
            if state.refuses_comments {
                rules::uncommented(&changes)?;
            }
            let key_names = state.version.as_deref().is_some_and(spelling::knows_key_names);
            let changes = spelling::for_server(&changes, key_names);
            let now = state.now();
            let zone = state.zones.get_mut(&name).ok_or(ServerError::NoZone)?;
            // All or none: worked out on a copy of what the changes touch would be faster, a copy of the zone is plainer.
            let mut next = zone.clone();
            next.apply(&changes, key_names, now)?;
            *zone = next;
            // Like PowerDNS, which does not tell the serial of a start of authority that it was just given.
            let soa = changes.iter().any(|change| change.rtype == RecordType::Soa);
            let serial = (!soa).then_some(zone.info.serial);
            state.changed(&name);
            Ok(Patched { serial })
        })
        .boxed()
    }

    fn delete<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<bool, ServerError>> {
        let name = zone.clone();
        self.call(Call::Delete(zone.clone()), move |state| {
            let existed = state.zones.remove(&name).is_some();
            if existed {
                state.changed(&name);
            }
            Ok(existed)
        })
        .boxed()
    }

    fn health(&self) -> Health {
        Health::Up
    }
}
