//! How records are spelled for a server: PowerDNS refuses a text that it would print differently, and 5.1 prints the
//! service parameters `dohpath`, `ohttp` and `tls-supported-groups` by name, 5.0 and older by number.

use std::borrow::Cow;
use std::sync::Arc;

use signpost_dns::{Rdata, RecordType};

use crate::types::{Action, Change, SetContent};

/// Whether a server of this version knows the newer service parameters by name.
pub(crate) fn knows_key_names(version: &str) -> bool {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (5, 1))
}

/// Whether a change is spelled differently for servers of different versions.
pub(crate) fn depends_on_version(change: &Change) -> bool {
    named(change).is_some()
}

/// The changes in the spelling of a server.
pub(crate) fn for_server(changes: &[Change], key_names: bool) -> Cow<'_, [Change]> {
    if !key_names || !changes.iter().any(depends_on_version) {
        return Cow::Borrowed(changes);
    }
    changes.iter().map(|change| named(change).unwrap_or_else(|| change.clone())).collect()
}

/// A record in the spelling with names, where that is another one.
pub(crate) fn named_record(rtype: RecordType, text: &str) -> Option<String> {
    Rdata::parse(&rtype, text).ok().and_then(|rdata| rdata.text_with_key_names())
}

fn named(change: &Change) -> Option<Change> {
    let Change { name, rtype, action } = change;
    let (RecordType::Https | RecordType::Svcb, Action::Replace { content, comment }) = (rtype, action) else {
        return None;
    };
    let named: Vec<Option<String>> = content.records.iter().map(|record| named_record(*rtype, record)).collect();
    if named.iter().all(Option::is_none) {
        return None;
    }
    let records =
        content.records.iter().zip(named).map(|(record, named)| named.map_or_else(|| record.clone(), Into::into));
    let content = SetContent { ttl: content.ttl, records: records.collect(), comment: content.comment.clone() };
    let action = Action::Replace { content: Arc::new(content), comment: comment.clone() };
    Some(Change { name: name.clone(), rtype: *rtype, action })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_from_5_1_on() {
        for newer in ["5.1.0", "5.1.0-alpha1", "5.10.2", "6.0.0"] {
            assert!(knows_key_names(newer), "{newer}");
        }
        for older in ["5.0.7", "4.9.17", "4.7.3", "0.0.1234.0.master.g5a1", "in memory", "", "5"] {
            assert!(!knows_key_names(older), "{older}");
        }
    }
}
