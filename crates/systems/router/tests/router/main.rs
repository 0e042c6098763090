//! The router system on the sandbox and on a real API server, with the real CRDs of DNSEndpoint and Istio's Gateway where `dev/setup` has
//! fetched them.
//!
//! | what | module |
//! |---|---|
//! | from each row of the request to its tests | `seed` |
//! | both modes, adopted regions, the mode switch, patterns, generated objects, idempotency | `contract` |
//! | what triggers reconciliation, one test per row | `triggers` |
//! | what must never withdraw a name | `safety` |
//! | two owners, foreign objects, drift | `ownership` |
//! | input that cannot be used | `refusals`, `input` |
//! | the examples and their roles, as each team; manifests of service-router-operator, unchanged | `roles` |
//! | load balancers and their record types | `addresses` |
//! | hosts, names and load balancers that move | `moves` |
//! | crashes, conflicts, cut watches, missing kinds | `faults` |
//! | bursts, rest, restarts, writes that hang | `scale` |
//! | route → external-dns → PowerDNS → answer, and two control planes | `chain` |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::needless_pass_by_value, reason = "JSON literals are handed over as they are")]
#![allow(unreachable_pub, reason = "the modules of one test binary")]

mod addresses;
mod chain;
mod contract;
mod faults;
mod input;
mod moves;
mod ownership;
mod refusals;
mod rig;
mod roles;
mod safety;
mod scale;
mod seed;
mod triggers;
