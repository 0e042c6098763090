//! Every name that the system makes: hosts, names of generated objects, values of labels.
//!
//! In: fields as users wrote them. Out: names that DNS and Kubernetes accept. A name that is too long keeps its ends and a digest of the
//! whole, so that two long names never become one.

use sha2::{Digest, Sha256};
use signpost_apis::router::{ClusterIdentitySpec, ServiceRouteSpec};
use signpost_dns::{Fqdn, NameError};

/// The longest name of an object.
const OBJECT_NAME: usize = 253;
/// The longest value of a label.
const LABEL_VALUE: usize = 63;
/// The longest first label of a name.
const DNS_LABEL: usize = 63;

/// The name of a field of a route that is needed and empty.
pub(crate) fn empty_field(route: &ServiceRouteSpec) -> Option<&'static str> {
    let ServiceRouteSpec { service_name, gateway_name, gateway_namespace: _, environment, application } = route;
    let fields = [
        ("serviceName", service_name),
        ("gatewayName", gateway_name),
        ("environment", environment),
        ("application", application),
    ];
    fields.into_iter().find(|(_, value)| value.trim().is_empty()).map(|(field, _)| field)
}

/// `{serviceName}-ns-{environmentLetter}-{environment}-{application}.{domain}`: the name that clients use.
pub(crate) fn route_host(identity: &ClusterIdentitySpec, route: &ServiceRouteSpec) -> Result<Fqdn, NameError> {
    let ClusterIdentitySpec { environment_letter, domain, .. } = identity;
    let ServiceRouteSpec { service_name, environment, application, .. } = route;
    Fqdn::parse_hostname(&format!("{service_name}-ns-{environment_letter}-{environment}-{application}.{domain}"))
}

/// `{cluster}-{region}-{targetPostfix}.{domain}`: the name of a gateway.
pub(crate) fn target_host(identity: &ClusterIdentitySpec, postfix: &str) -> Result<Fqdn, NameError> {
    let ClusterIdentitySpec { cluster, region, domain, .. } = identity;
    let text = format!("{cluster}-{region}-{postfix}.{domain}");
    let host = Fqdn::parse(&text)?;
    // Name servers and clients accept an underscore, and clusters are named so. Nothing else that is not a host name is published.
    Fqdn::parse_hostname(&text.replace('_', "x")).map(|_| host)
}

/// By how many characters the ownership record of a record of this type would pass the limit of a label, if it would. Its first label is the
/// prefix, the type, a hyphen and the first label of the name. Without a length there is no limit.
pub(crate) fn txt_excess(host: &Fqdn, rtype: &str, prefix_length: Option<usize>) -> Option<usize> {
    let first = host.labels().next().map_or(0, str::len);
    (prefix_length? + rtype.len() + 1 + first).checked_sub(DNS_LABEL).filter(|excess| *excess > 0)
}

/// The name of a route's DNSEndpoint: `{route}-{controller}`.
pub(crate) fn route_child(route: &str, controller: &str) -> String {
    fit(&format!("{route}-{controller}"), OBJECT_NAME)
}

/// The name of a gateway's DNSEndpoint: `gateway-controller-{controller}-{postfix}-{externalDNSController}`.
pub(crate) fn target_child(controller: &str, postfix: &str, dns: &str) -> String {
    fit(&object_name(&format!("gateway-controller-{controller}-{postfix}-{dns}")), OBJECT_NAME)
}

/// Another name for an object whose own name is taken by another one of ours. `parts` tell the two apart.
pub(crate) fn instead_of(name: &str, parts: &[&str]) -> String {
    let digest = digest(&parts.join("\0"));
    let keep = OBJECT_NAME - digest.len() - 1;
    let kept = cut(name, keep).trim_end_matches(['-', '.']);
    format!("{kept}-{digest}")
}

/// The text as the value of a label: itself where that is one.
pub(crate) fn label_value(text: &str) -> String {
    if is_label_value(text) {
        return text.to_owned();
    }
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let clean: String = text.chars().map(legal).collect();
    let digest = digest(text);
    let keep = LABEL_VALUE - digest.len() - 1;
    let kept = cut(&clean, keep).trim_matches(['-', '_', '.']);
    if kept.is_empty() { digest } else { format!("{kept}-{digest}") }
}

/// Whether the text is the value of a label.
pub(crate) fn is_label_value(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    let bytes = text.as_bytes();
    bytes.len() <= LABEL_VALUE && text.bytes().all(legal) && ends(bytes.first().copied()) && ends(bytes.last().copied())
}

/// Whether the text is one DNS label, as Istio requires it of the name of a Gateway.
pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= DNS_LABEL && !text.contains('.') && is_object_name(text)
}

/// Whether the text can be a part of the name of an object.
pub(crate) fn is_object_name(text: &str) -> bool {
    let word = |part: &str| {
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !part.is_empty() && part.bytes().all(legal) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= OBJECT_NAME && text.split('.').all(word)
}

/// A text whose letters an object's name cannot have gets a digest in their place.
fn object_name(text: &str) -> String {
    if text.split('.').all(|part| is_object_name(part) || part.len() > OBJECT_NAME) {
        return text.to_owned();
    }
    let legal = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' { c } else { '-' };
    let clean: String = text.to_ascii_lowercase().chars().map(legal).collect();
    format!("{}-{}", clean.trim_matches('-'), digest(text))
}

/// The text, or its ends around a digest of the whole.
fn fit(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let digest = digest(text);
    let ends = limit - digest.len() - 2;
    let (head, tail) = (ends - ends / 2, ends / 2);
    let head = cut(text, head).trim_end_matches(['-', '.']);
    let mut from = text.len() - tail;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let tail = text[from..].trim_start_matches(['-', '.']);
    format!("{head}-{digest}-{tail}")
}

fn cut(text: &str, at_most: usize) -> &str {
    let mut end = at_most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let number = digest.iter().take(5).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("{number:010x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> ClusterIdentitySpec {
        ClusterIdentitySpec {
            region: "weu".into(),
            cluster: "aks01".into(),
            domain: "example.com".into(),
            environment_letter: "p".into(),
            adopts_regions: Vec::new(),
        }
    }

    fn route(service: &str, environment: &str, application: &str) -> ServiceRouteSpec {
        ServiceRouteSpec {
            service_name: service.into(),
            gateway_name: "gw".into(),
            gateway_namespace: None,
            environment: environment.into(),
            application: application.into(),
        }
    }

    #[test]
    fn hosts_follow_the_patterns_of_the_examples() {
        let host = |route: &ServiceRouteSpec| route_host(&identity(), route).map(|host| host.undotted().to_owned());
        assert_eq!(host(&route("api", "prod", "myapp")).unwrap(), "api-ns-p-prod-myapp.example.com");
        assert_eq!(target_host(&identity(), "internal").unwrap().undotted(), "aks01-weu-internal.example.com");
        assert_eq!(host(&route("API", "Prod", "MyApp")).unwrap(), "api-ns-p-prod-myapp.example.com", "lower case");
        let target =
            |cluster: &str| target_host(&ClusterIdentitySpec { cluster: cluster.into(), ..identity() }, "internal");
        assert_eq!(target("aks_01").unwrap().undotted(), "aks_01-weu-internal.example.com");
        for cluster in ["*.x", "a/b", "-a", "a b", "a..b"] {
            assert!(target(cluster).is_err(), "{cluster}");
        }
    }

    #[test]
    fn a_host_that_is_not_one_is_an_error() {
        assert_eq!(empty_field(&route("api", " ", "x")), Some("environment"));
        assert_eq!(empty_field(&route("api", "dev", "x")), None);
        for (service, application) in [("a_b", "x"), ("a b", "x"), ("*", "x"), ("a", "x-"), ("a..b", "x")] {
            assert!(route_host(&identity(), &route(service, "dev", application)).is_err(), "{service} {application}");
        }
        let fits = "a".repeat(63 - "-ns-p-dev-x".len());
        assert!(route_host(&identity(), &route(&fits, "dev", "x")).is_ok());
        assert!(route_host(&identity(), &route(&format!("{fits}a"), "dev", "x")).is_err(), "64 characters in a label");
        let long = ClusterIdentitySpec { domain: format!("{}com", "abcdefghi.".repeat(24)), ..identity() };
        assert!(route_host(&long, &route("api", "dev", "x")).is_err(), "more than 253 characters");
    }

    #[test]
    fn the_ownership_record_has_a_limit_of_its_own() {
        let host = |length: usize| Fqdn::parse(&format!("{}.example.com", "a".repeat(length))).unwrap();
        assert_eq!(txt_excess(&host(57), "CNAME", Some(0)), None);
        assert_eq!(txt_excess(&host(58), "CNAME", Some(0)), Some(1));
        assert_eq!(txt_excess(&host(45), "CNAME", Some(12)), None, "the prefix of the documentation leaves 45");
        assert_eq!(txt_excess(&host(46), "CNAME", Some(12)), Some(1));
        assert_eq!(txt_excess(&host(47), "AAAA", Some(12)), Some(1));
        assert_eq!(txt_excess(&host(47), "A", Some(12)), None);
        assert_eq!(txt_excess(&host(63), "CNAME", None), None, "a prefix that ends in a dot, or no registry");
    }

    #[test]
    fn long_names_keep_their_ends_and_stay_apart() {
        assert_eq!(route_child("api-route", "external-dns-weu"), "api-route-external-dns-weu");
        assert_eq!(
            target_child("aks-istio-ingressgateway-internal", "internal", "external-dns-weu"),
            "gateway-controller-aks-istio-ingressgateway-internal-internal-external-dns-weu"
        );
        let (one, two) = (format!("{}a", "r".repeat(250)), format!("{}b", "r".repeat(250)));
        let (one, two) = (route_child(&one, "external-dns-weu"), route_child(&two, "external-dns-weu"));
        assert!(one.len() <= 253 && one.ends_with("-external-dns-weu") && one != two, "{one}");
        assert!(is_object_name(&one) && is_object_name(&target_child("Istio_Ingress", "x", "dns")));
        assert_ne!(target_child("Istio_Ingress", "x", "dns"), target_child("istio-ingress", "x", "dns"));
    }

    #[test]
    fn a_label_is_its_text_where_that_fits() {
        assert_eq!(label_value("external-dns-weu"), "external-dns-weu");
        let long = label_value(&"r".repeat(64));
        assert!(long.len() == 63 && is_label_value(&long) && long != label_value(&"r".repeat(65)));
        for text in ["a b", "-a", "ü", "a/b", "_"] {
            let value = label_value(text);
            assert!(is_label_value(&value) && !value.is_empty(), "{text}: {value}");
        }
        assert!(is_dns_label("default-gateway") && !is_dns_label("a.b") && !is_dns_label(&"a".repeat(64)));
    }

    #[test]
    fn names_that_collide_have_others_to_go_by() {
        let name = route_child("a-b", "c");
        assert_eq!(name, route_child("a", "b-c"));
        let (one, two) = (instead_of(&name, &["a-b", "c"]), instead_of(&name, &["a", "b-c"]));
        assert!(one != two && one.starts_with("a-b-c-") && is_object_name(&one), "{one} {two}");
        assert!(instead_of(&"x".repeat(253), &["x"]).len() <= 253);
    }
}
