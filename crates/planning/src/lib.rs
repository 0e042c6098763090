//! Who owns a name and what may change: claims, three-way diff, deletion guards.
//!
//! ```text
//!  objects ──► Claims ──► who may publish a name, who waits for whom
//!                │
//!                ▼
//!  wanted  ──► admit ──► record sets that can stand side by side, refusals for the rest
//!                │ desired
//!                ▼
//!  previous × current × desired × policy ──► plan_changes ──► Changes (create, update, delete, unchanged, refused)
//!                                                                │
//!                                             DeletionGuard ◄────┘ holds back a pass that deletes too much
//! ```
//!
//! Pure: no I/O, no clock, no environment, no randomness. The order of the input never matters, and planning the
//! planned world changes nothing.

mod claims;
mod coexist;
mod diff;
mod guard;
mod refusal;

pub use claims::{Claim, Claims, Standing};
pub use coexist::{Admission, Candidates, admit};
pub use diff::{Adoption, Changes, Group, Published, Step, Update, World, plan_changes};
pub use guard::{DeletionGuard, Fingerprint, Permission, Verdict};
pub use refusal::{Reason, Refusal, Refused, UnknownReason};
