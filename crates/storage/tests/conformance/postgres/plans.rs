//! Rows that statements read when PostgreSQL planned them for empty tables: a session has its plans still when queues are
//! long.

use std::ops::Range;

use bytes::Bytes;

use angarium_core::ids::QueueId;
use angarium_core::message::{Header, Message, State};
use angarium_storage::{Changes, Direction, Order};

use super::Scene;
use crate::groups::of_group;
use crate::shared::copies_to;
use angarium_testbed::held::wait_until;
use angarium_testbed::owner::{
    Owner, SLOT, appends, both, changes, claimed_again, id, in_state, message, messages, peer, queue,
    removes, scheduled, settled, with_body,
};

/// Entries of the long queue, by rank: ready ones, a few of a group, a few aside, kept ones of another group.
const READY: u64 = 2_000;
const GROUPED: [u64; 3] = [2_001, 2_002, 2_003];
const ASIDE: [u64; 3] = [2_004, 2_005, 2_006];
const KEPT: u64 = 2_000;
const FIRST_KEPT: u64 = 3_000;
const ALL: u64 = READY + 3 + 3 + KEPT;
/// Bodies that two messages share each, in the test of bodies.
const SHARED: u64 = 2_000;
/// Other queues, in the test of lenders.
const QUEUES: u64 = 2_000;

async fn fill(owner: &mut Owner, at: QueueId) {
    let kept = |rank| of_group(settled(message(rank, "1"), State::Done, 30), "kept");
    for begin in (0..KEPT).step_by(500) {
        let sent: Vec<Message> = (begin..begin + 500).map(|rank| kept(FIRST_KEPT + rank)).collect();
        owner.append(at, &sent).await;
        owner.append(at, &messages(begin + 1..=begin + 500)).await;
    }
    owner.append(at, &GROUPED.map(|rank| of_group(message(rank, "1"), "a"))).await;
    let [put_off, moving, stuck] = ASIDE.map(|rank| message(rank, "1"));
    let moving = in_state(moving, State::Moving(peer()));
    owner.append(at, &[scheduled(put_off, 30), moving, in_state(stuck, State::NoTarget)]).await;
}

async fn fill_shared(owner: &mut Owner, at: QueueId) {
    for begin in (0..SHARED).step_by(500) {
        let new = |rank| with_body(rank, Bytes::from(vec![b'1'; 600]));
        let sent: Vec<Message> = (begin + 1..=begin + 500).map(new).collect();
        owner.apply(vec![copies_to(at, &sent), copies_to(queue(SLOT, 3), &sent)]).await;
    }
}

async fn fill_queues(owner: &mut Owner, at: QueueId) {
    for begin in (0..QUEUES).step_by(500) {
        let new = |number| appends(queue(SLOT, 10 + number), &messages([1]));
        owner.apply((begin..begin + 500).map(new).collect()).await;
    }
    fill_shared(owner, at).await;
}

/// Checks how many index entries of messages `work` reads in the long queue, when its statements were planned without
/// statistics of the tables, and with those of empty tables.
async fn assert_reads(expected: Range<u64>, work: impl AsyncFn(&mut Owner, QueueId)) {
    for statistics in ["", "ANALYZE"] {
        let reads = reads("entries", statistics, fill, &work).await;
        assert!(expected.contains(&reads), "{reads} reads, and {expected:?} expected with {statistics:?}");
    }
}

/// Number of index entries of a table that `work` and `fill` read, with the plans from when the table was empty.
async fn reads(
    table: &str,
    statistics: &str,
    fill: impl AsyncFn(&mut Owner, QueueId),
    work: impl AsyncFn(&mut Owner, QueueId),
) -> u64 {
    let scene = Scene::new();
    let pool = scene.pool().await;
    let (server, schema) = (scene.server, &scene.schema);
    for table in ["entries", "queues", "notes", "bodies"] {
        server.sql(&format!("ALTER TABLE {schema}.{table} SET (autovacuum_enabled = off)"));
        if !statistics.is_empty() {
            server.sql(&format!("{statistics} {schema}.{table}"));
        }
    }
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    work(&mut owner, queue(SLOT, 2)).await;
    fill(&mut owner, queue(SLOT, 1)).await;
    work(&mut owner, queue(SLOT, 1)).await;
    drop((owner, pool));
    let sessions = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}'");
    wait_until("the sessions end, and with that report what they read", || server.sql(&sessions) == "0");
    let text = format!(
        "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = '{schema}' AND relname = '{table}'"
    );
    server.sql(&text).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn drop_of_long_queue_reads_each_entry_few_times() {
    assert_reads(ALL..ALL * 6, async |owner, at| owner.drop_queue(at, 1_000).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_and_removes_read_entries_by_key() {
    assert_reads(200..1_000, async |owner, at| {
        let headers: Vec<Header> =
            messages(1..=100).iter().map(|message| claimed_again(&message.header)).collect();
        let kept = settled(message(FIRST_KEPT, "1"), State::Failed, 40).header;
        let updates = changes(at, Changes::updates([headers, vec![kept]].concat()));
        let removes = (201..=300).chain([FIRST_KEPT + 1]).map(id).collect();
        owner.apply(vec![both(updates, Changes::removes(removes))]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_by_id_read_entries_by_key() {
    let asked = [1, 2, GROUPED[0], ASIDE[0], FIRST_KEPT, 9_999].map(id);
    assert_reads(5..20, async |owner, at| drop(owner.get(at, &asked).await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scan_of_unready_entries_reads_no_kept_ones() {
    assert_reads(3..10, async |owner, at| {
        let found = owner.in_order(at, Order::Aside).await;
        assert!(found.is_empty() || found == ASIDE.map(id));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn look_up_of_groups_reads_no_kept_entries() {
    assert_reads(3..30, async |owner, at| {
        let heads = owner.store.groups(at, None, 10).await.unwrap();
        for head in heads {
            let group = head.message.header.group.unwrap();
            let page = owner.store.group(at, &group, None, 10, usize::MAX).await.unwrap();
            assert_eq!(page.messages.len(), GROUPED.len(), "{group:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_kept_entries_reads_no_others() {
    assert_reads(20..30, async |owner, at| {
        for direction in [Direction::Up, Direction::Down] {
            owner.store.scan(at, Order::Kept, direction, None, 10, usize::MAX).await.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_bodies_are_read_and_counted_by_key() {
    for statistics in ["", "ANALYZE"] {
        let reads = reads("bodies", statistics, fill_shared, async |owner, at| {
            let some: Vec<_> = (1..=100).map(id).collect();
            owner.get(at, &some).await;
            owner.remove(at, &some).await;
        })
        .await;
        assert!((200..1_000).contains(&reads), "{reads} reads with {statistics:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lenders_are_counted_by_key() {
    for statistics in ["", "ANALYZE"] {
        let reads = reads("queues", statistics, fill_queues, async |owner, at| {
            let some: Vec<_> = (1..=100).map(id).collect();
            owner.apply(vec![removes(at, &some), removes(queue(SLOT, 3), &some)]).await;
            owner.drop_queue(at, 1_000).await;
            owner.drop_queue(queue(SLOT, 3), 1_000).await;
        })
        .await;
        // Once for each body, and a few times for each statement.
        assert!(reads < 3 * SHARED, "{reads} reads with {statistics:?}");
    }
}
