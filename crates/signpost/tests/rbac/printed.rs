//! What `signpost rbac` prints, and the roles that are checked in.

use std::collections::BTreeSet;

use clap::Parser as _;
use serde_json::{Value, json};
use signpost::systems::SYSTEMS;
use signpost::{manifest, rbac};

/// The objects that `signpost rbac` prints with these arguments.
fn printed(arguments: &[&str]) -> Result<Vec<Value>, String> {
    let parsed = signpost::cli::Cli::try_parse_from(["signpost", "rbac"].iter().chain(arguments)).unwrap();
    let signpost::cli::Command::Rbac(args) = parsed.command else { panic!("not rbac") };
    rbac::asked_for(&args, SYSTEMS)
}

#[test]
fn secrets_are_granted_by_name_alone() {
    let reads = |object: &Value| object["rules"].to_string().contains("\"secrets\"");
    assert!(!printed(&[]).unwrap().iter().any(reads), "no Secret without a name");
    assert!(!printed(&["--watch-namespaces", "shop"]).unwrap().iter().any(reads));
    for also in [&[][..], &["--watch-namespaces", "shop"]] {
        let all = printed(&[also, &["--secrets", "east-ca, shop/west,east-client"]].concat()).unwrap();
        let roles: Vec<&Value> = all.iter().filter(|object| reads(object)).collect();
        let seen: Vec<(&Value, &Value)> =
            roles.iter().map(|role| (&role["metadata"]["namespace"], &role["rules"])).collect();
        let rules = |names: Value| json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": names}]);
        let (own, shop) = (rules(json!(["east-ca", "east-client"])), rules(json!(["west"])));
        assert_eq!(seen, [(&json!("shop"), &shop), (&json!("signpost"), &own)]);
        let account = json!([{"kind": "ServiceAccount", "name": "signpost", "namespace": "signpost"}]);
        let bindings = all.iter().filter(|object| object["kind"] == "RoleBinding");
        assert!(bindings.clone().all(|binding| binding["subjects"] == account), "{bindings:?}");
    }
    for wrong in ["east ca", "a/b/c", "Shop/x", "/x"] {
        let error = printed(&["--secrets", wrong]).unwrap_err();
        assert!(error.contains("write NAME or NAMESPACE/NAME"), "{error}");
    }
}

/// Kubernetes keeps the events of objects without a namespace in `default`.
#[test]
fn events_of_objects_without_a_namespace_are_granted_in_default() {
    let granted = |systems: &str| {
        let systems = signpost::systems::named(systems).unwrap();
        let places = rbac::Places { watched: ["shop".to_owned()].into(), ..rbac::Places::default() };
        let roles = rbac::manifests_in("signpost", "signpost", &places, &systems);
        let there = roles.into_iter().find(|role| role["kind"] == "Role" && role["metadata"]["namespace"] == "default");
        there.map(|role| role["rules"].clone())
    };
    let events = json!([{"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}]);
    assert_eq!([granted("powerdns"), granted("router")], [Some(events.clone()), Some(events)]);
    assert_eq!([granted("pihole"), granted("pangolin")], [None, None], "they only read such objects, or none");
}

#[test]
fn the_checked_in_roles_are_valid_yaml() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml")).unwrap();
    assert_eq!(
        manifest::from_yaml("deploy/rbac.yaml", &text).unwrap().len(),
        rbac::manifests("signpost", SYSTEMS).len()
    );
}

/// The three files of roles share no object, so that applying or deleting one changes nothing of another.
#[test]
fn the_files_of_roles_share_no_object() {
    let mut seen = BTreeSet::new();
    for file in ["rbac.yaml", "rbac-pangolin-crd.yaml", "rbac-pangolin-api.yaml"] {
        let text = std::fs::read_to_string(format!("{}/../../deploy/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        for object in manifest::from_yaml(file, &text).unwrap() {
            let id = format!("{} {}", object["kind"], object["metadata"]["name"]);
            assert!(seen.insert(id.clone()), "{file} has {id} too");
        }
    }
}
