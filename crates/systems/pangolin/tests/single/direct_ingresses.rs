//! Whole random Ingresses in direct mode: what the edge of the strict stand-in answers is what Kubernetes documents for the same Ingress.
//!
//! ```text
//!  random Ingress ─► sandbox ─► operator ─► strict stand-in ─► edge ─┐
//!        └────────────────────► the words of the documentation ──────┴─► equal, for every host and path
//! ```
//! Hosts in several rules, hosts that are refused, paths of all types, named and numbered ports, a Service that does not exist, a default
//! backend, and annotations. Each Ingress is created, and then changed into another one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use signpost_sandbox::edge::{Answer, Visit};

use super::direct_turns::{Quiet, seconds};

/// Hosts in domains of the organisation; then a wildcard, and a host of another domain.
const HOSTS: [&str; 6] = ["a.ns.test", "b.ns.test", "c.wild.test", "d.deep.ns.test", "*.ns.test", "x.elsewhere.org"];
/// The host that annotations name.
const MOVED: &str = "moved.wild.test";
const ABSENT: &str = "absent";

/// A Service, the port as it is written, and its number.
#[derive(Clone, Debug)]
struct Backend {
    service: &'static str,
    port: Value,
    number: u16,
}

impl Backend {
    fn is_absent(&self) -> bool {
        self.service == ABSENT
    }

    fn json(&self) -> Value {
        // Both are there, so that a patch replaces the one by the other.
        let port = json!({"name": self.port["name"], "number": self.port["number"]});
        json!({"service": {"name": self.service, "port": port}})
    }
}

#[derive(Clone, Debug)]
struct Path {
    kind: &'static str,
    text: String,
    backend: Backend,
}

/// Everything that an Ingress asks for.
#[allow(clippy::struct_excessive_bools)] // Each is an annotation.
#[derive(Clone, Debug)]
struct Wish {
    rules: Vec<(&'static str, Vec<Path>)>,
    default: Option<Backend>,
    sso: bool,
    block_access: bool,
    paused: bool,
    enabled: bool,
    /// Whether `domain-name` and `subdomain` name another host.
    moved: bool,
    /// Annotations without a meaning for routing.
    others: Vec<(&'static str, &'static str)>,
}

impl Wish {
    fn annotations(&self) -> Value {
        let word = |given: bool| given.then_some("true");
        let mut all = json!({
            "pangolin.ingress.k8s.io/sso": word(self.sso),
            "pangolin.ingress.k8s.io/block-access": word(self.block_access),
            "pangolin.ingress.k8s.io/paused": word(self.paused),
            "pangolin.ingress.k8s.io/enabled": (!self.enabled).then_some("false"),
            "pangolin.ingress.k8s.io/domain-name": self.moved.then_some("wild.test"),
            "pangolin.ingress.k8s.io/subdomain": self.moved.then_some("moved"),
        });
        for name in ["backend-scheme", "sticky-session", "headers", "tls-server-name", "no-such-annotation"] {
            let value = self.others.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
            all[format!("pangolin.ingress.k8s.io/{name}")] = json!(value);
        }
        all
    }

    fn spec(&self) -> Value {
        let rule = |(host, paths): &(&str, Vec<Path>)| {
            let paths: Vec<Value> = paths
                .iter()
                .map(|path| json!({"path": path.text, "pathType": path.kind, "backend": path.backend.json()}))
                .collect();
            // A rule without paths has no `http` part.
            if paths.is_empty() { json!({"host": host}) } else { json!({"host": host, "http": {"paths": paths}}) }
        };
        let default = self.default.as_ref().map(Backend::json);
        json!({"ingressClassName": "pangolin", "rules": self.rules.iter().map(rule).collect::<Vec<_>>(), "defaultBackend": default})
    }

    /// The paths of each host, of all rules for it; of two equal ones, the first.
    fn hosts(&self) -> BTreeMap<&'static str, Vec<&Path>> {
        let mut hosts: BTreeMap<&'static str, Vec<&Path>> = BTreeMap::new();
        for (host, paths) in &self.rules {
            let known = hosts.entry(host).or_default();
            for path in paths {
                let same = |other: &&Path| {
                    let exact = [other.kind == "Exact", path.kind == "Exact"];
                    exact[0] == exact[1]
                        && (elements(&other.text) == elements(&path.text))
                        && (!exact[0] || other.text == path.text)
                };
                if !known.iter().any(same) {
                    known.push(path);
                }
            }
        }
        hosts
    }

    /// What a visitor gets, by the words of the Kubernetes documentation, and by those of `docs/expose-through-pangolin.md` for hosts that
    /// cannot be exposed.
    fn visit(&self, host: &str, request: &str, namespace: &str) -> Visit<String> {
        let nothing = Visit::Open(Answer::NoRouter);
        let hosts = self.hosts();
        // Annotations that name a host are for an Ingress with one host.
        if !self.enabled || self.paused || (self.moved && hosts.len() > 1) {
            return nothing;
        }
        let asked =
            if self.moved && host == MOVED { hosts.keys().next().copied() } else { Some(host).filter(|_| !self.moved) };
        let Some((written, paths)) = asked.and_then(|host| hosts.get_key_value(host)) else { return nothing };
        if written.starts_with('*') || (*written == "x.elsewhere.org" && !self.moved) {
            return nothing;
        }
        let has_root = paths.iter().any(|path| path.kind != "Exact" && elements(&path.text).is_empty());
        let default = self.default.as_ref().filter(|_| !has_root);
        // A host is exposed as a whole.
        if paths.iter().map(|path| &path.backend).chain(default).any(Backend::is_absent) {
            return nothing;
        }
        let Some(backend) = documented(paths, request).or(default) else { return nothing };
        match (self.block_access, self.sso) {
            (true, _) => Visit::Blocked,
            (false, true) => Visit::Login,
            (false, false) => {
                let Backend { service, number, .. } = backend;
                Visit::Open(Answer::Served(vec![format!("{service}.{namespace}.svc.cluster.local:{number}")]))
            }
        }
    }
}

/// The elements of a path; a slash at the end adds none.
fn elements(path: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = path.split('/').skip(1).collect();
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    parts
}

/// "Exact: matches the URL path exactly and with case sensitivity. Prefix: matches based on a URL path prefix split by /. Matching is done on a
/// path element by element basis. Precedence will be given first to the longest matching path. If two paths are still equally matched,
/// precedence will be given to paths with an exact path type over prefix path type."
fn documented<'a>(paths: &[&'a Path], request: &str) -> Option<&'a Backend> {
    let asked: Vec<&str> = request.split('/').skip(1).collect();
    let mut best: Option<((usize, bool), &Backend)> = None;
    for path in paths {
        let (exact, parts) = (path.kind == "Exact", elements(&path.text));
        let matches = if exact { path.text == request } else { asked.starts_with(&parts) };
        let rank = (parts.len(), exact);
        if matches && best.is_none_or(|(known, _)| rank > known) {
            best = Some((rank, &path.backend));
        }
    }
    best.map(|(_, backend)| backend)
}

fn backend() -> impl Strategy<Value = Backend> {
    let known = [
        ("app", json!({"number": 80}), 80),
        ("app", json!({"name": "web"}), 80),
        ("app", json!({"number": 8080}), 8080),
        ("app", json!({"name": "other"}), 8080),
        ("api", json!({"number": 9000}), 9000),
        ("api", json!({"name": "http"}), 9000),
    ];
    select(known.to_vec()).prop_map(|(service, port, number)| Backend { service, port, number })
}

fn path() -> impl Strategy<Value = Path> {
    let element = select(vec!["a", "ab", "api", "apiary", "v1", "a.b", "x+y", "(", "[z]", "$", "%20"]);
    let text = (prop::collection::vec(element, 0..4), any::<bool>()).prop_map(|(elements, slash)| {
        let path = format!("/{}", elements.join("/"));
        if slash && path.len() > 1 { path + "/" } else { path }
    });
    let kind = select(vec!["Exact", "Prefix", "Prefix", "ImplementationSpecific"]);
    (kind, text, backend()).prop_map(|(kind, text, backend)| Path { kind, text, backend })
}

fn wish() -> impl Strategy<Value = Wish> {
    let rule = (select(HOSTS.to_vec()), prop::collection::vec(path(), 0..5));
    let others = prop::sample::subsequence(
        vec![
            ("backend-scheme", "https"),
            ("sticky-session", "true"),
            ("headers", "X-A: 1"),
            ("tls-server-name", "in.example.org"),
            ("no-such-annotation", "1"),
        ],
        0..3,
    );
    let often_off = || prop::bool::weighted(0.1);
    let switches = (often_off(), often_off(), often_off(), often_off(), prop::bool::weighted(0.2));
    (prop::collection::vec(rule, 1..5), prop::option::of(backend()), switches, others).prop_map(
        |(rules, default, (sso, block_access, paused, disabled, moved), others)| Wish {
            rules,
            default,
            sso,
            block_access,
            paused,
            enabled: !disabled,
            moved,
            others,
        },
    )
}

/// A wish that is refused leaves what there was before, which is another test: annotations that name a host are for an Ingress with one host.
fn clear_wish() -> impl Strategy<Value = Wish> {
    wish().prop_map(|wish| Wish { moved: wish.moved && wish.hosts().len() == 1, ..wish })
}

/// One of its Services does not exist.
fn broken_wish() -> impl Strategy<Value = Wish> {
    (wish(), any::<prop::sample::Index>()).prop_map(|(mut wish, which)| {
        let absent = || Backend { service: ABSENT, port: json!({"number": 80}), number: 80 };
        let paths: Vec<&mut Path> = wish.rules.iter_mut().flat_map(|(_, paths)| paths).collect();
        match paths.len() {
            0 => wish.default = Some(absent()),
            count => paths.into_iter().nth(which.index(count)).into_iter().for_each(|path| path.backend = absent()),
        }
        wish
    })
}

fn check(quiet: &Quiet, wish: &Wish, requests: &[String]) -> Result<(), TestCaseError> {
    let state = quiet.server.state();
    for host in HOSTS.into_iter().chain([MOVED]).map(|host| host.replace('*', "any")) {
        for request in requests {
            // A wildcard is refused, and nothing answers for a host below it.
            let expected = wish.visit(&host, request, &quiet.bed.namespace);
            prop_assert_eq!(state.visit(&host, request), expected, "{}{} of {:#?}", host, request, wish);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_url_of_a_random_ingress_has_the_answer_of_kubernetes(
        first in prop_oneof![3 => wish().boxed(), 1 => broken_wish().boxed()],
        second in clear_wish(),
        more in prop::collection::vec(path(), 1..4),
    ) {
        let paths = || [&first, &second].into_iter().flat_map(|wish| &wish.rules).flat_map(|(_, paths)| paths).chain(&more);
        let requests: Vec<String> =
            paths().flat_map(|path| [path.text.clone(), path.text.clone() + "x", path.text.clone() + "/x"]).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let quiet = Quiet::new().await;
            let mut annotations = first.annotations();
            annotations.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            quiet.bed.create("app", &annotations, first.spec()).await;
            seconds(30).await;
            check(&quiet, &first, &requests)?;
            quiet.bed.patch("app", json!({"metadata": {"annotations": second.annotations()}, "spec": second.spec()})).await;
            seconds(120).await;
            check(&quiet, &second, &requests)
        })?;
    }
}
