//! The PowerDNS server of a simulation: the provider's twin in memory, a network to it, and an eye on every write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use signpost_dns::{Fqdn, RecordType, ZoneName};
use signpost_provider_powerdns::{
    Action as SetAction, Change, CommentChange, Health, MemoryServer, NewZone, Patched, ServerError, ServerInfo,
    SetContent, ZoneContents, ZoneInfo, ZoneServer, ZoneSettings,
};
use tokio::time::Instant;

use super::{action::REFUSED, model::Model};
use crate::{
    provider::{Call, Wire},
    weather::{Class, Effect},
    world::World,
};

/// `PDNS_API_TIMEOUT`.
const DEADLINE: Duration = Duration::from_secs(10);

/// A record set: zone, name and type, names with their dots.
pub type Key = (String, String, String);

/// The content of a record set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// TTL.
    pub ttl: u32,
    /// Contents as they are compared, sorted.
    pub records: Vec<String>,
}

/// The server.
pub struct Twin {
    world: Arc<World>,
    server: MemoryServer,
    model: Arc<Mutex<Model>>,
    seen: Mutex<Seen>,
}

/// The known origin of the records on the server.
#[derive(Debug, Default)]
pub struct Seen {
    /// Since when each record set has been there without a break.
    pub since: BTreeMap<Key, Instant>,
    /// Record sets that were written by hand where no object ever claimed them.
    pub foreign: BTreeSet<Key>,
    /// Record sets that were written by hand where an object claims them or did: whose they are is open.
    pub open: BTreeSet<Key>,
    /// When each zone was made, and whether by hand.
    pub zones: BTreeMap<String, (Instant, bool)>,
    /// Zones that the operator has written to, or whose object was deleted with its finalizer on.
    pub taken: BTreeSet<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A record as it is compared: the serial of a start of authority is the server's.
pub fn compared(rtype: &str, record: &str) -> String {
    if rtype != "SOA" {
        return record.to_owned();
    }
    let words = record.split_whitespace().enumerate().map(|(place, word)| if place == 2 { "serial" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The content of a zone.
fn sets(contents: &ZoneContents) -> BTreeMap<Key, Set> {
    let zone = contents.info.name.to_string();
    let set = |set: &signpost_provider_powerdns::ServerSet| {
        let rtype = set.rtype.to_string();
        let mut records: Vec<String> = set.contents.iter().map(|record| compared(&rtype, record)).collect();
        records.sort();
        ((zone.clone(), set.name.to_string(), rtype), Set { ttl: set.ttl, records })
    };
    contents.sets.iter().map(set).collect()
}

impl Twin {
    /// An empty server.
    pub fn new(world: Arc<World>, model: Arc<Mutex<Model>>) -> Arc<Self> {
        let server = MemoryServer::new();
        let clock = world.clone();
        server.set_clock(Arc::new(move || u32::try_from(clock.unix_seconds()).unwrap_or(u32::MAX)));
        Arc::new(Self { world, server, model, seen: Mutex::default() })
    }

    /// The records of the server.
    pub fn contents(&self, zone: &str) -> Option<(ZoneInfo, BTreeMap<Key, Set>)> {
        let contents = self.server.contents(&ZoneName::parse(zone).ok()?)?;
        let sets = sets(&contents);
        Some((contents.info, sets))
    }

    /// The known origin of the records on the server.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// Runs a call of the server, and notes what it changed in the zone.
    fn run<T>(
        &self,
        zone: &ZoneName,
        call: impl Future<Output = T>,
    ) -> (Option<T>, BTreeMap<Key, Set>, BTreeMap<Key, Set>) {
        let read = || self.server.contents(zone).as_ref().map(sets).unwrap_or_default();
        let before = read();
        let done = call.now_or_never();
        let after = read();
        let now = Instant::now();
        let mut seen = self.seen();
        for key in before.keys().filter(|key| !after.contains_key(*key)) {
            seen.since.remove(key);
        }
        for key in after.keys().filter(|key| !before.contains_key(*key)) {
            seen.since.insert(key.clone(), now);
        }
        (done, before, after)
    }

    /// Writes or deletes a record set by hand.
    pub fn by_hand(&self, zone: &str, name: &str, rtype: &str, record: Option<&str>) {
        let (Ok(zone), Ok(rtype)) = (ZoneName::parse(zone), rtype.parse::<RecordType>()) else { return };
        let Ok(name) = zone.resolve(name) else { return };
        let action = match record {
            None => SetAction::Delete,
            Some(record) => {
                let content = SetContent { ttl: 77, records: Box::new([record.into()]), comment: None };
                SetAction::Replace { content: Arc::new(content), comment: CommentChange::Keep }
            }
        };
        let changes = [Change { name: name.clone(), rtype, action }];
        let (done, ..) = self.run(&zone, self.server.patch(&zone, &changes));
        self.world.note(&format!("by hand {name} {rtype} {record:?} {done:?}"));
        if !matches!(done, Some(Ok(_))) {
            return;
        }
        let key = (zone.to_string(), name.to_string(), rtype.to_string());
        lock(&self.model).edited_by_hand(&key.0, &key.1);
        let claimed = lock(&self.model).was_claimed(&key);
        let mut seen = self.seen();
        seen.foreign.remove(&key);
        seen.open.remove(&key);
        if record.is_some() {
            if claimed {
                seen.open.insert(key)
            } else {
                seen.foreign.insert(key)
            };
        }
    }

    /// Makes a zone by hand.
    pub fn zone_by_hand(&self, zone: &str) {
        let Ok(name) = ZoneName::parse(zone) else { return };
        let nameservers = Fqdn::parse("ns9.elsewhere.example").into_iter().collect();
        let settings = ZoneSettings { soa_edit_api: Some("DEFAULT".into()), ..ZoneSettings::default() };
        let new = NewZone { name: name.clone(), kind: "Native".into(), nameservers, settings };
        let (done, ..) = self.run(&name, self.server.create(&new));
        if matches!(done, Some(Ok(_))) {
            lock(&self.model).zones_by_hand.insert(name.to_string());
            self.seen().zones.insert(name.to_string(), (Instant::now(), true));
        }
        self.world.note(&format!("zone by hand {name}"));
    }

    /// The server loses everything.
    pub fn wipe(&self) {
        self.server.wipe();
        let mut seen = self.seen();
        lock(&self.model).zones_by_hand.extend(seen.zones.keys().cloned());
        *seen = Seen::default();
        self.world.note("the server lost its database");
    }

    /// An object claims a record set from now on: what was there is taken over.
    pub fn claimed(&self, key: &Key) {
        let mut seen = self.seen();
        if seen.foreign.remove(key) {
            seen.open.insert(key.clone());
        }
    }

    fn patch(&self, zone: &ZoneName, changes: &[Change], asked: Instant) -> Result<Patched, ServerError> {
        for change in changes {
            if let SetAction::Replace { content, .. } = &change.action
                && content.records.iter().any(|record| &**record == REFUSED)
            {
                let words = format!("Record {}/{} '{REFUSED}': refused by the simulation", change.name, change.rtype);
                return Err(ServerError::Refused { words });
            }
        }
        let (done, before, after) = self.run(zone, self.server.patch(zone, changes));
        let done = done.unwrap_or(Err(ServerError::Unreachable { why: "the twin waits".to_owned() }))?;
        self.world.wrote(&format!("PATCH {zone} {changes:?}"));
        self.check_zone(zone, "changed");
        let model = lock(&self.model);
        for (key, old) in &before {
            let new = after.get(key);
            if key.2 == "SOA" && new.is_none() {
                self.world.violation(format!("start of authority deleted: {key:?}"));
            }
            if new == Some(old) || key.2 == "SOA" {
                continue;
            }
            if self.seen().foreign.contains(key) {
                self.world.violation(format!("foreign record set changed: {key:?} from {old:?} to {new:?}"));
            }
            if new.is_none() && model.stands_alone(key, asked) {
                self.world.violation(format!("record set with a standing claim deleted: {key:?}"));
            }
        }
        Ok(done)
    }

    /// A zone that was created by hand and that every object refuses to adopt must be unchanged.
    fn check_zone(&self, zone: &ZoneName, what: &str) {
        let name = zone.to_string();
        self.seen().taken.insert(name.clone());
        let by_hand = self.seen().zones.get(&name).is_some_and(|(_, by_hand)| *by_hand);
        if by_hand && lock(&self.model).refused_from_the_start(&name) {
            self.world.violation(format!("foreign zone {what}: {name}"));
        }
    }

    fn create(&self, new: &NewZone) -> Result<ZoneInfo, ServerError> {
        let (done, ..) = self.run(&new.name, self.server.create(new));
        let done = done.unwrap_or(Err(ServerError::Unreachable { why: "the twin waits".to_owned() }))?;
        self.world.wrote(&format!("POST {}", new.name));
        self.seen().zones.insert(new.name.to_string(), (Instant::now(), false));
        Ok(done)
    }

    fn configure(&self, zone: &ZoneName, settings: &ZoneSettings) -> Result<(), ServerError> {
        let (done, ..) = self.run(zone, self.server.configure(zone, settings));
        done.unwrap_or(Err(ServerError::Unreachable { why: "the twin waits".to_owned() }))?;
        self.world.wrote(&format!("PUT {zone} {settings:?}"));
        self.check_zone(zone, "configured");
        Ok(())
    }

    fn delete(&self, zone: &ZoneName, asked: Instant) -> Result<bool, ServerError> {
        let there = self.server.contents(zone).is_some();
        if there {
            self.check_zone(zone, "deleted");
            if lock(&self.model).zone_stands_alone(&zone.to_string(), asked) {
                self.world.violation(format!("zone with a standing claim deleted: {zone}"));
            }
        }
        let (done, before, _) = self.run(zone, self.server.delete(zone));
        let done = done.unwrap_or(Err(ServerError::Unreachable { why: "the twin waits".to_owned() }))?;
        if there {
            self.world.wrote(&format!("DELETE {zone}"));
            let mut seen = self.seen();
            for key in before.keys() {
                seen.foreign.remove(key);
                seen.open.remove(key);
            }
            seen.zones.remove(&zone.to_string());
            seen.taken.remove(&zone.to_string());
        }
        Ok(done)
    }
}

impl Wire<Twin> {
    async fn ask<T: Send + 'static>(
        &self,
        class: Class,
        name: String,
        run: impl FnOnce(&Twin, Instant) -> Result<T, ServerError> + Send + 'static,
    ) -> Result<T, ServerError> {
        let call = Call {
            class,
            name,
            deadline: Some(DEADLINE),
            cut: || ServerError::Unreachable { why: "connection reset by peer".to_owned() },
            late: || ServerError::Timeout { after: DEADLINE },
            shown: |answered| answered.as_ref().err().map(ToString::to_string).unwrap_or_default(),
        };
        self.call(call, |twin, effect, sent| match effect {
            Effect::Refused(code) => Err(refusal(code)),
            Effect::Answered | Effect::CutBefore | Effect::CutAfter => run(twin, sent),
        })
        .await
    }
}

fn refusal(code: u16) -> ServerError {
    let words = format!("drawn by the simulation ({code})");
    match code {
        401 | 403 => ServerError::Unauthorised { status: code },
        409 => ServerError::Conflict { words },
        422 => ServerError::Refused { words },
        429 => ServerError::Throttled { words, retry_after: Some(Duration::from_secs(2)) },
        _ => ServerError::Failed { status: code, words },
    }
}

impl ZoneServer for Wire<Twin> {
    fn server(&self) -> BoxFuture<'_, Result<ServerInfo, ServerError>> {
        self.ask(Class::Look, "GET server".to_owned(), |_, _| {
            Ok(ServerInfo { daemon_type: "authoritative".to_owned(), version: "4.9.0".to_owned() })
        })
        .boxed()
    }

    fn zone<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneInfo>, ServerError>> {
        let name = zone.clone();
        self.ask(Class::Look, format!("GET {zone} serial"), move |twin, _| {
            Ok(twin.server.contents(&name).map(|contents| contents.info))
        })
        .boxed()
    }

    fn read<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneContents>, ServerError>> {
        let name = zone.clone();
        self.ask(Class::Look, format!("GET {zone} records"), move |twin, _| Ok(twin.server.contents(&name))).boxed()
    }

    fn create<'a>(&'a self, zone: &'a NewZone) -> BoxFuture<'a, Result<ZoneInfo, ServerError>> {
        let new = zone.clone();
        self.ask(Class::Zones, format!("POST {}", zone.name), move |twin, _| twin.create(&new)).boxed()
    }

    fn configure<'a>(
        &'a self,
        zone: &'a ZoneName,
        settings: &'a ZoneSettings,
    ) -> BoxFuture<'a, Result<(), ServerError>> {
        let (name, settings) = (zone.clone(), settings.clone());
        self.ask(Class::Zones, format!("PUT {zone}"), move |twin, _| twin.configure(&name, &settings)).boxed()
    }

    fn patch<'a>(&'a self, zone: &'a ZoneName, changes: &'a [Change]) -> BoxFuture<'a, Result<Patched, ServerError>> {
        let (name, changes) = (zone.clone(), changes.to_vec());
        let shown: Vec<String> = changes
            .iter()
            .map(|change| {
                let what = match &change.action {
                    SetAction::Delete => "delete".to_owned(),
                    SetAction::Replace { content, .. } => format!("{:?}", content.records),
                };
                format!("{} {} {what}", change.name, change.rtype)
            })
            .collect();
        self.ask(Class::Records, format!("PATCH {zone} {shown:?}"), move |twin, asked| {
            twin.patch(&name, &changes, asked)
        })
        .boxed()
    }

    fn delete<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<bool, ServerError>> {
        let name = zone.clone();
        self.ask(Class::Zones, format!("DELETE {zone}"), move |twin, asked| twin.delete(&name, asked)).boxed()
    }

    fn health(&self) -> Health {
        Health::Up
    }
}
