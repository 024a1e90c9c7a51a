//! Scheduled messages: when the next one may be due, and how they become ready.
//!
//! The pool has them in order of time; memory has only the time of the next one, so a million of them cost no memory. A
//! message that becomes ready is hidden until that is durable. Then its position is that of its id: messages with
//! greater ids follow it, even if they were ready before (P2).

use super::hidden::{HiddenMessage, HiddenReason};
use super::queue::QueueEngine;

use crate::limits;
use angarium_core::ids::MessageId;
use angarium_core::maps::HashSet;
use angarium_core::message::{Header, State};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::time::Timestamp;

/// The schedule of a queue.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Lower bound of the times of all messages that are not being woken; none when there are none.
    next: Option<Timestamp>,
    /// Whether due messages are being read or made ready.
    is_waking: bool,
    /// Set while a page of them is read.
    reading: Option<ScheduleRead>,
}

/// Changes since a page was requested.
#[derive(Debug, Default)]
struct ScheduleRead {
    /// Messages that were removed or shown: the page may have their state of before.
    changed: HashSet<MessageId>,
    /// Whether there were too many changes: then the page must be ignored.
    is_void: bool,
}

impl Schedule {
    pub(super) fn found(is_scheduled: bool) -> Self {
        Self { next: is_scheduled.then(Timestamp::default), is_waking: false, reading: None }
    }

    /// Records that a message is scheduled for `ready`.
    pub(super) fn expect(&mut self, ready: Timestamp) {
        self.next = Some(self.next.map_or(ready, |next| next.min(ready)));
    }

    /// Records that a message is gone or has changed.
    pub(super) fn note_change(&mut self, id: MessageId) {
        let Some(ScheduleRead { changed, is_void }) = &mut self.reading else { return };
        *is_void |= changed.len() >= limits::WAKE_CHANGES;
        if !*is_void {
            changed.insert(id);
        }
    }

    /// Whether there may be scheduled messages.
    pub(super) fn has_any(&self) -> bool {
        self.is_waking || self.next.is_some()
    }

    /// Records that only the pool knows when the next message is due.
    pub(super) fn expect_any(&mut self) {
        self.expect(Timestamp::default());
    }
}

impl QueueEngine {
    /// When the pool should be read for due messages; none while it is being read, or when no message is scheduled.
    pub fn wakes_at(&self) -> Option<Timestamp> {
        self.schedule.next.filter(|_| !self.schedule.is_waking)
    }

    /// Whether there may be due messages that are not ready yet.
    pub fn is_waking(&self, now: Timestamp) -> bool {
        self.schedule.is_waking || self.schedule.next.is_some_and(|next| next <= now)
    }

    /// Begins to wake due messages. Returns false when none can be due, or when a wake is in progress.
    pub fn begin_wake(&mut self, now: Timestamp) -> bool {
        let begins = self.wakes_at().is_some_and(|next| next <= now);
        if begins {
            self.schedule.is_waking = true;
            self.schedule.next = None;
        }
        begins
    }

    /// A page of scheduled entries will be read next: later changes take precedence over it.
    pub fn begin_wake_page(&mut self) {
        self.schedule.reading = Some(ScheduleRead::default());
    }

    /// Like [`QueueEngine::wake`], for the due entries of a page that was read since [`QueueEngine::begin_wake_page`].
    /// Entries that were removed or changed since are left out. None when the page must be ignored and read again.
    pub fn wake_page(&mut self, mut headers: Vec<Header>, now: Timestamp) -> Option<Vec<Header>> {
        let ScheduleRead { changed, is_void } = self.schedule.reading.take()?;
        if is_void {
            return None;
        }
        headers.retain(|header| !changed.contains(&header.id));
        Some(self.wake(headers, now))
    }

    /// Hides entries, as the pool returned them, that are scheduled and due, or prepared and to be published. Returns
    /// the headers to write; entries that are hidden already are left out.
    /// A prepared entry becomes scheduled if it has a delay at `now`.
    pub fn wake(&mut self, headers: Vec<Header>, now: Timestamp) -> Vec<Header> {
        let mut ready = Vec::with_capacity(headers.len());
        for header in headers {
            if self.hidden.contains_key(&header.id) {
                continue;
            }
            if let Some(groups) = &mut self.groups {
                groups.remove(header.id);
            }
            if matches!(header.state, State::Prepared(_)) && header.ready > now {
                ready.push(Header { state: State::Scheduled, ..header.clone() });
                let publishing = HiddenMessage::new(header.clone(), HiddenReason::Publishing);
                self.hidden.insert(header.id, HiddenMessage { may_be_delayed: true, ..publishing });
                continue;
            }
            ready.push(Header { state: State::Ready, ..header.clone() });
            self.hidden.insert(header.id, HiddenMessage::new(header, HiddenReason::Waking));
        }
        ready
    }

    /// The written headers are durable: the messages are ready, except messages that are being removed.
    pub fn woken(&mut self, ids: &[MessageId]) {
        for id in ids {
            let Some(HiddenMessage { header: Some(header), why, may_be_delayed, .. }) =
                self.hidden.get_mut(id)
            else {
                continue;
            };
            // Its removal may have begun since, so the reason does not tell.
            header.state = if *may_be_delayed { State::Scheduled } else { State::Ready };
            self.in_transfer.forget(*id);
            if (matches!(*why, HiddenReason::Waking | HiddenReason::Publishing)
                || is_on(Mutation::ReviveRemovalByWake))
                && let Some(header) = self.hidden.remove(id).and_then(|hidden| hidden.header)
            {
                self.show(header, None);
            }
        }
    }

    /// The headers were certainly not written: the messages become what they were before.
    pub fn wake_failed(&mut self, ids: &[MessageId]) {
        for id in ids {
            let why = self.hidden.get(id).map(|hidden| hidden.why);
            if matches!(why, Some(HiddenReason::Waking | HiddenReason::Publishing))
                && let Some(header) = self.hidden.remove(id).and_then(|hidden| hidden.header)
            {
                self.show(header, None);
            }
        }
    }

    /// Ends a wake: the due messages are ready, or will be tried again. `next` is the time of the next message that was
    /// read.
    pub fn finish_wake(&mut self, next: Option<Timestamp>) {
        self.schedule.is_waking = false;
        self.schedule.reading = None;
        if let Some(next) = next.filter(|_| !is_on(Mutation::ForgetLaterWake)) {
            self.schedule.expect(next);
        }
    }
}
