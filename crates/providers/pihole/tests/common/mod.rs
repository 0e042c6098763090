//! The parts that the provider's tests share.
#![allow(dead_code, unreachable_pub)] // Each test file uses a part of it.

use std::time::Duration;

use signpost_provider_pihole::{Connection, Line, Secret, Timing, V6Dialect, parse_base_url};
use signpost_testkit::pihole::{PiholeV6, V6Options};

/// A connection whose pauses are short.
pub fn close_in(url: &str, token: &str) -> Connection {
    let timing = Timing {
        quick: [Duration::from_millis(30), Duration::from_millis(100), Duration::from_millis(300)],
        login_again: Duration::from_millis(10),
        ..Timing::default()
    };
    Connection { timing, ..Connection::new(parse_base_url(url).unwrap(), Secret::Value(token.into())) }
}

pub async fn v6(options: V6Options) -> (PiholeV6, V6Dialect) {
    let server = PiholeV6::with(options).await;
    let pihole = V6Dialect::new(close_in(&server.url(), PiholeV6::PASSWORD)).unwrap();
    (server, pihole)
}

pub fn line(raw: &str) -> Line {
    Line::stored(raw)
}

pub fn hosts_line(n: usize) -> Line {
    Line::stored(&format!("10.0.0.1 host-{n:04}.lan # signpost=home"))
}
