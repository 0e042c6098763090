//! Create, and the steps that every write shares: reading the body by the kind's schema, defaults, validation, storing.
//!
//! ```text
//! body ─► decode (unknown fields) ─► names, namespace ─► system fields ─► defaults ─► validate ─► managedFields ─► store
//! ```

use std::sync::{Arc, OnceLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::{Answer, Ask, Payload};
use crate::{
    apply,
    clock::rfc3339,
    document::Outline,
    kinds::{self, Kind, Origin, names::NameRule, typed},
    protobuf,
    request::{FieldValidation, WriteOptions, read_body},
    schema::FieldError,
    status::{ApiError, quoted},
    store::{key_of, meta},
    world::SandboxState,
};

fn metadata_schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| schemars::schema_for!(ObjectMeta).into())
}

/// The object of a body, with its type checked against the request.
pub(crate) fn read_object(ask: &Ask<'_>) -> Result<Value, ApiError> {
    const FORMS: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
    let kind = &ask.kind;
    let media = ask.content_type.split(';').next().unwrap_or_default().trim();
    let known = matches!(media, "" | "application/json" | "application/yaml");
    if !known && (media != protobuf::MEDIA_TYPE || protobuf::read(ask.body).is_none()) {
        return Err(ApiError::unsupported_media_type(FORMS));
    }
    let unrecognized = |text: String| {
        ApiError::bad_request(format!("the object provided is unrecognized (must be of type {}): {text}", kind.kind))
    };
    let hex = || match ask.body {
        [] => "<empty>".to_owned(),
        body => body.iter().take(64).fold(String::new(), |hex, byte| format!("{hex}{byte:02x}")),
    };
    let mut object = read_body(ask.body, ask.content_type)
        .map_err(|text| unrecognized(format!("couldn't get version/kind; json parse error: {text} ({})", hex())))?;
    if !object.is_object() {
        let is = if object.is_array() {
            "array"
        } else if object.is_string() {
            "string"
        } else {
            "number"
        };
        return Err(unrecognized(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {is} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }} ({})",
            hex()
        )));
    }
    check_type(kind, &object, ask.body)?;
    object["apiVersion"] = Value::from(kind.api_version());
    object["kind"] = Value::from(kind.kind.as_str());
    if !object.get("metadata").is_some_and(Value::is_object) {
        object["metadata"] = Value::Object(Map::new());
    }
    Ok(object)
}

/// Whether an object has the kind of the path, or leaves it out where that is allowed.
fn check_type(kind: &Kind, object: &Value, body: &[u8]) -> Result<(), ApiError> {
    let given = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, name) = (given("apiVersion"), given("kind"));
    let expected = kind.api_version();
    if kind.is_custom() {
        let shown: String = String::from_utf8_lossy(body).chars().take(200).collect();
        if name.is_empty() {
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{shown}' ({shown})",
                kind.kind
            )));
        }
        if api_version != expected {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({expected})"
            )));
        }
        if name != kind.kind {
            let error = kinds::names::invalid("kind", &Value::from(name), &format!("must be {}", kind.kind));
            return Err(ApiError::invalid(&kind.group, name, meta(object, "name"), &[error]));
        }
        return Ok(());
    }
    let (api_version, name) = (
        if api_version.is_empty() { expected.as_str() } else { api_version },
        if name.is_empty() { kind.kind.as_str() } else { name },
    );
    if api_version == expected && name == kind.kind {
        return Ok(());
    }
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let why = if kinds::builtin::is_known(api_version, name) {
        let family = match kind.group.split('.').next().unwrap_or_default() {
            "" => "core",
            first => first,
        };
        format!("converting ({version}.{name}) to ({family}.{}): unknown conversion", kind.kind)
    } else {
        format!(
            "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
            quoted(name),
            quoted(api_version)
        )
    };
    Err(ApiError::bad_request(format!(
        "{name} in version {} cannot be handled as a {}: {why}",
        quoted(version),
        kind.kind
    )))
}

/// Reads an object by its kind's schema: drops what the schema does not know; answers the warnings, or why it cannot be read.
pub(crate) fn decode(
    kind: &Kind,
    object: &mut Value,
    validation: FieldValidation,
    outline: Option<&Outline>,
) -> Result<Vec<String>, String> {
    let unknown = match &kind.origin {
        Origin::Builtin(builtin) => {
            let findings = typed::read(builtin.schema(), &kind.kind, object);
            if let Some(text) = findings.mistyped {
                return Err(text);
            }
            let mut unknown = findings.unknown;
            if let Some(outline) = outline {
                unknown.sort_by_key(|path| outline.place(path));
            }
            unknown
        }
        Origin::Custom(custom) => {
            let mut metadata = object.get_mut("metadata").map(Value::take).unwrap_or_default();
            let findings = typed::read(metadata_schema(), "ObjectMeta", &mut metadata);
            object["metadata"] = metadata;
            if let Some(text) = findings.mistyped {
                return Err(text);
            }
            let mut unknown: Vec<String> =
                findings.unknown.into_iter().map(|path| format!("metadata.{path}")).collect();
            unknown.extend(custom.schema.prune(object));
            unknown
        }
    };
    let doubled = outline.map(|outline| outline.doubled.as_slice()).unwrap_or_default();
    let texts: Vec<String> = doubled
        .iter()
        .map(|path| format!("duplicate field {}", quoted(path)))
        .chain(unknown.iter().map(|path| format!("unknown field {}", quoted(path))))
        .collect();
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(texts),
        FieldValidation::Strict if texts.is_empty() => Ok(texts),
        FieldValidation::Strict => Err(format!("strict decoding error: {}", texts.join(", "))),
    }
}

/// Decodes the body of a create or an update.
pub(crate) fn decode_body(
    ask: &Ask<'_>,
    object: &mut Value,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    let kind = &ask.kind;
    let outline = (validation != FieldValidation::Ignore).then(|| Outline::of(ask.body));
    decode(kind, object, validation, outline.as_ref()).map_err(|text| {
        ApiError::bad_request(format!(
            "{} in version {} cannot be handled as a {}: {text}",
            kind.kind,
            quoted(&kind.version),
            kind.kind
        ))
    })
}

/// Fills in defaults of the kind.
pub(crate) fn default(kind: &Kind, object: &mut Value) {
    match &kind.origin {
        Origin::Builtin(_) => {
            kinds::defaults::apply(kind, object);
            if kind.kind == "CustomResourceDefinition" {
                kinds::crd::default(object);
            }
        }
        Origin::Custom(custom) => custom.schema.default(object),
    }
}

/// Everything that is wrong with an object of the request's version.
pub(crate) fn validate(kind: &Kind, new: &Value, old: Option<&Value>, subresource: &str) -> Vec<FieldError> {
    match &kind.origin {
        Origin::Builtin(builtin) => {
            let mut errors = kinds::names::metadata_errors(new, kind.namespaced, builtin.name_rule);
            if kind.kind != "CustomResourceDefinition" {
                errors.extend(kinds::names::finalizer_errors(new));
            }
            if kind.table == "events" {
                let stored = kind.to_storage(new.clone());
                let old = old.map(|old| kind.to_storage(old.clone()));
                errors.extend(kinds::validate::errors(kind, &stored, old.as_ref()));
            } else {
                errors.extend(kinds::validate::errors(kind, new, old));
            }
            errors
        }
        Origin::Custom(custom) => {
            let mut errors = kinds::names::metadata_errors(new, kind.namespaced, NameRule::Subdomain);
            match old {
                Some(old) if subresource == "status" => errors.extend(custom.schema.validate_status(new, old)),
                _ => errors.extend(custom.schema.validate(new, old)),
            }
            errors
        }
    }
}

/// Warnings about an object that is valid but should not be like this.
fn advice(kind: &Kind, object: &Value) -> Option<String> {
    let annotated = object.pointer("/metadata/annotations/kubernetes.io~1ingress.class").is_some();
    (kind.kind == "Ingress" && annotated && !kind.is_custom()).then(|| {
        "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
            .to_owned()
    })
}

/// Warnings that come with a version.
pub(crate) fn deprecation(kind: &Kind) -> Option<String> {
    match &kind.origin {
        Origin::Custom(custom) => custom.deprecation.clone(),
        Origin::Builtin(_) if kind.group.is_empty() && kind.kind == "Endpoints" => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into())
        }
        Origin::Builtin(_) => None,
    }
}

/// The object's place must be the request's place.
pub(crate) fn settle_place(ask: &Ask<'_>, object: &mut Value) -> Result<(), ApiError> {
    let info = ask.info;
    if ask.kind.namespaced {
        let given = meta(object, "namespace");
        if given.is_empty() {
            object["metadata"]["namespace"] = Value::from(info.namespace.as_str());
        } else if given != info.namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    } else if !meta(object, "namespace").is_empty() {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !info.name.is_empty() {
        let given = meta(object, "name");
        if given.is_empty() {
            object["metadata"]["name"] = Value::from(info.name.as_str());
        } else if given != info.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({})",
                info.name
            )));
        }
    }
    Ok(())
}

impl SandboxState {
    /// POST of a new object.
    pub(crate) fn create(&mut self, ask: &Ask<'_>) -> Result<Answer, ApiError> {
        let options = WriteOptions::parse(ask.info, ask.agent, "CreateOptions")?;
        let mut object = read_object(ask)?;
        let mut warnings = decode_body(ask, &mut object, options.validation)?;
        warnings.extend(advice(&ask.kind, &object));
        settle_place(ask, &mut object)?;
        let mut answer = self.create_object(ask, object, &options, None)?;
        answer.warnings = warnings;
        Ok(answer)
    }

    /// Stores a new object that has been decoded; `applied` is set when server-side apply has already recorded its fields.
    pub(crate) fn create_object(
        &mut self,
        ask: &Ask<'_>,
        mut object: Value,
        options: &WriteOptions,
        applied: Option<()>,
    ) -> Result<Answer, ApiError> {
        let kind = ask.kind.clone();
        if !meta(&object, "resourceVersion").is_empty() {
            return Err(ApiError::unforeseen("resourceVersion should not be set on objects to be created"));
        }
        let prefix = meta(&object, "generateName").to_owned();
        let generated = meta(&object, "name").is_empty() && !prefix.is_empty();
        if generated {
            let room = prefix.chars().take(58).collect::<String>();
            object["metadata"]["name"] = Value::from(format!("{room}{}", self.ids.suffix()));
        }
        let name = meta(&object, "name").to_owned();
        if kind.namespaced {
            self.check_namespace(&kind, &ask.info.namespace, &name)?;
        }
        if self.is_crd_terminating(&kind) {
            return Err(ApiError::new(
                405,
                "MethodNotAllowed",
                "create not allowed while custom resource definition is terminating",
            ));
        }
        self.prepare_new(&kind, &mut object);
        default(&kind, &mut object);
        if kind.kind == "CustomResourceDefinition" {
            object["status"] = kinds::crd::initial_status(&object);
        }
        let errors = validate(&kind, &object, None, "");
        if !errors.is_empty() {
            return Err(ApiError::invalid(kind.reported_group(), &kind.kind, &name, &errors));
        }
        let key = key_of(meta(&object, "namespace"), &name);
        if self.store.get(&kind.table, &key).is_some() {
            let going =
                self.store.get(&kind.table, &key).is_some_and(|found| !found.meta("deletionTimestamp").is_empty());
            return Err(ApiError::already_exists(ask.about(&name), going));
        }
        if applied.is_none() {
            apply::track_update(None, &mut object, &options.manager, None, &kind.merge, self.now());
        }
        kinds::defaults::unowned_on_create(&kind, &mut object, &mut self.address);
        if options.dry_run {
            let stored = kind.to_storage(object);
            let shown = kind.show(&stored).unwrap_or(stored);
            return Ok(Answer { code: 201, payload: Payload::Made(shown), warnings: Vec::new() });
        }
        let stored = self.store.put(&kind.table, kind.to_storage(object));
        self.after_write(&kind, &stored);
        Ok(Answer { code: 201, payload: Payload::Stored(stored), warnings: Vec::new() })
    }

    /// The fields that only the server sets on a new object.
    fn prepare_new(&mut self, kind: &Kind, object: &mut Value) {
        let uid = self.ids.uid();
        let created = rfc3339(self.now());
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
                metadata.remove(field);
            }
            metadata.insert("uid".into(), Value::from(uid));
            metadata.insert("creationTimestamp".into(), Value::from(created));
            if kind.has_generation() {
                metadata.insert("generation".into(), json!(1));
            }
        }
        if kind.status
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
    }

    fn is_crd_terminating(&self, kind: &Kind) -> bool {
        kind.is_custom()
            && self
                .store
                .get("customresourcedefinitions.apiextensions.k8s.io", &kind.table)
                .is_some_and(|crd| !crd.meta("deletionTimestamp").is_empty())
    }

    /// The work of the server's own controllers after an object was stored.
    pub(crate) fn after_write(&mut self, kind: &Kind, stored: &Arc<crate::store::Object>) {
        if kind.kind == "CustomResourceDefinition" && kind.group == "apiextensions.k8s.io" {
            self.accept_crd(stored);
        }
        if stored.value.pointer("/metadata/ownerReferences").is_some() {
            self.collect_orphan(kind, stored);
        }
    }

    /// Serves the kinds of a CRD and reports it in its status.
    fn accept_crd(&mut self, crd: &Arc<crate::store::Object>) {
        let (group, plural) = (
            crd.value["spec"]["group"].as_str().unwrap_or_default().to_owned(),
            crd.value["spec"]["names"]["plural"].as_str().unwrap_or_default().to_owned(),
        );
        let name = crd.value["spec"]["names"]["kind"].as_str().unwrap_or_default();
        let conflict = self
            .catalog
            .iter()
            .find(|kind| kind.group == group && kind.kind == name && kind.plural != plural)
            .map(|_| format!("{name:?} is already in use"));
        if conflict.is_none() {
            self.catalog.remove(&group, &plural);
            for kind in kinds::crd::kinds(&crd.value) {
                self.store.open(&kind.table);
                self.catalog.insert(kind);
            }
        }
        let status = kinds::crd::accepted_status(&crd.value, conflict.as_deref(), self.now());
        if crd.value.get("status") != Some(&status) {
            let mut updated = crd.value.clone();
            updated["status"] = status;
            if let Some(declared) = self.catalog.get("apiextensions.k8s.io", "v1", "customresourcedefinitions") {
                apply::track_update(
                    Some(&crd.value),
                    &mut updated,
                    "kube-apiserver",
                    Some("status"),
                    &declared.merge,
                    self.clock.now(),
                );
            }
            self.store.put("customresourcedefinitions.apiextensions.k8s.io", updated);
        }
    }
}
