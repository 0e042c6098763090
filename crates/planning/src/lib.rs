//! Ownership of names and permitted changes: claims, coexistence, deletion guards, refusals; and how long to wait after failures.
//!
//! ```text
//!  objects ──► Claims ──► the owner of a name, and the objects that wait for it
//!                │
//!                ▼
//!  wanted  ──► admit ──► record sets that can coexist, refusals for the rest
//!
//!  deletions of a pass ──► GuardMemory ──► allowed, or paused until a second pass wants exactly the same
//! ```
//!
//! Pure: no I/O, no clock, no environment, no randomness. The order of the input never matters.

mod backoff;
mod claims;
mod coexist;
mod guard;
mod refusal;

pub use backoff::doubled;
pub use claims::{Claim, Claims, Standing};
pub use coexist::{Admission, Candidates, admit, excludes};
pub use guard::{DeletionGuard, Fingerprint, GuardDecision, GuardMemory, Permission};
pub use refusal::{Reason, Refusal, Refused, UnknownReason};
