//! Bodies that messages share: PostgreSQL stores each once, as long as a message has it.

use angarium_core::message::State;
use angarium_storage::{Direction, DropResult, Order, StoreError};

use super::Scene;
use crate::shared::{COPIES, copy, letters, post, post_apart, post_unlike};
use angarium_testbed::owner::{Owner, SLOT, queue, removes, settled};

impl Scene {
    /// How many messages have each shared body, in order of these numbers.
    pub fn readers(&self) -> String {
        self.server.sql(&format!(
            "SELECT COALESCE(string_agg(readers::text, ' ' ORDER BY readers), '') FROM {}.bodies",
            self.schema
        ))
    }
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
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_or_repeated_batch_stores_no_shared_body() {
    let scene = Scene::new();
    let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
    owner.apply(post()).await;
    owner.send(1, post()).await.unwrap();
    assert_eq!(scene.readers(), "4 4");
    let gone = (1..=COPIES).map(|at| removes(queue(SLOT, at), &[copy(at, 0), copy(at, 1)]));
    owner.apply(gone.collect()).await;
    assert_eq!(scene.readers(), "");
    let stale = owner.send(1, post()).await;
    assert!(matches!(stale, Err(StoreError::Stale)), "{stale:?}");
    let early = owner.send(4, post()).await;
    assert!(matches!(early, Err(StoreError::WentBack)), "{early:?}");
    assert_eq!(scene.readers(), "");
}

/// The second of two statements that wait for the record of their slot has a snapshot from before the first.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_batch_and_drop_count_readers_of_both() {
    for (left, drop_is_first) in [(0, false), (0, true), (1, false), (1, true)] {
        let scene = Scene::new();
        let pool = scene.pool().await;
        let mut owner = Owner::fence(&pool, SLOT, 1).await;
        owner.apply(post()).await;
        for at in 3 + left..=COPIES {
            owner.drop_queue(queue(SLOT, at), 10).await;
        }
        let batch = owner.batch(2, vec![removes(queue(SLOT, 1), &[copy(1, 0), copy(1, 1)])]);
        let holder = scene.hold();
        let remove = async {
            if drop_is_first {
                scene.waiting(1..=1).await;
            }
            pool.commit(&batch).await
        };
        let drop_queue = async {
            if !drop_is_first {
                scene.waiting(1..=1).await;
            }
            pool.drop_queue(SLOT, owner.epoch, queue(SLOT, 2), 10).await
        };
        let later = async {
            scene.waiting(2..=2).await;
            drop(holder);
        };
        let (removed, dropped, ()) = tokio::join!(remove, drop_queue, later);
        removed.unwrap();
        assert_eq!(dropped.unwrap(), DropResult::Done);
        let expected = if left == 0 { "" } else { "1 1" };
        assert_eq!(scene.readers(), expected, "the drop is first: {drop_is_first}");
        if left > 0 {
            assert_eq!(letters(&owner, 3).await, *b"12");
        }
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
    assert_eq!(scene.readers(), "3 3");
    for at in 2..=COPIES {
        assert_eq!(letters(&owner, at).await, *b"12");
        owner.drop_queue(queue(SLOT, at), 10).await;
    }
    assert_eq!(scene.readers(), "");
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
    assert_eq!(owner.totals(at).await, (0, 0));
    assert_eq!(scene.readers(), "");
}
