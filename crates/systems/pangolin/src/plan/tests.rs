use serde_json::json;
use signpost_provider_pangolin::{Listed, ResourceId, Site, SiteId, SiteKind};

use super::api::{is_mark, mark_of};
use super::crd::Shape;
use super::{FoundSite, site};

#[test]
fn a_mark_is_of_one_owner_and_complete() {
    let mark = "sp-home-0123456789ab-ba9876543210";
    assert!(is_mark(mark, "home"));
    for (text, owner) in [
        (mark, "hom"),
        (mark, "home-0123456789ab"),
        ("sp-home-x-0123456789ab-ba9876543210", "home"),
        ("sp-home-0123456789ab", "home"),
        ("sp-home-0123456789ab-BA9876543210", "home"),
        ("sp-home-0123456789ab-ba9876543210-more", "home"),
        ("my-sp-home-0123456789ab-ba9876543210", "home"),
        ("", "home"),
    ] {
        assert!(!is_mark(text, owner), "{text} {owner}");
    }
    let listed = |nice_id: &str, name: &str| Listed {
        id: ResourceId(1),
        nice_id: nice_id.into(),
        name: name.into(),
        host: None,
        enabled: true,
        sso: None,
        ssl: None,
        targets: None,
    };
    assert_eq!(mark_of(&listed("random", mark), "home"), Some(mark), "its creator stopped before it was marked");
    assert_eq!(mark_of(&listed("random", "my app"), "home"), None);
}

#[test]
fn a_site_is_found_by_identifier_or_only_name_and_never_guessed_among_several() {
    let one = |id, nice_id: &str, name: &str, online| Site {
        id: SiteId(id),
        nice_id: nice_id.into(),
        name: name.into(),
        kind: SiteKind::Newt,
        online,
    };
    let sites = [one(1, "home", "cluster", None), one(2, "cluster", "x", Some(false)), one(3, "y", "x", Some(true))];
    assert_eq!(site(&sites, "cluster", true), FoundSite::One(SiteId(2), false), "the identifier comes first");
    assert_eq!(site(&sites[..1], "cluster", true), FoundSite::One(SiteId(1), true));
    assert_eq!(site(&sites, "x", true), FoundSite::None("cluster, home, y".to_owned()), "two of the name");
    assert_eq!(
        site(&sites[..1], "default", false),
        FoundSite::One(SiteId(1), true),
        "the only one, when none was named"
    );
    assert!(matches!(site(&sites[..1], "typo", true), FoundSite::None(_)));
}

#[test]
fn the_shape_is_read_from_the_declared_fields() {
    let schema = |spec: serde_json::Value| json!({"properties": {"spec": {"properties": spec}}});
    let single = schema(json!({
        "name": {}, "target": {"properties": {"ip": {}}}, "tunnelRef": {"properties": {"name": {}}},
        "httpConfig": {"properties": {"subdomain": {"minLength": 1}, "domainId": {}}},
    }));
    assert_eq!(Shape::read(&single), Ok(Shape::SINGLE));
    let multi = schema(json!({
        "name": {}, "targets": {"items": {"properties": {"path": {}, "pathMatchType": {}, "priority": {}}}},
        "tunnelRef": {"properties": {"name": {}, "namespace": {}}},
        "httpConfig": {"properties": {"subdomain": {"minLength": 1}, "domainId": {}, "sso": {}, "blockAccess": {}}},
    }));
    assert_eq!(Shape::read(&multi), Ok(Shape::MULTI));
    assert!(Shape::read(&schema(json!({"name": {}}))).is_err());
    let apex = schema(json!({"target": {}, "httpConfig": {"properties": {"subdomain": {}}}}));
    assert!(Shape::read(&apex).unwrap().apex);
}
