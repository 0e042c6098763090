//! Asks the server who it is, so that a wrong address or key shows before there is any zone, and a server that became
//! unreachable shows also where no pass notices: on a replica that does not lead, and while there is nothing to do.
//!
//! In: the server. Out: readiness, and a line in the log when that changes.

use std::{sync::Arc, time::Duration};

use signpost_engine::health::{Check, Health};
use signpost_planning::doubled;
use signpost_provider_powerdns::ZoneServer;

use crate::NAME;

const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Asks every so often, sooner after a failure, until the operator ends.
pub(crate) async fn probe(server: Arc<dyn ZoneServer>, health: Health, every: Duration) {
    let mut known = None;
    let mut failures: u32 = 0;
    loop {
        match server.server().await {
            Ok(info) => {
                if known.as_ref() != Some(&info) {
                    if info.daemon_type == "authoritative" {
                        tracing::info!(version = info.version, "PowerDNS answers");
                    } else {
                        tracing::warn!(kind = info.daemon_type, "the PowerDNS server is not an authoritative one");
                    }
                }
                health.set(NAME, Check::Ok);
                (known, failures) = (Some(info), 0);
                tokio::time::sleep(every).await;
            }
            Err(error) => {
                tracing::warn!(%error, "PowerDNS cannot be asked");
                // The server's own health names it; else there is what the call answered.
                let check = match check(&*server) {
                    Check::Ok => Check::failing(error.to_string()),
                    failing => failing,
                };
                health.set(NAME, check);
                known = None;
                tokio::time::sleep(doubled(FIRST_PAUSE, failures, every)).await;
                failures = failures.saturating_add(1);
            }
        }
    }
}

/// Whether the server can be reached, as its calls found.
pub(crate) fn check(server: &dyn ZoneServer) -> Check {
    match server.health() {
        signpost_provider_powerdns::Health::Unknown | signpost_provider_powerdns::Health::Up => Check::Ok,
        signpost_provider_powerdns::Health::Down { why } => Check::failing(why),
    }
}
