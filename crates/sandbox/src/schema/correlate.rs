//! Which old value corresponds to which new one on an update, so that unchanged invalid values can be tolerated and transition rules run.

use serde_json::{Map, Value};

use super::node::Node;

/// A new value with the old value at the same place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Correlated<'a> {
    new: &'a Value,
    old: &'a Value,
    node: &'a Node,
}

impl<'a> Correlated<'a> {
    pub(crate) fn new(new: &'a Value, old: &'a Value, node: &'a Node) -> Self {
        Self { new, old, node }
    }

    /// The pair one field deeper, where both have the field and the schema declares it.
    pub(crate) fn key(self, name: &str) -> Option<Self> {
        let new = self.new.as_object()?.get(name)?;
        let old = self.old.as_object()?.get(name)?;
        Some(Self { new, old, node: self.node.field(name)? })
    }

    /// The pair for the new list's item at `index`; `None` unless the list is keyed by fields.
    pub(crate) fn index(self, index: usize) -> Option<Self> {
        let new = self.new.as_array()?.get(index)?;
        let old = old_item(self.node, self.old.as_array()?, new)?;
        Some(Self { new, old, node: self.node.items.as_deref()? })
    }

    /// Whether the value is what it was; a field the schema does not know counts as changed.
    pub(crate) fn unchanged(self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                new.len() == old.len()
                    && if self.node.list_type.as_deref() == Some("map") {
                        (0..new.len()).all(|index| self.index(index).is_some_and(Self::unchanged))
                    } else {
                        new == old
                    }
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.keys().all(|name| self.key(name).is_some_and(Self::unchanged))
            }
            (new, old) => new == old,
        }
    }
}

/// The old item with the same key as `item`, in a list keyed by fields.
pub(crate) fn old_item<'a>(node: &Node, old: &'a [Value], item: &Value) -> Option<&'a Value> {
    if node.list_type.as_deref() != Some("map") {
        return None;
    }
    let key = list_key(node, item.as_object()?)?;
    old.iter().find(|old| old.as_object().and_then(|old| list_key(node, old)).is_some_and(|old| old == key))
}

/// The values of an item's key fields, with their defaults where they are absent.
fn list_key<'a>(node: &'a Node, item: &'a Map<String, Value>) -> Option<Vec<Option<&'a Value>>> {
    if node.list_map_keys.is_empty() {
        return None;
    }
    let properties = node.items.as_deref().map(|items| &items.properties);
    let value = |name: &String| {
        item.get(name)
            .or_else(|| properties.and_then(|properties| properties.get(name)).and_then(|node| node.default.as_ref()))
    };
    Some(node.list_map_keys.iter().map(value).collect())
}
