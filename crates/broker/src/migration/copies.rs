//! The queues of subscriptions in the migration of their source (P6, P16). Each is copied like a queue of its own
//! ([`crate::migration::copy_phase`]), and the source waits for all of them.
//!
//! ```text
//! source:        copy ─▶ older pool has none of its messages ─────────────▶ all have left? ─▶ one commit ends it
//! subscription:  copy ──────────────────────▶ none there either, notes copied ─▶ left
//! ```
//!
//! A post writes its copies to the newer pool. A message of the source that is in the older pool can bring copies there,
//! when it arrives or is settled, since these are in the batch that changes it. So the queue of a subscription has left
//! only behind its source.

use angarium_core::error::Error;

use crate::migration::Migrations;
use crate::slot::queue_family::QueueFamily;
use crate::slot::queue_handle::QueueHandle;

impl Migrations {
    /// Opens the queues of the subscriptions to an open queue, which begins or continues their copying. Returns false when one
    /// is gone: then the queue has others by now.
    pub(in crate::migration) async fn open_copies(&self, source: &QueueHandle) -> Result<bool, Error> {
        let family = QueueFamily::of(source).ok_or_else(|| source.closed())?;
        let mut are_there = true;
        for copy in family.copies() {
            are_there &= self.0.open_queues.open_if_there(&copy.in_slot()).await?.is_some();
        }
        Ok(are_there)
    }
}
