//! Deleting one object or a collection: preconditions, finalizers, propagation.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, Ask, Payload, read::Scope, update::is_released};
use crate::{
    clock::rfc3339,
    kinds::{Kind, Origin, crd, names::unsupported},
    request::{RequestInfo, read_body},
    schema::FieldError,
    status::{About, ApiError},
    store::{Object, key_of},
    world::SandboxState,
};

/// The treatment of the objects that the deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The options of a delete, from its body or its query.
#[derive(Clone, Debug)]
struct DeleteOptions {
    propagation: Option<Propagation>,
    uid: Option<String>,
    version: Option<String>,
    dry_run: bool,
}

impl DeleteOptions {
    fn parse(info: &RequestInfo, body: &[u8], content_type: &str) -> Result<Self, ApiError> {
        let body = if body.is_empty() {
            Value::Null
        } else {
            read_body(body, content_type)
                .map_err(|text| ApiError::bad_request(format!("error decoding options: {text}")))?
        };
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let refuse = |errors: &[FieldError]| ApiError::invalid("meta.k8s.io", "DeleteOptions", "", errors);
        let policy = text("/propagationPolicy").or_else(|| info.text("propagationPolicy").map(str::to_owned));
        let propagation = match policy.as_deref() {
            None => match body.get("orphanDependents").and_then(Value::as_bool) {
                Some(true) => Some(Propagation::Orphan),
                Some(false) => Some(Propagation::Background),
                None => None,
            },
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                return Err(refuse(&[unsupported(
                    "propagationPolicy",
                    other,
                    &["Foreground", "Background", "Orphan", "nil"],
                )]));
            }
        };
        let dry_run = body.get("dryRun").and_then(Value::as_array).is_some_and(|list| list.iter().any(|v| v == "All"))
            || info.text("dryRun") == Some("All");
        Ok(Self {
            propagation,
            uid: text("/preconditions/uid"),
            version: text("/preconditions/resourceVersion"),
            dry_run,
        })
    }
}

impl SandboxState {
    /// DELETE of one object.
    pub(crate) fn delete(&mut self, ask: &Ask<'_>) -> Result<Answer, ApiError> {
        let options = DeleteOptions::parse(ask.info, ask.body, ask.content_type)?;
        let stored = self.find(&ask.kind, &ask.key())?;
        for (what, wanted, is) in [
            ("UID", &options.uid, stored.meta("uid")),
            ("ResourceVersion", &options.version, stored.meta("resourceVersion")),
        ] {
            if let Some(wanted) = wanted
                && wanted != is
            {
                let maybe = if what == "UID" { "deleted and then recreated" } else { "modified" };
                return Err(ApiError::conflict(
                    About { resource: &ask.kind.kind, ..ask.about(&ask.info.name) },
                    &format!(
                        "the {what} in the precondition ({wanted}) does not match the {what} in record ({is}). The object might have been {maybe}"
                    ),
                ));
            }
        }
        if ask.kind.kind == "Namespace" && matches!(ask.info.name.as_str(), "default" | "kube-public" | "kube-system") {
            return Err(ApiError::forbidden(ask.about(&ask.info.name), "this namespace may not be deleted"));
        }
        let returns_object = matches!(&ask.kind.origin, Origin::Builtin(builtin) if builtin.delete_returns_object);
        if options.dry_run {
            let mut shown = stored.value.clone();
            if ask.kind.kind == "Namespace" {
                shown["status"]["phase"] = json!("Terminating");
            }
            let payload = if returns_object { Payload::Made(shown) } else { Payload::Plain(success(ask, &stored)) };
            return Ok(Answer::ok(payload));
        }
        match self.delete_object(&ask.kind, &ask.key(), options.propagation) {
            Some(pending) => Ok(Answer::ok(Payload::Stored(pending))),
            None if returns_object => Ok(Answer::ok(Payload::Stored(stored))),
            None => Ok(Answer::ok(Payload::Plain(success(ask, &stored)))),
        }
    }

    /// DELETE of a collection: answers what was deleted.
    pub(crate) fn delete_collection(&mut self, ask: &Ask<'_>) -> Result<Answer, ApiError> {
        let options = DeleteOptions::parse(ask.info, ask.body, ask.content_type)?;
        let scope = Scope::parse(ask)?;
        let version = self.store.version();
        let Some(table) = self.store.table(&ask.kind.table) else { return Err(ApiError::no_such_resource()) };
        let doomed: Vec<Arc<Object>> = table
            .read_at(version, &scope.prefix, None)
            .unwrap_or_default()
            .into_iter()
            .filter(|object| scope.covers(&ask.kind, &object.value))
            .collect();
        let mut items = Vec::new();
        for object in doomed {
            let key = key_of(object.meta("namespace"), object.meta("name"));
            if options.dry_run {
                items.push(object);
                continue;
            }
            let pending = self.delete_object(&ask.kind, &key, options.propagation);
            items.push(pending.unwrap_or(object));
        }
        Ok(Answer::ok(Payload::List { items, version: self.store.version(), more: None, remaining: None }))
    }

    /// Deletes or begins to delete; answers the object while it has finalizers.
    fn delete_object(&mut self, kind: &Arc<Kind>, key: &str, propagation: Option<Propagation>) -> Option<Arc<Object>> {
        let stored = self.store.get(&kind.table, key)?.clone();
        let mut value = stored.value.clone();
        let mut finalizers: Vec<Value> =
            value.pointer("/metadata/finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
        match propagation {
            Some(Propagation::Background) => finalizers.retain(|f| f != "orphan" && f != "foregroundDeletion"),
            Some(Propagation::Foreground) => {
                finalizers.retain(|f| f != "orphan");
                if !finalizers.iter().any(|f| f == "foregroundDeletion") {
                    finalizers.push(json!("foregroundDeletion"));
                }
            }
            Some(Propagation::Orphan) => {
                finalizers.retain(|f| f != "foregroundDeletion");
                if !finalizers.iter().any(|f| f == "orphan") {
                    finalizers.push(json!("orphan"));
                }
            }
            None => {}
        }
        let is_crd = kind.kind == "CustomResourceDefinition" && kind.group == "apiextensions.k8s.io";
        if is_crd && stored.meta("deletionTimestamp").is_empty() {
            finalizers.push(json!(crd::CLEANUP));
            let condition = json!({
                "type": "Terminating", "status": "True", "lastTransitionTime": rfc3339(self.now()),
                "reason": "InstanceDeletionPending",
                "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
            });
            match value["status"]["conditions"].as_array_mut() {
                Some(conditions) => conditions.push(condition),
                None => value["status"]["conditions"] = json!([condition]),
            }
        }
        let by_namespace = kind.kind == "Namespace"
            && value.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        if finalizers.is_empty() && !by_namespace {
            self.remove_now(kind, key);
            return None;
        }
        if stored.meta("deletionTimestamp").is_empty() {
            value["metadata"]["deletionTimestamp"] = Value::from(rfc3339(self.now()));
            if !by_namespace && !is_crd {
                value["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            }
            if !is_crd && let Some(generation) = value.pointer("/metadata/generation").and_then(Value::as_i64) {
                value["metadata"]["generation"] = json!(generation + 1);
            }
        }
        if kind.kind == "Namespace" {
            value["status"]["phase"] = json!("Terminating");
        }
        if let Some(metadata) = value["metadata"].as_object_mut() {
            if finalizers.is_empty() {
                metadata.remove("finalizers");
            } else {
                metadata.insert("finalizers".into(), Value::Array(finalizers));
            }
        }
        if value == stored.value {
            return Some(stored);
        }
        let pending = self.store.put(&kind.table, value);
        self.settle_deletion(kind, key);
        Some(pending)
    }

    /// Takes an object out of the store, and lets the controllers see it.
    pub(crate) fn remove_now(&mut self, kind: &Kind, key: &str) -> Option<Arc<Object>> {
        let last = self.store.remove(&kind.table, key)?;
        self.after_removal(kind, &last);
        Some(last)
    }

    /// Deletes in the background, as controllers do.
    pub(crate) fn delete_for_controller(&mut self, kind: &Arc<Kind>, key: &str) {
        self.delete_object(kind, key, Some(Propagation::Background));
    }

    /// Stores a controller's change; removes the object when it has no finalizer left.
    pub(crate) fn put_for_controller(&mut self, kind: &Arc<Kind>, key: &str, value: Value) {
        if is_released(&value) {
            self.remove_now(kind, key);
        } else {
            self.store.put(&kind.table, value);
        }
    }
}

fn success(ask: &Ask<'_>, stored: &Object) -> Value {
    let About { group, resource, name } = ask.about(&ask.info.name);
    let mut details = json!({"name": name, "kind": resource, "uid": stored.meta("uid")});
    if !group.is_empty() {
        details["group"] = json!(group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
