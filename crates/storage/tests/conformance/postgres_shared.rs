//! Batches of many slots that share a statement in PostgreSQL do not affect each other.

use tokio::task::JoinSet;

use angarium_core::durability::Durability;
use angarium_core::ids::{QueueId, Slot};
use angarium_storage::{Batch, Changes, PoolStore, QueueChanges, StoreError};

use super::postgres::Scene;
use super::shared::{body, copies_to};
use angarium_testbed::owner::{Owner, appends, both, epoch, id, messages, queue, removes, with_body};

const SLOTS: u8 = 40;

/// Owners of slots in their own schema, and their batches.
struct Crowd {
    scene: Scene,
    owners: Vec<Owner>,
    batches: Vec<Batch>,
}

impl Crowd {
    /// Each batch has one message, whose rank is the slot.
    async fn new() -> Self {
        let scene = Scene::new();
        let pool = scene.pool().await;
        let mut owners = Vec::new();
        for slot in 0..SLOTS {
            owners.push(Owner::fence(&pool, Slot(slot), 1).await);
        }
        let batch = |owner: &Owner| {
            owner.batch(1, vec![appends(queue(owner.slot, 1), &messages([owner.slot.0.into()]))])
        };
        let batches = owners.iter().map(batch).collect();
        Self { scene, owners, batches }
    }

    /// Commits all batches at the same time, while a session holds all records, so that they wait together.
    async fn commit(&self) -> Vec<Result<(), StoreError>> {
        let schema = &self.scene.schema;
        let holder = self.scene.server.hold(&format!("LOCK TABLE {schema}.records"));
        let mut commits = JoinSet::new();
        for (place, batch) in self.batches.iter().cloned().enumerate() {
            let store = self.owners[place].store.clone();
            commits.spawn(async move { (place, commit(&*store, &batch).await) });
        }
        self.scene.waiting(angarium_storage::postgres::limits::SHARED..).await;
        drop(holder);
        let mut results = commits.join_all().await;
        results.sort_by_key(|(place, _)| *place);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Number of different statements that wrote the records last.
    fn statements(&self) -> usize {
        let schema = &self.scene.schema;
        let text = format!(
            "SELECT count(DISTINCT xmin::text) FROM {schema}.records WHERE slot < {SLOTS} AND seq = 1"
        );
        self.scene.server.sql(&text).parse().unwrap()
    }
}

/// The queue whose copies the messages of a slot are.
fn lender(slot: Slot) -> QueueId {
    queue(slot, 9)
}

/// Commits a batch. On a busy machine a connection or a statement may exceed its timeout; then the batch is sent again.
/// If the server refuses its content, that is the answer.
async fn commit(store: &dyn PoolStore, batch: &Batch) -> Result<(), StoreError> {
    loop {
        match store.commit(batch).await {
            Err(StoreError::NotSent(why) | StoreError::Unknown(why)) if !why.contains("unique") => {
                tokio::time::sleep(angarium_storage::postgres::limits::PAUSE).await;
            }
            result => return result,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gathered_batches_of_many_slots_are_one_statement() {
    let crowd = Crowd::new().await;
    for result in crowd.commit().await {
        result.unwrap();
    }
    for owner in &crowd.owners {
        assert_eq!(owner.all(queue(owner.slot, 1)).await, messages([owner.slot.0.into()]));
        assert_eq!(owner.totals(queue(owner.slot, 1)).await.0, 1);
    }
    // One statement for each of the first batches, and some for the rest; more if some took too long on a busy machine.
    let statements = crowd.statements();
    assert!(statements < usize::from(SLOTS) / 2, "{statements} statements");
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_sharing_a_statement_may_do_anything() {
    let mut crowd = Crowd::new().await;
    for owner in &mut crowd.owners {
        owner.append(queue(owner.slot, 1), &messages([1, 2, 3])).await;
    }
    crowd.batches.clear();
    for owner in &crowd.owners {
        let at = queue(owner.slot, 1);
        let mut header = messages([2])[0].header.clone();
        header.attempts = owner.slot.0.into();
        let none = QueueChanges::of(at, id(0));
        crowd.batches.push(owner.batch(
            2,
            vec![match owner.slot.0 % 3 {
                0 => appends(at, &messages([4])),
                1 => both(none, Changes::updates(vec![header])),
                _ => removes(at, &[id(1)]),
            }],
        ));
    }
    for result in crowd.commit().await {
        result.unwrap();
    }
    for owner in &crowd.owners {
        let at = queue(owner.slot, 1);
        let all = owner.all(at).await;
        let found: Vec<_> = all.iter().map(|message| message.header.id).collect();
        let attempts = if owner.slot.0 % 3 == 1 { owner.slot.0.into() } else { 0 };
        let expected = match owner.slot.0 % 3 {
            0 => vec![id(1), id(2), id(3), id(4)],
            1 => vec![id(1), id(2), id(3)],
            _ => vec![id(2), id(3)],
        };
        assert_eq!(found, expected);
        assert_eq!(owner.totals(at).await.0, expected.len() as u64);
        assert_eq!(owner.get(at, &[id(2)]).await[0].header.attempts, attempts);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_replaced_owner_in_statement_is_refused() {
    let crowd = Crowd::new().await;
    let other = crowd.scene.pool().await;
    for slot in (0..SLOTS).step_by(7) {
        other.fence(Slot(slot), epoch(2)).await.unwrap();
    }
    for (place, result) in crowd.commit().await.into_iter().enumerate() {
        let owner = &crowd.owners[place];
        let written = owner.all(queue(owner.slot, 1)).await.len();
        if place % 7 == 0 {
            assert!(matches!(result, Err(StoreError::Fenced(by)) if by == epoch(2)), "{result:?}");
            assert_eq!(written, 0);
        } else {
            result.unwrap();
            assert_eq!(written, 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_batch_in_statement_leaves_no_shared_body() {
    let mut crowd = Crowd::new().await;
    let other = crowd.scene.pool().await;
    crowd.batches.clear();
    for owner in &crowd.owners {
        let body = body(owner.slot.0);
        let copy = |at| {
            let mut copies = copies_to(queue(owner.slot, at), &[with_body(1, body.clone())]);
            copies.changes.lender = Some(lender(owner.slot));
            copies
        };
        crowd.batches.push(owner.batch(1, vec![copy(1), copy(2)]));
    }
    for slot in (0..SLOTS).step_by(7) {
        other.fence(Slot(slot), epoch(2)).await.unwrap();
    }
    let mut applied = 0;
    for (place, result) in crowd.commit().await.into_iter().enumerate() {
        assert_eq!(result.is_err(), place % 7 == 0, "{result:?}");
        applied += usize::from(result.is_ok());
        let owner = &crowd.owners[place];
        let lent = if result.is_ok() { body(owner.slot.0).len() as u64 } else { 0 };
        assert_eq!(owner.store.totals(lender(owner.slot)).await.unwrap().lent, lent);
    }
    assert_eq!(crowd.scene.readers(), vec!["2"; applied].join(" "));
    for owner in crowd.owners.iter().filter(|owner| owner.slot.0 % 7 != 0) {
        for at in [1, 2] {
            assert_eq!(owner.all(queue(owner.slot, at)).await, [with_body(1, body(owner.slot.0))]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_batch_takes_no_other_along() {
    let mut crowd = Crowd::new().await;
    let bad = usize::from(SLOTS) - 1;
    let mut owner = Owner::fence(&crowd.owners[bad].store, Slot(SLOTS - 1), 1).await;
    owner.append(queue(owner.slot, 1), &messages([owner.slot.0.into()])).await;
    // No owner sends the same id again; a table refuses it.
    crowd.batches[bad] = owner.batch(2, crowd.batches[bad].queues.clone());
    let results = crowd.commit().await;
    for (place, result) in results.into_iter().enumerate() {
        if place == bad {
            assert!(matches!(&result, Err(StoreError::NotSent(why)) if why.contains("unique")), "{result:?}");
        } else {
            result.unwrap();
        }
    }
    for owner in &crowd.owners {
        assert_eq!(owner.totals(queue(owner.slot, 1)).await.0, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_batch_beside_relaxed_ones_is_synced() {
    const SYNCED: usize = 20;
    let mut crowd = Crowd::new().await;
    let (server, schema) = (crowd.scene.server, crowd.scene.schema.clone());
    server.sql(&format!(
        "CREATE TABLE {schema}.seen (slot int2, commits text);
         CREATE FUNCTION {schema}.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO {schema}.seen VALUES (NEW.slot, current_setting('synchronous_commit')); RETURN NULL;
         END $$;
         CREATE TRIGGER see AFTER UPDATE ON {schema}.records FOR EACH ROW EXECUTE FUNCTION {schema}.see()"
    ));
    for (place, batch) in crowd.batches.iter_mut().enumerate() {
        batch.durability = if place == SYNCED { Durability::Sync } else { Durability::Relaxed };
    }
    for result in crowd.commit().await {
        result.unwrap();
    }
    let commits =
        |slots: &str| server.sql(&format!("SELECT DISTINCT commits FROM {schema}.seen WHERE slot {slots}"));
    assert_eq!(commits(&format!("= {SYNCED}")), "on");
    server.sql(&format!("DELETE FROM {schema}.seen"));
    for batch in &mut crowd.batches {
        (batch.seq, batch.durability) = (2, Durability::Relaxed);
        batch.queues.clear();
    }
    for result in crowd.commit().await {
        result.unwrap();
    }
    assert_eq!(commits("IS NOT NULL"), "off");
}
