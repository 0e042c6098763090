//! One request as the API sees it: which verb on which resource, with which options.
//!
//! In: an HTTP method, a path with its query, and headers. Out: [`RequestInfo`] (what authorization, faults and the log refer
//! to) and the typed options of each verb.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{protobuf, status::ApiError};

/// The verb, resource and options of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// `GET`, `POST`, and so on.
    pub method: String,
    /// The path without its query.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; lower-case method for other paths.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version; empty for paths that are not resources.
    pub version: String,
    /// The plural resource name; empty for paths that are not resources.
    pub resource: String,
    /// `status`, `finalize`; empty for the main resource.
    pub subresource: String,
    /// The namespace; empty when cluster-wide.
    pub namespace: String,
    /// The object's name; empty for collections.
    pub name: String,
    /// The query, decoded, in order.
    pub query: Vec<(String, String)>,
}

impl RequestInfo {
    /// Reads a method and a path with an optional query.
    pub fn parse(method: &str, path_and_query: &str) -> Self {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let query: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let mut info = Self { method: method.to_owned(), path: path.to_owned(), query, ..Self::default() };
        let segments: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decoded).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let rest: &[&str] = match segments.as_slice() {
            ["api", version, rest @ ..] => {
                (*version).clone_into(&mut info.version);
                rest
            }
            ["apis", group, version, rest @ ..] => {
                (*group).clone_into(&mut info.group);
                (*version).clone_into(&mut info.version);
                rest
            }
            _ => &[],
        };
        let (rest, watching): (&[&str], bool) = match rest {
            ["watch", rest @ ..] => (rest, true),
            rest => (rest, false),
        };
        match rest {
            ["namespaces", name, sub @ ("status" | "finalize")] if info.group.is_empty() => {
                info.resource = "namespaces".into();
                (*name).clone_into(&mut info.name);
                (*sub).clone_into(&mut info.subresource);
            }
            ["namespaces", namespace, resource, rest @ ..] => {
                (*namespace).clone_into(&mut info.namespace);
                info.take_resource(resource, rest);
            }
            [resource, rest @ ..] => info.take_resource(resource, rest),
            [] => {}
        }
        let verb = info.find_verb().to_owned();
        info.verb = verb;
        if watching && matches!(info.verb.as_str(), "get" | "list") {
            info.verb = "watch".into();
            info.query.push(("watch".into(), "true".into()));
        }
        info
    }

    fn take_resource(&mut self, resource: &str, rest: &[&str]) {
        resource.clone_into(&mut self.resource);
        if let Some(name) = rest.first() {
            (*name).clone_into(&mut self.name);
        }
        if rest.len() > 1 {
            self.subresource = rest[1..].join("/");
        }
    }

    fn find_verb(&self) -> &str {
        if self.resource.is_empty() {
            return match self.method.as_str() {
                "GET" => "get",
                "POST" => "post",
                "PUT" => "put",
                "DELETE" => "delete",
                _ => "other",
            };
        }
        let collection = self.name.is_empty();
        match self.method.as_str() {
            "GET" | "HEAD" if collection && self.flag("watch") => "watch",
            "GET" | "HEAD" if collection => "list",
            "GET" | "HEAD" => "get",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if collection => "deletecollection",
            "DELETE" => "delete",
            _ => "other",
        }
    }

    /// Whether this request changes the cluster when it succeeds.
    pub fn is_write(&self) -> bool {
        !self.resource.is_empty()
            && matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
            && self.get("dryRun").is_none_or(str::is_empty)
            && self.group != "authorization.k8s.io"
    }

    /// The first value of a query parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// A non-empty query parameter.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|value| !value.is_empty())
    }

    /// A boolean query parameter: present and neither `0` nor `false` is true, as the server reads it.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !matches!(value, "0" | "false" | "False" | "FALSE" | "f" | "F"))
    }

    /// A whole-number query parameter.
    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, ApiError> {
        self.text(key)
            .map(|text| {
                text.parse()
                    .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
            })
            .transpose()
    }
}

fn decoded(segment: &str) -> String {
    if !segment.contains('%') {
        return segment.to_owned();
    }
    let mut out = Vec::with_capacity(segment.len());
    let bytes = segment.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let hex = segment.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The treatment of fields that the schema does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Strict,
    Warn,
    Ignore,
}

/// The options that all writes share.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) manager: String,
    pub(crate) force: bool,
    pub(crate) validation: FieldValidation,
}

impl WriteOptions {
    /// Reads the query; `user_agent` names the manager when the query does not.
    pub(crate) fn parse(info: &RequestInfo, user_agent: &str, kind: &str) -> Result<Self, ApiError> {
        let refuse = |field: &str, message: String, reason: &'static str| {
            ApiError::invalid(
                "meta.k8s.io",
                kind,
                "",
                &[crate::schema::FieldError { reason, field: field.into(), message }],
            )
        };
        let dry_run = match info.text("dryRun") {
            None => false,
            Some("All") => true,
            Some(other) => {
                return Err(refuse(
                    "dryRun",
                    format!("Unsupported value: [{other:?}]: supported values: \"All\""),
                    "FieldValueNotSupported",
                ));
            }
        };
        let validation = match info.text("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Strict") => FieldValidation::Strict,
            Some("Ignore") => FieldValidation::Ignore,
            Some(other) => {
                return Err(refuse(
                    "fieldValidation",
                    format!("Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""),
                    "FieldValueNotSupported",
                ));
            }
        };
        let manager = info.text("fieldManager").map_or_else(
            || user_agent.split('/').next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(128).collect(),
            str::to_owned,
        );
        if manager.len() > 128 {
            return Err(refuse(
                "fieldManager",
                "Too long: may not be more than 128 bytes".to_owned(),
                "FieldValueTooLong",
            ));
        }
        Ok(Self { dry_run, manager, force: info.flag("force"), validation })
    }
}

/// How much of an object an answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Full,
    /// The metadata of one object, or of each event of a watch.
    Metadata,
    /// The metadata of each object of a list.
    MetadataList,
    Table,
}

/// Reads an `Accept` header: the first form that the server can make wins.
pub(crate) fn shape_wanted(accept: &str, custom: bool) -> Result<Shape, ApiError> {
    if accept.trim().is_empty() {
        return Ok(Shape::Full);
    }
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "application/json" | "*/*" | "application/*" | "application/yaml") {
            continue;
        }
        let params: BTreeMap<&str, &str> = parts.filter_map(|param| param.split_once('=')).collect();
        match (params.get("as").copied(), params.get("g").copied(), params.get("v").copied()) {
            (None, _, _) => return Ok(Shape::Full),
            (Some("Table"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) => return Ok(Shape::Table),
            (Some("PartialObjectMetadata"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) => return Ok(Shape::Metadata),
            (Some("PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) => {
                return Ok(Shape::MetadataList);
            }
            _ => {}
        }
    }
    Err(ApiError::not_acceptable(custom))
}

/// A body as JSON; YAML is read too where the content type is YAML. The error is the decoder's text.
pub(crate) fn read_body(body: &[u8], content_type: &str) -> Result<Value, String> {
    let yaml = content_type.contains("yaml");
    if content_type.starts_with(protobuf::MEDIA_TYPE) {
        return protobuf::read(body).ok_or_else(|| "the protobuf encoding of this kind is not known".to_owned());
    }
    if !yaml || body.first() == Some(&b'{') {
        match serde_json::from_slice(body) {
            Ok(value) => return Ok(value),
            Err(error) if !yaml => return Err(syntax_error(body, &error)),
            Err(_) => {}
        }
    }
    let text = String::from_utf8_lossy(body);
    serde_saphyr::from_str(&text).map_err(|error| format!("yaml: {error}"))
}

/// The error in a JSON text, with the server's text where that is simple.
fn syntax_error(body: &[u8], error: &serde_json::Error) -> String {
    let start = body.iter().find(|byte| !byte.is_ascii_whitespace()).copied();
    let literal = |word: &str| {
        let at = word.bytes().zip(body.iter().copied()).position(|(wanted, is)| wanted != is)?;
        let (is, wanted) = (char::from(body[at]), char::from(word.as_bytes()[at]));
        (at > 0).then(|| format!("invalid character '{is}' in literal {word} (expecting '{wanted}')"))
    };
    match start {
        _ if error.is_eof() => "unexpected end of JSON input".to_owned(),
        Some(b'n') => literal("null").unwrap_or_else(|| error.to_string()),
        Some(b't') => literal("true").unwrap_or_else(|| error.to_string()),
        Some(b'f') => literal("false").unwrap_or_else(|| error.to_string()),
        Some(first) if !matches!(first, b'{' | b'[' | b'"' | b'-' | b'0'..=b'9') => {
            format!("invalid character '{}' looking for beginning of value", char::from(first))
        }
        _ => format!("invalid character: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_the_server_reads_them() {
        let cases = [
            ("GET", "/api/v1/namespaces/a/configmaps/b", "get", "configmaps", "a", "b", ""),
            ("GET", "/api/v1/configmaps?watch=1", "watch", "configmaps", "", "", ""),
            ("GET", "/api/v1/configmaps?watch=false", "list", "configmaps", "", "", ""),
            ("GET", "/api/v1/namespaces/a/configmaps/b?watch=1", "get", "configmaps", "a", "b", ""),
            ("GET", "/api/v1/watch/namespaces/a/configmaps/b", "watch", "configmaps", "a", "b", ""),
            ("PUT", "/api/v1/namespaces/a/finalize", "update", "namespaces", "", "a", "finalize"),
            ("GET", "/api/v1/namespaces/a", "get", "namespaces", "", "a", ""),
            (
                "PATCH",
                "/apis/networking.k8s.io/v1/namespaces/a/ingresses/b/status",
                "patch",
                "ingresses",
                "a",
                "b",
                "status",
            ),
            ("DELETE", "/apis/x.io/v1/things", "deletecollection", "things", "", "", ""),
        ];
        for (method, path, verb, resource, namespace, name, sub) in cases {
            let info = RequestInfo::parse(method, path);
            let got = [&info.verb, &info.resource, &info.namespace, &info.name, &info.subresource].map(String::as_str);
            assert_eq!(got, [verb, resource, namespace, name, sub], "{path}");
        }
    }

    #[test]
    fn the_first_acceptable_form_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(shape_wanted(kubectl, true), Ok(Shape::Table));
        assert_eq!(shape_wanted("application/json", true), Ok(Shape::Full));
        let unknown_first = "application/json;as=Nonsense;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(shape_wanted(unknown_first, true), Ok(Shape::Full));
        assert!(shape_wanted("application/xml", true).is_err());
    }
}
