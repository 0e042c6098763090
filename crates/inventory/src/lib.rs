//! Every name that the operator knows, in memory: who wants it, who publishes it, what is served, and why not.
//!
//! ```text
//!  replace(owner, entries, now) ─► views, sorted by name, type and owner ─► Snapshot ─► page · get · conflicts
//!  remove(owner, now)           ─► what changed                          ─► Subscription
//! ```
//!
//! An owner (an object, a zone, one Pi-hole) is replaced as a whole. A reader takes a snapshot, which never changes, so it sees an owner either
//! before or after a replacement. Time is an argument. There is no I/O, no runtime and no clock here.

mod changes;
mod chunk;
mod conflict;
mod filter;
mod page;
mod result;
mod sorted;
mod store;
mod values;
mod view;

pub use changes::{Batch, Change, Subscription, Update};
pub use conflict::Conflict;
pub use filter::{Filter, Search};
pub use page::{BadCursor, Cursor, MAX_PAGE, Page};
pub use result::{Source, Stage, SyncReason, SyncStatus};
pub use store::{Inventory, Replaced, Snapshot};
pub use values::Values;
pub use view::{At, Entry, Judgement, Origin, Owner, Provenance, Refusal, View};
