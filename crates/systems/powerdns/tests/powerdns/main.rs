//! The PowerDNS system on the sandbox and on a real API server, with a real `pdns_server` behind a proxy that counts.
//!
//! One binary, so that all of it shares one API server and one PowerDNS; a test is alone with its namespace and zone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(unreachable_pub, reason = "the modules of one test binary")]

mod crash;
mod faults;
mod ledger;
mod ownership;
mod records;
mod regressions;
mod rig;
mod scale;
mod schema;
mod walkthrough;
mod zones;
