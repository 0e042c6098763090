//! The public edge of a Pangolin: which target answers a URL.
//!
//! ```text
//!  Exposure { host, targets } ─► routers: rule text + priority ─► the matching router with the highest priority ─► its servers
//! ```
//! The rules are built as text and evaluated as text, as the real server and its proxy do it. So a path that breaks out of its
//! quotes does here what it does there. In: plain data. Out: [`Answer`]. No I/O.

use std::collections::BTreeMap;

use regex::Regex;

mod rule;

use rule::Expression;

/// One HTTP resource, with its targets. `T` names a target for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure<T> {
    /// The full host, such as `app.example.com` or `*.example.com`.
    pub host: String,
    /// Whether the resource is enabled; a disabled one has no router.
    pub enabled: bool,
    /// Whether it is served by HTTPS (plain HTTP then redirects) or by plain HTTP alone.
    pub ssl: bool,
    /// Who may enter.
    pub access: Access,
    /// Its targets.
    pub targets: Vec<EdgeTarget<T>>,
}

/// Who may enter a resource, before any target is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Everybody.
    #[default]
    Open,
    /// Whoever logs in.
    Login,
    /// Nobody.
    Blocked,
}

/// One target as the edge sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeTarget<T> {
    /// The caller's name for it.
    pub name: T,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Whether its site is online.
    pub online: bool,
    /// Whether it can be dialled: it has an address and a method, and its health check did not fail.
    pub usable: bool,
    /// The path.
    pub path: Option<String>,
    /// How the path matches.
    pub matching: Option<PathMatch>,
    /// The rewritten path; part of the group of a target.
    pub rewrite: Option<String>,
    /// The stored priority; 100 is the same as none.
    pub priority: u16,
}

/// How the path of a target matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathMatch {
    /// The whole path.
    Exact,
    /// The start of the path, character by character.
    Prefix,
    /// A regular expression.
    Regex,
}

/// The decision of the edge about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// No router matches: 404.
    NoRouter,
    /// A router matches and has no server: 503.
    NoServer,
    /// Plain HTTP of a resource with TLS: redirected to HTTPS.
    Redirect,
    /// One of these answers.
    Served(Vec<T>),
    /// Several routers match with the same priority: it is undefined which one answers.
    Undefined,
}

/// What a visitor gets who is not logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visit<T> {
    /// The decision of the edge, with nothing in between.
    Open(Answer<T>),
    /// A target would answer, after a login.
    Login,
    /// A target would answer, and nobody may enter.
    Blocked,
}

/// One router of the generated configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Router<T> {
    /// The rule, in the proxy's language.
    pub rule: String,
    /// The priority; the highest wins.
    pub priority: u16,
    /// Whether it listens for HTTPS.
    pub ssl: bool,
    /// Who may enter.
    pub access: Access,
    /// The servers behind it.
    pub servers: Vec<T>,
}

/// The priority that means "none was chosen".
const UNSET: u16 = 100;

/// The configuration that is generated for these resources.
pub fn routers<T: Clone>(exposures: &[Exposure<T>]) -> Vec<Router<T>> {
    exposures.iter().filter(|exposure| exposure.enabled).flat_map(routers_of).collect()
}

fn routers_of<T: Clone>(exposure: &Exposure<T>) -> Vec<Router<T>> {
    let mut groups: BTreeMap<_, Vec<&EdgeTarget<T>>> = BTreeMap::new();
    for target in exposure.targets.iter().filter(|target| target.enabled) {
        groups.entry((&target.path, target.matching, &target.rewrite)).or_default().push(target);
    }
    let routers = groups.into_iter().map(|((path, matching, _), targets)| {
        let chosen = targets.iter().map(|target| target.priority).filter(|priority| *priority != UNSET).max();
        // The server wants both; with one of them alone it makes one more plain router for the host.
        let routed = path.as_deref().filter(|path| !path.is_empty()).zip(matching);
        let mut rule = host_rule(&exposure.host);
        let mut usual = UNSET;
        if let Some((path, matching)) = routed {
            rule = format!("{rule} && {}", path_rule(path, matching));
            usual = default_priority(path, matching);
        }
        let any_online = targets.iter().any(|target| target.online);
        let servers = targets
            .iter()
            .filter(|target| target.usable && (target.online || !any_online))
            .map(|target| target.name.clone())
            .collect();
        Router { rule, priority: chosen.unwrap_or(usual), ssl: exposure.ssl, access: exposure.access, servers }
    });
    routers.collect()
}

fn host_rule(host: &str) -> String {
    match host.strip_prefix("*.") {
        Some(base) => format!("HostRegexp(`^[^.]+\\.{}$`)", regex::escape(base)),
        None => format!("Host(`{host}`)"),
    }
}

fn path_rule(path: &str, matching: PathMatch) -> String {
    let slashed = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    match matching {
        PathMatch::Exact => format!("Path(`{slashed}`)"),
        PathMatch::Prefix => format!("PathPrefix(`{slashed}`)"),
        PathMatch::Regex => format!("PathRegexp(`{path}`)"),
    }
}

fn default_priority(path: &str, matching: PathMatch) -> u16 {
    match matching {
        PathMatch::Exact | PathMatch::Prefix if path == "/" => 1,
        PathMatch::Exact => 115,
        PathMatch::Prefix => 113,
        PathMatch::Regex => 112,
    }
}

/// The route that answers `GET scheme://host/path`, for a user who may enter.
pub fn answer<T: Clone>(exposures: &[Exposure<T>], https: bool, host: &str, path: &str) -> Answer<T> {
    match route(exposures, https, host, path) {
        Ok(router) if router.servers.is_empty() => Answer::NoServer,
        Ok(router) => Answer::Served(router.servers),
        Err(answer) => answer,
    }
}

/// What a visitor of `scheme://host/path` gets who is not logged in. A router without a server still asks for a login.
pub fn visit<T: Clone>(exposures: &[Exposure<T>], https: bool, host: &str, path: &str) -> Visit<T> {
    match route(exposures, https, host, path) {
        Ok(Router { access: Access::Blocked, .. }) => Visit::Blocked,
        Ok(Router { access: Access::Login, .. }) => Visit::Login,
        _ => Visit::Open(answer(exposures, https, host, path)),
    }
}

/// The router of a request, or the answer where there is not exactly one.
fn route<T: Clone>(exposures: &[Exposure<T>], https: bool, host: &str, path: &str) -> Result<Router<T>, Answer<T>> {
    let matching: Vec<Router<T>> = routers(exposures)
        .into_iter()
        // A router whose rule does not parse is left out by the proxy.
        .filter(|router| Expression::parse(&router.rule).is_some_and(|rule| rule.matches(host, path)))
        .collect();
    let secure = |router: &&Router<T>| router.ssl == https;
    let Some(most) = matching.iter().filter(secure).map(|router| router.priority).max() else {
        let redirects = !https && matching.iter().any(|router| router.ssl);
        return Err(if redirects { Answer::Redirect } else { Answer::NoRouter });
    };
    let mut first = matching.iter().filter(secure).filter(|router| router.priority == most);
    match (first.next(), first.next()) {
        (Some(router), None) => Ok(router.clone()),
        (_, Some(_)) => Err(Answer::Undefined),
        (None, None) => Err(Answer::NoRouter),
    }
}

/// Whether a pattern of the proxy's language matches anywhere in the text.
fn matches_anywhere(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
}

#[cfg(test)]
mod tests;
