//! The CEL rules of a schema (`x-kubernetes-validations`): compiled once, run on every create and update.
//!
//! `self` is the value at the rule's node, `oldSelf` the correlated old value; a rule that reads `oldSelf` runs on updates only,
//! unless it has `optionalOldSelf`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use kube_cel::{
    KubeCelExt,
    cel::{
        Context, ExecutionError, Program, Value as Cel,
        objects::{Key, Map as CelMap, OptionalValue},
    },
};
use serde_json::Value;

use super::{
    FieldError,
    correlate::{Correlated, old_item},
    golang::{Num, child, subscript},
    node::{Node, RuleText},
};

/// A message made by an expression may not be longer than this.
const LONGEST_MESSAGE: usize = 10 * 1024;

thread_local! {
    /// The functions every rule can call; building the table is expensive, so each thread does it once.
    static FUNCTIONS: Context<'static> = functions();
    static CONVERSIONS: HashMap<&'static str, Program> = [
        ("date-time", "timestamp(text)"), ("date", "timestamp(text + 'T00:00:00Z')"), ("duration", "duration(text)"),
        ("byte", "base64.decode(text)"),
    ]
    .into_iter()
    .filter_map(|(format, source)| Some((format, Program::compile(source).ok()?)))
    .collect();
}

/// The standard functions, those of Kubernetes, and types as values (`type(self) == string`).
fn functions() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function("type", |value: Cel| -> Result<Cel, ExecutionError> { Ok(type_value(type_name(&value))) });
    for name in ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type"] {
        context.add_variable_from_value(name, type_value(name));
    }
    context
}

fn type_value(name: &str) -> Cel {
    Cel::String(Arc::new(format!("type {name}")))
}

fn type_name(value: &Cel) -> &'static str {
    match value {
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::Bool(_) => "bool",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Null => "null_type",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Function(..) | Cel::Opaque(_) => "dyn",
    }
}

/// The rules at a node and below it.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    rules: Vec<Rule>,
    resource: bool,
    items: Option<Box<Checks>>,
    properties: BTreeMap<String, Checks>,
    additional: Option<Box<Checks>>,
}

#[derive(Debug)]
struct Rule {
    text: RuleText,
    program: Program,
    uses_old: bool,
    message: Option<Program>,
    /// The normalised `fieldPath`, relative to the node.
    path: String,
}

impl Checks {
    /// Compiles every rule below `node`; `None` when there are none. Errors name the rule's place in the schema.
    pub(crate) fn compile(node: &Node, at: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        Self::compile_at(node, true, at, None, errors)
    }

    fn compile_at(
        node: &Node,
        root: bool,
        at: &str,
        uncorrelated: Option<&str>,
        errors: &mut Vec<FieldError>,
    ) -> Option<Self> {
        let mut checks = Self { resource: root || node.embedded, ..Self::default() };
        for (index, text) in node.rules.iter().enumerate() {
            let at = subscript(&child(at, "x-kubernetes-validations"), index);
            if let Some(rule) = Rule::compile(text, node, &at, uncorrelated, errors) {
                checks.rules.push(rule);
            }
        }
        let in_items = if node.list_type.as_deref() == Some("map") { uncorrelated } else { uncorrelated.or(Some(at)) };
        checks.items = node
            .items
            .as_deref()
            .and_then(|items| Self::compile_at(items, false, &child(at, "items"), in_items, errors))
            .map(Box::new);
        let properties = child(at, "properties");
        for (name, property) in &node.properties {
            if let Some(inner) = Self::compile_at(property, false, &subscript(&properties, name), uncorrelated, errors)
            {
                checks.properties.insert(name.clone(), inner);
            }
        }
        checks.additional = node
            .additional_schema()
            .and_then(|additional| {
                Self::compile_at(additional, false, &child(at, "additionalProperties"), uncorrelated, errors)
            })
            .map(Box::new);
        let empty = checks.rules.is_empty()
            && checks.items.is_none()
            && checks.properties.is_empty()
            && checks.additional.is_none();
        (!empty).then_some(checks)
    }

    /// Runs the rules on `value`.
    pub(crate) fn run(&self, value: &Value, old: Option<&Value>, node: &Node) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let correlated = old.map(|old| Correlated::new(value, old, node));
        self.walk(value, old, node, "", Ratchet { current: correlated, parent: None, root: true }, &mut errors);
        errors
    }

    fn walk(
        &self,
        value: &Value,
        old: Option<&Value>,
        node: &Node,
        path: &str,
        ratchet: Ratchet<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        if value.is_null() {
            return;
        }
        if !self.rules.is_empty() {
            self.evaluate(value, old.filter(|old| !old.is_null()), node, path, ratchet, errors);
        }
        match value {
            Value::Array(items) => {
                let (Some(checks), Some(item_node)) = (self.items.as_deref(), node.items.as_deref()) else { return };
                let olds = old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                for (index, item) in items.iter().enumerate() {
                    let old = old_item(node, olds, item);
                    checks.walk(item, old, item_node, &subscript(path, index), ratchet.index(index), errors);
                }
            }
            Value::Object(fields) => {
                let olds = old.and_then(Value::as_object);
                for (name, value) in fields {
                    let old = olds.and_then(|olds| olds.get(name));
                    if let (Some(checks), Some(inner)) = (self.additional.as_deref(), node.additional_schema()) {
                        checks.walk(value, old, inner, &subscript(path, name), ratchet.key(name), errors);
                    }
                    if let (Some(checks), Some(inner)) = (self.properties.get(name), node.properties.get(name)) {
                        checks.walk(value, old, inner, &child(path, name), ratchet.key(name), errors);
                    }
                }
            }
            _ => {}
        }
    }

    fn evaluate(
        &self,
        value: &Value,
        old: Option<&Value>,
        node: &Node,
        path: &str,
        ratchet: Ratchet<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        FUNCTIONS.with(|functions| {
            let this = to_cel(value, Some(node), self.resource);
            let uses_old = self.rules.iter().any(|rule| rule.uses_old);
            let that =
                old.filter(|_| uses_old).map(|old| to_cel(&aligned(old, value, node), Some(node), self.resource));
            let kind = Value::String(node.kind.clone().unwrap_or_default());
            for rule in &self.rules {
                if rule.uses_old && old.is_none() && !rule.text.optional_old_self {
                    continue;
                }
                let mut scope = functions.new_inner_scope();
                scope.add_variable_from_value("self", this.clone());
                if rule.text.optional_old_self {
                    let optional = that.clone().map_or_else(OptionalValue::none, OptionalValue::of);
                    scope.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(optional)));
                } else if let Some(that) = &that {
                    scope.add_variable_from_value("oldSelf", that.clone());
                }
                match rule.program.execute(&scope) {
                    Ok(Cel::Bool(true)) => {}
                    Ok(_) => {
                        if rule.uses_old || !ratchet.tolerates() {
                            let mut plain = functions.new_inner_scope();
                            plain.add_variable_from_value("self", this.clone());
                            if let Some(that) = &that {
                                plain.add_variable_from_value("oldSelf", that.clone());
                            }
                            errors.push(rule.failure(&plain, value, node, path));
                        }
                    }
                    Err(error) => {
                        errors.push(FieldError::invalid(path, &kind, &evaluation_text(&error, &rule.text)));
                    }
                }
            }
        });
    }
}

impl Rule {
    /// Compiles a rule at `at`; `uncorrelated` is the list in whose items old values cannot be found.
    fn compile(
        text: &RuleText,
        node: &Node,
        at: &str,
        uncorrelated: Option<&str>,
        errors: &mut Vec<FieldError>,
    ) -> Option<Self> {
        let before = errors.len();
        text.check(at, errors);
        let path = normalised(&text.field_path, node).unwrap_or_else(|| {
            let shown = Value::String(text.field_path.clone());
            errors.push(FieldError::invalid(&child(at, "fieldPath"), &shown, "must be a valid path"));
            String::new()
        });
        if text.rule.trim().is_empty() {
            return None;
        }
        let program = compiled(&text.rule, text, &child(at, "rule"), errors)?;
        let uses_old = program.references().has_variable("oldSelf");
        if let Some(list) = uncorrelated.filter(|_| uses_old) {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            errors.push(FieldError::invalid(&child(at, "rule"), &Value::String(text.rule.clone()), &detail));
        }
        if text.optional_old_self && !uses_old {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(&child(at, "optionalOldSelf"), &Value::Bool(true), detail));
        }
        let message = match text.message_expression.trim() {
            "" => None,
            expression => Some(compiled(expression, text, &child(at, "messageExpression"), errors)?),
        };
        (errors.len() == before).then(|| Self { text: text.clone(), program, uses_old, message, path })
    }

    /// The error of a rule that is not true.
    fn failure(&self, scope: &Context<'_>, value: &Value, node: &Node, path: &str) -> FieldError {
        let path = if self.path.is_empty() {
            path.to_owned()
        } else if self.path.starts_with('[') {
            format!("{path}{}", self.path)
        } else {
            child(path, &self.path)
        };
        let made = self.message.as_ref().and_then(|message| match message.execute(scope) {
            Ok(Cel::String(text)) => {
                let text = text.trim();
                (!text.is_empty() && !text.contains('\n') && text.len() <= LONGEST_MESSAGE).then(|| text.to_owned())
            }
            _ => None,
        });
        let detail = made.unwrap_or_else(|| {
            if self.text.message.is_empty() {
                format!("failed rule: {}", self.text.name())
            } else {
                self.text.message.trim().to_owned()
            }
        });
        let omitted = matches!(node.kind.as_deref(), Some("object" | "array"));
        match self.text.reason.as_deref() {
            Some("FieldValueForbidden") => FieldError::forbidden(&path, &detail),
            Some("FieldValueRequired") => FieldError::required(&path, &detail),
            Some("FieldValueDuplicate") if omitted => FieldError::duplicate_omitted(&path),
            Some("FieldValueDuplicate") => FieldError::duplicate(&path, value),
            _ if omitted => FieldError::invalid_omitted(&path, &detail),
            _ => FieldError::invalid(&path, value, &detail),
        }
    }
}

/// The old value with its sets and keyed lists in the new value's order, because their order has no meaning to a rule.
fn aligned(old: &Value, new: &Value, node: &Node) -> Value {
    match (old, new) {
        (Value::Object(olds), Value::Object(news)) => {
            let fields = olds.iter().map(|(name, old)| match (news.get(name), node.field(name)) {
                (Some(new), Some(inner)) => (name.clone(), aligned(old, new, inner)),
                _ => (name.clone(), old.clone()),
            });
            Value::Object(fields.collect())
        }
        (Value::Array(olds), Value::Array(news)) => {
            let same = |old: &Value, new: &Value| match node.list_type.as_deref() {
                Some("set") => old == new,
                Some("map") => node.list_map_keys.iter().all(|key| old.get(key) == new.get(key)),
                _ => false,
            };
            let place = |old: &Value| news.iter().position(|new| same(old, new)).unwrap_or(news.len());
            let mut items: Vec<&Value> = olds.iter().collect();
            items.sort_by_key(|old| place(old));
            Value::Array(items.into_iter().cloned().collect())
        }
        (old, _) => old.clone(),
    }
}

/// Compiles an expression; an undeclared function is an error too.
fn compiled(source: &str, text: &RuleText, at: &str, errors: &mut Vec<FieldError>) -> Option<Program> {
    let mut wrong = |detail: String| {
        errors.push(FieldError::shown(at, &text.to_string(), &format!("compilation failed: ERROR: <input>:{detail}")));
    };
    let program = match Program::compile(source) {
        Ok(program) => program,
        Err(error) => {
            wrong(format!("1:1: Syntax error: {error}"));
            return None;
        }
    };
    let mut names: Vec<String> = program.references().functions().into_iter().map(str::to_owned).collect();
    names.sort();
    let is_name =
        |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.starts_with(['_', '@']);
    if let Some(name) = names.into_iter().find(|name| is_name(name) && !is_declared(name)) {
        let column = source.find(&format!("{name}(")).map_or(0, |at| at + name.len());
        let dots = ".".repeat(column);
        wrong(format!("1:{}: undeclared reference to '{name}' (in container '')\n | {source}\n | {dots}^", column + 1));
        return None;
    }
    Some(program)
}

/// Whether the functions at hand have one of that name.
fn is_declared(name: &str) -> bool {
    let Ok(call) = Program::compile(&format!("{name}()")) else { return true };
    FUNCTIONS.with(|functions| {
        !matches!(call.execute(&functions.new_inner_scope()), Err(ExecutionError::UndeclaredReference(missing)) if *missing == name)
    })
}

/// The old value nearest to a node, to judge whether its errors are tolerated.
#[derive(Clone, Copy)]
struct Ratchet<'a> {
    current: Option<Correlated<'a>>,
    parent: Option<Correlated<'a>>,
    root: bool,
}

impl Ratchet<'_> {
    fn key(self, name: &str) -> Self {
        match self.current {
            None => self,
            Some(_) if self.root && matches!(name, "apiVersion" | "kind") => {
                Self { current: None, parent: None, root: false }
            }
            Some(current) => Self { current: current.key(name), parent: self.current, root: false },
        }
    }

    fn index(self, index: usize) -> Self {
        match self.current {
            None => self,
            Some(current) => Self { current: current.index(index), parent: self.current, root: false },
        }
    }

    fn tolerates(self) -> bool {
        self.current.or(self.parent).is_some_and(Correlated::unchanged)
    }
}

fn evaluation_text(error: &ExecutionError, rule: &RuleText) -> String {
    let name = rule.name();
    let cause = match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        ExecutionError::NoSuchOverload
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::UnexpectedType { .. } => {
            return format!(
                "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {name}"
            );
        }
        other => other.to_string(),
    };
    format!("{cause} evaluating rule: {name}")
}

/// A `fieldPath` as paths are printed: fields joined by dots, map keys in brackets; `None` where it leads nowhere.
fn normalised(field_path: &str, node: &Node) -> Option<String> {
    let mut out = String::new();
    let mut rest = field_path;
    let mut node = Some(node);
    while !rest.is_empty() {
        let name;
        if let Some(tail) = rest.strip_prefix("['") {
            let (quoted, tail) = tail.split_once("']")?;
            name = quoted.replace("\\'", "'");
            rest = tail;
        } else {
            let tail = rest.strip_prefix('.')?;
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            name = tail[..end].to_owned();
            rest = &tail[end..];
        }
        let current = node?;
        if let Some(property) = current.properties.get(&name) {
            out = child(&out, &name);
            node = Some(property);
        } else if current.properties.is_empty() && current.additional.is_some() {
            out = subscript(&out, &name);
            node = current.additional_schema();
        } else {
            return None;
        }
    }
    Some(out)
}

/// A value as CEL sees it: field names escaped, formats turned into times, durations and bytes, `number` always a double.
fn to_cel(value: &Value, node: Option<&Node>, resource: bool) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match (Num::of(number), node.and_then(|node| node.kind.as_deref())) {
            (Num::Int(value), Some("number")) => Cel::Float(Num::Int(value).float()),
            (Num::Int(value), _) => Cel::Int(value),
            #[allow(clippy::cast_possible_truncation)] // A whole float where an integer is declared.
            (Num::Float(value), Some("integer")) if value.fract() == 0.0 => Cel::Int(value as i64),
            (Num::Float(value), _) => Cel::Float(value),
        },
        Value::String(text) => {
            match node.and_then(|node| node.format.as_deref()).and_then(|format| convert(format, text)) {
                Some(converted) => converted,
                None => Cel::String(Arc::new(text.clone())),
            }
        }
        Value::Array(items) => {
            let node = node.and_then(|node| node.items.as_deref());
            Cel::List(Arc::new(
                items.iter().map(|item| to_cel(item, node, node.is_some_and(|node| node.embedded))).collect(),
            ))
        }
        Value::Object(fields) => {
            let mut map = HashMap::with_capacity(fields.len());
            for (name, value) in fields {
                let property = node.and_then(|node| node.properties.get(name));
                let declared =
                    property.is_some() || (resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
                let inner = property.or_else(|| node.and_then(Node::additional_schema));
                let key = if declared { escaped(name) } else { name.clone() };
                let embedded = inner.is_some_and(|inner| inner.embedded);
                map.insert(Key::String(Arc::new(key)), to_cel(value, inner, embedded));
            }
            Cel::Map(CelMap { map: Arc::new(map) })
        }
    }
}

fn convert(format: &str, text: &str) -> Option<Cel> {
    CONVERSIONS.with(|conversions| {
        let program = conversions.get(format)?;
        FUNCTIONS.with(|functions| {
            let mut scope = functions.new_inner_scope();
            scope.add_variable_from_value("text", Cel::String(Arc::new(text.to_owned())));
            program.execute(&scope).ok()
        })
    })
}

/// A field name as a CEL identifier.
fn escaped(name: &str) -> String {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}
