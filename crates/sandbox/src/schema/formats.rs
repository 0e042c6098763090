//! The string formats that kube-apiserver checks; formats it does not support are ignored.

use std::{net::IpAddr, sync::LazyLock};

use regex::Regex;

use super::node::Node;

static HOSTNAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
    )
});
static TIME: LazyLock<Option<Regex>> =
    LazyLock::new(|| regex(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));
static GO_DURATION: LazyLock<Option<Regex>> =
    LazyLock::new(|| regex(r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"));
static WORD_DURATION: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r"([0-9]+)\s*([A-Za-zµ]+)"));
static BASE64: LazyLock<Option<Regex>> =
    LazyLock::new(|| regex(r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"));
static EMAIL: LazyLock<Option<Regex>> =
    LazyLock::new(|| regex(r#"^([^<>@]*<)?("[^"]+"|[^\s@<>(),:;\[\]\\"]+)@(\[[^\]]+\]|[^\s@<>(),:;\[\]\\"]+)>?$"#));
static MAC: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        r"^(?i)([0-9a-f]{2}(:[0-9a-f]{2}){5}|[0-9a-f]{2}(-[0-9a-f]{2}){5}|[0-9a-f]{2}(:[0-9a-f]{2}){7}|[0-9a-f]{2}(-[0-9a-f]{2}){7}|[0-9a-f]{4}(\.[0-9a-f]{4}){2}|[0-9a-f]{4}(\.[0-9a-f]{4}){3})$",
    )
});

fn regex(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

fn matches(regex: &LazyLock<Option<Regex>>, text: &str) -> bool {
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// The node's format, if a server of this version heeds it for the node's type.
pub(crate) fn supported(node: &Node) -> Option<&str> {
    let format = node.format.as_deref()?;
    if node.int_or_string {
        return None;
    }
    let heeded = match node.kind.as_deref() {
        None | Some("string") => known(format),
        Some("integer") => matches!(format, "int32" | "int64"),
        Some("number") => matches!(format, "float" | "double"),
        Some(_) => false,
    };
    heeded.then_some(format)
}

/// Whether a string format is checked.
pub(crate) fn known(format: &str) -> bool {
    matches!(
        format.replace('-', "").as_str(),
        "bsonobjectid"
            | "uri"
            | "email"
            | "hostname"
            | "ipv4"
            | "ipv6"
            | "cidr"
            | "mac"
            | "uuid"
            | "uuid3"
            | "uuid4"
            | "uuid5"
            | "isbn"
            | "isbn10"
            | "isbn13"
            | "creditcard"
            | "ssn"
            | "hexcolor"
            | "rgbcolor"
            | "byte"
            | "password"
            | "date"
            | "duration"
            | "datetime"
            | "k8sshortname"
            | "k8slongname"
    )
}

/// Whether `text` has the format.
pub(crate) fn valid(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|c| c.is_ascii_hexdigit()),
        "uri" => is_request_uri(text),
        "email" => matches(&EMAIL, text),
        "hostname" => matches(&HOSTNAME, text) && text.len() <= 255 && text.split('.').all(|label| label.len() <= 63),
        "ipv4" => text.contains('.') && parse_ip(text).is_some(),
        "ipv6" => text.contains(':') && parse_ip(text).is_some(),
        "cidr" => is_cidr(text),
        "mac" => matches(&MAC, text),
        "uuid" => is_uuid(text, None, false),
        "uuid3" => is_uuid(text, Some('3'), false),
        "uuid4" => is_uuid(text, Some('4'), true),
        "uuid5" => is_uuid(text, Some('5'), true),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "ssn" => {
            let digits: String = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
            text.len() == 11 && digits.len() == 9 && digits.bytes().all(|c| c.is_ascii_digit())
        }
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|c| c.is_ascii_hexdigit())
        }
        "rgbcolor" => is_rgb(text),
        "byte" => matches(&BASE64, text),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "datetime" => is_date_time(text),
        "k8sshortname" => is_short_name(text),
        "k8slongname" => text.len() <= 253 && text.split('.').all(is_name_segment),
        _ => true,
    }
}

/// An address as the API server reads it: leading zeros in IPv4 octets are tolerated, zones are not.
fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok();
    }
    let octets: Vec<&str> = text.split('.').collect();
    let stripped: Vec<String> = octets
        .iter()
        .map(|octet| {
            let trimmed = octet.trim_start_matches('0');
            if trimmed.is_empty() && !octet.is_empty() { "0".to_owned() } else { trimmed.to_owned() }
        })
        .collect();
    stripped.join(".").parse().ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match parse_ip(address) {
        Some(IpAddr::V4(_)) => 32,
        Some(IpAddr::V6(_)) => 128,
        None => return false,
    };
    !bits.is_empty() && bits.bytes().all(|c| c.is_ascii_digit()) && bits.parse::<u32>().is_ok_and(|bits| bits <= most)
}

fn is_request_uri(text: &str) -> bool {
    if text.bytes().any(|c| c < 0x20 || c == 0x7f) || text.is_empty() {
        return false;
    }
    if text.starts_with('/') {
        return !bad_escape(text);
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let schemed = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    let host = rest.strip_prefix("//").map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    schemed && !bad_escape(rest) && host.is_none_or(|host| !host.contains([' ', '<', '>', '"']))
}

fn bad_escape(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().any(|(at, c)| {
        *c == b'%'
            && !(bytes.get(at + 1).is_some_and(u8::is_ascii_hexdigit)
                && bytes.get(at + 2).is_some_and(u8::is_ascii_hexdigit))
    })
}

fn is_uuid(text: &str, version: Option<char>, variant: bool) -> bool {
    let mut hex = String::new();
    let mut rest = text;
    for length in [8, 4, 4, 4, 12] {
        let Some((group, tail)) = rest.split_at_checked(length) else { return false };
        hex.push_str(group);
        rest = tail.strip_prefix('-').unwrap_or(tail);
        if length == 12 && !tail.is_empty() {
            return false;
        }
    }
    let at = |index: usize| hex[index..].chars().next().map(|c| c.to_ascii_lowercase());
    hex.bytes().all(|c| c.is_ascii_hexdigit())
        && version.is_none_or(|version| at(12) == Some(version))
        && (!variant || matches!(at(16), Some('8' | '9' | 'a' | 'b')))
}

fn bare_digits(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = bare_digits(text);
    let mut sum = 0;
    for (at, c) in (1_u32..).zip(text.chars()) {
        let digit = match c {
            'X' if at == 10 => 10,
            c => match c.to_digit(10) {
                Some(digit) => digit,
                None => return false,
            },
        };
        sum += at * digit;
    }
    text.len() == 10 && sum % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let text = bare_digits(text);
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let sum: u32 = digits.iter().enumerate().map(|(at, digit)| if at % 2 == 0 { *digit } else { 3 * digit }).sum();
    text.len() == 13 && digits.len() == 13 && sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let luhn: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| match (at % 2, digit * 2) {
            (0, _) => *digit,
            (_, doubled @ 10..) => doubled - 9,
            (_, doubled) => doubled,
        })
        .sum();
    (13..=16).contains(&digits.len()) && luhn.is_multiple_of(10)
}

fn is_rgb(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|text| text.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u8>().is_ok_and(|value| value.to_string() == *part))
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((date, rest)) = lower.split_once('t') else { return false };
    // Only what stands between the first and the second `t` counts.
    let time = rest.split('t').next().unwrap_or_default();
    is_date(date) && matches(&TIME, time) && &time[0..2] <= "23" && &time[3..5] <= "59" && &time[6..8] <= "59"
}

fn is_duration(text: &str) -> bool {
    if matches(&GO_DURATION, text) {
        return true;
    }
    let Some(words) = WORD_DURATION.as_ref() else { return false };
    words.captures_iter(text).any(|found| {
        let unit = found[2].to_lowercase();
        let exact = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"].contains(&unit.as_str());
        let prefix = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
        exact || prefix.iter().any(|prefix| unit.starts_with(prefix))
    })
}

fn is_name_segment(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(inner) && text.ends_with(inner) && text.chars().all(|c| inner(c) || c == '-')
}

fn is_short_name(text: &str) -> bool {
    text.len() <= 63 && is_name_segment(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_refuse_what_the_api_server_does() {
        for (format, good, bad) in [
            ("date-time", "2026-11-15T20:00:00Z", "2026-11-15"),
            ("date-time", "2026-11-15t20:00:00.5+01:00", "2026-11-15T24:00:00Z"),
            ("date", "2026-02-28", "2026-02-30"),
            ("ipv4", "192.0.2.1", "192.0.2.256"),
            ("ipv6", "2001:db8::1", "192.0.2.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
            ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
            ("duration", "1h30m", "soon"),
            ("duration", "3 days", "3 lightyears"),
            ("byte", "aGVsbG8=", "a"),
            ("hostname", "www.example.com", "www_example"),
            ("uri", "https://example.com/a?b", "example"),
            ("email", "a@example.com", "a at example"),
            ("mac", "01:23:45:67:89:ab", "01:23"),
            ("isbn", "0321751043", "0321751044"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
            ("hexcolor", "#FFFFFF", "#FFFFF"),
            ("rgbcolor", "rgb(255, 0, 1)", "rgb(256,0,1)"),
            ("ssn", "111-22-3333", "111-22"),
            ("k8s-short-name", "my-name", "My"),
            ("k8s-long-name", "a.b-c", "a..b"),
        ] {
            assert!(valid(format, good), "{good} is a {format}");
            assert!(!valid(format, bad), "{bad} is not a {format}");
        }
    }
}
