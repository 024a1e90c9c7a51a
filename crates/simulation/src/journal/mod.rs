//! The simulated journal: the embedded tree and the embedded pool of a process run over it as they are.
//!
//! ```text
//! process ── EmbeddedTree, EmbeddedPool ── Journal ──▶ committer (a task of the process) ──▶ Disk of the machine
//!                                             └─ views ─────────────────────────────────────▶ │
//! ```
//!
//! - `versions` has keys and values with the groups that wrote them.
//! - `disk` survives processes and power cuts: a synced prefix of groups, and an unsynced suffix.
//! - `shared`, `backend` and `committer` are the open journal of one process.
//! - `machine` opens it, with the tree and the pools over it.
//!
//! A write that takes too long refuses all work until it ends, one that fails closes the journal until it opens itself
//! again, and each operation on the disk can be the last one of the process. A read that fails may succeed when it is
//! repeated.

mod backend;
mod committer;
mod disk;
mod machine;
#[cfg(test)]
mod promises;
mod shared;
#[cfg(test)]
mod tests;
mod versions;

use std::sync::Arc;

pub use disk::Disk;
pub use machine::{EMBEDDED, EmbeddedOpener, ProcessJournal};

/// Ends a process at once. It is called by a task of the process, which makes no other step.
pub type CrashHook = Arc<dyn Fn() + Send + Sync>;

/// The key of the time of the last group, as in the journal in files.
const TIME_KEY: &[u8] = b"time";

/// The key that exists while the contents are checked and no process has the journal open.
const CHECKED_KEY: &[u8] = b"checked";
