//! The whole operator on a paused clock, in one process: histories and faults drawn from a seed, checked from outside.
//!
//! ```text
//!  seed ─► history (users, faults, processes) ─► run: operator ◄─ wire ─► sandbox API
//!                                                        └──◄─ wire ─► the provider's twin
//!          at every write and at rest: compare with what the API objects ask for ─► violations ─► shrink ─► YAML
//! ```
//!
//! Nothing waits in real time. The same seed gives the same history, the same faults and the same trace.

pub mod bed;
pub mod command;
pub mod dice;
pub mod history;
pub mod ingresses;
pub mod memory;
pub mod pangolin;
pub mod pihole;
pub mod portal;
pub mod powerdns;
pub mod process;
pub mod provider;
pub mod replica;
pub mod router;
pub mod run;
pub mod shrink;
pub mod strikes;
pub mod weather;
pub mod wire;
pub mod world;
