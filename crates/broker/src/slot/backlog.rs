//! The copies that wait in a subscription, and the bounds of their amount.
//!
//! ```text
//!            a post whose copies do not fit: left out whole
//! copied ──────────────────────────────────────────────────▶ suspended: each post is left out
//!    ▲                                                           │
//!    └──── messages left out: copied, as there is room ──────────┘
//! ```
//!
//! A suspended subscription catches up before it gets copies of new posts again ([`crate::slot::gaps`]). That of a topic
//! has nothing to catch up with: it resumes when nine tenths of the bounds or less are stored.
//!
//! The note of the messages left out is in the batch of the post that leaves them out, so it is durable before the post is
//! answered. The state follows from that note and from the totals of the pool, which a new owner of the slot reads.
//!
//! The amount is exact when a post could reach the bounds: then the totals are read after each batch. Below, it is the sum
//! of the copies since they were last read.

mod counts;
mod two_pools;

use std::sync::Arc;

use tracing::{info, warn};

use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId, SubscriptionId};
use angarium_core::message::{Header, Message};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_core::overflow::{CopyBounds, Gap, Omissions, Overflow};
use angarium_core::quota::Amount;
use angarium_core::time::Timestamp;
use angarium_metrics::Meter;
use angarium_storage::Note;

use crate::limits;
use crate::slot::commit::count;
use crate::slot::gaps::RecentOmissions;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::{OpenQueue, Slot, SlotState};
use crate::slot::subscriptions::KnownSubscription;
use crate::writer::change::Change;
use crate::writer::notes::{FillProgress, GapSpan, OmissionsNote};
use crate::writer::pending::{Leg, Write, WriteOutcome};
use crate::writer::purpose::Purpose;
use crate::writer::send::Outcome;

/// The copies that wait in the queue of a subscription.
pub(crate) struct Backlog {
    pub(crate) bounds: CopyBounds,
    /// The stored copies: exact when they and the pending ones are [`Backlog::is_near`] the bounds and the pool has answered,
    /// and not less otherwise.
    stored: Amount,
    /// Whether the totals after a batch could not be read: `stored` may be too large until they are.
    is_uncounted: bool,
    /// The copies that are being written.
    pub(in crate::slot) pending: Amount,
    /// The room for messages of a gap that are about to be copied.
    pub(in crate::slot) kept: Amount,
    pub(in crate::slot) is_suspended: bool,
    /// Whether the source keeps messages: it is no topic.
    source_keeps: bool,
    /// The note as the pool has it.
    pub(in crate::slot) noted: OmissionsNote,
    /// The note that was submitted last.
    pub(in crate::slot) submitted: OmissionsNote,
    /// The last fill, also an ended one.
    pub(in crate::slot) filled: FillProgress,
    /// The messages of the gap that no pass over it copies.
    pub(in crate::slot) recent: RecentOmissions,
    /// Number of submitted notes whose write has no outcome yet.
    unsettled: usize,
    /// The note of the last fill as the pool has it.
    fill_noted: Option<FillProgress>,
    /// Number of submitted notes of fills whose write has no outcome yet.
    fills_unsettled: usize,
    /// Whether some copies may be in two pools, because they are being copied from one to the other.
    in_two_pools: bool,
    /// Number of times that this began.
    pool_copies: u64,
    /// Held while copies beyond the bounds are removed, so that one task at a time counts them.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
}

/// The decision about the copies of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Copied,
    LeftOut,
    /// The post is refused.
    Refused,
}

/// The state of a subscription for its bounds.
#[derive(Clone, Copy, Debug)]
pub struct BacklogView {
    /// Whether it gets no copies at present.
    pub is_suspended: bool,
    /// The messages that it did not get.
    pub omissions: Omissions,
    /// Whether messages that wait in its source are still to be copied.
    pub is_filling: bool,
}

/// The messages of one post that a subscription does not get.
pub(in crate::slot) struct LeftOutPost<'a> {
    pub(in crate::slot) ids: &'a [MessageId],
    /// The position of a message that arrives from another queue.
    pub(in crate::slot) arrived: Option<MessageId>,
    /// The amount of the copies.
    pub(in crate::slot) copies: Amount,
}

/// What a pool has about the backlog of a queue that is being opened.
pub(crate) struct StoredBacklog {
    pub(crate) stored: Amount,
    pub(crate) omissions: OmissionsNote,
    /// The last fill, if there was one.
    pub(crate) fill: Option<FillProgress>,
    /// Whether the source keeps messages: it is no topic.
    pub(crate) source_keeps: bool,
}

impl Backlog {
    /// The backlog of a queue that is being opened.
    pub(crate) fn new(bounds: CopyBounds, found: StoredBacklog) -> Self {
        let StoredBacklog { stored, omissions: noted, fill, source_keeps } = found;
        let mut backlog = Self {
            bounds,
            stored,
            is_uncounted: false,
            pending: Amount::default(),
            kept: Amount::default(),
            is_suspended: false,
            source_keeps,
            noted,
            submitted: noted,
            filled: fill.unwrap_or(FillProgress::NONE),
            recent: RecentOmissions::unknown(noted.span),
            unsettled: 0,
            fill_noted: fill,
            fills_unsettled: 0,
            in_two_pools: false,
            pool_copies: 0,
            turn: Arc::default(),
        };
        backlog.keep_room();
        backlog.is_suspended = backlog.stays_suspended();
        backlog
    }

    /// Whether the subscription gets no copies at present. With `refuse` it catches up first, too.
    pub(crate) fn is_suspended(&self) -> bool {
        self.is_suspended
            && match self.bounds.overflow {
                Overflow::Suspend => true,
                Overflow::Refuse => self.is_behind(),
                Overflow::DropOldest => false,
            }
    }

    /// Whether a suspension that is noted lasts.
    fn stays_suspended(&self) -> bool {
        self.noted.is_suspended && (self.noted.span.is_some() || !self.bounds.have_room(self.held()))
    }

    fn view(&self, is_filling: bool) -> BacklogView {
        // A new owner would find no suspension before its note is durable.
        let is_suspended = self.is_suspended() && self.noted.is_suspended;
        let is_filling = is_filling || is_suspended && self.is_behind();
        BacklogView { is_suspended, omissions: self.omissions(), is_filling }
    }

    /// Decides about the copies of one post together.
    pub(crate) fn fate(&self, copies: Amount) -> Fate {
        self.fate_after(Amount::default(), copies)
    }

    /// As `fate`, of copies that follow these ones.
    pub(crate) fn fate_after(&self, before: Amount, copies: Amount) -> Fate {
        let fits = self.bounds.fit(self.held().plus(before).plus(copies));
        match self.bounds.overflow {
            // It would drop all others, and then itself.
            Overflow::DropOldest if copies.bytes > self.bounds.most.bytes => Fate::LeftOut,
            Overflow::Suspend if self.is_suspended || !fits => Fate::LeftOut,
            Overflow::Refuse if self.is_suspended() => Fate::LeftOut,
            Overflow::Refuse if !fits => Fate::Refused,
            Overflow::Suspend | Overflow::Refuse | Overflow::DropOldest => Fate::Copied,
        }
    }

    /// The stored copies, the pending ones, and the ones for which room is kept.
    pub(crate) fn held(&self) -> Amount {
        self.written().plus(self.kept)
    }

    /// The stored copies and the pending ones.
    pub(in crate::slot) fn written(&self) -> Amount {
        self.stored.plus(self.pending)
    }

    /// Whether copies beyond the bounds must be removed, now or once they are stored.
    pub(crate) fn must_drop(&self) -> bool {
        self.bounds.overflow == Overflow::DropOldest && !self.bounds.fit(self.held())
    }

    /// The stored copies beyond the bounds.
    pub(crate) fn excess(&self) -> Amount {
        // What could not be counted may have been removed by a consumer.
        if self.bounds.overflow == Overflow::DropOldest && !self.is_uncounted {
            self.stored.minus(self.bounds.most)
        } else {
            Amount::default()
        }
    }

    /// Enters copies that are about to be submitted. Returns the note for their batch, if the pool has it otherwise.
    pub(in crate::slot) fn submit_copies(&mut self, copies: Amount) -> Option<Note> {
        self.pending = self.pending.plus(copies);
        self.is_suspended = false;
        self.submitted.is_suspended.then(|| self.submit_note(|note| note.is_suspended = false))
    }

    /// Enters messages that no bounds have room for. They suspend nothing. Returns the note for their batch.
    pub(in crate::slot) fn submit_skip(&mut self, messages: u64) -> Note {
        self.submit_note(|note| {
            note.omissions.left_out = note.omissions.left_out.saturating_add(messages);
        })
    }

    /// Enters messages that a post leaves out. Copies that no empty subscription has room for suspend nothing. Returns the
    /// note for the batch.
    pub(in crate::slot) fn submit_omission(
        &mut self,
        left: &LeftOutPost<'_>,
        now: Timestamp,
    ) -> Option<Note> {
        let (first, last) = (*left.ids.first()?, *left.ids.last()?);
        let messages = count(left.ids);
        let continues = self.is_suspended;
        let suspends = self.bounds.overflow == Overflow::Suspend && self.bounds.fit(left.copies);
        let lowest = left.arrived.map_or(MessageId::MAX, |_| first);
        if suspends && !continues {
            self.recent = RecentOmissions::default();
        }
        if suspends || continues {
            self.recent.add(left.copies, lowest);
        }
        self.is_suspended |= suspends;
        let begun =
            GapSpan { from: left.arrived.unwrap_or(first), last: left.arrived.unwrap_or(last), lowest };
        let keeps = self.source_keeps;
        Some(self.submit_note(|OmissionsNote { omissions, is_suspended, span }| {
            omissions.left_out = omissions.left_out.saturating_add(messages);
            let is_part = continues && *is_suspended;
            omissions.gap = Some(match omissions.gap {
                Some(gap) if is_part => Gap { last, messages: gap.messages.saturating_add(messages), ..gap },
                _ => Gap { since: now, first, last, messages },
            });
            *span = match *span {
                Some(span) if is_part => {
                    Some(GapSpan { last: begun.last, lowest: span.lowest.min(lowest), ..span })
                }
                _ => keeps.then_some(begun),
            };
            *is_suspended |= suspends;
        }))
    }

    /// Enters copies that are about to be removed because of the bounds. Returns the note for that batch.
    fn submit_drop(&mut self, messages: u64) -> Note {
        self.submit_note(|note| {
            note.omissions.dropped = note.omissions.dropped.saturating_add(messages);
        })
    }

    pub(in crate::slot) fn submit_note(&mut self, change: impl FnOnce(&mut OmissionsNote)) -> Note {
        if !is_on(Mutation::CountNoOmission) {
            change(&mut self.submitted);
        }
        self.unsettled += 1;
        self.submitted.note()
    }

    /// Enters the outcome of a change of the queue.
    fn settle(&mut self, change: &Change, is_done: bool) {
        let copies = amount_of(&change.changes().appends);
        if change.purpose() == Purpose::FanOut {
            self.pending = self.pending.minus(copies);
        }
        if is_done && change.purpose().changes_totals() {
            self.stored = self.stored.plus(copies);
        }
        self.settle_copy(change, is_done);
        if let Some(progress) = change.fill_progress() {
            self.fills_unsettled = self.fills_unsettled.saturating_sub(1);
            self.fill_noted = Some(progress).filter(|_| is_done).or(self.fill_noted);
        }
        let Some(note) = change.changes().notes.iter().find_map(OmissionsNote::read) else { return };
        self.unsettled = self.unsettled.saturating_sub(1);
        if is_done {
            self.noted = note;
        } else if self.unsettled == 0 {
            self.submitted = self.noted;
            self.is_suspended = self.stays_suspended();
        }
    }

    /// Enters the totals of the pool, while no batch is in flight.
    fn learn(&mut self, stored: Amount) {
        self.stored = stored;
        self.is_uncounted = false;
        self.resume();
    }

    /// Ends a suspension that has nothing to catch up with, if there is room.
    fn resume(&mut self) {
        if self.is_suspended && !self.is_behind() && self.bounds.have_room(self.held()) {
            self.is_suspended = false;
        }
    }

    /// Whether the totals are to be read again.
    pub(in crate::slot) fn is_uncounted(&self) -> bool {
        self.is_uncounted
    }

    /// Whether a post could reach the bounds, whatever else a slot writer has to write; or a fill from the oldest message
    /// could wait for room.
    fn is_near(&self) -> bool {
        let held = self.held();
        let is_filling = !self.filled.is_over() && self.filled.pass.is_none();
        self.is_suspended
            || self.is_uncounted
            || !self.bounds.fit(held.plus(limits::BACKLOG_NEAR))
            || is_filling && !self.bounds.fit(held.plus(held))
    }

    /// Applies changed bounds. What is stored is counted again if it may be too much for them: removals far from the former
    /// bounds were not counted.
    fn set_bounds(&mut self, bounds: CopyBounds) {
        self.bounds = bounds;
        self.is_uncounted |= self.is_near();
        self.resume();
    }
}

impl Backlog {
    /// Logs that the subscription gets copies of new posts again.
    pub(in crate::slot) fn log_resumed(&self, at: &QueueRef) {
        let left_out = self.omissions().gap.map_or(0, |gap| gap.messages).saturating_sub(self.kept.messages);
        let (project, source) = (&at.project, at.name.source());
        let subscription = at.name.subscription().map(tracing::field::display);
        info!(%project, queue = source, subscription, left_out, "subscription resumed");
    }
}

/// The amount of messages.
pub(crate) fn amount_of<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Amount {
    messages.into_iter().fold(Amount::default(), |sum, message| {
        sum.plus(Amount { messages: 1, bytes: message.header.size.into() })
    })
}

impl SlotState {
    /// Tells the queues of subscriptions the outcome of writes.
    pub(in crate::slot) fn settle_backlogs(&mut self, meter: &Meter, writes: &[Write], outcome: Outcome) {
        // A change of both pools counts once: it is known when the first one has it.
        for write in writes.iter().filter(|write| write.leg != Leg::Second) {
            let is_done = write.outcome(outcome) == Outcome::Done;
            for (at, queue, change) in write.parts() {
                if let Some(at) = at.filter(|at| at.name.subscription().is_some()) {
                    self.settle_backlog(meter, (at, queue), change, is_done);
                }
            }
        }
    }

    fn settle_backlog(
        &mut self,
        meter: &Meter,
        (at, id): (&QueueRef, QueueId),
        change: &Change,
        is_done: bool,
    ) {
        let Some(queue) = self.queue_mut(at, id) else { return };
        let Some(backlog) = &mut queue.backlog else { return };
        let before = backlog.noted;
        backlog.settle(change, is_done);
        let after = backlog.noted;
        if after == before {
            return;
        }
        meter.note_left_out(at, after.omissions.left_out.saturating_sub(before.omissions.left_out));
        meter.note_dropped(at, after.omissions.dropped.saturating_sub(before.omissions.dropped));
        if after.is_suspended && !before.is_suspended {
            let (project, source) = (&at.project, at.name.source());
            let subscription = at.name.subscription().map(tracing::field::display);
            let first = after.omissions.gap.map(|gap| tracing::field::display(gap.first));
            warn!(%project, queue = source, subscription, first, "subscription suspended");
        }
    }

    /// The suspended subscriptions of a queue, as far as their queues are open.
    pub(in crate::slot) fn suspended_of(&self, source: &OpenQueue) -> Vec<SubscriptionId> {
        let is_suspended = |known: &&KnownSubscription| {
            let own = self.queues.get(&known.at).and_then(|queue| queue.backlog.as_ref());
            own.is_some_and(|backlog| backlog.is_suspended())
        };
        source.subscriptions.iter().filter(is_suspended).map(KnownSubscription::id).collect()
    }

    /// Number of suspended subscriptions whose queues are open.
    pub(in crate::slot) fn suspended(&self) -> usize {
        let backlogs = self.queues.values().filter_map(|queue| queue.backlog.as_ref());
        backlogs.filter(|backlog| backlog.is_suspended()).count()
    }
}

impl Slot {
    /// Applies changed bounds to the queue of a subscription, if it is open.
    pub(crate) fn set_bounds(self: &Arc<Self>, at: &QueueRef, bounds: CopyBounds) {
        let mut state = self.lock();
        let Some(backlog) = state.queues.get_mut(at).and_then(|queue| queue.backlog.as_mut()) else { return };
        backlog.set_bounds(bounds);
        if backlog.is_uncounted || backlog.may_catch_up() {
            state.note_fill(at);
        }
    }
}

impl QueueHandle {
    /// Returns the state of the subscription whose queue it is. None when it is closed, or the queue of none.
    pub(crate) fn backlog(&self) -> Option<BacklogView> {
        let view = |queue: &mut OpenQueue| Some(queue.backlog.as_deref()?.view(queue.fill.is_some()));
        self.lock_queue(view).flatten()
    }

    /// Submits the note of the queue as it is, so that the totals are read after its batch. None when they are known.
    pub(crate) fn count_again(&self) -> Result<Option<WriteOutcome>, Error> {
        let mut locked = self.slot.lock();
        let queue = locked.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        // The end of a copy to another pool counts too.
        let is_due = |backlog: &&mut Box<Backlog>| backlog.is_uncounted && !backlog.in_two_pools;
        let Some(backlog) = queue.backlog.as_mut().filter(is_due) else { return Ok(None) };
        let note = backlog.submit_note(|_| {});
        locked.submit(&self.at, Change::drop_copies(Vec::new(), Some(note))).map(Some)
    }

    /// Reads the backlog. None when the queue is closed, or that of no subscription.
    pub(crate) fn of_backlog<T>(&self, read: impl FnOnce(&Backlog) -> T) -> Option<T> {
        self.lock_queue(|queue| queue.backlog.as_deref().map(read)).flatten()
    }

    /// Submits the removal of hidden copies beyond the bounds, with the note of their number. `stored`: their headers in
    /// the pool.
    pub(crate) fn drop_selected(&self, stored: &[Header]) -> Result<WriteOutcome, Error> {
        self.remove_hidden(stored, |queue: &mut OpenQueue, ids| {
            let note = queue.backlog.as_mut().map(|backlog| backlog.submit_drop(count(&ids)));
            Change::drop_copies(ids, note)
        })
    }
}

#[cfg(test)]
mod tests;
