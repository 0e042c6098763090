use super::*;
use serde_json::Value;

fn schema_of(crd: &CustomResourceDefinition) -> Value {
    let version = &crd.spec.versions[0];
    serde_json::to_value(version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap()
}

fn walk(path: &str, schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), child, visit);
    }
    if let Some(items) = schema.get("items") {
        walk(&format!("{path}[]"), items, visit);
    }
}

#[test]
fn every_field_has_a_description() {
    for crd in crds() {
        walk("", &schema_of(&crd), &mut |path, schema| {
            let exempt =
                path.is_empty() || path.ends_with("[]") || [".metadata", ".apiVersion", ".kind"].contains(&path);
            assert!(exempt || schema.get("description").is_some(), "{} {path}", crd.spec.names.kind);
        });
    }
}

#[test]
fn the_five_kinds_keep_their_names_scopes_and_short_names() {
    let seen: Vec<_> = crds()
        .iter()
        .map(|crd| {
            let names = &crd.spec.names;
            let short = names.short_names.clone().unwrap_or_default().join(",");
            format!("{} {} {short} {}", crd.metadata.name.as_deref().unwrap(), crd.spec.scope, names.kind)
        })
        .collect();
    assert_eq!(
        seen,
        [
            "clusteridentities.cluster.router.io Cluster ci ClusterIdentity",
            "dnsconfigurations.cluster.router.io Cluster dnsconf DNSConfiguration",
            "gateways.routing.router.io Namespaced gw Gateway",
            "dnspolicies.routing.router.io Namespaced dnsp DNSPolicy",
            "serviceroutes.routing.router.io Namespaced sr ServiceRoute",
        ]
    );
    assert!(crds().iter().all(|crd| crd.spec.names.categories.as_deref() == Some(&["router".to_owned()][..])));
}

#[test]
fn required_fields_patterns_and_enums_are_those_of_the_upstream_schema() {
    let schemas: Vec<Value> = crds().iter().map(schema_of).collect();
    let required = |at: usize| {
        let mut names: Vec<String> =
            serde_json::from_value(schemas[at]["properties"]["spec"]["required"].clone()).unwrap_or_default();
        names.sort();
        names
    };
    assert_eq!(required(0), ["cluster", "domain", "environmentLetter", "region"]);
    assert_eq!(required(1), ["externalDNSControllers"]);
    assert_eq!(required(2), ["controller", "credentialName", "targetPostfix"]);
    assert!(required(3).is_empty());
    assert_eq!(required(4), ["application", "environment", "gatewayName", "serviceName"]);
    let spec = |at: usize, field: &str| schemas[at]["properties"]["spec"]["properties"][field].clone();
    assert_eq!(spec(0, "domain")["pattern"], r"^([a-z0-9]+(-[a-z0-9]+)*\.)+[a-z]{2,}$");
    assert_eq!(spec(0, "environmentLetter")["pattern"], "^[a-z]$");
    assert_eq!(spec(1, "externalDNSControllers")["minItems"], 1);
    assert_eq!(spec(3, "mode")["default"], "Active");
    assert_eq!(spec(3, "mode")["enum"], serde_json::json!(["Active", "RegionBound"]));
    for schema in &schemas {
        let conditions = &schema["properties"]["status"]["properties"]["conditions"];
        assert_eq!(conditions["x-kubernetes-list-type"], "map");
        assert_eq!(conditions["x-kubernetes-list-map-keys"], serde_json::json!(["type"]));
    }
}

#[test]
fn a_policy_of_upstream_is_read_with_its_defaults() {
    let policy: DNSPolicy = serde_json::from_value(serde_json::json!({
        "apiVersion": "routing.router.io/v1alpha1", "kind": "DNSPolicy", "metadata": {"name": "p"}, "spec": {"sourceRegion": ""},
        "status": {"phase": "Active", "activeControllers": ["external-dns-weu"]}
    }))
    .unwrap();
    assert_eq!(policy.spec.mode, PolicyMode::Active);
    assert_eq!(policy.spec.source_region.as_deref(), Some(""));
    assert_eq!(policy.status.unwrap().active, None);
}
