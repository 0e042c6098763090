//! Values, numbers, paths and regular expressions the way Go prints and reads them, because kube-apiserver's texts carry them.

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

/// Compiles a pattern written for Go: Perl classes are ASCII, a lone `{` is itself, and classes do not nest.
pub(crate) fn regex(pattern: &str) -> Result<Regex, String> {
    regex::RegexBuilder::new(&translate(pattern))
        .size_limit(64 << 20)
        .build()
        .map_err(|error| format!("error parsing regexp: {}", parse_error(&error.to_string(), pattern)))
}

/// The commonest mistakes in Go's words, the others in ours.
fn parse_error(text: &str, pattern: &str) -> String {
    let kind = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
    match kind {
        "unclosed character class" => {
            let from = pattern.rfind('[').unwrap_or(0);
            format!("missing closing ]: `{}`", &pattern[from..])
        }
        "unclosed group" => format!("missing closing ): `{pattern}`"),
        "unopened group" => format!("unexpected ): `{pattern}`"),
        "repetition operator missing expression" => {
            let operator = pattern.chars().find(|c| matches!(c, '*' | '+' | '?')).unwrap_or('*');
            format!("missing argument to repetition operator: `{operator}`")
        }
        other => format!("{other}: `{pattern}`"),
    }
}

fn translate(pattern: &str) -> String {
    let chars: Vec<char> = pattern.chars().collect();
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut class = false;
    let mut class_start = 0;
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        at += 1;
        match c {
            '\\' => {
                let Some(&escaped) = chars.get(at) else {
                    out.push('\\');
                    break;
                };
                at += 1;
                match (escaped, class) {
                    ('d', false) => out.push_str("[0-9]"),
                    ('d', true) => out.push_str("0-9"),
                    ('w', false) => out.push_str("[0-9A-Za-z_]"),
                    ('w', true) => out.push_str("0-9A-Za-z_"),
                    ('s', false) => out.push_str("[\\t\\n\\f\\r ]"),
                    ('s', true) => out.push_str("\\t\\n\\f\\r "),
                    ('D', _) => out.push_str("[^0-9]"),
                    ('W', _) => out.push_str("[^0-9A-Za-z_]"),
                    ('S', _) => out.push_str("[^\\t\\n\\f\\r ]"),
                    ('b', false) => out.push_str("(?-u:\\b)"),
                    ('<' | '>', _) => out.push(escaped),
                    ('p' | 'P' | 'x', _) if chars.get(at) == Some(&'{') => {
                        let end =
                            chars[at..].iter().position(|&c| c == '}').map_or(chars.len(), |length| at + length + 1);
                        out.push('\\');
                        out.push(escaped);
                        out.extend(&chars[at..end]);
                        at = end;
                    }
                    ('Q', false) => {
                        while at < chars.len() && !(chars[at] == '\\' && chars.get(at + 1) == Some(&'E')) {
                            out.push_str(&regex::escape(&chars[at].to_string()));
                            at += 1;
                        }
                        at = (at + 2).min(chars.len());
                    }
                    _ => {
                        out.push('\\');
                        out.push(escaped);
                    }
                }
            }
            '[' if !class => {
                class = true;
                class_start = at + usize::from(chars.get(at) == Some(&'^'));
                out.push('[');
            }
            '[' if chars.get(at) == Some(&':') => {
                // A POSIX class: copied up to its end.
                out.push('[');
                while let Some(&inner) = chars.get(at) {
                    at += 1;
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            '[' | '&' | '~' if class => {
                out.push('\\');
                out.push(c);
            }
            ']' if class && at - 1 == class_start => out.push_str("\\]"),
            ']' if class => {
                class = false;
                out.push(']');
            }
            '{' if !class && !is_repeat(&chars[at..]) => out.push_str("\\{"),
            '}' if !class && !closes_repeat(&chars[..at]) => out.push_str("\\}"),
            c => out.push(c),
        }
    }
    out
}

/// Whether what follows a brace makes it a repetition: digits, optionally a comma and digits, and the closing brace.
fn is_repeat(rest: &[char]) -> bool {
    let digits = rest.iter().take_while(|c| c.is_ascii_digit()).count();
    if digits == 0 {
        return false;
    }
    match rest.get(digits) {
        Some('}') => true,
        Some(',') => {
            let more = rest[digits + 1..].iter().take_while(|c| c.is_ascii_digit()).count();
            rest.get(digits + 1 + more) == Some(&'}')
        }
        _ => false,
    }
}

/// Whether the brace that ends `upto` closes a repetition.
fn closes_repeat(upto: &[char]) -> bool {
    upto.iter().rposition(|&c| c == '{').is_some_and(|open| is_repeat(&upto[open + 1..]))
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
    fn patterns_written_for_go_keep_their_meaning() {
        for (pattern, yes, no) in [
            (r"^\d+$", "12", "١"),
            (r"^[\w.-]+$", "a_b.c-1", "é"),
            (r"^a{2}$", "aa", "a"),
            (r"^{x}$", "{x}", "x"),
            (r"^[[]$", "[", "]"),
            (r"^[]a]+$", "]a", "["),
            (r"^\<b\>$", "<b>", "b"),
            (r"^[[:alpha:]]+$", "ab", "a1"),
            (r"^\Qa.b\E$", "a.b", "axb"),
            (r"^\p{Lu}$", "É", "é"),
        ] {
            let compiled = regex(pattern).unwrap();
            assert!(compiled.is_match(yes), "{pattern} should match {yes}");
            assert!(!compiled.is_match(no), "{pattern} should not match {no}");
        }
        assert!(regex("[").is_err());
    }
}
