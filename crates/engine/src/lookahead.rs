//! Look-ahead: messages of quiet groups beyond the ready cache, while noisy groups fill it (see [`super::fair`]). They
//! are served before the ready cache reaches them.
//!
//! Every message here is ready: a message that becomes hidden is forgotten at once. The look-ahead may be incomplete:
//! the ready cache serves the others when it reaches them. It keeps headers only, at most [`limits::AHEAD_MESSAGES`].

use std::collections::BTreeMap;

use super::queue::QueueEngine;
use super::ready_cache::ReadyMessage;
use super::refill::Refill;

use crate::limits;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::maps::HashSet;
use angarium_core::message::{Header, Message, State};
use angarium_core::small_bounds::within;

#[derive(Debug)]
pub(super) struct Lookahead {
    headers: BTreeMap<MessageId, Header>,
    /// The pool was searched up to here.
    cursor: MessageId,
    /// Set while a page is read.
    reading: Option<LookaheadRead>,
}

/// Changes since a page was requested.
#[derive(Debug, Default)]
struct LookaheadRead {
    /// Messages that were hidden or shown: the page may have their state of before.
    hidden: HashSet<MessageId>,
    /// Whether the page must be ignored. No other page is read before it arrives, because the two could be confused.
    is_void: bool,
}

impl Default for Lookahead {
    fn default() -> Self {
        Self { headers: BTreeMap::new(), cursor: MessageId::ZERO, reading: None }
    }
}

impl Lookahead {
    pub(super) fn first(&self) -> Option<&Header> {
        self.headers.values().next()
    }

    pub(super) fn take(&mut self, id: MessageId) -> Option<ReadyMessage> {
        self.headers.remove(&id).map(|header| ReadyMessage { header, body: None })
    }

    /// A message becomes hidden.
    pub(super) fn hide(&mut self, id: MessageId) {
        self.headers.remove(&id);
        if let Some(reading) = &mut self.reading {
            reading.hidden.insert(id);
        }
    }

    /// A message is not hidden any more: it is gone, or the caller shows it next.
    pub(super) fn unhide(&mut self, id: MessageId) {
        if let Some(reading) = &mut self.reading {
            reading.hidden.insert(id);
        }
    }

    /// Adds a message that is ready beyond the ready cache.
    fn show(&mut self, header: &Header) {
        if self.headers.len() < within(limits::AHEAD_MESSAGES) {
            self.headers.insert(header.id, header.clone());
        }
    }

    pub(super) fn forget_group(&mut self, group: &GroupName) {
        self.headers.retain(|_, header| header.group.as_ref() != Some(group));
    }

    /// Begins again, and ignores the page that is being read.
    pub(super) fn clear(&mut self) {
        self.headers.clear();
        self.cursor = MessageId::ZERO;
        if let Some(reading) = &mut self.reading {
            *reading = LookaheadRead { is_void: true, ..LookaheadRead::default() };
        }
    }
}

impl QueueEngine {
    /// Adds a message that became ready beyond the ready cache, after it was hidden or as a new one.
    pub(super) fn show_ahead(&mut self, header: &Header) {
        let order = self.ready_cache.fair_order();
        if order.has_noisy()
            && !order.is_noisy(header.group.as_ref())
            && header.id > self.ready_cache.cursor()
        {
            self.hidden.ahead.show(header);
        }
    }

    /// A new message became durable, in any state.
    pub(super) fn posted_ahead(&mut self, header: &Header, tail: MessageId) {
        if !self.ready_cache.fair_order().has_noisy() {
            return;
        }
        self.ready_cache.note_sent(header.group.as_ref(), header.created);
        let ahead = &mut self.hidden.ahead;
        let is_whole = ahead.cursor >= tail && ahead.headers.len() < within(limits::AHEAD_MESSAGES);
        if is_whole && ahead.reading.is_none() {
            ahead.cursor = header.id;
        }
        if header.state == State::Ready {
            self.show_ahead(header);
        }
    }

    /// Returns the page to search for messages of quiet groups when the ready cache has none; none while one is read,
    /// or when there is nothing to find.
    pub fn begin_lookahead(&mut self) -> Option<Refill> {
        let order = self.ready_cache.fair_order();
        let is_wanted = order.has_noisy() && order.first_quiet().is_none();
        let ahead = &mut self.hidden.ahead;
        let after = ahead.cursor.max(self.ready_cache.cursor());
        let is_full = ahead.headers.len() >= limits::ready_cache_low();
        if !is_wanted || is_full || ahead.reading.is_some() || after >= self.ready_cache.tail() {
            return None;
        }
        ahead.reading = Some(LookaheadRead::default());
        Some(Refill { after, until: self.ready_cache.tail() })
    }

    /// The page was read: entries after `refill.after`, in order; `is_last` when there are no more.
    pub fn finish_lookahead(&mut self, refill: Refill, page: Vec<Message>, is_last: bool) {
        let Some(LookaheadRead { hidden: changed, is_void: false }) = self.hidden.ahead.reading.take() else {
            return;
        };
        let mut reached = match page.last() {
            Some(last) if !is_last => last.header.id.min(refill.until),
            _ => refill.until,
        };
        for Message { header, .. } in page {
            if header.id > refill.until {
                break;
            }
            if self.hidden.ahead.headers.len() >= within(limits::AHEAD_MESSAGES) {
                reached = header.id.before();
                break;
            }
            if !changed.contains(&header.id) && !self.hidden.contains_key(&header.id) {
                self.show_ahead(&header);
            }
        }
        self.hidden.ahead.cursor = self.hidden.ahead.cursor.max(reached);
    }

    /// The page could not be read.
    pub fn lookahead_failed(&mut self) {
        self.hidden.ahead.reading = None;
    }
}
