//! Asks the server once who it is, so that a wrong address or key shows before there is any zone, and on a replica that
//! does not lead as well.
//!
//! In: the server. Out: readiness, and a line in the log. It asks until it gets an answer; from then on passes know.

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
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Asks until there is an answer, or nobody is left who wants to know.
pub(crate) async fn probe(server: Arc<dyn ZoneServer>, health: Health, world: Weak<World>) {
    let mut pause = FIRST_PAUSE;
    loop {
        match server.server().await {
            Ok(info) => {
                if info.daemon_type == "authoritative" {
                    tracing::info!(version = info.version, "PowerDNS answers");
                } else {
                    tracing::warn!(kind = info.daemon_type, "the PowerDNS server is not an authoritative one");
                }
                health.set(CHECK, Check::Ok);
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "PowerDNS cannot be asked");
                health.set(CHECK, check(&*server, || error.to_string()));
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        if world.strong_count() == 0 {
            return;
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
