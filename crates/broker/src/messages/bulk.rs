//! Bulk operations on messages: delete by ids, pop the oldest, purge all.

use std::time::Duration;

use angarium_core::claim::{ClaimLimit, Holdings};
use angarium_core::error::{Error, Part};
use angarium_core::ids::MessageId;
use angarium_core::message::Header;
use angarium_core::names::QueueRef;
use angarium_core::page::PopCount;
use angarium_engine::{QueueEngine, in_transfer_error};
use angarium_storage::{Direction, Order, Page, Position};

use crate::limits;
use crate::messages::Messages;
use crate::messages::view::{MessageView, ViewedAt};
use crate::slot::delete::{BegunPop, BulkRemoval};
use crate::slot::queue_handle::QueueHandle;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::wait_line::ChosenMessages;
use crate::stores::queue_store::PageBound;
use crate::writer::pending::{WriteOutcome, settled};

/// Pause of a purge before another pass over messages whose claims are being written or released, and the maximum of
/// passes.
const PURGE_PAUSE: Duration = Duration::from_millis(20);
const PURGE_PASSES: usize = 500;

/// Messages that a pass of a purge left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassRemainder {
    Nothing,
    /// Messages whose claims are being written or released.
    Changing,
}

impl Messages {
    /// Deletes messages for a caller that holds claims: all of them, or none when one is under another live claim. They
    /// are gone from the pool when this returns. A missing message is no error.
    pub async fn messages_delete(
        &self,
        at: &QueueRef,
        mut ids: Vec<MessageId>,
        held: Holdings<'_>,
    ) -> Result<(), Error> {
        let queue = self.0.slots.queue(at).await?;
        let slot = queue.slot();
        ids.sort_unstable();
        ids.dedup();
        let removal = self.delete_all_or_none(&queue, ids, held).await;
        match self.0.slots.confirm_refusal(slot, removal)? {
            Some(outcome) => settled(outcome).await,
            None => self.0.slots.check_ours(slot),
        }
    }

    /// Deletes messages, each with its own outcome: a message under a claim of another caller stays. Messages with a
    /// successful outcome are gone from the pool when this returns.
    pub async fn messages_delete_each(
        &self,
        at: &QueueRef,
        ids: &[MessageId],
        held: Holdings<'_>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let queue = self.0.slots.queue(at).await?;
        let slot = queue.slot();
        let mut begun = Vec::with_capacity(ids.len());
        for id in ids {
            let removal = self.delete_all_or_none(&queue, vec![*id], held).await;
            begun.push(self.0.slots.confirm_refusal(slot, removal));
        }
        let mut done = Vec::with_capacity(begun.len());
        for removal in begun {
            done.push(match removal {
                Ok(Some(outcome)) => settled(outcome).await,
                Ok(None) => self.0.slots.check_ours(slot),
                Err(error) => Err(error),
            });
        }
        Ok(done)
    }

    /// Begins to delete all of these messages, or none. Returns none when there is no such queue, or no id.
    async fn delete_all_or_none(
        &self,
        queue: &SlotQueue,
        mut ids: Vec<MessageId>,
        held: Holdings<'_>,
    ) -> Result<Option<WriteOutcome>, Error> {
        if ids.is_empty() {
            return Ok(None);
        }
        let Some(queue) = self.0.open_queues.open(queue).await? else { return Ok(None) };
        let mut asked = None;
        loop {
            let store = match queue.remove_all(&mut ids, held, asked, self.0.slots.claim_time())? {
                BulkRemoval::Begun(outcome) => return Ok(Some(outcome)),
                BulkRemoval::AskPool { lookup, store } => {
                    asked = Some(lookup);
                    store
                }
            };
            let found = store.get(queue.id(), &ids).await?;
            if found.iter().any(|message| message.header.state.is_in_transfer()) {
                return Err(in_transfer_error());
            }
        }
    }

    /// Takes the oldest ready messages out of the queue. They are gone from the pool when this returns them, so they
    /// are lost if the answer is lost.
    pub async fn messages_pop(&self, at: &QueueRef, count: PopCount) -> Result<Vec<MessageView>, Error> {
        let queue = self.0.slots.queue(at).await?;
        if self.0.open_queues.open(&queue).await?.is_none() {
            return self.0.slots.check_ours(queue.slot()).map(|()| Vec::new());
        }
        let (messages, line) = (self.clone(), queue.slot().line(at));
        let pop = async move {
            match line.choose(ClaimLimit::from(count), Duration::ZERO).await?.chosen {
                Some(chosen) => messages.pop_chosen(chosen).await,
                // Without a connection to the tree a replica cannot report "nothing to pop" (P8).
                None => messages.0.slots.check_ours(queue.slot()).map(|()| Vec::new()),
            }
        };
        self.0.replica.carry_out(pop).await
    }

    async fn pop_chosen(&self, mut chosen: ChosenMessages) -> Result<Vec<MessageView>, Error> {
        let ids = chosen.ids();
        let bodies = chosen.queue.bodies(&chosen).await?;
        let messages = chosen.used();
        let BegunPop { outcome, counters, retention } = chosen.queue.remove_taken(ids)?;
        settled(outcome).await?;
        counters.claimed.inc_by(u64::try_from(messages.len()).unwrap_or_default());
        let at = ViewedAt { now: self.0.replica.clock.now(), retention };
        let view = |(header, _): &(Header, _)| {
            let (_, body) = bodies.iter().find(|(id, _)| *id == header.id)?;
            Some(MessageView::free(header, body.clone(), at))
        };
        Ok(messages.iter().filter_map(view).collect())
    }

    /// Removes every message that was posted before, claimed or not. Zaqar keeps claimed messages, against its own
    /// documentation. Nothing happens when there is no such queue.
    pub async fn queue_purge(&self, at: &QueueRef) -> Result<(), Error> {
        let queue = self.0.slots.queue(at).await?;
        let Some(queue) = self.0.open_queues.open(&queue).await? else {
            return self.0.slots.check_ours(queue.slot());
        };
        let messages = self.clone();
        let purge = async move {
            let _guard = queue.slot().lost_on_panic();
            let last = queue.begin_purging()?;
            let mut purging = PurgeRun { queue: &queue, last, is_written: false };
            let outcome = messages.run_purge(&mut purging).await;
            let is_written = purging.is_written;
            queue.decide(QueueEngine::end_purging);
            outcome.map_err(|error| if is_written { error.into_unknown() } else { error })
        };
        self.0.replica.carry_out(purge).await
    }

    async fn run_purge(&self, purging: &mut PurgeRun<'_>) -> Result<(), Error> {
        let PurgeRun { queue, last, .. } = *purging;
        let slot = queue.slot();
        purging.is_written |= queue.forget_dedup_ids().await?;
        for _ in 0..PURGE_PASSES {
            let pass = queue.decide(|engine| engine.begin_purge_pass(last)).ok_or_else(|| queue.closed())?;
            let ready = self.purge_order(purging, Order::Ready).await?;
            let in_transfer = self.purge_order(purging, Order::Aside).await?;
            let is_whole =
                queue.decide(|engine| engine.is_purge_whole(pass)).ok_or_else(|| queue.closed())?;
            if is_whole && (ready, in_transfer) == (PassRemainder::Nothing, PassRemainder::Nothing) {
                return self.0.slots.check_ours(slot);
            }
            tokio::time::sleep(PURGE_PAUSE).await;
        }
        Err(Error::unknown(Part::Coordination, "claims of the queue are neither made nor ended"))
    }

    /// Purges one order of the queue in one walk. Messages in transfer between queues are left to their transfer.
    async fn purge_order(&self, purging: &mut PurgeRun<'_>, order: Order) -> Result<PassRemainder, Error> {
        let PurgeRun { queue, last, .. } = *purging;
        let (mut after, mut left) = (None, PassRemainder::Nothing);
        loop {
            let store = queue.store()?;
            let most = PageBound { messages: limits::PURGE_STEP, bytes: limits::BATCH_BYTES };
            let Page { messages, .. } = store.scan(queue.id(), order, Direction::Up, after, most).await?;
            let Some(end) = messages.last().map(|message| message.header.id) else { return Ok(left) };
            let headers = messages.iter().map(|message| &message.header);
            let is_purged = |header: &&Header| header.id <= last && !header.state.is_in_transfer();
            let ids: Vec<MessageId> = headers.filter(is_purged).map(|header| header.id).collect();
            let begun = queue.purge(&ids)?;
            if begun.messages < ids.len() {
                left = PassRemainder::Changing;
            }
            settled(begun.outcome).await?;
            purging.is_written |= !ids.is_empty();
            if end >= last {
                return Ok(left);
            }
            after = Some(Position::id(end));
        }
    }
}

/// A purge of a queue.
struct PurgeRun<'a> {
    queue: &'a QueueHandle,
    /// The newest message to remove.
    last: MessageId,
    /// Whether a message has been removed.
    is_written: bool,
}
