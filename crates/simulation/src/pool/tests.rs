//! The promises of a pool over the simulated network, and the switches of its controller.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use angarium_core::durability::Durability;
use angarium_core::ids::MessageId;
use angarium_core::time::Timestamp;
use angarium_storage::{
    Batch, Changes, DropResult, Due, Note, Order, PoolStore, PoolWrites, QueueChanges, RemoveHint, Stamp,
    StoreError,
};
use angarium_testbed::owner::{
    Owner, SLOT, all_extras, appends, both, changes, epoch, id, ids, living, message, messages, queue,
    removes, retained, scheduled, start, with_extras,
};

use super::{PostPlan, SimulatedPool, Storage, Storages};
use crate::faults::{Fault, FaultRates};
use crate::scheduler::Policy;
use crate::trace::Trace;
use crate::world::World;

const ALWAYS: u32 = 100_000;

/// A world with one storage.
struct Scene {
    world: World,
    storages: Storages,
    storage: Storage,
}

impl Scene {
    fn new(class: Durability) -> Self {
        Self::with_faults(class, 1, &[])
    }

    fn with_faults(class: Durability, seed: u64, faults: &[(Fault, u32)]) -> Self {
        let mut rates = FaultRates::default();
        faults.iter().for_each(|(fault, rate)| rates.set(*fault, *rate));
        let world = World::new(seed, Policy::Equal, Trace::kept());
        world.begin_faults(rates);
        let storages = Storages::new(world.clone());
        let storage = storages.add("a", class);
        Self { world, storages, storage }
    }

    /// A driver of another process.
    fn open(&self, process: &str) -> Arc<dyn PoolStore> {
        let storage = self.storages.of_uri("sim://a").unwrap();
        Arc::new(SimulatedPool::new(storage, self.world.clone(), process))
    }

    async fn owner(&self) -> Owner {
        Owner::fence(&self.open("b1"), SLOT, 1).await
    }

    /// The stored ids of the first queue, in any state.
    fn stored(&self) -> Vec<MessageId> {
        let snapshot = self.storage.snapshot();
        snapshot
            .queues
            .get(&queue(SLOT, 1))
            .map(|held| held.entries.keys().copied().collect())
            .unwrap_or_default()
    }
}

fn posts(rank: u64) -> Vec<QueueChanges> {
    vec![appends(queue(SLOT, 1), &messages([rank]))]
}

fn relaxed(batch: Batch) -> Batch {
    Batch { durability: Durability::Relaxed, ..batch }
}

#[tokio::test(start_paused = true)]
async fn batches_are_numbered_without_gap() {
    let scene = Scene::new(Durability::Sync);
    let mut owner = scene.owner().await;
    owner.apply(posts(1)).await;
    owner.apply(posts(2)).await;
    owner.send(2, posts(9)).await.unwrap();
    assert!(matches!(owner.send(1, posts(9)).await, Err(StoreError::Stale)));
    assert!(matches!(owner.send(4, posts(9)).await, Err(StoreError::WentBack)));
    owner.apply(posts(3)).await;
    assert_eq!(scene.stored(), [1, 2, 3].map(id));
}

#[tokio::test(start_paused = true)]
async fn fence_refuses_earlier_owner() {
    let scene = Scene::new(Durability::Sync);
    let mut old = scene.owner().await;
    old.apply(posts(1)).await;
    let other = scene.open("b2");
    assert_eq!(other.fence(SLOT, epoch(2)).await.unwrap(), id(1));
    let refused = old.send(2, posts(2)).await;
    assert!(matches!(refused, Err(StoreError::Fenced(by)) if by == epoch(2)), "{refused:?}");
    let refused = other.fence(SLOT, epoch(1)).await;
    assert!(matches!(refused, Err(StoreError::Fenced(by)) if by == epoch(2)), "{refused:?}");
    let beyond = Batch { epoch: epoch(3), ..old.batch(1, posts(2)) };
    assert!(matches!(other.commit(&beyond).await, Err(StoreError::WentBack)));
    assert_eq!(scene.stored(), [id(1)]);
}

#[tokio::test(start_paused = true)]
async fn same_epoch_fence_separates_numberings() {
    let scene = Scene::new(Durability::Sync);
    let first = scene.owner().await;
    let mut second = scene.owner().await;
    assert!(matches!(first.send(1, posts(1)).await, Err(StoreError::WentBack)));
    second.apply(posts(2)).await;
    assert_eq!(scene.stored(), [id(2)]);
}

#[tokio::test(start_paused = true)]
async fn full_storage_leaves_number_free() {
    let scene = Scene::new(Durability::Sync);
    let mut owner = scene.owner().await;
    owner.apply(posts(1)).await;
    scene.storage.set_full(true);
    // The last batch is done, whether there is room or not.
    owner.send(1, posts(1)).await.unwrap();
    let mixed = both(appends(queue(SLOT, 1), &messages([2])), Changes::removes(vec![id(1)]));
    assert!(owner.store.check_room().is_ok());
    assert!(matches!(owner.send(2, vec![mixed]).await, Err(StoreError::Full)));
    assert!(matches!(owner.store.check_room(), Err(StoreError::Full)));
    assert_eq!(scene.stored(), [id(1)]);
    owner.apply(vec![removes(queue(SLOT, 1), &[id(1)])]).await;
    assert_eq!(owner.store.health().await.unwrap().free, Some(0));
    scene.storage.set_full(false);
    assert!(owner.store.check_room().is_err());
    assert!(owner.store.health().await.unwrap().free > Some(0));
    assert!(owner.store.check_room().is_ok());
    owner.apply(posts(3)).await;
    assert_eq!(scene.stored(), [id(3)]);
}

#[tokio::test(start_paused = true)]
async fn roll_back_loses_relaxed_batches_only() {
    let scene = Scene::new(Durability::Relaxed);
    let owner = scene.owner().await;
    owner.store.commit(&relaxed(owner.batch(1, posts(1)))).await.unwrap();
    owner.send(2, posts(2)).await.unwrap();
    assert!(!scene.storage.roll_back());
    assert_eq!(scene.world.faults().total(), 0);
    for seq in [3, 4] {
        owner.store.commit(&relaxed(owner.batch(seq, posts(seq)))).await.unwrap();
    }
    assert_eq!(scene.stored(), [1, 2, 3, 4].map(id));
    assert!(scene.storage.roll_back());
    assert_eq!(scene.world.faults().0[&Fault::PoolRolledBack], 1);
    assert_eq!(scene.stored(), [1, 2].map(id));
    assert!(matches!(owner.send(5, posts(5)).await, Err(StoreError::WentBack)));
    assert_eq!(owner.store.fence(SLOT, epoch(2)).await.unwrap(), id(2));
}

#[tokio::test(start_paused = true)]
async fn synced_class_loses_nothing() {
    let scene = Scene::new(Durability::Sync);
    let owner = scene.owner().await;
    owner.store.commit(&relaxed(owner.batch(1, posts(1)))).await.unwrap();
    assert!(!scene.storage.roll_back());
    assert_eq!(scene.stored(), [id(1)]);
}

#[tokio::test(start_paused = true)]
async fn fence_makes_relaxed_batches_durable() {
    let scene = Scene::new(Durability::Relaxed);
    let owner = scene.owner().await;
    owner.store.commit(&relaxed(owner.batch(1, posts(1)))).await.unwrap();
    owner.store.fence(SLOT, epoch(2)).await.unwrap();
    assert!(!scene.storage.roll_back());
    assert_eq!(scene.stored(), [id(1)]);
}

#[tokio::test(start_paused = true)]
async fn hung_batch_is_applied_after_unknown() {
    let scene = Scene::with_faults(Durability::Sync, 1, &[]);
    let owner = scene.owner().await;
    let hung = Scene::with_faults(Durability::Sync, 1, &[(Fault::PoolHung, ALWAYS)]).world;
    let store = SimulatedPool::new(scene.storage.clone(), hung, "b1");
    assert!(matches!(store.commit(&owner.batch(1, posts(1))).await, Err(StoreError::Unknown(_))));
    assert_eq!(scene.stored(), []);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(scene.stored(), [id(1)]);
}

#[tokio::test(start_paused = true)]
async fn planned_batch_in_doubt_arrives_after_full_time() {
    let scene = Scene::new(Durability::Sync);
    let owner = scene.owner().await;
    scene.storage.plans().plan_post(PostPlan::LateBesideFull(Duration::from_secs(2)));
    assert!(matches!(owner.send(1, posts(1)).await, Err(StoreError::Unknown(_))));
    assert!(matches!(owner.send(1, posts(1)).await, Err(StoreError::Full)));
    assert_eq!(scene.stored(), []);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(scene.stored(), [id(1)]);
    owner.send(1, posts(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn planned_batch_without_answer_is_stored() {
    let scene = Scene::new(Durability::Sync);
    let owner = scene.owner().await;
    scene.storage.plans().plan_post(PostPlan::Unanswered(Duration::from_secs(2)));
    assert!(matches!(owner.send(1, posts(1)).await, Err(StoreError::Unknown(_))));
    assert_eq!(scene.storage.plans().sender().as_deref(), Some("b1"));
    assert_eq!(scene.stored(), [id(1)]);
    assert!(matches!(owner.send(1, posts(1)).await, Err(StoreError::Unknown(_))));
    tokio::time::sleep(Duration::from_secs(3)).await;
    owner.send(1, posts(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn late_batch_is_refused_by_later_fence() {
    let scene = Scene::new(Durability::Sync);
    let owner = scene.owner().await;
    let hung = Scene::with_faults(Durability::Sync, 1, &[(Fault::PoolHung, ALWAYS)]).world;
    let store = SimulatedPool::new(scene.storage.clone(), hung, "b1");
    assert!(matches!(store.commit(&owner.batch(1, posts(1))).await, Err(StoreError::Unknown(_))));
    scene.open("b2").fence(SLOT, epoch(2)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(scene.stored(), []);
    let lines = scene.world.take_lines();
    assert!(lines.last().is_some_and(|line| line.ends_with("fenced by 1.2")), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_read_is_not_sent() {
    for fault in [Fault::PoolRefused, Fault::PoolLost, Fault::PoolUnanswered, Fault::PoolHung] {
        let scene = Scene::with_faults(Durability::Sync, 1, &[(fault, ALWAYS)]);
        let store = scene.open("b1");
        assert!(matches!(store.totals(queue(SLOT, 1)).await, Err(StoreError::NotSent(_))), "{fault:?}");
        let fenced = store.fence(SLOT, epoch(1)).await.unwrap_err();
        assert_eq!(fenced.nothing_written(), fault == Fault::PoolRefused, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn down_storage_refuses_all_calls() {
    let scene = Scene::new(Durability::Sync);
    let owner = scene.owner().await;
    scene.storage.set_down(true);
    assert!(matches!(owner.send(1, posts(1)).await, Err(StoreError::NotSent(_))));
    assert!(matches!(owner.store.usage().await, Err(StoreError::NotSent(_))));
    assert!(matches!(owner.store.health().await, Err(StoreError::NotSent(_))));
    scene.storage.set_down(false);
    owner.send(1, posts(1)).await.unwrap();
    assert_eq!(scene.stored(), [id(1)]);
}

#[tokio::test(start_paused = true)]
async fn expiry_cursor_reaches_remaining_entries() {
    let scene = Scene::new(Durability::Sync);
    let mut owner = scene.owner().await;
    let all: Vec<_> = (1..=10).map(|rank| living(message(rank, "1"), 60)).collect();
    owner.append(queue(SLOT, 1), &all).await;
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        let due = owner.store.due(SLOT, Due::Expiry, start().plus_seconds(100), 3).await.unwrap();
        seen.extend(due.into_iter().map(|(_, header)| header.id));
    }
    assert_eq!(seen, (1..=10).map(id).collect());
    // The schedule has no cursor: the earliest entry is always the first.
    owner.append(queue(SLOT, 1), &[scheduled(message(11, "1"), 5), scheduled(message(12, "1"), 6)]).await;
    for _ in 0..2 {
        let due = owner.store.due(SLOT, Due::Schedule, start().plus_seconds(100), 1).await.unwrap();
        assert_eq!(due[0].1.id, id(11));
    }
}

#[tokio::test(start_paused = true)]
async fn retained_entries_are_sorted_by_base_time() {
    let scene = Scene::new(Durability::Sync);
    let mut owner = scene.owner().await;
    let all =
        [(1, 50), (2, 30), (3, 90)].map(|(rank, at)| retained(message(rank, "1"), start().plus_seconds(at)));
    owner.append(queue(SLOT, 1), &all).await;
    let read = owner.store.retained(queue(SLOT, 1), None, start().plus_seconds(60), 9).await.unwrap();
    assert_eq!(read.found.iter().map(|header| header.id).collect::<Vec<_>>(), [id(2), id(1)]);
    assert_eq!((read.oldest, read.resume), (Some(start().plus_seconds(30)), None));
}

#[tokio::test(start_paused = true)]
async fn extras_end_page_early() {
    let scene = Scene::new(Durability::Sync);
    let mut owner = scene.owner().await;
    let all: Vec<_> = (1..=3).map(|rank| with_extras(message(rank, "1"), all_extras())).collect();
    owner.append(queue(SLOT, 1), &all).await;
    let direction = angarium_storage::Direction::Up;
    let page = owner.store.scan(queue(SLOT, 1), Order::Ready, direction, None, 9, 10).await.unwrap();
    assert_eq!((ids(&page.messages), page.is_last), (vec![id(1)], false));
    assert_eq!(owner.all(queue(SLOT, 1)).await, all);
}

#[tokio::test(start_paused = true)]
async fn drop_removes_queue_in_parts() {
    let scene = Scene::new(Durability::Sync);
    let mut owner = scene.owner().await;
    let note = Note { kind: 1, key: "k".into(), value: "v".into(), expires: start() };
    owner.apply(vec![both(appends(queue(SLOT, 1), &messages(1..=3)), Changes::notes(vec![note]))]).await;
    let part = |transaction| owner.store.drop_queue(SLOT, epoch(transaction), queue(SLOT, 1), 2);
    assert!(matches!(part(2).await, Err(StoreError::WentBack)));
    assert_eq!(part(1).await.unwrap(), DropResult::More);
    assert_eq!(scene.stored(), [id(3)]);
    assert_eq!(part(1).await.unwrap(), DropResult::Done);
    assert!(scene.storage.snapshot().queues.is_empty());
    owner.store.fence(SLOT, epoch(2)).await.unwrap();
    assert!(matches!(part(1).await, Err(StoreError::Fenced(_))));
}

#[tokio::test(start_paused = true)]
async fn first_stamp_stays() {
    let scene = Scene::new(Durability::Sync);
    let store = scene.open("b1");
    let stamp = |pool| Stamp { system: Uuid::from_u128(1), pool: Uuid::from_u128(pool) };
    assert!(matches!(store.verify(stamp(1)).await, Err(StoreError::Unregistered)));
    store.register(stamp(1)).await.unwrap();
    assert!(matches!(store.register(stamp(2)).await, Err(StoreError::Stamped(_))));
    store.verify(stamp(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn wrong_hint_is_violation() {
    let scene = Scene::new(Durability::Sync);
    let mut owner = scene.owner().await;
    let sent = [message(1, "1"), scheduled(message(2, "1"), 30)];
    owner.append(queue(SLOT, 1), &sent).await;
    for message in &sent {
        let remove_hints = vec![RemoveHint::of(&message.header)];
        let hinted = Changes { remove_hints, ..Changes::removes(vec![message.header.id]) };
        owner.apply(vec![changes(queue(SLOT, 1), hinted)]).await;
    }
    let violations = scene.world.take_violations();
    assert!(violations.len() == 1 && violations[0].contains("wrong hint"), "{violations:?}");
    assert!(scene.world.take_violations().is_empty());
    assert_eq!(scene.stored(), []);
}

#[tokio::test(start_paused = true)]
async fn late_answer_has_its_messages_until_it_arrives() {
    let scene = Scene::with_faults(Durability::Sync, 1, &[(Fault::PoolLate, ALWAYS)]);
    let mut owner = scene.owner().await;
    owner.append(queue(SLOT, 1), &messages(1..=1)).await;
    let (store, ever) = (scene.open("b2"), Timestamp::from_millis(u64::MAX));
    let reading = async {
        for _ in 0..20 {
            assert_eq!(store.due(SLOT, Due::Expiry, ever, 9).await.unwrap().len(), 1);
        }
    };
    let watching = async {
        let mut late = 0;
        for _ in 0..1_300 {
            late += u32::from(scene.storage.is_in_late_answer(id(1)));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        late
    };
    let ((), late) = futures_util::future::join(reading, watching).await;
    assert!(late > 0);
    assert!(!scene.storage.is_in_late_answer(id(1)) && !scene.storage.is_in_late_answer(id(2)));
}

/// Writes and reads by two processes at once, under all faults. Returns the trace and its hash.
async fn course(seed: u64) -> (Vec<String>, u64) {
    let faults =
        [Fault::PoolRefused, Fault::PoolLost, Fault::PoolUnanswered, Fault::PoolSlow, Fault::PoolHung];
    let scene = Scene::with_faults(Durability::Relaxed, seed, &faults.map(|fault| (fault, 8_000)));
    for process in ["b1", "b2"] {
        let store = scene.open(process);
        scene.world.spawn(async move {
            for rank in 1..40 {
                let transaction = rank / 8;
                let seq = rank % 8;
                let _ = store.fence(SLOT, epoch(transaction)).await;
                let owner = Owner { store: Arc::clone(&store), slot: SLOT, epoch: epoch(transaction), seq };
                let batch = owner.batch(1 + seq / 4, posts(rank));
                let _ = store.commit(&if rank % 3 == 0 { relaxed(batch) } else { batch }).await;
                let _ = store.totals(queue(SLOT, 1)).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let hash = scene.world.trace_hash();
    (scene.world.take_lines(), hash)
}

#[tokio::test(start_paused = true)]
async fn same_seed_gives_same_trace() {
    let one = course(7).await;
    let again = course(7).await;
    assert!(one.0.len() > 200, "{}", one.0.len());
    assert_eq!(one, again);
    assert_ne!(one.1, course(8).await.1);
}
