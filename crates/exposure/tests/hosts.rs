//! Host → (domain, subdomain): the tables, and what holds for any text.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use signpost_dns::Fqdn;
use signpost_exposure::{BaseDomain, HostError, HostPolicy, Overrides, Shape, Split, SplitSource, normalise, split};

const ALL: HostPolicy = HostPolicy { localhost: true, wildcards: true, unlisted: true };

fn name(text: &str) -> Fqdn {
    Fqdn::parse(text).unwrap()
}

fn by_list(text: &str, policy: HostPolicy) -> Result<Split, HostError> {
    split(&normalise(text, policy)?, &Overrides::default(), None, policy)
}

/// The table of the request, and that of the public suffix list, in one.
#[test]
fn hosts_are_split_at_their_registrable_domain() {
    for (host, subdomain, domain) in [
        ("app.example.com", "app", "example.com"),
        ("api.staging.example.com", "api.staging", "example.com"),
        ("example.com", "", "example.com"),
        ("www.example.co.uk", "www", "example.co.uk"),
        ("a.b.c.example.co.uk", "a.b.c", "example.co.uk"),
        ("user.github.io", "", "user.github.io"),
        ("app.user.github.io", "app", "user.github.io"),
        ("app.home.duckdns.org", "app", "home.duckdns.org"),
        ("10.0.0.1.nip.io", "10.0.0.1", "nip.io"),
        ("foo.bar.ck", "", "foo.bar.ck"),
        ("www.ck", "", "www.ck"),
        ("a.b.kawasaki.jp", "", "a.b.kawasaki.jp"),
        ("x.a.b.kawasaki.jp", "x", "a.b.kawasaki.jp"),
        ("city.kawasaki.jp", "", "city.kawasaki.jp"),
        ("app.home.arpa", "", "app.home.arpa"),
        ("example.com.", "", "example.com"),
        ("APP.Example.COM", "app", "example.com"),
        ("App.Example.Co.UK", "app", "example.co.uk"),
        ("www.münchen.de", "www", "xn--mnchen-3ya.de"),
        ("www.faß.de", "www", "xn--fa-hia.de"),
        ("ＡＰＰ.example.com", "app", "example.com"),
        ("www.例子.公司.cn", "www", "xn--fsqu00a.xn--55qx5d.cn"),
        ("  app.example.com ", "app", "example.com"),
    ] {
        let split = by_list(host, HostPolicy::default()).unwrap_or_else(|error| panic!("{host}: {error}"));
        assert_eq!((split.subdomain.as_str(), split.domain.undotted()), (subdomain, domain), "{host}");
        assert_eq!(split.source, SplitSource::PublicSuffix);
    }
}

#[test]
fn what_is_not_a_public_host_is_refused_with_its_reason() {
    type Expected = fn(&HostError) -> bool;
    let cases: &[(&str, Expected)] = &[
        ("", |e| matches!(e, HostError::Empty)),
        ("*.example.com", |e| matches!(e, HostError::Wildcard(_))),
        ("a.*.example.com", |e| matches!(e, HostError::Wildcard(_))),
        ("*", |e| matches!(e, HostError::Wildcard(_))),
        ("192.168.1.1", |e| matches!(e, HostError::Address(_))),
        ("1.2.3.4.5", |e| matches!(e, HostError::Address(_))),
        ("192.168.1.1.", |e| matches!(e, HostError::Address(_))),
        ("2001:db8::1", |e| matches!(e, HostError::Address(_))),
        ("[::1]", |e| matches!(e, HostError::Address(_))),
        ("localhost", |e| matches!(e, HostError::Localhost(_))),
        ("app.localhost", |e| matches!(e, HostError::Localhost(_))),
        ("localhost.localdomain", |e| matches!(e, HostError::Localhost(_))),
        ("myhost", |e| matches!(e, HostError::SingleLabel(_))),
        ("co.uk", |e| matches!(e, HostError::PublicSuffix(_))),
        ("github.io", |e| matches!(e, HostError::PublicSuffix(_))),
        ("com", |e| matches!(e, HostError::SingleLabel(_))),
        ("grafana.internal", |e| matches!(e, HostError::UnknownSuffix(_))),
        ("app.svc.cluster.local", |e| matches!(e, HostError::UnknownSuffix(_))),
        ("svc.lan", |e| matches!(e, HostError::UnknownSuffix(_))),
        ("my_app.example.com", |e| matches!(e, HostError::Name(_))),
        ("-bad.example.com", |e| matches!(e, HostError::Name(_))),
        ("a..example.com", |e| matches!(e, HostError::Name(_))),
        ("app.example.com:8080", |e| matches!(e, HostError::NotAName { character: ':', .. })),
        ("https://app.example.com", |e| matches!(e, HostError::NotAName { .. })),
        ("a b.example.com", |e| matches!(e, HostError::NotAName { character: ' ', .. })),
    ];
    for (host, expected) in cases {
        let error = by_list(host, HostPolicy::default()).expect_err(host);
        assert!(expected(&error), "{host}: {error:?}");
    }
    let label = "x".repeat(64);
    assert!(matches!(by_list(&format!("{label}.example.com"), ALL), Err(HostError::Name(_))));
    assert!(matches!(by_list(&format!("{}example.com", "x.".repeat(130)), ALL), Err(HostError::Name(_))));
}

#[test]
fn what_is_switched_on_is_accepted() {
    assert_eq!(by_list("app.localhost", ALL).unwrap().domain, name("app.localhost"));
    assert_eq!(by_list("grafana.internal", ALL).unwrap().domain, name("grafana.internal"));
    let wildcard = by_list("*.apps.example.com", ALL).unwrap();
    assert_eq!((wildcard.subdomain.as_str(), wildcard.domain.undotted()), ("*.apps", "example.com"));
    assert!(matches!(by_list("*.co.uk", ALL), Err(HostError::PublicSuffix(_))), "every name below a public suffix");
}

fn domain(text: &str, shape: Shape, verified: bool) -> BaseDomain {
    BaseDomain { name: name(text), id: Some(format!("id-{text}")), shape, verified }
}

fn organization() -> Vec<BaseDomain> {
    vec![
        domain("example.com", Shape::Tree, true),
        domain("k8s.example.com", Shape::Tree, true),
        domain("new.example.com", Shape::Tree, false),
        domain("one.example.com", Shape::One, true),
        domain("corp.internal", Shape::Tree, true),
        domain("later.org", Shape::Tree, false),
    ]
}

#[test]
fn the_longest_verified_domain_of_the_organisation_decides() {
    for (host, subdomain, domain) in [
        ("app.example.com", "app", "example.com"),
        ("example.com", "", "example.com"),
        ("app.k8s.example.com", "app", "k8s.example.com"),
        ("k8s.example.com", "", "k8s.example.com"),
        ("xk8s.example.com", "xk8s", "example.com"),
        ("one.example.com", "", "one.example.com"),
        ("a.one.example.com", "a.one", "example.com"),
        ("a.new.example.com", "a.new", "example.com"),
        ("grafana.corp.internal", "grafana", "corp.internal"),
    ] {
        let host = normalise(host, HostPolicy::default()).unwrap();
        let found = split(&host, &Overrides::default(), Some(&organization()), HostPolicy::default()).unwrap();
        assert_eq!((found.subdomain.as_str(), found.domain.undotted()), (subdomain, domain), "{host}");
        assert_eq!(found.domain_id, Some(format!("id-{domain}")));
    }
    let ask = |host: &str| split(&name(host), &Overrides::default(), Some(&organization()), HostPolicy::default());
    let error = ask("app.other.net").unwrap_err().to_string();
    assert!(error.contains("corp.internal, example.com, k8s.example.com"), "{error}");
    assert!(matches!(ask("a.later.org"), Err(HostError::NotVerified { .. })));
    assert!(matches!(split(&name("a.b"), &Overrides::default(), Some(&[]), ALL), Err(HostError::NoDomain { .. })));
}

#[test]
fn annotations_override_domain_and_subdomain() {
    let overrides = |domain: Option<&str>, subdomain: Option<&str>| Overrides {
        domain: domain.map(name),
        subdomain: subdomain.map(str::to_owned),
    };
    for (host, domain, subdomain, expected) in [
        ("x.test.com", Some("example.com"), Some("app"), ("app", "example.com")),
        ("x.test.com", Some("example.com"), Some(""), ("", "example.com")),
        ("app.test.com", Some("example.com"), None, ("app", "example.com")),
        ("api.staging.example.com", Some("staging.example.com"), None, ("api", "staging.example.com")),
        ("staging.example.com", Some("staging.example.com"), None, ("", "staging.example.com")),
        ("x.example.com", None, Some("app"), ("app", "example.com")),
        ("x.example.com", None, Some(""), ("", "example.com")),
    ] {
        let found = split(&name(host), &overrides(domain, subdomain), None, HostPolicy::default()).unwrap();
        assert_eq!((found.subdomain.as_str(), found.domain.undotted()), expected, "{host}");
    }
    let known = organization();
    let ask = |domain| split(&name("a.example.com"), &overrides(Some(domain), Some("x")), Some(&known), ALL);
    assert_eq!(ask("k8s.example.com").unwrap().domain_id.as_deref(), Some("id-k8s.example.com"));
    assert!(matches!(ask("elsewhere.net"), Err(HostError::NoDomain { .. })), "not a domain of the organisation");
    // Of a domain that is one host, the server would drop the subdomain and serve a host that nobody asked for.
    assert!(matches!(ask("one.example.com"), Err(HostError::NoDomain { .. })), "a name below a domain of one host");
    let one = split(&name("a.example.com"), &overrides(Some("one.example.com"), Some("")), Some(&known), ALL).unwrap();
    assert_eq!((one.host.undotted(), one.subdomain.as_str()), ("one.example.com", ""));
}

proptest! {
    #[test]
    fn no_text_panics_and_a_normal_form_is_its_own(text in any::<String>()) {
        if let Ok(host) = normalise(&text, ALL) {
            prop_assert_eq!(normalise(host.undotted(), ALL), Ok(host.clone()));
            let _ = split(&host, &Overrides::default(), None, ALL);
        }
    }

    #[test]
    fn subdomain_and_domain_joined_are_the_host(
        labels in prop::collection::vec("[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", 1..5),
        suffix in prop::sample::select(vec!["com", "co.uk", "github.io", "internal", "example.com", "kawasaki.jp"]),
        organization in any::<bool>(),
    ) {
        let text = format!("{}.{suffix}", labels.join("."));
        let Ok(host) = normalise(&text, ALL) else { return Ok(()) };
        let domains: Option<Vec<BaseDomain>> = organization.then(|| host.ancestors().skip(1)
            .filter(|base| *base != ".").map(|base| domain(base, Shape::Tree, true)).collect());
        if let Ok(split) = split(&host, &Overrides::default(), domains.as_deref(), ALL) {
            let joined = match split.subdomain.as_str() {
                "" => split.domain.undotted().to_owned(),
                subdomain => format!("{subdomain}.{}", split.domain.undotted()),
            };
            prop_assert_eq!(joined.as_str(), host.undotted());
            prop_assert_eq!(&split.host, &host);
        }
    }
}
