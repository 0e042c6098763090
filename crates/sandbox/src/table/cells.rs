//! The columns of built-in kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::Kind;

/// (title, type, priority)
type Title = (&'static str, &'static str, i64);

const NAME: Title = ("Name", "string", 0);
const AGE: Title = ("Age", "string", 0);
const CREATED: Title = ("Created At", "date", 0);

/// The columns of a built-in kind.
pub(crate) fn builtin_columns(kind: &Kind) -> &'static [Title] {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => &[NAME, ("Status", "string", 0), AGE],
        ("", "ConfigMap") => &[NAME, ("Data", "string", 0), AGE],
        ("", "Secret") => &[NAME, ("Type", "string", 0), ("Data", "string", 0), AGE],
        ("", "Service") => &[
            NAME,
            ("Type", "string", 0),
            ("Cluster-IP", "string", 0),
            ("External-IP", "string", 0),
            ("Port(s)", "string", 0),
            AGE,
            ("Selector", "string", 1),
        ],
        (_, "Event") => &[
            ("Last Seen", "string", 0),
            ("Type", "string", 0),
            ("Reason", "string", 0),
            ("Object", "string", 0),
            ("Subobject", "string", 1),
            ("Source", "string", 1),
            ("Message", "string", 0),
            ("First Seen", "string", 1),
            ("Count", "string", 1),
            ("Name", "string", 1),
        ],
        ("coordination.k8s.io", "Lease") => &[NAME, ("Holder", "string", 0), AGE],
        ("networking.k8s.io", "Ingress") => &[
            NAME,
            ("Class", "string", 0),
            ("Hosts", "string", 0),
            ("Address", "string", 0),
            ("Ports", "string", 0),
            AGE,
        ],
        ("apiextensions.k8s.io", _) => &[NAME, CREATED],
        _ => &[NAME, AGE],
    }
}

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

fn joined<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",")
}

/// The cells of an object, as many as its kind has columns.
pub(crate) fn builtin(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = json!(text(object, "/metadata/name"));
    let age = age(object, now);
    let count = |fields: &[&str]| -> usize {
        fields.iter().map(|field| object[*field].as_object().map_or(0, serde_json::Map::len)).sum()
    };
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => vec![name, json!(text(object, "/status/phase")), age],
        ("", "ConfigMap") => vec![name, json!(count(&["data", "binaryData"])), age],
        ("", "Secret") => vec![name, json!(text(object, "/type")), json!(count(&["data"])), age],
        ("", "Service") => service(object, name, age),
        (_, "Event") => event(object, now),
        ("coordination.k8s.io", "Lease") => vec![name, json!(text(object, "/spec/holderIdentity")), age],
        ("networking.k8s.io", "Ingress") => ingress(object, name, age),
        ("apiextensions.k8s.io", _) => {
            vec![name, json!(text(object, "/metadata/creationTimestamp"))]
        }
        _ => vec![name, age],
    }
}

fn labels(map: &Value) -> String {
    let pairs: Vec<String> =
        map.as_object().into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",") }
}

fn service(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let kind = text(object, "/spec/type");
    let balanced = joined(list(object, "/status/loadBalancer/ingress").map(|i| match text(i, "/ip") {
        "" => text(i, "/hostname"),
        ip => ip,
    }));
    let fixed = joined(list(object, "/spec/externalIPs").filter_map(Value::as_str));
    let external = match kind {
        "ExternalName" => text(object, "/spec/externalName").to_owned(),
        "LoadBalancer" => match (balanced.as_str(), fixed.as_str()) {
            ("", "") => "<pending>".to_owned(),
            (a, "") | ("", a) => a.to_owned(),
            (a, b) => format!("{a},{b}"),
        },
        _ => fixed,
    };
    let ports: Vec<String> = list(object, "/spec/ports")
        .map(|port| match port.get("nodePort").and_then(Value::as_i64) {
            Some(node) if node > 0 => format!("{}:{node}/{}", port["port"], text(port, "/protocol")),
            _ => format!("{}/{}", port["port"], text(port, "/protocol")),
        })
        .collect();
    vec![
        name,
        json!(kind),
        or_none(text(object, "/spec/clusterIP")),
        or_none(&external),
        or_none(&ports.join(",")),
        age,
        json!(labels(&object["spec"]["selector"])),
    ]
}

fn ingress(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let class = match text(object, "/spec/ingressClassName") {
        "" => object["metadata"]["annotations"]["kubernetes.io/ingress.class"].as_str().unwrap_or("<none>"),
        class => class,
    };
    let hosts: Vec<&str> =
        list(object, "/spec/rules").map(|rule| text(rule, "/host")).filter(|host| !host.is_empty()).collect();
    let shown = match hosts.len() {
        0 => "*".to_owned(),
        1..=3 => hosts.join(","),
        n => format!("{} + {} more...", hosts[..3].join(","), n - 3),
    };
    let addresses = joined(list(object, "/status/loadBalancer/ingress").map(|i| match text(i, "/ip") {
        "" => text(i, "/hostname"),
        ip => ip,
    }));
    let ports = if list(object, "/spec/tls").next().is_some() { "80, 443" } else { "80" };
    vec![name, json!(class), json!(shown), json!(addresses), json!(ports), age]
}

fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let pick = |names: &[&str]| {
        names.iter().map(|name| text(object, name)).find(|value| !value.is_empty()).unwrap_or_default()
    };
    let since = |time: &str| match time.parse::<Timestamp>() {
        Ok(then) => human_duration(now, then),
        Err(_) => "<unknown>".to_owned(),
    };
    let first = pick(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let last = match pick(&["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp"]) {
        "" => first,
        last => last,
    };
    let about =
        ["/involvedObject", "/regarding"].iter().find_map(|pointer| object.pointer(pointer)).unwrap_or(&Value::Null);
    let target = match text(about, "/kind") {
        "" => text(about, "/name").to_owned(),
        kind => format!("{}/{}", kind.to_lowercase(), text(about, "/name")),
    };
    let source = match pick(&[
        "/source/component",
        "/deprecatedSource/component",
        "/reportingComponent",
        "/reportingController",
    ]) {
        "" => String::new(),
        component => match pick(&["/source/host", "/reportingInstance"]) {
            "" => component.to_owned(),
            host => format!("{component}, {host}"),
        },
    };
    let count = ["/series/count", "/count", "/deprecatedCount"]
        .iter()
        .find_map(|pointer| object.pointer(pointer).and_then(Value::as_i64))
        .unwrap_or(1);
    vec![
        json!(since(last)),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(target),
        json!(text(about, "/fieldPath")),
        json!(source),
        json!(pick(&["/message", "/note"]).trim()),
        json!(since(first)),
        json!(count),
        json!(text(object, "/metadata/name")),
    ]
}

/// The age of an object.
pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    match text(object, "/metadata/creationTimestamp").parse::<Timestamp>() {
        Ok(then) => json!(human_duration(now, then)),
        Err(_) => json!("<unknown>"),
    }
}

/// A duration in two digits or so, as kubectl prints it.
pub(crate) fn human_duration(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.as_second() - then.as_second();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    let two = |big: i64, small: i64, a: &str, b: &str| {
        if small == 0 { format!("{big}{a}") } else { format!("{big}{a}{small}{b}") }
    };
    match () {
        () if seconds < -1 => "<invalid>".into(),
        () if seconds < 0 => "0s".into(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, seconds % 60, "m", "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, minutes % 60, "h", "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => two(days, hours % 24, "d", "h"),
        () if hours < 24 * 365 * 2 => format!("{days}d"),
        () if hours < 24 * 365 * 8 => two(days / 365, days % 365, "y", "d"),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_kubectl_prints_them() {
        let cases = [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3600, "60m"),
            (4 * 3600, "4h"),
            (30 * 3600, "30h"),
            (72 * 3600, "3d"),
            (73 * 3600, "3d1h"),
            (-5, "<invalid>"),
        ];
        for (seconds, shown) in cases {
            let now = Timestamp::from_second(1_000_000_000 + seconds).unwrap();
            assert_eq!(human_duration(now, Timestamp::from_second(1_000_000_000).unwrap()), shown);
        }
    }
}
