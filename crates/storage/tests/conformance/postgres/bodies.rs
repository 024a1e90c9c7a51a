//! Bodies that messages share: PostgreSQL stores each once, as long as a message has it.

use angarium_core::ids::QueueId;
use angarium_core::message::State;
use angarium_storage::{Changes, Direction, DropResult, Order, QueueChanges, StoreError, Totals, Usage};

use super::Scene;
use crate::shared::{COPIES, LENDER, body, copies_to, copy, letters, post, post_apart, post_unlike};
use angarium_testbed::owner::{Owner, SLOT, appends, both, id, messages, queue, removes, settled, with_body};

impl Scene {
    /// How many messages have each shared body, in order of these numbers.
    pub fn readers(&self) -> String {
        self.server.sql(&format!(
            "SELECT COALESCE(string_agg(readers::text, ' ' ORDER BY readers), '') FROM {}.bodies",
            self.schema
        ))
    }

    /// Number of rows of queues.
    fn queues(&self) -> String {
        self.server.sql(&format!("SELECT count(*) FROM {}.queues", self.schema))
    }
}

/// Bytes of one body of a post.
fn body_bytes() -> u64 {
    body(b'1').len() as u64
}

/// Number of bodies that a queue with copies shares; it has no other bytes.
async fn shared(owner: &Owner, at: u64) -> u64 {
    let totals = owner.store.totals(queue(SLOT, at)).await.unwrap();
    assert_eq!((totals.shared, totals.lent), (totals.bytes, 0));
    totals.shared / body_bytes()
}

/// Number of bodies that the lender has lent; it has no entries.
async fn lent(owner: &Owner) -> u64 {
    let totals = owner.store.totals(LENDER).await.unwrap();
    assert_eq!(totals, Totals { lent: totals.lent, ..Totals::default() });
    assert_eq!(totals.lent % body_bytes(), 0);
    totals.lent / body_bytes()
}

/// Removes both copies of a queue.
fn emptied(at: u64) -> QueueChanges {
    removes(queue(SLOT, at), &[copy(at, 0), copy(at, 1)])
}

/// Applies the next batch and drops a queue at the same time. Both wait for the record of their slot: the second of
/// them has a snapshot from before the first.
async fn apply_beside_drop(
    scene: &Scene,
    owner: &mut Owner,
    changes: Vec<QueueChanges>,
    dropped: QueueId,
    drop_is_first: bool,
) {
    owner.seq += 1;
    let (pool, batch) = (&owner.store, owner.batch(owner.seq, changes));
    let holder = scene.hold();
    let commit = async {
        if drop_is_first {
            scene.waiting(1..=1).await;
        }
        pool.commit(&batch).await
    };
    let drop_queue = async {
        if !drop_is_first {
            scene.waiting(1..=1).await;
        }
        pool.drop_queue(SLOT, owner.epoch, dropped, 10).await
    };
    let later = async {
        scene.waiting(2..=2).await;
        drop(holder);
    };
    let (committed, dropped, ()) = tokio::join!(commit, drop_queue, later);
    committed.unwrap();
    assert_eq!(dropped.unwrap(), DropResult::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_body_is_one_row_until_its_last_message_is_removed() {
    let scene = Scene::new();
    let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
    owner.apply(post()).await;
    assert_eq!(scene.readers(), "4 4");
    let stored = format!("SELECT count(*), count(body), count(shared) FROM {}.entries", scene.schema);
    assert_eq!(scene.server.sql(&stored), "8|0|8");
    let done = settled(owner.all(queue(SLOT, 1)).await[0].clone(), State::Done, 30);
    owner.update(queue(SLOT, 1), &[done.header]).await;
    assert_eq!(scene.readers(), "4 4");
    let gone = removes(queue(SLOT, 2), &[copy(2, 0), copy(2, 1)]);
    owner.apply(vec![gone, removes(queue(SLOT, 3), &[copy(3, 1), copy(3, 1)])]).await;
    assert_eq!(scene.readers(), "2 3");
    owner.drop_queue(queue(SLOT, 1), 1).await;
    assert_eq!(scene.readers(), "1 2");
    owner.remove(queue(SLOT, 3), &[copy(3, 0)]).await;
    assert_eq!(scene.readers(), "1 1");
    owner.remove(queue(SLOT, 4), &[copy(4, 0)]).await;
    assert_eq!((scene.readers(), letters(&owner, 4).await), ("1".to_owned(), b"2".to_vec()));
    owner.drop_queue(queue(SLOT, 4), 10).await;
    assert_eq!(scene.readers(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn ordinary_batch_stores_no_shared_body() {
    let scene = Scene::new();
    let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
    owner.apply(post_apart()).await;
    owner.apply(post_unlike()).await;
    // The batch removes all messages of a body but one.
    let mut last = post().split_off(2);
    (last[0].queue, last[1].queue) = (queue(SLOT, 7), queue(SLOT, 8));
    last[0].changes.removes = vec![copy(3, 0), copy(3, 1)];
    owner.apply(last).await;
    assert_eq!(owner.all(queue(SLOT, 8)).await.len(), 2);
    assert_eq!(scene.readers(), "");
    let counted = format!("SELECT sum(shared), sum(lent) FROM {}.queues", scene.schema);
    assert_eq!(scene.server.sql(&counted), "0|0");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_or_repeated_batch_stores_no_shared_body() {
    let scene = Scene::new();
    let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
    owner.apply(post()).await;
    owner.send(1, post()).await.unwrap();
    assert_eq!(scene.readers(), "4 4");
    assert_eq!((shared(&owner, 1).await, lent(&owner).await), (2, 2));
    owner.apply((1..=COPIES).map(emptied).collect()).await;
    assert_eq!((scene.readers(), lent(&owner).await), (String::new(), 0));
    let stale = owner.send(1, post()).await;
    assert!(matches!(stale, Err(StoreError::Stale)), "{stale:?}");
    let early = owner.send(4, post()).await;
    assert!(matches!(early, Err(StoreError::WentBack)), "{early:?}");
    assert_eq!((scene.readers(), shared(&owner, 1).await, lent(&owner).await), (String::new(), 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_count_shared_bodies_until_last_removal() {
    let scene = Scene::new();
    let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
    owner.apply(post()).await;
    for at in 1..=COPIES {
        assert_eq!(shared(&owner, at).await, 2);
    }
    assert_eq!(lent(&owner).await, 2);
    // The lender counts as no queue with entries.
    let usage = Usage { queues: COPIES, messages: 2 * COPIES, bytes: 2 * COPIES * body_bytes() };
    assert_eq!(owner.store.usage().await.unwrap(), usage);
    assert!(!owner.store.holds_any(LENDER).await.unwrap());
    let done = settled(owner.all(queue(SLOT, 1)).await[0].clone(), State::Done, 30);
    owner.update(queue(SLOT, 1), &[done.header]).await;
    assert_eq!((shared(&owner, 1).await, lent(&owner).await), (2, 2));
    let part = owner.store.drop_queue(SLOT, owner.epoch, queue(SLOT, 1), 1).await;
    assert_eq!((part.unwrap(), shared(&owner, 1).await), (DropResult::More, 1));
    owner.drop_queue(queue(SLOT, 1), 1).await;
    owner.remove(queue(SLOT, 2), &[copy(2, 0), copy(2, 0)]).await;
    assert_eq!((shared(&owner, 1).await, shared(&owner, 2).await, lent(&owner).await), (0, 1, 2));
    owner.apply(vec![emptied(2), emptied(3)]).await;
    assert_eq!((shared(&owner, 3).await, shared(&owner, 4).await, lent(&owner).await), (0, 2, 2));
    owner.remove(queue(SLOT, 4), &[copy(4, 0)]).await;
    assert_eq!((shared(&owner, 4).await, lent(&owner).await), (1, 1));
    owner.drop_queue(queue(SLOT, 4), 10).await;
    assert_eq!(lent(&owner).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn lender_in_the_batch_counts_its_entries_too() {
    let scene = Scene::new();
    let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
    let mut first = post();
    let second = first.split_off(2);
    owner.apply(first).await;
    // The batch removes two bodies of the lender, and adds two others.
    let own = appends(LENDER, &messages([90, 91]));
    owner.apply([vec![emptied(1), own, emptied(2)], second].concat()).await;
    let totals = Totals { messages: 2, bytes: 20, lent: 2 * body_bytes(), ..Totals::default() };
    assert_eq!(owner.store.totals(LENDER).await.unwrap(), totals);
    assert_eq!(owner.all(LENDER).await, messages([90, 91]));
    owner.apply(vec![emptied(3), removes(LENDER, &[id(90)]), emptied(4)]).await;
    let left = Totals { messages: 1, bytes: 10, ..Totals::default() };
    assert_eq!(owner.store.totals(LENDER).await.unwrap(), left);
}

#[tokio::test(flavor = "multi_thread")]
async fn lender_with_a_copy_is_dropped_in_parts() {
    let scene = Scene::new();
    let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
    let (one, bytes) = (body(b'1'), body_bytes());
    let copies = [LENDER, queue(SLOT, 1)].map(|at| copies_to(at, &[with_body(50, one.clone())]));
    let [own, other] = copies;
    // Bodies of its own, which it shares with no queue.
    let alone = [with_body(51, body(b'2')), with_body(52, body(b'3'))];
    owner.apply(vec![both(own, Changes::appends(alone.to_vec())), other]).await;
    let all = Totals { messages: 3, bytes: 3 * bytes, shared: bytes, lent: bytes, ..Totals::default() };
    assert_eq!(owner.store.totals(LENDER).await.unwrap(), all);
    owner.drop_queue(queue(SLOT, 1), 10).await;
    assert_eq!(owner.store.totals(LENDER).await.unwrap(), all);
    let part = owner.store.drop_queue(SLOT, owner.epoch, LENDER, 1).await;
    let left = Totals { messages: 2, bytes: 2 * bytes, ..Totals::default() };
    assert_eq!((part.unwrap(), owner.store.totals(LENDER).await.unwrap()), (DropResult::More, left));
    owner.drop_queue(LENDER, 1).await;
    assert_eq!((scene.readers(), scene.queues()), (String::new(), "0".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_lender_gets_no_row_by_removals() {
    let scene = Scene::new();
    let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
    owner.apply(post()).await;
    assert_eq!(scene.queues(), "5");
    owner.drop_queue(LENDER, 10).await;
    assert_eq!((scene.queues(), lent(&owner).await), ("4".to_owned(), 0));
    owner.apply(vec![emptied(1), emptied(2), emptied(3)]).await;
    owner.remove(queue(SLOT, 4), &[copy(4, 0)]).await;
    assert_eq!((scene.readers(), scene.queues()), ("1".to_owned(), "4".to_owned()));
    owner.drop_queue(queue(SLOT, 4), 10).await;
    assert_eq!((scene.readers(), scene.queues()), (String::new(), "3".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_batch_and_drop_count_readers_of_both() {
    for (left, drop_is_first) in [(0, false), (0, true), (1, false), (1, true)] {
        let scene = Scene::new();
        let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
        owner.apply(post()).await;
        for at in 3 + left..=COPIES {
            owner.drop_queue(queue(SLOT, at), 10).await;
        }
        apply_beside_drop(&scene, &mut owner, vec![emptied(1)], queue(SLOT, 2), drop_is_first).await;
        let expected = if left == 0 { "" } else { "1 1" };
        assert_eq!(scene.readers(), expected, "the drop is first: {drop_is_first}");
        assert_eq!(lent(&owner).await, 2 * left, "the drop is first: {drop_is_first}");
        if left > 0 {
            assert_eq!(letters(&owner, 3).await, *b"12");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_post_and_drop_count_lent_of_both() {
    for drop_is_first in [false, true] {
        let scene = Scene::new();
        let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
        let mut first = post();
        let second = first.split_off(2);
        owner.apply(first).await;
        owner.drop_queue(queue(SLOT, 1), 10).await;
        // The post adds two bodies of the lender, and the drop removes the last messages of two.
        apply_beside_drop(&scene, &mut owner, second, queue(SLOT, 2), drop_is_first).await;
        assert_eq!((scene.readers(), lent(&owner).await), ("2 2".to_owned(), 2));
        assert_eq!((shared(&owner, 3).await, shared(&owner, 4).await), (2, 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lender_dropped_beside_removal_gets_no_row() {
    for drop_is_first in [false, true] {
        let scene = Scene::new();
        let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
        owner.apply(post().into_iter().take(2).collect()).await;
        apply_beside_drop(&scene, &mut owner, vec![emptied(1), emptied(2)], LENDER, drop_is_first).await;
        assert_eq!((scene.readers(), scene.queues()), (String::new(), "2".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drop_repeated_at_once_takes_no_body_of_others() {
    let scene = Scene::new();
    let pool = scene.pool().await;
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    owner.apply(post()).await;
    let holder = scene.hold();
    let part = || pool.drop_queue(SLOT, owner.epoch, queue(SLOT, 1), 10);
    let later = async {
        scene.waiting(3..=3).await;
        drop(holder);
    };
    let (one, two, three, ()) = tokio::join!(part(), part(), part(), later);
    for dropped in [one, two, three] {
        dropped.unwrap();
    }
    assert_eq!((scene.readers(), lent(&owner).await), ("3 3".to_owned(), 2));
    for at in 2..=COPIES {
        assert_eq!(letters(&owner, at).await, *b"12");
        owner.drop_queue(queue(SLOT, at), 10).await;
    }
    assert_eq!((scene.readers(), lent(&owner).await), (String::new(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn message_without_its_shared_body_is_damaged() {
    let scene = Scene::new();
    let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
    owner.apply(post()).await;
    scene.server.sql(&format!("DELETE FROM {}.bodies", scene.schema));
    let at = queue(SLOT, 1);
    let found = owner.store.get(at, &[copy(1, 0)]).await;
    assert!(matches!(found, Err(StoreError::Damaged(_))), "{found:?}");
    let page = owner.store.scan(at, Order::Ready, Direction::Up, None, 10, usize::MAX).await;
    assert!(matches!(page, Err(StoreError::Damaged(_))), "{page:?}");
    owner.remove(at, &[copy(1, 0), copy(1, 1)]).await;
    assert_eq!(owner.store.totals(at).await.unwrap(), Totals::default());
    assert_eq!(scene.readers(), "");
}
