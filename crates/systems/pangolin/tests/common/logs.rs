//! The log lines of a test process, to be looked at.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, Once};
use std::thread::ThreadId;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// One line: its level, and its fields; the text is the field `message`.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) level: Level,
    thread: ThreadId,
    pub(crate) fields: BTreeMap<String, String>,
}

impl Line {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

struct Read<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Read<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

struct Kept;

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

impl<S: Subscriber> Layer<S> for Kept {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target().starts_with("signpost_system_pangolin") {
            let mut fields = BTreeMap::new();
            event.record(&mut Read(&mut fields));
            let (level, thread) = (*event.metadata().level(), std::thread::current().id());
            LINES.lock().unwrap().push(Line { level, thread, fields });
        }
    }
}

/// Keeps the lines of this process. Every operator of these tests calls it first.
pub(crate) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Kept)).unwrap();
    });
}

/// The lines about this namespace.
pub(crate) fn about(namespace: &str) -> Vec<Line> {
    LINES.lock().unwrap().iter().filter(|line| line.field("namespace") == namespace).cloned().collect()
}

/// The lines of this thread, which are those of a test whose clock is paused.
pub(crate) fn of_this_thread() -> Vec<Line> {
    let thread = std::thread::current().id();
    LINES.lock().unwrap().iter().filter(|line| line.thread == thread).cloned().collect()
}
