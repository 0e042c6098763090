//! Create and update of resources: strict bodies, domains, hosts, and the traps of a partial update.

use serde_json::{Map, Value, json};

use super::reply::Reply;
use super::routes::{self, Sent};
use super::schema::{self, ANY, Field, Kind, NUMBER};
use super::state::{DomainRow, ResourceRow, State};

const CREATE: &[Field] = &[
    Field::new("name", Kind::Text(1, 255)).required(),
    Field::new("domainId", ANY).required(),
    Field::new("subdomain", ANY).nullable(),
    Field::new("stickySession", Kind::Bool),
    Field::new("postAuthPath", ANY).nullable(),
    Field::new("http", Kind::Bool),
    Field::new("protocol", Kind::OneOf(&["tcp", "udp"])),
];
const MODE: Field = Field::new("mode", Kind::OneOf(&["http", "ssh", "inference"]));

const UPDATE: &[Field] = &[
    Field::new("name", Kind::Text(1, 255)),
    Field::new("niceId", Kind::Text(1, 255)),
    Field::new("subdomain", ANY).nullable(),
    Field::new("domainId", ANY),
    Field::new("ssl", Kind::Bool),
    Field::new("sso", Kind::Bool),
    Field::new("blockAccess", Kind::Bool),
    Field::new("emailWhitelistEnabled", Kind::Bool),
    Field::new("applyRules", Kind::Bool),
    Field::new("enabled", Kind::Bool),
    Field::new("stickySession", Kind::Bool),
    Field::new("tlsServerName", ANY).nullable(),
    Field::new("setHostHeader", ANY).nullable(),
    Field::new("skipToIdpId", NUMBER).nullable(),
    Field::new("headers", Kind::Headers).nullable(),
    Field::new("postAuthPath", ANY).nullable(),
    Field::new("maintenanceModeEnabled", Kind::Bool),
    Field::new("resourcePolicyId", NUMBER).nullable(),
];

pub(super) fn create(state: &mut State, org: &str, sent: Sent) -> Result<Reply, Reply> {
    let Sent::Object(body) = sent else { return Err(Reply::error(500, "An error occurred")) };
    let mut fields = CREATE.to_vec();
    if state.version().resource_mode() {
        fields.push(MODE);
    }
    schema::check(&body, &fields).map_err(|message| Reply::error(400, message))?;
    let mode = mode_of(state, &body)?;
    routes::exists(org)?;
    let domain = domain_of(state, &body["domainId"])?;
    let subdomain = body.get("subdomain").and_then(Value::as_str).map(str::to_owned);
    let host = host_of(state, &domain, subdomain.as_deref())?;
    free_host(state, &host, &mode, None)?;
    let id = state.number();
    let row = ResourceRow {
        id,
        org: org.to_owned(),
        nice_id: format!("random-badger-{id}"),
        name: body["name"].as_str().unwrap_or_default().to_owned(),
        mode,
        subdomain: kept_subdomain(&domain, subdomain, &host),
        domain: domain.id,
        full_domain: host,
        ssl: true,
        enabled: true,
        sso: Some(true),
        block_access: false,
        sticky_session: body.get("stickySession") == Some(&json!(true)),
        apply_rules: false,
        whitelist: false,
        tls_server_name: None,
        set_host_header: None,
        post_auth_path: None,
        headers: None,
        policy: None,
        password: false,
    };
    let mut answer = json(&row);
    if state.version().sso_moved() {
        answer["sso"] = Value::Null;
    }
    state.resources.insert(id, row);
    Ok(Reply::created(answer, "Http resource created successfully"))
}

fn mode_of(state: &State, body: &Map<String, Value>) -> Result<String, Reply> {
    if let Some(mode) = body.get("mode").and_then(Value::as_str) {
        return Ok(mode.to_owned());
    }
    match (body.get("http").and_then(Value::as_bool), body.get("protocol").and_then(Value::as_str)) {
        (Some(true), Some("tcp")) => Ok("http".to_owned()),
        (Some(true), Some(_)) => Err(Reply::error(400, "Validation error: Protocol must be tcp for http resources")),
        _ if state.version().resource_mode() => {
            Err(Reply::error(400, "Validation error: mode is required when deprecated fields are not provided"))
        }
        _ => Err(Reply::error(400, schema::invalid("protocol"))),
    }
}

/// A domain that exists and is verified. Whether it is linked to the organisation is not checked.
fn domain_of(state: &State, id: &Value) -> Result<DomainRow, Reply> {
    let id = id.as_str().unwrap_or_default();
    match state.domains.iter().find(|domain| domain.id == id) {
        None => Err(Reply::error(400, format!("Domain with ID {id} not found"))),
        Some(domain) if !domain.verified => Err(Reply::error(400, format!("Domain with ID {id} is not verified"))),
        Some(domain) => Ok(domain.clone()),
    }
}

/// The host of a domain and a subdomain, in lower case.
fn host_of(state: &State, domain: &DomainRow, subdomain: Option<&str>) -> Result<String, Reply> {
    if let Some(text) = subdomain.filter(|text| !text.is_empty()) {
        let rest = if text == "*" { None } else { Some(text.strip_prefix("*.").unwrap_or(text)) };
        let wildcard = rest != Some(text);
        if wildcard || text.split('.').any(|label| label == "*") {
            if !state.version().knows_wildcards() {
                return Err(Reply::error(400, "Invalid subdomain"));
            }
            // Of the other types, a self-hosted wildcard domain would need a certificate of its own.
            if !(state.options.licensed && wildcard && domain.kind == "ns") {
                return Err(Reply::error(403, "Wildcard subdomains require a license"));
            }
        }
        if !rest.is_none_or(|rest| rest.split('.').all(is_label)) {
            return Err(Reply::error(400, "Invalid subdomain"));
        }
    }
    let base = domain.base.to_ascii_lowercase();
    match (domain.kind, subdomain) {
        ("wildcard", Some("")) => Err(Reply::error(400, "Invalid subdomain")),
        ("cname", _) | (_, None | Some("")) => Ok(base),
        (_, Some(text)) => Ok(format!("{}.{base}", text.to_ascii_lowercase())),
    }
}

fn is_label(label: &str) -> bool {
    !label.is_empty()
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn kept_subdomain(domain: &DomainRow, subdomain: Option<String>, host: &str) -> Option<String> {
    subdomain.filter(|text| domain.kind != "cname" && !text.is_empty() && !host.eq_ignore_ascii_case(&domain.base))
}

fn free_host(state: &State, host: &str, mode: &str, own: Option<i64>) -> Result<(), Reply> {
    if state.version().guards_dashboard() && host == state.options.dashboard {
        return Err(Reply::error(409, "Resource with that domain is reserved for the dashboard"));
    }
    let clashes = |row: &&ResourceRow| {
        let pair = [row.mode.as_str(), mode];
        let both = if state.version().duplicate_hosts() {
            pair.contains(&"http") && pair.contains(&"inference")
        } else {
            true
        };
        both && Some(row.id) != own && row.full_domain.eq_ignore_ascii_case(host)
    };
    // A wildcard and a host below its suffix exclude each other.
    let covers =
        |one: &str, other: &str| one.strip_prefix('*').is_some_and(|suffix| one != other && other.ends_with(suffix));
    let overlaps = |row: &ResourceRow| {
        let used = row.full_domain.to_ascii_lowercase();
        Some(row.id) != own && (covers(&used, host) || covers(host, &used))
    };
    if state.resources.values().any(overlaps) {
        return Err(Reply::error(409, "Resource with that domain overlaps with a wildcard"));
    }
    if state.resources.values().any(|row| clashes(&row)) {
        return Err(Reply::error(409, "Resource with that domain already exists"));
    }
    Ok(())
}

pub(super) fn update(state: &mut State, id: i64, sent: Sent) -> Result<Reply, Reply> {
    let Sent::Object(body) = sent else { return Err(Reply::error(400, schema::invalid("body"))) };
    schema::check(&body, UPDATE).map_err(|message| Reply::error(400, message))?;
    if body.is_empty() {
        return Err(Reply::error(400, "Validation error: At least one field must be provided for update"));
    }
    // A copy: an update that is refused changes nothing.
    let Some(mut row) = state.resources.get(&id).cloned() else {
        return Err(Reply::error(404, format!("Resource with ID {id} not found")));
    };
    policy(state, &mut row, &body)?;
    host(state, &mut row, &body)?;
    identity(state, &mut row, &body)?;
    plain_columns(&mut row, &body)?;
    let mut answer = json(&row);
    if let Some(headers) = &row.headers {
        answer["headers"] = json!(headers.to_string());
    }
    state.resources.insert(id, row);
    Ok(Reply::ok(answer, "HTTP resource updated successfully"))
}

/// A shared policy that is not sent again takes the resource's own protection with it.
fn policy(state: &State, row: &mut ResourceRow, body: &Map<String, Value>) -> Result<(), Reply> {
    match body.get("resourcePolicyId") {
        None if row.policy.is_some() => row.password = false,
        None => {}
        Some(Value::Null) => row.policy = None,
        Some(_) if !state.options.licensed => {
            return Err(Reply::error(403, "This feature requires a valid license"));
        }
        Some(id) => row.policy = id.as_i64(),
    }
    Ok(())
}

/// The subdomain alone changes its column and not the host; the domain alone moves the resource to the apex.
fn host(state: &State, row: &mut ResourceRow, body: &Map<String, Value>) -> Result<(), Reply> {
    let subdomain = body.get("subdomain").and_then(Value::as_str).map(str::to_owned);
    let Some(id) = body.get("domainId") else {
        if body.contains_key("subdomain") {
            row.subdomain = subdomain;
        }
        return Ok(());
    };
    let domain = domain_of(state, id)?;
    let host = host_of(state, &domain, subdomain.as_deref())?;
    if state.version().checks_update() {
        free_host(state, &host, &row.mode, Some(row.id))?;
    }
    row.subdomain = kept_subdomain(&domain, subdomain, &host);
    row.domain = domain.id;
    row.full_domain = host;
    Ok(())
}

fn identity(state: &State, row: &mut ResourceRow, body: &Map<String, Value>) -> Result<(), Reply> {
    if let Some(name) = body.get("name").and_then(Value::as_str) {
        name.clone_into(&mut row.name);
    }
    let Some(nice_id) = body.get("niceId").and_then(Value::as_str) else { return Ok(()) };
    if !nice_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(Reply::error(400, schema::invalid("niceId")));
    }
    let taken = |other: &&ResourceRow| other.org == row.org && other.id != row.id && other.nice_id == nice_id;
    if state.resources.values().any(|other| taken(&other)) {
        return Err(Reply::error(409, format!("A resource with niceId \"{nice_id}\" already exists")));
    }
    nice_id.clone_into(&mut row.nice_id);
    Ok(())
}

fn plain_columns(row: &mut ResourceRow, body: &Map<String, Value>) -> Result<(), Reply> {
    if body.get("skipToIdpId").is_some_and(|id| !id.is_null()) {
        return Err(Reply::error(500, "An error occurred"));
    }
    let flag = |name: &str, column: &mut bool| {
        if let Some(value) = body.get(name).and_then(Value::as_bool) {
            *column = value;
        }
    };
    flag("ssl", &mut row.ssl);
    flag("enabled", &mut row.enabled);
    flag("blockAccess", &mut row.block_access);
    flag("stickySession", &mut row.sticky_session);
    flag("applyRules", &mut row.apply_rules);
    flag("emailWhitelistEnabled", &mut row.whitelist);
    if let Some(value) = body.get("sso").and_then(Value::as_bool) {
        row.sso = Some(value);
    }
    let text = |name: &str, column: &mut Option<String>| {
        if let Some(value) = body.get(name) {
            *column = value.as_str().map(str::to_owned);
        }
    };
    text("tlsServerName", &mut row.tls_server_name);
    text("setHostHeader", &mut row.set_host_header);
    text("postAuthPath", &mut row.post_auth_path);
    if row.tls_server_name.as_ref().is_some_and(|name| !name.is_empty() && !name.split('.').all(is_label)) {
        return Err(Reply::error(400, schema::invalid("tlsServerName")));
    }
    if let Some(headers) = body.get("headers") {
        row.headers = Some(headers.clone()).filter(|headers| !headers.is_null());
    }
    Ok(())
}

/// What protects a resource in the end, for a list.
pub(super) fn effective_sso(row: &ResourceRow) -> bool {
    row.sso.unwrap_or(true)
}

/// The row as `GET /resource/{id}` shows it.
pub(super) fn json(row: &ResourceRow) -> Value {
    json!({
        "resourceId": row.id, "orgId": row.org, "niceId": row.nice_id, "name": row.name, "mode": row.mode,
        "http": true, "protocol": "tcp", "proxyPort": null, "domainId": row.domain, "subdomain": row.subdomain,
        "fullDomain": row.full_domain, "ssl": row.ssl, "enabled": row.enabled,
        "sso": if row.policy.is_some() { json!(row.sso) } else { json!(effective_sso(row)) },
        "blockAccess": row.block_access, "stickySession": row.sticky_session, "applyRules": row.apply_rules,
        "emailWhitelistEnabled": row.whitelist, "tlsServerName": row.tls_server_name,
        "setHostHeader": row.set_host_header, "postAuthPath": row.post_auth_path, "headers": row.headers,
        "resourcePolicyId": row.policy, "health": "unknown",
    })
}
