//! A page of a list. Its objects are read one after another, so that only one of them is in memory as JSON: a parsed JSON value takes up about ten
//! times its text, and a page may have hundreds of large objects.

use std::{fmt, marker::PhantomData};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::{
    Deserialize,
    de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// A page that is an answer to a list.
#[derive(Debug)]
pub(super) struct Page {
    /// The version, and where the next page begins.
    pub(super) metadata: ListMeta,
    text: String,
}

impl Page {
    /// A page, or why the text is not one. An answer without objects would delete them all, so the field has to be there.
    pub(super) fn parse(text: String) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Outline {
            metadata: ListMeta,
            #[serde(rename = "items")]
            _items: Vec<IgnoredAny>,
        }
        let Outline { metadata, .. } = serde_json::from_str(&text)?;
        Ok(Self { metadata, text })
    }

    /// Hands the objects over, one after another.
    pub(super) fn each<T: DeserializeOwned>(&self, take: impl FnMut(T)) -> Result<(), serde_json::Error> {
        serde_json::Deserializer::from_str(&self.text).deserialize_map(List(take, PhantomData))
    }
}

/// A list, of which only the field `items` is read.
struct List<T, F>(F, PhantomData<T>);

impl<'de, T: DeserializeOwned, F: FnMut(T)> Visitor<'de> for List<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        while let Some(field) = fields.next_key::<String>()? {
            if field == "items" {
                fields.next_value_seed(Items(&mut self.0, PhantomData))?;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The objects of a list.
struct Items<'a, T, F>(&'a mut F, PhantomData<T>);

impl<'de, T: DeserializeOwned, F: FnMut(T)> DeserializeSeed<'de> for Items<'_, T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T)> Visitor<'de> for Items<'_, T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut objects: A) -> Result<(), A::Error> {
        while let Some(object) = objects.next_element()? {
            (self.0)(object);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn objects(text: &str) -> Result<Vec<Value>, serde_json::Error> {
        let mut objects = Vec::new();
        Page::parse(text.to_owned())?.each(|object: Value| objects.push(object))?;
        Ok(objects)
    }

    #[test]
    fn objects_come_in_order_wherever_the_field_is() {
        let page =
            r#"{"items":[{"a":1},{"items":[2]}],"kind":"List","metadata":{"resourceVersion":"7","continue":"x"}}"#;
        let found = objects(page).unwrap();
        assert_eq!(found, [serde_json::json!({"a": 1}), serde_json::json!({"items": [2]})]);
        let metadata = Page::parse(page.to_owned()).unwrap().metadata;
        assert_eq!((metadata.resource_version.as_deref(), metadata.continue_.as_deref()), (Some("7"), Some("x")));
        assert!(objects(r#"{"metadata":{},"items":[]}"#).unwrap().is_empty());
    }

    #[test]
    fn an_answer_that_is_not_a_list_is_an_error() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"metadata":{}}"#,
            r#"{"items":[]}"#,
            r#"{"metadata":{},"items":null}"#,
            r#"{"metadata":{},"items":[{}"#,
        ] {
            assert!(objects(text).is_err(), "{text}");
        }
    }
}
