//! Tests of the quota ledger.

use std::sync::Arc;

use super::*;

const QUEUE: QueueId = QueueId::from_bytes([7; 16]);
const FIRST: Epoch = Epoch { generation: 1, transaction: 1 };
const SECOND: Epoch = Epoch { generation: 1, transaction: 2 };

fn project() -> ProjectId {
    ProjectId::new("p").unwrap()
}

fn totals(messages: u64) -> Totals {
    Totals { messages, bytes: 10 * messages, ..Totals::default() }
}

fn amount(messages: u64) -> Amount {
    Amount { messages, bytes: 10 * messages }
}

/// Returns a ledger with one queue that is counted.
fn ledger(messages: u64) -> Arc<Ledger> {
    let ledger = Arc::new(Ledger::default());
    assert!(matches!(ledger.begin_count(&project()), CountState::Begun(_)));
    ledger.opened(&project(), QUEUE, FIRST, totals(messages));
    assert!(ledger.reserve(&project(), &Quota::NONE, amount(1)).unwrap().is_none(), "not counted yet");
    ledger.end_count(&project());
    ledger
}

fn reserve(ledger: &Arc<Ledger>, messages: u64) -> Reservation {
    let quota = Quota { messages: Some(10), ..Quota::NONE };
    ledger.reserve(&project(), &quota, amount(messages)).unwrap().unwrap()
}

#[track_caller]
fn assert_holds(ledger: &Ledger, messages: u64) {
    let expected = Holdings { queues: 1, amount: amount(messages) };
    assert_eq!(ledger.holdings(&project()), Some(expected));
}

/// The count after a batch, which has just begun and ended.
fn batch(ledger: &Ledger, read: Option<u64>) -> [PoolCount; 1] {
    let settles = ledger.settles(QUEUE);
    [PoolCount { queue: QUEUE, account: Some(project()), totals: read.map(totals), settles }]
}

fn ended(amount: Amount) -> EndedReservation {
    EndedReservation { queue: QUEUE, amount }
}

fn start(epoch: Epoch, ledger: &Ledger) -> CountStart {
    CountStart { epoch, looks: ledger.looks(QUEUE) }
}

#[test]
fn a_reservation_counts_until_the_pool_holds_its_messages() {
    let ledger = ledger(3);
    drop(reserve(&ledger, 2));
    assert_holds(&ledger, 3);
    let (one, other) = (reserve(&ledger, 2), reserve(&ledger, 4));
    assert_holds(&ledger, 9);
    let quota = Quota { messages: Some(10), ..Quota::NONE };
    assert!(ledger.reserve(&project(), &quota, amount(2)).is_err());
    let (one, other) = (one.bind(QUEUE, FIRST), other.bind(QUEUE, FIRST));
    assert_holds(&ledger, 9);
    ledger.settle(FIRST, &batch(&ledger, Some(5)), &[ended(one)]);
    assert_holds(&ledger, 9);
    ledger.settle(FIRST, &[], &[ended(other)]);
    assert_holds(&ledger, 5);
}

#[test]
fn reservation_of_earlier_epoch_ends_at_later_count() {
    let ledger = ledger(3);
    let unknown = reserve(&ledger, 2).bind(QUEUE, FIRST);
    assert_holds(&ledger, 5);
    ledger.found(&project(), QUEUE, start(SECOND, &ledger), totals(4));
    assert_holds(&ledger, 4);
    // The ledger ignores the slot object of the earlier epoch.
    ledger.settle(FIRST, &batch(&ledger, Some(9)), &[ended(unknown)]);
    ledger.opened(&project(), QUEUE, FIRST, totals(9));
    ledger.found(&project(), QUEUE, start(FIRST, &ledger), totals(9));
    assert_holds(&ledger, 4);
}

#[test]
fn slow_count_does_not_undo_later_count() {
    let ledger = ledger(3);
    let since = start(FIRST, &ledger);
    ledger.settle(FIRST, &batch(&ledger, Some(6)), &[]);
    ledger.found(&project(), QUEUE, since, totals(3));
    assert_holds(&ledger, 6);
    ledger.found(&project(), QUEUE, start(FIRST, &ledger), totals(5));
    assert_holds(&ledger, 5);
}

#[test]
fn older_count_of_other_writer_is_repeated() {
    let ledger = ledger(3);
    let posted = reserve(&ledger, 2).bind(QUEUE, FIRST);
    let older = batch(&ledger, Some(9));
    ledger.settle(FIRST, &batch(&ledger, Some(4)), &[]);
    ledger.settle(FIRST, &older, &[ended(posted)]);
    assert_holds(&ledger, 6);
    assert_eq!(ledger.take_stale(), [(project(), QUEUE.slot())]);
    ledger.found(&project(), QUEUE, start(FIRST, &ledger), totals(5));
    assert_holds(&ledger, 5);
}

#[test]
fn unanswered_count_keeps_posts_and_is_repeated() {
    let ledger = ledger(3);
    let posted = reserve(&ledger, 2).bind(QUEUE, FIRST);
    ledger.settle(FIRST, &batch(&ledger, None), &[ended(posted)]);
    assert_holds(&ledger, 5);
    assert_eq!(ledger.take_stale(), [(project(), QUEUE.slot())]);
    assert!(ledger.take_stale().is_empty());
}

#[test]
fn missing_queues_are_dropped_in_their_slot_only() {
    let ledger = ledger(3);
    let elsewhere = QueueId::from_bytes([8; 16]);
    ledger.opened(&project(), elsewhere, FIRST, totals(2));
    ledger.keep_only(&project(), elsewhere.slot(), &HashSet::from_iter([elsewhere]));
    assert_eq!(ledger.holdings(&project()), Some(Holdings { queues: 2, amount: amount(5) }));
    ledger.keep_only(&project(), QUEUE.slot(), &HashSet::default());
    assert_eq!(ledger.holdings(&project()), Some(Holdings { queues: 1, amount: amount(2) }));
}

#[test]
fn empty_projects_are_forgotten_before_the_bound() {
    let ledger = ledger(0);
    for number in 0..limits::COUNTED_PROJECTS {
        let project = ProjectId::new(&number.to_string()).unwrap();
        ledger.begin_count(&project);
        ledger.end_count(&project);
    }
    assert!(ledger.state.lock().projects.len() < limits::COUNTED_PROJECTS);
    assert_holds(&ledger, 0);
}
