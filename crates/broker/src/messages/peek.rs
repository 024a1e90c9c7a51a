//! Peeks: pages of the messages of a queue in any state, with conditions. They change nothing.
//!
//! A peek reads the pool, and completes each message by the memory of the owner. The messages without an outcome are
//! first, in order of id; behind them the kept ones, in order of their settle: no pool has a common order of both. The
//! cost of a request is bounded: a page that reaches the bound ends there and returns where to continue.

use bytes::Bytes;

use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits as core_limits;
use angarium_core::message::{Header, Message};
use angarium_core::names::QueueRef;
use angarium_core::outcome::Holder;
use angarium_core::page::PageLimit;
use angarium_core::settle::MessageState;
use angarium_core::time::Timestamp;
use angarium_engine::QueueEngine;
use angarium_storage::{Direction, Order, Position};

use crate::limits;
use crate::messages::Messages;
use crate::messages::peek_position::PeekPosition;
use crate::messages::pool_page::{PoolPage, ReadCost};
use crate::messages::selection::{MessageFacts, MessageSelection};
use crate::messages::view::{MessageView, ViewedAt};
use crate::slot::queue_handle::{EngineReading, QueueHandle};
use crate::slot::slot_queue::SlotQueue;
use crate::stores::queue_store::{PageBound, QueueStore};

/// Which messages a peek returns, and how much of them.
#[derive(Clone, Debug)]
pub struct PeekFilter {
    /// The conditions.
    pub selection: MessageSelection,
    /// How much of each body is returned.
    pub body: BodyExtent,
    /// Where the page begins.
    pub after: PeekPosition,
    /// Maximum of messages on the page.
    pub limit: PageLimit,
}

/// How much of a body is returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyExtent {
    /// Nothing.
    None,
    /// Its first [`PEEK_HEAD_BYTES`](core_limits::PEEK_HEAD_BYTES), or less where a character would be cut.
    #[default]
    Head,
    /// All of it.
    Whole,
}

/// A page of messages in any state.
#[derive(Clone, Debug, Default)]
pub struct PeekPage {
    /// The messages without an outcome in order of posting, then the kept ones in order of their settle.
    pub messages: Vec<PeekedMessage>,
    /// Number of messages that were compared with the conditions.
    pub looked_at: usize,
    /// Where the next page begins; none when there is nothing behind this one.
    pub next: Option<PeekPosition>,
}

/// A message as a peek shows it.
#[derive(Clone, Debug)]
pub struct PeekedMessage {
    /// The message, with as much of its body as was requested. The id of its claim is left out: with it a reader could
    /// delete the message.
    pub view: MessageView,
    /// The claim that holds it, if there is one.
    pub claim: Option<PeekedClaim>,
    /// Bytes of the whole body.
    pub body_bytes: usize,
}

/// The claim of a message as a peek shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeekedClaim {
    /// The name that its holder gave itself.
    pub by: Option<Holder>,
    /// Seconds until it expires, rounded up.
    pub expires_in: u64,
}

/// A stored message, completed by the memory of the owner.
struct OwnedMessage {
    message: Message,
    /// The claim that holds it, and its header there.
    claim: Option<(ClaimId, Header, PeekedClaim)>,
    /// Whether a change in progress may have made its life longer.
    lives_longer: bool,
}

/// One read of the pool.
struct PeekRead {
    messages: Vec<Message>,
    /// Where the next read begins; none when there is nothing behind this one.
    next: Option<PeekPosition>,
    cost: ReadCost,
}

/// A peek in progress.
struct Peek<'a> {
    queue: QueueHandle,
    store: QueueStore,
    at: ViewedAt,
    filter: &'a PeekFilter,
    /// What was read so far.
    cost: ReadCost,
    page: PeekPage,
}

impl Messages {
    /// Returns a page of the messages of a queue in any state; an empty one when there is no such queue.
    pub(crate) async fn messages_peek(&self, at: &QueueRef, filter: &PeekFilter) -> Result<PeekPage, Error> {
        let queue = self.0.slots.queue(at).await?;
        let page = self.peek_page(&queue, filter).await;
        self.0.slots.confirm(queue.slot(), page)
    }

    async fn peek_page(&self, queue: &SlotQueue, filter: &PeekFilter) -> Result<PeekPage, Error> {
        let Some(queue) = self.0.open_queues.open(queue).await? else { return Ok(PeekPage::default()) };
        let EngineReading { store, shown: retention } = queue.read(|engine| engine.retention())?;
        let at = ViewedAt { now: self.0.replica.clock.now(), retention };
        let (cost, page) = (ReadCost::default(), PeekPage::default());
        Peek { queue, store, at, filter, cost, page }.run().await
    }
}

impl Peek<'_> {
    async fn run(mut self) -> Result<PeekPage, Error> {
        let mut position = self.begin();
        while let Some(after) = position {
            let Some(read) = self.read(after).await? else {
                self.page.next = position;
                break;
            };
            self.cost.add(read.cost);
            position = read.next;
            if self.add(read.messages, position)? {
                break;
            }
        }
        Ok(self.page)
    }

    /// Returns where the first read begins.
    fn begin(&self) -> Option<PeekPosition> {
        match self.filter.after {
            PeekPosition::Open(_) if self.filter.selection.entries().is_none() => self.kept(),
            PeekPosition::Kept { .. } if !self.filter.selection.wants_kept() => None,
            after => Some(after),
        }
    }

    /// Returns where the kept messages begin, if they may be wanted.
    fn kept(&self) -> Option<PeekPosition> {
        self.filter.selection.wants_kept().then_some(PeekPosition::FIRST_KEPT)
    }

    /// Reads the messages behind `after`. Returns none when no more may be read.
    async fn read(&self, after: PeekPosition) -> Result<Option<PeekRead>, Error> {
        let id = self.queue.id();
        match (after, self.filter.selection.entries(), &self.filter.selection.group) {
            (PeekPosition::Open(after), Some(_), Some(group)) => {
                let Some(most) = self.bound(1) else { return Ok(None) };
                let from = Some(after).filter(|after| *after > MessageId::ZERO);
                let found = self.store.group(id, group, from, most).await?;
                Ok(Some(self.open(PoolPage::of(found))))
            }
            (PeekPosition::Open(after), Some(entries), None) => {
                let Some(most) = self.bound(entries.orders().len()) else { return Ok(None) };
                Ok(Some(self.open(PoolPage::read(&self.store, id, entries, after, most).await?)))
            }
            (PeekPosition::Open(_), None, _) => {
                Ok(Some(PeekRead { messages: Vec::new(), next: self.kept(), cost: ReadCost::default() }))
            }
            (PeekPosition::Kept { settled, id: last }, ..) => {
                let Some(most) = self.bound(1) else { return Ok(None) };
                let from = Some(Position { ready: settled, id: last });
                let page = self.store.scan(id, Order::Kept, Direction::Up, from, most).await?;
                let cost = ReadCost::of(&page);
                let end = page.messages.last().filter(|_| !page.is_last);
                let next = end.map(|message| PeekPosition::of(&message.header));
                Ok(Some(PeekRead { messages: page.messages, next, cost }))
            }
        }
    }

    /// Returns a read of messages without an outcome.
    fn open(&self, page: PoolPage) -> PeekRead {
        let PoolPage { messages, end, cost } = page;
        PeekRead {
            messages,
            next: end.map_or_else(|| self.kept(), |end| Some(PeekPosition::Open(end))),
            cost,
        }
    }

    /// Returns the bound of the next read of each of so many orders; none when the request has reached its bound.
    fn bound(&self, orders: usize) -> Option<PageBound> {
        let entries = core_limits::PEEK_ENTRIES.saturating_sub(self.cost.entries) / orders;
        let bytes = core_limits::PEEK_BYTES.saturating_sub(self.cost.bytes) / orders;
        (entries > 0 && bytes > 0).then(|| PageBound {
            messages: entries.min(limits::LISTING_READ),
            bytes: bytes.min(core_limits::READY_CACHE_BYTES),
        })
    }

    /// Adds the messages that fulfil the conditions. Returns true when the page is full. `behind` is where the next read
    /// would begin.
    fn add(&mut self, read: Vec<Message>, behind: Option<PeekPosition>) -> Result<bool, Error> {
        let mut owned = self.owned(read)?.into_iter();
        while let Some(message) = owned.next() {
            self.page.looked_at += 1;
            let position = PeekPosition::of(&message.message.header);
            // One that was settled since the page began is on it already.
            let is_there = self.page.messages.iter().any(|shown| shown.view.id == message.message.header.id);
            self.page.messages.extend(if is_there { None } else { self.shown(message) });
            if self.page.messages.len() == self.filter.limit.get() {
                self.page.next = if owned.len() > 0 { Some(position) } else { behind };
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Completes messages of the pool by the memory of the owner.
    fn owned(&self, read: Vec<Message>) -> Result<Vec<OwnedMessage>, Error> {
        let now = self.at.now;
        let owned = self.queue.decide(|engine| {
            let complete = |message: Message| {
                let id = message.header.id;
                let claim = engine.hold(id).map(|(claim, header)| (claim, header, seen(engine, claim, now)));
                OwnedMessage { message, claim, lives_longer: engine.may_live_longer(id) }
            };
            read.into_iter().map(complete).collect()
        });
        owned.ok_or_else(|| self.queue.closed())
    }

    /// Returns a message as it is shown; none if readers do not see it, or it does not fulfil the conditions.
    fn shown(&self, found: OwnedMessage) -> Option<PeekedMessage> {
        let OwnedMessage { message: Message { header, body }, claim, lives_longer } = found;
        let selection = &self.filter.selection;
        let view = match &claim {
            Some((id, header, claim)) => {
                let (state, holder) = (MessageState::Claimed, claim.by.as_ref());
                let is_accepted = selection.accepts(&MessageFacts { header, state, holder }, self.at.now);
                is_accepted.then(|| MessageView::claimed(header, *id, body, self.at))
            }
            None => {
                let state = MessageState::unclaimed(&header.state);
                let facts = MessageFacts { header: &header, state, holder: None };
                let is_accepted =
                    self.at.shows(&header, lives_longer) && selection.accepts(&facts, self.at.now);
                is_accepted.then(|| MessageView::free(&header, body, self.at))
            }
        }?;
        let claim = claim.map(|(.., claim)| claim);
        selection.accepts_body(&view.body).then(|| self.cut(view, claim))
    }

    /// Returns a message with as much of its body as was requested.
    fn cut(&self, view: MessageView, claim: Option<PeekedClaim>) -> PeekedMessage {
        let body_bytes = view.body.len();
        let body = match self.filter.body {
            BodyExtent::None => Bytes::new(),
            // A copy, so that the rest does not stay in memory.
            BodyExtent::Head => Bytes::copy_from_slice(head(&view.body)),
            BodyExtent::Whole => view.body,
        };
        PeekedMessage { view: MessageView { body, claim: None, ..view }, claim, body_bytes }
    }
}

/// Returns the claim of a message as it is shown at `now`.
fn seen(engine: &QueueEngine, claim: ClaimId, now: Timestamp) -> PeekedClaim {
    let expires = engine.expires(claim).unwrap_or(now);
    let expires_in = expires.as_millis().saturating_sub(now.as_millis()).div_ceil(1_000);
    PeekedClaim { by: engine.holder_of(claim), expires_in }
}

/// Returns the first bytes of a body, without a part of a character.
fn head(body: &[u8]) -> &[u8] {
    let most = core_limits::PEEK_HEAD_BYTES;
    let begins_character = |at: &usize| body.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
    let end =
        if body.len() <= most { body.len() } else { (0..=most).rev().find(begins_character).unwrap_or(0) };
    &body[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_of_body_cuts_no_character() {
        let bytes = core_limits::PEEK_HEAD_BYTES;
        for (before, end) in [(0, bytes), (1, bytes - 1), (2, bytes)] {
            let body = ["x".repeat(before), "ä".repeat(bytes)].concat();
            assert_eq!(head(body.as_bytes()).len(), end, "{before}");
        }
        assert_eq!(head("x".repeat(bytes).as_bytes()).len(), bytes);
        assert_eq!(head(b"{}"), b"{}");
    }
}
