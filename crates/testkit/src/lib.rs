//! Real servers and strict stand-ins for tests.
//!
//! ```text
//!   sandbox_cluster() ──► Cluster ◄── real_cluster()      etcd · kube-apiserver · kube-controller-manager
//!   PowerDns::start() ──► API + DNS port                   one set per test binary, stopped with the test process
//!   ExternalDns::start() ► DNSEndpoints of a cluster to a PowerDNS
//!   FaultProxy ─────────► the same server, misbehaving     (also after a panic or SIGKILL)
//!   dig() · Prober · eventually() · skip()
//! ```
//!
//! Everything here is for tests, so a failure is a panic whose message names the attempt and the logs.

// A test bed that fails must fail the test at once, and print the reason.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used, clippy::print_stderr, clippy::missing_panics_doc)]

mod binaries;
mod cluster;
mod connect;
mod control_plane;
mod dig;
mod external_dns;
mod fault_proxy;
pub mod pangolin;
pub mod pihole;
mod powerdns;
mod prober;
mod process;
mod wait;

pub use binaries::{Binary, any_crd, find_binary, foreign_crds};
pub use cluster::{Cluster, real_cluster, sandbox_cluster, second_real_cluster};
pub use connect::ConnectPortal;
pub use dig::{Answer, DigError, dig, dig_signed, try_dig};
pub use external_dns::{ExternalDns, ExternalDnsOptions, ExternalDnsVersion, Publisher};
pub use fault_proxy::{Fault, FaultProxy, Rule, Seen};
pub use pihole::TlsFront;
pub use powerdns::{Backend, PowerDns, PowerDnsOptions};
pub use prober::Prober;
pub use process::free_port;
pub use wait::{Lines, eventually, eventually_within, skip};

/// Writes one test against a [`Cluster`] and runs it on the sandbox and on the real API server.
///
/// `on_both!(async fn a_sentence(cluster) { … });` creates the tests `a_sentence::sandbox` and `a_sentence::real`. Several functions may
/// follow one another in one call. The calling crate needs `tokio` among its dev-dependencies.
#[macro_export]
macro_rules! on_both {
    ($($(#[$meta:meta])* async fn $name:ident($cluster:ident $(: $ty:ty)?) $body:block)+) => {$(
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports, clippy::wildcard_imports)]
            use super::*;

            async fn run($cluster: $crate::Cluster) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sandbox() {
                run($crate::sandbox_cluster().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn real() {
                if let Some(cluster) = $crate::real_cluster().await {
                    run(cluster).await;
                }
            }
        }
    )+};
}

/// Writes tests that run once with each version of external-dns.
///
/// `with_external_dns! { a_sentence => run; }` creates the tests `a_sentence::v22` and `a_sentence::v21`; `run` takes an
/// [`ExternalDnsVersion`] and returns a future. The calling crate needs `tokio` among its dev-dependencies.
#[macro_export]
macro_rules! with_external_dns {
    ($($name:ident => $run:expr;)+) => {$(
        mod $name {
            #[allow(unused_imports, clippy::wildcard_imports)]
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn v22() {
                ($run)($crate::ExternalDnsVersion::V22).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn v21() {
                ($run)($crate::ExternalDnsVersion::V21).await;
            }
        }
    )+};
}
