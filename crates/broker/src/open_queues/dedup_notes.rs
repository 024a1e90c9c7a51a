//! Opening a FIFO queue: its engine, with the deduplication ids that its pool has notes of (P10).

use angarium_core::error::Error;
use angarium_core::ids::QueueId;
use angarium_core::mutation::{Mutation, is_on};
use angarium_engine::{GroupBounds, QueueEngine, StoredTotals};

use crate::limits;
use crate::open_queues::OpenQueues;
use crate::stores::queue_store::QueueStore;
use crate::writer::notes::{DEDUP_KIND, read_dedup_note};

impl OpenQueues {
    /// Opens the engine of a FIFO queue, with the deduplication ids that its pool has notes of.
    pub(crate) async fn open_ordered(
        &self,
        queue: QueueId,
        found: StoredTotals,
        store: &QueueStore,
    ) -> Result<QueueEngine, Error> {
        let mut engine = QueueEngine::open_ordered(found, GroupBounds::default());
        let mut after = None;
        loop {
            let page = store.notes(queue, DEDUP_KIND, after, limits::notes_page()).await?;
            for (key, id, expires) in
                page.iter().filter_map(|note| read_dedup_note(note).map(|(key, id)| (key, id, note.expires)))
            {
                if !is_on(Mutation::ForgetDedupAtOpen) {
                    engine.restore_dedup(key, id, expires);
                }
            }
            match page.last() {
                Some(last) if page.len() >= limits::notes_page() => after = Some(last.key.clone()),
                _ => return Ok(engine),
            }
        }
    }
}
