//! Reads a zone's JSON while it arrives, one record set at a time, so that the whole text is never in memory.
//!
//! ```text
//!  chunks ─► { "id": …, "rrsets": [ {…}, {…}, … ], "serial": … }
//!              └── kept ──────────┘   └┬┘              └ kept ┘
//!                                      └─► each set, as soon as its brace closes
//! ```

use crate::error::ServerError;
use crate::types::{ServerSet, ZoneInfo};
use crate::wire;

/// The function that gets each record set.
pub(crate) type Each<'a> = &'a mut (dyn FnMut(ServerSet) + Send);

/// Takes the body of a zone in chunks of any size.
pub(crate) struct ZoneReader<'a> {
    each: Each<'a>,
    /// The answer without its record sets.
    rest: Vec<u8>,
    /// The start of a record set whose end has not arrived.
    set: Vec<u8>,
    place: Place,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// Outside the list of record sets.
    Outside,
    /// In the list, where a set, or the end of an empty list, must follow.
    First,
    /// Behind a comma, where a set must follow.
    Next,
    /// Behind a set, where a comma or the end must follow.
    Behind,
    /// Inside a set.
    Inside,
}

/// Depth within the list of record sets: inside the zone's object and the list.
const LIST_DEPTH: usize = 2;

impl<'a> ZoneReader<'a> {
    pub(crate) fn new(each: Each<'a>) -> Self {
        Self {
            each,
            rest: Vec::new(),
            set: Vec::new(),
            place: Place::Outside,
            depth: 0,
            in_string: false,
            escaped: false,
        }
    }

    /// Takes the next chunk.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), ServerError> {
        // Where the bytes begin that are not stored yet.
        let mut from = 0;
        for (at, byte) in chunk.iter().copied().enumerate() {
            if self.in_string {
                self.in_string = self.escaped || byte != b'"';
                self.escaped = byte == b'\\' && !self.escaped;
                continue;
            }
            match self.place {
                Place::Outside => {
                    self.count(byte)?;
                    if byte == b'[' && self.depth == LIST_DEPTH {
                        self.rest.extend_from_slice(chunk.get(from..=at).unwrap_or_default());
                        from = at + 1;
                        if ends_with_key(&self.rest) {
                            self.place = Place::First;
                        }
                    }
                }
                Place::Inside => {
                    self.count(byte)?;
                    if self.depth == LIST_DEPTH {
                        self.end_of_set(chunk.get(from..=at))?;
                        from = at + 1;
                    }
                }
                Place::First | Place::Next | Place::Behind => match (self.place, byte) {
                    (_, b' ' | b'\t' | b'\r' | b'\n') => {}
                    (Place::First | Place::Next, b'{') => {
                        (self.place, from) = (Place::Inside, at);
                        self.depth += 1;
                    }
                    (Place::Behind, b',') => self.place = Place::Next,
                    (Place::First | Place::Behind, b']') => {
                        (self.place, from) = (Place::Outside, at);
                        self.depth -= 1;
                    }
                    _ => return Err(broken("its list of record sets is not a list of objects")),
                },
            }
        }
        let tail = chunk.get(from..).unwrap_or_default();
        match self.place {
            Place::Outside => self.rest.extend_from_slice(tail),
            Place::Inside => self.set.extend_from_slice(tail),
            Place::First | Place::Next | Place::Behind => {}
        }
        Ok(())
    }

    /// The zone's settings, once the body has ended.
    pub(crate) fn finish(self) -> Result<ZoneInfo, ServerError> {
        wire::zone(&self.rest)
    }

    /// Follows quotes and braces.
    fn count(&mut self, byte: u8) -> Result<(), ServerError> {
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth =
                    self.depth.checked_sub(1).ok_or_else(|| broken("a brace is closed that was not opened"))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn end_of_set(&mut self, tail: Option<&[u8]>) -> Result<(), ServerError> {
        let tail = tail.unwrap_or_default();
        let set = if self.set.is_empty() {
            wire::set(tail)?
        } else {
            self.set.extend_from_slice(tail);
            let set = wire::set(&self.set)?;
            self.set.clear();
            set
        };
        if let Some(set) = set {
            (self.each)(set);
        }
        self.place = Place::Behind;
        Ok(())
    }
}

/// Whether a text ends with the key and bracket that begin the list of record sets.
fn ends_with_key(text: &[u8]) -> bool {
    let before = |text: &'_ [u8], byte| text.trim_ascii_end().strip_suffix(&[byte]).map(<[u8]>::len);
    before(text, b'[')
        .and_then(|len| before(text.get(..len)?, b':'))
        .and_then(|len| text.get(..len))
        .is_some_and(|text| text.trim_ascii_end().ends_with(b"\"rrsets\""))
}

fn broken(why: &str) -> ServerError {
    ServerError::Protocol { why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: &str = r#" {"account":"[\"rrsets\": [{","id":"example.com.","masters":["192.0.2.53"],"name":"example.com.",
        "nested":{"rrsets":[{"not":"a set"}]},
        "rrsets" : [ {"comments":[{"account":"a","content":"}]\\\"{","modified_at":1}],"name":"www.example.com.",
            "records":[{"content":"192.0.2.1","disabled":false},{"content":"192.0.2.2","disabled":true}],"ttl":300,"type":"A"},
            {"name":"text.example.com.","records":[{"content":"\"{[\\\" \\\\\"","disabled":false}],"ttl":60,"type":"TXT"},
            {"name":"a b.example.com.","records":[],"ttl":60,"type":"TXT"} ] , "serial":7, "kind":"Native"} "#;

    fn read(chunks: impl Iterator<Item = Vec<u8>>) -> Result<(ZoneInfo, Vec<ServerSet>), ServerError> {
        let mut sets = Vec::new();
        let mut each = |set| sets.push(set);
        let mut reader = ZoneReader::new(&mut each);
        for chunk in chunks {
            reader.push(&chunk)?;
        }
        let info = reader.finish()?;
        Ok((info, sets))
    }

    #[test]
    fn a_zone_is_the_same_however_it_is_cut() {
        let (info, sets) = read(std::iter::once(ZONE.as_bytes().to_vec())).unwrap();
        assert_eq!((info.serial, info.kind.as_str(), info.account.as_str()), (7, "Native", "[\"rrsets\": [{"));
        assert_eq!(info.masters, ["192.0.2.53"]);
        let [www, text] = sets.as_slice() else { panic!("{sets:?}") };
        assert_eq!((www.contents.as_slice(), www.disabled), ([Box::from("192.0.2.1")].as_slice(), true));
        assert_eq!(www.comments[0].content, "}]\\\"{");
        assert_eq!(&*text.contents[0], r#""{[\" \\""#);
        for size in 1..ZONE.len() {
            let cut = read(ZONE.as_bytes().chunks(size).map(<[u8]>::to_vec)).unwrap();
            assert_eq!(cut, (info.clone(), sets.clone()), "chunks of {size}");
        }
    }

    #[test]
    fn an_empty_list_and_no_list_are_zones_without_record_sets() {
        for list in [r#","rrsets":[]"#, r#","rrsets" : [ ]"#, ""] {
            let zone = format!(r#"{{"id":"a.","name":"a."{list}}}"#);
            let (info, sets) = read(zone.bytes().map(|byte| vec![byte])).unwrap();
            assert_eq!((info.id.as_str(), sets.len()), ("a.", 0));
        }
    }

    #[test]
    fn a_broken_answer_is_never_a_zone() {
        let set = r#"{"name":"a.","type":"A","records":[]}"#;
        for broken in [
            String::new(),
            "<html>".to_owned(),
            "[]".to_owned(),
            "}".to_owned(),
            format!(r#"{{"id":"a.","name":"a.","rrsets":[{set}"#),
            format!(r#"{{"id":"a.","name":"a.","rrsets":[{set}]"#),
            format!(r#"{{"id":"a.","name":"a.","rrsets":[{set} {set}]}}"#),
            format!(r#"{{"id":"a.","name":"a.","rrsets":[{set},]}}"#),
            format!(r#"{{"id":"a.","name":"a.","rrsets":[,{set}]}}"#),
            r#"{"id":"a.","name":"a.","rrsets":["x"]}"#.to_owned(),
            r#"{"id":"a.","name":"a.","rrsets":[{"name":"a."}]}"#.to_owned(),
            r#"{"id":"a.","name":"a.","rrsets":[{]]}"#.to_owned(),
            r#"{"id":"a.","name":"a."} more"#.to_owned(),
        ] {
            let read = read(std::iter::once(broken.clone().into_bytes()));
            assert!(matches!(read, Err(ServerError::Protocol { .. })), "{broken}: {read:?}");
        }
    }
}
