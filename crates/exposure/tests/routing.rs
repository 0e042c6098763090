//! The rules for a proxy answer as Kubernetes would: random Ingresses, evaluated by the edge of the sandbox.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use signpost_exposure::{Matching, PathRule, PathType, Route, kubernetes_answer, routes};
use signpost_sandbox::edge::{Access, Answer, EdgeTarget, Exposure, PathMatch, answer};

fn target(route: &Route<u8>) -> EdgeTarget<u8> {
    EdgeTarget {
        name: route.backend,
        enabled: true,
        online: true,
        usable: true,
        path: route.path.as_ref().map(|(_, path)| path.clone()),
        matching: route.path.as_ref().map(|(matching, _)| match matching {
            Matching::Exact => PathMatch::Exact,
            Matching::Regex => PathMatch::Regex,
        }),
        rewrite: None,
        priority: route.priority,
    }
}

/// The backend of a request by the words of the Kubernetes documentation. It shares nothing with the code under test: "Exact: matches the URL
/// path exactly and with case sensitivity. Prefix: matches based on a URL path prefix split by /. Matching is done on a path element by element
/// basis. Precedence will be given first to the longest matching path. If two paths are still equally matched, precedence will be given to
/// paths with an exact path type over prefix path type." A trailing slash is ignored, as the table of examples has it.
fn documented_answer<'a>(rules: &'a [PathRule<u8>], default: Option<&'a u8>, request: &str) -> Option<&'a u8> {
    let elements = |path: &str| {
        let mut elements: Vec<String> = path.split('/').map(str::to_owned).collect();
        while elements.last().is_some_and(String::is_empty) {
            elements.pop();
        }
        elements
    };
    let asked: Vec<String> = request.split('/').map(str::to_owned).collect();
    let mut best: Option<((usize, bool), &u8)> = None;
    for rule in rules {
        let (exact, parts) = (rule.kind == PathType::Exact, elements(&rule.path));
        let matches = if exact { rule.path == request } else { asked.starts_with(&parts) };
        let rank = (parts.len(), exact);
        if matches && best.is_none_or(|(known, _)| rank > known) {
            best = Some((rank, &rule.backend));
        }
    }
    best.map(|(_, backend)| backend).or(default)
}

fn path() -> impl Strategy<Value = String> {
    let element =
        prop::sample::select(vec!["a", "ab", "api", "apiary", "v1", ".", "a.b", "x+y", "(", "[z]", "$", "%20", "ü"]);
    (prop::collection::vec(element, 0..4), any::<bool>()).prop_map(|(elements, slash)| {
        let path = format!("/{}", elements.join("/"));
        if slash && path.len() > 1 { path + "/" } else { path }
    })
}

fn rule() -> impl Strategy<Value = PathRule<u8>> {
    let kind = prop::sample::select(vec![PathType::Exact, PathType::Prefix, PathType::ImplementationSpecific]);
    (path(), kind, any::<u8>()).prop_map(|(path, kind, backend)| PathRule { path, kind, backend })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_edge_answers_as_kubernetes_would(
        rules in prop::collection::vec(rule(), 0..8),
        default in prop::option::of(any::<u8>()),
        requests in prop::collection::vec(path(), 1..12),
    ) {
        let made = routes(&rules, default.as_ref());
        let exposure = Exposure {
            host: "app.example.com".to_owned(),
            enabled: true,
            ssl: true,
            access: Access::Open,
            targets: made.routes.iter().map(target).collect(),
        };
        // Every rule's own path, and something right beside it.
        let beside = rules.iter().flat_map(|rule| [rule.path.clone(), rule.path.clone() + "x", rule.path.clone() + "/x"]);
        for request in requests.into_iter().chain(beside.collect::<Vec<_>>()) {
            let expected = match kubernetes_answer(&rules, default.as_ref(), &request) {
                Some(backend) => Answer::Served(vec![*backend]),
                None => Answer::NoRouter,
            };
            let documented = match documented_answer(&rules, default.as_ref(), &request) {
                Some(backend) => Answer::Served(vec![*backend]),
                None => Answer::NoRouter,
            };
            let seen = answer(std::slice::from_ref(&exposure), true, "app.example.com", &request);
            prop_assert_eq!(&seen, &expected, "{} of {:?}", request, made.routes);
            prop_assert_eq!(seen, documented, "{} of {:?}, by the documentation", request, rules);
        }
    }

    #[test]
    fn no_path_reaches_into_another_host(paths in prop::collection::vec("[/`)(|& a-zA-Z.]{0,40}", 1..6)) {
        let rules: Vec<PathRule<u8>> = paths
            .into_iter()
            .map(|path| PathRule { path, kind: PathType::ImplementationSpecific, backend: 1 })
            .chain([PathRule { path: "/a`) || Host(`other.example.com".into(), kind: PathType::Prefix, backend: 1 }])
            .collect();
        let targets = routes(&rules, None).routes.iter().map(target).collect();
        let exposure = Exposure { host: "app.example.com".to_owned(), enabled: true, ssl: true, access: Access::Open, targets };
        prop_assert_eq!(answer(&[exposure], true, "other.example.com", "/"), Answer::NoRouter);
    }
}
