//! Values, numbers and paths the way Go prints them, because kube-apiserver's texts carry them.

use regex::Regex;
use serde_json::Value;

/// A JSON number as Kubernetes decodes it: an integer when it was written as one and fits, a float otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Num {
    Int(i64),
    Float(f64),
}

impl Num {
    pub(crate) fn of(number: &serde_json::Number) -> Self {
        number.as_i64().map_or_else(|| Self::Float(number.as_f64().unwrap_or(f64::NAN)), Self::Int)
    }

    #[allow(clippy::cast_precision_loss)] // The original converts the same way.
    pub(crate) fn float(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

/// A number as `%v` prints it.
pub(crate) fn number_text(number: Num) -> String {
    match number {
        Num::Int(value) => value.to_string(),
        Num::Float(value) => float_text(value),
    }
}

/// Shortest digits, with an exponent below `10^-4` and from `10^6` up.
fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// A value as `encoding/json` writes it: sorted keys, HTML characters escaped.
pub(crate) fn json_text(value: &Value) -> String {
    let mut out = String::new();
    write_json(value, &mut out);
    out
}

fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => match Num::of(number) {
            Num::Int(value) => out.push_str(&value.to_string()),
            Num::Float(value) => out.push_str(&json_float(value)),
        },
        Value::String(text) => write_json_string(text, out),
        Value::Array(items) => {
            out.push('[');
            separated(items, out, write_json);
            out.push(']');
        }
        Value::Object(fields) => {
            let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            out.push('{');
            separated(sorted, out, |(key, value), out| {
                write_json_string(key, out);
                out.push(':');
                write_json(value, out);
            });
            out.push('}');
        }
    }
}

fn separated<T>(items: impl IntoIterator<Item = T>, out: &mut String, write: impl Fn(T, &mut String)) {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(item, out);
    }
}

fn json_float(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        return match text.split_once("e-") {
            Some((mantissa, exponent)) => format!("{mantissa}e-{exponent}"),
            None => text.replace('e', "e+"),
        };
    }
    format!("{value}")
}

fn write_json_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                push_escape(out, 'u', 4, c);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A backslash, the letter, and the character's number in so many hexadecimal digits.
fn push_escape(out: &mut String, letter: char, digits: usize, c: char) {
    out.push('\\');
    out.push(letter);
    for place in (0..digits).rev() {
        let digit = (c as u32 >> (4 * place)) & 0xf;
        out.extend(char::from_digit(digit, 16));
    }
}

/// A string as `%q` prints it.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' | '\u{7f}' => push_escape(&mut out, 'x', 2, c),
            '\u{80}'..='\u{a0}' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{feff}' => {
                push_escape(&mut out, 'u', 4, c);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The part of an error that shows the bad value: scalars plainly, strings quoted, the rest as JSON.
pub(crate) fn bad_value(value: &Value) -> String {
    match value {
        Value::Number(number) => number_text(Num::of(number)),
        Value::String(text) => quoted(text),
        other => json_text(other),
    }
}

/// A path one field deeper; the root is the empty path.
pub(crate) fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// A path subscripted by a key or an index.
pub(crate) fn subscript(path: &str, key: impl std::fmt::Display) -> String {
    format!("{path}[{key}]")
}

/// Compiles a pattern. Constructs that only Go supports (a lone `{`, `\Q…\E`, classes of ASCII only) are not translated.
pub(crate) fn regex(pattern: &str) -> Result<Regex, String> {
    regex::RegexBuilder::new(pattern).size_limit(64 << 20).build().map_err(|error| {
        let text = error.to_string();
        let why = match text.lines().last().unwrap_or_default().trim_start_matches("error: ") {
            "unclosed character class" => "missing closing ]",
            "unclosed group" => "missing closing )",
            "unopened group" => "unexpected )",
            other => other,
        };
        format!("error parsing regexp: {why}: `{pattern}`")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn floats_print_as_percent_v_does() {
        for (value, text) in [
            (0.5, "0.5"),
            (100.0, "100"),
            (1_000_000.0, "1e+06"),
            (1.5e6, "1.5e+06"),
            (123_456_789.0, "1.23456789e+08"),
            (0.00001, "1e-05"),
            (-2.25, "-2.25"),
        ] {
            assert_eq!(number_text(Num::Float(value)), text);
        }
    }

    #[test]
    fn json_is_written_with_sorted_keys_and_escaped_html() {
        assert_eq!(json_text(&json!({"b": 1.0, "a": "<&>"})), r#"{"a":"\u003c\u0026\u003e","b":1}"#);
        assert_eq!(json_text(&json!([1e21, 1e-7, true, null])), "[1e+21,1e-7,true,null]");
    }

    #[test]
    fn patterns_match_and_a_broken_one_is_refused_in_the_words_of_go() {
        for (pattern, yes, no) in
            [(r"^[\w.-]+$", "a_b.c-1", "a b"), (r"^a{2}$", "aa", "a"), (r"^[[:alpha:]]+$", "ab", "a1")]
        {
            let compiled = regex(pattern).unwrap();
            assert!(compiled.is_match(yes), "{pattern} should match {yes}");
            assert!(!compiled.is_match(no), "{pattern} should not match {no}");
        }
        assert_eq!(regex("[").unwrap_err(), "error parsing regexp: missing closing ]: `[`");
    }
}
