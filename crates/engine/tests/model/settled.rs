//! Settles, requeues and recalls: the shortest histories of states that random ones meet seldom.

use angarium_engine::GroupBounds;

use super::step::{Deleter, ForwardKind, SettleKind, Step, Target};
use super::world::{Met, World};

/// Takes the steps, compares the engine with the naive queue after each, then drains the queue.
fn history_in(mut world: World, parts: &[&[Step]]) -> Met {
    for step in parts.concat() {
        world.take_step(&step);
        world.check();
    }
    world.drain();
    world.met
}

fn history(parts: &[&[Step]]) -> Met {
    history_in(World::new(), parts)
}

/// Steps that make a batch durable.
const DONE: [Step; 3] = [Step::Send, Step::Apply, Step::Settle];
/// Steps that make it fail.
const FAILED: [Step; 2] = [Step::Send, Step::Settle];
/// Makes the first kept message available again, without an outcome yet.
const REPLAYED: [Step; 2] = [Step::Requeue(Target::Kept(0), 0), Step::ReadRequeued(0)];

/// Posts this many messages, and claims all of them at once.
fn claimed(count: u8) -> Vec<Step> {
    let post = Step::Post(vec![0; usize::from(count)], false);
    vec![post, Step::Flush, Step::Take(count), Step::Flush]
}

/// Settles the first message of the only claim.
fn settled(kind: SettleKind) -> [Step; 1] {
    [Step::BeginSettle(0, 0, kind, ForwardKind::Nothing)]
}

/// A sweep reads a claimed message that had expired without the claim. Before the sweep continues the message is
/// settled, or its claim ends with a delay: it has a new life, and stays.
#[test]
fn message_settled_during_sweep_is_not_swept() {
    let expired = [Step::Post(vec![0], true), Step::Flush, Step::Advance(10), Step::Take(1), Step::Flush];
    let swept = [&expired[..], &[Step::Advance(55), Step::BeginSweep]].concat();
    for kind in [SettleKind::Done, SettleKind::Failed, SettleKind::Moved] {
        history(&[&swept, &settled(kind), &DONE, &[Step::FinishSweep, Step::Flush]]);
    }
    history(&[&swept, &[Step::PutOff(0, 20)], &DONE, &[Step::FinishEnd(0), Step::FinishSweep, Step::Flush]]);
    let (delayed, kept) = (Step::Requeue(Target::Kept(0), 20), settled(SettleKind::Done));
    let replayed = [Step::Advance(61), Step::BeginSweep, delayed, Step::ReadRequeued(0)];
    history(&[&claimed(1), &kept, &DONE, &replayed, &DONE, &[Step::FinishSweep, Step::Flush]]);
}

/// The record of a claim names a message that was kept and is available again.
#[test]
fn crash_before_lazy_shrink_leaves_replayed_message_free() {
    for count in [1, 2] {
        let failed = settled(SettleKind::Failed);
        let met = history(&[&claimed(count), &failed, &DONE, &REPLAYED, &DONE, &[Step::Crash]]);
        assert_eq!((met.replayed, met.stale_records), (1, 1), "of {count}");
        // Another claim has it, and another one after that.
        let again = [Step::Take(1), Step::Flush];
        let steps = [&again[..], &[Step::End(1, true), Step::Flush], &again, &[Step::Crash]].concat();
        history(&[&claimed(count), &failed, &DONE, &REPLAYED, &DONE, &steps]);
    }
}

#[test]
fn message_of_failed_recall_is_settled() {
    let recalled = [Step::Recall(Target::Known(0))];
    let settle = settled(SettleKind::Done);
    assert_eq!(history(&[&claimed(2), &recalled, &FAILED, &settle, &DONE]).recalled, 0);
    let after = [Step::BeginSettle(0, 7, SettleKind::Done, ForwardKind::Nothing)];
    assert_eq!(history(&[&claimed(2), &recalled, &DONE, &after]).recalled, 1);
}

/// The claim ends while the recall of its message is in progress, and the recall fails.
#[test]
fn message_of_failed_recall_returns_with_its_claim() {
    let recalled = [Step::Recall(Target::Known(0)), Step::Send, Step::End(0, true), Step::Settle];
    history(&[&claimed(1), &recalled, &DONE, &[Step::FinishEnd(0), Step::Take(1), Step::Flush]]);
}

/// Two requests settle messages of one claim, which return. The record is changed for one of them, and cannot be changed
/// for the other: the claim holds that message, and its record names it.
#[test]
fn returns_of_one_request_leave_those_of_another() {
    let retried = settled(SettleKind::Retried(30));
    let both =
        [&retried[..], &[Step::BeginSettle(0, 1, SettleKind::Retried(0), ForwardKind::Nothing)]].concat();
    let first = [Step::BeginReturns(0, 1), Step::FinishReturns(0)];
    for second in [Step::FailReturns(0), Step::FinishReturns(0), Step::Crash] {
        let second = [Step::BeginReturns(0, 1), second];
        history(&[&claimed(2), &both, &DONE, &first, &second]);
        history(&[&claimed(3), &both, &DONE, &first, &second]);
    }
}

/// An owner ended between a settle and the change of the record: the next settle by the same claim continues it.
#[test]
fn settle_cut_short_is_resumed() {
    for cut in [&[Step::Crash][..], &[Step::BeginReturns(0, 1), Step::FailReturns(0)]] {
        for kind in [SettleKind::Retried(30), SettleKind::Deferred(30), SettleKind::Returned] {
            let met = history(&[&claimed(2), &settled(kind), &DONE, cut, &settled(SettleKind::Done)]);
            assert_eq!(met.resumed, 1, "{kind:?} after {cut:?}");
        }
    }
    // The record does not name it any more.
    let lost = [Step::BeginReturns(0, 1), Step::RecordReturns(0), Step::Crash, Step::Take(2)];
    history(&[&claimed(2), &settled(SettleKind::Retried(0)), &DONE, &lost]);
}

/// Regression: the end of the claim, which did not count, was cut short too. The settle that continued the first one gave
/// the message a smaller number than the record of its claim has.
#[test]
fn resumed_settle_keeps_number_of_its_claim() {
    let retried = settled(SettleKind::Retried(0));
    let released = [&[Step::End(0, false)][..], &DONE, &[Step::Crash]].concat();
    let met = history(&[&claimed(2), &retried, &DONE, &[Step::Crash], &released, &retried]);
    assert_eq!(met.resumed, 1);
}

/// A message is published with a delay, and is being removed. Its removal fails: it is scheduled, or still prepared.
#[test]
fn removal_during_publication_with_delay_fails() {
    let removed = [Step::Remove(Target::Known(0), Deleter::NoClaim)];
    let published = [&[Step::Arrive(0, 30)][..], &DONE, &[Step::Publish(0)]].concat();
    for outcome in [&[Step::Send, Step::Apply][..], &[Step::Send]] {
        let then = [outcome, &removed, &[Step::Settle], &FAILED, &[Step::Advance(31)]].concat();
        let met = history(&[&published, &then]);
        assert_eq!(met.published_later, 1);
    }
}

/// A message of a group is being made available again when a page of the group is read: messages after it wait.
#[test]
fn requeued_message_blocks_its_group() {
    let posted = [Step::Post(vec![0; 5], false), Step::Delayed(vec![0; 5], 90), Step::Flush, Step::Crash];
    let read = [Step::BeginRefill, Step::ReadPage(8), Step::FinishRefill];
    for number in 0..10 {
        for read_early in [&[][..], &[Step::ReadRequeued(0)]] {
            let requeued = [&[Step::Requeue(Target::Known(number), 0)][..], read_early].concat();
            let steps = [&posted[..], &requeued, &[&read[..]; 8].concat(), &[Step::Take(10), Step::Flush]];
            history_in(World::ordered(GroupBounds::default()), &steps);
            let narrow = GroupBounds { known: 1, open: 0, messages: 2, ..GroupBounds::default() };
            history_in(World::ordered(narrow), &steps);
        }
    }
}

/// A requeue of an id without a message reads nothing again.
#[test]
fn requeue_of_no_message_keeps_ready_cache() {
    let mut world = World::new();
    for step in
        [Step::Post(vec![0; 3], false), Step::Flush, Step::Requeue(Target::Never, 0), Step::ReadRequeued(0)]
    {
        world.take_step(&step);
    }
    assert!(!world.engine.has_more());
}
