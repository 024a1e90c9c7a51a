//! What a queue does, at its single owner: what is ready, what is hidden and why, which claim holds what.
//!
//! A deterministic core: it never waits, reads a clock or rolls dice, and does no I/O. Its driver (the
//! broker) tells it the time, carries out what it decides, and reports how that went. Every change has two
//! halves: `begin_…` hides what is about to change, and the other half, called when the outcome is durable,
//! shows the result. In between no caller can be told anything of the message.
//!
//! ```text
//!             posted                    take                  grant
//!  appending ───────▶ ready ─────────────────▶ taking ───────────────▶ claimed
//!     │                ▲  ▲ ▲                    │ put_back               │ begin_release (released, expired)
//!     │                │  │ └────────────────────┘                        ▼
//!     │ posted    woken│  └────────────────────────────────────────── returning
//!     ▼                │               finish_release                    │ finish_release, put off
//!  scheduled ────▶ waking ◀──── prepared (of a move)                     ▼
//!                wake                                                scheduled
//!  begin_remove: ready, claimed, waking or unknown ──▶ removing ──removed──▶ gone
//!  take, claimed too often: ready ──▶ leaving ──mark_in_transfer──▶ moving, of which only the pool knows
//!  begin_copy: ready, scheduled or failed ──▶ copying ──finish_copy──▶ as before
//! ```

#![warn(missing_docs)]

mod blocking;
mod browse;
mod bulk;
mod claims;
mod copying;
mod dedup;
mod expiry;
mod fair;
mod group_load;
mod groups;
mod hidden;
mod idle;
pub mod limits;
mod lookahead;
mod missing;
mod ordered;
pub mod placement;
mod queue;
mod ready_cache;
mod refill;
mod release;
mod removal;
mod renewal;
mod schedule;
mod transfers;
mod visibility;
mod wait_lines;

pub use browse::ReadyPage;
pub use bulk::PurgePass;
pub use claims::{Claim, LiveClaim};
pub use copying::must_copy;
pub use dedup::{DedupNote, FirstPost};
pub use groups::{GroupBounds, GroupRead, Heads};
pub use queue::{ClaimSelection, QueueEngine, StoredTotals};
pub use refill::Refill;
pub use release::{AttemptCount, Release, ReleaseUpdates};
pub use removal::{LookupResult, PoolLookup, Removal, RemovalTally};
pub use renewal::{ClaimSnapshot, Renewal};
pub use transfers::{TransferFate, prepared};
pub use visibility::{ClaimSplit, ReceiptStatus};
pub use wait_lines::{LinePosition, WaitLines};
