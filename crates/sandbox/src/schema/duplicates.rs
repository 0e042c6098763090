//! Fields that a JSON text gives twice, which a parsed value can no longer tell.

use std::{collections::BTreeSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::golang::{child, subscript};

/// The paths of fields given more than once (`spec.size`), in the order they appear; nothing for a text that is not JSON.
pub fn duplicate_fields(json: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(json);
    match (Walk { path: String::new(), found: &mut found }).deserialize(&mut reader) {
        Ok(()) => found,
        Err(_) => Vec::new(),
    }
}

/// Reads a value at a path and only looks at its field names.
struct Walk<'a> {
    path: String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let path = child(&self.path, &name);
            if !seen.insert(name) && !self.found.contains(&path) {
                self.found.push(path.clone());
            }
            map.next_value_seed(Walk { path, found: self.found })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0;
        while seq.next_element_seed(Walk { path: subscript(&self.path, index), found: self.found })?.is_some() {
            index += 1;
        }
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        Err(E::custom("not JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_doubled_field_is_named_once_by_its_path() {
        let text = br#"{"metadata":{"name":"x","name":"y"},"spec":{"size":1,"size":2,"size":3,"map":[{"a":"1","a":"2"}],"ok":null}}"#;
        assert_eq!(duplicate_fields(text), ["metadata.name", "spec.size", "spec.map[0].a"]);
        assert!(duplicate_fields(b"{\"a\":1").is_empty());
        assert!(duplicate_fields(b"[1,2.5,true,\"x\"]").is_empty());
    }
}
