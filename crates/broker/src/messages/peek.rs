//! Peeks: pages of the messages of a queue in any state, with conditions. They change nothing.
//!
//! A peek reads the pool, and completes each message by the memory of the owner. The messages without an outcome are
//! first, in order of id; behind them the kept ones, in order of their settle: no pool has a common order of both. The
//! cost of a request is bounded: a page that reaches the bound ends there and returns where to continue.

use bytes::Bytes;

use angarium_core::error::Error;
use angarium_core::limits as core_limits;
use angarium_core::message::Message;
use angarium_core::names::QueueRef;
use angarium_core::outcome::Holder;
use angarium_core::page::PageLimit;
use angarium_core::peek_position::PeekPosition;
use angarium_core::selection::MessageSelection;

use crate::messages::Messages;
use crate::messages::peek_read::{HoldingClaim, OwnedMessage, PeekReader};
use crate::messages::view::{MessageView, ViewedAt};
use crate::slot::queue_handle::EngineReading;
use crate::slot::slot_queue::SlotQueue;

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

/// A peek in progress.
struct Peek<'a> {
    reader: PeekReader<'a>,
    at: ViewedAt,
    filter: &'a PeekFilter,
    page: PeekPage,
}

impl Messages {
    /// Returns a page of the messages of a queue in any state; an empty one when there is no such queue.
    pub(crate) async fn messages_peek(&self, at: &QueueRef, filter: &PeekFilter) -> Result<PeekPage, Error> {
        let _turn = self.0.quotas.admit_peek(&at.project).await?;
        let queue = self.0.slots.queue(at).await?;
        let page = self.peek_page(&queue, filter).await;
        self.0.slots.confirm(queue.slot(), page)
    }

    async fn peek_page(&self, queue: &SlotQueue, filter: &PeekFilter) -> Result<PeekPage, Error> {
        let Some(queue) = self.0.open_queues.open(queue).await? else { return Ok(PeekPage::default()) };
        let EngineReading { store, shown: retention } = queue.read(|engine| engine.retention())?;
        let at = ViewedAt { now: self.0.replica.clock.now(), retention };
        let reader = PeekReader::new(&queue, store, &filter.selection);
        Peek { reader, at, filter, page: PeekPage::default() }.run().await
    }
}

impl Peek<'_> {
    async fn run(mut self) -> Result<PeekPage, Error> {
        let mut position = self.reader.begin(self.filter.after);
        while let Some(after) = position {
            let Some(read) = self.reader.read(after).await? else {
                self.page.next = position;
                break;
            };
            position = read.next;
            if self.add(read.messages, position)? {
                break;
            }
        }
        Ok(self.page)
    }

    /// Adds the messages that fulfil the conditions. Returns true when the page is full. `behind` is where the next read
    /// would begin.
    fn add(&mut self, read: Vec<Message>, behind: Option<PeekPosition>) -> Result<bool, Error> {
        let mut owned = self.reader.owned(read)?.into_iter();
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

    /// Returns a message as it is shown; none if readers do not see it, or it does not fulfil the conditions.
    fn shown(&self, found: OwnedMessage) -> Option<PeekedMessage> {
        let selection = &self.filter.selection;
        if !found.is_accepted(selection, self.at) {
            return None;
        }
        let shown = PeekedMessage::of(found, self.at);
        selection.accepts_body(&shown.view.body).then(|| shown.cut(self.filter.body))
    }
}

impl PeekedMessage {
    /// Returns a message with its whole body.
    pub(crate) fn of(found: OwnedMessage, at: ViewedAt) -> Self {
        let OwnedMessage { message: Message { header, body }, claim, .. } = found;
        let view = match &claim {
            Some(claim) => MessageView::claimed(&claim.header, claim.id, body, at),
            None => MessageView::free(&header, body, at),
        };
        let claim = claim.map(|HoldingClaim { by, expires, .. }| {
            let left = expires.unwrap_or(at.now).as_millis().saturating_sub(at.now.as_millis());
            PeekedClaim { by, expires_in: left.div_ceil(1_000) }
        });
        let body_bytes = view.body.len();
        Self { view: MessageView { claim: None, ..view }, claim, body_bytes }
    }

    /// Returns the message with as much of its body as was requested.
    pub(crate) fn cut(self, extent: BodyExtent) -> Self {
        let body = match extent {
            BodyExtent::None => Bytes::new(),
            // A copy, so that the rest does not stay in memory.
            BodyExtent::Head => Bytes::copy_from_slice(head(&self.view.body)),
            BodyExtent::Whole => self.view.body,
        };
        Self { view: MessageView { body, ..self.view }, ..self }
    }
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
