//! The settings of the system, from flags and the environment.

use std::time::Duration;

use signpost_engine::settings::{Setting, Settings};

/// How the system runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterConfig {
    /// `ROUTER_GATEWAY_NAMESPACE`: the namespace of the Gateways of routes that name none.
    pub gateway_namespace: String,
    /// `ROUTER_CONTROLLER_ANNOTATION`: the annotation of a DNSEndpoint that names its controller.
    pub annotation: String,
    /// `ROUTER_TXT_PREFIX_LENGTH`: the length of external-dns's `--txt-prefix`; `None` where names have no limit because of it.
    pub txt_prefix_length: Option<usize>,
    /// `ROUTER_WITHDRAW_AFTER`: how long a deleted object may be absent before something is withdrawn because of that, and how long the former name of a
    /// gateway is kept after the last route has moved. A route waits so long for the new name of a gateway without a load balancer.
    pub withdraw_after: Duration,
    /// `ROUTER_TYPE_CHANGE_AFTER`: how long the name of a gateway has no record when its record type changes, after external-dns has read that.
    pub type_change_after: Duration,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            gateway_namespace: "istio-system".to_owned(),
            annotation: "external-dns.alpha.kubernetes.io/controller".to_owned(),
            txt_prefix_length: Some(0),
            withdraw_after: Duration::from_mins(1),
            type_change_after: Duration::from_mins(2),
        }
    }
}

/// The settings.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting::new("ROUTER_GATEWAY_NAMESPACE", "NAMESPACE", "Namespace of the Gateway of a ServiceRoute that names none")
        .or("istio-system"),
    Setting::new(
        "ROUTER_CONTROLLER_ANNOTATION",
        "KEY",
        "Annotation of a DNSEndpoint with the name of its controller, for external-dns's --annotation-filter",
    )
    .or("external-dns.alpha.kubernetes.io/controller"),
    Setting::new(
        "ROUTER_TXT_PREFIX_LENGTH",
        "NUMBER",
        "Length of external-dns's --txt-prefix, to warn of names whose ownership record would be too long; none where there is no such limit: a prefix that ends in a dot, or no TXT registry",
    )
    .or("0"),
    Setting::new(
        "ROUTER_WITHDRAW_AFTER",
        "TIME",
        "How long the address records of a gateway are kept after its Gateway was deleted, and how long another ClusterIdentity, DNSConfiguration or DNSPolicy waits before it takes the place of a deleted one: 60, 60s, 5m",
    )
    .or("60"),
    Setting::new(
        "ROUTER_TYPE_CHANGE_AFTER",
        "TIME",
        "How long the name of a gateway has no record when its addresses become a host name, or the reverse, after external-dns has read that: two of its intervals, so that a failed deletion is tried again",
    )
    .or("2m"),
];

impl RouterConfig {
    /// Reads the settings; `None` when something is wrong with them, which is then among their problems.
    pub fn read(settings: &mut Settings) -> Option<Self> {
        let before = settings.problems().len();
        let mut config = Self::default();
        if let Some(namespace) = settings.parse("ROUTER_GATEWAY_NAMESPACE", label) {
            config.gateway_namespace = namespace;
        }
        if let Some(key) = settings.parse("ROUTER_CONTROLLER_ANNOTATION", annotation) {
            config.annotation = key;
        }
        let length = |text: &str| match text.parse::<usize>() {
            _ if text == "none" => Ok(None),
            Ok(length) if length < 64 => Ok(Some(length)),
            _ => Err(format!("{text:?} is not a length; write a number from 0 to 63, or none")),
        };
        if let Some(length) = settings.parse("ROUTER_TXT_PREFIX_LENGTH", length) {
            config.txt_prefix_length = length;
        }
        if let Some(after) = settings.duration("ROUTER_WITHDRAW_AFTER") {
            config.withdraw_after = after;
        }
        if let Some(after) = settings.duration("ROUTER_TYPE_CHANGE_AFTER") {
            config.type_change_after = after;
        }
        if settings.given("WATCH_NAMESPACE").is_some() {
            settings.problem(
                "WATCH_NAMESPACE",
                "the router system needs the whole cluster: a host may be owned in any namespace; remove it, or run router in a process of its own",
            );
        }
        (settings.problems().len() == before).then_some(config)
    }
}

fn label(text: &str) -> Result<String, String> {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = text.len() <= 63 && text.bytes().all(legal) && !text.starts_with('-') && !text.ends_with('-');
    if fits { Ok(text.to_owned()) } else { Err(format!("{text:?} is not the name of a namespace")) }
}

fn annotation(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is not the key of an annotation; write one such as example.com/controller");
    let word = |text: &str| {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let ends = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        };
        text.bytes().all(legal) && ends(text)
    };
    let (prefix, name) = text.split_once('/').unwrap_or(("", text));
    let prefix_fits = prefix.is_empty() || (prefix.len() <= 253 && word(prefix));
    let fits = prefix_fits && !text.starts_with('/') && name.len() <= 63 && word(name);
    if fits { Ok(text.to_owned()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_service_router_operator() {
        let config = RouterConfig::read(&mut Settings::default()).unwrap();
        assert_eq!(config, RouterConfig::default());
        assert_eq!(config.gateway_namespace, "istio-system");
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let mut settings = Settings::new([
            ("ROUTER_GATEWAY_NAMESPACE", "Istio"),
            ("ROUTER_CONTROLLER_ANNOTATION", "a b"),
            ("ROUTER_TXT_PREFIX_LENGTH", "64"),
            ("ROUTER_WITHDRAW_AFTER", "soon"),
            ("ROUTER_TYPE_CHANGE_AFTER", "later"),
            ("WATCH_NAMESPACE", "demo"),
        ]);
        assert_eq!(RouterConfig::read(&mut settings), None);
        let named: Vec<&str> = settings.problems().iter().map(|problem| problem.setting.as_str()).collect();
        assert_eq!(
            named,
            [
                "ROUTER_GATEWAY_NAMESPACE",
                "ROUTER_CONTROLLER_ANNOTATION",
                "ROUTER_TXT_PREFIX_LENGTH",
                "ROUTER_WITHDRAW_AFTER",
                "ROUTER_TYPE_CHANGE_AFTER",
                "WATCH_NAMESPACE"
            ]
        );
    }

    #[test]
    fn a_registry_without_a_limit_can_be_set() {
        let mut settings = Settings::new([("ROUTER_TXT_PREFIX_LENGTH", "none"), ("ROUTER_TYPE_CHANGE_AFTER", "90")]);
        let config = RouterConfig::read(&mut settings).unwrap();
        assert_eq!((config.txt_prefix_length, config.type_change_after), (None, Duration::from_secs(90)));
    }

    #[test]
    fn the_annotation_of_external_dns_0_22_can_be_set() {
        let mut settings = Settings::new([("ROUTER_CONTROLLER_ANNOTATION", "external-dns.kubernetes.io/controller")]);
        assert_eq!(RouterConfig::read(&mut settings).unwrap().annotation, "external-dns.kubernetes.io/controller");
    }
}
