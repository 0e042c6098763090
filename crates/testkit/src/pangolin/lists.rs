//! Lists: two kinds of paging, values that are replaced silently, and items that show less than the objects themselves.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::reply::Reply;
use super::schema;
use super::state::{ResourceRow, SiteRow, State};
use super::{resources, targets};

/// The query of a request.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn read(text: &str) -> Self {
        Self(url::form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Refuses names that are not among these.
    pub(super) fn only(&self, names: &[&str]) -> Result<(), Reply> {
        let unknown: BTreeSet<&String> =
            self.0.iter().map(|(key, _)| key).filter(|key| !names.contains(&key.as_str())).collect();
        if unknown.is_empty() { Ok(()) } else { Err(Reply::error(400, schema::unrecognized(unknown))) }
    }

    /// A positive number; anything else is replaced by the default without a word.
    fn positive(&self, name: &str, default: usize) -> usize {
        self.get(name).and_then(|text| text.parse().ok()).filter(|number| *number > 0).unwrap_or(default)
    }

    /// A number from `least` on; anything else is refused.
    fn number(&self, name: &str, default: usize, least: usize) -> Result<usize, Reply> {
        match self.get(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .ok()
                .filter(|number| *number >= least)
                .ok_or_else(|| Reply::error(400, schema::invalid(name))),
        }
    }
}

/// Cuts a page out of all items. The answer has the page under `name`, and its pagination.
fn page(state: &State, query: &Query, name: &str, items: Vec<Value>, filters: &[&str]) -> Result<Reply, Reply> {
    let total = items.len();
    if !state.version().pages() {
        let (limit, offset) = (query.number("limit", 1000, 1)?, query.number("offset", 0, 0)?);
        let shown: Vec<Value> = items.into_iter().skip(offset).take(limit).collect();
        let pagination = json!({ "total": total, "limit": limit, "offset": offset });
        return Ok(Reply::ok(json!({ name: shown, "pagination": pagination }), "Retrieved successfully"));
    }
    if state.version().strict_lists() {
        query.only(&[filters, &["pageSize", "page"]].concat())?;
    }
    let (size, number) = (query.positive("pageSize", 20), query.positive("page", 1));
    let shown: Vec<Value> = items.into_iter().skip(size.saturating_mul(number - 1)).take(size).collect();
    let pagination = json!({ "total": total, "pageSize": size, "page": number });
    Ok(Reply::ok(json!({ name: shown, "pagination": pagination }), "Retrieved successfully"))
}

/// Lists that have `limit` and `offset` in every version.
fn slice(
    state: &State,
    query: &Query,
    name: &str,
    items: Vec<Value>,
    (total, least): (usize, usize),
) -> Result<Reply, Reply> {
    if state.version().strict_lists() {
        query.only(&["limit", "offset"])?;
    }
    let (limit, offset) = (query.number("limit", 1000, least)?, query.number("offset", 0, 0)?);
    let shown: Vec<Value> = items.into_iter().skip(offset).take(limit).collect();
    let pagination = json!({ "total": total, "limit": limit, "offset": offset });
    Ok(Reply::ok(json!({ name: shown, "pagination": pagination }), "Retrieved successfully"))
}

pub(super) fn domains(state: &State, org: &str, query: &Query) -> Result<Reply, Reply> {
    let own = state.domains.iter().filter(|domain| domain.orgs.iter().any(|linked| linked == org));
    let items: Vec<Value> = own
        .map(|domain| {
            json!({
                "domainId": domain.id, "baseDomain": domain.base, "verified": domain.verified, "type": domain.kind,
                "failed": false, "tries": 0, "configManaged": domain.kind == "wildcard", "certResolver": null,
                "preferWildcardCert": null, "errorMessage": null,
            })
        })
        .collect();
    let total = if state.version().domains_total_is_right() { items.len() } else { state.domains.len() };
    slice(state, query, "domains", items, (total, 0))
}

pub(super) fn targets(state: &State, resource: i64, query: &Query) -> Result<Reply, Reply> {
    let own = state.targets.values().filter(|target| target.resource == resource);
    let items: Vec<Value> = own.map(|target| targets::json(target, false)).collect();
    let total = items.len();
    slice(state, query, "targets", items, (total, 1))
}

pub(super) fn sites(state: &State, org: &str, query: &Query) -> Result<Reply, Reply> {
    let old = state.version() <= super::Version::V1_16;
    let own = state.sites.iter().filter(|site| site.org == org);
    let items = own.map(|site| site_json(site, old || site.kind != "local")).collect();
    page(state, query, "sites", items, &["query", "sort_by", "order", "online", "status", "labels"])
}

pub(super) fn site_json(site: &SiteRow, with_online: bool) -> Value {
    let mut json = json!({
        "siteId": site.id, "niceId": site.nice_id, "name": site.nice_id, "orgId": site.org, "type": site.kind,
        "subnet": site.subnet.map(|net| format!("{net}.0/24")), "address": null, "status": "approved",
    });
    if with_online {
        json["online"] = json!(site.online);
    }
    json
}

pub(super) fn resources(state: &State, org: &str, query: &Query) -> Result<Reply, Reply> {
    let version = state.version();
    if version.pages() && query.get("siteId").is_some_and(|text| text.parse::<i64>().is_err()) {
        return Err(Reply::error(400, schema::invalid("siteId")));
    }
    let text = query.get("query").filter(|_| version.query_works());
    let protocol = query.get("protocol").filter(|_| version.pages());
    let mut own: Vec<&ResourceRow> = state
        .resources
        .values()
        .filter(|row| row.org == org)
        .filter(|row| {
            text.is_none_or(|text| [&row.name, &row.nice_id, &row.full_domain].iter().any(|value| like(value, text)))
        })
        // `http` and `https` stand for TLS off and on.
        .filter(|row| match protocol {
            Some("http") => !row.ssl,
            Some("https") => row.ssl,
            _ => true,
        })
        .collect();
    own.sort_by(|one, two| (&one.name, one.id).cmp(&(&two.name, two.id)));
    let items = own.into_iter().map(|row| resource_item(state, row)).collect();
    let filters = ["query", "enabled", "healthStatus", "protocol", "siteId", "status", "labels", "sort_by", "order"];
    page(state, query, "resources", items, &filters)
}

fn resource_item(state: &State, row: &ResourceRow) -> Value {
    let flag = |value: bool| if state.version().sso_moved() { json!(i32::from(value)) } else { json!(value) };
    let own = state.targets.values().filter(|target| target.resource == row.id);
    let targets: Vec<Value> = own
        .map(|target| {
            let site = state.site(target.site);
            json!({
                "targetId": target.id, "siteId": target.site, "ip": target.field("ip"), "port": target.field("port"),
                "enabled": target.field("enabled"), "healthStatus": target.health,
                "hcEnabled": target.field("hcEnabled"), "siteName": site.map(|site| &site.nice_id),
                "siteNiceId": site.map(|site| &site.nice_id), "online": site.map(|site| site.online),
                "type": site.map(|site| site.kind),
            })
        })
        .collect();
    let mut item = json!({
        "resourceId": row.id, "niceId": row.nice_id, "name": row.name, "ssl": row.ssl, "fullDomain": row.full_domain,
        "domainId": row.domain, "sso": flag(resources::effective_sso(row)), "whitelist": flag(row.whitelist),
        "enabled": row.enabled, "wildcard": row.full_domain.starts_with('*'), "health": "unknown", "proxyPort": null,
        "passwordId": row.password.then_some(1), "pincodeId": null, "headerAuthId": null, "targets": targets,
        "sites": [], "labels": [],
    });
    if state.version().resource_mode() {
        item["mode"] = json!(row.mode);
    } else {
        item["http"] = json!(true);
        item["protocol"] = json!("tcp");
    }
    item
}

pub(super) fn names(state: &State, org: &str) -> Reply {
    let own = state.resources.values().filter(|row| row.org == org);
    let names: Vec<Value> = own.map(|row| json!({ "resourceId": row.id, "name": row.name })).collect();
    Reply::ok(json!(names), "Resource names retrieved successfully")
}

/// `value LIKE %text%` of a database: without case, `%` and `_` are wildcards.
fn like(value: &str, text: &str) -> bool {
    let (value, text) = (value.to_lowercase(), format!("%{}%", text.to_lowercase()));
    let (value, pattern): (Vec<char>, Vec<char>) = (value.chars().collect(), text.chars().collect());
    // reached[n]: the pattern so far matches the first n characters.
    let mut reached = vec![false; value.len() + 1];
    reached[0] = true;
    for part in pattern {
        let mut next = vec![false; value.len() + 1];
        for at in 0..=value.len() {
            next[at] = match part {
                '%' => reached[at] || (at > 0 && next[at - 1]),
                '_' => at > 0 && reached[at - 1],
                plain => at > 0 && reached[at - 1] && value[at - 1] == plain,
            };
        }
        reached = next;
    }
    reached[value.len()]
}
