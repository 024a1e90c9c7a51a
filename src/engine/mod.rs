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
//!                      ▲  ▲                      │ put_back               │ begin_end (released, expired)
//!                      │  └──────────────────────┘                        ▼
//!                      └────────────────────────────────────────────── returning
//!                                               ended
//!  begin_remove: ready, claimed or unknown ──▶ removing ──removed──▶ gone
//! ```

mod browse;
mod bulk;
mod claims;
mod expiry;
mod queue;
mod renewal;
mod window;

pub use browse::Browsed;
pub use claims::Claim;
pub use queue::{Counts, Ended, QueueEngine, Refill, Removal, Taken};
pub use renewal::{Held, Renewal};
