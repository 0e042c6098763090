//! The errors between a client and a server. No error has a URL, a header or a body in it.

use std::io::ErrorKind;

use thiserror::Error;

/// Longest text that is taken from an error of a connection.
const MAX_TEXT: usize = 512;

/// Why a client cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SetupError {
    /// The CA file cannot be used.
    #[error("the CA file {path} {why}")]
    Ca {
        /// The file.
        path: String,
        /// The cause.
        why: String,
    },
    /// The server name is not a host name.
    #[error("the server name {name:?} is not a host name: {why}")]
    ServerName {
        /// The name.
        name: String,
        /// The cause.
        why: String,
    },
    /// The HTTP library refuses its settings.
    #[error("the HTTP client cannot be set up: {0}")]
    Client(String),
}

/// Why a call has no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HttpError {
    /// No connection, or it broke.
    #[error("{why}")]
    Unreachable {
        /// The cause.
        why: String,
        /// Whether the server refused or dropped the connection, as a restarting server does.
        restarting: bool,
    },
    /// No complete answer before the deadline.
    #[error("no answer before the deadline")]
    Timeout,
    /// The TLS handshake failed, so that nothing was sent.
    #[error("{why}")]
    Tls {
        /// The error of the TLS library.
        why: String,
        /// Whether the server's certificate is the reason.
        certificate: bool,
    },
    /// The body is larger than the limit.
    #[error("the answer is larger than {} MiB", .limit >> 20)]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// A header's value has characters that HTTP does not allow.
    #[error("the value of {header} has characters that an HTTP header cannot carry")]
    Header {
        /// The header's name.
        header: &'static str,
    },
}

impl HttpError {
    pub(crate) fn of(error: &reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::Timeout;
        }
        if let Some(tls) = tls_error(error) {
            let certificate = matches!(tls, rustls::Error::InvalidCertificate(_));
            return Self::Tls { why: printable(&tls.to_string(), MAX_TEXT), certificate };
        }
        let why = with_causes(error);
        let restarting = is_restarting(error);
        Self::Unreachable { why: if why.is_empty() { "no connection".to_owned() } else { why }, restarting }
    }
}

/// The TLS error that an error was caused by. An I/O error hides what it carries from the chain of causes.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(tls) = error.downcast_ref() {
            return Some(tls);
        }
        if let Some(tls) = error.downcast_ref().and_then(std::io::Error::get_ref).and_then(|carried| tls_error(carried))
        {
            return Some(tls);
        }
        cause = error.source();
    }
    None
}

/// Whether the server refused or dropped the connection.
fn is_restarting(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let dropped = error.downcast_ref::<std::io::Error>().is_some_and(|io| {
            matches!(
                io.kind(),
                ErrorKind::ConnectionRefused
                    | ErrorKind::ConnectionReset
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::BrokenPipe
                    | ErrorKind::UnexpectedEof
            )
        });
        // Closed before the answer began, or even before the request was sent.
        let closed = error
            .downcast_ref::<hyper::Error>()
            .is_some_and(|error| error.is_incomplete_message() || error.is_canceled() || error.is_closed());
        if dropped || closed {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The text of an error with those of its causes, which `Display` of an HTTP error leaves out. Without the URL.
pub(crate) fn with_causes(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
        cause = error.source();
    }
    printable(&text, MAX_TEXT)
}

/// Text of a server made safe for a log line or a status: on one line, without control characters, of at most so many
/// characters.
pub fn printable(text: &str, max: usize) -> String {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c.is_control());
    let mut characters = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut clean: String = characters.by_ref().take(max).collect();
    if characters.next().is_some() {
        clean.push('…');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_text_is_printable_on_one_line_and_short() {
        assert_eq!(printable(" a\r\nb\u{7} ", 10), "a  b");
        assert_eq!(printable("äöü", 3), "äöü");
        assert_eq!(printable("äöüß", 3), "äöü…");
    }
}
