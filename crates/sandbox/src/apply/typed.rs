//! Objects read by their type: which fields one has, how two differ, the merge of two, and what is left without some fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    path::{Fields, Step, same},
    types::{Atom, List, ListMerge, Object, Part, Rest, Scalar, Type},
};
use crate::schema::quoted;

/// How an object differs from an older one.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) added: Fields,
    pub(crate) modified: Fields,
    pub(crate) removed: Fields,
}

impl Comparison {
    pub(crate) fn without_trees(self, reset: &Fields) -> Self {
        Self {
            added: self.added.without_trees(reset),
            modified: self.modified.without_trees(reset),
            removed: self.removed.without_trees(reset),
        }
    }
}

/// The step to an item of a set or a keyed list, or why there is no step.
fn item_step(list: &List, item: &Value) -> Result<Step, String> {
    match &list.merge {
        ListMerge::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListMerge::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(Step::Item(scalar.clone())),
        },
        ListMerge::Keyed(keys) => {
            let fields = match item {
                Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
                Value::Object(fields) => fields,
                _ => return Err("associative list with keys may not have non-map elements".to_owned()),
            };
            let declared = list.element.atom().map.as_ref().map(|map| &map.fields);
            let default =
                |key: &String| declared.and_then(|fields| fields.get(key)).and_then(|field| field.default.clone());
            let mut key: Vec<(String, Value)> = keys
                .iter()
                .filter_map(|name| Some((name.clone(), fields.get(name).cloned().or_else(|| default(name))?)))
                .collect();
            if key.is_empty() {
                let names: Vec<String> = keys.iter().map(|key| quoted(key)).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    names.join(" ")
                ));
            }
            key.sort_by(|left, right| left.0.cmp(&right.0));
            Ok(Step::Key(key))
        }
    }
}

fn field_step(name: &str) -> Step {
    Step::Field(name.to_owned())
}

/// The type of a field that validation has let through.
fn field_type<'a>(map: &'a Object, name: &str) -> &'a Type {
    map.field(name).unwrap_or(&Type::Deduced)
}

/// Checks that a value can be read by its type; errors carry paths such as `.spec.foo`.
pub(crate) fn check(value: &Value, atom: &Atom, duplicates: bool) -> Vec<(String, String)> {
    let mut errors = Vec::new();
    check_at(value, atom, duplicates, "", &mut errors);
    errors
}

fn check_at(value: &Value, atom: &Atom, duplicates: bool, path: &str, errors: &mut Vec<(String, String)>) {
    let mut wrong = |text: String| errors.push((path.to_owned(), text));
    match (atom.part(Some(value)), value) {
        (_, Value::Null) | (Part::Nothing, _) => {}
        (Part::Scalar(kind), value) => {
            let expected = match (kind, value) {
                (Scalar::Number, Value::Number(_))
                | (Scalar::Text, Value::String(_))
                | (Scalar::Bool, Value::Bool(_))
                | (Scalar::Any, Value::Number(_) | Value::String(_) | Value::Bool(_)) => return,
                (Scalar::Number, _) => format!("expected numeric (int or float), got {}", go_type(value)),
                (Scalar::Text, _) => format!("expected string, got {}", go_syntax(value)),
                (Scalar::Bool, _) => format!("expected boolean, got {}", go_value(value)),
                (Scalar::Any, _) => format!("expected any scalar, got {}", go_value(value)),
            };
            wrong(expected);
        }
        (Part::List(list), Value::Array(items)) => {
            let mut seen = BTreeSet::new();
            for (index, item) in (0_i64..).zip(items) {
                let step = if list.merge == ListMerge::Atomic {
                    Step::Index(index)
                } else {
                    match item_step(list, item) {
                        Ok(step) => step,
                        Err(text) => {
                            errors.push((path.to_owned(), format!("element {index}: {text}")));
                            return;
                        }
                    }
                };
                let inner = format!("{path}{step}");
                if !seen.insert(step.clone()) && !duplicates && list.merge != ListMerge::Atomic {
                    errors.push((path.to_owned(), format!("duplicate entries for key {step}")));
                }
                check_at(item, list.element.atom(), duplicates, &inner, errors);
            }
        }
        (Part::List(_), value) => wrong(format!("expected list, got {}", go_value(value))),
        (Part::Map(map), Value::Object(fields)) => {
            for (name, value) in fields {
                let Some(kind) = map.field(name) else {
                    errors.push((format!("{path}.{name}"), "field not declared in schema".to_owned()));
                    return;
                };
                check_at(value, kind.atom(), duplicates, &format!("{path}.{name}"), errors);
            }
        }
        (Part::Map(_), value) => wrong(format!("expected map, got {}", go_value(value))),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// As `%v` prints the wrapped value.
fn go_value(value: &Value) -> String {
    format!("&{{{}}}", plain(value))
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}:{}", plain(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

/// As `%#v` prints the wrapped value.
fn go_syntax(value: &Value) -> String {
    format!("&value.valueUnstructured{{Value:{}}}", syntax(value))
}

fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{}:{}", quoted(name), syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// The fields of a value: its leaves, its map entries and list items.
pub(crate) fn fields(value: &Value, atom: &Atom) -> Fields {
    let mut set = Fields::default();
    fields_at(value, atom, &mut Vec::new(), &mut set);
    set
}

fn fields_at(value: &Value, atom: &Atom, path: &mut Vec<Step>, set: &mut Fields) {
    match (atom.part(Some(value)), value) {
        (Part::Scalar(_), _) => set.insert(path),
        (Part::List(list), value) => {
            if list.merge == ListMerge::Atomic {
                set.insert(path);
            } else if let Value::Array(items) = value {
                let steps: Vec<Option<Step>> = items.iter().map(|item| item_step(list, item).ok()).collect();
                for (index, item) in items.iter().enumerate() {
                    let Some(step) = &steps[index] else { continue };
                    let times = steps.iter().filter(|other| other.as_ref() == Some(step)).count();
                    path.push(step.clone());
                    // Of an item that is there twice, only the item itself can be owned.
                    if times == 1 {
                        fields_at(item, list.element.atom(), path, set);
                    }
                    set.insert(path);
                    path.pop();
                }
            }
        }
        (Part::Map(map), value) => {
            if map.atomic {
                set.insert(path);
            } else if let Value::Object(fields) = value {
                for (name, value) in fields {
                    path.push(field_step(name));
                    fields_at(value, field_type(map, name).atom(), path, set);
                    let bare = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                    if bare || !map.names(name) {
                        set.insert(path);
                    }
                    path.pop();
                }
            }
        }
        (Part::Nothing, _) => {}
    }
}

/// How `new` differs from `old`.
pub(crate) fn compare(old: &Value, new: &Value, atom: &Atom) -> Comparison {
    let mut out = Comparison::default();
    compare_at(Some(old), Some(new), atom, &mut Vec::new(), &mut out);
    out
}

fn compare_at(old: Option<&Value>, new: Option<&Value>, atom: &Atom, path: &mut Vec<Step>, out: &mut Comparison) {
    if old.is_some() && old == new {
        return;
    }
    let mut leaf = false;
    for part in parts(old, new, atom) {
        leaf |= compare_part(old, new, &part, path, out);
    }
    if !leaf {
        match (old, new) {
            (None, _) => out.added.insert(path),
            (_, None) => out.removed.insert(path),
            _ => {}
        }
    }
}

/// The part of a type that fits both values, or one for each where they fit different parts.
fn parts<'a>(old: Option<&Value>, new: Option<&Value>, atom: &'a Atom) -> Vec<Part<'a>> {
    let kind = |part: &Part<'_>| match part {
        Part::Scalar(_) => 0,
        Part::List(_) => 1,
        Part::Map(_) => 2,
        Part::Nothing => 3,
    };
    match (old, new) {
        (Some(_), Some(_)) => {
            let (left, right) = (atom.part(old), atom.part(new));
            if kind(&left) == kind(&right) { vec![right] } else { vec![left, right] }
        }
        (Some(_), None) => vec![atom.part(old)],
        (None, _) => vec![atom.part(new)],
    }
}

fn leaf(old: Option<&Value>, new: Option<&Value>, path: &[Step], out: &mut Comparison) {
    match (old, new) {
        (None, _) => out.added.insert(path),
        (_, None) => out.removed.insert(path),
        (Some(old), Some(new)) if !same(old, new) => out.modified.insert(path),
        _ => {}
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Compares as one part of the type; true when the value was one unit.
fn compare_part(
    old: Option<&Value>,
    new: Option<&Value>,
    part: &Part<'_>,
    path: &mut Vec<Step>,
    out: &mut Comparison,
) -> bool {
    match part {
        Part::Nothing => false,
        Part::Scalar(_) => {
            leaf(old, new, path, out);
            true
        }
        Part::List(list) => {
            let (olds, news) = (items(old), items(new));
            if list.merge == ListMerge::Atomic || (olds.is_empty() && news.is_empty()) {
                leaf(old, new, path, out);
                return true;
            }
            compare_items(list, olds, news, path, out);
            false
        }
        Part::Map(map) => {
            let (olds, news) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let bare = olds.is_none_or(Map::is_empty) && news.is_none_or(Map::is_empty);
            if map.atomic || bare {
                leaf(old, new, path, out);
                return true;
            }
            let mut names: Vec<&String> = olds.into_iter().chain(news).flat_map(Map::keys).collect();
            names.sort();
            names.dedup();
            for name in names {
                path.push(field_step(name));
                let (old, new) = (olds.and_then(|olds| olds.get(name)), news.and_then(|news| news.get(name)));
                compare_at(old, new, field_type(map, name).atom(), path, out);
                path.pop();
            }
            false
        }
    }
}

/// The items by their step; those without one are left out.
fn indexed<'a>(list: &List, items: &'a [Value]) -> BTreeMap<Step, Vec<&'a Value>> {
    let mut index: BTreeMap<Step, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(step) = item_step(list, item) {
            index.entry(step).or_default().push(item);
        }
    }
    index
}

fn compare_items(list: &List, olds: &[Value], news: &[Value], path: &mut Vec<Step>, out: &mut Comparison) {
    let (olds, news) = (indexed(list, olds), indexed(list, news));
    let steps: BTreeSet<&Step> = olds.keys().chain(news.keys()).collect();
    for step in steps {
        let (old, new) = (
            olds.get(step).map(Vec::as_slice).unwrap_or_default(),
            news.get(step).map(Vec::as_slice).unwrap_or_default(),
        );
        path.push(step.clone());
        match (old.len(), new.len()) {
            (0 | 1, 0 | 1) => compare_at(old.first().copied(), new.first().copied(), list.element.atom(), path, out),
            (0 | 1, _) => {
                if let Some(old) = old.first() {
                    compare_at(Some(old), None, list.element.atom(), path, out);
                }
                out.added.insert(path);
            }
            (_, 0 | 1) => {
                if let Some(new) = new.first() {
                    compare_at(None, Some(new), list.element.atom(), path, out);
                }
                out.removed.insert(path);
            }
            _ => {
                if old.len() != new.len() || !old.iter().zip(new).all(|(old, new)| same(old, new)) {
                    out.modified.insert(path);
                }
            }
        }
        path.pop();
    }
}

/// The result of `config` merged over `live`; `None` where nothing is left.
pub(crate) fn merge(live: Option<&Value>, config: Option<&Value>, atom: &Atom) -> Option<Value> {
    // A value that only one of them has is taken unchanged.
    if live.is_none() || config.is_none() {
        return config.or(live).cloned();
    }
    let mut merged = None;
    for part in parts(live, config, atom) {
        merged = match part {
            Part::Nothing | Part::Scalar(_) => config.or(live).cloned(),
            Part::List(list) => {
                let (lives, configs) = (items(live), items(config));
                if list.merge == ListMerge::Atomic || (lives.is_empty() && configs.is_empty()) {
                    config.or(live).cloned()
                } else {
                    let merged = merge_items(list, lives, configs);
                    (!merged.is_empty()).then_some(Value::Array(merged))
                }
            }
            Part::Map(map) => {
                let (lives, configs) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
                let bare = lives.is_none_or(Map::is_empty) && configs.is_none_or(Map::is_empty);
                if map.atomic || bare {
                    config.or(live).cloned()
                } else {
                    let mut out = Map::new();
                    let mut names: Vec<&String> = lives.into_iter().chain(configs).flat_map(Map::keys).collect();
                    names.sort();
                    names.dedup();
                    for name in names {
                        let (live, config) =
                            (lives.and_then(|lives| lives.get(name)), configs.and_then(|configs| configs.get(name)));
                        if let Some(value) = merge(live, config, field_type(map, name).atom()) {
                            out.insert(name.clone(), value);
                        }
                    }
                    (!out.is_empty()).then_some(Value::Object(out))
                }
            }
        };
    }
    merged
}

/// Live items keep their places; items the config shares with them take the config's order; its new items come where it has them.
fn merge_items(list: &List, lives: &[Value], configs: &[Value]) -> Vec<Value> {
    let config_steps: Vec<Step> = configs.iter().filter_map(|item| item_step(list, item).ok()).collect();
    let live_steps: Vec<(Step, &Value)> =
        lives.iter().filter_map(|item| Some((item_step(list, item).ok()?, item))).collect();
    let (live_index, config_index) = (indexed(list, lives), indexed(list, configs));
    // Of a live item that is there twice, neither is what the config means.
    let live_item = |step: &Step| live_index.get(step).filter(|items| items.len() == 1).map(|items| items[0]);
    let combined = |step: &Step| {
        merge(live_item(step), config_index.get(step).and_then(|items| items.first()).copied(), list.element.atom())
    };
    let mut shared = config_steps.iter().filter(|step| live_index.contains_key(step));
    let mut next_shared = shared.next();
    let mut done = BTreeSet::new();
    let mut out = Vec::new();
    let (mut left, mut right) = (0, 0);
    while left < live_steps.len() || right < config_steps.len() {
        if let (Some((live, _)), Some(config)) = (live_steps.get(left), config_steps.get(right)) {
            if live == config {
                done.insert(live);
                out.extend(combined(live));
                left += 1;
                right += 1;
                next_shared = shared.next();
                continue;
            }
            if config_index.contains_key(live) && next_shared.is_some_and(|next| next != live) {
                // Shared, but out of the config's order: it comes where the config has it.
                left += 1;
                continue;
            }
        }
        if let Some((live, item)) = live_steps.get(left) {
            if !config_index.contains_key(live) {
                out.push((*item).clone());
                left += 1;
                continue;
            }
            if done.contains(live) {
                left += 1;
            }
        }
        if let Some(config) = config_steps.get(right) {
            done.insert(config);
            out.extend(combined(config));
            right += 1;
            if next_shared == Some(config) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// The value without the fields in `set`; `None` where nothing is left.
pub(crate) fn remove(value: &Value, set: &Fields, atom: &Atom) -> Option<Value> {
    match (atom.part(Some(value)), value) {
        (Part::Scalar(_) | Part::Nothing, value) => Some(value.clone()),
        (Part::List(list), Value::Array(items)) if list.merge != ListMerge::Atomic => {
            let mut kept = Vec::new();
            for item in items {
                match item_step(list, item) {
                    Ok(step) if set.members.contains(&step) => {}
                    Ok(step) => match set.children.get(&step).filter(|inner| !inner.is_empty()) {
                        Some(inner) => kept.push(remove(item, inner, list.element.atom()).unwrap_or(Value::Null)),
                        None => kept.push(item.clone()),
                    },
                    Err(_) => kept.push(item.clone()),
                }
            }
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        (Part::Map(map), Value::Object(fields)) if !map.atomic => {
            let mut kept = Map::new();
            for (name, value) in fields {
                let step = field_step(name);
                if set.members.contains(&step) {
                    continue;
                }
                let value = match set.children.get(&step).filter(|inner| !inner.is_empty()) {
                    Some(inner) => remove(value, inner, field_type(map, name).atom()).unwrap_or(Value::Null),
                    None => value.clone(),
                };
                kept.insert(name.clone(), value);
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        (Part::List(_) | Part::Map(_), _) => None,
    }
}

/// The set with the structs on the way to its fields, which are part of an object without being owned.
pub(crate) fn with_structs(set: &Fields, kind: Option<&Type>, atom: Option<&Atom>) -> Fields {
    let atom = atom.or_else(|| kind.map(Type::atom));
    let mut out = Fields { members: set.members.clone(), ..Fields::default() };
    for (step, child) in &set.children {
        let inner = match (step, atom) {
            (Step::Field(name), Some(Atom { map: Some(map), .. })) => {
                if map.fields.contains_key(name) || matches!(map.rest, Rest::Named(_)) {
                    out.members.insert(step.clone());
                }
                map.field(name)
            }
            (Step::Key(_), Some(Atom { list: Some(list), .. })) => Some(&list.element),
            _ => None,
        };
        out.children.insert(step.clone(), with_structs(child, inner, None));
    }
    out
}
