//! The envelope, what a status means, and rows as the different versions send them. In: bytes. Out: types or errors.

use serde_json::{Map, Value, json};
use signpost_dns::Fqdn;
use signpost_provider_http::printable;

use crate::error::PangolinError;
use crate::path::RoutePath;
use crate::types::{
    Domain, DomainId, DomainKind, Header, HealthCheck, Listed, ListedTarget, Place, Resource, ResourceId,
    ResourceSettings, Site, SiteId, SiteKind, Target, TargetId, TargetSettings,
};

/// Longest text that is taken from a server's message.
const MAX_MESSAGE: usize = 300;

fn protocol(what: impl Into<String>) -> PangolinError {
    PangolinError::Protocol { what: what.into() }
}

/// Whether the answer is that of the probe, which has no envelope.
pub(crate) fn healthy(status: u16, location: Option<String>, body: &[u8]) -> Result<(), PangolinError> {
    match (status, serde_json::from_slice::<Value>(body)) {
        (200, Ok(answer)) if answer["message"].is_string() => Ok(()),
        (300..=399, _) => Err(redirected(status, location)),
        (500..=599, _) => Err(PangolinError::Server { status, message: "no message".to_owned() }),
        _ => Err(PangolinError::NotTheApi { status }),
    }
}

fn redirected(status: u16, location: Option<String>) -> PangolinError {
    PangolinError::Redirected { status, location: location.unwrap_or_else(|| "nowhere".to_owned()) }
}

/// The data of an answer.
pub(crate) fn data(
    status: u16,
    location: Option<String>,
    body: &[u8],
    org: &str,
    permission: &'static str,
) -> Result<Value, PangolinError> {
    let envelope = serde_json::from_slice::<Value>(body).ok().filter(|answer| answer["success"].is_boolean());
    match (status, envelope) {
        (200..=299, Some(mut answer)) if answer["success"] == json!(true) => Ok(answer["data"].take()),
        // A page instead of JSON: a dashboard or a proxy, not the API. Half a body is no page.
        (200..=299, None) if body.trim_ascii_start().starts_with(b"<") => Err(PangolinError::NotTheApi { status }),
        (200..=299, _) => Err(protocol("a success without its data")),
        (300..=399, _) => Err(redirected(status, location)),
        (404, None) => Err(PangolinError::NotTheApi { status }),
        (_, envelope) => {
            let message = envelope.as_ref().and_then(|answer| answer["message"].as_str()).unwrap_or("no message");
            Err(failure(status, &printable(message, MAX_MESSAGE), org, permission))
        }
    }
}

/// What an error of the server means.
fn failure(status: u16, message: &str, org: &str, permission: &'static str) -> PangolinError {
    let lower = message.to_lowercase();
    let owned = || message.to_owned();
    match status {
        401 => PangolinError::Unauthorized,
        403 if lower.contains("access to this organization") => {
            PangolinError::OtherOrganization { org: org.to_owned() }
        }
        403 if ["licen", "subscription", "tier", "plan", "limit"].iter().any(|word| lower.contains(word)) => {
            PangolinError::Licence { message: owned() }
        }
        403 if lower.contains("permission") => PangolinError::Forbidden { permission },
        404 if lower.contains("organization") => PangolinError::OtherOrganization { org: org.to_owned() },
        404 => PangolinError::NotFound { what: owned() },
        409 if lower.contains("niceid") => PangolinError::NiceIdTaken { nice_id: quoted(message).concat() },
        409 if lower.contains("domain") => {
            PangolinError::HostTaken { host: "of this resource".to_owned(), by: owned() }
        }
        400 if lower.contains("unrecognized key") => PangolinError::Unsupported { keys: quoted(message) },
        500..=599 => PangolinError::Server { status, message: owned() },
        _ => PangolinError::Rejected { status, message: owned() },
    }
}

/// The texts between quotes; versions differ in which quotes they use.
fn quoted(message: &str) -> Vec<String> {
    let quote = if message.contains('"') { '"' } else { '\'' };
    message.split(quote).skip(1).step_by(2).map(str::to_owned).collect()
}

fn number(row: &Value, key: &str) -> Result<i64, PangolinError> {
    row[key].as_i64().ok_or_else(|| protocol(format!("a row without {key}")))
}

fn text(row: &Value, key: &str) -> Option<String> {
    row[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// A flag, which some versions send as 0 or 1.
fn flag(row: &Value, key: &str) -> Option<bool> {
    row[key].as_bool().or_else(|| row[key].as_i64().map(|number| number != 0))
}

fn port(row: &Value, key: &str) -> Option<u16> {
    row[key].as_u64().and_then(|number| u16::try_from(number).ok())
}

fn host(row: &Value) -> Option<Fqdn> {
    row["fullDomain"].as_str().and_then(|text| Fqdn::parse(text).ok())
}

/// A list of headers, or the text of one.
fn headers(value: &Value) -> Vec<Header> {
    let parsed = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let items = parsed.as_ref().unwrap_or(value).as_array().map(Vec::as_slice).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| Some(Header { name: item["name"].as_str()?.into(), value: item["value"].as_str()?.into() }))
        .collect()
}

/// A domain; `None` for one whose name cannot be a name, which no host can be in.
pub(crate) fn domain(row: &Value) -> Option<Domain> {
    let kind = match row["type"].as_str() {
        Some("ns") => DomainKind::Ns,
        Some("cname") => DomainKind::Cname,
        Some("wildcard") => DomainKind::Wildcard,
        _ => DomainKind::Other,
    };
    let base = Fqdn::parse(row["baseDomain"].as_str()?).ok()?;
    Some(Domain { id: DomainId(text(row, "domainId")?), base, kind, verified: flag(row, "verified") == Some(true) })
}

pub(crate) fn site(row: &Value) -> Result<Site, PangolinError> {
    let kind = match row["type"].as_str() {
        Some("newt") => SiteKind::Newt,
        Some("wireguard") => SiteKind::Wireguard,
        Some("local") => SiteKind::Local,
        _ => SiteKind::Other,
    };
    Ok(Site {
        id: SiteId(number(row, "siteId")?),
        nice_id: text(row, "niceId").unwrap_or_default(),
        name: text(row, "name").unwrap_or_default(),
        kind,
        online: flag(row, "online"),
    })
}

pub(crate) fn listed(row: &Value) -> Result<Listed, PangolinError> {
    let targets = row["targets"].as_array().map(|rows| rows.iter().filter_map(listed_target).collect());
    Ok(Listed {
        id: ResourceId(number(row, "resourceId")?),
        nice_id: text(row, "niceId").unwrap_or_default(),
        name: text(row, "name").unwrap_or_default(),
        host: host(row),
        enabled: flag(row, "enabled").unwrap_or(true),
        sso: flag(row, "sso"),
        ssl: flag(row, "ssl"),
        targets,
    })
}

fn listed_target(row: &Value) -> Option<ListedTarget> {
    Some(ListedTarget {
        id: TargetId(row["targetId"].as_i64()?),
        site: SiteId(row["siteId"].as_i64()?),
        ip: text(row, "ip").unwrap_or_default(),
        port: port(row, "port")?,
        enabled: flag(row, "enabled").unwrap_or(true),
    })
}

pub(crate) fn resource(row: &Value) -> Result<Resource, PangolinError> {
    Ok(Resource {
        id: ResourceId(number(row, "resourceId")?),
        nice_id: text(row, "niceId").ok_or_else(|| protocol("a resource without niceId"))?,
        name: text(row, "name").unwrap_or_default(),
        domain: text(row, "domainId").map(DomainId),
        host: host(row),
        enabled: flag(row, "enabled").unwrap_or(true),
        ssl: flag(row, "ssl").unwrap_or(true),
        sso: flag(row, "sso"),
        block_access: flag(row, "blockAccess").unwrap_or(false),
        sticky_session: flag(row, "stickySession").unwrap_or(false),
        tls_server_name: text(row, "tlsServerName"),
        set_host_header: text(row, "setHostHeader"),
        headers: headers(&row["headers"]),
        policy: row["resourcePolicyId"].as_i64(),
    })
}

pub(crate) fn target(row: &Value) -> Result<Target, PangolinError> {
    Ok(Target {
        id: TargetId(number(row, "targetId")?),
        host: text(row, "ip").unwrap_or_default(),
        site: SiteId(number(row, "siteId")?),
        port: port(row, "port").ok_or_else(|| protocol("a target without a port"))?,
        method: text(row, "method"),
        enabled: flag(row, "enabled").unwrap_or(true),
        path: text(row, "path"),
        matching: text(row, "pathMatchType"),
        rewrite: text(row, "rewritePath"),
        priority: port(row, "priority"),
        health: (flag(row, "hcEnabled") == Some(true)).then(|| health(row)),
        unhealthy: row["hcHealth"] == "unhealthy",
    })
}

fn health(row: &Value) -> HealthCheck {
    let seconds = |key: &str| row[key].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or_default();
    HealthCheck {
        hostname: text(row, "hcHostname").unwrap_or_default(),
        port: port(row, "hcPort").unwrap_or_default(),
        path: text(row, "hcPath").unwrap_or_default(),
        scheme: text(row, "hcScheme").unwrap_or_default(),
        method: text(row, "hcMethod").unwrap_or_default(),
        interval: seconds("hcInterval"),
        unhealthy_interval: seconds("hcUnhealthyInterval"),
        timeout: seconds("hcTimeout"),
        status: port(row, "hcStatus"),
        follow_redirects: flag(row, "hcFollowRedirects").unwrap_or(false),
        headers: headers(&row["hcHeaders"]),
        tls_server_name: text(row, "hcTlsServerName"),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn headers_json(headers: &[Header]) -> Value {
    headers.iter().map(|header| json!({ "name": header.name, "value": header.value })).collect()
}

fn subdomain(place: &Place) -> Value {
    match place {
        // An empty text is refused by one type of domain; null is the apex for all.
        Place::Apex => Value::Null,
        Place::Subdomain(labels) => json!(labels),
    }
}

/// The body of a create. Versions from 1.9 to 1.22 accept the older pair; `mode` is for one that does not.
pub(crate) fn create_body(name: &str, domain: &DomainId, place: &Place, mode: bool) -> Map<String, Value> {
    let mut body = object(json!({ "name": name, "domainId": domain.0, "subdomain": subdomain(place) }));
    if mode {
        body.insert("mode".to_owned(), json!("http"));
    } else {
        body.insert("http".to_owned(), json!(true));
        body.insert("protocol".to_owned(), json!("tcp"));
    }
    body
}

/// The body of an update: complete, with domain and subdomain together, and with the shared policy.
pub(crate) fn update_body(wanted: &ResourceSettings, place: &Place, policy: Option<i64>) -> Map<String, Value> {
    let headers = if wanted.headers.is_empty() { Value::Null } else { headers_json(&wanted.headers) };
    let mut body = object(json!({
        "name": wanted.name, "niceId": wanted.nice_id.as_str(), "domainId": wanted.domain.0,
        "subdomain": subdomain(place), "enabled": wanted.enabled, "ssl": wanted.ssl, "sso": wanted.sso,
        "blockAccess": wanted.block_access, "stickySession": wanted.sticky_session,
        "tlsServerName": wanted.tls_server_name, "setHostHeader": wanted.set_host_header, "headers": headers,
    }));
    if let Some(policy) = policy {
        body.insert("resourcePolicyId".to_owned(), json!(policy));
    }
    body
}

/// The body of a target: complete, so that nothing of an earlier state is kept, and always with `hcEnabled`: without it the server stops a
/// check and leaves the target out for good.
pub(crate) fn target_body(wanted: &TargetSettings) -> Map<String, Value> {
    let path = wanted.path.as_ref();
    let mut body = object(json!({
        "siteId": wanted.site.0, "ip": wanted.host, "port": wanted.port, "method": wanted.method,
        "enabled": wanted.enabled, "priority": wanted.priority, "path": path.map(RoutePath::text),
        "pathMatchType": path.map(|path| path.matching().as_str()), "rewritePath": null, "rewritePathType": null,
        "hcEnabled": wanted.health.is_some(),
    }));
    if let Some(check) = &wanted.health {
        body.extend(object(json!({
            "hcHostname": check.hostname, "hcPort": check.port, "hcPath": check.path, "hcScheme": check.scheme,
            "hcMode": "http", "hcMethod": check.method, "hcInterval": check.interval,
            "hcUnhealthyInterval": check.unhealthy_interval, "hcTimeout": check.timeout, "hcStatus": check.status,
            "hcFollowRedirects": check.follow_redirects, "hcHeaders": headers_json(&check.headers),
            "hcTlsServerName": check.tls_server_name,
        })));
    }
    body
}

/// Whether a key can be left out for a server that does not know it: its value is what such a server does anyway.
pub(crate) fn is_default(key: &str, value: &Value) -> bool {
    value.is_null() || *value == json!(false) || (key == "priority" && *value == json!(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_own_meaning() {
        let of = |status, message: &str| failure(status, message, "home", "createTarget");
        assert_eq!(of(401, "Invalid API key"), PangolinError::Unauthorized);
        let lacking = of(403, "Key does not have permission perform this action");
        assert_eq!(lacking, PangolinError::Forbidden { permission: "createTarget" });
        assert!(lacking.to_string().contains("\"createTarget\""), "{lacking}");
        let other = PangolinError::OtherOrganization { org: "home".into() };
        assert_eq!(of(403, "Key does not have access to this organization"), other);
        assert_eq!(of(404, "Organization with ID home not found"), other);
        assert_eq!(of(403, "This requires a license").reason(), "Licence");
        assert_eq!(of(404, "Target with ID 1 not found").reason(), "NotFound");
        assert_eq!(
            of(409, "A resource with niceId \"a\" already exists"),
            PangolinError::NiceIdTaken { nice_id: "a".into() }
        );
        assert_eq!(of(409, "Resource with that domain already exists").reason(), "HostTaken");
        assert_eq!(of(413, "request entity too large").reason(), "Rejected");
        assert_eq!(of(500, "An error occurred").reason(), "ServerError");
    }

    #[test]
    fn unknown_keys_are_found_in_either_wording() {
        let keys = |message: &str| failure(400, message, "o", "p");
        let one = PangolinError::Unsupported { keys: vec!["mode".into()] };
        assert_eq!(keys("Validation error: Unrecognized key: \"mode\""), one);
        let two = PangolinError::Unsupported { keys: vec!["a".into(), "b".into()] };
        assert_eq!(keys("Validation error: Unrecognized key(s) in object: 'a', 'b'"), two);
    }

    #[test]
    fn pages_and_half_bodies_are_not_data() {
        let read = |status, body: &str| data(status, None, body.as_bytes(), "o", "p");
        assert_eq!(read(200, "<html>"), Err(PangolinError::NotTheApi { status: 200 }));
        assert_eq!(read(404, "<html>"), Err(PangolinError::NotTheApi { status: 404 }));
        for body in ["", "{\"data\":", "[]", "{\"data\":[]}", "{\"success\":false,\"data\":[]}"] {
            assert_eq!(read(200, body).unwrap_err().reason(), "Protocol", "{body}");
        }
        assert_eq!(read(200, "{\"success\":true,\"data\":[1]}"), Ok(json!([1])));
    }
}
