//! Validation of built-in kinds, as far as our users meet it: the same checks, the same texts.

use serde_json::Value;

use super::{
    Kind,
    names::{
        config_key, duplicate, forbidden, invalid, label_1123, port_name, qualified_name, required, subdomain,
        unsupported, wildcard_subdomain,
    },
};
use crate::schema::FieldError;

/// Everything wrong with an object beside its metadata; `old` is the stored object of an update.
pub(crate) fn errors(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "ConfigMap") => config_map(new, old),
        ("", "Secret") => secret(new, old),
        ("", "Service") => service(new, old),
        (_, "Event") => event(kind, new, old),
        ("networking.k8s.io", "Ingress") => {
            let mut errors = ingress(new);
            if old.is_none() {
                errors.extend(ingress_class_annotation(new));
            }
            errors.extend(ingress_status(new));
            errors
        }
        ("networking.k8s.io", "IngressClass") => ingress_class(new, old),
        ("coordination.k8s.io", "Lease") => lease(new),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => super::crd::errors(new, old),
        _ => Vec::new(),
    }
}

fn keys<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.get(field).and_then(Value::as_object).into_iter().flatten()
}

fn config_map(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(old) = old
        && old.get("immutable") == Some(&Value::Bool(true))
    {
        if new.get("immutable") != Some(&Value::Bool(true)) {
            errors.push(forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        for field in ["data", "binaryData"] {
            if new.get(field) != old.get(field) {
                errors.push(forbidden(field, "field is immutable when `immutable` is set"));
            }
        }
    }
    let mut size = 0;
    for field in ["data", "binaryData"] {
        for (key, value) in keys(new, field) {
            let path = format!("{field}[{key}]");
            errors.extend(config_key(key).iter().map(|why| invalid(path.clone(), &Value::from(key.as_str()), why)));
            if field == "binaryData" && new.get("data").is_some_and(|data| data.get(key).is_some()) {
                errors.push(invalid(path, &Value::from(key.as_str()), "duplicate of key present in data"));
            }
            size += value.as_str().unwrap_or_default().len();
        }
    }
    if size > 1024 * 1024 {
        errors.push(FieldError {
            reason: "FieldValueTooLong",
            field: "[]".into(),
            message: "Too long: may not be more than 1048576 bytes".into(),
        });
    }
    errors
}

fn secret(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, _) in keys(new, "data") {
        errors
            .extend(config_key(key).iter().map(|why| invalid(format!("data[{key}]"), &Value::from(key.as_str()), why)));
    }
    if let Some(old) = old {
        if new.get("type") != old.get("type") {
            errors.push(invalid("type", new.get("type").unwrap_or(&Value::Null), "field is immutable"));
        }
        if old.get("immutable") == Some(&Value::Bool(true)) && new.get("data") != old.get("data") {
            errors.push(forbidden("data", "field is immutable when `immutable` is set"));
        }
    }
    if new.get("type").and_then(Value::as_str) == Some("kubernetes.io/tls") {
        for key in ["tls.crt", "tls.key"] {
            if new.get("data").and_then(|data| data.get(key)).is_none() {
                errors.push(required(format!("data[{key}]"), ""));
            }
        }
    }
    errors
}

fn service(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new["spec"];
    let kind = spec["type"].as_str().unwrap_or("ClusterIP");
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !types.contains(&kind) {
        errors.push(unsupported("spec.type", kind, &types));
    }
    let ports = spec.get("ports").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if ports.is_empty() && kind != "ExternalName" && spec["clusterIP"] != "None" {
        errors.push(required("spec.ports", ""));
    }
    if kind == "ExternalName" && spec["externalName"].as_str().unwrap_or_default().is_empty() {
        errors.push(required("spec.externalName", ""));
    }
    for (at, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{at}]");
        let name = port["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(required(format!("{path}.name"), ""));
            }
        } else {
            errors.extend(label_1123(name).iter().map(|why| invalid(format!("{path}.name"), &port["name"], why)));
            if ports[..at].iter().any(|other| other["name"] == port["name"]) {
                errors.push(duplicate(format!("{path}.name"), &port["name"]));
            }
        }
        let number = port["port"].as_i64().unwrap_or_default();
        if !(1..=65535).contains(&number) {
            errors.push(invalid(
                format!("{path}.port"),
                &Value::from(number),
                "must be between 1 and 65535, inclusive",
            ));
        }
        let protocol = port["protocol"].as_str().unwrap_or_default();
        if !matches!(protocol, "SCTP" | "TCP" | "UDP") {
            errors.push(unsupported(format!("{path}.protocol"), protocol, &["SCTP", "TCP", "UDP"]));
        }
        match &port["targetPort"] {
            Value::Number(target) if !target.as_i64().is_some_and(|n| (1..=65535).contains(&n)) => {
                errors.push(invalid(
                    format!("{path}.targetPort"),
                    &port["targetPort"],
                    "must be between 1 and 65535, inclusive",
                ));
            }
            Value::String(target) => {
                errors.extend(
                    port_name(target).iter().map(|why| invalid(format!("{path}.targetPort"), &port["targetPort"], why)),
                );
            }
            _ => {}
        }
    }
    if let Some(old) = old {
        let (was, is) = (&old["spec"]["clusterIP"], &spec["clusterIP"]);
        if kind != "ExternalName"
            && old["spec"]["type"] != "ExternalName"
            && was.as_str().is_some_and(|ip| !ip.is_empty())
            && was != is
        {
            let shown = serde_json::json!([is.as_str().unwrap_or_default()]);
            errors.push(invalid("spec.clusterIPs[0]", &shown, "may not change once set"));
        }
    }
    errors
}

fn event(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |field: &str| new.get(field).and_then(Value::as_str).unwrap_or_default();
    let is_new_api = !kind.group.is_empty();
    let about = new.pointer("/involvedObject/namespace").and_then(Value::as_str).unwrap_or_default();
    let namespace = new.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    let cluster_wide = about.is_empty() && matches!(namespace, "default" | "kube-system");
    if about != namespace && !cluster_wide {
        errors.push(invalid("involvedObject.namespace", &Value::from(about), "does not match event.namespace"));
    }
    if new.get("eventTime").is_some_and(|time| !time.is_null()) {
        let controller = if is_new_api { "reportingController" } else { "reportingComponent" };
        if text("reportingComponent").is_empty() {
            errors.push(required(controller, ""));
        }
        let name = Value::from(text("reportingComponent"));
        errors.extend(qualified_name(text("reportingComponent")).iter().map(|why| invalid(controller, &name, why)));
        for field in ["reportingInstance", "action", "reason"] {
            if text(field).is_empty() {
                errors.push(required(field, ""));
            } else if text(field).len() > 128 {
                errors.push(invalid(field, &Value::from(""), "can have at most 128 characters"));
            }
        }
        if text("message").len() > 1024 {
            errors.push(invalid("message", &Value::from(""), "can have at most 1024 characters"));
        }
    }
    if !is_new_api {
        return errors;
    }
    if let Some(old) = old {
        let fixed = [
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "type",
            "eventTime",
            "action",
            "related",
            "reportingComponent",
            "reportingInstance",
        ];
        for field in fixed.into_iter().filter(|field| new.get(*field) != old.get(*field)) {
            let shown = new.get(field).unwrap_or(&Value::Null);
            errors.push(invalid(field.replace("Component", "Controller"), shown, "field is immutable"));
        }
    } else {
        if new.get("eventTime").is_none_or(Value::is_null) {
            errors.push(required("eventTime", ""));
        }
        let given = text("type");
        if !matches!(given, "Normal" | "Warning") {
            errors.push(invalid("type", &Value::from(""), &format!("has invalid value: {given}")));
        }
        for field in ["firstTimestamp", "lastTimestamp", "count"] {
            if new.get(field).is_some_and(|value| !value.is_null()) {
                errors.push(invalid(field, &Value::from(""), "needs to be unset"));
            }
        }
    }
    errors
}

fn ingress(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new["spec"];
    for (at, tls) in list(spec, "tls").enumerate() {
        for (n, host) in list(tls, "hosts").enumerate() {
            let text = host.as_str().unwrap_or_default();
            let wrong = if text.contains('*') { wildcard_subdomain(text) } else { subdomain(text) };
            errors.extend(wrong.iter().map(|why| invalid(format!("spec.tls[{at}].hosts[{n}]"), host, why)));
        }
        if let Some(secret) = tls.get("secretName") {
            let wrong = subdomain(secret.as_str().unwrap_or_default());
            errors.extend(wrong.iter().map(|why| invalid(format!("spec.tls[{at}].secretName"), secret, why)));
        }
    }
    let rules: Vec<&Value> = list(spec, "rules").collect();
    if rules.is_empty() && spec.get("defaultBackend").is_none() {
        errors.push(invalid("spec", &Value::Null, "either `defaultBackend` or `rules` must be specified"));
    }
    if let Some(backend) = spec.get("defaultBackend") {
        errors.extend(ingress_backend(backend, "spec.defaultBackend"));
    }
    for (at, rule) in rules.iter().enumerate() {
        let path = format!("spec.rules[{at}]");
        let host = rule["host"].as_str().unwrap_or_default();
        if !host.is_empty() {
            if host.parse::<std::net::IpAddr>().is_ok() {
                errors.push(invalid(format!("{path}.host"), &rule["host"], "must be a DNS name, not an IP address"));
            }
            let wrong = if host.contains('*') { wildcard_subdomain(host) } else { subdomain(host) };
            errors.extend(wrong.iter().map(|why| invalid(format!("{path}.host"), &rule["host"], why)));
        }
        if let Some(http) = rule.get("http") {
            let paths: Vec<&Value> = list(http, "paths").collect();
            if paths.is_empty() {
                errors.push(required(format!("{path}.http.paths"), ""));
            }
            for (n, entry) in paths.iter().enumerate() {
                errors.extend(ingress_path(entry, &format!("{path}.http.paths[{n}]")));
            }
        }
    }
    if let Some(class) = spec.get("ingressClassName") {
        errors.extend(
            subdomain(class.as_str().unwrap_or_default())
                .iter()
                .map(|why| invalid("spec.ingressClassName", class, why)),
        );
    }
    errors
}

fn ingress_path(entry: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = entry.get("path").and_then(Value::as_str).unwrap_or_default();
    match entry.get("pathType").and_then(Value::as_str) {
        None => errors.push(required(format!("{at}.pathType"), "pathType must be specified")),
        Some("Exact" | "Prefix") => {
            if !path.starts_with('/') {
                errors.push(invalid(format!("{at}.path"), &Value::from(path), "must be an absolute path"));
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.contains(part) {
                    errors.push(invalid(
                        format!("{at}.path"),
                        &Value::from(path),
                        &format!("must not contain '{part}'"),
                    ));
                }
            }
            for end in ["/..", "/."] {
                if path.ends_with(end) {
                    errors.push(invalid(format!("{at}.path"), &Value::from(path), &format!("cannot end with '{end}'")));
                }
            }
        }
        Some("ImplementationSpecific") => {
            if !path.is_empty() && !path.starts_with('/') {
                errors.push(invalid(format!("{at}.path"), &Value::from(path), "must be an absolute path"));
            }
        }
        Some(other) => {
            errors.push(unsupported(format!("{at}.pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"]));
        }
    }
    errors.extend(ingress_backend(&entry["backend"], &format!("{at}.backend")));
    errors
}

fn ingress_backend(backend: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match (backend.get("resource"), backend.get("service")) {
        (Some(_), Some(_)) => {
            errors.push(invalid(at, &Value::from(""), "cannot set both resource and service backends"));
        }
        (Some(resource), None) => {
            for field in ["kind", "name"] {
                if resource[field].as_str().unwrap_or_default().is_empty() {
                    errors.push(required(format!("{at}.resource.{field}"), ""));
                }
            }
        }
        (None, None) => errors.push(invalid(at, &Value::from(""), "resource or service backend is required")),
        (None, Some(service)) => {
            let name = service["name"].as_str().unwrap_or_default();
            if name.is_empty() {
                errors.push(required(format!("{at}.service.name"), ""));
            } else {
                errors.extend(
                    label_1123(name).iter().map(|why| invalid(format!("{at}.service.name"), &service["name"], why)),
                );
            }
            let port = &service["port"];
            let (by_name, by_number) =
                (port["name"].as_str().unwrap_or_default(), port["number"].as_i64().unwrap_or_default());
            if !by_name.is_empty() && by_number != 0 {
                errors.push(invalid(at, &Value::from(""), "cannot set both port name & port number"));
            } else if by_name.is_empty() && by_number == 0 {
                errors.push(required(at, "port name or number is required"));
            } else if !by_name.is_empty() {
                let wrong = port_name(by_name);
                errors.extend(wrong.iter().map(|why| invalid(format!("{at}.service.port.name"), &port["name"], why)));
            } else if !(1..=65535).contains(&by_number) {
                errors.push(invalid(
                    format!("{at}.service.port.number"),
                    &Value::from(by_number),
                    "must be between 1 and 65535, inclusive",
                ));
            }
        }
    }
    errors
}

fn ingress_class_annotation(new: &Value) -> Option<FieldError> {
    let annotated = new.pointer("/metadata/annotations/kubernetes.io~1ingress.class")?;
    let class = new.pointer("/spec/ingressClassName")?;
    (annotated != class).then(|| {
        invalid(
            "annotations.kubernetes.io/ingress.class",
            annotated,
            "must match `ingressClassName` when both are specified",
        )
    })
}

fn ingress_status(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let balancer = new.pointer("/status/loadBalancer").unwrap_or(&Value::Null);
    for (at, ingress) in list(balancer, "ingress").enumerate() {
        let path = format!("status.loadBalancer.ingress[{at}]");
        if let Some(ip) = ingress.get("ip")
            && ip.as_str().is_none_or(|text| text.parse::<std::net::IpAddr>().is_err())
        {
            errors.push(invalid(
                format!("{path}.ip"),
                ip,
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ));
        }
        if let Some(host) = ingress.get("hostname") {
            let text = host.as_str().unwrap_or_default();
            errors.extend(subdomain(text).iter().map(|why| invalid(format!("{path}.hostname"), host, why)));
            if text.parse::<std::net::IpAddr>().is_ok() {
                errors.push(invalid(format!("{path}.hostname"), host, "must be a DNS name, not an IP address"));
            }
        }
    }
    errors
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn ingress_class(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let controller = new.pointer("/spec/controller").unwrap_or(&Value::Null);
    let text = controller.as_str().unwrap_or_default();
    match old {
        Some(old) => {
            if old.pointer("/spec/controller").unwrap_or(&Value::Null) != controller {
                errors.push(invalid("spec.controller", controller, "field is immutable"));
            }
        }
        None if text.is_empty() => errors.push(required("spec.controller", "")),
        None => {
            let parts: Vec<&str> = text.split('/').collect();
            if parts.len() < 2 || subdomain(parts[0]).len() + usize::from(parts[1].is_empty()) > 0 {
                errors.push(invalid(
                    "spec.controller",
                    controller,
                    "must be a domain-prefixed path (such as \"acme.io/foo\")",
                ));
            }
        }
    }
    errors
}

fn lease(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new["spec"];
    if let Some(seconds) = spec.get("leaseDurationSeconds")
        && seconds.as_i64().is_some_and(|n| n <= 0)
    {
        errors.push(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
    if let Some(count) = spec.get("leaseTransitions")
        && count.as_i64().is_some_and(|n| n < 0)
    {
        errors.push(invalid("spec.leaseTransitions", count, "must be greater than or equal to 0"));
    }
    if let Some(holder) = spec.get("holderIdentity")
        && holder.as_str() == Some("")
        && spec.get("strategy").is_some()
    {
        errors.push(invalid("spec.holderIdentity", holder, "must not be empty"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(|error| error.to_string().chars().take(60).collect()).collect()
    }

    #[test]
    fn ingress_hosts_must_be_lower_case_names() {
        let rule = |host: &str| json!({"spec": {"rules": [{"host": host}]}});
        assert_eq!(ingress(&rule("a.example.com")), []);
        assert_eq!(ingress(&rule("*.example.com")), []);
        for bad in ["A.example.com", "a_b.example.com", "10.0.0.1", "a.*.example.com", "*"] {
            assert_ne!(ingress(&rule(bad)), [], "{bad}");
        }
    }

    #[test]
    fn an_ingress_path_needs_its_type() {
        let spec = json!({"spec": {"rules": [{"http": {"paths": [{"path": "/", "backend": {"service": {"name": "a", "port": {"number": 80}}}}]}}]}});
        assert_eq!(texts(&ingress(&spec)), ["spec.rules[0].http.paths[0].pathType: Required value: pathTy"]);
    }

    #[test]
    fn config_map_keys_are_checked() {
        assert_eq!(config_map(&json!({"data": {"a.b-c_d": ""}}), None), []);
        assert_eq!(config_map(&json!({"data": {"a/b": ""}}), None).len(), 1);
    }
}
