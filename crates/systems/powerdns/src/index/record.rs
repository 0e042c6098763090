//! The index entry of an object: a few hundred bytes, parsed once, no Kubernetes types.
//!
//! In: Zone, ClusterZone, RRset and ClusterRRset objects as the watch delivers them. Out: [`ZoneObject`] and
//! [`Record`]; a spec that cannot be understood is a [`Refusal`], never an error.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::ObjectMeta;
use signpost_apis::powerdns::{
    AppliedSet, ClusterZone, DeletionPolicy, FINALIZER, GROUP, LEGACY_METRICS_FINALIZER, RRsetSpec, RRsetStatus, Zone,
    ZoneRefKind, ZoneSpec, ZoneStatus,
};
use signpost_dns::{Fqdn, Rdata, RdataError, RecordKey, RecordSet, RecordSetError, RecordType, Ttl, ZoneName};
use signpost_engine::{Identity, ObjectId};
use signpost_planning::{Reason, Refusal};
use signpost_provider_powerdns::SetContent;

use super::digest::Digest;
use crate::report::status::{Decided, Found};

/// The unit that is written at once: a zone, or the objects whose zone name is not a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZoneKey {
    /// A zone.
    Zone(ZoneName),
    /// The zone names in the references of objects, as written.
    Unnamed(Arc<str>),
}

impl ZoneKey {
    /// The key for a text that should be a zone's name.
    pub fn of(text: &str) -> Self {
        ZoneName::parse(text).map_or_else(|_| Self::Unnamed(text.into()), Self::Zone)
    }

    /// The zone, where there is one.
    pub fn zone(&self) -> Option<&ZoneName> {
        match self {
            Self::Zone(zone) => Some(zone),
            Self::Unnamed(_) => None,
        }
    }
}

impl fmt::Display for ZoneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zone(zone) => zone.fmt(f),
            Self::Unnamed(text) => write!(f, "{text:?}"),
        }
    }
}

/// Finalizers that are taken off when an object of ours is deleted.
const OURS: &[&str] = &[FINALIZER, LEGACY_METRICS_FINALIZER];

/// Whether any finalizer of ours, or PowerDNS-Operator's other one, is on the object.
pub(crate) fn has_any_finalizer(identity: &Identity) -> bool {
    OURS.iter().any(|name| identity.finalizers.has(name))
}

/// The finalizers of an object without ours.
pub(crate) fn without_finalizers(identity: &Identity) -> Vec<String> {
    identity.finalizers.without(OURS)
}

/// A Zone or ClusterZone. There are few, so the spec and status are kept whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ZoneObject {
    pub(crate) identity: Identity,
    pub(crate) key: ZoneKey,
    pub(crate) spec: Arc<ZoneSpec>,
    /// Its status as it was last seen.
    pub(crate) status: Arc<ZoneStatus>,
    /// Its wanted status, as it was last decided.
    pub(crate) wanted: Option<Arc<ZoneStatus>>,
    /// Whether the object may be deleted: nothing of it has to be taken off the server any more.
    pub(crate) release: bool,
}

impl ZoneObject {
    /// Whether our finalizer is on it.
    pub(crate) fn has_finalizer(&self) -> bool {
        self.identity.finalizers.has(FINALIZER)
    }

    /// Whether its status reports that the server has the zone.
    pub(crate) fn exists(&self) -> bool {
        self.status.id.is_some()
    }

    /// Its wanted status, or else its current one.
    pub(crate) fn decided(&self) -> &ZoneStatus {
        self.wanted.as_deref().unwrap_or(&self.status)
    }

    pub(crate) fn of(identity: Identity, spec: &ZoneSpec, status: Option<&ZoneStatus>) -> Self {
        let name = spec.zone_name.as_deref().unwrap_or(&identity.id.name);
        let mut status = status.cloned().unwrap_or_default();
        only_ours(&mut status.conditions);
        let (spec, status) = (Arc::new(spec.clone()), Arc::new(status));
        Self { key: ZoneKey::of(name), identity, spec, status, wanted: None, release: false }
    }
}

/// The record of an object, as its status keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppliedRecord {
    pub(crate) zone: ZoneName,
    pub(crate) key: RecordKey,
    pub(crate) digest: Digest,
}

impl AppliedRecord {
    fn parse(set: &AppliedSet) -> Option<Self> {
        Some(Self {
            zone: ZoneName::parse(&set.zone).ok()?,
            key: RecordKey::new(Fqdn::parse(&set.name).ok()?, set.type_.parse().ok()?),
            digest: Digest::parse(&set.hash)?,
        })
    }

    pub(crate) fn to_status(&self) -> AppliedSet {
        AppliedSet {
            zone: self.zone.to_string(),
            name: self.key.name.to_string(),
            type_: self.key.rtype.to_string(),
            hash: self.digest.to_string(),
        }
    }
}

/// The findings of passes of this process about an object's record, until its status reports the same.
///
/// A fact is about the server, not about the object's spec: it stays true when the object is edited or deleted
/// meanwhile, and it is newer than any status that is still on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The object's record on the server.
    now: Option<Arc<AppliedRecord>>,
    /// Earlier facts, whose statuses may still be on their way back.
    earlier: Vec<Option<Arc<AppliedRecord>>>,
}

/// So many earlier facts of an object are recognised when the watch brings their statuses late.
const EARLIER_FACTS: usize = 8;

/// A condition as it was last seen: its status and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since {
    pub(crate) status: bool,
    pub(crate) at: Timestamp,
}

/// The parts of a record set's last seen status that must be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) available: Option<Since>,
    pub(crate) ready: Option<Since>,
    pub(crate) updated: Option<Timestamp>,
    pub(crate) serial: Option<u32>,
    pub(crate) applied: Option<Arc<AppliedRecord>>,
    pub(crate) sync: Option<Sync>,
    /// Why it is not ready.
    pub(crate) refused: Option<Reason>,
    /// The notice that was reported although the object is served.
    pub(crate) notice: Option<Reason>,
    /// Since when.
    pub(crate) noticed: Option<Timestamp>,
    /// The generation that the status speaks of.
    pub(crate) observed: Option<i64>,
}

/// `syncStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Sync {
    Pending,
    Succeeded,
    Failed,
}

impl Sync {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Pending, Self::Succeeded, Self::Failed].into_iter().find(|sync| sync.as_str() == text)
    }
}

pub(crate) fn since(conditions: &[Condition], type_: &str) -> Option<Since> {
    let condition = conditions.iter().find(|condition| condition.type_ == type_)?;
    Some(Since { status: condition.status == "True", at: condition.last_transition_time.0 })
}

/// The condition that is there only when an object is served but probably not as its user meant.
pub(crate) const NOTICE: &str = "Notice";

fn not_ready(conditions: &[Condition]) -> Option<Reason> {
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    ready.reason.parse().ok().filter(|_| ready.status == "False")
}

fn notice(conditions: &[Condition]) -> Option<Reason> {
    let notice = conditions.iter().find(|condition| condition.type_ == NOTICE)?;
    notice.reason.parse().ok()
}

/// Conditions of others are none of our business and must not make a status look changed.
fn only_ours(conditions: &mut Vec<Condition>) {
    conditions.retain(|condition| ["Available", NOTICE, "Ready"].contains(&condition.type_.as_str()));
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
}

impl Seen {
    fn of(status: &RRsetStatus) -> Self {
        Self {
            available: since(&status.conditions, "Available"),
            ready: since(&status.conditions, "Ready"),
            updated: status.last_update_time.as_ref().map(|time| time.0),
            serial: status.serial.and_then(|serial| serial.try_into().ok()),
            applied: status.applied.as_ref().and_then(AppliedRecord::parse).map(Arc::new),
            sync: status.sync_status.as_deref().and_then(Sync::parse),
            refused: not_ready(&status.conditions),
            notice: notice(&status.conditions),
            noticed: since(&status.conditions, NOTICE).map(|since| since.at),
            observed: status.observed_generation,
        }
    }
}

/// The wanted content of a record set, apart from its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Desired {
    pub(crate) rtype: RecordType,
    pub(crate) content: Arc<SetContent>,
    pub(crate) digest: Digest,
    /// The same without its comment, where it has one: for a server that keeps none.
    plain: Option<Box<(Arc<SetContent>, Digest)>>,
}

impl Desired {
    pub(crate) fn new(rtype: RecordType, content: SetContent) -> Self {
        let plain = content.comment.is_some().then(|| {
            let plain = SetContent { comment: None, ..content.clone() };
            Box::new((Arc::new(plain.clone()), Digest::of_content(rtype, &plain)))
        });
        Self { rtype, digest: Digest::of_content(rtype, &content), content: Arc::new(content), plain }
    }
}

/// An RRset, a ClusterRRset, or one endpoint of a DNSEndpoint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) identity: Identity,
    /// The DNSEndpoint that it is an endpoint of.
    pub(crate) endpoint: Option<Arc<ObjectId>>,
    /// The zone object it refers to.
    pub(crate) zone: Arc<ObjectId>,
    /// `spec.name` as written: what it means depends on the zone.
    pub(crate) written_name: Box<str>,
    pub(crate) desired: Result<Desired, Box<Refusal>>,
    pub(crate) retain: bool,
    /// Whether Kubernetes deletes it after the zone object it refers to, as PowerDNS-Operator asked for.
    pub(crate) owned: bool,
    pub(crate) seen: Seen,
    facts: Option<Box<Facts>>,
    /// The key it is worked on under, and its absolute name there.
    pub(crate) home: ZoneKey,
    pub(crate) name: Result<Fqdn, Box<Refusal>>,
    /// The decision of the last pass, until the object changes.
    pub(crate) status: Option<Box<Decided>>,
}

impl Record {
    pub(crate) fn of(identity: Identity, meta: &ObjectMeta, spec: &RRsetSpec, status: Option<&RRsetStatus>) -> Self {
        let id = &identity.id;
        let zone = match spec.zone_ref.kind {
            ZoneRefKind::Zone => ObjectId::new::<Zone>(id.namespace.as_deref(), &spec.zone_ref.name),
            ZoneRefKind::ClusterZone => ObjectId::new::<ClusterZone>(None, &spec.zone_ref.name),
        };
        let mut desired =
            desired("spec.", &spec.type_, spec.ttl, &spec.records, spec.comment.as_deref()).map_err(Box::new);
        if id.namespace.is_none() && spec.zone_ref.kind == ZoneRefKind::Zone {
            let message = "a ClusterRRset belongs to a ClusterZone; set spec.zoneRef.kind to ClusterZone";
            desired = Err(Box::new(Refusal::new(Reason::InvalidSpec, message)));
        }
        let owned = is_owned(meta, &zone);
        Self {
            home: ZoneKey::of(&spec.zone_ref.name),
            name: Err(Box::new(Refusal::new(Reason::ZoneMissing, "the zone is not known yet"))),
            identity,
            endpoint: None,
            zone: Arc::new(zone),
            written_name: spec.name.as_str().into(),
            desired,
            retain: spec.deletion_policy == DeletionPolicy::Retain,
            owned,
            seen: status.map(Seen::of).unwrap_or_default(),
            facts: None,
            status: None,
        }
    }

    /// One endpoint of a DNSEndpoint. `name` is absolute.
    pub(crate) fn of_endpoint(
        identity: Identity,
        object: Arc<ObjectId>,
        name: &str,
        desired: Result<Desired, Refusal>,
    ) -> Self {
        Self {
            home: ZoneKey::of(name),
            name: Err(Box::new(Refusal::new(Reason::ZoneMissing, "the zone is not known yet"))),
            identity,
            endpoint: Some(object),
            zone: Arc::new(ObjectId::new::<ClusterZone>(None, name.trim_end_matches('.'))),
            written_name: name.into(),
            desired: desired.map_err(Box::new),
            retain: false,
            owned: false,
            seen: Seen::default(),
            facts: None,
            status: None,
        }
    }

    /// The object whose status reports it.
    pub(crate) fn reported_on(&self) -> &Arc<ObjectId> {
        self.endpoint.as_ref().unwrap_or(&self.identity.id)
    }

    /// Whether it belongs into the zone of this object. An RRset refers to one zone object; an endpoint belongs to any ClusterZone, and to
    /// any Zone of its namespace.
    pub(crate) fn is_of(&self, zone: &ObjectId) -> bool {
        match self.endpoint {
            Some(_) => zone.namespace.is_none() || zone.namespace == self.identity.id.namespace,
            None => *self.zone == *zone,
        }
    }

    /// Whether our finalizer is on it.
    pub(crate) fn has_finalizer(&self) -> bool {
        self.identity.finalizers.has(FINALIZER)
    }

    /// The known record of the object on the server: from a pass, or else from its status.
    pub(crate) fn applied(&self) -> Option<&Arc<AppliedRecord>> {
        match &self.facts {
            Some(facts) => facts.now.as_ref(),
            None => self.seen.applied.as_ref(),
        }
    }

    /// Whether it may have something of another name or type on the server that its status does not report: it was edited before.
    pub(crate) fn may_have_more(&self) -> bool {
        self.applied().is_none() && self.identity.generation > 1
    }

    /// Whether a pass found out something that is not known yet.
    pub(crate) fn would_learn(&self, found: &Found) -> bool {
        match found {
            Found::Nothing => false,
            Found::Wrote(applied) => self.applied() != Some(applied),
            Found::Absent(zone, key) => {
                self.applied().is_some_and(|applied| applied.zone == *zone && applied.key == *key)
            }
        }
    }

    /// Takes what a pass found out.
    pub(crate) fn learn(&mut self, found: &Found) {
        if !self.would_learn(found) {
            return;
        }
        let now = match found {
            Found::Nothing | Found::Absent(..) => None,
            Found::Wrote(applied) => Some(applied.clone()),
        };
        match &mut self.facts {
            None => self.facts = Some(Box::new(Facts { now, earlier: vec![self.seen.applied.clone()] })),
            Some(facts) => {
                let before = std::mem::replace(&mut facts.now, now);
                facts.earlier.push(before);
                if facts.earlier.len() > EARLIER_FACTS {
                    facts.earlier.remove(0);
                }
            }
        }
    }

    /// Takes over the facts about the same object from before an event, unless its status reports the newest of them,
    /// or something that this process never found out.
    pub(crate) fn inherit_facts(&mut self, old: &Self) {
        let seen = &self.seen.applied;
        let known = |facts: &Facts| facts.now != *seen && facts.earlier.contains(seen);
        self.facts = old.facts.clone().filter(|facts| known(facts));
    }

    /// Finds its place: where it refers to. While there is no such zone object, and when it is deleted, where it has written
    /// something.
    pub(crate) fn settle_in(&mut self, referred: Option<&ZoneKey>) {
        let home = match (self.applied(), referred) {
            (_, Some(key)) if !self.identity.is_deleting() => key.clone(),
            (Some(applied), _) => ZoneKey::Zone(applied.zone.clone()),
            (None, Some(key)) => key.clone(),
            (None, None) => ZoneKey::of(&self.zone.name),
        };
        self.name = match home.zone() {
            Some(zone) => zone
                .resolve(&self.written_name)
                .map_err(|error| Box::new(Refusal::new(name_reason(&error), format!("spec.name: {error}")))),
            None => Err(Box::new(Refusal::new(Reason::InvalidName, format!("{home} is not the name of a zone")))),
        };
        self.home = home;
        self.share_names();
    }

    /// Thousands of objects report the same zone, and mostly the name that they want: the text is kept once.
    fn share_names(&mut self) {
        let (Some(zone), Some(applied)) = (self.home.zone(), &mut self.seen.applied) else { return };
        if let Some(applied) = Arc::get_mut(applied) {
            if applied.zone == *zone {
                applied.zone = zone.clone();
            }
            if let Ok(name) = &self.name
                && applied.key.name == *name
            {
                applied.key.name = name.clone();
            }
        }
    }

    /// The name and type it wants.
    pub(crate) fn key(&self) -> Option<RecordKey> {
        match (&self.name, &self.desired) {
            (Ok(name), Ok(desired)) => Some(RecordKey::new(name.clone(), desired.rtype)),
            _ => None,
        }
    }

    /// Its wanted content. A comment is left out where the server keeps no comments, as it answered before.
    pub(crate) fn wanted(&self, no_comments: bool) -> Option<(&Arc<SetContent>, Digest)> {
        let desired = self.desired.as_ref().ok()?;
        let known =
            self.seen.notice == Some(Reason::CommentNotKept) && self.seen.observed == Some(self.identity.generation);
        match &desired.plain {
            Some(plain) if no_comments || known => Some((&plain.0, plain.1)),
            _ => Some((&desired.content, desired.digest)),
        }
    }

    /// A name without a trailing dot that ends in the zone's name gets the zone appended a second time.
    pub(crate) fn repeats_zone(&self) -> Option<Refusal> {
        if !self.written_name.contains('.') || self.written_name.ends_with('.') {
            return None;
        }
        let (zone, Ok(name)) = (self.home.zone()?, &self.name) else { return None };
        let (written, zone) = (self.written_name.to_ascii_lowercase(), zone.to_string());
        let zone = zone.trim_end_matches('.');
        let relative = written.strip_suffix(zone)?;
        let meant = match relative.strip_suffix('.') {
            Some(meant) if !meant.is_empty() => meant,
            _ if relative.is_empty() => "@",
            _ => return None,
        };
        let message = format!(
            "spec.name {written} has no trailing dot, so the zone is appended and {name} is served. If {written}. was meant, delete this object and create it with the name {meant}"
        );
        Some(Refusal::new(Reason::NameRepeatsZone, message))
    }

    /// Whether what it wrote stays when it is deleted: by its own policy, or because it is deleted after a zone object
    /// that left the zone on the server.
    pub(crate) fn stays_behind(&self, holder: Option<&ZoneObject>) -> bool {
        let retained =
            |zone: &ZoneObject| zone.identity.is_deleting() && zone.spec.deletion_policy == DeletionPolicy::Retain;
        let under = |holder: &ZoneObject| self.is_of(&holder.identity.id) && !retained(holder);
        self.retain || (self.owned && !holder.is_some_and(under))
    }

    /// Whether an object that is being deleted may have written another type than it asks for now, and its status does not report it: it was
    /// edited before. The deletion itself counts as a generation.
    pub(crate) fn was_edited(&self) -> bool {
        self.identity.is_deleting() && self.may_have_more() && self.identity.generation > 2
    }

    /// The record that PowerDNS-Operator wrote for an object that is being deleted before its status could report it: its
    /// finalizer is the same, and its status is Succeeded.
    pub(crate) fn inherited(&self) -> Option<(RecordKey, Digest)> {
        let wrote = self.has_finalizer() && self.applied().is_none() && self.seen.sync == Some(Sync::Succeeded);
        let (_, digest) = self.wanted(false).filter(|_| wrote && self.identity.is_deleting())?;
        Some((self.key()?, digest))
    }

    /// Why it can never be written as it is.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        self.desired.as_ref().err().or(self.name.as_ref().err()).map(|refusal| &**refusal)
    }

    /// Every name it has to do with: the one it wants and the one it wrote.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Fqdn> {
        let here = self.applied().filter(|applied| self.home.zone() == Some(&applied.zone));
        let wrote = here.map(|applied| &applied.key.name);
        let wants = self.name.as_ref().ok();
        wants.into_iter().chain(wrote.filter(move |name| Some(*name) != wants))
    }
}

/// Whether the zone object is an owner of the object.
fn is_owned(meta: &ObjectMeta, zone: &ObjectId) -> bool {
    meta.owner_references.iter().flatten().any(|owner| {
        let group = owner.api_version.split_once('/').map(|(group, _)| group);
        group == Some(GROUP) && owner.kind == zone.kind.name && owner.name == zone.name
    })
}

fn name_reason(error: &signpost_dns::NameError) -> Reason {
    match error {
        signpost_dns::NameError::OutsideZone { .. } => Reason::OutsideZone,
        _ => Reason::InvalidName,
    }
}

/// The most octets a DNS message has.
const MAX_MESSAGE: usize = 65_535;

/// The fewest octets a record can take in a message: a compressed name, type, class, TTL and length, and then data that
/// no text form spells with more than four characters an octet.
fn least_octets(text: &str) -> usize {
    12 + text.len() / 4
}

/// The wanted content of an object's records; `at` is their field, for messages.
pub(crate) fn desired(
    at: &str,
    rtype: &str,
    ttl: i64,
    records: &[String],
    comment: Option<&str>,
) -> Result<Desired, Refusal> {
    let rtype: RecordType =
        rtype.parse().map_err(|error| Refusal::new(Reason::InvalidType, format!("{at}type: {error}")))?;
    let seconds = u32::try_from(ttl).ok().and_then(|ttl| Ttl::new(ttl).ok());
    let Some(ttl) = seconds else {
        let message = format!("{at}ttl: {ttl} is out of range; use 0 to 2147483647");
        return Err(Refusal::new(Reason::InvalidTtl, message));
    };
    // The owner name plays no part in reading the records.
    let set = RecordSet::parse(Fqdn::root(), rtype, ttl, records).map_err(|error| {
        let reason = match &error {
            RecordSetError::Record { source: RdataError::Unquoted { .. }, .. } => Reason::UnquotedText,
            RecordSetError::Record { .. } | RecordSetError::MixedTypes { .. } => Reason::InvalidRecord,
            RecordSetError::Empty => Reason::NoRecords,
            RecordSetError::Singleton { .. } => Reason::TooManyRecords,
        };
        Refusal::new(reason, format!("{at}{error}"))
    })?;
    if set.records.iter().any(Rdata::has_automatic_hint) {
        let message = format!(
            "{at}records: a hint of auto is not supported, because a PowerDNS on LMDB can no longer read a zone with such a record; write the addresses, or leave the hint out"
        );
        return Err(Refusal::new(Reason::Unsupported, message));
    }
    let comment = comment.filter(|comment| !comment.is_empty());
    let content = content(ttl.seconds(), &set.records.into_iter().collect::<Vec<_>>(), comment);
    if content.records.iter().map(|record| least_octets(record)).sum::<usize>() > MAX_MESSAGE {
        let message = format!(
            "{at}records: together they are larger than a DNS message can be (64 kB), so no server can answer with them; spread them over several names"
        );
        return Err(Refusal::new(Reason::Unsupported, message));
    }
    Ok(Desired::new(rtype, content))
}

/// Content in the order the digest and the wire use.
pub(crate) fn content(ttl: u32, records: &[Rdata], comment: Option<&str>) -> SetContent {
    let mut records: Vec<Box<str>> = records.iter().map(|record| record.to_string().into()).collect();
    records.sort_unstable();
    SetContent { ttl, records: records.into(), comment: comment.map(Box::from) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rtype: &str, records: &[String]) -> Result<Desired, Refusal> {
        desired("spec.", rtype, 300, records, None)
    }

    #[test]
    fn what_no_dns_message_can_hold_is_refused_and_what_one_can_is_not() {
        let addresses: Vec<String> =
            (0..4_000).map(|n| format!("192.168.{}.{}", 100 + n / 100, 100 + n % 100)).collect();
        assert!(of("A", &addresses).is_ok(), "16 octets each");
        let text = |count: usize| (0..count).map(|n| format!("\"{n:04}{}\"", "x".repeat(250))).collect::<Vec<_>>();
        assert!(of("TXT", &text(240)).is_ok());
        let refusal = of("TXT", &text(1_000)).unwrap_err();
        assert_eq!(refusal.reason, Reason::Unsupported);
        assert!(refusal.message.contains("64 kB"), "{refusal}");
        let escaped =
            |count: usize| (0..count).map(|n| format!("\"{n:04}{}\"", "\\000".repeat(250))).collect::<Vec<_>>();
        assert!(of("TXT", &escaped(200)).is_ok(), "an escaped octet is four characters");
    }
}
