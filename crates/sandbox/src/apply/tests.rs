//! Scenarios recorded on kube-apiserver 1.36.3 (`testdata/`), replayed step by step; and properties of every patch.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::schema::Structural;

const START: i64 = 1_767_225_600;

fn golden() -> Value {
    serde_json::from_str(include_str!("testdata/apply.json")).unwrap()
}

fn at(step: usize) -> Timestamp {
    Timestamp::from_second(START + i64::try_from(step).unwrap()).unwrap()
}

/// Times as the number of the step they were set in, and without what the store sets.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
        for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(time) = entry["time"].as_str() {
                let step = time.parse::<Timestamp>().unwrap().as_second() - START;
                entry["time"] = json!(step);
            }
        }
    }
    object
}

/// A recorded object with real times, as the next step finds it.
fn recorded_live(object: &Value) -> Value {
    let mut object = object.clone();
    for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        if let Some(step) = entry["time"].as_i64() {
            entry["time"] = json!(at(usize::try_from(step).unwrap()).to_string());
        }
    }
    object
}

/// The little of an API server that the scenarios need.
struct Server {
    schema: Option<Structural>,
    kind: TypeSchema,
    live: Option<Value>,
}

impl Server {
    fn step(&mut self, number: usize, step: &Value) -> Result<bool, ApplyError> {
        let text = |key: &str| step[key].as_str().unwrap_or_default();
        let subresource = step["sub"].as_str();
        let manager = text("manager");
        let old = self.live.clone();
        let mut new = match text("op") {
            "apply" => {
                let force = step["force"].as_bool().unwrap_or(false);
                apply(old.as_ref(), &step["body"], manager, force, subresource, &self.kind, at(number))?
            }
            "create" => step["body"].clone(),
            "merge" => {
                let mut new = old.clone().unwrap();
                json_patch::merge(&mut new, &step["body"]);
                new
            }
            _ => {
                let mut new = old.clone().unwrap();
                new.as_object_mut().unwrap().extend(step["body"].as_object().unwrap().clone());
                new
            }
        };
        match &self.schema {
            Some(schema) if text("op") == "apply" => schema.default_merged(&mut new),
            Some(schema) => {
                schema.prune(&mut new);
                schema.default(&mut new);
            }
            // Defaults and allocators of a built-in kind are not part of this module: their result is taken from the record.
            None if text("op") != "apply" => {
                let managed = new["metadata"].get("managedFields").cloned();
                new = step["object"].clone();
                // Allocated after the request's fields are counted.
                for name in ["clusterIPs", "ipFamilies", "ipFamilyPolicy", "finalizers"] {
                    if old.is_none()
                        && let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut)
                    {
                        spec.remove(name);
                    }
                }
                match managed {
                    Some(managed) => new["metadata"]["managedFields"] = managed,
                    None => drop(new["metadata"].as_object_mut().unwrap().remove("managedFields")),
                }
            }
            None => {}
        }
        if text("op") != "apply" {
            reset(&mut new, old.as_ref(), subresource, &self.kind);
            if subresource.is_some()
                && let Some(managed) = old.as_ref().and_then(|old| old.pointer("/metadata/managedFields"))
            {
                new["metadata"]["managedFields"] = managed.clone();
            }
            track_update(old.as_ref(), &mut new, manager, subresource, &self.kind, at(number));
        }
        let same = old.is_some_and(|old| settle(&old, &mut new));
        self.live = Some(new);
        Ok(same)
    }
}

#[test]
fn ownership_merges_and_conflicts_are_those_of_the_real_server() {
    let golden = golden();
    let mut wrong = Vec::new();
    for scenario in golden["scenarios"].as_array().unwrap() {
        let custom = scenario["kind"] == "Apple";
        let (group, version) = scenario["apiVersion"].as_str().unwrap().split_once('/').unwrap_or(("", "v1"));
        let schema = custom.then(|| Structural::compile(&golden["schema"]).unwrap());
        let kind = match &schema {
            Some(schema) => TypeSchema::of_custom(schema),
            None => TypeSchema::of_builtin(group, version, scenario["kind"].as_str().unwrap()),
        };
        let mut server = Server { schema, kind, live: None };
        for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            if step["error"]["code"] == 422 {
                continue;
            }
            let title = format!("{} step {number}", scenario["title"]);
            match (server.step(number, step), step.get("object")) {
                (Ok(noop), Some(object)) => {
                    let live = server.live.clone().unwrap();
                    let (got, want) = if custom {
                        (comparable(&live), comparable(object))
                    } else {
                        (
                            comparable(&live)["metadata"]["managedFields"].clone(),
                            comparable(object)["metadata"]["managedFields"].clone(),
                        )
                    };
                    if got != want {
                        wrong.push(format!("{title}\n  got  {got}\n  want {want}"));
                    }
                    if custom && json!(noop) != step["noop"] {
                        wrong.push(format!("{title}: unchanged is {noop}, want {}", step["noop"]));
                    }
                    server.live = Some(recorded_live(object));
                }
                (Err(ApplyError::Conflict(conflict)), None) => {
                    let status = conflict.status();
                    assert_eq!(status["message"], step["error"]["message"], "{title}");
                    assert_eq!(status["details"]["causes"], step["error"]["causes"], "{title}");
                }
                (Err(ApplyError::Unreadable { code, message }), None) => {
                    assert_eq!(
                        (json!(code), json!(message)),
                        (step["error"]["code"].clone(), step["error"]["message"].clone()),
                        "{title}"
                    );
                }
                (got, want) => wrong.push(format!("{title}: got {got:?}, want {want:?} {}", step["error"])),
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn random_histories_end_as_on_the_real_server() {
    let random: Value = serde_json::from_str(include_str!("testdata/random.json")).unwrap();
    let golden = golden();
    let mut steps = 0;
    for scenario in random["scenarios"].as_array().unwrap() {
        let schema = Structural::compile(&golden["schema"]).unwrap();
        let kind = TypeSchema::of_custom(&schema);
        let mut server = Server { schema: Some(schema), kind, live: None };
        for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            let title = format!("{} step {number}", scenario["title"]);
            let missing = server.live.is_none() && matches!(step["op"].as_str(), Some("merge" | "update"));
            if missing || step["error"]["code"] == 422 || step["error"]["code"] == 404 {
                continue;
            }
            steps += 1;
            match (server.step(number, step), step.get("object")) {
                (Ok(_), Some(object)) => {
                    let bare = |object: &Value| timeless(&comparable(object)).to_string();
                    assert_eq!(bare(&server.live.clone().unwrap()), bare(object), "{title}");
                    server.live = Some(object.clone());
                }
                (Err(ApplyError::Conflict(conflict)), None) => {
                    let fields = |causes: &Value| {
                        let mut texts: Vec<String> =
                            causes.as_array().unwrap().iter().map(ToString::to_string).collect();
                        texts.sort();
                        texts
                    };
                    let causes = conflict.status()["details"]["causes"].clone();
                    assert_eq!(fields(&causes), fields(&step["error"]["causes"]), "{title}");
                }
                (got, want) => panic!("{title}: got {got:?}, want {want:?} {}", step["error"]),
            }
        }
    }
    assert!(steps > 200, "{steps} steps");
}

fn spec(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let text = || "[ab]".prop_map(Value::from);
    let value = move |name: &'static str| -> BoxedStrategy<Value> {
        let keyed = (prop::sample::subsequence(vec!["k1", "k2", "k3"], 1..3), "[ab]")
            .prop_map(|(keys, v)| keys.into_iter().map(|k| json!({"k": k, "v": v})).collect::<Vec<_>>());
        match name {
            "b" => (0..3).prop_map(Value::from).boxed(),
            "set" | "atomic" => {
                prop::sample::subsequence(vec!["x", "y", "z"], 1..3).prop_map(|items| json!(items)).boxed()
            }
            "map" => keyed.prop_map(Value::from).boxed(),
            "nested" | "am" => ("[ab]", "[ab]").prop_map(|(x, y)| json!({"x": x, "y": y})).boxed(),
            "dict" => prop::collection::btree_map("[pq]", text(), 1..3).prop_map(|map| json!(map)).boxed(),
            "free" => ("[ab]", 0..3).prop_map(|(name, value)| json!({"deep": {name: value}})).boxed(),
            _ => text().boxed(),
        }
    };
    let fields: Vec<_> =
        names.iter().map(|name| prop::option::of(value(name)).prop_map(move |value| (*name, value))).collect();
    fields.prop_map(|fields| {
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(fields.collect::<Map<String, Value>>())
    })
}

fn patch(spec: &Value) -> Value {
    json!({"apiVersion": "golden.test/v1", "kind": "Apple", "metadata": {"name": "x"}, "spec": spec})
}

fn apples() -> TypeSchema {
    static APPLES: LazyLock<TypeSchema> =
        LazyLock::new(|| TypeSchema::of_custom(&Structural::compile(&golden()["schema"]).unwrap()));
    APPLES.clone()
}

fn timeless(object: &Value) -> Value {
    let mut object = object.clone();
    for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        entry.as_object_mut().unwrap().remove("time");
    }
    if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
        entries.sort_by(path::compare_values);
    }
    object
}

const ALL: &[&str] = &["a", "b", "set", "atomic", "map", "nested", "am", "dict", "free"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn applying_twice_changes_nothing(first in spec(ALL), other in spec(ALL)) {
        let kind = apples();
        let live = apply(None, &patch(&other), "other", true, None, &kind, at(0)).unwrap();
        let once = apply(Some(&live), &patch(&first), "m", true, None, &kind, at(1)).unwrap();
        let mut twice = apply(Some(&once), &patch(&first), "m", false, None, &kind, at(2)).unwrap();
        prop_assert!(settle(&once, &mut twice));
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn appliers_of_different_fields_can_come_in_any_order(
        left in spec(&["a", "set", "nested", "dict"]), right in spec(&["b", "atomic", "map", "am", "free"]),
    ) {
        let kind = apples();
        let both = |first: (&str, &Value), second: (&str, &Value)| {
            let live = apply(None, &patch(first.1), first.0, false, None, &kind, at(0)).unwrap();
            timeless(&apply(Some(&live), &patch(second.1), second.0, false, None, &kind, at(0)).unwrap())
        };
        prop_assert_eq!(both(("l", &left), ("r", &right)), both(("r", &right), ("l", &left)));
    }

    #[test]
    fn an_applier_that_lets_go_of_everything_leaves_what_others_own(mine in spec(ALL), theirs in spec(ALL)) {
        let kind = apples();
        let live = apply(None, &patch(&theirs), "theirs", false, None, &kind, at(0)).unwrap();
        let Ok(shared) = apply(Some(&live), &patch(&mine), "mine", false, None, &kind, at(1)) else { return Ok(()) };
        let mut left = apply(Some(&shared), &patch(&json!({})), "mine", false, None, &kind, at(2)).unwrap();
        let bare = |object: &Value| {
            let mut object = object.clone();
            take_managed(&mut object);
            object["spec"].as_object().cloned().unwrap_or_default()
        };
        take_managed(&mut left);
        for (name, value) in bare(&live) {
            if value.as_array().is_none_or(|items| !items.is_empty()) && value.as_object().is_none_or(|fields| !fields.is_empty()) {
                let same_items = |left: &Value| {
                    let sorted = |value: &Value| {
                        let mut items = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
                        items.sort_by(path::compare_values);
                        items
                    };
                    sorted(left) == sorted(&value)
                };
                prop_assert!(same_items(&left["spec"][&name]), "{name} was {value}, is {}", left["spec"][&name]);
            }
        }
    }
}
