//! What a queue does, at its single owner: what is ready, what is hidden and why, which claim holds what.
//!
//! A deterministic core: it never waits, reads a clock or rolls dice, and does no I/O. Whoever drives it (the
//! broker) tells it the time, carries out what it decides, and reports how that went. Every change has two
//! halves: `begin_…` hides what is about to change, and the other half, called when the outcome is durable,
//! shows the result. In between nobody can be told anything of the message.
//!
//! ```text
//!             posted                    take                  grant
//!  appending ───────▶ ready ─────────────────▶ taking ───────────────▶ claimed
//!     │                ▲  ▲ ▲                    │ put_back               │ begin_end (released, expired)
//!     │                │  │ └────────────────────┘                        ▼
//!     │ posted    woken│  └────────────────────────────────────────── returning
//!     ▼                │                    ended                        │ ended, put off
//!  scheduled ────▶ waking ◀──── prepared (of a move)                     ▼
//!                wake                                                scheduled
//!  begin_remove: ready, claimed, waking or unknown ──▶ removing ──removed──▶ gone
//!  take, claimed too often: ready ──▶ leaving ──set_aside──▶ moving, of which only the pool knows
//!  begin_copy: ready, scheduled or failed ──▶ copying ──finish_copy──▶ as before
//! ```

mod ahead;
mod blocking;
mod browse;
mod bulk;
mod busy;
mod claims;
mod copying;
mod dedup;
mod ending;
mod expiry;
mod fair;
mod groups;
mod hidden;
mod missing;
mod moves;
mod ordered;
mod queue;
mod refill;
mod removal;
mod renewal;
mod rest;
mod schedule;
mod split;
mod waiting;
mod window;

pub use browse::Browsed;
pub use bulk::PurgePass;
pub use claims::{Claim, LiveClaim};
pub use copying::goes_over;
pub use dedup::{Twin, TwinNote};
pub use ending::{Counts, Ended, Ending};
pub use groups::{GroupBounds, GroupRead, Heads};
pub use moves::{Fate, prepared};
pub use queue::{Found, QueueEngine, Taken};
pub use refill::Refill;
pub use removal::{Answered, Asked, Removal, Tally};
pub use renewal::{Held, Renewal};
pub use split::{Split, Worth};
pub use waiting::{Lines, Place};
