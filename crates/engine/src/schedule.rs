//! Messages that are not ready yet: when the next of them may be due, and how they become ready.
//!
//! The pool keeps them in order of their time; here is only how far that is away, so that a million of them cost
//! no memory. One that becomes ready is hidden until that is durable, and then is at its id's place: the ones
//! posted after it come later, though they may have been ready before (P2).

use std::collections::HashSet;

use super::hidden::{HiddenMessage, HiddenReason};
use super::queue::QueueEngine;
use crate::limits;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, State};
use angarium_core::time::Timestamp;

/// What is known of the scheduled messages of a queue.
#[derive(Debug)]
pub(super) struct Schedule {
    /// None of them is due before; absent when there is none that is not being woken.
    next: Option<Timestamp>,
    /// Whether the due ones are being looked for, or made ready.
    is_waking: bool,
    /// While a page of them is read.
    reading: Option<ScheduleRead>,
}

/// What happened since a page was asked for.
#[derive(Debug, Default)]
struct ScheduleRead {
    /// What was removed, or was hidden and is not any more: the page may show it as it was.
    changed: HashSet<MessageId>,
    /// Whether there was too much of it: then the page states nothing.
    is_void: bool,
}

impl Schedule {
    pub(super) fn found(is_scheduled: bool) -> Self {
        Self { next: is_scheduled.then(Timestamp::default), is_waking: false, reading: None }
    }

    /// A message is scheduled for this time.
    pub(super) fn expect(&mut self, ready: Timestamp) {
        self.next = Some(self.next.map_or(ready, |next| next.min(ready)));
    }

    /// A message is gone, or is something else than it was a moment ago.
    pub(super) fn note_change(&mut self, id: MessageId) {
        let Some(ScheduleRead { changed, is_void }) = &mut self.reading else { return };
        *is_void |= changed.len() >= limits::WAKE_CHANGES;
        if !*is_void {
            changed.insert(id);
        }
    }

    /// Whether messages may be scheduled.
    pub(super) fn has_any(&self) -> bool {
        self.is_waking || self.next.is_some()
    }

    /// Only the pool knows what is scheduled.
    pub(super) fn refresh_owner(&mut self) {
        self.expect(Timestamp::default());
    }
}

impl QueueEngine {
    /// When the pool should be asked for scheduled messages that are due; none while it is asked, or when nothing
    /// is scheduled.
    pub fn wakes_at(&self) -> Option<Timestamp> {
        self.schedule.next.filter(|_| !self.schedule.is_waking)
    }

    /// Whether messages may be due that are not ready yet.
    pub fn is_waking(&self, now: Timestamp) -> bool {
        self.schedule.is_waking || self.schedule.next.is_some_and(|next| next <= now)
    }

    /// Begins to wake what is due. False when nothing can be, or when that has begun already.
    pub fn begin_wake(&mut self, now: Timestamp) -> bool {
        let begins = self.wakes_at().is_some_and(|next| next <= now);
        if begins {
            self.schedule.is_waking = true;
            self.schedule.next = None;
        }
        begins
    }

    /// A page of scheduled entries is about to be read: what changes from here on wins over it.
    pub fn begin_wake_page(&mut self) {
        self.schedule.reading = Some(ScheduleRead::default());
    }

    /// As [`QueueEngine::wake`], of the due entries of a page that was read since [`QueueEngine::begin_wake_page`].
    /// What was removed since is not woken, and what became something else is looked at by what it is now. None when
    /// the page states nothing and must be read again.
    pub fn wake_page(&mut self, mut headers: Vec<Header>) -> Option<Vec<Header>> {
        let ScheduleRead { changed, is_void } = self.schedule.reading.take()?;
        if is_void {
            return None;
        }
        headers.retain(|header| !changed.contains(&header.id));
        Some(self.wake(headers))
    }

    /// Hides entries that are scheduled and due, or prepared and to be published, as the pool shows them. Returns
    /// what to write of them; others are changed by another caller already.
    pub fn wake(&mut self, headers: Vec<Header>) -> Vec<Header> {
        let mut ready = Vec::with_capacity(headers.len());
        for header in headers {
            if self.hidden.contains_key(&header.id) {
                continue;
            }
            if let Some(groups) = &mut self.groups {
                groups.remove(header.id);
            }
            ready.push(Header { state: State::Ready, ..header.clone() });
            self.hidden.insert(header.id, HiddenMessage::new(header, HiddenReason::Waking));
        }
        ready
    }

    /// What was written of them is durable: they are ready, but for those being removed.
    pub fn woken(&mut self, ids: &[MessageId]) {
        for id in ids {
            let Some(HiddenMessage { header: Some(header), why, .. }) = self.hidden.get_mut(id) else {
                continue;
            };
            header.state = State::Ready;
            self.in_transfer.forget(*id);
            if *why == HiddenReason::Waking
                && let Some(header) = self.hidden.remove(id).and_then(|hidden| hidden.header)
            {
                self.show(header, None);
            }
        }
    }

    /// It certainly was not written: they are as before.
    pub fn wake_failed(&mut self, ids: &[MessageId]) {
        for id in ids {
            if self.hidden.get(id).is_some_and(|hidden| hidden.why == HiddenReason::Waking)
                && let Some(header) = self.hidden.remove(id).and_then(|hidden| hidden.header)
            {
                self.show(header, None);
            }
        }
    }

    /// What was due is ready, or will be tried again; the next one that was seen is due at `next`.
    pub fn finish_wake(&mut self, next: Option<Timestamp>) {
        self.schedule.is_waking = false;
        self.schedule.reading = None;
        if let Some(next) = next {
            self.schedule.expect(next);
        }
    }
}
