//! Bugs of the past, each with the shortest history that reproduces it.

use angarium_engine::GroupBounds;

use super::step::{Deleter, Step, Target};
use super::world::World;

/// Takes the steps, compares the engine with the naive queue after each, then drains the queue.
fn history(steps: &[Step]) {
    history_in(World::new(), steps);
}

fn history_in(mut world: World, steps: &[Step]) {
    for step in steps {
        world.take_step(step);
        world.check();
    }
    world.drain();
}

/// Steps that make a post, a return or a removal durable.
const DONE: [Step; 3] = [Step::Send, Step::Apply, Step::Settle];
/// Steps that make it fail.
const FAILED: [Step; 2] = [Step::Send, Step::Settle];

/// Memory for a single group and two messages.
fn hardly_any() -> GroupBounds {
    GroupBounds { known: 1, open: 0, messages: 2, ..GroupBounds::default() }
}

fn posted(sizes: &[u8]) -> Vec<Step> {
    [vec![Step::Post(sizes.to_vec(), false)], DONE.to_vec()].concat()
}

/// Regression: a release without a count decremented the attempts, failed, and decremented them again.
#[test]
fn failed_uncounted_release_keeps_attempts() {
    let claimed = [Step::Take(1), Step::Grant(0), Step::End(0, false)];
    let again = [Step::End(0, false)];
    history(&[&posted(&[0]), &claimed[..], &FAILED, &again, &FAILED].concat());
}

/// Regression: a post made a message ready after its delete had begun; the message was granted and then vanished.
#[test]
fn message_deleted_before_its_post_is_answered_is_never_ready() {
    let listed = [Step::Post(vec![0], false), Step::Send, Step::Apply];
    let deleted = [Step::Remove(Target::Unanswered(0), Deleter::NoClaim), Step::Settle];
    history(&[&listed[..], &deleted, &[Step::Take(1)], &DONE].concat());
    history(&[&listed[..], &deleted, &FAILED, &[Step::Take(1), Step::Grant(0)]].concat());
}

/// Regression: the failed removal returned the message to a claim that ended a moment later, and the message was hidden
/// for ever.
#[test]
fn failed_removal_during_claim_end_frees_message() {
    let claimed = [Step::Take(2), Step::Grant(0)];
    let deleted =
        [Step::Remove(Target::Known(0), Deleter::Holder), Step::Send, Step::End(0, true), Step::Settle];
    history(&[&posted(&[0, 0]), &claimed[..], &deleted, &DONE, &[Step::FinishEnd(0)]].concat());
}

/// Regression: the attempt was counted in memory only, and the pool still had zero attempts.
#[test]
fn failed_removal_after_claim_end_keeps_attempt_in_pool() {
    let claimed = [Step::Take(1), Step::Grant(0)];
    let deleted = [Step::Remove(Target::Known(0), Deleter::Holder), Step::Send];
    let ended = [Step::End(0, true), Step::FinishEnd(0), Step::Settle];
    history(&[&posted(&[0]), &claimed[..], &deleted, &ended, &DONE, &[Step::FinishEnd(0)]].concat());
}

/// Regression: the ready cache never has 256 messages of more than 4 KiB, so every claim read a page for which there
/// was no room.
#[test]
fn cache_full_of_large_messages_reads_no_page() {
    let mut world = World::new();
    for step in [posted(&[2; 6]), vec![Step::BeginRefill, Step::FinishRefill]].concat() {
        world.take_step(&step);
    }
    assert!(world.engine.has_more());
    assert_eq!(world.engine.begin_refill(), None);
}

/// Regression: a page that was read while the claim ended showed its message with the old state, ready.
#[test]
fn message_delayed_during_page_read_is_not_ready() {
    let claimed = [Step::Take(1), Step::Flush, Step::Crash];
    let read = [Step::BeginRefill, Step::PutOff(0, 1), Step::ReadPage(1), Step::Flush];
    history(&[&posted(&[0, 0]), &claimed[..], &read, &[Step::FinishRefill, Step::Take(1)]].concat());
}

/// Regression: a delayed message was removed by its id. It was the first of a group that was not in memory, and that
/// group was never read again.
#[test]
fn group_with_removed_delayed_head_is_found_again() {
    for number in 0..4 {
        let removed = Step::Remove(Target::Known(number), Deleter::NoClaim);
        let posted =
            [Step::Arrive(0, 0), Step::Delayed(vec![0], 1), Step::Post(vec![0, 0], false), Step::Flush];
        history_in(World::ordered(hardly_any()), &[&posted[..], &[removed]].concat());
    }
}

/// Like the test before, but the message became due meanwhile, and the removal ended when no message was scheduled any
/// more.
#[test]
fn group_with_delayed_head_removed_while_due_is_found_again() {
    let posted = [Step::Arrive(0, 0), Step::Delayed(vec![0], 1), Step::Post(vec![0, 0], false), Step::Flush];
    let woken = [Step::Advance(2), Step::BeginWake, Step::ReadDue, Step::Wake, Step::FinishWake];
    for number in 0..4 {
        let removed = [Step::Remove(Target::Known(number), Deleter::NoClaim)];
        for durable in [&[][..], &[Step::Send, Step::Apply]] {
            let steps = [&posted[..], &removed, durable, &woken].concat();
            history_in(World::ordered(hardly_any()), &steps);
        }
    }
}

/// Regression: a list of groups showed a message in transfer to another queue, and a client had begun to delete it
/// because the pool did not have it any more. The engine took the group for blocked, and had no room for it in memory.
#[test]
fn group_listed_while_its_moving_head_is_deleted_is_kept() {
    let deleted = Step::Remove(Target::Known(0), Deleter::NoClaim);
    let refilled = [Step::BeginRefill, Step::FinishRefill];
    let claimed = [&[Step::Take(1), Step::Flush], &refilled[..]].concat();
    let claimed = [&claimed[..]; 5].concat();
    let released = [&claimed[..], &[Step::End(0, true), Step::Flush]].concat();
    // The first message of the last group is in transfer, and the first message of the first group is claimed.
    let moving = [&[deleted.clone(), Step::Flush], &released[..], &released, &claimed].concat();
    let blocked = [&posted(&[0; 2])[..], &claimed, &posted(&[0]), &[Step::Crash]].concat();
    let departed = [Step::Depart(0), Step::Send, Step::Apply, deleted];
    let listed = [&[Step::BeginRefill, Step::ReadPage(8)], &departed[..], &refilled[1..], &refilled].concat();
    let steps = [posted(&[0; 3]), moving, blocked, refilled.to_vec(), refilled.to_vec(), listed].concat();
    history_in(World::ordered(hardly_any()), &steps);
}

/// The publication of a message fails while its removal is in progress. The message blocks its group until the removal
/// is settled, and the group is free directly after that.
#[test]
fn unpublished_message_under_removal_blocks_until_settled() {
    let published = [Step::Arrive(0, 0), Step::Arrive(0, 0), Step::Post(vec![0; 3], false), Step::Flush];
    let failed =
        [Step::Publish(1), Step::Send, Step::Remove(Target::Known(1), Deleter::NoClaim), Step::Settle];
    for settled in [&DONE[..], &FAILED] {
        let steps = [&published[..], &failed, &[Step::Take(2)], settled, &[Step::Take(2)]].concat();
        history_in(World::ordered(GroupBounds::default()), &steps);
    }
}
