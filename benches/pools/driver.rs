//! Batches through a driver: owners of some slots, each with one batch under way, as the slot writers of the service
//! send them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_clock::Clock;
use angarium_core::durability::Durability;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Life, Message, State};
use angarium_core::time::Timestamp;
use angarium_storage::open::PoolOpener;
use angarium_storage::{Batch, Changes, Epoch, PoolStore, QueueChanges, Stamp, StoreError};
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Runtime;
use uuid::Uuid;

/// Slots, and so batches under way.
pub const SLOTS: u8 = 16;
/// Messages in a batch.
pub const MESSAGES: usize = 50;
pub const BODY_BYTES: usize = 200;
/// What the pool is stamped with.
pub const POOL: Uuid = Uuid::from_u128(2);

/// Fences all slots again.
pub fn fence(uri: &str, transaction: u64) {
    runtime().block_on(async { drop(fenced(uri, transaction).await) });
}

/// Commits batches of appends for a while.
pub fn batches_per_second(uri: &str, transaction: u64, window: Duration) -> f64 {
    runtime().block_on(async {
        let store = fenced(uri, transaction).await;
        let mut owners = tokio::task::JoinSet::new();
        let start = Instant::now();
        for slot in 0..SLOTS {
            owners.spawn(write(Arc::clone(&store), Slot(slot), transaction, start + window));
        }
        let batches: u64 = owners.join_all().await.into_iter().sum();
        batches as f64 / start.elapsed().as_secs_f64()
    })
}

fn runtime() -> Runtime {
    Runtime::new().expect("a runtime")
}

async fn fenced(uri: &str, transaction: u64) -> Arc<dyn PoolStore> {
    let store = PoolOpener::new(Path::new(""), Clock::manual(0), []).open(uri).expect("it is a URI");
    store.register(Stamp { system: Uuid::from_u128(1), pool: POOL }).await.expect("the storage is ours");
    for slot in 0..SLOTS {
        store.fence(Slot(slot), epoch(transaction)).await.expect("the epoch is a new one");
    }
    store
}

fn epoch(transaction: u64) -> Epoch {
    Epoch { generation: 1, transaction }
}

async fn write(store: Arc<dyn PoolStore>, slot: Slot, transaction: u64, end: Instant) -> u64 {
    let mut dice = SmallRng::seed_from_u64(transaction << 8 | u64::from(slot.0));
    let queue = QueueId::new(slot, &mut dice);
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    let mut seq = 0;
    while Instant::now() < end {
        seq += 1;
        let appends = (0..MESSAGES).map(|_| message(dice.random(), &body)).collect();
        let changes = QueueChanges { queue, low: MessageId::ZERO, changes: Changes::appends(appends) };
        let batch = Batch {
            slot,
            epoch: epoch(transaction),
            seq,
            durability: Durability::Sync,
            queues: vec![changes],
        };
        // A server that is short of processors may answer a connection too late; then the batch is sent again.
        while let Err(error) = store.commit(&batch).await {
            assert!(matches!(error, StoreError::NotSent(_)), "{error}");
            tokio::time::sleep(angarium_storage::postgres::limits::PAUSE).await;
        }
    }
    seq
}

/// A ready message whose id is random, as those of the plain senders are.
fn message(id: [u8; 16], body: &Bytes) -> Message {
    let (created, expires) = (Timestamp::from_millis(1_000), Timestamp::from_millis(3_601_000));
    let header = Header {
        id: MessageId::from_bytes(id),
        created,
        ready: created,
        life: Life::Own { ttl: 3_600, expires },
        attempts: 0,
        client: None,
        size: BODY_BYTES as u32,
        state: State::Ready,
        group: None,
        first_claimed: None,
        extras: None,
    };
    Message { header, body: body.clone() }
}
