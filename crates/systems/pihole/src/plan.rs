//! What one Pi-hole should hold, and what may be changed to get there. Pure: no I/O, no clock, no log.
//!
//! ```text
//! claimants ─► claims (oldest, then UID) ─► wanted per host and type ─┐
//! listing ──► own lines │ other people's lines ──────────────────────┼─► changes · refusals · what is held back
//! released, policy, brake ────────────────────────────────────────────┘
//! ```
//! A line that is not provably ours is never changed, except under the policy `overwrite`, and then only one that
//! holds a claimed host alone. Nothing that could not be read ever causes a deletion.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use signpost_dns::Fqdn;
use signpost_planning::{Claim, Claims, DeletionGuard, Fingerprint, Permission, Verdict};
use signpost_provider_pihole::{ChangeSet, Line, Listing};

use crate::aliases::Aliases;
use crate::config::{ConflictPolicy, Policy};
use crate::index::{Claimant, IngressKey, Snapshot, Target, Wanted};
use crate::ownership::Ownership;

/// Everything a plan is made from.
#[derive(Debug)]
pub struct World<'a> {
    /// What Ingresses want.
    pub snapshot: &'a Snapshot,
    /// What the Pi-hole holds.
    pub listing: &'a Listing,
    /// What of it is ours.
    pub ownership: &'a Ownership,
    /// The rules.
    pub policy: &'a Policy,
    /// The large deletion that waits for its second pass, when its time has come.
    pub confirmed: Option<&'a Fingerprint>,
    /// Whether the resolver may be restarted now.
    pub may_restart: bool,
}

/// The three kinds of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// An IPv4 address.
    A,
    /// An IPv6 address.
    Aaaa,
    /// An alias.
    Cname,
}

impl Slot {
    const ALL: [Self; 3] = [Self::A, Self::Aaaa, Self::Cname];

    fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::A } else { Self::Aaaa }
    }
}

/// What a record points at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// An address.
    Address(IpAddr),
    /// A name.
    Name(Fqdn),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name.undotted()),
        }
    }
}

/// One record to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The host.
    pub host: Fqdn,
    /// The type.
    pub slot: Slot,
    /// The Ingress it is done for; None when nobody knows any more.
    pub ingress: Option<IngressKey>,
    /// What it pointed at.
    pub old: Option<Value>,
    /// What it is to point at; None to delete it.
    pub new: Option<Value>,
    /// The line to add.
    pub add: Option<Line>,
    /// The lines to take out.
    pub remove: Vec<Line>,
}

impl Change {
    /// Every line it adds or takes out.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.add.iter().chain(&self.remove)
    }
}

/// Why something is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// An annotation cannot be used.
    InvalidAnnotation,
    /// A host cannot be used.
    InvalidHost,
    /// No host to register.
    NoHosts,
    /// An older Ingress has the host and points it elsewhere.
    HostTaken,
    /// Somebody's own record has the host.
    ForeignRecord,
    /// Another cluster's signpost has the host.
    OtherOwner,
    /// The host shares a line with other names.
    SharedLine,
    /// The dialect cannot hold such a record.
    Unsupported,
    /// The alias would lead back to itself.
    AliasLoop,
    /// The Pi-hole refuses the record.
    LineRefused,
    /// A large deletion waits for a second look.
    DeletionsHeld,
    /// A foreign line that was there before a write of ours is missing after it.
    ForeignLineMissing,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::InvalidAnnotation,
        Self::InvalidHost,
        Self::NoHosts,
        Self::HostTaken,
        Self::ForeignRecord,
        Self::OtherOwner,
        Self::SharedLine,
        Self::Unsupported,
        Self::AliasLoop,
        Self::LineRefused,
        Self::DeletionsHeld,
        Self::ForeignLineMissing,
    ];

    /// Those that are about an Ingress itself, whatever the Pi-hole.
    pub const OF_INGRESS: [Self; 3] = [Self::InvalidAnnotation, Self::InvalidHost, Self::NoHosts];

    /// The reason as it appears in events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidAnnotation => "InvalidAnnotation",
            Self::InvalidHost => "InvalidHost",
            Self::NoHosts => "NoHosts",
            Self::HostTaken => "HostTaken",
            Self::ForeignRecord => "ForeignRecord",
            Self::OtherOwner => "OtherOwner",
            Self::SharedLine => "SharedLine",
            Self::Unsupported => "Unsupported",
            Self::AliasLoop => "AliasLoop",
            Self::LineRefused => "LineRefused",
            Self::DeletionsHeld => "DeletionsHeld",
            Self::ForeignLineMissing => "ForeignLineMissing",
        }
    }
}

/// Something that is not done, for whom, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// For which Ingress; None when it concerns the Pi-hole.
    pub ingress: Option<IngressKey>,
    /// For which host.
    pub host: Option<Fqdn>,
    /// Why.
    pub reason: Reason,
    /// A sentence.
    pub message: String,
}

/// A deletion that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// How many lines would go.
    pub deletions: usize,
    /// How many of ours there are.
    pub served: usize,
    /// Which they are.
    pub fingerprint: Fingerprint,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// What is changed.
    pub changes: Vec<Change>,
    /// What is not done, and why.
    pub refusals: Vec<Refusal>,
    /// A large deletion that waits.
    pub held: Option<Held>,
    /// Whether aliases wait for the next allowed restart.
    pub deferred: bool,
    /// Whether a record waits for the one that replaces it: another look has to follow.
    pub unfinished: bool,
    /// Hosts whose oldest claim cannot be understood, and the Ingress that has them instead.
    pub yielded: BTreeMap<Fqdn, IngressKey>,
}

impl Planned {
    /// The changes as lines.
    pub fn change_set(&self) -> ChangeSet {
        let mut set = ChangeSet::default();
        for change in &self.changes {
            let (add, remove) = match change.slot {
                Slot::A | Slot::Aaaa => (&mut set.add_hosts, &mut set.remove_hosts),
                Slot::Cname => (&mut set.add_cnames, &mut set.remove_cnames),
            };
            add.extend(change.add.clone());
            remove.extend(change.remove.iter().cloned());
        }
        set
    }
}

/// Who has which host.
pub(crate) fn claims_of(snapshot: &Snapshot) -> Claims<&Fqdn, usize> {
    let mut claims = Claims::new();
    for (place, claimant) in snapshot.claimants.iter().enumerate() {
        for host in &claimant.hosts {
            claims.insert(host, Claim::new(place, claimant.since, claimant.uid.clone()));
        }
    }
    claims
}

/// One line and what it says about a host.
#[derive(Clone, Debug)]
struct Sighting<'a> {
    line: &'a Line,
    value: Option<Value>,
    /// Whether the line holds this host alone.
    alone: bool,
}

/// The lines of a listing by host and type: ours, and other people's for the hosts that matter.
struct Sorted<'a> {
    own: BTreeMap<(Fqdn, Slot), Vec<Sighting<'a>>>,
    foreign: BTreeMap<(Fqdn, Slot), Vec<Sighting<'a>>>,
    lines: usize,
}

impl Sorted<'_> {
    /// Who has a host: its oldest claim. One whose target cannot be understood keeps what is there, but nothing else: a host without a record of
    /// ours, or with the one that the next claim asks for, belongs to that claim.
    fn holder_of<'c>(&self, host: &Fqdn, oldest: &'c Claimant, waiting: &[&'c Claimant]) -> &'c Claimant {
        let next = waiting.iter().find(|claimant| !says_nothing(&claimant.target));
        let Some(next) = next.filter(|_| says_nothing(&oldest.target)) else { return oldest };
        let agrees = |slot: Slot| {
            let own = self.own.get(&(host.clone(), slot)).map(Vec::as_slice).unwrap_or_default();
            let asked = wanted(&next.target, slot);
            own.iter().all(|held| matches!((&asked, &held.value), (Wanted::Value(asked), Some(held)) if asked == held))
        };
        if Slot::ALL.into_iter().all(agrees) { next } else { oldest }
    }
}

/// Whether nothing about a target can be understood.
fn says_nothing(target: &Target) -> bool {
    Slot::ALL.iter().all(|slot| !matches!(wanted(target, *slot), Wanted::Value(_)))
}

fn sort<'a>(world: &World<'a>, claimed: impl Fn(&Fqdn) -> bool) -> Sorted<'a> {
    let mut sorted = Sorted { own: BTreeMap::new(), foreign: BTreeMap::new(), lines: 0 };
    let mut own_hosts = BTreeSet::new();
    let mut others: Vec<(Fqdn, Slot, Sighting<'a>)> = Vec::new();
    let mut file = |line: &'a Line, own: Option<(Fqdn, Slot, Value)>, names: Vec<(&str, Slot, Option<Value>)>| {
        if let Some((host, slot, value)) = own {
            sorted.lines += 1;
            own_hosts.insert(host.clone());
            let sighting = Sighting { line, value: Some(value), alone: true };
            sorted.own.entry((host, slot)).or_default().push(sighting);
            return;
        }
        let alone = names.len() == 1;
        for (name, slot, value) in names {
            if let Ok(host) = Fqdn::parse(name) {
                others.push((host, slot, Sighting { line, value, alone }));
            }
        }
    };
    for line in &world.listing.hosts {
        let parts = line.address_parts();
        let own = world.ownership.own_address(line).map(|(ip, host)| (host, Slot::of(ip), Value::Address(ip)));
        let slot = parts.ip.map_or(Slot::A, Slot::of);
        let value = parts.ip.map(Value::Address);
        file(line, own, parts.names.iter().map(|name| (*name, slot, value.clone())).collect());
    }
    for line in &world.listing.cnames {
        let own = world.ownership.own_alias(line).map(|(alias, target)| (alias, Slot::Cname, Value::Name(target)));
        let parts = line.alias_parts();
        let target = parts.target.and_then(|target| Fqdn::parse(target).ok()).map(Value::Name);
        file(line, own, parts.aliases.iter().map(|name| (*name, Slot::Cname, target.clone())).collect());
    }
    for (host, slot, held) in others {
        if claimed(&host) || own_hosts.contains(&host) {
            sorted.foreign.entry((host, slot)).or_default().push(held);
        }
    }
    sorted
}

/// What a target wants in one slot.
fn wanted(target: &Target, slot: Slot) -> Wanted<Value> {
    let address = |ip: IpAddr| Wanted::Value(Value::Address(ip));
    match (target, slot) {
        (Target::Keep, _)
        | (Target::Addresses { v4: Wanted::Keep, .. }, Slot::A)
        | (Target::Addresses { v6: Wanted::Keep, .. }, Slot::Aaaa) => Wanted::Keep,
        (Target::Addresses { v4: Wanted::Value(ip), .. }, Slot::A) => address(IpAddr::V4(*ip)),
        (Target::Addresses { v6: Wanted::Value(ip), .. }, Slot::Aaaa) => address(IpAddr::V6(*ip)),
        (Target::Alias(name), Slot::Cname) => Wanted::Value(Value::Name(name.clone())),
        (Target::Addresses { .. } | Target::Alias(_), _) => Wanted::Nothing,
    }
}

/// Makes the plan.
pub fn plan(world: &World<'_>) -> Planned {
    let claims = claims_of(world.snapshot);
    let sorted = sort(world, |host| claims.holder_of(&host).is_some());
    let mut planned = Planned::default();
    let mut deletions = Vec::new();
    // An alias that goes in the same write leads nowhere: nobody claims it, or the address that replaces it is there.
    let mut aliases = Aliases::of(world.listing, world.ownership, |alias| {
        let holder = claims.holder_of(&alias).and_then(|claim| world.snapshot.claimants.get(claim.holder));
        let replaced = || [Slot::A, Slot::Aaaa].iter().any(|slot| sorted.own.contains_key(&(alias.clone(), *slot)));
        holder.is_none_or(|holder| matches!(holder.target, Target::Addresses { .. }) && replaced())
    });
    for (host, claim) in claims.held() {
        let Some(oldest) = world.snapshot.claimants.get(claim.holder) else { continue };
        let waiting: Vec<&Claimant> = claims
            .waiting(host)
            .filter_map(|claim| world.snapshot.claimants.get(claim.holder))
            .map(AsRef::as_ref)
            .collect();
        let holder = sorted.holder_of(host, oldest, &waiting);
        if holder.key != oldest.key {
            planned.yielded.insert((*host).clone(), holder.key.clone());
        }
        for loser in waiting.iter().filter(|loser| loser.key != holder.key && loser.target != holder.target) {
            let (name, holder) = (host.undotted(), &holder.key);
            let message = if says_nothing(&oldest.target) && *holder == oldest.key {
                format!(
                    "{name} is kept as it is for Ingress {holder}, which is older and whose target cannot be used. Correct it or delete it"
                )
            } else {
                format!("{name} belongs to Ingress {holder}, which is older and points it elsewhere")
            };
            planned.refuse(Some(&loser.key), Some(host), Reason::HostTaken, message);
        }
        Claimed { world, sorted: &sorted, host, holder }.plan(&mut planned, &mut deletions, &mut aliases);
    }
    let unclaimed: Vec<(&(Fqdn, Slot), &Vec<Sighting<'_>>)> =
        sorted.own.iter().filter(|((host, _), _)| claims.holder_of(&host).is_none()).collect();
    let viewed = if unclaimed.is_empty() { BTreeMap::new() } else { viewers(world.snapshot) };
    for ((host, slot), own) in unclaimed {
        let last = world.snapshot.released.get(host).or_else(|| viewed.get(host));
        // Nobody we know ever claimed it: it may only go when everybody could be asked.
        if last.is_none() && (!world.policy.sweep || world.snapshot.blind) {
            continue;
        }
        if !world.listing.capabilities.exact_delete && sorted.foreign.contains_key(&(host.clone(), *slot)) {
            let message =
                format!("{} also has a record that is not ours; deleting by name would take both", host.undotted());
            planned.refuse(last, Some(host), Reason::SharedLine, message);
            continue;
        }
        let change = delete(host, *slot, last.cloned(), own);
        if world.snapshot.seen.contains(host) {
            planned.changes.push(change);
        } else {
            deletions.push(change);
        }
    }
    brake(world, &sorted, deletions, &mut planned);
    if !world.may_restart {
        let before = planned.changes.len();
        planned.changes.retain(|change| change.slot != Slot::Cname);
        planned.deferred = planned.changes.len() < before;
    }
    planned.refusals.sort();
    planned.refusals.dedup();
    planned
}

/// Who shows which host in its view.
fn viewers(snapshot: &Snapshot) -> BTreeMap<Fqdn, IngressKey> {
    let shown = |claimant: &std::sync::Arc<Claimant>| {
        let key = claimant.key.clone();
        claimant.viewed().map(move |host| (host, key.clone())).collect::<Vec<_>>()
    };
    snapshot.claimants.iter().flat_map(shown).collect()
}

/// Lets deletions through that nobody was seen to ask for, or holds them all back when there are too many at once.
fn brake(world: &World<'_>, sorted: &Sorted<'_>, deletions: Vec<Change>, planned: &mut Planned) {
    let lines: Vec<&Line> = deletions.iter().flat_map(|change| &change.remove).collect();
    match DeletionGuard::PIHOLE.check(sorted.lines, lines, world.confirmed, Permission::Guarded) {
        Verdict::Allowed => planned.changes.extend(deletions),
        Verdict::Held { deletions, served, fingerprint } => {
            planned.held = Some(Held { deletions, served, fingerprint });
            let message =
                format!("{deletions} of {served} records would be deleted at once; waiting for a second look");
            planned.refuse(None, None, Reason::DeletionsHeld, message);
        }
    }
}

fn delete(host: &Fqdn, slot: Slot, ingress: Option<IngressKey>, own: &[Sighting<'_>]) -> Change {
    Change {
        host: host.clone(),
        slot,
        ingress,
        old: own.first().and_then(|held| held.value.clone()),
        new: None,
        add: None,
        remove: own.iter().map(|held| held.line.clone()).collect(),
    }
}

impl Planned {
    fn refuse(&mut self, ingress: Option<&IngressKey>, host: Option<&Fqdn>, reason: Reason, message: String) {
        self.refusals.push(Refusal { ingress: ingress.cloned(), host: host.cloned(), reason, message });
    }
}

/// One claimed host.
struct Claimed<'a, 'w> {
    world: &'a World<'w>,
    sorted: &'a Sorted<'w>,
    host: &'a Fqdn,
    holder: &'a Claimant,
}

impl Claimed<'_, '_> {
    fn own(&self, slot: Slot) -> &[Sighting<'_>] {
        self.sorted.own.get(&(self.host.clone(), slot)).map(Vec::as_slice).unwrap_or_default()
    }

    fn foreign(&self, slot: Slot) -> &[Sighting<'_>] {
        self.sorted.foreign.get(&(self.host.clone(), slot)).map(Vec::as_slice).unwrap_or_default()
    }

    fn plan(&self, planned: &mut Planned, deletions: &mut Vec<Change>, aliases: &mut Aliases) {
        for slot in Slot::ALL {
            match wanted(&self.holder.target, slot) {
                Wanted::Keep => {}
                Wanted::Nothing => {
                    // A record that replaces another type goes first: the old one stays until the new one is there.
                    if self.own(slot).is_empty() {
                        continue;
                    }
                    if self.replacement_is_there(slot) {
                        deletions.push(delete(self.host, slot, Some(self.holder.key.clone()), self.own(slot)));
                    } else {
                        planned.unfinished = true;
                    }
                }
                Wanted::Value(value) => self.settle(slot, value, planned, aliases),
            }
        }
    }

    fn replacement_is_there(&self, slot: Slot) -> bool {
        match (&self.holder.target, slot) {
            (Target::Alias(_), Slot::A | Slot::Aaaa) => !self.own(Slot::Cname).is_empty(),
            (Target::Addresses { .. }, Slot::Cname) => {
                !self.own(Slot::A).is_empty() || !self.own(Slot::Aaaa).is_empty()
            }
            _ => true,
        }
    }

    fn settle(&self, slot: Slot, value: Value, planned: &mut Planned, aliases: &mut Aliases) {
        let capabilities = self.world.listing.capabilities;
        let refuse = |planned: &mut Planned, reason, message| {
            planned.refuse(Some(&self.holder.key), Some(self.host), reason, message);
        };
        let holds = match slot {
            Slot::A => true,
            Slot::Aaaa => capabilities.ipv6,
            Slot::Cname => capabilities.aliases,
        };
        if !holds {
            let message = format!("this Pi-hole can hold no record of this type: {value} for {}", self.host.undotted());
            return refuse(planned, Reason::Unsupported, message);
        }
        let owner = match self.world.ownership {
            Ownership::Marker { owner, .. } => Some(owner),
            Ownership::Ledger(_) => None,
        };
        let own = self.own(slot);
        let (right, stale): (Vec<&Sighting<'_>>, Vec<&Sighting<'_>>) = own
            .iter()
            .partition(|held| held.value.as_ref() == Some(&value) && (owner.is_none() || held.line.is_marked()));
        let in_the_way = self.in_the_way(slot, own.is_empty());
        if !right.is_empty() && stale.is_empty() && in_the_way.is_empty() {
            return;
        }
        let mut remove: Vec<Line> = stale.iter().map(|held| held.line.clone()).collect();
        let mut old = stale.first().and_then(|held| held.value.clone());
        if let Some((_, first)) = in_the_way.first() {
            if !own.is_empty() && !capabilities.exact_delete {
                let host = self.host.undotted();
                let (reason, message) = if stale.is_empty() {
                    (
                        Reason::ForeignRecord,
                        format!("{host} also has a record that is not ours; clients may get either"),
                    )
                } else {
                    let message = format!("{host} also has a record that is not ours; changing ours would delete both");
                    (Reason::SharedLine, message)
                };
                return refuse(planned, reason, message);
            }
            match self.conflict(slot, &value, &in_the_way, own.is_empty()) {
                None => {
                    old = old.or_else(|| first.value.clone());
                    remove.extend(in_the_way.iter().map(|(_, held)| held.line.clone()));
                }
                Some((reason, message)) => {
                    refuse(planned, reason, message);
                    // Ours is there: it goes on beside the other.
                    if own.is_empty() || stale.is_empty() {
                        return;
                    }
                }
            }
        }
        let line = match &value {
            Value::Address(ip) => Line::address(*ip, self.host, owner),
            Value::Name(name) => {
                if aliases.lead(name, self.host) {
                    // A resolver that finds one does not start.
                    let (host, name) = (self.host.undotted(), name.undotted());
                    let message = format!("{host} cannot be an alias of {name}, which leads back to {host}");
                    return refuse(planned, Reason::AliasLoop, message);
                }
                aliases.add(self.host, name);
                Line::alias(self.host, name, owner)
            }
        };
        // Where lines carry no marker, one that says the same already becomes ours by the ledger alone.
        let adopted = remove.contains(&line) && (capabilities.exact_delete || remove.len() == 1);
        remove.retain(|old| !adopted || *old != line);
        planned.changes.push(Change {
            host: self.host.clone(),
            slot,
            ingress: Some(self.holder.key.clone()),
            old,
            new: Some(value),
            add: (right.is_empty() && !adopted).then_some(line),
            remove,
        });
    }

    /// The foreign lines that are in the way of ours of one type. A name that has a foreign A is somebody's: it gets no AAAA of ours either.
    fn in_the_way(&self, slot: Slot, free: bool) -> Vec<(Slot, &Sighting<'_>)> {
        let overwritten = |held: &Sighting<'_>| {
            self.world.policy.conflict == ConflictPolicy::Overwrite
                && held.alone
                && !held.line.is_marked()
                && matches!(wanted(&self.holder.target, Slot::A), Wanted::Value(_))
        };
        let theirs = |other: Slot, held: &Sighting<'_>| {
            let name_is_theirs = slot == Slot::Aaaa && other == Slot::A && free && self.own(Slot::A).is_empty();
            conflicts(slot, other) || (name_is_theirs && !overwritten(held))
        };
        Slot::ALL
            .iter()
            .flat_map(|other| self.foreign(*other).iter().map(|held| (*other, held)))
            .filter(|(other, held)| theirs(*other, held))
            .collect()
    }

    /// Why foreign records for this host stay, if they do.
    fn conflict(
        &self,
        slot: Slot,
        value: &Value,
        lines: &[(Slot, &Sighting<'_>)],
        free: bool,
    ) -> Option<(Reason, String)> {
        let host = self.host.undotted();
        if let Some((_, held)) = lines.iter().find(|(_, held)| held.line.is_marked()) {
            let owner = held.line.comment().unwrap_or_default().trim_start_matches(signpost_provider_pihole::MARKER);
            let owner: String = owner.chars().take(96).collect();
            return Some((
                Reason::OtherOwner,
                format!("{host} was registered by another cluster, with the owner id {owner:?}"),
            ));
        }
        match self.world.policy.conflict {
            ConflictPolicy::Skip if free => {
                let same = lines.iter().any(|(_, held)| held.value.as_ref() == Some(value));
                let same = if same { ", with the same address" } else { "" };
                Some((
                    Reason::ForeignRecord,
                    format!("{host} already has a record that is not ours{same}; it is left alone"),
                ))
            }
            ConflictPolicy::Skip => Some((
                Reason::ForeignRecord,
                format!(
                    "{host} also has a record that is not ours, beside the one registered for this Ingress. Clients may get either: delete one of the two on the Pi-hole, or set CONFLICT_POLICY=overwrite"
                ),
            )),
            ConflictPolicy::Overwrite if lines.iter().any(|(other, held)| !held.alone || *other != slot) => Some((
                Reason::SharedLine,
                format!("{host} is in a line with other names, or of another type, which is left alone"),
            )),
            ConflictPolicy::Overwrite => None,
        }
    }
}

/// Whether somebody's record of one type is in the way of ours of another.
fn conflicts(ours: Slot, theirs: Slot) -> bool {
    ours == theirs || ours == Slot::Cname || theirs == Slot::Cname
}

/// Identifies the lines that are not ours without keeping them.
pub(crate) fn other_lines(listing: &Listing, ownership: &Ownership) -> u64 {
    let mut hasher = DefaultHasher::new();
    for line in listing.hosts.iter().filter(|line| ownership.own_address(line).is_none()) {
        line.hash(&mut hasher);
    }
    for line in listing.cnames.iter().filter(|line| ownership.own_alias(line).is_none()) {
        line.hash(&mut hasher);
    }
    hasher.finish()
}

/// The hosts that have a record of ours.
pub(crate) fn own_hosts(listing: &Listing, ownership: &Ownership) -> BTreeSet<Fqdn> {
    let hosts = listing.hosts.iter().filter_map(|line| ownership.own_address(line).map(|(_, host)| host));
    let aliases = listing.cnames.iter().filter_map(|line| ownership.own_alias(line).map(|(alias, _)| alias));
    hosts.chain(aliases).collect()
}

/// What `pihole.io/managed-hosts` should say: the hosts of this Ingress that have a record of ours somewhere.
///
/// A host stays in the view after its claim is gone until its record is gone everywhere; `complete` says whether
/// every Pi-hole has been looked at.
pub(crate) fn view(
    claimant: &Claimant,
    is_claimed: impl Fn(&Fqdn) -> bool,
    shows: impl Fn(&Fqdn) -> bool,
    present: impl Fn(&Fqdn) -> bool,
    complete: bool,
) -> Option<String> {
    let join = |hosts: &mut dyn Iterator<Item = &Fqdn>| {
        let names: Vec<&str> = hosts.map(Fqdn::undotted).collect();
        (!names.is_empty()).then(|| names.join(","))
    };
    let held = || claimant.hosts.iter().filter(|host| shows(host));
    let now = join(&mut held());
    if claimant.view.is_none() || claimant.view.as_deref() == now.as_deref() {
        return now;
    }
    let mut hosts: BTreeSet<Fqdn> = held().cloned().collect();
    hosts.extend(claimant.viewed().filter(|host| !is_claimed(host) && (present(host) || !complete)));
    join(&mut hosts.iter())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
