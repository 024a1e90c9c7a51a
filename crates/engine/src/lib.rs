//! The state of a queue at its single owner: its ready messages, its hidden messages with the reason of each, and its
//! claims with their messages.
//!
//! The engine is deterministic: it never waits, reads a clock or draws random numbers, and does no I/O. The broker
//! drives it: it passes the time, carries out the engine's decisions, and reports their outcomes. Every change has two
//! halves. `begin_…` hides the messages that will change; the broker calls the other half when the outcome is durable,
//! and it shows the result. Between the two halves no answer to a client may depend on these messages.
//!
//! ```text
//!             posted                    take                  grant
//!  appending ───────▶ ready ─────────────────▶ taking ───────────────▶ claimed
//!     │                ▲  ▲ ▲                    │ put_back               │ begin_release (released, expired)
//!     │                │  │ └────────────────────┘                        ▼
//!     │ posted    woken│  └────────────────────────────────────────── returning
//!     ▼                │               finish_release                    │ finish_release, delayed
//!  scheduled ────▶ waking ◀──── prepared (of a transfer)               ▼
//!                wake                                                scheduled
//!  begin_remove: ready, claimed, waking or unknown ──▶ removing ──removed──▶ gone
//!  take, claimed too often: ready ──▶ leaving ──mark_in_transfer──▶ moving, from then on known to the pool only
//!  begin_copy: ready, scheduled or kept ──▶ copying ──finish_copy──▶ as before
//!  begin_settle: claimed ──▶ settling ──▶ gone, kept, moving, or returning (see `settle`)
//!  begin_requeue: ready, scheduled or kept ──▶ requeuing ──▶ ready or scheduled
//!  take, of a held group: ready ──▶ requeuing ──▶ scheduled, put aside (see `held_groups`)
//!  begin_remove_selected, begin_leave_selected: requeuing ──▶ removing or leaving (see `selected`)
//! ```

#![warn(missing_docs)]

mod blocking;
mod browse;
mod bulk;
mod claims;
mod copying;
mod dedup;
mod expiry;
mod explain;
mod fair;
mod group_load;
mod groups;
mod held_groups;
mod hidden;
mod idle;
mod kept;
pub mod limits;
mod lookahead;
mod missing;
mod ordered;
pub mod placement;
mod queue;
mod ready_cache;
mod recall;
mod refill;
mod release;
mod removal;
mod renewal;
mod requeue;
mod schedule;
mod selected;
mod settings;
mod settle;
mod transfers;
mod visibility;
mod wait_lines;

pub use browse::ReadyPage;
pub use bulk::PurgePass;
pub use claims::{Claim, VisibleClaim};
pub use copying::must_copy;
pub use dedup::{DedupNote, FirstPost};
pub use explain::{Availability, GroupBlocker, MessageFacts, QueueFacts};
pub use groups::{GroupBounds, GroupRead, Heads};
pub use kept::KeptPage;
pub use queue::{ClaimSelection, ClaimedCounts, QueueEngine, StoredTotals};
pub use refill::Refill;
pub use release::{AttemptCount, EndedHeaders, Release, ReleaseEvent, ReleaseUpdates};
pub use removal::{LookupResult, PoolLookup, Removal, RemovalTally, in_transfer_error};
pub use renewal::{ClaimSnapshot, Renewal};
pub use requeue::forget_claims;
pub use settings::EngineSettings;
pub use settle::{ClaimRest, HeldMessage, ReturnsEnd, SettleStart};
pub use transfers::{TransferFate, prepared};
pub use visibility::{ClaimSplit, ReceiptStatus};
pub use wait_lines::{LinePosition, WaitLines};
