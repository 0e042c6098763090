//! The loop every system runs on. It knows no system.
//!
//! ```text
//!  API server ──watch──► hub ──► Index (a system's own small maps) ──touch──► Queue
//!                                                                              │ Job
//!              Writer ◄── Report ◄── report ◄── apply ◄── plan ◄── observe ◄───┘  (driver)
//!                │            └──────────────► Recorder (events)
//!                └──► status, metadata and child objects, once per change, only while this replica leads (lease)
//! ```
//!
//! [`operator::Operator`] wires one process: watches, drivers, lease, health and metrics, and an orderly stop.

pub mod client;
pub mod clock;
pub mod conditions;
pub mod driver;
pub mod events;
pub mod health;
pub mod hub;
pub mod lease;
pub mod logs;
pub mod metrics;
pub mod object;
pub mod operator;
pub mod queue;
mod rights;
pub mod secret;
pub mod write;

pub use clock::{Clock, ManualClock, SystemClock};
pub use driver::{DriveOptions, Outcome, Report, RetryClass, System};
pub use events::{Event, EventKind, Recorder};
pub use hub::{Index, Need};
pub use object::ObjectId;
pub use operator::{Operator, OperatorError, OperatorOptions};
pub use queue::{Gather, Job, Queue, Touch, Touched};
pub use secret::Secret;
pub use write::{Child, ChildApplied, ChildDeleted, ChildError, ObjectPatch, ObjectWrite, Proof, WriteError, Writer};
