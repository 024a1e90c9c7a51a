//! Purge of kept messages.

use angarium_core::error::{Error, Part};
use angarium_core::ids::MessageId;
use angarium_core::names::QueueRef;
use angarium_storage::{Direction, Order, Page, Position};

use crate::limits;
use crate::messages::Messages;
use crate::slot::queue_handle::{EngineReading, QueueHandle};
use crate::stores::queue_store::PageBound;
use crate::writer::pending::settled;

/// Max reads of one page: it is read again when a message was made available meanwhile.
const PAGE_READS: usize = 500;

impl Messages {
    /// Removes the kept messages that were settled before, except the ones that another request is just
    /// making available. Nothing happens when there is no such queue.
    pub(crate) async fn queue_purge_kept(&self, at: &QueueRef) -> Result<(), Error> {
        let queue = self.0.slots.queue(at).await?;
        let Some(queue) = self.0.open_queues.open(&queue).await? else {
            return self.0.slots.check_ours(queue.slot());
        };
        let messages = self.clone();
        let purge = async move {
            let _guard = queue.slot().lost_on_panic();
            let mut is_written = false;
            let outcome = messages.purge_kept(&queue, &mut is_written).await;
            outcome.map_err(|error| if is_written { error.into_unknown() } else { error })
        };
        self.0.replica.carry_out(purge).await
    }

    async fn purge_kept(&self, queue: &QueueHandle, is_written: &mut bool) -> Result<(), Error> {
        let start = self.0.replica.clock.now();
        let (mut after, mut reads) = (None, 0);
        loop {
            match purge_page(queue, after).await? {
                PurgeStep::Removed { end } => {
                    *is_written = true;
                    if end.ready > start {
                        break;
                    }
                    (after, reads) = (Some(end), 0);
                }
                PurgeStep::Changed if reads < PAGE_READS => reads += 1,
                PurgeStep::Changed => {
                    let why = "kept messages are made available all the time";
                    return Err(Error::unavailable(Part::Storage, why));
                }
                PurgeStep::Nothing => break,
            }
        }
        self.0.slots.check_ours(queue.slot())
    }
}

/// The result of one step of a purge of kept messages.
enum PurgeStep {
    /// A page was removed.
    Removed {
        /// The last message of the page.
        end: Position,
    },
    /// The page must be read again.
    Changed,
    /// There are no more kept messages.
    Nothing,
}

/// Removes the next page of kept messages.
async fn purge_page(queue: &QueueHandle, after: Option<Position>) -> Result<PurgeStep, Error> {
    let EngineReading { store, shown: page } = queue.read(|engine| engine.begin_kept_page())?;
    let most = PageBound { messages: limits::PURGE_STEP, bytes: limits::BATCH_BYTES };
    let Page { messages, .. } = store.scan(queue.id(), Order::Kept, Direction::Up, after, most).await?;
    let Some(end) = messages.last().map(|message| Position::of(&message.header)) else {
        return Ok(PurgeStep::Nothing);
    };
    let ids: Vec<MessageId> = messages.iter().map(|message| message.header.id).collect();
    let Some(outcome) = queue.purge_kept(&ids, page)? else { return Ok(PurgeStep::Changed) };
    settled(outcome).await?;
    Ok(PurgeStep::Removed { end })
}
