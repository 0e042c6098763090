//! The loop that every system runs on. It depends on no system.
//!
//! ```text
//!  API server ──watch──► hub ──► Index (a system's own small maps) ──touch──► Queue
//!                                                                              │ Job, memory of its key
//!              Writer ◄── Report ◄── report ◄── apply ◄── plan ◄── observe ◄───┘  (driver)
//!                │            ├──────────────► Recorder (events), Refusals
//!                │            └──────────────► Statuses: objects whose status is computed when its turn comes
//!                └──► status, metadata and child objects, once per change, only while this replica leads (lease)
//! ```
//!
//! [`operator::Operator`] wires one process: watches, drivers, lease, health and metrics, and an orderly stop. [`spec::SystemSpec`]
//! describes a system; `docs/add-a-system.md` has a complete example.

pub mod children;
pub mod client;
pub mod clock;
pub mod conditions;
pub mod demo;
pub mod driver;
pub mod events;
pub mod health;
pub mod hub;
pub mod lease;
pub mod logs;
pub mod metrics;
pub mod object;
pub mod operator;
mod permissions;
pub mod project;
pub mod queue;
mod refusals;
mod selector;
pub mod settings;
pub mod spec;
pub mod write;

pub use children::ChildIndex;
pub use clock::{Clock, ManualClock, SystemClock};
pub use driver::{DriveOptions, Outcome, Report, RetryClass, System, Wanted};
pub use events::{Event, EventKind, Recorder};
pub use hub::{Index, Need, Watch};
pub use object::{Finalizers, Identity, Kind, ObjectId, is_reported, wrote_annotation};
pub use operator::{Operator, OperatorError, OperatorOptions};
pub use project::{Place, Project};
pub use queue::{Gather, Job, Queue, Statuses, Touch, Touched};
pub use refusals::Refusals;
pub use selector::{Selector, SelectorError};
pub use settings::{Setting, Settings};
pub use spec::{Configured, Rule, SystemSpec};
pub use write::{Child, ChildApplied, ChildDeleted, ChildError, ObjectPatch, ObjectWrite, Proof, WriteError, Writer};
