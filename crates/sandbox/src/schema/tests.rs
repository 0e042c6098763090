//! Recorded answers of kube-apiserver 1.36.3 (`testdata/`), replayed; and properties of every object.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn sharable<T: Send + Sync>() {}

#[test]
fn a_compiled_schema_is_shared_between_threads() {
    sharable::<Structural>();
}

/// The changes of the server to the body of a create before it validates.
fn admitted(schema: &Structural, object: &Value) -> Value {
    let mut object = object.clone();
    schema.prune(&mut object);
    schema.default(&mut object);
    object
}

fn causes(errors: &[FieldError]) -> Vec<(String, String, String)> {
    let mut causes: Vec<_> =
        errors.iter().map(|error| (error.field.clone(), error.message.clone(), error.reason.to_owned())).collect();
    causes.sort();
    causes
}

fn recorded(case: &Value) -> Vec<(String, String, String)> {
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    let list = case["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut causes: Vec<_> =
        list.iter().map(|cause| (text(cause, "field"), text(cause, "message"), text(cause, "reason"))).collect();
    causes.sort();
    causes
}

/// Equal but for the way numbers are written.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, value)| right.get(key).is_some_and(|right| same(value, right)))
        }
        (left, right) => left == right,
    }
}

#[test]
fn creates_are_judged_as_the_real_server_judged_them() {
    let golden: Value = serde_json::from_str(include_str!("testdata/validation.json")).unwrap();
    let schema = Structural::compile(&golden["schema"]).unwrap();
    let mut wrong = Vec::new();
    for case in golden["cases"].as_array().unwrap() {
        if case.get("other").is_some() {
            continue;
        }
        let mut object = case["object"].clone();
        object.as_object_mut().unwrap().remove("status");
        let admitted = admitted(&schema, &object);
        let errors = schema.validate(&admitted, None);
        if causes(&errors) != recorded(case) {
            wrong.push(format!("{}\n  got  {:?}\n  want {:?}", case["object"], causes(&errors), recorded(case)));
        }
        if let Some(stored) = case.get("stored")
            && !same(stored, &admitted)
        {
            wrong.push(format!("{}\n  got  {admitted}\n  want {stored}", case["object"]));
        }
        if let Some(message) = case["message"].as_str() {
            let status = invalid_status("golden.test", "Thing", "x", &errors);
            assert_eq!(status["message"], message);
        }
        let strict: Vec<String> =
            schema.unknown_fields(&case["object"]).iter().map(|path| format!("unknown field \"{path}\"")).collect();
        let want = case["strict"]
            .as_str()
            .and_then(|text| text.split_once("strict decoding error: "))
            .map_or("", |(_, list)| list);
        if strict.join(", ") != want {
            wrong.push(format!("{}\n  got  {strict:?}\n  want {want}", case["object"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rules_fail_and_are_tolerated_as_on_the_real_server() {
    let golden: Value = serde_json::from_str(include_str!("testdata/rules.json")).unwrap();
    let schema = Structural::compile(&golden["schema"]).unwrap();
    let mut wrong = Vec::new();
    for case in ["creates", "updates"].into_iter().flat_map(|group| golden[group].as_array().unwrap()) {
        let with_name = |object: &Value| {
            let mut object = admitted(&schema, object);
            object["metadata"] = json!({"name": case["name"].as_str().unwrap_or("x")});
            object
        };
        let old = case.get("old").map(with_name);
        let errors = schema.validate(&with_name(&case["object"]), old.as_ref());
        if causes(&errors) != recorded(case) {
            let old = old.unwrap_or_default();
            wrong.push(format!(
                "{old} to {}\n  got  {:?}\n  want {:?}",
                case["object"],
                causes(&errors),
                recorded(case)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_status_update_is_judged_by_the_status_schema_alone() {
    let golden: Value = serde_json::from_str(include_str!("testdata/validation.json")).unwrap();
    let schema = Structural::compile(&golden["schema"]).unwrap();
    let old = json!({"spec": {"name": "A!"}});
    let new = json!({"spec": {"name": "A!"}, "status": {"phase": "C", "n": -1}});
    assert_eq!(
        causes(&schema.validate_status(&new, &old)),
        [
            ("status.n", "Invalid value: -1: n in body should be greater than or equal to 0", "FieldValueInvalid"),
            ("status.phase", "Unsupported value: \"C\": supported values: \"A\", \"B\"", "FieldValueNotSupported"),
        ]
        .map(|(field, message, reason)| (field.to_owned(), message.to_owned(), reason.to_owned()))
    );
}

#[test]
fn rules_and_patterns_that_do_not_compile_are_refused() {
    let golden: Value = serde_json::from_str(include_str!("testdata/declarations.json")).unwrap();
    let mut wrong = Vec::new();
    for case in golden.as_array().unwrap() {
        let errors = Structural::compile(&case["schema"]).err().unwrap_or_default();
        if causes(&errors) != recorded(case) {
            wrong.push(format!("{}\n  got  {:?}\n  want {:?}", case["schema"], causes(&errors), recorded(case)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The schema of the recorded creates.
static THING: LazyLock<Structural> = LazyLock::new(|| {
    let golden: Value = serde_json::from_str(include_str!("testdata/validation.json")).unwrap();
    Structural::compile(&golden["schema"]).unwrap()
});

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(|value| json!(value)),
        any::<i32>().prop_map(|value| json!(value)),
        "[a-z]{0,4}".prop_map(|value| json!(value)),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let names = prop::sample::select(vec![
            "spec", "dflt", "x", "y", "z", "items", "m", "free", "known", "any", "map", "a", "q",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.prop_map(str::to_owned), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_twice_changes_nothing_more(spec in any_json()) {
        let schema = &*THING;
        let once = admitted(schema, &json!({"metadata": {"name": "x"}, "spec": spec}));
        prop_assert_eq!(&admitted(schema, &once), &once);
        prop_assert!(schema.unknown_fields(&once).is_empty());
        // Validation of whatever is left must at least come to an end.
        schema.validate(&once, Some(&once));
    }
}
