//! Log lines: flat JSON for machines, one readable line for people.
//!
//! ```text
//!  {"time":"2026-01-01T00:00:00.000Z","level":"INFO","msg":"pass ended","system":"powerdns","key":"example.com.","outcome":"done"}
//!  00:00:00 INFO  pass ended system=powerdns key=example.com. outcome=done
//! ```
//!
//! The fields of the spans around an event are part of its line, outermost first; an inner field of the same name wins. A provider's
//! `Secret` prints none of its text.

use std::{
    fmt::{self, Write as _},
    io::{self, IsTerminal, Write},
    str::FromStr,
};

use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    EnvFilter, Layer,
    fmt::MakeWriter,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
    util::SubscriberInitExt,
};

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Format {
    /// One flat JSON object per line: `time`, `level`, `msg`, then the fields.
    Json,
    /// Readable text; coloured on a terminal only.
    #[default]
    Text,
}

impl FromStr for Format {
    type Err = LogError;

    fn from_str(text: &str) -> Result<Self, LogError> {
        match text {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            other => Err(LogError::Format(other.to_owned())),
        }
    }
}

/// Why logging cannot be set up.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Not a format.
    #[error("unknown log format {0:?}: use \"json\" or \"text\"")]
    Format(String),
    /// Not a level.
    #[error("unknown log level {0:?}: use \"debug\", \"info\", \"warn\" or \"error\"")]
    Level(String),
    /// Set up before.
    #[error("logging is already set up")]
    Twice,
}

/// Sets up logging for the process, to standard error.
pub fn init(level: &str, format: Format) -> Result<(), LogError> {
    let filter = filter(level)?;
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = Lines { format, colour, writer: io::stderr };
    tracing_subscriber::registry().with(filter).with(lines).try_init().map_err(|_| LogError::Twice)
}

/// Checks a level without setting anything up.
pub fn check_level(level: &str) -> Result<(), LogError> {
    filter(level).map(drop)
}

fn filter(level: &str) -> Result<EnvFilter, LogError> {
    // At this level the HTTP and TLS layers would log more than everything else.
    const DEBUG: &str =
        "debug,h2=info,hyper=info,hyper_util=info,rustls=info,tower=info,hickory_proto=info,hickory_server=info";
    let directives = match level {
        "debug" => DEBUG,
        "info" | "warn" | "error" => level,
        other => return Err(LogError::Level(other.to_owned())),
    };
    EnvFilter::try_new(directives).map_err(|_| LogError::Level(level.to_owned()))
}

struct Lines<W> {
    format: Format,
    colour: bool,
    writer: W,
}

/// Fields in the order they were given; a later one of the same name replaces the earlier. The text of the line is set first: a field that
/// is called `message` does not replace it.
#[derive(Clone, Debug, Default)]
struct Fields(Vec<(String, Value)>);

impl Fields {
    fn set(&mut self, name: &str, value: Value) {
        // The three names that every line has are taken.
        let name = match name {
            "message" if self.0.iter().any(|(have, _)| have == "msg") => "message",
            "message" => "msg",
            "time" => "time_",
            "level" => "level_",
            "msg" => "msg_",
            name => name.strip_prefix("r#").unwrap_or(name),
        };
        match self.0.iter_mut().find(|(have, _)| have == name) {
            Some((_, have)) => *have = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), Value::from(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), Value::from(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field.name(), Value::from(format!("{value:?}")));
    }
}

impl<S, W> Layer<S> for Lines<W>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(tracing_subscriber::registry::Scope::from_root) {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                for (name, value) in &of_span.0 {
                    fields.set(name, value.clone());
                }
            }
        }
        event.record(&mut fields);
        let message = match fields.0.iter().position(|(name, _)| name == "msg") {
            Some(index) => fields.0.remove(index).1,
            None => Value::from(""),
        };
        let level = *event.metadata().level();
        let now = Timestamp::now();
        let mut line = match self.format {
            Format::Json => json_line(now, level, &message, &fields),
            Format::Text => text_line(now, level, &message, &fields, self.colour),
        };
        line.push('\n');
        // There is nowhere to report a failing log to.
        let _ = self.writer.make_writer().write_all(line.as_bytes());
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARN",
        Level::INFO => "INFO",
        _ => "DEBUG",
    }
}

fn json_line(now: Timestamp, level: Level, message: &Value, fields: &Fields) -> String {
    let mut line = format!("{{\"time\":\"{now:.3}\",\"level\":\"{}\",\"msg\":{message}", level_name(level));
    for (name, value) in &fields.0 {
        line.push(',');
        line.push_str(&Value::from(name.as_str()).to_string());
        line.push(':');
        line.push_str(&value.to_string());
    }
    line.push('}');
    line
}

fn text_line(now: Timestamp, level: Level, message: &Value, fields: &Fields, colour: bool) -> String {
    let (paint, dim, plain) = match (colour, level) {
        (false, _) => ("", "", ""),
        (true, Level::ERROR) => ("\x1b[31m", "\x1b[2m", "\x1b[0m"),
        (true, Level::WARN) => ("\x1b[33m", "\x1b[2m", "\x1b[0m"),
        (true, Level::INFO) => ("\x1b[32m", "\x1b[2m", "\x1b[0m"),
        (true, _) => ("\x1b[34m", "\x1b[2m", "\x1b[0m"),
    };
    let time = now.to_zoned(TimeZone::UTC).strftime("%H:%M:%S").to_string();
    let mut line = format!("{dim}{time}{plain} {paint}{:<5}{plain} {}", level_name(level), bare(message));
    for (name, value) in &fields.0 {
        // Writing to a string cannot fail.
        let _ = write!(line, " {dim}{name}={plain}{}", quoted(value));
    }
    line
}

/// Text as it is, without control characters: a log entry is always one line.
fn bare(value: &Value) -> String {
    match value {
        Value::String(text) => text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect(),
        other => other.to_string(),
    }
}

fn quoted(value: &Value) -> String {
    match value {
        Value::String(text)
            if !text.is_empty()
                && text.chars().all(|char| !char.is_whitespace() && !char.is_control() && char != '"') =>
        {
            text.clone()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(format: Format, log: impl FnOnce()) -> Vec<String> {
        let sink = Sink::default();
        let writer = sink.clone();
        let layer = Lines { format, colour: false, writer: move || writer.clone() };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let bytes = sink.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn json_lines_are_flat_and_begin_with_time_level_msg() {
        let lines = lines(Format::Json, || {
            let _span = tracing::info_span!("pass", system = "powerdns", key = "example.com.").entered();
            tracing::warn!(count = 3, ok = true, share = 0.5, error = %"no \"answer\"\nat all", "it failed");
        });
        assert_eq!(lines.len(), 1);
        let rest = lines[0].split_once("\",\"level\"").unwrap();
        assert!(rest.0.starts_with("{\"time\":\"20") && rest.0.ends_with('Z'), "{}", lines[0]);
        assert_eq!(
            rest.1,
            r#":"WARN","msg":"it failed","system":"powerdns","key":"example.com.","count":3,"ok":true,"share":0.5,"error":"no \"answer\"\nat all"}"#
        );
        let parsed: serde_json::Map<String, Value> = serde_json::from_str(&lines[0]).unwrap();
        assert!(parsed.values().all(|value| !value.is_object() && !value.is_array()));
    }

    #[test]
    fn a_field_cannot_take_the_place_of_time_level_or_msg() {
        let lines = lines(Format::Json, || tracing::info!(level = "x", time = 1, message = "why", "hello"));
        let parsed: serde_json::Map<String, Value> = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!((parsed["level"].as_str(), parsed["msg"].as_str()), (Some("INFO"), Some("hello")));
        assert_eq!((parsed["level_"].as_str(), parsed["time_"].as_i64()), (Some("x"), Some(1)));
        assert_eq!(parsed["message"].as_str(), Some("why"));
    }

    #[test]
    fn the_innermost_field_of_a_name_wins() {
        let lines = lines(Format::Json, || {
            let _outer = tracing::info_span!("outer", key = "a").entered();
            let _inner = tracing::info_span!("inner", key = "b").entered();
            tracing::debug!("hello");
        });
        assert!(lines[0].ends_with(r#""level":"DEBUG","msg":"hello","key":"b"}"#), "{}", lines[0]);
    }

    #[test]
    fn text_is_one_line_with_quotes_where_needed() {
        let lines = lines(Format::Text, || tracing::info!(key = "a", error = "two words\nand a line", "hello\nthere"));
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with(r#" INFO  hello there key=a error="two words\nand a line""#), "{}", lines[0]);
    }

    #[test]
    fn levels_are_checked_and_the_error_lists_the_valid_ones() {
        for good in ["debug", "info", "warn", "error"] {
            assert_eq!(check_level(good), Ok(()), "{good}");
        }
        for bad in ["", "loud", "INFO", "off", "trace", "warning", "info,signpost_engine=debug"] {
            let error = check_level(bad).unwrap_err().to_string();
            assert!(error.contains("use \"debug\", \"info\""), "{bad}: {error}");
        }
    }

    #[test]
    fn formats_are_json_or_text() {
        assert_eq!("json".parse(), Ok(Format::Json));
        assert!("xml".parse::<Format>().unwrap_err().to_string().contains("\"json\" or \"text\""));
    }
}
