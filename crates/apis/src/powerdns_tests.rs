use super::*;

fn schema_of(crd: &CustomResourceDefinition) -> serde_json::Value {
    let version = &crd.spec.versions[0];
    serde_json::to_value(version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap()
}

fn walk(path: &str, schema: &serde_json::Value, visit: &mut impl FnMut(&str, &serde_json::Value)) {
    visit(path, schema);
    if let Some(properties) = schema.get("properties").and_then(|p| p.as_object()) {
        for (name, child) in properties {
            walk(&format!("{path}.{name}"), child, visit);
        }
    }
    if let Some(items) = schema.get("items") {
        walk(&format!("{path}[]"), items, visit);
    }
}

#[test]
fn every_field_has_a_description() {
    for crd in crds() {
        walk("", &schema_of(&crd), &mut |path, schema| {
            if path.ends_with("[]") || path == ".metadata" || path.is_empty() {
                return;
            }
            assert!(
                schema.get("description").is_some() || path == ".apiVersion" || path == ".kind",
                "{} {path} has no description",
                crd.spec.names.kind
            );
        });
    }
}

#[test]
fn integers_are_int64_with_bounds() {
    for crd in crds() {
        walk("", &schema_of(&crd), &mut |path, schema| {
            if schema["type"] != "integer" {
                return;
            }
            assert_eq!(schema["format"], "int64", "{path}");
            if !path.ends_with("bservedGeneration") {
                assert!(schema.get("minimum").is_some() && schema.get("maximum").is_some(), "{path} has no bounds");
            }
        });
    }
}

#[test]
fn the_four_kinds_keep_their_names_scopes_and_columns() {
    let seen: Vec<_> = crds()
        .iter()
        .map(|crd| {
            (
                crd.metadata.name.clone().unwrap(),
                crd.spec.scope.clone(),
                crd.spec.versions[0]
                    .additional_printer_columns
                    .iter()
                    .flatten()
                    .filter(|column| column.priority.unwrap_or(0) == 0)
                    .map(|column| column.name.clone())
                    .collect::<Vec<_>>()
                    .join(","),
            )
        })
        .collect();
    let zone = "Serial,ID,Status";
    let rrset = "Zone,Name,Type,TTL,Status,Records";
    let expected = [
        ("zones.dns.cav.enablers.ob", "Namespaced", zone),
        ("clusterzones.dns.cav.enablers.ob", "Cluster", zone),
        ("rrsets.dns.cav.enablers.ob", "Namespaced", rrset),
        ("clusterrrsets.dns.cav.enablers.ob", "Cluster", rrset),
    ]
    .map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(seen, expected);
}

#[test]
fn the_retired_version_is_listed_as_in_powerdns_operator() {
    for crd in crds().iter().filter(|crd| crd.spec.scope == "Namespaced") {
        let names: Vec<_> = crd.spec.versions.iter().map(|v| (v.name.as_str(), v.served, v.storage)).collect();
        assert_eq!(names, [("v1alpha2", true, true), ("v1alpha1", false, false)]);
    }
}

#[test]
fn cluster_scoped_kinds_serialise_like_the_others() {
    let zone = ClusterZone::new(
        "example.com",
        serde_json::from_value(serde_json::json!({"kind": "Native", "nameservers": ["ns1.example.com"]})).unwrap(),
    );
    let value = serde_json::to_value(&zone).unwrap();
    assert_eq!(value["apiVersion"], API_VERSION);
    assert_eq!(value["kind"], "ClusterZone");
    assert_eq!(value["spec"]["soa_edit_api"], "DEFAULT");
    assert_eq!(serde_json::from_value::<ClusterZone>(value).unwrap(), zone);
}
