//! Create and update of targets: what is checked, what is not, and what an update changes beside what it was asked to.

use std::net::Ipv6Addr;

use serde_json::{Map, Value, json};

use super::reply::Reply;
use super::routes::Sent;
use super::schema::{self, ANY, Field, Kind, NUMBER};
use super::state::{State, TargetRow};

const MATCHES: Kind = Kind::OneOf(&["exact", "prefix", "regex"]);
const REWRITES: Kind = Kind::OneOf(&["exact", "prefix", "regex", "stripPrefix"]);
const PRIORITY: Field = Field::new("priority", Kind::Int(1, 1000));

/// The fields that create and update have in common.
const COMMON: &[Field] = &[
    Field::new("siteId", NUMBER).required(),
    Field::new("ip", ANY).required(),
    Field::new("enabled", Kind::Bool),
    Field::new("path", ANY).nullable(),
    Field::new("pathMatchType", MATCHES).nullable(),
    Field::new("rewritePath", ANY).nullable(),
    Field::new("rewritePathType", REWRITES).nullable(),
    Field::new("hcEnabled", Kind::Bool).nullable(),
    Field::new("hcPath", ANY).nullable(),
    Field::new("hcScheme", ANY).nullable(),
    Field::new("hcMode", ANY).nullable(),
    Field::new("hcHostname", ANY).nullable(),
    Field::new("hcPort", NUMBER).nullable(),
    Field::new("hcInterval", NUMBER).nullable(),
    Field::new("hcUnhealthyInterval", NUMBER).nullable(),
    Field::new("hcTimeout", NUMBER).nullable(),
    Field::new("hcHeaders", Kind::Headers).nullable(),
    Field::new("hcFollowRedirects", Kind::Bool).nullable(),
    Field::new("hcMethod", ANY).nullable(),
    Field::new("hcStatus", NUMBER).nullable(),
    Field::new("hcTlsServerName", ANY).nullable(),
    Field::new("hcHealthyThreshold", NUMBER).nullable(),
    Field::new("hcUnhealthyThreshold", NUMBER).nullable(),
];

fn fields(state: &State, more: &[Field]) -> Vec<Field> {
    let version = state.version();
    let mut fields = [COMMON, more].concat();
    let is_path = |name: &str| ["path", "pathMatchType"].contains(&name);
    let is_check = |name: &str| name == "priority" || name.starts_with("rewrite") || name.starts_with("hc");
    fields.retain(|field| version.target_paths() || !is_path(field.name));
    fields.retain(|field| version.target_checks() || !is_check(field.name));
    if version.target_mode() {
        fields.push(Field::new("mode", ANY));
    }
    fields
}

pub(super) fn create(state: &mut State, resource: i64, sent: Sent) -> Result<Reply, Reply> {
    let Sent::Object(mut body) = sent else { return Err(Reply::error(500, "An error occurred")) };
    let priority = if state.version().wants_priority() { PRIORITY.required() } else { PRIORITY.nullable() };
    let port = Field::new("port", Kind::Int(1, 65_535)).required();
    let fields = fields(state, &[priority, port, Field::new("method", ANY).nullable()]);
    schema::check(&body, &fields).map_err(|message| Reply::error(400, message))?;
    check_address(&body)?;
    check_health(state, body.get("hcEnabled") == Some(&json!(true)), &body)?;
    let site = site_of(state, &body)?;
    let (site_id, kind) = (site.id, site.kind);
    if let Some(subnet) = site.subnet
        && !body["ip"].as_str().is_some_and(|ip| ip.starts_with(&format!("{subnet}.")))
    {
        return Err(Reply::error(400, "Target IP is not within the site subnet"));
    }
    let id = state.number();
    let internal_port = (kind == "newt").then(|| state.port());
    if body.get("priority").is_none_or(Value::is_null) {
        body.insert("priority".to_owned(), json!(100));
    }
    body.entry("enabled").or_insert(json!(true));
    let checked = body.get("hcEnabled") == Some(&json!(true));
    body.insert("hcEnabled".to_owned(), json!(checked));
    let health = if checked && kind == "newt" && state.version().health_freezes() { "unhealthy" } else { "unknown" };
    body.remove("siteId");
    let row = TargetRow { id, resource, site: site_id, internal_port, health, fields: body.into_iter().collect() };
    let answer = json(&row, true);
    state.targets.insert(id, row);
    Ok(Reply::created(answer, "Target created successfully"))
}

pub(super) fn update(state: &mut State, id: i64, sent: Sent) -> Result<Reply, Reply> {
    let Sent::Object(body) = sent else { return Err(Reply::error(400, schema::invalid("body"))) };
    let port = Field::new("port", Kind::Int(1, 65_535));
    let fields = fields(state, &[PRIORITY, port, Field::new("method", Kind::Text(1, 10)).nullable()]);
    schema::check(&body, &fields).map_err(|message| Reply::error(400, message))?;
    check_address(&body)?;
    let (site, kind) = site_of(state, &body).map(|site| (site.id, site.kind))?;
    let Some(mut row) = state.targets.get(&id).cloned() else {
        return Err(Reply::error(404, format!("Target with ID {id} not found")));
    };
    let mut merged = row.fields.clone();
    merged.extend(body.clone());
    let merged: Map<String, Value> = merged.into_iter().collect();
    // The check that is on is judged with what the update leaves of it.
    let was_on = row.field("hcEnabled") == &json!(true);
    let asked = body.get("hcEnabled").and_then(Value::as_bool);
    check_health(state, asked.unwrap_or(was_on), &merged)?;
    row.site = site;
    // For a site of any kind, and for identical content too.
    row.internal_port = Some(state.port());
    row.fields
        .extend(body.iter().filter(|(name, _)| *name != "siteId").map(|(name, value)| (name.clone(), value.clone())));
    row.fields.insert("hcEnabled".to_owned(), json!(asked.unwrap_or(false)));
    if !body.contains_key("hcHeaders") {
        row.fields.insert("hcHeaders".to_owned(), Value::Null);
    }
    if body.get("pathMatchType") == Some(&Value::Null) {
        row.fields.insert("rewritePath".to_owned(), Value::Null);
        row.fields.insert("rewritePathType".to_owned(), Value::Null);
    }
    match asked {
        Some(false) => row.health = "unknown",
        None if !state.version().health_freezes() => row.health = "unknown",
        // Only newt reports the health of its targets.
        Some(true) if !was_on && kind == "newt" && state.version().health_freezes() => row.health = "unhealthy",
        None | Some(true) => {}
    }
    let answer = json(&row, true);
    state.targets.insert(id, row);
    Ok(Reply::ok(answer, "Target updated successfully"))
}

/// The site exists. Whose it is, is not checked.
fn site_of<'a>(state: &'a State, body: &Map<String, Value>) -> Result<&'a super::SiteRow, Reply> {
    let id = body["siteId"].as_i64().unwrap_or_default();
    state.site(id).ok_or_else(|| Reply::error(404, format!("Site with ID {id} not found")))
}

fn check_health(state: &State, on: bool, fields: &Map<String, Value>) -> Result<(), Reply> {
    let missing = fields.get("hcHostname").and_then(Value::as_str).is_none_or(str::is_empty);
    if on && missing && state.version().wants_hc_hostname() {
        return Err(Reply::error(400, "Validation error: hcHostname is required when hcEnabled is true"));
    }
    Ok(())
}

fn check_address(body: &Map<String, Value>) -> Result<(), Reply> {
    let ip = body["ip"].as_str().unwrap_or_default();
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !label.starts_with('-')
    };
    if ip.is_empty() || ip.parse::<Ipv6Addr>().is_ok() || ip.split('.').all(label) {
        return Ok(());
    }
    Err(Reply::error(400, "Validation error: Invalid IP or domain at \"ip\""))
}

/// The row. The answer to a write has the headers of the check as text.
pub(super) fn json(row: &TargetRow, written: bool) -> Value {
    let mut json = json!({
        "targetId": row.id, "resourceId": row.resource, "siteId": row.site, "internalPort": row.internal_port,
        "hcHealth": row.health,
    });
    for field in
        COMMON.iter().map(|field| field.name).chain(["port", "method", "priority"]).filter(|name| *name != "siteId")
    {
        json[field] = row.field(field).clone();
    }
    if written && !json["hcHeaders"].is_null() {
        json["hcHeaders"] = json!(json["hcHeaders"].to_string());
    }
    json
}
