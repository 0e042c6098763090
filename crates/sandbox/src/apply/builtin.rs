//! The merge rules of the built-in kinds: their maps, sets, keyed lists and units.
//!
//! A line is `path rule`, with `[]` for the items of a list: `map` merges entry by entry, `unit` is replaced as a whole, `set` and
//! `keys a,b=default` are lists that merge. Everything else is a struct that merges field by field, or a list that does not merge.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    path::Fields,
    types::{Atom, Field, List, ListMerge, METADATA, Object, Rest, Scalar, Type, TypeSchema, scalar},
};

struct Rules {
    lines: &'static str,
    /// The fields that are always there, even in an empty object.
    blank: &'static str,
    status: Status,
}

/// How the kind treats its status.
enum Status {
    /// There is no status, or it is written with the rest.
    None,
    /// It has its own endpoint, which resets the given fields.
    Subresource(&'static [&'static [&'static str]]),
}

fn rules(group: &str, kind: &str) -> Rules {
    let plain = |lines| Rules { lines, blank: "{}", status: Status::None };
    let with_status = |lines, blank| Rules { lines, blank, status: Status::Subresource(&[&["spec"]]) };
    match (group, kind) {
        ("", "Service") => with_status(
            "spec.selector map unit\nspec.ports keys port,protocol=TCP\nspec.externalIPs list\nstatus.conditions keys type\nstatus.loadBalancer.ingress list",
            r#"{"spec":{},"status":{"loadBalancer":{}}}"#,
        ),
        ("", "ConfigMap") => plain("data map\nbinaryData map"),
        ("", "Secret") => plain("data map\nstringData map"),
        ("", "Namespace") => {
            with_status("spec.finalizers list\nstatus.conditions keys type", r#"{"spec":{},"status":{}}"#)
        }
        ("", "Event") => Rules {
            lines: "involvedObject unit\nrelated unit",
            blank: r#"{"involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":""}"#,
            status: Status::None,
        },
        ("events.k8s.io", "Event") => Rules {
            lines: "regarding unit\nrelated unit",
            blank: r#"{"eventTime":null,"regarding":{},"deprecatedSource":{},"deprecatedFirstTimestamp":null,"deprecatedLastTimestamp":null}"#,
            status: Status::None,
        },
        ("", "ServiceAccount") => plain("secrets keys name\nimagePullSecrets list"),
        ("", "Endpoints") => plain("subsets list"),
        ("coordination.k8s.io", "Lease") => Rules { lines: "", blank: r#"{"spec":{}}"#, status: Status::None },
        ("discovery.k8s.io", "EndpointSlice") => plain("endpoints list\nports list"),
        ("networking.k8s.io", "Ingress") => with_status(
            "spec.rules list\nspec.tls list\nspec.defaultBackend.resource unit\nspec.defaultBackend.service.port unit\nstatus.loadBalancer.ingress list",
            r#"{"spec":{},"status":{"loadBalancer":{}}}"#,
        ),
        ("networking.k8s.io", "IngressClass") => {
            Rules { lines: "spec.parameters struct", blank: r#"{"spec":{}}"#, status: Status::None }
        }
        ("apps", "Deployment") => Rules {
            lines: "spec.selector unit\nspec.template.metadata.labels map\nspec.template.metadata.annotations map\nstatus.conditions keys type",
            blank: r#"{"spec":{"selector":null,"strategy":{},"template":{"metadata":{},"spec":{"containers":null}}},"status":{}}"#,
            status: Status::Subresource(&[&["spec"], &["metadata", "labels"]]),
        },
        ("apiextensions.k8s.io", "CustomResourceDefinition") => Rules {
            lines: "spec.versions list\nspec.names.shortNames list\nspec.names.categories list\nstatus.conditions keys type\nstatus.storedVersions list",
            blank: r#"{"spec":{"group":"","names":{"plural":"","kind":""},"scope":"","versions":null},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}}"#,
            status: Status::Subresource(&[&["metadata"], &["spec"]]),
        },
        ("rbac.authorization.k8s.io", "ClusterRole") => plain("rules list\naggregationRule.clusterRoleSelectors list"),
        ("rbac.authorization.k8s.io", "Role") => plain("rules list"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => Rules {
            lines: "roleRef unit\nsubjects list",
            blank: r#"{"roleRef":{"apiGroup":"","kind":"","name":""}}"#,
            status: Status::None,
        },
        _ => Rules {
            lines: "status.conditions keys type",
            blank: "{}",
            status: Status::Subresource(&[&["spec"], &["metadata"]]),
        },
    }
}

/// The merge rules of a built-in kind.
pub(super) fn schema(group: &str, _version: &str, kind: &str) -> TypeSchema {
    let rules = rules(group, kind);
    let mut shape = Shape::default();
    shape.read("", rules.lines);
    let mut root = shape.object();
    root.fields.insert("metadata".to_owned(), Field { kind: Type::Known(METADATA.clone()), default: None });
    for name in ["apiVersion", "kind"] {
        root.fields.insert(name.to_owned(), Field { kind: Type::of(scalar(Scalar::Text)), default: None });
    }
    let blank: Value = serde_json::from_str(rules.blank).unwrap_or_else(|_| json!({}));
    let (status_subresource, status_reset) = match rules.status {
        Status::None => (false, Fields::default()),
        Status::Subresource(reset) => (true, Fields::of(reset)),
    };
    TypeSchema {
        root: Arc::new(Atom { map: Some(root), ..Atom::default() }),
        reset: if status_subresource { Fields::of(&[&["status"]]) } else { Fields::default() },
        status_reset,
        status_subresource,
        blank,
    }
}

/// The rules as a tree.
#[derive(Debug, Default)]
struct Shape {
    rule: Option<Rule>,
    fields: BTreeMap<String, Shape>,
    items: Option<Box<Shape>>,
}

#[derive(Clone, Debug)]
enum Rule {
    Map,
    MapUnit,
    Unit,
    Set,
    Keyed(Vec<(String, Option<String>)>),
    Plain,
}

impl Shape {
    fn read(&mut self, below: &str, lines: &str) {
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let mut words = line.split_whitespace();
            let path = words.next().unwrap_or_default();
            let rule = match (words.next(), words.next()) {
                (Some("map"), Some("unit")) => Rule::MapUnit,
                (Some("map"), _) => Rule::Map,
                (Some("unit"), _) => Rule::Unit,
                (Some("set"), _) => Rule::Set,
                (Some("keys"), Some(keys)) => Rule::Keyed(
                    keys.split(',')
                        .map(|key| match key.split_once('=') {
                            Some((key, default)) => (key.to_owned(), Some(default.to_owned())),
                            None => (key.to_owned(), None),
                        })
                        .collect(),
                ),
                _ => Rule::Plain,
            };
            let path = if below.is_empty() { path.to_owned() } else { format!("{below}.{path}") };
            let mut shape = &mut *self;
            for part in path.split('.') {
                let (name, items) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
                shape = shape.fields.entry(name.to_owned()).or_default();
                if items {
                    shape = shape.items.get_or_insert_default();
                }
            }
            shape.rule = Some(rule);
        }
    }

    fn object(self) -> Object {
        let fields =
            self.fields.into_iter().map(|(name, shape)| (name, Field { kind: shape.kind(), default: None })).collect();
        Object { fields, rest: Rest::Named(Type::Open), atomic: false }
    }

    fn kind(mut self) -> Type {
        let items = self.items.take().map(|items| *items);
        let list =
            |element: Type, merge: ListMerge| Type::of(Atom { list: Some(List { element, merge }), ..Atom::default() });
        let entries = |atomic: bool| {
            let any = Type::of(scalar(Scalar::Any));
            Type::of(Atom {
                map: Some(Object { fields: BTreeMap::new(), rest: Rest::Entries(any), atomic }),
                ..Atom::default()
            })
        };
        match self.rule.take() {
            Some(Rule::Map) => entries(false),
            Some(Rule::MapUnit) => entries(true),
            Some(Rule::Unit) => {
                Type::of(Atom { map: Some(Object { atomic: true, ..self.object() }), ..Atom::default() })
            }
            Some(Rule::Set) => list(Type::of(scalar(Scalar::Any)), ListMerge::Set),
            Some(Rule::Keyed(keys)) => {
                let mut item = items.unwrap_or_default().object();
                for (key, default) in &keys {
                    if let Some(default) = default {
                        let kind = Type::of(scalar(Scalar::Any));
                        item.fields.insert(key.clone(), Field { kind, default: Some(json!(default)) });
                    }
                }
                let element = Type::of(Atom { map: Some(item), ..Atom::default() });
                list(element, ListMerge::Keyed(keys.into_iter().map(|(key, _)| key).collect()))
            }
            None if !self.fields.is_empty() => Type::of(Atom { map: Some(self.object()), ..Atom::default() }),
            Some(Rule::Plain) | None => Type::Open,
        }
    }
}
