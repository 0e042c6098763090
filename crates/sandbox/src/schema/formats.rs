//! The string formats that are checked: those that the CRDs of a DNS operator and of its neighbours use. Others are ignored.

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
fn regex(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

fn matches(regex: &LazyLock<Option<Regex>>, text: &str) -> bool {
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// The node's format, if it is checked for the node's type.
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
        "uri" | "hostname" | "ipv4" | "ipv6" | "cidr" | "uuid" | "byte" | "password" | "date" | "duration" | "datetime"
    )
}

/// Whether `text` has the format.
pub(crate) fn valid(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "uri" => is_request_uri(text),
        "hostname" => matches(&HOSTNAME, text) && text.len() <= 255 && text.split('.').all(|label| label.len() <= 63),
        "ipv4" => text.contains('.') && parse_ip(text).is_some(),
        "ipv6" => text.contains(':') && parse_ip(text).is_some(),
        "cidr" => is_cidr(text),
        "uuid" => is_uuid(text),
        "byte" => matches(&BASE64, text),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "datetime" => is_date_time(text),
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

fn is_uuid(text: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    text.len() == 36
        && text.bytes().enumerate().all(|(at, c)| if dashes.contains(&at) { c == b'-' } else { c.is_ascii_hexdigit() })
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((date, rest)) = lower.split_once('t') else { return false };
    // Only the text between the first and the second `t` counts.
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
            ("duration", "1h30m", "soon"),
            ("duration", "3 days", "3 lightyears"),
            ("byte", "aGVsbG8=", "a"),
            ("hostname", "www.example.com", "www_example"),
            ("uri", "https://example.com/a?b", "example"),
        ] {
            assert!(valid(format, good), "{good} is a {format}");
            assert!(!valid(format, bad), "{bad} is not a {format}");
        }
    }
}
