//! The known state of one name and type from one owner.
//!
//! [`Entry`] is what a system projects, [`View`] what readers get: the entry, its owner and its last change. What many views of an owner have in
//! common exists once, and a view is 72 bytes beside its strings.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use signpost_dns::{Fqdn, RecordType};

use crate::result::{Source, Stage, SyncReason, SyncStatus};
use crate::values::Values;

/// Seconds since 1970; [`At::NEVER`] where something has not happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At(u32);

impl At {
    /// Has not happened.
    pub const NEVER: Self = Self(0);

    /// The time, unless it is [`At::NEVER`].
    pub fn timestamp(self) -> Option<Timestamp> {
        (self != Self::NEVER).then(|| Timestamp::from_second(i64::from(self.0)).ok()).flatten()
    }
}

impl From<Timestamp> for At {
    fn from(time: Timestamp) -> Self {
        Self(u32::try_from(time.as_second().max(0)).unwrap_or(u32::MAX))
    }
}

/// Whose views are replaced at once: a system, and a key within it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The system, such as `portal`.
    pub system: &'static str,
    key: Arc<str>,
}

impl Owner {
    /// An owner. A line break in `key` becomes a blank.
    pub fn new(system: &'static str, key: &str) -> Self {
        let key = if key.contains('\n') { Arc::from(key.replace('\n', " ")) } else { Arc::from(key) };
        Self { system, key }
    }

    /// The key within the system, such as `namespace/name`.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.system, self.key)
    }
}

/// The object that a name comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Its kind.
    pub kind: Box<str>,
    /// Its namespace; empty for an object of the whole cluster.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

/// Why a name is not published.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The reason, from the closed list of the operator.
    pub reason: &'static str,
    /// The cause, and the next step for the user.
    pub message: Box<str>,
}

/// The fields that the entries of an owner share.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Provenance {
    /// The object that they come from.
    pub origin: Origin,
    /// The UID of that object; empty where it is not known.
    pub uid: Arc<str>,
    /// How the names became known.
    pub source: Source,
    /// Their groups.
    pub groups: Vec<Arc<str>>,
    /// The portals that show them.
    pub portals: Vec<Arc<str>>,
    /// Their labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// The server that they are published to, such as `powerdns`; empty where nobody here publishes them.
    pub publisher: Box<str>,
}

/// A name as a system projects it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name.
    pub name: Fqdn,
    /// The type; `None` where any type will do.
    pub rtype: Option<RecordType>,
    /// The expected values; empty where the name must merely exist.
    pub targets: Values,
    /// The answer of the resolvers.
    pub observed: Values,
    /// Where the name comes from.
    pub provenance: Arc<Provenance>,
    /// The purpose of the name.
    pub description: Option<Arc<str>>,
    /// Why it is not published.
    pub refusal: Option<Box<Refusal>>,
    /// Since when it is wanted: a time that a restart does not change, such as the creation of its object.
    pub first_seen: At,
    /// When it was last seen.
    pub last_seen: At,
    /// When it was last looked up.
    pub checked_at: At,
    /// How far it has come.
    pub stage: Stage,
    /// The answer of the resolvers, in a word.
    pub status: SyncStatus,
    /// Why.
    pub reason: SyncReason,
    /// Whether the targets are a claim: other targets of another object for the same name and type are a conflict.
    pub claims: bool,
}

impl Entry {
    /// A name that is known and not checked.
    pub fn new(name: Fqdn, rtype: Option<RecordType>, provenance: Arc<Provenance>) -> Self {
        Self {
            name,
            rtype,
            provenance,
            targets: Values::default(),
            observed: Values::default(),
            description: None,
            refusal: None,
            first_seen: At::NEVER,
            last_seen: At::NEVER,
            checked_at: At::NEVER,
            stage: Stage::default(),
            status: SyncStatus::default(),
            reason: SyncReason::default(),
            claims: false,
        }
    }

    /// Whether others judge it: a system projects what it published, and not what is served.
    pub(crate) fn awaits_judgement(&self) -> bool {
        (self.status, self.reason, self.stage) == (SyncStatus::Unchecked, SyncReason::Unchecked, Stage::Published)
            && self.provenance.source == Source::System
    }

    /// Whether both are the same but for the times of the last check.
    pub fn same(&self, other: &Self) -> bool {
        self.order(other) == Ordering::Equal
    }

    /// By name and type, then by everything else but the times of the last check.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let Self {
            name,
            rtype,
            targets,
            observed,
            provenance,
            description,
            refusal,
            first_seen,
            last_seen: _,
            checked_at: _,
            stage,
            status,
            reason,
            claims,
        } = self;
        let provenances = || {
            if Arc::ptr_eq(provenance, &other.provenance) { Ordering::Equal } else { provenance.cmp(&other.provenance) }
        };
        (name, rtype)
            .cmp(&(&other.name, &other.rtype))
            .then_with(provenances)
            .then_with(|| (first_seen, targets, observed).cmp(&(&other.first_seen, &other.targets, &other.observed)))
            .then_with(|| (description, refusal).cmp(&(&other.description, &other.refusal)))
            .then_with(|| {
                (stage, status, reason, claims).cmp(&(&other.stage, &other.status, &other.reason, &other.claims))
            })
    }
}

/// What the resolvers answered for a name.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// In a word.
    pub status: SyncStatus,
    /// Why.
    pub reason: SyncReason,
    /// The answers.
    pub observed: Values,
    /// When they were given.
    pub checked_at: At,
}

/// What many views of an owner have in common. It exists once for all of them.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) owner: Arc<Owner>,
    pub(crate) provenance: Arc<Provenance>,
    pub(crate) description: Option<Arc<str>>,
    pub(crate) refusal: Option<Box<Refusal>>,
    pub(crate) first_seen: At,
    /// The type, where it has no code.
    pub(crate) other: Option<RecordType>,
}

impl Shared {
    /// Whether it is what the entry of the same owner has in common with others.
    pub(crate) fn suits(&self, entry: &Entry) -> bool {
        let Self { owner: _, provenance, description, refusal, first_seen, other } = self;
        let same_text = || match (description, &entry.description) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            (a, b) => a == b,
        };
        // The cheap comparisons first.
        *first_seen == entry.first_seen
            && *other == other_type(entry.rtype)
            && same_text()
            && *refusal == entry.refusal
            && (Arc::ptr_eq(provenance, &entry.provenance) || *provenance == entry.provenance)
    }

    /// The same, where both share their parts already. Costs a few comparisons of pointers.
    pub(crate) fn shares(&self, entry: &Entry) -> bool {
        let same_text = match (&self.description, &entry.description) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        Arc::ptr_eq(&self.provenance, &entry.provenance)
            && same_text
            && self.first_seen == entry.first_seen
            && self.refusal.is_none()
            && entry.refusal.is_none()
            && self.other == other_type(entry.rtype)
    }
}

/// The code of a type without one; codes have five bits.
const OTHER: u8 = 31;
const _: () = assert!(RecordType::KNOWN.len() < OTHER as usize, "a code has five bits");

/// The code of a type: 0 for none.
pub(crate) fn code_of(rtype: Option<RecordType>) -> u8 {
    let Some(rtype) = rtype else { return 0 };
    let known = RecordType::KNOWN.iter().position(|known| *known == rtype);
    known.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(OTHER)
}

fn other_type(rtype: Option<RecordType>) -> Option<RecordType> {
    rtype.filter(|_| code_of(rtype) == OTHER)
}

/// A name as readers get it.
#[derive(Debug)]
pub struct View {
    name: Fqdn,
    pub(crate) shared: Arc<Shared>,
    targets: Values,
    /// `None` where they are the targets, or where there are none.
    observed: Option<Box<Values>>,
    last_seen: At,
    checked_at: At,
    pub(crate) last_change: At,
    /// Tells views of one name, type and owner apart, from 0.
    pub(crate) ordinal: u16,
    packed: Packed,
}

/// Type, stage and result in two octets. An allocation comes in steps of 16 octets, and these two are the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed {
    /// The code of the type (5 bits), the stage (2), and whether the targets were observed.
    kind: u8,
    /// The reason (4 bits), the status (3), and whether the targets are a claim.
    result: u8,
}

impl Packed {
    fn new(entry: &Entry, observed_targets: bool) -> Self {
        let (stage, status, reason) = (entry.stage as u8, entry.status as u8, entry.reason as u8);
        Self {
            kind: code_of(entry.rtype) << 3 | stage << 1 | u8::from(observed_targets),
            result: reason << 4 | status << 1 | u8::from(entry.claims),
        }
    }

    fn code(self) -> u8 {
        self.kind >> 3
    }

    fn stage(self) -> Stage {
        Stage::ALL.get(usize::from(self.kind >> 1 & 0b11)).copied().unwrap_or_default()
    }

    fn status(self) -> SyncStatus {
        SyncStatus::ALL.get(usize::from(self.result >> 1 & 0b111)).copied().unwrap_or_default()
    }

    fn reason(self) -> SyncReason {
        SyncReason::ALL.get(usize::from(self.result >> 4)).copied().unwrap_or_default()
    }
}

impl View {
    pub(crate) fn new(entry: Entry, shared: Arc<Shared>, ordinal: u16, last_change: At) -> Self {
        let observed_targets = entry.observed == entry.targets;
        let packed = Packed::new(&entry, observed_targets);
        let observed = Some(entry.observed).filter(|observed| !observed_targets && !observed.is_empty());
        Self {
            name: entry.name,
            shared,
            targets: entry.targets,
            observed: observed.map(Box::new),
            last_seen: entry.last_seen,
            checked_at: entry.checked_at,
            last_change,
            ordinal,
            packed,
        }
    }

    /// The entry that it was made of.
    pub(crate) fn to_entry(&self) -> Entry {
        let Shared { owner: _, provenance, description, refusal, first_seen, other: _ } = &*self.shared;
        Entry {
            name: self.name.clone(),
            rtype: self.rtype(),
            targets: self.targets.clone(),
            observed: self.observed().clone(),
            provenance: provenance.clone(),
            description: description.clone(),
            refusal: refusal.clone(),
            first_seen: *first_seen,
            last_seen: self.last_seen,
            checked_at: self.checked_at,
            stage: self.stage(),
            status: self.status(),
            reason: self.reason(),
            claims: self.claims(),
        }
    }

    /// What two entries of an owner have in common when they are one view, as a new record.
    pub(crate) fn share(owner: &Arc<Owner>, entry: &Entry) -> Arc<Shared> {
        Arc::new(Shared {
            owner: owner.clone(),
            provenance: entry.provenance.clone(),
            description: entry.description.clone(),
            refusal: entry.refusal.clone(),
            first_seen: entry.first_seen,
            other: other_type(entry.rtype),
        })
    }

    /// Whether it is the view of this entry but for the times of the last check.
    pub(crate) fn is_of(&self, entry: &Entry) -> bool {
        let observed_targets = entry.observed == entry.targets;
        self.packed == Packed::new(entry, observed_targets)
            && self.targets == entry.targets
            && (observed_targets || *self.observed() == entry.observed)
            && self.shared.suits(entry)
            && self.name == entry.name
    }

    /// Whether the times of the last check are those of this entry.
    pub(crate) fn is_as_old_as(&self, entry: &Entry) -> bool {
        (self.last_seen, self.checked_at) == (entry.last_seen, entry.checked_at)
    }

    /// The name.
    pub fn name(&self) -> &Fqdn {
        &self.name
    }

    /// The type; `None` where any type will do.
    pub fn rtype(&self) -> Option<RecordType> {
        match self.code() {
            0 => None,
            OTHER => self.shared.other,
            code => RecordType::KNOWN.get(usize::from(code) - 1).copied(),
        }
    }

    /// The expected values; empty where the name must merely exist.
    pub fn targets(&self) -> &Values {
        &self.targets
    }

    /// The answer of the resolvers.
    pub fn observed(&self) -> &Values {
        static NOTHING: Values = Values::EMPTY;
        match &self.observed {
            Some(observed) => observed,
            None if self.packed.kind & 1 == 1 => &self.targets,
            None => &NOTHING,
        }
    }

    /// Where the name comes from.
    pub fn provenance(&self) -> &Arc<Provenance> {
        &self.shared.provenance
    }

    /// The purpose of the name.
    pub fn description(&self) -> Option<&Arc<str>> {
        self.shared.description.as_ref()
    }

    /// Why it is not published.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.shared.refusal.as_deref()
    }

    /// Since when it is wanted.
    pub fn first_seen(&self) -> At {
        self.shared.first_seen
    }

    /// When it was last seen.
    pub fn last_seen(&self) -> At {
        self.last_seen
    }

    /// When it was last looked up.
    pub fn checked_at(&self) -> At {
        self.checked_at
    }

    /// How far it has come.
    pub fn stage(&self) -> Stage {
        self.packed.stage()
    }

    /// The answer of the resolvers, in a word.
    pub fn status(&self) -> SyncStatus {
        self.packed.status()
    }

    /// Why.
    pub fn reason(&self) -> SyncReason {
        self.packed.reason()
    }

    /// Whether the targets are a claim.
    pub fn claims(&self) -> bool {
        self.packed.result & 1 == 1
    }

    /// The code of its type.
    pub(crate) fn code(&self) -> u8 {
        self.packed.code()
    }

    /// Whose view it is.
    pub fn owner(&self) -> &Owner {
        &self.shared.owner
    }

    /// When something other than the time of a check last changed.
    pub fn last_change(&self) -> At {
        self.last_change
    }

    /// The position among all views: by name, type and owner.
    pub(crate) fn place(&self) -> Place<'_> {
        Place { name: self.name.undotted(), rtype: self.rtype(), owner: &self.shared.owner, ordinal: self.ordinal }
    }
}

/// The sort key of a view.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place<'a> {
    pub(crate) name: &'a str,
    pub(crate) rtype: Option<RecordType>,
    pub(crate) owner: &'a Owner,
    pub(crate) ordinal: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_small() {
        assert!(std::mem::size_of::<View>() <= 72, "{}", std::mem::size_of::<View>());
    }

    #[test]
    fn what_is_packed_is_read_back() {
        let owner = Arc::new(Owner::new("a", "b"));
        for (number, reason) in SyncReason::ALL.into_iter().enumerate() {
            let (stage, status) = (Stage::ALL[number % 4], SyncStatus::ALL[number % 5]);
            for (claims, observed) in [(true, "192.0.2.1"), (false, "192.0.2.1"), (true, "192.0.2.2"), (false, "")] {
                let mut entry = Entry::new(Fqdn::root(), Some(RecordType::A), Arc::default());
                (entry.stage, entry.status, entry.reason, entry.claims) = (stage, status, reason, claims);
                (entry.targets, entry.observed) = (["192.0.2.1"].iter().collect(), [observed].iter().collect());
                let view = View::new(entry.clone(), View::share(&owner, &entry), 7, At::NEVER);
                assert_eq!((view.stage(), view.status(), view.reason()), (stage, status, reason));
                assert_eq!((view.claims(), view.observed()), (claims, &entry.observed));
                assert!(view.is_of(&entry) && view.to_entry().same(&entry));
            }
        }
    }

    #[test]
    fn types_have_codes_and_others_are_kept() {
        let odd: RecordType = "TYPE65280".parse().unwrap();
        for rtype in RecordType::KNOWN.iter().copied().map(Some).chain([None, Some(odd)]) {
            let entry = Entry::new(Fqdn::root(), rtype, Arc::default());
            let shared = View::share(&Arc::new(Owner::new("a", "b")), &entry);
            assert_eq!(View::new(entry, shared, 0, At::NEVER).rtype(), rtype);
        }
    }
}
