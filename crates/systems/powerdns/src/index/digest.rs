//! One number for what a record set means: TTL, records and comment, whatever their spelling or order.
//!
//! In: contents as a user or the server spells them. Out: a [`Digest`] that is equal exactly when nothing would have to
//! be written. It is stable across processes, because it is kept in statuses.

use std::fmt;

use sha2::{Digest as _, Sha256};
use signpost_dns::{Rdata, RecordType};
use signpost_provider_powerdns::{COMMENT_ACCOUNT, LEGACY_COMMENT_ACCOUNT, ServerSet, SetContent};

/// The meaning of a record set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Digest(u64);

impl Digest {
    /// The bounds of every digest.
    pub(crate) const MIN: Self = Self(u64::MIN);
    pub(crate) const MAX: Self = Self(u64::MAX);

    /// Reads what `Display` prints.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten().map(Self)
    }

    /// The digest of what is wanted.
    pub(crate) fn of_content(rtype: RecordType, content: &SetContent) -> Self {
        let records: Vec<String> = content.records.iter().map(|record| meaning(rtype, record)).collect();
        Self::of(content.ttl, records, content.comment.as_deref(), false)
    }

    /// The digest of what the server has. Comments of others do not count; switched-off records always differ.
    pub(crate) fn of_server(set: &ServerSet) -> Self {
        let records = set.contents.iter().map(|record| meaning(set.rtype, record)).collect();
        let comment = set
            .comments
            .iter()
            .find(|comment| [COMMENT_ACCOUNT, LEGACY_COMMENT_ACCOUNT].contains(&comment.account.as_str()))
            .map(|comment| comment.content.as_str());
        Self::of(set.ttl, records, comment, set.disabled)
    }

    /// The digest of the shape of a zone: words in a fixed order.
    pub(crate) fn of_shape<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hash = Sha256::new();
        for word in words {
            hash.update(word.as_bytes());
            hash.update([0]);
        }
        Self::first_bytes(hash)
    }

    fn first_bytes(hash: Sha256) -> Self {
        let bytes: [u8; 32] = hash.finalize().into();
        Self(bytes.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn of(ttl: u32, mut records: Vec<String>, comment: Option<&str>, disabled: bool) -> Self {
        records.sort_unstable();
        records.dedup();
        let mut hash = Sha256::new();
        hash.update(ttl.to_be_bytes());
        for record in &records {
            hash.update(record.as_bytes());
            hash.update([0]);
        }
        if let Some(comment) = comment {
            hash.update([1]);
            hash.update(comment.as_bytes());
        }
        hash.update([u8::from(disabled)]);
        Self::first_bytes(hash)
    }
}

/// The canonical text; a SOA without its serial, which is the server's business.
fn meaning(rtype: RecordType, text: &str) -> String {
    match Rdata::parse(&rtype, text) {
        Ok(Rdata::Soa(mut soa)) => {
            soa.serial = 0;
            Rdata::Soa(soa).to_string()
        }
        Ok(rdata) => rdata.to_string(),
        Err(_) => text.to_owned(),
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_dns::Fqdn;
    use signpost_provider_powerdns::Comment;

    fn server(rtype: RecordType, contents: &[&str]) -> ServerSet {
        ServerSet {
            name: Fqdn::parse("www.example.com").unwrap(),
            rtype,
            ttl: 300,
            contents: contents.iter().map(|text| Box::from(*text)).collect(),
            disabled: false,
            comments: vec![],
        }
    }

    fn wanted(rtype: RecordType, records: &[&str]) -> Digest {
        let records = records.iter().map(|text| Box::from(*text)).collect();
        Digest::of_content(rtype, &SetContent { ttl: 300, records, comment: None })
    }

    #[test]
    fn spelling_and_order_do_not_matter() {
        for (rtype, mine, theirs) in [
            (RecordType::A, vec!["1.1.1.1", "2.2.2.2"], vec!["2.2.2.2", "1.1.1.1"]),
            (RecordType::Aaaa, vec!["2001:0db8:0000::0001"], vec!["2001:db8::1"]),
            (RecordType::Cname, vec!["WWW.example.com"], vec!["www.example.com."]),
            (RecordType::Mx, vec!["10  mail.example.com"], vec!["10 mail.example.com."]),
            ("EUI48".parse().unwrap(), vec!["00-00-5E-00-53-2A"], vec!["00-00-5e-00-53-2a"]),
            ("CDS".parse().unwrap(), vec!["12345 8 2 49FD46E6"], vec!["12345 8 2 49fd46e6"]),
            ("SMIMEA".parse().unwrap(), vec!["3 1 1 D2AB DE24"], vec!["3 1 1 d2abde24"]),
            ("DLV".parse().unwrap(), vec!["12345 8 2 49FD46E6"], vec!["12345 8 2 49fd46e6"]),
            ("NSEC3PARAM".parse().unwrap(), vec!["1 0 0 AABB"], vec!["1 0 0 aabb"]),
            (RecordType::Https, vec!["1 . dohpath=/q ohttp"], vec!["1 . key7=\"/q\" key8=\"\""]),
            (RecordType::Soa, vec!["ns. host. 1 2 3 4 5"], vec!["ns. host. 2026111501 2 3 4 5"]),
        ] {
            assert_eq!(wanted(rtype, &mine), Digest::of_server(&server(rtype, &theirs)), "{rtype}");
        }
    }

    /// Clients of DNS-SD read one key from each string, so that strings that were joined must be written again.
    #[test]
    fn boundaries_between_the_strings_of_a_text_do_matter() {
        let wanted = wanted(RecordType::Txt, &["\"txtvers=1\" \"path=/admin\""]);
        let digest = |text| Digest::of_server(&server(RecordType::Txt, &[text]));
        assert_eq!(wanted, digest("\"txtvers=1\" \"path=/admin\""));
        assert_ne!(wanted, digest("\"txtvers=1path=/admin\""));
    }

    #[test]
    fn ttl_content_and_our_comment_do_matter() {
        let base = server(RecordType::A, &["1.1.1.1"]);
        let digest = Digest::of_server(&base);
        assert_ne!(digest, Digest::of_server(&ServerSet { ttl: 301, ..base.clone() }));
        assert_ne!(digest, Digest::of_server(&ServerSet { disabled: true, ..base.clone() }));
        let comment =
            |account: &str| vec![Comment { content: "note".into(), account: account.into(), modified_at: None }];
        assert_eq!(digest, Digest::of_server(&ServerSet { comments: comment("admin"), ..base.clone() }));
        for ours in ["signpost", "powerdns-operator"] {
            assert_ne!(digest, Digest::of_server(&ServerSet { comments: comment(ours), ..base.clone() }));
        }
    }

    #[test]
    fn a_digest_reads_back_from_its_text() {
        let digest = wanted(RecordType::A, &["1.1.1.1"]);
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        assert_eq!(Digest::parse("nonsense"), None);
    }
}
