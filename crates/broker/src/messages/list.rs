//! Pages of messages. They change nothing.
//!
//! A page is filled with messages that pass its filters, however many are left out between them. The cost of a page is
//! bounded: a page that reaches the bound ends there and returns where to continue.

use uuid::Uuid;

use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits as core_limits;
use angarium_core::message::{Header, Message, Retention, State};
use angarium_core::names::QueueRef;
use angarium_core::page::PageLimit;
use angarium_core::time::Timestamp;

use crate::limits;
use crate::messages::Messages;
use crate::messages::pool_page::{EntriesById, PoolPage};
use crate::messages::view::{MessageView, ViewedAt};
use crate::slot::queue_handle::{EngineReading, QueueHandle};
use crate::slot::slot_queue::SlotQueue;
use crate::stores::queue_store::{PageBound, QueueStore};

/// Which messages a listing returns.
#[derive(Clone, Debug)]
pub struct MessageFilter {
    /// Only messages behind this one.
    pub after: MessageId,
    /// Maximum of messages on the page.
    pub limit: PageLimit,
    /// Leaves out messages that this client has posted.
    pub not_of: Option<Uuid>,
    /// Whether claimed messages are included.
    pub includes_claimed: bool,
    /// Whether delayed messages are included.
    pub includes_delayed: bool,
}

impl MessageFilter {
    fn wants(&self, header: &Header, now: Timestamp, retention: Retention) -> bool {
        let is_own = self.not_of.is_some() && self.not_of == header.client;
        !is_own && !header.is_expired(now, retention)
    }
}

/// A page of messages.
#[derive(Clone, Debug, Default)]
pub struct MessagePage {
    /// Messages in order of posting.
    pub messages: Vec<MessageView>,
    /// The message behind which the next page begins; none when this page is empty and nothing is behind it.
    pub next: Option<MessageId>,
}

/// A queue at the time of a listing.
struct QueueSnapshot {
    queue: QueueHandle,
    store: QueueStore,
    at: ViewedAt,
}

impl Messages {
    /// Returns a page of the messages of a queue; an empty one when there is no such queue.
    pub async fn messages_list(&self, at: &QueueRef, filter: &MessageFilter) -> Result<MessagePage, Error> {
        let queue = self.0.slots.queue(at).await?;
        let page = self.message_page(&queue, filter).await;
        self.0.slots.confirm(queue.slot(), page)
    }

    async fn message_page(&self, queue: &SlotQueue, filter: &MessageFilter) -> Result<MessagePage, Error> {
        let Some(queue) = self.0.open_queues.open(queue).await? else { return Ok(MessagePage::default()) };
        let now = self.0.replica.clock.now();
        let EngineReading { store, shown: (browsed, retention) } = queue.read(|engine| {
            let retention = engine.retention();
            let wants = |header: &Header| filter.wants(header, now, retention);
            (engine.browse(filter.after, filter.limit.get(), wants), retention)
        })?;
        let listed = QueueSnapshot { queue, store, at: ViewedAt { now, retention } };
        let (mut messages, read_on) = if filter.includes_claimed || filter.includes_delayed {
            // Memory has only ready messages; the pool has all.
            (Vec::new(), Some(filter.after))
        } else {
            (listed.with_bodies(browsed.messages).await?, browsed.read_on)
        };
        let mut next = messages.last().map(|message: &MessageView| message.id);
        if let Some(read_on) = read_on.filter(|_| messages.len() < filter.limit.get()) {
            let behind = listed.read(filter, read_on, &mut messages).await?;
            next = behind.or(messages.last().map(|message| message.id));
        }
        Ok(MessagePage { messages, next })
    }

    /// Returns the messages among `ids` that exist, claimed or not, in the order of `ids`. Kept messages are missing.
    pub async fn messages_get(&self, at: &QueueRef, ids: &[MessageId]) -> Result<Vec<MessageView>, Error> {
        let queue = self.0.slots.queue(at).await?;
        let found = self.read_messages(&queue, ids).await;
        self.0.slots.confirm(queue.slot(), found)
    }

    async fn read_messages(&self, queue: &SlotQueue, ids: &[MessageId]) -> Result<Vec<MessageView>, Error> {
        let Some(queue) = self.0.open_queues.open(queue).await? else { return Ok(Vec::new()) };
        let now = self.0.replica.clock.now();
        let EngineReading { store, shown: (holds, retention) } = queue.read(|engine| {
            let holds: Vec<_> = ids.iter().filter_map(|id| engine.hold(*id)).collect();
            (holds, engine.retention())
        })?;
        let found = store.get(queue.id(), ids).await?;
        let at = ViewedAt { now, retention };
        let view = |message: Message| {
            let hold = holds.iter().find(|(_, header)| header.id == message.header.id).cloned();
            let (header, view) = view(message, hold, at);
            let is_shown = !header.state.is_kept() && !matches!(header.state, State::Prepared(_));
            (is_shown && !header.is_expired(now, retention)).then_some(view)
        };
        Ok(found.into_iter().filter_map(view).collect())
    }
}

impl QueueSnapshot {
    /// Returns views of ready messages. It reads the bodies that memory does not have, and leaves out messages that
    /// were removed meanwhile.
    async fn with_bodies(
        &self,
        found: Vec<(Header, Option<bytes::Bytes>)>,
    ) -> Result<Vec<MessageView>, Error> {
        let absent: Vec<MessageId> =
            found.iter().filter(|(_, body)| body.is_none()).map(|(header, _)| header.id).collect();
        let mut read =
            if absent.is_empty() { Vec::new() } else { self.store.get(self.queue.id(), &absent).await? };
        let mut views = Vec::with_capacity(found.len());
        for (header, body) in found {
            let body = body.or_else(|| {
                let at = read.iter().position(|message| message.header.id == header.id)?;
                Some(read.swap_remove(at).body)
            });
            let Some(body) = body else { continue };
            views.push(view(Message { header, body }, None, self.at).1);
        }
        Ok(views)
    }

    /// Reads the pool behind `after` until the page is full. Returns the last message that was read, if the reads ended
    /// before the queue did.
    pub(crate) async fn read(
        &self,
        filter: &MessageFilter,
        mut after: MessageId,
        page: &mut Vec<MessageView>,
    ) -> Result<Option<MessageId>, Error> {
        for _ in 0..limits::LISTING_READS {
            let found = self.read_once(filter, after).await?;
            for (message, hold) in self.seen(found.messages, filter) {
                let (header, view) = view(message, hold, self.at);
                if filter.wants(&header, self.at.now, self.at.retention) {
                    page.push(view);
                }
                if page.len() == filter.limit.get() {
                    return Ok(None);
                }
            }
            match found.end {
                Some(end) => after = end,
                None => return Ok(None),
            }
        }
        Ok(Some(after))
    }

    /// Reads the messages behind `after`: ready ones and, if requested, scheduled ones.
    async fn read_once(&self, filter: &MessageFilter, after: MessageId) -> Result<PoolPage, Error> {
        let entries = if filter.includes_delayed { EntriesById::NotKept } else { EntriesById::Ready };
        let most = PageBound { messages: limits::LISTING_READ, bytes: core_limits::READY_CACHE_BYTES };
        let mut found = PoolPage::read(&self.store, self.queue.id(), entries, after, most).await?;
        found.messages.retain(|message| matches!(message.header.state, State::Ready | State::Scheduled));
        Ok(found)
    }

    /// Returns messages of the pool as the engine has them now: without messages that the listing hides, and with the
    /// claims that hold the others.
    pub(crate) fn seen(
        &self,
        read: Vec<Message>,
        filter: &MessageFilter,
    ) -> Vec<(Message, Option<(ClaimId, Header)>)> {
        let seen = self.queue.decide(|engine| {
            let is_seen = |message: &Message| filter.includes_claimed || engine.is_free(message.header.id);
            let held = |message: Message| {
                let hold = engine.hold(message.header.id);
                (message, hold)
            };
            read.into_iter().filter(is_seen).map(held).collect()
        });
        seen.unwrap_or_default()
    }
}

/// Returns a message as its readers see it, with its current header.
pub(crate) fn view(message: Message, hold: Option<(ClaimId, Header)>, at: ViewedAt) -> (Header, MessageView) {
    let Message { header, body } = message;
    let (claim, header) = hold.map_or((None, header), |(claim, header)| (Some(claim), header));
    let view = match claim {
        Some(claim) => MessageView::claimed(&header, claim, body, at),
        None => MessageView::free(&header, body, at),
    };
    (header, view)
}
