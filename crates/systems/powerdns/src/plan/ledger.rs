//! The ledger: record sets that are on their way and not yet in the status of their object.
//!
//! In: the lines of a zone object's status, and what is about to be written. Out: lines, and what is provably ours.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    time::Duration,
};

use jiff::Timestamp;
use signpost_dns::{Fqdn, RecordKey, RecordType, ZoneName};

use super::mark::{self, Mark};
use crate::index::digest::Digest;

/// The start of a line that the zone itself is being created; the digest of what was asked for follows.
pub(crate) const ZONE_MARK: &str = "@ ZONE";

/// Record sets that are on their way and not yet in the status of their object.
///
/// It is written to the zone object before a batch and cleared after it. A listed record that no object wants is provably
/// ours, as long as the server has exactly what the ledger lists.
///
/// A line whose request ended without an answer is uncertain: the server may still carry the request out. The line
/// stays listed for a grace period, whatever the server has meanwhile. The same holds for every line that was read
/// back from the zone object, because the result of its request is unknown.
///
/// It is one list with one writer, so nothing is lost by writing it whole. Within a cluster the writer is the leader: a
/// successor reads the list before it writes, and its predecessor is fenced before each change of the server and of the
/// object. Another cluster has a zone object of its own, and so a list of its own.
///
/// Processes that watch one namespace each and share a ClusterZone do overwrite each other's lines. The records that one of them
/// has in flight stay in its memory all the same, so a line only matters if that process also dies before the status of the
/// object reports the same. Then the object, if it still exists, finds its record in place; if it was deleted
/// in that moment, the record stays behind. Too little is deleted, never too much: in such a zone (`ZoneSnapshot::shared`)
/// a line deletes something only at a name whose last object was seen to be deleted.
///
/// A line of an endpoint stays as long as its record set does: a DNSEndpoint has neither a finalizer nor a status of ours, so that nothing
/// else proves who wrote the record set once the object is deleted. These lines are a list of their own on the zone object, which is
/// unchanged while DNSEndpoints are not published. A list that would be long is written as marks, without names. It is still one
/// list in one write: there is no moment at which a line is in neither form. A mark that is read back becomes a line as soon as
/// a record set with this mark is found, on the server or in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// More than one digest of a set where it was changed again before its status could report it.
    lines: BTreeMap<(RecordKey, Digest), Line>,
    /// The zone itself is being created: what the requests asked for, as [`super::zone::shape_asked`] has it.
    creations: BTreeSet<Digest>,
    /// The zone is ours in any shape: it was found as a request asked for and was changed since, or an older version of the operator
    /// has listed it.
    any_shape: bool,
    /// Since when it is uncertain whether the zone will still be created.
    pub(crate) zone_uncertain: Option<Timestamp>,
    /// Marks that were read back, of record sets that are not found yet.
    marks: BTreeSet<Mark>,
    /// Since when it is uncertain whether the server will still carry the requests of these marks out.
    marks_uncertain: Option<Timestamp>,
    /// Bytes up to which the list of endpoints has lines; a longer list has marks.
    pub(crate) packs_above: usize,
}

/// Bytes up to which the list of endpoints has lines, if not set otherwise.
pub(crate) const PACKS_ABOVE: usize = 700_000;

impl Default for Ledger {
    fn default() -> Self {
        Self {
            lines: BTreeMap::new(),
            creations: BTreeSet::new(),
            any_shape: false,
            zone_uncertain: None,
            marks: BTreeSet::new(),
            marks_uncertain: None,
            packs_above: PACKS_ABOVE,
        }
    }
}

/// The state of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Line {
    /// Since when it is uncertain whether the server will still carry its request out.
    uncertain: Option<Timestamp>,
    /// Its mark, where it was written for an endpoint of a DNSEndpoint.
    endpoint: Option<Mark>,
}

impl Line {
    fn is_endpoint(&self) -> bool {
        self.endpoint.is_some()
    }
}

impl Ledger {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.marks.is_empty() && !self.lists_zone()
    }

    /// Lists that the zone is about to be created as a request asks for.
    pub(crate) fn list_zone(&mut self, asked: Digest) {
        self.creations.insert(asked);
    }

    /// Whether a creation of the zone is listed.
    pub(crate) fn lists_zone(&self) -> bool {
        self.any_shape || !self.creations.is_empty()
    }

    /// Whether a request that asks for this shape is listed.
    pub(crate) fn lists_creation(&self, asked: Digest) -> bool {
        self.creations.contains(&asked)
    }

    /// Whether a creation is listed, and only the shape that it asked for counts.
    pub(crate) fn lists_shapes(&self) -> bool {
        self.lists_zone() && !self.any_shape
    }

    /// The zone was found in a shape that is listed, and counts as ours in any shape from now on.
    pub(crate) fn list_any_shape(&mut self) {
        self.any_shape = true;
    }

    /// Whether a zone of this shape may have been created by a listed request.
    pub(crate) fn lists_zone_as(&self, shape: Digest) -> bool {
        self.any_shape || self.creations.contains(&shape)
    }

    /// The creation of the zone stays listed only where that is so.
    pub(crate) fn keep_zone(&mut self, keep: bool) {
        if !keep {
            self.creations.clear();
            self.any_shape = false;
        }
    }

    /// The sets that are listed.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &RecordKey> {
        let mut last = None;
        self.lines.keys().map(|(key, _)| key).filter(move |key| last.replace(*key) != Some(*key))
    }

    /// The sets that are listed for record set objects alone.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = &RecordKey> {
        self.lines.iter().filter(|(_, line)| !line.is_endpoint()).map(|((key, _), _)| key)
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// How many contents of that set are listed.
    pub(crate) fn count(&self, key: &RecordKey) -> usize {
        self.of(key).count()
    }

    fn of(&self, key: &RecordKey) -> impl Iterator<Item = Digest> {
        self.lines.range(Self::range(key)).map(|((_, digest), _)| *digest)
    }

    fn range(key: &RecordKey) -> RangeInclusive<(RecordKey, Digest)> {
        (key.clone(), Digest::MIN)..=(key.clone(), Digest::MAX)
    }

    /// The same after the zone was deleted: without any record set, and a zone in another shape than a request asks for is foreign.
    pub(crate) fn of_zone_alone(self) -> Self {
        Self { lines: BTreeMap::new(), marks: BTreeSet::new(), marks_uncertain: None, any_shape: false, ..self }
    }

    /// How much room its lines take.
    pub(crate) fn size(&self, zone: &ZoneName) -> Size {
        let marks = self.marks.len();
        let mut size =
            Size { in_flight: 0, plain: 0, endpoints: marks, packs: marks > 0, packs_above: self.packs_above };
        for ((key, _), line) in &self.lines {
            size.add(zone, key, line.is_endpoint());
        }
        size
    }

    /// How many lines of endpoints there are, in either form.
    pub(crate) fn endpoints(&self) -> usize {
        self.marks.len() + self.lines.values().filter(|line| line.is_endpoint()).count()
    }

    /// Whether that content of that set is listed.
    pub(crate) fn lists(&self, key: &RecordKey, digest: Digest) -> bool {
        self.of(key).any(|listed| listed == digest)
    }

    /// Lists a content of a set that is about to be written.
    pub(crate) fn list(&mut self, key: RecordKey, digest: Digest) {
        self.lines.entry((key, digest)).or_default();
    }

    /// Lists a content of a set that an endpoint has on the server, or is about to have there.
    pub(crate) fn list_endpoint(&mut self, key: RecordKey, digest: Digest) {
        let mark = Mark::of(&key, digest);
        self.lines.entry((key, digest)).or_default().endpoint = Some(mark);
    }

    /// Whether that content of that set is listed for an endpoint.
    pub(crate) fn lists_endpoint(&self, key: &RecordKey, digest: Digest) -> bool {
        self.lines.get(&(key.clone(), digest)).is_some_and(Line::is_endpoint)
    }

    /// Whether any content of that set is listed for an endpoint.
    pub(crate) fn has_endpoint(&self, key: &RecordKey) -> bool {
        self.lines.range(Self::range(key)).any(|(_, line)| line.is_endpoint())
    }

    /// Whether record sets are listed that are not found yet.
    pub(crate) fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    /// A mark of this content of this set becomes a line.
    pub(crate) fn name_mark(&mut self, key: &RecordKey, digest: Digest) {
        let mark = Mark::of(key, digest);
        if self.marks.remove(&mark) {
            let line = self.lines.entry((key.clone(), digest)).or_default();
            *line = Line { uncertain: line.uncertain.max(self.marks_uncertain), endpoint: Some(mark) };
        }
    }

    /// The server was asked, and does not have what the remaining marks list: they are over, unless their requests are uncertain.
    pub(crate) fn forget_marks(&mut self) {
        if self.marks_uncertain.is_none() {
            self.marks.clear();
        }
    }

    /// A request with this content ended without an answer: the server may still carry it out.
    pub(crate) fn list_uncertain(&mut self, key: RecordKey, digest: Digest, now: Timestamp) {
        self.lines.entry((key, digest)).or_default().uncertain = Some(now);
    }

    /// Takes one content of a set off; what else was written under its key stays listed, and so does what is uncertain.
    pub(crate) fn strike(&mut self, key: &RecordKey, digest: Digest) {
        self.keep(key, |other| other != digest);
    }

    /// Takes a set off, apart from what is uncertain.
    pub(crate) fn forget(&mut self, key: &RecordKey) {
        self.keep(key, |_| false);
    }

    /// The set has this content now: no other is listed, apart from what is uncertain.
    pub(crate) fn confirm(&mut self, key: &RecordKey, digest: Digest) {
        self.keep(key, |other| other == digest);
    }

    /// Takes a set off whatever is known of it.
    pub(crate) fn unlist(&mut self, key: &RecordKey) -> bool {
        self.lines.extract_if(Self::range(key), |_, _| true).count() > 0
    }

    /// Keeps these contents of a set, and what is uncertain.
    pub(crate) fn keep(&mut self, key: &RecordKey, keeps: impl Fn(Digest) -> bool) {
        let over = |(_, digest): &(RecordKey, Digest), line: &mut Line| line.uncertain.is_none() && !keeps(*digest);
        self.lines.extract_if(Self::range(key), over).for_each(drop);
    }

    /// Every line is uncertain from now on: it was read back, and the result of its request is unknown.
    pub(crate) fn doubt(&mut self, now: Timestamp) {
        for line in self.lines.values_mut() {
            line.uncertain = Some(now);
        }
        self.marks_uncertain = self.has_marks().then_some(now);
        if self.lists_zone() {
            self.zone_uncertain = Some(now);
        }
    }

    /// Whether the grace period of a request without an answer has ended since the pass before.
    pub(crate) fn is_over(&self, now: Timestamp, grace: Duration) -> bool {
        self.uncertain().min().is_some_and(|since| now.duration_since(since).unsigned_abs() >= grace)
    }

    /// Requests that ended without an answer so long ago are over.
    pub(crate) fn expire(&mut self, now: Timestamp, grace: Duration) {
        let over = |since: &mut Option<Timestamp>| {
            if since.is_some_and(|since| now.duration_since(since).unsigned_abs() >= grace) {
                *since = None;
            }
        };
        self.lines.values_mut().for_each(|line| over(&mut line.uncertain));
        over(&mut self.zone_uncertain);
        over(&mut self.marks_uncertain);
    }

    fn uncertain(&self) -> impl Iterator<Item = Timestamp> {
        let marks = self.marks_uncertain.filter(|_| self.has_marks());
        self.lines.values().map(|line| line.uncertain).chain([self.zone_uncertain, marks]).flatten()
    }

    /// Since when a request may still be carried out, the latest of all.
    pub(crate) fn uncertain_since(&self) -> Option<Timestamp> {
        self.uncertain().max()
    }

    /// The keys listed at a name.
    pub(crate) fn at(&self, name: &Fqdn) -> Vec<RecordKey> {
        if self.lines.is_empty() {
            return Vec::new();
        }
        let from = (RecordKey::new(name.clone(), RecordType::A), Digest::MIN);
        let keys = self.lines.range(from..).map(|((key, _), _)| key).take_while(|key| key.name == *name);
        let mut keys: Vec<RecordKey> = keys.cloned().collect();
        keys.dedup();
        keys
    }

    /// Reads the lines of a status; lines that cannot be understood are foreign and are dropped.
    pub(crate) fn parse(zone: &ZoneName, lines: &[String]) -> Self {
        let mut ledger = Self::default();
        let (marks, lines): (Vec<&String>, Vec<&String>) = lines.iter().partition(|line| line.starts_with(ZONE_MARK));
        for mark in marks {
            let asked = mark.strip_prefix(ZONE_MARK).and_then(|digest| Digest::parse(digest.trim_start()));
            ledger.any_shape |= asked.is_none();
            ledger.creations.extend(asked);
        }
        for (key, digest) in lines.into_iter().filter_map(|line| parse_line(zone, line)) {
            ledger.list(key, digest);
        }
        ledger
    }

    /// Adds the lines that a status has of endpoints.
    pub(crate) fn add_endpoints(&mut self, zone: &ZoneName, lines: &[String]) {
        for (key, digest) in lines.iter().filter_map(|line| parse_line(zone, line)) {
            self.list_endpoint(key, digest);
        }
        self.marks.extend(lines.iter().flat_map(|line| mark::unpack(line)));
    }

    /// The lines for a status, names relative to the zone.
    pub(crate) fn lines(&self, zone: &ZoneName) -> Vec<String> {
        let asked = self.creations.iter().map(|asked| format!("{ZONE_MARK} {asked}"));
        let any = self.any_shape.then(|| ZONE_MARK.to_owned());
        asked.chain(any).chain(self.texts(zone, false)).collect()
    }

    /// The list of endpoints for a status.
    pub(crate) fn endpoint_lines(&self, zone: &ZoneName) -> Vec<String> {
        if !self.size(zone).is_packed() {
            return self.texts(zone, true).collect();
        }
        let marks = self.lines.values().filter_map(|line| line.endpoint);
        mark::pack(self.marks.iter().copied().chain(marks).collect())
    }

    fn texts(&self, zone: &ZoneName, endpoint: bool) -> impl Iterator<Item = String> {
        let lines = self.lines.iter().filter(move |(_, line)| line.is_endpoint() == endpoint);
        lines.map(|((key, digest), _)| {
            let name = zone.relative(&key.name).map_or_else(|| key.name.to_string(), str::to_owned);
            format!("{name} {} {digest}", key.rtype)
        })
    }
}

/// The room that a ledger takes in a status, while lines are added.
pub(crate) struct Size {
    in_flight: usize,
    /// The list of endpoints as lines.
    plain: usize,
    /// How many endpoints are listed.
    endpoints: usize,
    /// Whether the list of endpoints has marks, whatever its length.
    packs: bool,
    packs_above: usize,
}

impl Size {
    /// Adds a line of a set.
    pub(crate) fn add(&mut self, zone: &ZoneName, key: &RecordKey, endpoint: bool) {
        let name = zone.relative(&key.name).map_or_else(|| key.name.to_string().len(), str::len);
        // Two spaces, a digest of sixteen digits, two quotes and a comma.
        let bytes = name + key.rtype.as_str().len() + 21;
        if endpoint {
            self.plain += bytes;
            self.endpoints += 1;
        } else {
            self.in_flight += bytes;
        }
    }

    /// Whether the list of endpoints has marks.
    fn is_packed(&self) -> bool {
        self.packs || self.plain > self.packs_above
    }

    /// How many bytes all lines take.
    pub(crate) fn bytes(&self) -> usize {
        let endpoints = if self.is_packed() { mark::packed_bytes(self.endpoints) } else { self.plain };
        self.in_flight + endpoints
    }
}

fn parse_line(zone: &ZoneName, line: &str) -> Option<(RecordKey, Digest)> {
    let mut words = line.split(' ');
    let (Some(name), Some(rtype), Some(digest), None) = (words.next(), words.next(), words.next(), words.next()) else {
        return None;
    };
    Some((RecordKey::new(zone.resolve(name).ok()?, rtype.parse().ok()?), Digest::parse(digest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_endpoints_are_a_list_of_their_own() {
        let zone = ZoneName::parse("example.com").unwrap();
        let digest = Digest::parse("0123456789abcdef").unwrap();
        let key = |name: &str| RecordKey::new(zone.resolve(name).unwrap(), RecordType::A);
        let mut ledger = Ledger::default();
        ledger.list(key("www"), digest);
        ledger.list(key("app"), digest);
        ledger.list_endpoint(key("app"), digest);
        assert_eq!(ledger.lines(&zone), ["www A 0123456789abcdef"]);
        assert_eq!(ledger.endpoint_lines(&zone), ["app A 0123456789abcdef"]);
        let mut read = Ledger::parse(&zone, &ledger.lines(&zone));
        read.add_endpoints(&zone, &ledger.endpoint_lines(&zone));
        assert_eq!(read, ledger);
        // A request without an answer is not forgotten to be an endpoint's.
        read.list_uncertain(key("app"), digest, Timestamp::UNIX_EPOCH);
        assert!(read.lists_endpoint(&key("app"), digest) && !read.lists_endpoint(&key("www"), digest));
    }

    fn key(number: usize) -> RecordKey {
        RecordKey::new(Fqdn::parse(&format!("n{number}.example.com")).unwrap(), RecordType::A)
    }

    /// A ledger with endpoints that writes their list as marks, and another one that has read it.
    fn packed(count: usize, now: Timestamp) -> (Ledger, Ledger, Digest) {
        let zone = ZoneName::parse("example.com").unwrap();
        let digest = Digest::parse("0123456789abcdef").unwrap();
        let mut ledger = Ledger { packs_above: 0, ..Ledger::default() };
        for number in 0..count {
            ledger.list_endpoint(key(number), digest);
        }
        let mut read = Ledger::default();
        read.add_endpoints(&zone, &ledger.endpoint_lines(&zone));
        read.doubt(now);
        (ledger, read, digest)
    }

    #[test]
    fn a_list_has_marks_only_when_it_is_long_and_takes_the_bytes_that_are_counted() {
        let zone = ZoneName::parse("example.com").unwrap();
        let (ledger, _, _) = packed(100, Timestamp::UNIX_EPOCH);
        let mut sizes = Vec::new();
        for packs_above in [0, ledger.size(&zone).plain - 1, ledger.size(&zone).plain] {
            let ledger = Ledger { packs_above, ..ledger.clone() };
            let lines = ledger.endpoint_lines(&zone);
            let bytes: usize = lines.iter().map(|line| line.len() + 3).sum();
            assert_eq!(ledger.size(&zone).bytes(), bytes);
            sizes.push((lines.len(), bytes));
        }
        assert_eq!(sizes, [(2, 1606), (2, 1606), (100, 2490)]);
        assert!(mark::packed_bytes(crate::plan::MAX_ENDPOINTS) < 900_000);
    }

    #[test]
    fn a_mark_is_a_line_again_when_its_set_is_found_and_nothing_is_lost_until_then() {
        let zone = ZoneName::parse("example.com").unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let (ledger, mut read, digest) = packed(100, now);
        let changed = Digest::parse("fedcba9876543210").unwrap();
        read.name_mark(&key(7), changed);
        assert_eq!((read.endpoints(), read.len()), (100, 0), "another content is not what was listed");
        for number in 0..60 {
            read.name_mark(&key(number), digest);
            read.name_mark(&key(number), digest);
        }
        assert!(read.lists_endpoint(&key(59), digest) && !read.lists_endpoint(&key(60), digest));
        assert_eq!((read.endpoints(), read.len()), (100, 60));
        assert_eq!(read.endpoint_lines(&zone), ledger.endpoint_lines(&zone), "a half-read list is written as it was");
        for number in 60..100 {
            read.name_mark(&key(number), digest);
        }
        assert!(!read.has_marks());
        read.expire(now + Duration::from_mins(1), Duration::from_mins(1));
        assert_eq!(Ledger { packs_above: 0, ..read }, ledger);
    }

    #[test]
    fn marks_of_nothing_are_over_after_the_grace_period_and_not_before() {
        let (sent, grace) = (Timestamp::UNIX_EPOCH, Duration::from_mins(1));
        let (_, mut read, digest) = packed(2, sent);
        read.name_mark(&key(0), digest);
        read.forget_marks();
        assert!(read.has_marks() && read.uncertain_since() == Some(sent), "the server may still write it");
        assert!(read.is_over(sent + grace, grace));
        read.expire(sent + grace, grace);
        assert!(read.has_marks(), "it is looked for once more");
        read.forget_marks();
        assert!(!read.has_marks() && read.lists_endpoint(&key(0), digest) && read.uncertain_since().is_none());
        assert!(!packed(2, sent).1.of_zone_alone().has_marks());
    }

    #[test]
    fn a_ledger_reads_back_what_it_wrote_and_drops_nonsense() {
        let zone = ZoneName::parse("example.com").unwrap();
        let digest = Digest::parse("0123456789abcdef").unwrap();
        let mut ledger = Ledger::default();
        ledger.list_zone(digest);
        for name in ["example.com", "www.example.com", "*.a.example.com"] {
            ledger.list(RecordKey::new(Fqdn::parse(name).unwrap(), RecordType::A), digest);
        }
        let mut lines = ledger.lines(&zone);
        assert!(lines.contains(&"www A 0123456789abcdef".to_owned()), "{lines:?}");
        assert!(lines.contains(&"@ ZONE 0123456789abcdef".to_owned()), "{lines:?}");
        lines.push("nonsense".into());
        lines.push("www A nothex".into());
        assert_eq!(Ledger::parse(&zone, &lines), ledger);
        let mut records = ledger.clone();
        records.keep_zone(false);
        let bytes: usize = records.lines(&zone).iter().map(|line| line.len() + 3).sum();
        assert_eq!(ledger.size(&zone).bytes(), bytes);
    }

    #[test]
    fn a_listed_creation_is_for_the_shape_that_was_asked_for_alone() {
        let zone = ZoneName::parse("example.com").unwrap();
        let [asked, other] = ["0123456789abcdef", "fedcba9876543210"].map(|text| Digest::parse(text).unwrap());
        let mut ledger = Ledger::default();
        assert!(!ledger.lists_zone_as(asked));
        ledger.list_zone(asked);
        let read = Ledger::parse(&zone, &ledger.lines(&zone));
        assert!(read.lists_zone_as(asked) && !read.lists_zone_as(other));
        let older = Ledger::parse(&zone, &[ZONE_MARK.to_owned()]);
        assert!(older.lists_zone() && older.lists_zone_as(other), "an older version listed no shape");
        ledger.list_any_shape();
        let read = Ledger::parse(&zone, &ledger.lines(&zone));
        assert!(read.lists_zone_as(other) && read.lists_creation(asked) && !read.lists_shapes());
        let deleted = read.of_zone_alone();
        assert!(
            deleted.lists_zone_as(asked) && !deleted.lists_zone_as(other),
            "another creation may still be carried out"
        );
        assert_eq!(older.lines(&zone), [ZONE_MARK]);
    }

    #[test]
    fn a_refused_content_is_struck_and_an_earlier_one_of_the_same_set_stays() {
        let key = RecordKey::new(Fqdn::parse("www.example.com").unwrap(), RecordType::A);
        let [served, refused] = ["0123456789abcdef", "fedcba9876543210"].map(|text| Digest::parse(text).unwrap());
        let mut ledger = Ledger::default();
        ledger.list(key.clone(), served);
        ledger.list(key.clone(), refused);
        ledger.strike(&key, refused);
        assert!(ledger.lists(&key, served) && !ledger.lists(&key, refused));
        ledger.strike(&key, served);
        assert!(ledger.is_empty());
    }

    #[test]
    fn an_uncertain_line_stays_listed_until_the_grace_period_is_over() {
        let key = RecordKey::new(Fqdn::parse("www.example.com").unwrap(), RecordType::A);
        let [late, other] = ["0123456789abcdef", "fedcba9876543210"].map(|text| Digest::parse(text).unwrap());
        let (sent, grace) = (Timestamp::UNIX_EPOCH, Duration::from_mins(1));
        let mut ledger = Ledger::default();
        ledger.list(key.clone(), other);
        ledger.list_uncertain(key.clone(), late, sent);
        ledger.strike(&key, late);
        ledger.forget(&key);
        assert!(ledger.lists(&key, late) && !ledger.lists(&key, other));
        ledger.expire(sent + Duration::from_secs(59), grace);
        assert_eq!(ledger.uncertain_since(), Some(sent));
        assert!(!ledger.is_over(sent + Duration::from_secs(59), grace) && ledger.is_over(sent + grace, grace));
        ledger.expire(sent + grace, grace);
        assert!(!ledger.is_over(sent + grace, grace));
        ledger.forget(&key);
        assert!(ledger.is_empty() && ledger.uncertain_since().is_none());
    }
}
