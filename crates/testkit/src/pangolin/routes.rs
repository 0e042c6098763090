//! From a request to a handler: what is outside `/v1`, what is checked before the key, and who may call what.

use serde_json::{Map, Value, json};

use super::reply::Reply;
use super::state::{Key, State};
use super::{auth, blueprint, lists, resources, targets};

/// Largest body.
const MAX_BODY: usize = 100 * 1024;

/// A request.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) authorization: Option<&'a str>,
    pub(super) json: bool,
    pub(super) body: &'a [u8],
}

/// The body of a request.
pub(super) enum Sent {
    /// No body, or none that the server reads as JSON.
    Nothing,
    /// An object.
    Object(Map<String, Value>),
}

impl Call<'_> {
    /// The body, read before anybody looks at the key.
    fn sent(&self) -> Result<Sent, Reply> {
        if self.body.len() > MAX_BODY {
            return Err(Reply::error(413, "request entity too large"));
        }
        if self.body.is_empty() || !self.json {
            return Ok(Sent::Nothing);
        }
        match serde_json::from_slice(self.body) {
            Ok(Value::Object(object)) => Ok(Sent::Object(object)),
            Ok(_) | Err(_) => Err(Reply::error(400, "Unexpected token in JSON")),
        }
    }

    fn no_route(&self) -> Reply {
        Reply::NoRoute(format!("{} {}", self.method, self.path))
    }
}

/// The answer to a request.
pub(super) fn respond(state: &mut State, call: &Call<'_>) -> Reply {
    match route(state, call) {
        Ok(reply) | Err(reply) => reply,
    }
}

fn route(state: &mut State, call: &Call<'_>) -> Result<Reply, Reply> {
    let mut parts: Vec<&str> = call.path.split('/').skip(1).collect();
    if parts.last() == Some(&"") {
        parts.pop();
    }
    match parts.first() {
        Some(first) if first.eq_ignore_ascii_case("v1") => {}
        Some(&"api") => return Err(Reply::error(404, "The requested URL was not found")),
        _ => return Err(call.no_route()),
    }
    let parts = &parts[1..];
    if parts.is_empty() && call.method == "GET" {
        return Ok(Reply::Json(200, json!({ "message": "Healthy" })));
    }
    let sent = call.sent()?;
    let key = auth::caller(state, call.authorization)?;
    let query = if call.query.is_empty() { String::new() } else { format!("?{}", call.query) };
    state.requests.push(format!("{} {}{query}", call.method, call.path));
    let aliased: Vec<&str>;
    let parts = if state.version().aliases() && parts.contains(&"public-resource") {
        aliased = parts.iter().map(|part| if *part == "public-resource" { "resource" } else { part }).collect();
        &aliased[..]
    } else {
        parts
    };
    match (call.method, parts) {
        ("GET", ["orgs"]) => orgs(&key, call.query),
        ("GET", ["org", org]) => get_org(&key, org),
        (method, ["org", org, rest @ ..]) => in_org(state, &key, call, (method, org, rest), sent),
        (method, ["resource", id, rest @ ..]) => on_resource(state, &key, call, (method, id, rest), sent),
        (method @ ("GET" | "POST" | "DELETE"), ["target", id]) => on_target(state, &key, (method, id), sent),
        ("GET", ["site", id]) => {
            let id: i64 = id.parse().map_err(|_| Reply::error(400, "Invalid site ID"))?;
            let row = state.site(id).ok_or_else(|| Reply::error(404, format!("Site with ID {id} not found")))?;
            key.reaches(&row.org)?;
            key.may("getSite")?;
            Ok(Reply::ok(lists::site_json(row, true), "Site retrieved successfully"))
        }
        _ => Err(call.no_route()),
    }
}

fn orgs(key: &Key, query: &str) -> Result<Reply, Reply> {
    if !key.root {
        return Err(Reply::error(403, "Key does not have root access"));
    }
    key.may("listOrgs")?;
    lists::Query::read(query).only(&["limit", "offset"])?;
    let orgs = [super::ORG, super::OTHER_ORG].map(|org| json!({ "orgId": org, "name": org }));
    Ok(Reply::ok(json!({ "orgs": orgs }), "Organizations retrieved successfully"))
}

fn get_org(key: &Key, org: &str) -> Result<Reply, Reply> {
    key.reaches(org)?;
    key.may("getOrg")?;
    exists(org)?;
    Ok(Reply::ok(json!({ "org": { "orgId": org, "name": org } }), "Organization retrieved successfully"))
}

/// An organisation that exists. Lists do not ask.
pub(super) fn exists(org: &str) -> Result<(), Reply> {
    if [super::ORG, super::OTHER_ORG].contains(&org) {
        return Ok(());
    }
    Err(Reply::error(404, format!("Organization with ID {org} not found")))
}

fn in_org(
    state: &mut State,
    key: &Key,
    call: &Call<'_>,
    (method, org, rest): (&str, &str, &[&str]),
    sent: Sent,
) -> Result<Reply, Reply> {
    let action = match (method, rest) {
        ("GET", ["domains"]) => "listOrgDomains",
        ("GET", ["sites"]) => "listSites",
        ("GET", ["resources" | "resource-names"]) => "listResources",
        ("GET", ["site", _]) => "getSite",
        ("PUT", ["resource"]) => "createResource",
        ("PUT", ["blueprint"]) if state.version().blueprints() => "applyBlueprint",
        _ => return Err(call.no_route()),
    };
    key.reaches(org)?;
    key.may(action)?;
    let query = lists::Query::read(call.query);
    match (action, rest) {
        ("listOrgDomains", _) => lists::domains(state, org, &query),
        ("listSites", _) => lists::sites(state, org, &query),
        ("listResources", ["resources"]) => lists::resources(state, org, &query),
        ("listResources", _) => Ok(lists::names(state, org)),
        ("createResource", _) => resources::create(state, org, sent),
        ("applyBlueprint", _) => blueprint::apply(state, org, sent),
        (_, [_, nice_id]) => {
            let row = state.sites.iter().find(|site| site.org == org && site.nice_id == *nice_id);
            let row = row.ok_or_else(|| Reply::error(404, "Site not found"))?;
            Ok(Reply::ok(lists::site_json(row, true), "Site retrieved successfully"))
        }
        _ => Err(call.no_route()),
    }
}

fn on_resource(
    state: &mut State,
    key: &Key,
    call: &Call<'_>,
    (method, id, rest): (&str, &str, &[&str]),
    sent: Sent,
) -> Result<Reply, Reply> {
    let action = match (method, rest) {
        ("GET", []) => "getResource",
        ("POST", []) => "updateResource",
        ("DELETE", []) => "deleteResource",
        ("GET", ["targets"]) => "listTargets",
        ("PUT", ["target"]) => "createTarget",
        _ => return Err(call.no_route()),
    };
    let row = id.parse().ok().and_then(|id| state.resources.get(&id));
    let Some(row) = row else { return Err(Reply::error(404, format!("Resource with ID {id} not found"))) };
    let id = row.id;
    key.reaches(&row.org)?;
    key.may(action)?;
    match action {
        "getResource" => Ok(Reply::ok(resources::json(row), "Resource retrieved successfully")),
        "updateResource" => resources::update(state, id, sent),
        "deleteResource" => {
            state.resources.remove(&id);
            state.targets.retain(|_, target| target.resource != id);
            Ok(Reply::ok(Value::Null, "Resource deleted successfully"))
        }
        "listTargets" => lists::targets(state, id, &lists::Query::read(call.query)),
        _ => targets::create(state, id, sent),
    }
}

fn on_target(state: &mut State, key: &Key, (method, id): (&str, &str), sent: Sent) -> Result<Reply, Reply> {
    let row = id.parse().ok().and_then(|id| state.targets.get(&id));
    let Some(row) = row else { return Err(Reply::error(404, format!("Target with ID {id} not found"))) };
    let id = row.id;
    let org = state.resources.get(&row.resource).map(|resource| resource.org.clone()).unwrap_or_default();
    key.reaches(&org)?;
    match method {
        "GET" => {
            key.may("getTarget")?;
            Ok(Reply::ok(targets::json(row, false), "Target retrieved successfully"))
        }
        "POST" => {
            key.may("updateTarget")?;
            targets::update(state, id, sent)
        }
        _ => {
            key.may("deleteTarget")?;
            state.targets.remove(&id);
            Ok(Reply::ok(Value::Null, "Target deleted successfully"))
        }
    }
}
