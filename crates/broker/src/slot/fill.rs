//! Filling the queue of a subscription with messages that wait in its source: the ones that waited when it was created, and
//! the ones that a suspension left out ([`crate::slot::gaps`]).
//!
//! ```text
//!              end: an id that no message has
//! ids ─────────┼───────────────────▶
//!   fill: pages │ posts: in the batch of the message
//! ```
//!
//! The fill begins with a note of its end, in the queue of the subscription. No post is copied before that is durable, and
//! each page moves the note on in the batch of its copies. So each message is copied once, whatever is interrupted.

use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::ids::{MessageId, SubscriptionId};
use angarium_core::message::{Message, Retention};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;

use crate::ledger::quota_ledger::Reservation;
use crate::slot::backlog::{Backlog, amount_of};
use crate::slot::locked::LockedSlot;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::removal_watch::RemovalWatch;
use crate::slot::state::{OpenQueue, Slot};
use crate::writer::change::Change;
use crate::writer::notes::{FillProgress, GapPass};
use crate::writer::pending::WriteOutcome;

/// The rest of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Its end is not durable. Posts to the source wait for that.
    Due,
    /// The begin of the last pass over a gap is being written, with the end of the suspension. Posts to the source wait for
    /// that.
    Joining,
    /// Messages behind `after`, up to the end, are to be copied.
    Running(FillProgress),
}

impl Fill {
    /// The rest of a fill that has begun; none when it has ended.
    pub(crate) fn rest(progress: FillProgress) -> Option<Self> {
        Some(Self::Running(progress)).filter(|_| !progress.is_over())
    }
}

/// The copies of a page, and the progress of the fill once all of them are stored.
pub(crate) struct FillPage {
    /// The queue that was read.
    pub(crate) source: QueueHandle,
    pub(crate) copies: Vec<Message>,
    /// The message of each copy.
    pub(crate) messages: Vec<MessageId>,
    pub(crate) progress: FillProgress,
}

impl FillPage {
    /// Whether the first copy fits into no empty subscription: to wait for room would be in vain.
    fn is_beyond(&self, backlog: &Backlog) -> bool {
        !backlog.bounds.fit(amount_of(self.copies.first()))
    }

    /// Leaves out the messages that have left their queue.
    fn leave_out(&mut self, removals: &RemovalWatch) {
        let all = std::mem::take(&mut self.messages).into_iter().zip(std::mem::take(&mut self.copies));
        (self.messages, self.copies) = all.filter(|(id, _)| !removals.has_left(*id)).unzip();
    }

    /// Keeps the first copies.
    pub(crate) fn keep(&mut self, most: usize) {
        if most < self.copies.len()
            && let Some(last) = most.checked_sub(1).and_then(|last| self.messages.get(last))
        {
            self.progress.after = *last;
            self.copies.truncate(most);
        }
    }
}

/// A write of the progress of a fill.
pub(crate) struct BegunFill {
    pub(crate) progress: FillProgress,
    pub(crate) outcome: WriteOutcome,
}

impl OpenQueue {
    /// Whether posts to the source may bring copies to this queue of a subscription.
    pub(in crate::slot) fn takes_copies(&self) -> bool {
        match self.fill {
            Some(Fill::Due | Fill::Joining) => is_on(Mutation::CopyBeforeFillBegins),
            Some(Fill::Running(_)) | None => true,
        }
    }

    /// Whether a claim gets nothing, because earlier messages of its groups are still to be copied. In a suspension no later
    /// ones are.
    fn is_barred_by_fill(&self) -> bool {
        let is_suspended = || self.backlog.as_deref().is_some_and(Backlog::is_suspended);
        self.attributes.is_fifo
            && match self.fill {
                Some(Fill::Due) => true,
                Some(Fill::Running(progress)) => progress.is_joined() || !is_suspended(),
                Some(Fill::Joining) | None => false,
            }
    }
}

impl LockedSlot<'_> {
    /// Whether a claim gets no message of a queue, because earlier messages of its groups are still to be copied.
    pub(in crate::slot) fn is_filling_in_order(&self, at: &QueueRef) -> bool {
        self.state.queues.get(at).is_some_and(|queue| queue.is_barred_by_fill())
    }
}

impl QueueHandle {
    /// Returns the rest of the fill; none when there is nothing left, or the queue is closed.
    pub(crate) fn fill(&self) -> Option<Fill> {
        self.lock_queue(|queue| queue.fill).flatten()
    }

    /// Returns how long the queue retains messages without a life of their own; none when it is closed.
    pub(crate) fn retention(&self) -> Option<Retention> {
        let limits = self.slot.around.replica.limits.clone();
        self.lock_queue(|queue| queue.attributes.retention(&limits))
    }

    /// Chooses the end of the fill and submits its note, if that is due. The caller holds the gate of the queue, and the
    /// source is open: so the end is above all of its messages.
    pub(crate) fn begin_fill(&self) -> Result<Option<BegunFill>, Error> {
        let now = self.slot.around.replica.clock.now();
        let mut locked = self.slot.lock();
        let queue = locked.queue(&self.at, self.id).ok_or_else(|| self.closed())?;
        if queue.fill != Some(Fill::Due) {
            return Ok(None);
        }
        let end = locked.ids.next(now, &mut self.slot.around.replica.random.clone());
        let progress = FillProgress { end, ..FillProgress::NONE };
        let outcome = locked.submit(&self.at, Change::fill(Vec::new(), progress, None))?;
        Ok(Some(BegunFill { progress, outcome }))
    }

    /// Whether there may be room for a page of the fill: if not, it is not worth a read.
    pub(crate) fn has_fill_room(&self, progress: FillProgress) -> bool {
        let has_room = |queue: &mut OpenQueue| {
            let has_room = |backlog: &Backlog| backlog.room_for(&[], progress.pass).is_some();
            queue.is_barred_by_fill() || queue.backlog.as_deref().is_none_or(has_room)
        };
        self.lock_queue(has_room).unwrap_or(false)
    }

    /// Shortens a page to the copies that the bounds of the subscription have room for. Returns false when they have none, and
    /// the fill must wait. A FIFO queue that gives no message before takes all of them.
    pub(crate) fn fit_fill(&self, page: &mut FillPage) -> bool {
        let fit = |queue: &mut OpenQueue| match &queue.backlog {
            Some(backlog) if !queue.is_barred_by_fill() && !page.copies.is_empty() => {
                backlog.room_for(&page.copies, page.progress.pass).is_some_and(|most| {
                    // One that no bounds have room for is left out when it is submitted.
                    page.keep(most.max(1));
                    most > 0 || page.is_beyond(backlog)
                })
            }
            Some(_) | None => true,
        };
        self.lock_queue(fit).unwrap_or(false)
    }

    /// Submits the copies of a page, if the bounds still have room for them; none when the fill must wait, or the page must be
    /// read again. The caller has watched the removals from the source since before it read the page.
    pub(crate) fn submit_fill(
        &self,
        mut page: FillPage,
        room: Reservation,
    ) -> Result<Option<BegunFill>, Error> {
        let mut locked = self.slot.lock();
        let source = locked.queue_mut(&page.source.at, page.source.id).ok_or_else(|| page.source.closed())?;
        // The source was closed and opened again meanwhile, or too many have left it.
        let Some(removals) = source.removals.take() else { return Ok(None) };
        page.leave_out(&removals);
        let queue = locked.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        if is_on(Mutation::SkipFillPage) {
            page.copies.clear();
        }
        let is_bounded = !queue.is_barred_by_fill() && !page.copies.is_empty();
        let (mut progress, mut skipped) = (page.progress, None);
        if let Some(backlog) = &mut queue.backlog {
            if is_bounded {
                let Some(most) = backlog.room_for(&page.copies, progress.pass) else { return Ok(None) };
                if most < page.copies.len() {
                    if page.copies.len() > 1 || !page.is_beyond(backlog) {
                        return Ok(None);
                    }
                    page.copies.clear();
                    // That of a gap is counted.
                    skipped = progress.pass.is_none().then(|| backlog.submit_skip(1));
                }
            }
            progress = backlog.submit_page(&page.copies, progress);
        }
        let outcome = locked.submit_reserved(&self.at, Change::fill(page.copies, progress, skipped), room)?;
        Ok(Some(BegunFill { progress, outcome }))
    }

    /// Takes over the durable progress of the fill. At its end, and at that of a suspension, the waiting claims are served.
    pub(crate) fn set_fill(&self, progress: FillProgress) {
        let mut locked = self.slot.lock();
        let Some(queue) = locked.queue_mut(&self.at, self.id) else { return };
        queue.fill = Fill::rest(progress);
        if let Some(backlog) = &mut queue.backlog {
            let before = std::mem::replace(&mut backlog.filled, progress).pass.unwrap_or(GapPass::NONE);
            backlog.keep_room();
            if let Some(pass) = progress.pass {
                let copied = |pass: GapPass| pass.copied_before.saturating_add(pass.copied);
                let meter = &self.slot.around.replica.meter;
                meter.note_caught_up(&self.at, copied(pass).saturating_sub(copied(before)));
                // A post with few messages may suspend it again at once.
                if pass.room.is_some() && !backlog.is_behind() && std::mem::take(&mut backlog.is_suspended) {
                    backlog.log_resumed(&self.at);
                }
            }
        }
        if !locked.is_filling_in_order(&self.at) {
            locked.serve(&self.at);
        }
    }
}

impl Slot {
    /// Returns the subscriptions that may have to be filled, by their source.
    pub(crate) fn fills(self: &Arc<Self>) -> Vec<(QueueRef, Vec<SubscriptionId>)> {
        self.lock().fills.iter().map(|(at, ids)| (at.clone(), ids.clone())).collect()
    }

    /// Notes that the queue of a subscription is filled, unless there is more by now.
    pub(crate) fn note_filled(self: &Arc<Self>, source: &QueueRef, id: SubscriptionId) {
        let mut state = self.lock();
        if state.has_fill(&source.of_subscription(id)) {
            return;
        }
        let Some(ids) = state.fills.get_mut(source) else { return };
        ids.retain(|unfilled| *unfilled != id);
        if ids.is_empty() {
            state.fills.remove(source);
        }
    }
}
