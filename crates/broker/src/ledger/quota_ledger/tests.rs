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
    ledger.opened(&project(), QUEUE, start(FIRST, &ledger), totals(messages));
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
    [PoolCount { queue: QUEUE, account: Some(project()), totals: read.map(totals), settles, is_whole: true }]
}

fn ended(amount: Amount) -> EndedReservation {
    EndedReservation { queue: QUEUE, amount }
}

fn start(epoch: Epoch, ledger: &Ledger) -> CountStart {
    CountStart { epoch, looks: ledger.looks(QUEUE), is_divided: false }
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
    ledger.opened(&project(), QUEUE, start(FIRST, &ledger), totals(9));
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
fn slow_opening_does_not_undo_later_count() {
    let ledger = ledger(3);
    let since = start(FIRST, &ledger);
    ledger.settle(FIRST, &batch(&ledger, Some(6)), &[]);
    ledger.opened(&project(), QUEUE, since, totals(3));
    assert_holds(&ledger, 6);
}

#[test]
fn shared_body_counts_in_the_entry_of_its_lender() {
    let ledger = ledger(0);
    // Of 10 bytes, 7 are those of a shared body; another one of 40 bytes has copies only.
    let lent = Totals { shared: 7, lent: 47, ..totals(1) };
    ledger.found(&project(), QUEUE, start(FIRST, &ledger), lent);
    let amount = Amount { messages: 1, bytes: 50 };
    assert_eq!(ledger.holdings(&project()), Some(Holdings { queues: 1, amount }));
}

#[test]
fn totals_of_a_deleted_source_are_ignored() {
    let ledger = ledger(3);
    let [count] = batch(&ledger, Some(5));
    let of_source = [PoolCount { account: None, ..count }];
    ledger.settle(FIRST, &of_source, &[]);
    assert_holds(&ledger, 5);
    ledger.remove_queue(QUEUE);
    ledger.settle(FIRST, &of_source, &[]);
    assert_eq!(ledger.holdings(&project()), Some(Holdings::default()));
}

#[test]
fn loss_of_shared_bodies_in_closed_queue_has_the_slot_read() {
    let ledger = ledger(0);
    let report = |account: Option<ProjectId>, shared| {
        let (totals, is_whole) = (Some(Totals { shared, ..totals(2) }), account.is_some());
        [PoolCount { queue: QUEUE, account, totals, settles: ledger.settles(QUEUE), is_whole }]
    };
    ledger.settle(FIRST, &report(Some(project()), 20), &[]);
    ledger.settle(FIRST, &report(Some(project()), 10), &[]);
    ledger.settle(FIRST, &report(None, 10), &[]);
    assert!(ledger.take_stale().is_empty(), "the source of an open queue is read with it");
    ledger.settle(FIRST, &report(None, 0), &[]);
    assert_eq!(ledger.take_stale(), [(project(), QUEUE.slot())]);
}

#[test]
fn removed_copies_have_the_projects_of_lenders_read() {
    let ledger = ledger(3);
    ledger.make_lenders_stale(QUEUE.slot(), FIRST);
    assert!(ledger.take_stale().is_empty(), "it lends nothing");
    ledger.make_lenders_stale(QUEUE.slot(), SECOND);
    assert_eq!(ledger.take_stale(), [(project(), QUEUE.slot())], "its totals are of an earlier epoch");
    ledger.found(&project(), QUEUE, start(FIRST, &ledger), Totals { lent: 5, ..totals(3) });
    ledger.make_lenders_stale(QUEUE.slot(), FIRST);
    assert_eq!(ledger.take_stale(), [(project(), QUEUE.slot())]);
}

#[test]
fn reads_from_before_the_removal_of_copies_are_ignored() {
    let ledger = ledger(3);
    let lends = |lent| Totals { lent, ..totals(3) };
    ledger.found(&project(), QUEUE, start(FIRST, &ledger), lends(5));
    let (count, since, [batch]) = (start(FIRST, &ledger), start(FIRST, &ledger), batch(&ledger, None));
    ledger.make_lenders_stale(QUEUE.slot(), FIRST);
    assert_eq!(ledger.take_stale(), [(project(), QUEUE.slot())]);
    ledger.found(&project(), QUEUE, start(FIRST, &ledger), lends(0));
    ledger.found(&project(), QUEUE, count, lends(5));
    ledger.opened(&project(), QUEUE, since, lends(5));
    ledger.settle(FIRST, &[PoolCount { totals: Some(lends(5)), ..batch }], &[]);
    assert_holds(&ledger, 3);
    assert_eq!(ledger.take_stale(), [(project(), QUEUE.slot())], "the batch may be the later one");
}

#[test]
fn first_read_of_an_epoch_is_repeated_after_a_removal() {
    let ledger = ledger(3);
    let since = start(SECOND, &ledger);
    ledger.make_lenders_stale(QUEUE.slot(), SECOND);
    assert_eq!(ledger.take_stale(), [(project(), QUEUE.slot())]);
    ledger.found(&project(), QUEUE, since, totals(9));
    assert_holds(&ledger, 9);
    assert_eq!(ledger.take_stale(), [(project(), QUEUE.slot())]);
}

/// The count after a batch of a queue that is not open, in one of its pools.
fn closed_batch(ledger: &Ledger, read: u64) -> [PoolCount; 1] {
    batch(ledger, Some(read)).map(|count| PoolCount { account: None, is_whole: false, ..count })
}

#[test]
fn closed_queue_in_two_pools_keeps_both_amounts() {
    let ledger = ledger(3);
    ledger.settle(FIRST, &closed_batch(&ledger, 2), &[]);
    assert_holds(&ledger, 2);
    assert!(ledger.take_stale().is_empty(), "it is in one pool");
    let divided = CountStart { is_divided: true, ..start(SECOND, &ledger) };
    ledger.found(&project(), QUEUE, divided, totals(9));
    ledger.settle(SECOND, &closed_batch(&ledger, 1), &[]);
    assert_holds(&ledger, 9);
    assert_eq!(ledger.take_stale(), [(project(), QUEUE.slot())]);
    ledger.found(&project(), QUEUE, start(SECOND, &ledger), totals(8));
    ledger.settle(SECOND, &closed_batch(&ledger, 7), &[]);
    assert_holds(&ledger, 7);
    assert!(ledger.take_stale().is_empty(), "the migration has ended");
}

#[test]
fn closed_queue_is_read_in_all_pools_first_in_each_epoch() {
    let ledger = ledger(3);
    ledger.settle(SECOND, &closed_batch(&ledger, 1), &[]);
    assert_holds(&ledger, 3);
    assert_eq!(ledger.take_stale(), [(project(), QUEUE.slot())]);
    // The batch of a subscription enters the totals of its source, whose record was not read yet.
    let of_source = batch(&ledger, Some(9)).map(|count| PoolCount { account: None, ..count });
    ledger.settle(SECOND, &of_source, &[]);
    ledger.settle(SECOND, &closed_batch(&ledger, 1), &[]);
    assert_holds(&ledger, 9);
    assert_eq!(ledger.take_stale(), [(project(), QUEUE.slot())]);
}

#[test]
fn corrected_totals_are_read() {
    let ledger = ledger(3);
    ledger.corrected(QueueId::from_bytes([8; 16]));
    assert!(ledger.take_stale().is_empty(), "it is in no books");
    ledger.corrected(QUEUE);
    assert_eq!(ledger.take_stale(), [(project(), QUEUE.slot())]);
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
    ledger.opened(&project(), elsewhere, CountStart { looks: 0, ..start(FIRST, &ledger) }, totals(2));
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
