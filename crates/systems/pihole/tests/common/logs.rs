//! Log lines of this test process, kept so that a test can read those about its Ingresses.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, Once, PoisonError};

use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    pub level: String,
    pub message: String,
    pub fields: BTreeMap<String, String>,
}

impl LogLine {
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

static LINES: Mutex<Vec<LogLine>> = Mutex::new(Vec::new());

struct Keep;

struct Visitor(LogLine);

impl tracing::field::Visit for Visitor {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.0.message = text;
        } else {
            self.0.fields.insert(field.name().to_owned(), text);
        }
    }

    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        self.0.fields.insert(field.name().to_owned(), value.to_owned());
    }
}

impl<S: tracing::Subscriber> Layer<S> for Keep {
    fn on_event(&self, event: &tracing::Event<'_>, _context: Context<'_, S>) {
        let target = event.metadata().target();
        if !target.starts_with("signpost_system_pihole") && target != "signpost_engine::refusals" {
            return;
        }
        let level = event.metadata().level().to_string();
        let mut visitor = Visitor(LogLine { level, message: String::new(), fields: BTreeMap::new() });
        event.record(&mut visitor);
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(visitor.0);
    }
}

/// Starts keeping lines, once per process.
pub fn capture() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(Keep);
        tracing::subscriber::set_global_default(subscriber).expect("nobody else logs here");
    });
}

/// The lines with this message about this Ingress (`namespace/name`).
pub fn about(ingress: &str, message: &str) -> Vec<LogLine> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|line| line.message == message && line.field("ingress") == ingress).cloned().collect()
}

/// The lines with this message about this Pi-hole.
pub fn of_instance(instance: &str, message: &str) -> Vec<LogLine> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|line| line.message == message && line.field("instance") == instance).cloned().collect()
}

/// The engine's own lines about refusals of this Ingress (`namespace/name`).
pub fn of_the_engine(ingress: &str) -> Vec<LogLine> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let object = format!("Ingress {ingress}");
    lines.iter().filter(|line| line.message == "refused" && line.field("object") == object).cloned().collect()
}

/// All lines so far, as one text: to search for secrets.
pub fn everything() -> String {
    format!("{:?}", LINES.lock().unwrap_or_else(PoisonError::into_inner))
}
