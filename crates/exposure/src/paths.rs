//! Paths with Kubernetes' meaning as rules of a proxy that has another one.
//!
//! Kubernetes: a prefix matches element by element, the longest path wins, and of two equal ones the exact one. The edge of Pangolin: a prefix matches
//! character by character, and the highest priority wins whatever the length. So a prefix becomes an expression that ends at a slash or at the end,
//! and its priority is the number of its elements: two prefixes of one request never have the same number. A priority depends on its own path
//! alone, so that a new path changes no other rule.

use std::collections::BTreeMap;

use thiserror::Error;

/// The priority of a rule for the whole host: what the server uses by itself.
const WHOLE_HOST: u16 = 100;
/// The priority of exact paths, above all others. Two of them never match the same request.
const EXACT: u16 = 1000;
/// Longest path.
const MAX_PATH: usize = 1500;
/// Characters that a path of another controller has when it is a regular expression.
const EXPRESSION: [char; 8] = ['*', '(', ')', '[', ']', '|', '$', '^'];
/// Most elements of a path.
const MAX_ELEMENTS: usize = 800;

/// How a path of an Ingress matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathType {
    /// The whole path.
    Exact,
    /// Element by element.
    Prefix,
    /// Left to the implementation; here the same as a prefix.
    ImplementationSpecific,
}

/// How a rule of the proxy matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Matching {
    /// The whole path.
    Exact,
    /// A regular expression.
    Regex,
}

/// A service and its port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Backend {
    /// The name of the service.
    pub service: String,
    /// The port, by number or name.
    pub port: Result<u16, String>,
}

/// A path of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule<T> {
    /// The path; an empty one is `/`.
    pub path: String,
    /// How it matches.
    pub kind: PathType,
    /// The backend.
    pub backend: T,
}

/// A rule of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route<T> {
    /// The path; `None` for the whole host.
    pub path: Option<(Matching, String)>,
    /// The priority; the highest wins.
    pub priority: u16,
    /// The backend.
    pub backend: T,
}

/// Why a path is left out, or does not do what it seems to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathProblem {
    /// It would reach into other rules.
    #[error("path {path:?} holds {character:?}, which would reach into the routing rules of other hosts; remove it")]
    Unsafe {
        /// The path.
        path: String,
        /// The character.
        character: char,
    },
    /// It does not begin with a slash.
    #[error("path {0:?} does not begin with '/'; regular expressions are not supported")]
    NotAbsolute(String),
    /// It is too long.
    #[error("path {0:?}… is too long; at most {MAX_PATH} characters and {MAX_ELEMENTS} elements are supported")]
    TooLong(String),
    /// It looks like a regular expression of another controller. It is not left out.
    #[error(
        "path {0:?} looks like a regular expression and is matched as plain text; use Prefix or Exact, without wildcards"
    )]
    Expression(String),
    /// Another rule of the same host has the same path.
    #[error("path {0:?} is there twice with different backends; the first one is used")]
    Duplicate(String),
}

/// The rules of a host, and the paths that are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes<T> {
    /// The rules, the highest priority first.
    pub routes: Vec<Route<T>>,
    /// The paths that are left out, and those that need a warning.
    pub problems: Vec<PathProblem>,
}

/// A path in its canonical form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Canonical {
    Exact(String),
    /// Without slashes at its end; the root is empty.
    Prefix(String),
}

impl Canonical {
    fn of<T>(rule: &PathRule<T>) -> Result<Self, PathProblem> {
        let path = if rule.path.is_empty() { "/" } else { rule.path.as_str() };
        let shown = || path.chars().take(80).collect::<String>().replace(char::is_control, " ");
        if let Some(character) = path.chars().find(|c| *c == '`' || c.is_control()) {
            return Err(PathProblem::Unsafe { path: shown(), character });
        }
        if !path.starts_with('/') {
            return Err(PathProblem::NotAbsolute(shown()));
        }
        if escaped(path).chars().count() > MAX_PATH || elements(path) > MAX_ELEMENTS {
            return Err(PathProblem::TooLong(shown()));
        }
        Ok(match rule.kind {
            PathType::Exact => Self::Exact(path.to_owned()),
            PathType::Prefix | PathType::ImplementationSpecific => Self::Prefix(path.trim_end_matches('/').to_owned()),
        })
    }

    fn matches(&self, request: &str) -> bool {
        match self {
            Self::Exact(path) => path == request,
            Self::Prefix(path) => {
                request.strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }

    /// The order in Kubernetes: the length, then exact before prefix.
    fn rank(&self) -> (usize, bool) {
        match self {
            Self::Exact(path) => (path.len(), true),
            Self::Prefix(path) => (path.len(), false),
        }
    }

    fn priority(&self) -> u16 {
        match self {
            Self::Exact(_) => EXACT,
            Self::Prefix(path) if path.is_empty() => WHOLE_HOST,
            Self::Prefix(path) => WHOLE_HOST + 1 + u16::try_from(elements(path)).unwrap_or(EXACT / 2),
        }
    }

    fn rule(&self) -> Option<(Matching, String)> {
        match self {
            Self::Exact(path) => Some((Matching::Exact, path.clone())),
            Self::Prefix(path) if path.is_empty() => None,
            Self::Prefix(path) => Some((Matching::Regex, format!("^{}(/|$)", escaped(path)))),
        }
    }
}

fn elements(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

/// The text as a regular expression that matches it alone.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// The rules that answer as Kubernetes would. `default` answers what no path matches.
pub fn routes<T: Clone + PartialEq>(rules: &[PathRule<T>], default: Option<&T>) -> Routes<T> {
    let mut found: BTreeMap<Canonical, T> = BTreeMap::new();
    let mut problems = Vec::new();
    for rule in rules {
        let is_expression = rule.kind == PathType::ImplementationSpecific && rule.path.contains(EXPRESSION);
        if is_expression && Canonical::of(rule).is_ok() {
            problems.push(PathProblem::Expression(rule.path.chars().take(80).collect()));
        }
        match Canonical::of(rule) {
            Err(problem) => problems.push(problem),
            Ok(path) => match found.get(&path) {
                None => {
                    found.insert(path, rule.backend.clone());
                }
                Some(first) if *first != rule.backend => {
                    problems.push(PathProblem::Duplicate(rule.path.chars().take(80).collect()));
                }
                Some(_) => {}
            },
        }
    }
    if let Some(default) = default {
        found.entry(Canonical::Prefix(String::new())).or_insert_with(|| default.clone());
    }
    let mut routes: Vec<Route<T>> = found
        .into_iter()
        .map(|(path, backend)| Route { path: path.rule(), priority: path.priority(), backend })
        .collect();
    routes.sort_by(|one, two| two.priority.cmp(&one.priority).then_with(|| one.path.cmp(&two.path)));
    Routes { routes, problems }
}

/// The backend of a request in Kubernetes: the reference that [`routes`] is tested against.
pub fn kubernetes_answer<'a, T>(rules: &'a [PathRule<T>], default: Option<&'a T>, request: &str) -> Option<&'a T> {
    let mut best: Option<((usize, bool), &T)> = None;
    for rule in rules {
        let Ok(path) = Canonical::of(rule) else { continue };
        if path.matches(request) && best.is_none_or(|(rank, _)| path.rank() > rank) {
            best = Some((path.rank(), &rule.backend));
        }
    }
    best.map(|(_, backend)| backend).or(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(kind: PathType, path: &str, backend: &'static str) -> PathRule<&'static str> {
        PathRule { path: path.to_owned(), kind, backend }
    }

    /// The table of the Kubernetes documentation: path, request, whether they match.
    #[test]
    fn prefixes_match_element_by_element() {
        for (kind, path, request, expected) in [
            (PathType::Prefix, "/", "/anything", true),
            (PathType::Exact, "/foo", "/foo", true),
            (PathType::Exact, "/foo", "/bar", false),
            (PathType::Exact, "/foo", "/foo/", false),
            (PathType::Exact, "/foo/", "/foo", false),
            (PathType::Prefix, "/foo", "/foo", true),
            (PathType::Prefix, "/foo", "/foo/", true),
            (PathType::Prefix, "/foo/", "/foo", true),
            (PathType::Prefix, "/foo/", "/foo/", true),
            (PathType::Prefix, "/aaa/bb", "/aaa/bbb", false),
            (PathType::Prefix, "/aaa/bbb", "/aaa/bbb", true),
            (PathType::Prefix, "/aaa/bbb/", "/aaa/bbb", true),
            (PathType::Prefix, "/aaa/bbb", "/aaa/bbb/", true),
            (PathType::Prefix, "/aaa/bbb", "/aaa/bbb/ccc", true),
            (PathType::Prefix, "/aaa/bbb", "/aaa/bbbxyz", false),
        ] {
            let rules = [rule(kind, path, "x")];
            assert_eq!(kubernetes_answer(&rules, None, request).is_some(), expected, "{kind:?} {path} {request}");
        }
    }

    #[test]
    fn the_longest_path_wins_and_the_exact_one_of_two_equal_ones() {
        let rules = [
            rule(PathType::Prefix, "/", "root"),
            rule(PathType::Prefix, "/aaa", "short"),
            rule(PathType::Prefix, "/aaa/bbb", "long"),
            rule(PathType::Exact, "/aaa", "exact"),
        ];
        for (request, expected) in
            [("/", "root"), ("/aaa", "exact"), ("/aaa/", "short"), ("/aaa/bbb/c", "long"), ("/aaax", "root")]
        {
            assert_eq!(kubernetes_answer(&rules, None, request), Some(&expected), "{request}");
        }
    }

    #[test]
    fn a_lone_root_is_the_whole_host_without_a_path() {
        for path in ["", "/"] {
            let made = routes(&[rule(PathType::Prefix, path, "x")], None);
            assert_eq!(made.routes, [Route { path: None, priority: 100, backend: "x" }]);
        }
    }

    #[test]
    fn a_prefix_ends_at_a_slash_and_every_character_is_literal() {
        let made =
            routes(&[rule(PathType::ImplementationSpecific, "/a.b/(c)/", "x"), rule(PathType::Exact, "/", "y")], None);
        assert_eq!(
            made.routes,
            [
                Route { path: Some((Matching::Exact, "/".into())), priority: 1000, backend: "y" },
                Route { path: Some((Matching::Regex, r"^/a\.b/\(c\)(/|$)".into())), priority: 103, backend: "x" },
            ]
        );
    }

    #[test]
    fn a_path_that_looks_like_an_expression_is_plain_text_with_a_warning() {
        for path in ["/api(/|$)(.*)", "/api/*", "/[a-z]", "/v^1"] {
            let made = routes(&[rule(PathType::ImplementationSpecific, path, "x")], None);
            assert_eq!((made.routes.len(), &made.problems[..]), (1, &[PathProblem::Expression(path.into())][..]));
            for kind in [PathType::Prefix, PathType::Exact] {
                assert_eq!(routes(&[rule(kind, path, "x")], None).problems, [], "{kind:?} {path}");
            }
        }
        assert_eq!(routes(&[rule(PathType::ImplementationSpecific, "/a.b/c+d", "x")], None).problems, []);
        let unusable = routes(&[rule(PathType::ImplementationSpecific, "api/(.*)", "x")], None);
        assert_eq!(unusable.problems, [PathProblem::NotAbsolute("api/(.*)".into())], "one problem for each path");
    }

    #[test]
    fn a_priority_does_not_depend_on_other_paths() {
        let alone = routes(&[rule(PathType::Prefix, "/a/b", "x")], None).routes;
        let more = routes(
            &[
                rule(PathType::Prefix, "/a/b/c", "z"),
                rule(PathType::Prefix, "/a/b", "x"),
                rule(PathType::Prefix, "/", "y"),
            ],
            None,
        );
        assert!(more.routes.contains(&alone[0]));
    }

    #[test]
    fn a_path_that_cannot_be_used_is_left_out_and_its_neighbours_are_not() {
        let long = "/x".repeat(801);
        let made = routes(
            &[
                rule(PathType::Prefix, "/a`) || Host(`other.example.com", "thief"),
                rule(PathType::ImplementationSpecific, "api.*", "expression"),
                rule(PathType::Prefix, &long, "long"),
                rule(PathType::Prefix, "/b", "first"),
                rule(PathType::Prefix, "/b/", "second"),
                rule(PathType::Prefix, "/b", "first"),
                rule(PathType::Prefix, "/", "root"),
            ],
            None,
        );
        assert_eq!(made.routes.iter().map(|route| route.backend).collect::<Vec<_>>(), ["first", "root"]);
        assert!(matches!(made.problems[0], PathProblem::Unsafe { character: '`', .. }));
        assert!(matches!(made.problems[1], PathProblem::NotAbsolute(_)));
        assert!(matches!(made.problems[2], PathProblem::TooLong(_)));
        assert_eq!(made.problems[3..], [PathProblem::Duplicate("/b/".into())]);
    }

    #[test]
    fn the_default_backend_answers_what_no_path_matches() {
        let made = routes(&[rule(PathType::Prefix, "/a", "a")], Some(&"default"));
        assert_eq!(made.routes.last(), Some(&Route { path: None, priority: 100, backend: "default" }));
        let rooted = routes(&[rule(PathType::Prefix, "/", "a")], Some(&"default"));
        assert_eq!(rooted.routes, [Route { path: None, priority: 100, backend: "a" }]);
    }
}
