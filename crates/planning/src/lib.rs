//! Who owns a name and what may change: claims, coexistence, deletion guards, refusals.
//!
//! ```text
//!  objects ──► Claims ──► who may publish a name, who waits for whom
//!                │
//!                ▼
//!  wanted  ──► admit ──► record sets that can stand side by side, refusals for the rest
//!
//!  deletions of a pass ──► GuardMemory ──► allowed, or paused until a second pass wants exactly the same
//! ```
//!
//! Pure: no I/O, no clock, no environment, no randomness. The order of the input never matters.

mod claims;
mod coexist;
mod guard;
mod refusal;

pub use claims::{Claim, Claims, Standing};
pub use coexist::{Admission, Candidates, admit};
pub use guard::{DeletionGuard, Fingerprint, GuardMemory, Permission, Verdict};
pub use refusal::{Reason, Refusal, Refused, UnknownReason};
