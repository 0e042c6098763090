//! Which lists are sets or keyed and which objects are one unit, for custom and for built-in kinds.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use serde_json::Value;

use super::{builtin, path::Fields};
use crate::schema::{Additional, Node, Structural};

/// The merge rules of one kind.
#[derive(Clone, Debug)]
pub struct TypeSchema {
    pub(crate) root: Arc<Atom>,
    /// The fields that an update through the main resource cannot change, so that no manager owns them through it.
    pub(crate) reset: Fields,
    /// The same for the status subresource.
    pub(crate) status_reset: Fields,
    /// Whether `status` is written through its own subresource only.
    pub(crate) status_subresource: bool,
    /// An object of the kind with nothing set: the parts that are always written.
    pub(crate) blank: Value,
}

impl TypeSchema {
    /// The rules a custom resource's schema declares (`x-kubernetes-list-type`, `x-kubernetes-map-type`).
    ///
    /// A kind with a `status` field is taken to have the subresource; see [`Self::with_status_subresource`].
    pub fn of_custom(schema: &Structural) -> Self {
        let node = schema.root();
        let mut map = object(node, node.preserve_unknown);
        for name in ["apiVersion", "kind"] {
            map.fields.insert(name.to_owned(), Field { kind: Type::of(scalar(Scalar::Text)), default: None });
        }
        map.fields.insert("metadata".to_owned(), Field { kind: Type::Known(METADATA.clone()), default: None });
        Self {
            root: Arc::new(Atom { map: Some(map), ..Atom::default() }),
            reset: Fields::default(),
            status_reset: Fields::of(&[&["metadata"], &["spec"]]),
            status_subresource: false,
            blank: Value::Object(serde_json::Map::new()),
        }
        .with_status_subresource(node.properties.contains_key("status"))
    }

    /// Sets whether `status` is written through its own subresource only.
    #[must_use]
    pub fn with_status_subresource(mut self, enabled: bool) -> Self {
        self.status_subresource = enabled;
        self.reset = if enabled { Fields::of(&[&["status"]]) } else { Fields::default() };
        self
    }

    /// The rules of a built-in kind (`group` is empty for the core group); unknown kinds get atomic lists and granular objects.
    pub fn of_builtin(group: &str, version: &str, kind: &str) -> Self {
        builtin::schema(group, version, kind)
    }
}

/// The possible types of a value; several at once where the schema leaves it open.
#[derive(Debug, Default)]
pub(crate) struct Atom {
    pub(crate) scalar: Option<Scalar>,
    pub(crate) list: Option<List>,
    pub(crate) map: Option<Object>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Number,
    Text,
    Bool,
    Any,
}

#[derive(Debug)]
pub(crate) struct List {
    pub(crate) element: Type,
    pub(crate) merge: ListMerge,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ListMerge {
    Atomic,
    Set,
    Keyed(Vec<String>),
}

#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) fields: BTreeMap<String, Field>,
    pub(crate) rest: Rest,
    pub(crate) atomic: bool,
}

/// The fields of an object that are not listed.
#[derive(Debug)]
pub(crate) enum Rest {
    /// There are none: a patch that has one cannot be read.
    Undeclared,
    /// They are entries of a map, each owned by itself.
    Entries(Type),
    /// They are fields of a struct whose list we do not keep.
    Named(Type),
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) kind: Type,
    pub(crate) default: Option<Value>,
}

/// A reference to what a value may be.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    Known(Arc<Atom>),
    /// Anything; objects are maps that merge entry by entry, lists are one unit.
    Deduced,
    /// Anything, as one unit.
    Unit,
    /// Anything; objects are structs that merge field by field, lists are one unit.
    Open,
}

static DEDUCED: LazyLock<Atom> = LazyLock::new(|| anything(Rest::Entries(Type::Deduced), false));
static UNIT: LazyLock<Atom> = LazyLock::new(|| anything(Rest::Entries(Type::Unit), true));
static OPEN: LazyLock<Atom> = LazyLock::new(|| anything(Rest::Named(Type::Open), false));

/// `metadata` of every object.
pub(crate) static METADATA: LazyLock<Arc<Atom>> = LazyLock::new(|| {
    let text = || Type::of(scalar(Scalar::Text));
    let texts = || {
        Type::of(Atom {
            map: Some(Object { fields: BTreeMap::new(), rest: Rest::Entries(text()), atomic: false }),
            ..Atom::default()
        })
    };
    let owner = Atom {
        map: Some(Object { fields: BTreeMap::new(), rest: Rest::Named(Type::Open), atomic: true }),
        ..Atom::default()
    };
    let list =
        |element: Type, merge: ListMerge| Type::of(Atom { list: Some(List { element, merge }), ..Atom::default() });
    let fields = [
        ("annotations", texts()),
        ("creationTimestamp", Type::of(scalar(Scalar::Any))),
        ("deletionGracePeriodSeconds", Type::of(scalar(Scalar::Number))),
        ("deletionTimestamp", Type::of(scalar(Scalar::Any))),
        ("finalizers", list(text(), ListMerge::Set)),
        ("generateName", text()),
        ("generation", Type::of(scalar(Scalar::Number))),
        ("labels", texts()),
        ("managedFields", list(Type::Unit, ListMerge::Atomic)),
        ("name", text()),
        ("namespace", text()),
        ("ownerReferences", list(Type::of(owner), ListMerge::Keyed(vec!["uid".to_owned()]))),
        ("resourceVersion", text()),
        ("selfLink", text()),
        ("uid", text()),
    ];
    let fields = fields.into_iter().map(|(name, kind)| (name.to_owned(), Field { kind, default: None })).collect();
    Arc::new(Atom { map: Some(Object { fields, rest: Rest::Undeclared, atomic: false }), ..Atom::default() })
});

fn anything(rest: Rest, atomic: bool) -> Atom {
    Atom {
        scalar: Some(Scalar::Any),
        list: Some(List { element: Type::Unit, merge: ListMerge::Atomic }),
        map: Some(Object { fields: BTreeMap::new(), rest, atomic }),
    }
}

pub(crate) fn scalar(kind: Scalar) -> Atom {
    Atom { scalar: Some(kind), ..Atom::default() }
}

impl Type {
    pub(crate) fn of(atom: Atom) -> Self {
        Self::Known(Arc::new(atom))
    }

    pub(crate) fn atom(&self) -> &Atom {
        match self {
            Self::Known(atom) => atom,
            Self::Deduced => &DEDUCED,
            Self::Unit => &UNIT,
            Self::Open => &OPEN,
        }
    }
}

impl Object {
    /// The type of a field's value.
    pub(crate) fn field(&self, name: &str) -> Option<&Type> {
        match (self.fields.get(name), &self.rest) {
            (Some(field), _) => Some(&field.kind),
            (None, Rest::Entries(kind) | Rest::Named(kind)) => Some(kind),
            (None, Rest::Undeclared) => None,
        }
    }

    /// Whether the field is one of a struct's, rather than an entry of a map.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.fields.contains_key(name) || matches!(self.rest, Rest::Named(_))
    }
}

/// The part of an atom that fits a value; all of it where nothing does.
pub(crate) enum Part<'a> {
    Scalar(Scalar),
    List(&'a List),
    Map(&'a Object),
    Nothing,
}

impl Atom {
    pub(crate) fn part(&self, value: Option<&Value>) -> Part<'_> {
        match (value, &self.scalar, &self.list, &self.map) {
            (Some(Value::Number(_) | Value::String(_) | Value::Bool(_)), Some(scalar), _, _) => Part::Scalar(*scalar),
            (Some(Value::Array(_)), _, Some(list), _) => Part::List(list),
            (_, _, _, Some(map)) => Part::Map(map),
            (_, Some(scalar), _, _) => Part::Scalar(*scalar),
            (_, _, Some(list), _) => Part::List(list),
            (_, None, None, None) => Part::Nothing,
        }
    }
}

fn reference(node: &Node, preserving: bool) -> Type {
    Type::of(atom(node, preserving))
}

fn atom(node: &Node, preserving: bool) -> Atom {
    // Nodes below a node that keeps unknown fields keep them too.
    let preserving = preserving || node.preserve_unknown;
    if node.int_or_string {
        return Atom {
            scalar: Some(Scalar::Any),
            list: Some(List { element: Type::Unit, merge: ListMerge::Atomic }),
            map: Some(object(node, preserving)),
        };
    }
    match node.kind.as_deref() {
        Some("object") => Atom { map: Some(object(node, preserving)), ..Atom::default() },
        Some("array") => Atom { list: Some(list(node, preserving)), ..Atom::default() },
        Some("integer" | "number") => scalar(Scalar::Number),
        Some("boolean") => scalar(Scalar::Bool),
        Some("string") if matches!(node.format.as_deref(), None | Some("byte")) => scalar(Scalar::Text),
        Some(_) => scalar(Scalar::Any),
        None => {
            Atom { scalar: Some(Scalar::Any), list: Some(list(node, preserving)), map: Some(object(node, preserving)) }
        }
    }
}

fn list(node: &Node, preserving: bool) -> List {
    let merge = match node.list_type.as_deref() {
        Some("set") => ListMerge::Set,
        Some("map") => ListMerge::Keyed(node.list_map_keys.clone()),
        _ => ListMerge::Atomic,
    };
    List { element: node.items.as_deref().map_or(Type::Unit, |items| reference(items, preserving)), merge }
}

fn object(node: &Node, preserving: bool) -> Object {
    let mut fields: BTreeMap<String, Field> = node
        .properties
        .iter()
        .map(|(name, property)| {
            (name.clone(), Field { kind: reference(property, preserving), default: property.default.clone() })
        })
        .collect();
    let rest = match &node.additional {
        None if preserving || node.properties.is_empty() => Rest::Entries(Type::Deduced),
        None | Some(Additional::Allowed(false)) => Rest::Undeclared,
        Some(Additional::Schema(additional)) => Rest::Entries(reference(additional, preserving)),
        Some(Additional::Allowed(true)) => Rest::Entries(Type::Deduced),
    };
    if node.embedded {
        for name in ["apiVersion", "kind"] {
            fields.insert(name.to_owned(), Field { kind: Type::of(scalar(Scalar::Text)), default: None });
        }
        fields.insert("metadata".to_owned(), Field { kind: Type::Known(METADATA.clone()), default: None });
    }
    Object { fields, rest, atomic: node.map_type.as_deref() == Some("atomic") }
}
