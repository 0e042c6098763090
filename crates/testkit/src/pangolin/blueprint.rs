//! Blueprints: one document for several resources, which is not applied as one.

use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use super::reply::Reply;
use super::routes::Sent;
use super::schema::{self, ANY, Field};
use super::state::{DomainRow, ResourceRow, State, TargetRow};

pub(super) fn apply(state: &mut State, org: &str, sent: Sent) -> Result<Reply, Reply> {
    let Sent::Object(body) = sent else { return Err(Reply::error(400, schema::invalid("body"))) };
    let fields = [Field::new("blueprint", ANY).required()];
    schema::check(&body, &fields).map_err(|message| Reply::error(400, message))?;
    let text = body["blueprint"].as_str().unwrap_or_default();
    let decoded = BASE64.decode(text.as_bytes()).map_err(|_| Reply::error(400, "Invalid base64"))?;
    let document: Map<String, Value> =
        serde_json::from_slice(&decoded).map_err(|_| Reply::error(400, "Invalid JSON in blueprint"))?;
    let mut wanted = Vec::new();
    for section in ["proxy-resources", "public-resources"] {
        if section == "public-resources" && !state.version().public_resources() {
            continue;
        }
        let entries = document.get(section).and_then(Value::as_object).into_iter().flatten();
        wanted.extend(entries.map(|(key, value)| (key.clone(), value.clone())));
    }
    let hosts: Vec<&str> = wanted.iter().filter_map(|(_, value)| value["full-domain"].as_str()).collect();
    if hosts.iter().enumerate().any(|(at, host)| hosts[..at].contains(host)) {
        return Err(Reply::error(400, "Duplicate full-domain in blueprint"));
    }
    // What has been written before an error stays: the transaction does not roll back.
    for (key, value) in wanted {
        one(state, org, &key, &value)?;
    }
    Ok(Reply::created(Value::Null, "Blueprint applied successfully"))
}

fn one(state: &mut State, org: &str, key: &str, value: &Value) -> Result<(), Reply> {
    let refuse = |message: &str| Reply::error(400, message);
    let host = value["full-domain"].as_str().ok_or_else(|| refuse("full-domain is required"))?;
    let domain = domain_for(state, org, &host.to_ascii_lowercase())
        .ok_or_else(|| refuse("Domain not found for full-domain"))?
        .id
        .clone();
    let own = state.resources.values().find(|row| row.org == org && row.nice_id == key).map(|row| row.id);
    let taken = |row: &ResourceRow| Some(row.id) != own && row.full_domain.eq_ignore_ascii_case(host);
    if !state.version().duplicate_hosts() && state.resources.values().any(taken) {
        return Err(refuse("Resource already exists"));
    }
    let id = own.unwrap_or_else(|| state.number());
    let row = ResourceRow {
        id,
        org: org.to_owned(),
        nice_id: key.to_owned(),
        name: value["name"].as_str().unwrap_or(key).to_owned(),
        mode: "http".to_owned(),
        domain,
        subdomain: None,
        full_domain: host.to_owned(),
        ssl: value["ssl"].as_bool().unwrap_or(true),
        enabled: value["enabled"].as_bool().unwrap_or(true),
        sso: Some(value["auth"]["sso-enabled"].as_bool().unwrap_or(false)),
        block_access: false,
        sticky_session: false,
        apply_rules: false,
        whitelist: false,
        tls_server_name: None,
        set_host_header: None,
        post_auth_path: None,
        headers: None,
        policy: None,
        password: false,
    };
    state.resources.insert(id, row);
    targets(state, org, id, value["targets"].as_array().map(Vec::as_slice).unwrap_or_default())
}

/// The longest verified base domain of the organisation that the host is below.
fn domain_for<'a>(state: &'a State, org: &str, host: &str) -> Option<&'a DomainRow> {
    let fits = |domain: &&DomainRow| {
        let below = host.strip_suffix(&domain.base).is_some_and(|rest| rest.ends_with('.')) && domain.kind != "cname";
        domain.verified && domain.orgs.iter().any(|linked| linked == org) && (host == domain.base || below)
    };
    state.domains.iter().filter(fits).max_by_key(|domain| domain.base.len())
}

/// Targets are matched by their position; those that are left over are deleted.
fn targets(state: &mut State, org: &str, resource: i64, wanted: &[Value]) -> Result<(), Reply> {
    let present: Vec<i64> = state.targets.values().filter(|row| row.resource == resource).map(|row| row.id).collect();
    for (at, value) in wanted.iter().enumerate() {
        let site = state.sites.iter().find(|site| site.org == org && value["site"] == site.nice_id.as_str());
        let (Some(site), true) = (site.map(|site| site.id), value["method"].is_string()) else {
            return Err(Reply::error(400, "Site or method not found for target"));
        };
        let id = present.get(at).copied().unwrap_or_else(|| state.number());
        let before = state.targets.get(&id).cloned();
        let fields = [
            ("ip", value["hostname"].clone()),
            ("port", value["port"].clone()),
            ("method", value["method"].clone()),
            ("enabled", json!(value["enabled"].as_bool().unwrap_or(true))),
            ("path", value["path"].clone()),
            ("pathMatchType", value["path-match"].clone()),
            ("priority", json!(value["priority"].as_i64().unwrap_or(100))),
            ("hcEnabled", json!(false)),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value)).into();
        // Unlike an update of the target itself, identical content keeps its port.
        let same = before.filter(|row| row.fields == fields && row.site == site);
        let internal_port = Some(same.and_then(|row| row.internal_port).unwrap_or_else(|| state.port()));
        state.targets.insert(id, TargetRow { id, resource, site, internal_port, health: "unknown", fields });
    }
    for id in present.into_iter().skip(wanted.len()) {
        state.targets.remove(&id);
    }
    Ok(())
}
