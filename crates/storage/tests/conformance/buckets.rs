//! The cost of the embedded driver's buckets, counted in keys. This test reads the journal, unlike all others here.

use bytes::Bytes;

use angarium_clock::Clock;
use angarium_core::durability::Durability;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Header, Life, Message, State};
use angarium_core::time::Timestamp;
use angarium_journal::{Journal, Space};
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::{Batch, Changes, Due, Epoch, PoolDeadlines, PoolWrites, QueueChanges};
use angarium_testbed::owner::changes;

const EPOCH: Epoch = Epoch { generation: 1, transaction: 1 };
const QUEUE: QueueId = QueueId::from_bytes([5; 16]);

struct Pool {
    journal: Journal,
    store: EmbeddedPool,
    seq: u64,
    _data: tempfile::TempDir,
}

async fn pool() -> Pool {
    let data = tempfile::tempdir().unwrap();
    let journal = Journal::open(&data.path().join("journal"), &Clock::manual(0)).unwrap();
    let store = EmbeddedPool::new(journal.clone());
    store.fence(QUEUE.slot(), EPOCH).await.unwrap();
    Pool { journal, store, seq: 0, _data: data }
}

fn message(rank: u64, created: u64) -> Message {
    let created = Timestamp::from_millis(created);
    let id = MessageId::from_bytes(u128::from(rank).to_be_bytes());
    let (expires, state) = (created.plus_seconds(3_600), State::Ready);
    let header = Header {
        id,
        created,
        ready: created,
        life: Life::Own { ttl: 3_600, expires },
        attempts: 0,
        client: None,
        size: 0,
        state,
        group: None,
        first_claimed: None,
        extras: None,
    };
    Message { header, body: Bytes::new() }
}

impl Pool {
    async fn commit(&mut self, changes: QueueChanges) {
        self.seq += 1;
        let (seq, durability) = (self.seq, Durability::Relaxed);
        let batch = Batch { slot: QUEUE.slot(), epoch: EPOCH, seq, durability, queues: vec![changes] };
        self.store.commit(&batch).await.unwrap();
    }

    fn buckets(&self) -> usize {
        self.journal.view().unwrap().scan(Space::Buckets, &[], &[]).count()
    }

    async fn expired(&self, seconds: u32) -> usize {
        let before = Timestamp::default().plus_seconds(seconds);
        self.store.due(QUEUE.slot(), Due::Expiry, before, 1_000).await.unwrap().len()
    }
}

#[tokio::test]
async fn keys_are_as_many_as_spans_of_time_not_as_batches() {
    let mut pool = pool().await;
    for rank in 1..=128 {
        let appends = vec![message(rank, rank * 1_000)];
        pool.commit(changes(QUEUE, Changes::appends(appends))).await;
    }
    // Spans of a ttl of an hour have 64 seconds.
    assert!((2..=3).contains(&pool.buckets()), "{}", pool.buckets());
}

#[tokio::test]
async fn emptied_past_buckets_are_removed() {
    let mut pool = pool().await;
    for rank in 1..=100 {
        let appends = vec![message(rank, rank * 10_000)];
        let removes = if rank > 1 { vec![message(rank - 1, 0).header.id] } else { Vec::new() };
        pool.commit(changes(QUEUE, Changes { removes, ..Changes::appends(appends) })).await;
    }
    let all = pool.buckets();
    assert_eq!(pool.expired(4_000).await, 0);
    assert!(pool.buckets() < all, "past buckets are cleared");
    assert_eq!(pool.expired(10_000).await, 1);
    assert_eq!(pool.buckets(), 1, "what is left keeps its own");
}
