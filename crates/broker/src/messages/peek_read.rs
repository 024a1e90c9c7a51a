//! Bounded reads of the messages that a selection may accept, in the order of a peek, completed by the memory of the owner.
//! Peeks and the tasks over the messages of a queue share them.

use tokio::time::{self, Instant};

use angarium_core::envelope::Envelope;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits as core_limits;
use angarium_core::message::{Header, Message};
use angarium_core::outcome::Holder;
use angarium_core::peek_position::PeekPosition;
use angarium_core::selection::{MessageFacts, MessageSelection};
use angarium_core::settle::MessageState;
use angarium_core::time::Timestamp;
use angarium_engine::QueueEngine;
use angarium_storage::{Direction, Order, Position};

use crate::limits;
use crate::messages::pool_page::{EntriesById, PoolPage, ReadCost};
use crate::messages::view::ViewedAt;
use crate::slot::queue_handle::QueueHandle;
use crate::stores::queue_store::{PageBound, QueueStore};

/// The reads of one request, or of one step of a task: at most [`PEEK_ENTRIES`](core_limits::PEEK_ENTRIES) entries and
/// [`PEEK_BYTES`](core_limits::PEEK_BYTES).
pub(crate) struct PeekReader<'a> {
    pub(crate) queue: &'a QueueHandle,
    pub(crate) store: QueueStore,
    pub(crate) selection: &'a MessageSelection,
    /// What was read so far.
    cost: ReadCost,
    /// When it began to work after its last pause.
    busy_since: Instant,
}

/// One read of the pool.
pub(crate) struct PeekRead {
    pub(crate) messages: Vec<Message>,
    /// Where the next read begins; none when there is nothing behind this one.
    pub(crate) next: Option<PeekPosition>,
}

/// A stored message, completed by the memory of the owner.
pub(crate) struct OwnedMessage {
    pub(crate) message: Message,
    /// The claim that holds it.
    pub(crate) claim: Option<HoldingClaim>,
    /// Whether a change in progress may have made its life longer.
    pub(crate) lives_longer: bool,
}

/// The claim that holds a message.
pub(crate) struct HoldingClaim {
    pub(crate) id: ClaimId,
    /// The header of the message there.
    pub(crate) header: Header,
    /// The name that its holder gave itself.
    pub(crate) by: Option<Holder>,
    /// When it expires, if that is known.
    pub(crate) expires: Option<Timestamp>,
}

impl<'a> PeekReader<'a> {
    pub(crate) fn new(queue: &'a QueueHandle, store: QueueStore, selection: &'a MessageSelection) -> Self {
        Self { queue, store, selection, cost: ReadCost::default(), busy_since: Instant::now() }
    }

    /// Returns where the first read behind a position begins.
    pub(crate) fn begin(&self, after: PeekPosition) -> Option<PeekPosition> {
        match after {
            PeekPosition::Open(_) if EntriesById::of(self.selection).is_none() => self.kept(),
            PeekPosition::Kept { .. } if !self.selection.wants_kept() => None,
            after => Some(after),
        }
    }

    /// Returns where the kept messages begin, if they may be wanted.
    pub(crate) fn kept(&self) -> Option<PeekPosition> {
        self.selection.wants_kept().then_some(PeekPosition::FIRST_KEPT)
    }

    /// Reads the messages behind `after`. Returns none when no more may be read.
    pub(crate) async fn read(&mut self, after: PeekPosition) -> Result<Option<PeekRead>, Error> {
        self.pause().await;
        let id = self.queue.id();
        match (after, EntriesById::of(self.selection), &self.selection.group) {
            (PeekPosition::Open(after), Some(_), Some(group)) => {
                let Some(most) = self.bound(1) else { return Ok(None) };
                let from = Some(after).filter(|after| *after > MessageId::ZERO);
                let found = self.store.group(id, group, from, most).await?;
                Ok(Some(self.open(PoolPage::of(found))))
            }
            (PeekPosition::Open(after), Some(entries), None) => {
                let Some(most) = self.bound(entries.orders().len()) else { return Ok(None) };
                let page = PoolPage::read(&self.store, id, entries, after, most).await?;
                Ok(Some(self.open(page)))
            }
            (PeekPosition::Open(_), None, _) => {
                Ok(Some(PeekRead { messages: Vec::new(), next: self.kept() }))
            }
            (PeekPosition::Kept { settled, id: last }, ..) => {
                let Some(most) = self.bound(1) else { return Ok(None) };
                let from = Some(Position { ready: settled, id: last });
                let page = self.store.scan(id, Order::Kept, Direction::Up, from, most).await?;
                self.cost.add(ReadCost::of(&page));
                let end = page.messages.last().filter(|_| !page.is_last);
                let next = end.map(|message| PeekPosition::of(&message.header));
                Ok(Some(PeekRead { messages: page.messages, next }))
            }
        }
    }

    /// Pauses after some work, so that most of a processor and of the pool is left to the claims beside it.
    async fn pause(&mut self) {
        let busy = self.busy_since.elapsed();
        if busy >= limits::PEEK_WORK {
            time::sleep((busy * limits::PEEK_PAUSE).min(limits::PEEK_PAUSE_MAX)).await;
            self.busy_since = Instant::now();
        }
    }

    /// Returns a read of messages without an outcome.
    fn open(&mut self, page: PoolPage) -> PeekRead {
        let PoolPage { messages, end, cost } = page;
        self.cost.add(cost);
        PeekRead { messages, next: end.map_or_else(|| self.kept(), |end| Some(PeekPosition::Open(end))) }
    }

    /// Returns the bound of the next read of each of so many orders; none when the bound of all reads is reached.
    fn bound(&self, orders: usize) -> Option<PageBound> {
        let entries = core_limits::PEEK_ENTRIES.saturating_sub(self.cost.entries) / orders;
        let bytes = core_limits::PEEK_BYTES.saturating_sub(self.cost.bytes) / orders;
        (entries > 0 && bytes > 0).then(|| PageBound {
            messages: entries.min(limits::LISTING_READ),
            bytes: bytes.min(core_limits::READY_CACHE_BYTES),
        })
    }

    /// Completes messages of the pool by the memory of the owner.
    pub(crate) fn owned(&self, read: Vec<Message>) -> Result<Vec<OwnedMessage>, Error> {
        let owned = self
            .queue
            .decide(|engine| read.into_iter().map(|message| OwnedMessage::of(engine, message)).collect());
        owned.ok_or_else(|| self.queue.closed())
    }
}

impl OwnedMessage {
    fn of(engine: &QueueEngine, message: Message) -> Self {
        let id = message.header.id;
        let claim = engine.hold(id).map(|(claim, header)| HoldingClaim {
            id: claim,
            header,
            by: engine.holder_of(claim),
            expires: engine.expires(claim),
        });
        Self { message, claim, lives_longer: engine.may_live_longer(id) }
    }

    /// The state in which readers see it.
    pub(crate) fn state(&self) -> MessageState {
        match self.claim {
            Some(_) => MessageState::Claimed,
            None => MessageState::unclaimed(&self.message.header),
        }
    }

    /// Whether readers see it, and it fulfils each condition but the one on its body.
    pub(crate) fn is_accepted(&self, selection: &MessageSelection, at: ViewedAt) -> bool {
        let (header, holder, is_shown) = match &self.claim {
            Some(claim) => (&claim.header, claim.by.as_ref(), true),
            None => (&self.message.header, None, at.shows(&self.message.header, self.lives_longer)),
        };
        is_shown && selection.accepts(&MessageFacts { header, state: self.state(), holder }, at.now)
    }

    /// Whether it fulfils each condition, and readers see it.
    pub(crate) fn fulfils(&self, selection: &MessageSelection, at: ViewedAt) -> bool {
        let accepts_body = || {
            let (_, body) = Envelope::split(self.message.body.clone());
            selection.contains.is_none() || selection.accepts_body(&body)
        };
        self.is_accepted(selection, at) && accepts_body()
    }

    /// Whether neither a claim nor a transfer holds it.
    pub(crate) fn is_free(&self) -> bool {
        match self.state() {
            MessageState::Ready
            | MessageState::Delayed
            | MessageState::Held
            | MessageState::Done
            | MessageState::Failed => true,
            MessageState::Claimed | MessageState::InTransfer => false,
        }
    }
}
