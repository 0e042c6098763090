//! Which record sets of a zone external-dns owns, by the TXT records of its registry.
//!
//! ```text
//!  weu-cname-app.example.org TXT "heritage=external-dns,external-dns/owner=weu,…" ─► app.example.org CNAME is owned by weu
//! ```
//!
//! The prefix or suffix of the registry is not known, so a TXT record may fit several record sets. Of those, the ones that exist are meant;
//! where none exists, the name after the type is.

use std::collections::{BTreeMap, BTreeSet};

use signpost_dns::{Fqdn, RecordKey, RecordType};
use signpost_provider_powerdns::ServerSet;

use crate::index::digest::Digest;

/// The types that external-dns registers, as its registry spells them.
const TYPES: [(&str, RecordType); 9] = [
    ("a", RecordType::A),
    ("aaaa", RecordType::Aaaa),
    ("cname", RecordType::Cname),
    ("mx", RecordType::Mx),
    ("naptr", RecordType::Naptr),
    ("ns", RecordType::Ns),
    ("ptr", RecordType::Ptr),
    ("srv", RecordType::Srv),
    ("txt", RecordType::Txt),
];

/// The record sets that external-dns owns in a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registry {
    owned: BTreeMap<RecordKey, Entry>,
}

/// The entry of the registry for a record set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name of the TXT record.
    pub(crate) at: Fqdn,
    /// The owner id of the external-dns.
    pub(crate) owner: Box<str>,
}

impl Registry {
    /// The registry that these TXT records are, in a zone with these record sets.
    pub(crate) fn of(entries: Vec<Entry>, sets: &BTreeMap<RecordKey, Digest>) -> Self {
        let mut owned = BTreeMap::new();
        for entry in entries {
            for key in meant(&entry.at, sets) {
                owned.entry(key).or_insert_with(|| entry.clone());
            }
        }
        Self { owned }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.owned.is_empty()
    }

    /// The record sets at a name that external-dns owns.
    pub(crate) fn at<'a>(&'a self, name: &'a Fqdn) -> impl Iterator<Item = (&'a RecordKey, &'a Entry)> {
        let from = RecordKey::new(name.clone(), RecordType::A);
        self.owned.range(from..).take_while(move |(key, _)| key.name == *name)
    }

    /// The TXT records of these record sets, apart from those that are the TXT record of another set as well.
    pub(crate) fn entries_alone(&self, keys: &BTreeSet<RecordKey>) -> BTreeSet<RecordKey> {
        let entries = keys.iter().filter_map(|key| self.owned.get(key)).map(|entry| &entry.at);
        let shared = |at: &Fqdn| self.owned.iter().any(|(key, entry)| entry.at == *at && !keys.contains(key));
        entries.filter(|at| !shared(at)).map(|at| RecordKey::new(at.clone(), RecordType::Txt)).collect()
    }

    /// A record set is deleted.
    pub(crate) fn remove(&mut self, key: &RecordKey) {
        if key.rtype == RecordType::Txt {
            self.owned.retain(|_, entry| entry.at != key.name);
        }
    }
}

/// Reads a TXT record set; `None` when it is not only of the registry.
pub(crate) fn read(set: &ServerSet) -> Option<Entry> {
    if set.rtype != RecordType::Txt {
        return None;
    }
    let text = |content: &str| content.trim_matches('"').to_owned();
    let is_of_registry = |content: &str| text(content).split(',').any(|part| part.trim() == "heritage=external-dns");
    let first = set.contents.first().filter(|_| set.contents.iter().all(|content| is_of_registry(content)))?;
    let first = text(first);
    let owner = first.split(',').find_map(|part| part.trim().strip_prefix("external-dns/owner="));
    Some(Entry { at: set.name.clone(), owner: owner.unwrap_or_default().into() })
}

/// The record sets that a TXT record of the registry is about.
fn meant(at: &Fqdn, sets: &BTreeMap<RecordKey, Digest>) -> BTreeSet<RecordKey> {
    let named = after_type(at);
    let exist = |keys: &BTreeSet<RecordKey>| -> BTreeSet<RecordKey> {
        keys.iter().filter(|key| sets.contains_key(*key)).cloned().collect()
    };
    // The oldest form is a TXT record at the name itself.
    let from = RecordKey::new(at.clone(), RecordType::A);
    let beside = sets.range(from..).map(|(key, _)| key).take_while(|key| key.name == *at);
    let beside: BTreeSet<RecordKey> = beside.filter(|key| key.rtype != RecordType::Txt).cloned().collect();
    let forms = [exist(&named), exist(&below_type(at)), exist(&before_suffix(at)), beside];
    forms.into_iter().find(|keys| !keys.is_empty()).unwrap_or(named)
}

/// `PREFIXcname-app.REST`: what follows the type, in the first label or, where the prefix has dots, in a later one.
fn after_type(at: &Fqdn) -> BTreeSet<RecordKey> {
    let mut keys = BTreeSet::new();
    let labels: Vec<&str> = at.labels().collect();
    for (place, label) in labels.iter().enumerate() {
        for (word, rtype) in TYPES {
            for name in tails(label, word) {
                keys.extend(key(name, &labels[place + 1..], rtype));
            }
        }
    }
    keys
}

/// The text after `WORD-` in a label, wherever it begins a word.
fn tails<'a>(label: &'a str, word: &str) -> Vec<&'a str> {
    let starts = label.match_indices(word).map(|(start, _)| start);
    let begins = |start: usize| label[..start].chars().next_back().is_none_or(|c| !c.is_ascii_alphanumeric());
    let after = starts.filter(|start| begins(*start)).filter_map(|start| label[start + word.len()..].strip_prefix('-'));
    after.filter(|tail| !tail.is_empty()).collect()
}

/// `…cname….app.REST`: a prefix with the type in a label of its own.
fn below_type(at: &Fqdn) -> BTreeSet<RecordKey> {
    let mut keys = BTreeSet::new();
    let labels: Vec<&str> = at.labels().collect();
    for place in 1..labels.len() {
        let words = |label: &&str| label.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_owned).collect();
        let words: Vec<String> = labels[..place].iter().flat_map(|label| -> Vec<String> { words(label) }).collect();
        for (word, rtype) in TYPES {
            if words.iter().any(|other| other == word) {
                keys.extend(key(labels[place], &labels[place + 1..], rtype));
            }
        }
    }
    keys
}

/// `cname-appSUFFIX.REST`: where the suffix begins is not known, only that it begins with a dash.
fn before_suffix(at: &Fqdn) -> BTreeSet<RecordKey> {
    let mut keys = BTreeSet::new();
    let labels: Vec<&str> = at.labels().collect();
    let Some((first, rest)) = labels.split_first() else { return keys };
    for (word, rtype) in TYPES {
        let Some(tail) = first.strip_prefix(word).and_then(|tail| tail.strip_prefix('-')) else { continue };
        for (end, _) in tail.match_indices('-') {
            keys.extend(key(&tail[..end], rest, rtype));
        }
    }
    keys
}

fn key(label: &str, rest: &[&str], rtype: RecordType) -> Option<RecordKey> {
    let name = std::iter::once(label).chain(rest.iter().copied()).collect::<Vec<_>>().join(".");
    (!label.is_empty()).then(|| Fqdn::parse(&name).ok()).flatten().map(|name| RecordKey::new(name, rtype))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(records: &[(&str, RecordType)]) -> BTreeMap<RecordKey, Digest> {
        let key = |(name, rtype): &(&str, RecordType)| RecordKey::new(Fqdn::parse(name).unwrap(), *rtype);
        records.iter().map(|record| (key(record), Digest::MIN)).collect()
    }

    fn owned(at: &str, records: &[(&str, RecordType)]) -> Vec<String> {
        let entry = Entry { at: Fqdn::parse(at).unwrap(), owner: "weu".into() };
        let registry = Registry::of(vec![entry], &sets(records));
        registry.owned.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn every_form_of_the_registry_is_recognized() {
        let records = [
            ("app.example.org", RecordType::Cname),
            ("my-app.example.org", RecordType::Cname),
            ("app.example.org", RecordType::Txt),
            ("example.org", RecordType::Ns),
        ];
        for at in [
            "cname-app.example.org",
            "weu-cname-app.example.org",
            "weu-p-aks01-cname-app.example.org",
            "txt.cname-app.example.org",
            "cname-x.app.example.org",
            "cname.app.example.org",
            "cname-app-weu.example.org",
            "app.example.org",
        ] {
            assert_eq!(owned(at, &records), ["app.example.org. CNAME"], "{at}");
        }
        assert_eq!(owned("cname-my-app.example.org", &records), ["my-app.example.org. CNAME"]);
    }

    #[test]
    fn a_name_that_only_ends_alike_is_not_owned() {
        let records = [("data-app.example.org", RecordType::Cname), ("a-app.example.org", RecordType::Cname)];
        for at in ["cname-data-app.example.org", "cname-a-app.example.org"] {
            let owned = owned(at, &records);
            assert!(owned.len() == 1 && owned[0].ends_with("-app.example.org. CNAME"), "{owned:?}");
        }
    }

    #[test]
    fn a_registered_name_without_its_record_is_still_owned() {
        assert_eq!(owned("weu-a-app.example.org", &[]), ["app.example.org. A"]);
        assert!(owned("heritage.example.org", &[]).is_empty());
    }

    #[test]
    fn only_a_text_of_the_registry_is_read() {
        let set = |contents: &[&str]| ServerSet {
            name: Fqdn::parse("a-app.example.org").unwrap(),
            rtype: RecordType::Txt,
            ttl: 300,
            contents: contents.iter().map(|text| Box::from(*text)).collect(),
            disabled: false,
            comments: vec![],
        };
        let ours = "\"heritage=external-dns,external-dns/owner=weu,external-dns/resource=crd/demo/app\"";
        assert_eq!(read(&set(&[ours])).unwrap().owner.as_ref(), "weu");
        assert_eq!(read(&set(&["\"heritage=external-dns\""])).unwrap().owner.as_ref(), "");
        for other in [&["\"v=spf1 -all\""][..], &[ours, "\"something else\""], &["\"x-heritage=external-dns\""], &[]] {
            assert_eq!(read(&set(other)), None, "{other:?}");
        }
    }

    #[test]
    fn the_entry_of_one_record_set_goes_with_it_and_a_shared_one_does_not() {
        let records = [("app.example.org", RecordType::A), ("app.example.org", RecordType::Aaaa)];
        let entry = |at: &str| Entry { at: Fqdn::parse(at).unwrap(), owner: "weu".into() };
        let key = |rtype| RecordKey::new(Fqdn::parse("app.example.org").unwrap(), rtype);
        let mut registry = Registry::of(vec![entry("a-app.example.org")], &sets(&records));
        let txt = registry.entries_alone(&[key(RecordType::A)].into()).pop_first().unwrap();
        assert_eq!(txt.to_string(), "a-app.example.org. TXT");
        registry.remove(&txt);
        assert!(registry.is_empty());
        let shared = Registry::of(vec![entry("app.example.org")], &sets(&records));
        assert_eq!(shared.owned.len(), 2);
        assert!(shared.entries_alone(&[key(RecordType::A)].into()).is_empty());
        assert_eq!(shared.entries_alone(&[key(RecordType::A), key(RecordType::Aaaa)].into()).len(), 1);
    }
}
