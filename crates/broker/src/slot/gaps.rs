//! The gap of a suspended subscription: it catches up with the messages that it was left out of, then it gets copies of
//! posts again.
//!
//! ```text
//!            gap                    end of a pass     end of the last pass
//! positions ──┼───────────────────────────┼──────────────────┼───────────────▶
//!              pass: pages │ left out      last pass: pages   copied with their post
//! ```
//!
//! A pass is a fill ([`crate::slot::fill`]) with a room of its own. It begins with a note of its end, behind each message
//! that was left out before. Posts are left out meanwhile, until the rest is small: the last pass begins in the batch that
//! ends the suspension, and room is kept for it. No post to the source is copied or left out while that batch is written,
//! so each message is on one side of its end.
//!
//! A message that arrived from another queue has an id before the ones of its time. What tells whether it was left out is
//! the position at which it arrived; a pass begins to read where the least of these ids are.

use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::ids::{MessageId, SubscriptionId};
use angarium_core::message::{Header, Message};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_core::overflow::{Gap, Omissions};
use angarium_core::quota::Amount;
use angarium_storage::Note;

use crate::limits;
use crate::slot::backlog::{Backlog, amount_of};
use crate::slot::commit::count;
use crate::slot::fill::{BegunFill, Fill};
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::{OpenQueue, SlotState};
use crate::writer::change::Change;
use crate::writer::notes::{FillProgress, GapPass, GapSpan};

/// The position of a message among those of its queue. One that came back has the least one: no pass copies it.
pub(crate) fn position(header: &Header) -> MessageId {
    header.extras.as_ref().and_then(|extras| extras.arrived).unwrap_or(header.id)
}

/// Messages that were left out since the end of the last pass was chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentOmissions {
    /// The amount of their copies; none when it is not known, after the queue was opened.
    amount: Option<Amount>,
    /// The least id of the ones that came from other queues.
    lowest: MessageId,
}

impl Default for RecentOmissions {
    fn default() -> Self {
        Self { amount: Some(Amount::default()), lowest: MessageId::MAX }
    }
}

impl RecentOmissions {
    /// Those of a queue that is being opened.
    pub(in crate::slot) fn unknown(span: Option<GapSpan>) -> Self {
        Self { amount: None, lowest: span.map_or(MessageId::MAX, |span| span.lowest) }
    }

    pub(in crate::slot) fn add(&mut self, copies: Amount, lowest: MessageId) {
        self.amount = self.amount.map(|amount| amount.plus(copies));
        self.lowest = self.lowest.min(lowest);
    }

    /// Adds the ones of a pass that was not begun.
    fn restore(&mut self, earlier: Self) {
        self.amount = self.amount.zip(earlier.amount).map(|(recent, earlier)| recent.plus(earlier));
        self.lowest = self.lowest.min(earlier.lowest);
    }
}

/// A pass that is about to begin.
struct NextPass {
    progress: FillProgress,
    /// The end of the suspension, with the last pass.
    note: Option<Note>,
    /// What was left out before its end.
    recent: RecentOmissions,
}

/// A submitted begin of a pass.
pub(crate) struct BegunPass {
    pub(crate) begun: BegunFill,
    pub(crate) recent: RecentOmissions,
}

impl Backlog {
    /// Whether messages that were left out are still to be copied, before new ones are.
    pub(in crate::slot) fn is_behind(&self) -> bool {
        self.submitted.is_suspended && self.submitted.span.is_some()
    }

    /// Whether there is room for messages that were left out.
    pub(in crate::slot) fn may_catch_up(&self) -> bool {
        self.is_suspended() && self.is_behind() && self.bounds.have_room(self.held())
    }

    /// The messages that the subscription did not get: without the ones that were copied later.
    pub(in crate::slot) fn omissions(&self) -> Omissions {
        let Omissions { left_out, dropped, gap } = self.noted.omissions;
        let pass = self.filled.pass.unwrap_or(GapPass::NONE);
        let is_of_gap = self.noted.span.is_some_and(|span| span.from == pass.gap);
        let copied = if is_of_gap { pass.copied } else { 0 };
        let gap = gap.map(|gap| Gap { messages: gap.messages.saturating_sub(copied), ..gap });
        Omissions {
            left_out: left_out.saturating_sub(pass.copied_before.saturating_add(pass.copied)),
            dropped,
            gap: gap.filter(|gap| gap.messages > 0),
        }
    }

    /// The gap, while the subscription is suspended.
    pub(in crate::slot) fn current_gap(&self) -> Option<Gap> {
        self.omissions().gap.filter(|_| self.is_suspended())
    }

    /// Returns how many of these copies of a fill the bounds have room for. None while too little room is there to begin: in
    /// a suspension until nine tenths of the bounds are enough; for messages that waited when the subscription was created,
    /// while more than half of the bounds is in use, because the rest is for new messages.
    pub(in crate::slot) fn room_for(&self, copies: &[Message], pass: Option<GapPass>) -> Option<usize> {
        let held = self.held();
        let may_begin = match pass {
            // Its room is kept.
            Some(GapPass { room: Some(_), .. }) => true,
            _ if self.is_suspended() => self.bounds.have_room(held),
            Some(_) => true,
            None => self.bounds.fit(held.plus(held)),
        };
        if !may_begin {
            return None;
        }
        let mut sum = if pass.is_some() { self.written() } else { held };
        let fits = |copy: &&Message| {
            sum = sum.plus(amount_of([*copy]));
            self.bounds.fit(sum)
        };
        Some(copies.iter().take_while(fits).count())
    }

    /// Enters copies of a page of a fill, which are about to be submitted. They end no suspension. Returns the progress with
    /// their number.
    pub(in crate::slot) fn submit_page(
        &mut self,
        copies: &[Message],
        mut progress: FillProgress,
    ) -> FillProgress {
        let amount = amount_of(copies);
        self.pending = self.pending.plus(amount);
        self.kept = self.kept.minus(amount);
        let gap = self.submitted.span.filter(|span| progress.pass.is_some_and(|pass| pass.gap == span.from));
        let most = gap.and(self.submitted.omissions.gap).map_or(u64::MAX, |gap| gap.messages);
        if let Some(pass) = &mut progress.pass {
            // With another filter by now, other messages than the ones left out may be copied.
            pass.copied = pass.copied.saturating_add(count(copies)).min(most);
            pass.room = pass.room.map(|room| room.minus(amount));
        }
        progress
    }

    /// The greatest end of a fill, or position in a gap. None without any.
    pub(in crate::slot) fn newest(&self) -> Option<MessageId> {
        let last = self.noted.span.map_or(MessageId::ZERO, |span| span.last);
        Some(last.max(self.filled.end)).filter(|newest| *newest > MessageId::ZERO)
    }

    /// Keeps the room of the last pass over a gap.
    pub(in crate::slot) fn keep_room(&mut self) {
        let room = self.filled.pass.and_then(|pass| pass.room).filter(|_| !self.filled.is_over());
        self.kept = room.unwrap_or_default();
    }

    /// Chooses the next pass over the gap, up to `end`, an id behind each message that was left out.
    fn begin_pass(&mut self, end: MessageId) -> Option<NextPass> {
        let span = self.submitted.span.filter(|_| self.may_catch_up())?;
        let before = self.filled.pass.unwrap_or(GapPass::NONE);
        let is_begun = self.filled.pass.is_some() && before.gap == span.from;
        let recent = std::mem::take(&mut self.recent);
        let (from, lowest) =
            if is_begun { (self.filled.end.next(), recent.lowest) } else { (span.from, span.lowest) };
        let (copied, copied_before) = if is_begun {
            (before.copied, before.copied_before)
        } else {
            (0, before.copied_before.saturating_add(before.copied))
        };
        let is_small = |rest: &Amount| {
            rest.messages <= limits::MOVE_MESSAGES as u64 && self.bounds.have_room(self.held().plus(*rest))
        };
        let room = recent.amount.filter(is_small);
        let after = if room == Some(Amount::default()) { end } else { from.min(lowest).before() };
        let pass = GapPass { gap: span.from, from, room, copied, copied_before };
        let note = room.map(|_| self.submit_note(|note| note.is_suspended = false));
        Some(NextPass { progress: FillProgress { end, after, pass: Some(pass) }, note, recent })
    }
}

impl OpenQueue {
    /// Whether messages of the source are still to be copied, now or when there is room.
    pub(in crate::slot) fn is_filling(&self) -> bool {
        let is_behind = |backlog: &Backlog| backlog.is_suspended() && backlog.is_behind();
        self.fill.is_some() || self.backlog.as_deref().is_some_and(is_behind)
    }

    /// Whether there is something to copy at once, a fill that waits for room, or a backlog to count again.
    pub(in crate::slot) fn has_fill(&self) -> bool {
        let is_due = |backlog: &Backlog| backlog.may_catch_up() || backlog.is_uncounted();
        self.fill.is_some() || self.backlog.as_deref().is_some_and(is_due)
    }
}

impl QueueHandle {
    /// Returns the closed queues of subscriptions that may have to be filled with messages of the queue.
    pub(crate) fn closed_fills(&self) -> Vec<QueueRef> {
        let state = self.slot.lock();
        let own = state.fills.get(&self.at).into_iter().flatten().map(|id| self.at.of_subscription(*id));
        own.filter(|own| !state.queues.contains_key(own)).collect()
    }

    /// Begins the next pass over the gap of a suspended subscription, if there is room. The caller holds the gate of the queue.
    pub(crate) fn begin_pass(&self) -> Result<Option<BegunPass>, Error> {
        let now = self.slot.around.replica.clock.now();
        let mut locked = self.slot.lock();
        let queue = locked.queue(&self.at, self.id).ok_or_else(|| self.closed())?;
        if queue.fill.is_some() || !queue.has_fill() {
            return Ok(None);
        }
        let end = locked.ids.next(now, &mut self.slot.around.replica.random.clone());
        let queue = locked.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        let next = queue.backlog.as_mut().and_then(|backlog| backlog.begin_pass(end));
        let Some(NextPass { progress, note, recent }) = next else { return Ok(None) };
        if progress.is_joined() && !is_on(Mutation::CopyBeforeFillBegins) {
            queue.fill = Some(Fill::Joining);
        }
        let outcome = locked.submit(&self.at, Change::fill(Vec::new(), progress, note))?;
        Ok(Some(BegunPass { begun: BegunFill { progress, outcome }, recent }))
    }

    /// Takes a pass back whose begin was not written.
    pub(crate) fn cancel_pass(&self, recent: RecentOmissions) {
        self.lock_queue(|queue| {
            queue.fill = queue.fill.filter(|fill| *fill != Fill::Joining);
            if let Some(backlog) = &mut queue.backlog {
                backlog.recent.restore(recent);
            }
        });
    }

    /// Keeps the room again of a page that was not written.
    pub(crate) fn cancel_page(&self) {
        self.lock_queue(|queue| queue.backlog.as_mut().map(|backlog| backlog.keep_room()));
    }
}

impl SlotState {
    /// Notes that the queue of a subscription may have to be filled.
    pub(in crate::slot) fn note_fill(&mut self, own: &QueueRef) {
        let Some((source, id)) = own.source().zip(own.name.subscription()) else { return };
        let ids = self.fills.entry(source).or_default();
        if !ids.contains(&id) {
            ids.push(id);
        }
    }

    /// Whether a message of a queue is still to be copied for a subscription by a fill that has begun. With another id it
    /// would be behind the end of that fill, and not be copied.
    pub(in crate::slot) fn is_awaited_by_fill(&self, source: &QueueRef, stored: &Header) -> bool {
        // A fill copies no message that has an outcome.
        let ids = self.fills.get(source).filter(|_| !stored.state.is_kept());
        let subscriptions = self.queues.get(source).map(|queue| Arc::clone(&queue.subscriptions));
        let is_confirmed = |id: &SubscriptionId| {
            let known = subscriptions.iter().flat_map(|all| all.iter()).find(|known| known.id() == *id);
            known.is_some_and(|known| known.subscription.is_confirmed())
        };
        ids.into_iter().flatten().filter(|id| is_confirmed(id)).any(|id| {
            let Some(own) = self.queues.get(&source.of_subscription(*id)) else { return true };
            match own.fill {
                Some(Fill::Running(progress)) => {
                    stored.id > progress.after && progress.covers(position(stored))
                }
                Some(Fill::Joining) => true,
                Some(Fill::Due) | None => false,
            }
        })
    }

    /// Whether the open queue of a subscription is to be filled.
    pub(in crate::slot) fn has_fill(&self, own: &QueueRef) -> bool {
        self.queues.get(own).is_some_and(|queue| queue.has_fill())
    }
}
