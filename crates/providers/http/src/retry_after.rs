//! The header `Retry-After`, in both of its forms.

use std::time::{Duration, SystemTime};

/// How long to wait: a number of seconds, or an HTTP date as seen from `now`. A date in the past is a wait of zero.
/// `None` when the text is neither.
pub fn parse_retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(now).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_nothing_else() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:00 GMT").unwrap();
        let parse = |text: &str| parse_retry_after(text, now).map(|wait| wait.as_secs());
        assert_eq!(parse("37"), Some(37));
        assert_eq!(parse(" 0 "), Some(0));
        assert_eq!(parse("99999999999999999999999"), Some(u64::MAX));
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), Some(37));
        assert_eq!(parse("Sunday, 06-Nov-94 08:49:37 GMT"), Some(37));
        assert_eq!(parse("Sun Nov  6 08:49:37 1994"), Some(37));
        assert_eq!(parse("Sun, 06 Nov 1994 08:48:00 GMT"), Some(0), "a date in the past");
        for neither in ["", "soon", "-1", "1.5", "+3", "Sun, 06 Nov 1994"] {
            assert_eq!(parse(neither), None, "{neither:?}");
        }
    }
}
