//! A JSON text as the server's strict decoder walks it: which fields come in which order, and which come twice.

use std::{collections::BTreeSet, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};

/// Details that the parsed value no longer shows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outline {
    /// The paths of all fields, in the order of the text: `spec`, `spec.rules[0].host`.
    pub(crate) order: Vec<String>,
    /// The paths of fields that an object has twice.
    pub(crate) doubled: Vec<String>,
}

impl Outline {
    /// Outlines a JSON text; empty when the text is not JSON.
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut outline = Self::default();
        let mut reader = serde_json::Deserializer::from_slice(text);
        let walked = Walk { path: String::new(), outline: &mut outline }.deserialize(&mut reader);
        if walked.is_ok() { outline } else { Self::default() }
    }

    /// The position of a path in the text.
    pub(crate) fn place(&self, path: &str) -> usize {
        self.order.iter().position(|known| known == path).unwrap_or(usize::MAX)
    }
}

struct Walk<'a> {
    path: String,
    outline: &'a mut Outline,
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

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut at = 0_usize;
        while items
            .next_element_seed(Walk { path: format!("{}[{at}]", self.path), outline: &mut *self.outline })?
            .is_some()
        {
            at += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = if self.path.is_empty() { name.clone() } else { format!("{}.{name}", self.path) };
            if seen.insert(name) {
                self.outline.order.push(path.clone());
            } else {
                self.outline.doubled.push(path.clone());
            }
            fields.next_value_seed(Walk { path, outline: &mut *self.outline })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_doubles_survive() {
        let outline = Outline::of(br#"{"b":1,"a":{"x":1,"x":[{"y":2}]}}"#);
        assert_eq!(outline.order, ["b", "a", "a.x", "a.x[0].y"]);
        assert_eq!(outline.doubled, ["a.x"]);
        assert_eq!(Outline::of(b"{"), Outline::default());
    }
}
