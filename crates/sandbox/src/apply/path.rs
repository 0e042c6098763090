//! Steps of a field path, and sets of fields as managedFields store them (`fieldsV1`).
//!
//! A set has a field itself (`.`) apart from what is below it, because a manager can own either.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::{Map, Value};

use crate::schema::{json_text, quoted};

/// One step of a path.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A field of an object: `f:name`.
    Field(String),
    /// An item of a keyed list, by its key fields sorted by name: `k:{"name":"a"}`.
    Key(Vec<(String, Value)>),
    /// An item of a set: `v:"a"`.
    Item(Value),
    /// A place in a list: `i:0`.
    Index(i64),
}

impl Step {
    fn encoded(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => format!("k:{}", json_text(&Value::Object(fields.iter().cloned().collect()))),
            Self::Item(value) => format!("v:{}", json_text(value)),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn decoded(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => {
                let fields: BTreeMap<String, Value> = serde_json::from_str(rest).ok()?;
                Some(Self::Key(fields.into_iter().collect()))
            }
            "v" => serde_json::from_str(rest).ok().map(Self::Item),
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Item(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Item(value) => write!(f, "[={}]", shown(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| json_text(value), quoted)
}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (Self::Key(left), Self::Key(right)) => {
                for ((left_name, left), (right_name, right)) in left.iter().zip(right) {
                    let order = left_name.cmp(right_name).then_with(|| compare_values(left, right));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                left.len().cmp(&right.len())
            }
            (Self::Item(left), Self::Item(right)) => compare_values(left, right),
            (Self::Index(left), Self::Index(right)) => left.cmp(right),
            (left, right) => left.rank().cmp(&right.rank()),
        }
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Step {}

/// A total order over JSON values: numbers, strings, booleans, lists, maps, null.
pub(crate) fn compare_values(left: &Value, right: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal),
        },
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let unequal =
                left.iter().zip(right).map(|(left, right)| compare_values(left, right)).find(|order| order.is_ne());
            unequal.unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => {
            let sorted = |fields: &Map<String, Value>| {
                let mut fields: Vec<(String, Value)> =
                    fields.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                fields.sort_by(|left, right| left.0.cmp(&right.0));
                fields
            };
            Step::Key(sorted(left)).cmp(&Step::Key(sorted(right)))
        }
        (left, right) => rank(left).cmp(&rank(right)),
    }
}

/// Whether two values mean the same; a whole float equals the integer.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, left)| right.get(name).is_some_and(|right| same(left, right)))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (left, right) => compare_values(left, right) == Ordering::Equal,
    }
}

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) members: BTreeSet<Step>,
    pub(crate) children: BTreeMap<Step, Fields>,
}

impl Fields {
    pub(crate) fn insert(&mut self, path: &[Step]) {
        match path {
            [] => {}
            [last] => {
                if !self.members.contains(last) {
                    self.members.insert(last.clone());
                }
            }
            [first, rest @ ..] => match self.children.get_mut(first) {
                Some(child) => child.insert(rest),
                None => self.children.entry(first.clone()).or_default().insert(rest),
            },
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// The set of the given top-level paths.
    pub(crate) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let steps: Vec<Step> = path.iter().map(|name| Step::Field((*name).to_owned())).collect();
            set.insert(&steps);
        }
        set
    }

    pub(crate) fn union(mut self, other: Self) -> Self {
        self.absorb(other);
        self
    }

    fn absorb(&mut self, other: Self) {
        self.members.extend(other.members);
        for (step, child) in other.children {
            match self.children.get_mut(&step) {
                Some(own) => own.absorb(child),
                None => drop(self.children.insert(step, child)),
            }
        }
    }

    /// Takes the fields of `other` out.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for step in &other.members {
            self.members.remove(step);
        }
        for (step, removed) in &other.children {
            if let Some(child) = self.children.get_mut(step) {
                child.subtract(removed);
                if child.is_empty() {
                    self.children.remove(step);
                }
            }
        }
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut out = Self { members: self.members.intersection(&other.members).cloned().collect(), ..Self::default() };
        for (step, child) in &self.children {
            if let Some(shared) =
                other.children.get(step).map(|other| child.intersection(other)).filter(|set| !set.is_empty())
            {
                out.children.insert(step.clone(), shared);
            }
        }
        out
    }

    pub(crate) fn difference(mut self, other: &Self) -> Self {
        self.subtract(other);
        self
    }

    /// Without the fields of `other` and everything below them.
    pub(crate) fn without_trees(mut self, other: &Self) -> Self {
        self.subtract_trees(other);
        self
    }

    fn subtract_trees(&mut self, other: &Self) {
        for step in &other.members {
            self.members.remove(step);
            self.children.remove(step);
        }
        for (step, removed) in &other.children {
            if let Some(child) = self.children.get_mut(step) {
                child.subtract_trees(removed);
                if child.is_empty() {
                    self.children.remove(step);
                }
            }
        }
    }

    /// Every path: the fields of a level first, then what is below them.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect("", &mut out);
        out
    }

    fn collect(&self, prefix: &str, out: &mut Vec<String>) {
        out.extend(self.members.iter().map(|step| format!("{prefix}{step}")));
        for (step, child) in &self.children {
            child.collect(&format!("{prefix}{step}"), out);
        }
    }

    /// The `fieldsV1` form.
    pub(crate) fn encode(&self) -> Value {
        let mut out = Map::new();
        for step in &self.members {
            out.insert(step.encoded(), Value::Object(Map::new()));
        }
        for (step, child) in self.children.iter().filter(|(_, child)| !child.is_empty()) {
            let mut inner = match child.encode() {
                Value::Object(inner) => inner,
                _ => Map::new(),
            };
            if self.members.contains(step) {
                inner.insert(".".to_owned(), Value::Object(Map::new()));
            }
            out.insert(step.encoded(), Value::Object(inner));
        }
        Value::Object(out)
    }

    /// Reads the `fieldsV1` form; steps it does not know are skipped.
    pub(crate) fn decode(fields: &Value) -> Self {
        let mut out = Self::default();
        for (text, inner) in fields.as_object().into_iter().flatten() {
            let Some(step) = Step::decoded(text) else { continue };
            let child = Self::decode(inner);
            if inner.get(".").is_some() || inner.as_object().is_none_or(Map::is_empty) {
                out.members.insert(step.clone());
            }
            if !child.is_empty() {
                out.children.insert(step, child);
            }
        }
        out
    }
}
