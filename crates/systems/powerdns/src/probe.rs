//! Asks the server who it is, so that a wrong address or key shows before there is any zone, and a server that went
//! away shows also where no pass notices: on a replica that does not lead, and while there is nothing to do.
//!
//! In: the server. Out: readiness, and a line in the log when that changes.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use signpost_engine::health::{Check, Health};
use signpost_provider_powerdns::ZoneServer;

use crate::index::World;

/// The name of the check.
pub(crate) const CHECK: &str = "powerdns";

const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Asks every so often, sooner after a failure, until nobody is left who wants to know.
pub(crate) async fn probe(server: Arc<dyn ZoneServer>, health: Health, world: Weak<World>, every: Duration) {
    let mut known = None;
    let mut pause = FIRST_PAUSE;
    while world.strong_count() > 0 {
        match server.server().await {
            Ok(info) => {
                if known.as_ref() != Some(&info) {
                    if info.daemon_type == "authoritative" {
                        tracing::info!(version = info.version, "PowerDNS answers");
                    } else {
                        tracing::warn!(kind = info.daemon_type, "the PowerDNS server is not an authoritative one");
                    }
                }
                health.set(CHECK, Check::Ok);
                (known, pause) = (Some(info), FIRST_PAUSE);
                tokio::time::sleep(every).await;
            }
            Err(error) => {
                tracing::warn!(%error, "PowerDNS cannot be asked");
                health.set(CHECK, check(&*server, || error.to_string()));
                known = None;
                tokio::time::sleep(pause.min(every)).await;
                pause = (pause * 2).min(every);
            }
        }
    }
}

/// What the server's own health says, which names it; or else what the last call said.
fn check(server: &dyn ZoneServer, said: impl FnOnce() -> String) -> Check {
    match server.health() {
        signpost_provider_powerdns::Health::Down { why } => Check::failing(why),
        signpost_provider_powerdns::Health::Unknown | signpost_provider_powerdns::Health::Up => Check::failing(said()),
    }
}
