//! The writing side of the tests: the owner of a slot, which numbers its batches, and the entries that it writes. It
//! checks an answer only where a test states that the call must succeed.

use std::sync::Arc;

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use uuid::Uuid;

use angarium_core::durability::Durability;
use angarium_core::group::GroupName;
use angarium_core::hold::HoldId;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Life, Message, Peer, Retention, State};
use angarium_core::names::{ProjectId, QueueName, QueueRef};
use angarium_core::outcome::{
    Arrival, ArrivalLife, Event, EventKind, Extras, Holder, Keep, Meta, Outcome, Reason, Tags,
};
use angarium_core::time::Timestamp;
use angarium_storage::{
    Batch, Changes, Direction, DropResult, Due, Epoch, Order, Page, PoolStore, Position, QueueChanges,
    StoreError, Totals,
};

/// The slot of most tests.
pub const SLOT: Slot = Slot(7);

/// The owner of a slot.
pub struct Owner {
    pub store: Arc<dyn PoolStore>,
    pub slot: Slot,
    pub epoch: Epoch,
    /// The number of the last batch.
    pub seq: u64,
}

impl Owner {
    /// Fences `slot` with this transaction as its epoch.
    pub async fn fence(store: &Arc<dyn PoolStore>, slot: Slot, transaction: u64) -> Self {
        store.fence(slot, epoch(transaction)).await.expect("the fence is accepted");
        Self { store: Arc::clone(store), slot, epoch: epoch(transaction), seq: 0 }
    }

    /// Returns a batch of this owner with any number.
    pub fn batch(&self, seq: u64, queues: Vec<QueueChanges>) -> Batch {
        Batch { slot: self.slot, epoch: self.epoch, seq, durability: Durability::Sync, queues }
    }

    /// Sends a batch with any number.
    pub async fn send(&self, seq: u64, queues: Vec<QueueChanges>) -> Result<(), StoreError> {
        self.store.commit(&self.batch(seq, queues)).await
    }

    /// Applies the next batch.
    pub async fn apply(&mut self, queues: Vec<QueueChanges>) {
        self.seq += 1;
        self.send(self.seq, queues).await.expect("the next batch is applied");
    }

    pub async fn append(&mut self, queue: QueueId, messages: &[Message]) {
        self.apply(vec![appends(queue, messages)]).await;
    }

    pub async fn update(&mut self, queue: QueueId, headers: &[Header]) {
        self.apply(vec![changes(queue, Changes::updates(headers.to_vec()))]).await;
    }

    pub async fn remove(&mut self, queue: QueueId, ids: &[MessageId]) {
        self.apply(vec![removes(queue, ids)]).await;
    }

    /// All ready entries of a queue, oldest first.
    pub async fn all(&self, queue: QueueId) -> Vec<Message> {
        self.page(queue, Direction::Up, None, usize::MAX).await.messages
    }

    /// A page of ready entries without a bound of bytes.
    pub async fn page(
        &self,
        queue: QueueId,
        direction: Direction,
        after: Option<MessageId>,
        messages: usize,
    ) -> Page {
        let after = after.map(Position::id);
        let page = self.store.scan(queue, Order::Ready, direction, after, messages, usize::MAX).await;
        page.expect("the scan is answered")
    }

    pub async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Vec<Message> {
        self.store.get(queue, ids).await.expect("the read is answered")
    }

    /// Ids of the entries of a queue in an order.
    pub async fn in_order(&self, queue: QueueId, order: Order) -> Vec<MessageId> {
        let page = self.store.scan(queue, order, Direction::Up, None, usize::MAX, usize::MAX).await;
        ids(&page.expect("the scan is answered").messages)
    }

    /// Ids of the due entries of the slot.
    pub async fn due(&self, due: Due, before: Timestamp) -> Vec<MessageId> {
        let found = self.store.due(self.slot, due, before, usize::MAX).await.expect("the look is answered");
        found.into_iter().map(|(_, header)| header.id).collect()
    }

    /// Drops a queue, some entries at a time.
    pub async fn drop_queue(&self, queue: QueueId, limit: usize) {
        while self.store.drop_queue(self.slot, self.epoch, queue, limit).await.expect("it is dropped")
            == DropResult::More
        {}
    }

    /// Number of messages and bytes of a queue.
    pub async fn totals(&self, queue: QueueId) -> (u64, u64) {
        let Totals { messages, bytes, .. } = self.store.totals(queue).await.expect("totals are answered");
        (messages, bytes)
    }
}

pub fn epoch(transaction: u64) -> Epoch {
    Epoch { generation: 1, transaction }
}

pub fn queue(slot: Slot, number: u64) -> QueueId {
    QueueId::new(slot, &mut SmallRng::seed_from_u64(number))
}

pub fn id(rank: u64) -> MessageId {
    MessageId::from_bytes((u128::from(rank) << 64 | 9).to_be_bytes())
}

pub fn message(rank: u64, body: &str) -> Message {
    with_body(rank, Bytes::copy_from_slice(body.as_bytes()))
}

pub fn with_body(rank: u64, body: Bytes) -> Message {
    let header = Header {
        id: id(rank),
        created: Timestamp::from_millis(start().as_millis() + rank),
        ready: Timestamp::from_millis(start().as_millis() + rank),
        life: Life::Own { ttl: 3_600, expires: Timestamp::from_millis(1_700_003_600_000 + rank) },
        attempts: 0,
        client: rank.is_multiple_of(2).then(|| Uuid::from_u128(u128::from(rank) + 1)),
        size: u32::try_from(body.len()).expect("bodies of tests are small"),
        state: State::Ready,
        group: None,
        first_claimed: None,
        extras: None,
    };
    Message { header, body }
}

/// Entries with these ranks, and with bodies of ten bytes.
pub fn messages(ranks: impl IntoIterator<Item = u64>) -> Vec<Message> {
    ranks.into_iter().map(|rank| message(rank, "\"12345678\"")).collect()
}

/// The other queue of a transfer.
pub fn peer() -> Arc<Peer> {
    let (project, name) = (ProjectId::new(""), QueueName::new("dead-letters"));
    let at = QueueRef { project: project.expect("it is empty"), name: name.expect("it is a name") };
    Arc::new(Peer { at, queue: Some(queue(SLOT, 99)) })
}

/// Returns the entry in another state.
pub fn in_state(message: Message, state: State) -> Message {
    Message { header: Header { state, ..message.header }, ..message }
}

/// Returns the entry scheduled for this many seconds after [`start`]; its ttl counts from then on.
pub fn scheduled(message: Message, seconds: u32) -> Message {
    let ready = start().plus_seconds(seconds);
    let life = Life::lasting(ttl(&message.header), ready);
    let header = Header { ready, life, state: State::Scheduled, ..message.header };
    Message { header, ..message }
}

/// Returns the entry kept in this state, settled this many seconds after [`start`]; its ttl counts from then on.
pub fn settled(message: Message, state: State, seconds: u32) -> Message {
    let ready = start().plus_seconds(seconds);
    let life = Life::lasting(ttl(&message.header), ready);
    let header = Header { ready, life, state, ..message.header };
    Message { header, ..message }
}

/// Extras with each field.
pub fn all_extras() -> Extras {
    let event = |what, by: &str, seconds| Event {
        at: start().plus_seconds(seconds),
        what,
        by: Holder::cut(by),
        reason: Reason::cut("no space"),
        seconds,
    };
    Extras {
        keep: Some(Keep::stored(60)),
        tags: Tags::stored(vec!["a".to_owned(), "\u{e4} b".to_owned()]),
        meta: Some(Meta::stored(Bytes::from_static(b"{\"step\":1}"))),
        forgotten: 3,
        by: Holder::cut("worker 1"),
        result: Some(Outcome::stored(Bytes::from_static(b"[1,2]"))),
        reason: Reason::cut("no space"),
        life: Some(Life::lasting(60, start())),
        arrival: Some(Arrival {
            delay: Some(0),
            life: ArrivalLife::Seconds(60),
            group: GroupName::new("g:1", "group").ok(),
        }),
        history: vec![event(EventKind::Failed, "worker 1", 5), event(EventKind::Requeued, "", 0)],
        held: Some(HoldId(Uuid::from_u128(7))),
        hops: 3,
        arrived: Some(MessageId::from_bytes([9; 16])),
    }
}

/// Returns the entry with these extras.
pub fn with_extras(message: Message, extras: Extras) -> Message {
    Message { header: Header { extras: Some(Box::new(extras)), ..message.header }, ..message }
}

/// Returns the entry with this ttl, counted from [`start`].
pub fn living(message: Message, ttl: u32) -> Message {
    let header = Header { life: Life::lasting(ttl, start()), ..message.header };
    Message { header, ..message }
}

/// Returns the entry with a life by queue, and this base time.
pub fn retained(message: Message, since: Timestamp) -> Message {
    let header = Header { life: Life::Retained { since }, ..message.header };
    Message { header, ..message }
}

/// Seconds of an entry with a life of its own.
fn ttl(header: &Header) -> u32 {
    header.ttl(Retention::LONGEST)
}

/// When the entries of tests were posted, except for some milliseconds.
pub fn start() -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000)
}

/// The header of an entry after another claim.
pub fn claimed_again(header: &Header) -> Header {
    let life = match header.life {
        Life::Own { ttl, expires } => Life::Own { ttl: ttl + 60, expires: expires.plus_seconds(60) },
        retained @ Life::Retained { .. } => retained,
    };
    Header { attempts: header.attempts + 1, life, ..header.clone() }
}

pub fn appends(queue: QueueId, messages: &[Message]) -> QueueChanges {
    changes(queue, Changes::appends(messages.to_vec()))
}

pub fn removes(queue: QueueId, ids: &[MessageId]) -> QueueChanges {
    changes(queue, Changes::removes(ids.to_vec()))
}

pub fn changes(queue: QueueId, changes: Changes) -> QueueChanges {
    QueueChanges { queue, low: MessageId::ZERO, changes }
}

/// Changes of one queue with more of the same batch.
pub fn both(mut changes: QueueChanges, more: Changes) -> QueueChanges {
    changes.changes.merge(&more);
    changes
}

pub fn ids(messages: &[Message]) -> Vec<MessageId> {
    messages.iter().map(|message| message.header.id).collect()
}
