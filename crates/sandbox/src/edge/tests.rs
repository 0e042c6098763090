//! The rules of the edge, one test each. The comment above a test is the fact that it checks, as it was read from the
//! configuration that Pangolin 1.22.0 generated.

use super::*;

fn target(name: &'static str) -> EdgeTarget<&'static str> {
    let (enabled, online, usable) = (true, true, true);
    EdgeTarget { name, enabled, online, usable, path: None, matching: None, rewrite: None, priority: UNSET }
}

fn routed(name: &'static str, path: &str, matching: PathMatch) -> EdgeTarget<&'static str> {
    EdgeTarget { path: Some(path.to_owned()), matching: Some(matching), ..target(name) }
}

fn app(targets: Vec<EdgeTarget<&'static str>>) -> Exposure<&'static str> {
    Exposure { host: "app.example.com".to_owned(), enabled: true, ssl: true, access: Access::Open, targets }
}

fn get(exposures: &[Exposure<&'static str>], path: &str) -> Answer<&'static str> {
    answer(exposures, true, "app.example.com", path)
}

/// "target without path: Host rule, priority 100"; "prefix / exact / regex, priority absent or 100: 113 / 115 / 112 regardless of path length";
/// "path `/` with prefix or exact: priority 1 (unless explicit)".
#[test]
fn default_priorities_depend_on_the_kind_of_match_alone() {
    let targets = vec![
        target("root"),
        routed("a", "/long/path/with/many/parts", PathMatch::Prefix),
        routed("b", "/b", PathMatch::Exact),
        routed("c", "^/c", PathMatch::Regex),
        routed("d", "/", PathMatch::Prefix),
        routed("e", "/", PathMatch::Exact),
        EdgeTarget { priority: 300, ..routed("f", "/", PathMatch::Regex) },
    ];
    let mut seen: Vec<_> = routers(&[app(targets)]).into_iter().map(|r| (r.servers[0], r.priority)).collect();
    seen.sort_unstable();
    assert_eq!(seen, [("a", 113), ("b", 115), ("c", 112), ("d", 1), ("e", 1), ("f", 300), ("root", 100)]);
}

/// "explicit priority: used as is; a path with explicit priority below 100 loses to the plain Host router of the same host".
#[test]
fn a_path_with_a_low_priority_loses_to_the_plain_host() {
    let path = EdgeTarget { priority: 50, ..routed("api", "/api", PathMatch::Prefix) };
    assert_eq!(get(&[app(vec![target("root"), path])], "/api/x"), Answer::Served(vec!["root"]));
}

/// "same path+match+rewrite, two priorities (300, 400): one group; the higher number wins for the group".
#[test]
fn targets_of_one_path_are_one_group_with_the_higher_priority() {
    let one = EdgeTarget { priority: 300, ..routed("one", "/api", PathMatch::Exact) };
    let two = EdgeTarget { priority: 400, ..routed("two", "/api", PathMatch::Exact) };
    let made = routers(&[app(vec![one, two])]);
    assert_eq!((made.len(), made[0].priority), (1, 400));
    assert_eq!(made[0].servers, ["one", "two"]);
}

/// "path without match type, or match type without path: a second plain Host router at 100 beside the root one: ambiguous".
#[test]
fn a_path_without_a_match_type_makes_the_answer_undefined() {
    let half = EdgeTarget { matching: None, ..routed("half", "/api", PathMatch::Exact) };
    assert_eq!(get(&[app(vec![target("root"), half])], "/"), Answer::Undefined);
}

/// "path without leading slash: slash added (not for regex)".
#[test]
fn a_slash_is_added_to_a_path_but_not_to_a_regular_expression() {
    let rules: Vec<_> =
        routers(&[app(vec![routed("p", "api", PathMatch::Prefix), routed("r", "api", PathMatch::Regex)])])
            .into_iter()
            .map(|router| router.rule)
            .collect();
    assert_eq!(
        rules,
        ["Host(`app.example.com`) && PathPrefix(`/api`)", "Host(`app.example.com`) && PathRegexp(`api`)"]
    );
}

/// "backtick in the path: goes unescaped into the rule: a path like ``/a`) || Host(`other`` produced a router that also matches another host".
#[test]
fn a_backtick_in_a_path_reaches_into_another_host() {
    let path = EdgeTarget { priority: 900, ..routed("thief", "/a`) || Host(`other.example.com", PathMatch::Prefix) };
    let other = Exposure { host: "other.example.com".into(), ..app(vec![target("victim")]) };
    assert_eq!(answer(&[app(vec![path]), other], true, "other.example.com", "/"), Answer::Served(vec!["thief"]));
}

/// "prefix is character-wise: `/api` also matches `/apiary`".
#[test]
fn a_prefix_matches_character_by_character() {
    let exposed = [app(vec![routed("api", "/api", PathMatch::Prefix)])];
    assert_eq!(get(&exposed, "/apiary"), Answer::Served(vec!["api"]));
    assert_eq!(get(&exposed, "/ap"), Answer::NoRouter);
}

/// "health `unhealthy`: target left out, whether or not hcEnabled is still true"; "method null, ip \"\": router with an empty server list".
#[test]
fn an_unusable_target_is_left_out_and_its_router_stays() {
    let down = EdgeTarget { usable: false, ..target("down") };
    assert_eq!(get(&[app(vec![target("up"), down.clone()])], "/"), Answer::Served(vec!["up"]));
    assert_eq!(get(&[app(vec![down])], "/"), Answer::NoServer);
}

/// "local (online) and newt (offline) in one group: only the online one".
#[test]
fn offline_sites_are_dropped_while_another_one_is_online() {
    let offline = EdgeTarget { online: false, ..target("offline") };
    assert_eq!(get(&[app(vec![target("online"), offline.clone()])], "/"), Answer::Served(vec!["online"]));
    assert_eq!(get(&[app(vec![offline])], "/"), Answer::Served(vec!["offline"]));
}

/// "two resources with one host: two routers, same rule, same priority: undefined winner".
#[test]
fn two_resources_with_one_host_have_an_undefined_winner() {
    assert_eq!(get(&[app(vec![target("a")]), app(vec![target("b")])], "/"), Answer::Undefined);
}

/// "disabled resource, no targets, all targets of a group disabled: no router at all".
#[test]
fn nothing_enabled_means_no_router() {
    let disabled = Exposure { enabled: false, ..app(vec![target("a")]) };
    let off = EdgeTarget { enabled: false, ..target("b") };
    for exposed in [disabled, app(vec![]), app(vec![off])] {
        assert_eq!(get(&[exposed], "/"), Answer::NoRouter);
    }
}

/// "ssl true: websecure router + redirect router; ssl false: web router only".
#[test]
fn tls_is_served_and_plain_http_redirected_or_the_reverse() {
    let ask = |ssl, https| answer(&[Exposure { ssl, ..app(vec![target("a")]) }], https, "APP.example.com", "/");
    assert_eq!((ask(true, true), ask(true, false)), (Answer::Served(vec!["a"]), Answer::Redirect));
    assert_eq!((ask(false, true), ask(false, false)), (Answer::NoRouter, Answer::Served(vec!["a"])));
}

/// "regex that does not compile: emitted as is": the proxy leaves such a router out.
#[test]
fn a_broken_expression_matches_nothing_and_hurts_nobody() {
    let exposed = [app(vec![target("root"), routed("broken", "^/(", PathMatch::Regex)])];
    assert_eq!(routers(&exposed).len(), 2);
    assert_eq!(get(&exposed, "/("), Answer::Served(vec!["root"]));
}

/// A wildcard router matches one label: its rule is a regular expression for the host.
#[test]
fn a_wildcard_host_matches_exactly_one_label() {
    let any = Exposure { host: "*.example.com".into(), ..app(vec![target("any")]) };
    let ask = |host| answer(std::slice::from_ref(&any), true, host, "/");
    assert_eq!(ask("x.example.com"), Answer::Served(vec!["any"]));
    for host in ["example.com", "a.b.example.com", "xexample.com"] {
        assert_eq!(ask(host), Answer::NoRouter, "{host}");
    }
}

/// "A resource created through the API is SSO-protected by default. Public exposure needs a second call." The login and the block come before any
/// target, and after the redirect to HTTPS.
#[test]
fn access_is_judged_before_a_target_answers_and_after_the_redirect() {
    let with = |access| [Exposure { access, ..app(vec![target("a")]) }];
    let visit = |access, https| visit(&with(access), https, "app.example.com", "/");
    assert_eq!(visit(Access::Open, true), Visit::Open(Answer::Served(vec!["a"])));
    assert_eq!(visit(Access::Login, true), Visit::Login);
    assert_eq!(visit(Access::Blocked, true), Visit::Blocked);
    for access in [Access::Open, Access::Login, Access::Blocked] {
        assert_eq!(visit(access, false), Visit::Open(Answer::Redirect));
        assert_eq!(
            answer(&with(access), true, "app.example.com", "/"),
            Answer::Served(vec!["a"]),
            "the route is the same"
        );
    }
    let elsewhere = super::visit(&with(Access::Blocked), true, "other.example.com", "/");
    assert_eq!(elsewhere, Visit::Open(Answer::NoRouter));
}
