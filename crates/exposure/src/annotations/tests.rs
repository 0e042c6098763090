use super::*;

fn read(pairs: &[(&str, &str)]) -> Annotations {
    let keys: Vec<(String, &str)> = pairs.iter().map(|(name, value)| (format!("{PREFIX}{name}"), *value)).collect();
    parse(keys.iter().map(|(key, value)| (key.as_str(), *value)), None)
}

#[test]
fn nothing_is_the_usual() {
    assert_eq!(read(&[]), Annotations::default());
    let other = parse([("nginx.ingress.kubernetes.io/rewrite-target", "/")], None);
    assert_eq!(other, Annotations::default());
}

#[test]
fn every_annotation_is_read() {
    let all = read(&[
        ("enabled", "True"),
        ("paused", "true"),
        ("tunnel-name", "infra/edge-eu"),
        ("domain-name", "Example.com"),
        ("subdomain", "api.staging"),
        ("sso", "true"),
        ("block-access", "true"),
        ("ssl", "false"),
        ("sticky-session", "true"),
        ("tls-server-name", "tls.test"),
        ("set-host-header", "inner.test"),
        ("headers", "X-A: 1\nX-B: b: c\n"),
        ("backend-scheme", "https"),
        ("healthcheck-enabled", "true"),
        ("healthcheck-path", "/healthz"),
        ("healthcheck-scheme", "https"),
        ("healthcheck-hostname", "h.test"),
        ("healthcheck-port", "8081"),
        ("healthcheck-interval", "30"),
        ("healthcheck-unhealthy-interval", "5"),
        ("healthcheck-timeout", "3"),
        ("healthcheck-method", "head"),
        ("healthcheck-status", "204"),
        ("healthcheck-follow-redirects", "false"),
        ("healthcheck-headers", "{\"X-C\": \"a \\\"b\\\"\", \"X-D\":\"\"}"),
        ("healthcheck-tls-server-name", "t.test"),
    ]);
    assert_eq!(all.problems, []);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = Options {
        enabled: Some(true),
        paused: true,
        tunnel: Some("infra/edge-eu".into()),
        overrides: Overrides {
            domain: Some(Fqdn::parse("example.com").unwrap()),
            subdomain: Some("api.staging".into()),
        },
        sso: true,
        block_access: true,
        ssl: false,
        sticky_session: true,
        tls_server_name: Some("tls.test".into()),
        set_host_header: Some("inner.test".into()),
        headers: vec![pair("X-A", "1"), pair("X-B", "b: c")],
        scheme: Some(BackendScheme::Https),
        check: Some(Check {
            path: Some("/healthz".into()),
            scheme: Some(BackendScheme::Https),
            hostname: Some("h.test".into()),
            port: Some(8081),
            interval: Some(30),
            unhealthy_interval: Some(5),
            timeout: Some(3),
            method: Some("HEAD".into()),
            status: Some(204),
            follow_redirects: Some(false),
            headers: vec![pair("X-C", "a \"b\""), pair("X-D", "")],
            tls_server_name: Some("t.test".into()),
        }),
    };
    assert_eq!(all.options, expected);
}

#[test]
fn every_known_name_is_read_and_no_value_of_nonsense_is_taken() {
    for name in KNOWN {
        let found = read(&[(name, "\u{1}§ nonsense \u{7f}")]);
        assert_eq!(found.problems.len(), 1, "{name}: {found:?}");
        assert!(found.problems[0].refuses(), "{name}: a bad value must not expose anything");
        assert_eq!(found.options, Options::default(), "{name}");
    }
}

#[test]
fn an_unknown_name_is_reported_with_the_nearest_one() {
    for (name, expected) in [
        ("ssso", Some("sso")),
        ("subdomian", Some("subdomain")),
        ("healthcheck_path", Some("healthcheck-path")),
        ("blockaccess", Some("block-access")),
        ("completely-different", None),
        ("", Some("ssl")),
    ] {
        let found = read(&[(name, "true")]);
        let nearest = expected.map(|near| format!("{PREFIX}{near}"));
        if !name.is_empty() {
            assert_eq!(found.problems, [Problem::Unknown { name: format!("{PREFIX}{name}"), nearest }]);
        }
        assert!(!found.problems[0].refuses(), "{name:?}");
    }
    let message = read(&[("ssso", "true")]).problems[0].to_string();
    assert!(message.ends_with("did you mean pangolin.ingress.k8s.io/sso?"), "{message}");
}

#[test]
fn a_misspelt_prefix_is_reported_too() {
    let found = parse([("pangolin.ingres.k8s.io/sso", "true")], None);
    let nearest = Some("pangolin.ingress.k8s.io/sso".to_owned());
    assert_eq!(found.problems, [Problem::Unknown { name: "pangolin.ingres.k8s.io/sso".into(), nearest }]);
}

#[test]
fn names_of_other_controllers_are_reported_or_ignored() {
    let found = read(&[("apply-rules", "true"), ("resource-id", "17")]);
    assert_eq!(found.problems, [Problem::Unsupported(format!("{PREFIX}apply-rules"))]);
}

#[test]
fn a_second_prefix_means_the_same_and_the_first_wins() {
    let keys = [("example.com/sso", "true"), ("pangolin.ingress.k8s.io/ssl", "false"), ("example.com/ssl", "true")];
    let found = parse(keys, Some("example.com"));
    assert_eq!((found.options.sso, found.options.ssl, found.problems), (true, false, vec![]));
}

#[test]
fn the_apex_is_written_with_an_at_sign() {
    assert_eq!(read(&[("subdomain", "@")]).options.overrides.subdomain.as_deref(), Some(""));
    assert!(read(&[("subdomain", "")]).problems[0].refuses());
}

/// The form that corelyr's controller documents, and that Pangolin's API has.
#[test]
fn headers_may_be_a_json_array_of_names_and_values() {
    let text = r#" [{"name":"X-Foo","value":"bar"}, {"value": "a \"b\" \u00fc", "name": "X-Bar"}] "#;
    let expected = [("X-Foo", "bar"), ("X-Bar", "a \"b\" ü")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let found = read(&[("headers", text), ("healthcheck-headers", text), ("healthcheck-enabled", "true")]);
    assert_eq!(found.problems, []);
    assert_eq!(found.options.headers, expected);
    assert_eq!(found.options.check.map(|check| check.headers), Some(expected.to_vec()));
    assert_eq!(read(&[("headers", "[]")]), Annotations::default());
    for value in [
        r#"[{"name":"X-Foo"}]"#,
        r#"[{"name":"X-Foo","value":1}]"#,
        r#"[{"name":"X Foo","value":"a"}]"#,
        r#"[{"name":"X-Foo","value":"a\nX-Evil: b"}]"#,
        r#"[{"name":"X-Foo","value":"a"}"#,
        r#"["X-Foo: a"]"#,
    ] {
        assert!(read(&[("headers", value)]).problems[0].refuses(), "{value}");
    }
}

#[test]
fn headers_that_could_break_a_request_are_refused() {
    for value in
        ["X-A", "X A: 1", ": 1", "{\"X\": 1}", "{\"X\": \"a\"", "{\"X\": \"\\n\"}", "{\"a\":\"b\"} x", "X: a\u{7f}"]
    {
        assert_eq!(read(&[("headers", value)]).problems.len(), 1, "{value:?}");
    }
    assert_eq!(read(&[("headers", "{}")]).options.headers, []);
}

#[test]
fn a_value_that_is_far_too_long_is_not_read() {
    let long = "X-A: ".to_owned() + &"x".repeat(MAX_VALUE);
    assert!(read(&[("headers", &long)]).problems[0].refuses());
}

#[test]
fn headers_that_are_rejected_are_not_quoted() {
    for name in ["headers", "healthcheck-headers"] {
        let problems = read(&[(name, "Authorization Bearer s3cret")]).problems;
        assert_eq!(problems.len(), 1);
        assert!(!problems[0].to_string().contains("s3cret"), "{}", problems[0]);
    }
}

#[test]
fn a_tunnel_is_a_name_or_a_namespace_and_a_name() {
    for (value, fine) in
        [("edge", true), ("infra/edge.eu", true), ("Infra/edge", false), ("infra/", false), ("a/b/c", false)]
    {
        assert_eq!(read(&[("tunnel-name", value)]).problems.is_empty(), fine, "{value}");
    }
}

#[test]
fn a_name_that_is_far_too_long_has_no_nearest_one() {
    let name = "subdomain".repeat(10);
    let problems = read(&[(&name, "x")]).problems;
    assert!(matches!(&problems[..], [Problem::Unknown { nearest: None, .. }]), "{problems:?}");
}

#[test]
fn headers_of_a_json_object_are_names_and_values() {
    let error = serde_json::from_str::<super::Pairs>("1").err().unwrap();
    assert!(error.to_string().contains("expected an object of names and values"), "{error}");
}
