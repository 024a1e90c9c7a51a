//! Tables of an earlier version, which the first replica of a later version migrates.

use std::time::Duration;

use angarium_core::message::{Header, Message, State};
use angarium_storage::{Order, PoolStore, StoreError, Totals};

use super::Scene;
use crate::groups::of_group;
use crate::shared::{LENDER, body, letters, post};
use angarium_testbed::drivers::opened;
use angarium_testbed::owner::{
    Owner, SLOT, all_extras, id, ids, in_state, message, messages, peer, queue, scheduled, settled,
    with_extras,
};

/// Entries that the program of version 2 could write.
fn entries() -> Vec<Message> {
    let mut entries = messages([1, 2]);
    entries.extend([3, 4].map(|rank| of_group(message(rank, "\"12345678\""), "a")));
    entries.push(scheduled(message(5, "\"12345678\""), 30));
    entries.push(in_state(message(6, "\"12345678\""), State::Moving(peer())));
    entries.push(of_group(in_state(message(7, "\"12345678\""), State::NoTarget), "b"));
    entries
}

/// A storage of version 2 with these entries in a queue.
async fn of_version_two() -> Scene {
    let (now, before) = (Scene::new(), Scene::new());
    let mut owner = Owner::fence(&now.pool().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &entries()).await;
    let (old, new, server) = (&before.schema, &now.schema, now.server);
    server.sql(&format!(
        "CREATE SCHEMA {old}; SET search_path = {old}, pg_catalog; {} {}",
        include_str!("../../../src/postgres/migrations/0001.sql"),
        include_str!("../../../src/postgres/migrations/0002.sql"),
    ));
    for table in ["stamp", "records", "queues", "entries"] {
        let columns = server.sql(&format!(
            "SELECT string_agg(column_name, ', ') FROM information_schema.columns
             WHERE table_schema = '{old}' AND table_name = '{table}'"
        ));
        server.sql(&format!("INSERT INTO {old}.{table} ({columns}) SELECT {columns} FROM {new}.{table}"));
    }
    server.sql(&format!("UPDATE {old}.stamp SET version = 2"));
    before
}

#[tokio::test(flavor = "multi_thread")]
async fn migrated_tables_keep_their_entries() {
    let scene = of_version_two().await;
    let owner = Owner::fence(&scene.pool().await, SLOT, 2).await;
    let at = queue(SLOT, 1);
    assert_eq!(owner.get(at, &(1..=7).map(id).collect::<Vec<_>>()).await, entries());
    assert_eq!(owner.in_order(at, Order::Ready).await, [1, 2, 3, 4].map(id));
    assert_eq!(owner.in_order(at, Order::Aside).await, [5, 6, 7].map(id));
    assert_eq!(owner.in_order(at, Order::Kept).await, []);
    let totals = Totals { messages: 7, bytes: 70, scheduled: 1, in_transfer: 2, ..Totals::default() };
    assert_eq!(owner.store.totals(at).await.unwrap(), totals);
    let heads = owner.store.groups(at, None, 10).await.unwrap();
    assert_eq!(heads.iter().map(|head| head.message.header.id).collect::<Vec<_>>(), [id(3), id(7)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn migrated_tables_take_kept_entries() {
    let scene = of_version_two().await;
    let mut owner = Owner::fence(&scene.pool().await, SLOT, 2).await;
    let at = queue(SLOT, 1);
    let done = with_extras(settled(entries().remove(2), State::Done, 5), all_extras());
    owner.update(at, std::slice::from_ref(&done.header)).await;
    assert_eq!(owner.get(at, &[id(3)]).await, [done]);
    assert_eq!(owner.in_order(at, Order::Kept).await, [id(3)]);
    let group = Header::clone(&entries()[2].header).group.unwrap();
    let page = owner.store.group(at, &group, None, 10, usize::MAX).await.unwrap();
    assert_eq!(ids(&page.messages), [id(4)]);
    assert_eq!(owner.store.totals(at).await.unwrap().kept, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn migrated_tables_take_shared_bodies() {
    let scene = of_version_two().await;
    let mut owner = Owner::fence(&scene.pool().await, SLOT, 2).await;
    owner.apply(post()).await;
    assert_eq!((scene.readers(), letters(&owner, 1).await), ("4 4".to_owned(), b"12".to_vec()));
    assert_eq!(owner.get(queue(SLOT, 1), &[id(1)]).await, messages([1]));
    let shared = 2 * body(b'1').len() as u64;
    let totals = owner.store.totals(queue(SLOT, 1)).await.unwrap();
    assert_eq!((totals.messages, totals.bytes, totals.shared), (9, 70 + shared, shared));
    let lent = owner.store.totals(LENDER).await.unwrap();
    assert_eq!(lent, Totals { lent: shared, ..Totals::default() });
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_replicas_migrate_tables_once() {
    let scene = of_version_two().await;
    let mut replicas = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let store = opened(&scene.server.uri(&format!("schema={}", scene.schema)));
        replicas.spawn(async move { total(&*store).await });
    }
    assert_eq!(replicas.join_all().await, [7; 6]);
    assert_eq!(scene.server.sql(&format!("SELECT version FROM {}.stamp", scene.schema)), "4");
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_without_its_lock_changes_nothing() {
    let scene = of_version_two().await;
    let holder = scene.server.hold(&format!("LOCK TABLE {}.entries IN ACCESS SHARE MODE", scene.schema));
    let uri = scene.server.uri(&format!("schema={}", scene.schema));
    let refused = opened(&uri).totals(queue(SLOT, 1)).await;
    assert!(matches!(&refused, Err(StoreError::NotSent(why)) if why.contains("timeout")), "{refused:?}");
    assert_eq!(scene.server.sql(&format!("SELECT version FROM {}.stamp", scene.schema)), "2");
    drop(holder);
    assert_eq!(total(&*opened(&uri)).await, 7);
}

/// Number of messages, asked as often as a busy machine exceeds a timeout.
async fn total(store: &dyn PoolStore) -> u64 {
    loop {
        if let Ok(totals) = store.totals(queue(SLOT, 1)).await {
            return totals.messages;
        }
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
}

/// Sessions of the earlier program stay open during a rolling upgrade.
#[tokio::test(flavor = "multi_thread")]
async fn statements_of_version_two_work_on_migrated_tables() {
    let scene = of_version_two().await;
    let owner = Owner::fence(&scene.pool().await, SLOT, 2).await;
    let schema = &scene.schema;
    scene.server.sql(&format!(
        "SET search_path = {schema}, pg_catalog;
         INSERT INTO entries (queue, aside, id, slot, state, created, ready, expires, ttl, attempts, size, client, peer,
             first_claimed, grouped, body)
         SELECT queue, aside, '00000000-0000-0009-0000-000000000009', slot, state, created, ready, expires, ttl, attempts,
             size, client, peer, first_claimed, grouped, body
         FROM entries WHERE state = 0 ORDER BY id LIMIT 1;
         INSERT INTO queues (queue, messages, bytes, scheduled, aside, low)
         SELECT '00000000-0000-0009-0000-000000000009', messages, bytes, scheduled, aside, low FROM queues LIMIT 1"
    ));
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Ready).await, [1, 2, 3, 4, 9].map(id));
    let sums = format!("SELECT sum(kept), sum(shared), sum(lent) FROM {schema}.queues");
    assert_eq!(scene.server.sql(&sums), "0|0|0");
}
