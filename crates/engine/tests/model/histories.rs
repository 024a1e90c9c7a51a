//! Random histories of one queue.

use std::cell::Cell;

use angarium_engine::GroupBounds;

use super::dice;
use super::step::{Deleter, Step, Target, deep_steps, steps, swarm_steps};
use super::world::{Driver, Met, World};

#[test]
fn engine_matches_naive_queue() {
    dice::check("queue histories", 250, &steps(120), |steps| history(&steps));
}

#[test]
fn engine_with_deep_queue_matches_naive_queue() {
    dice::check("deep queue histories", 500, &deep_steps(60), |steps| history(&steps));
}

#[test]
fn ordered_engine_matches_naive_queue() {
    for (name, bounds) in all_bounds() {
        dice::check(name, 250, &steps(120), |steps| {
            history_in(World::ordered(bounds), &steps);
        });
    }
}

#[test]
fn engine_with_deep_groups_matches_naive_queue() {
    for (name, bounds) in all_bounds() {
        dice::check(name, 250, &deep_steps(60), |steps| {
            history_in(World::ordered(bounds), &steps);
        });
    }
}

#[test]
fn engine_under_swarms_of_steps_is_the_naive_queue() {
    dice::check("swarms", 500, &swarm_steps(40), |steps| history(&steps));
}

#[test]
fn engine_in_order_under_swarms_is_the_naive_queue() {
    for (name, bounds) in all_bounds() {
        dice::check(name, 150, &swarm_steps(40), |steps| {
            history_in(World::ordered(bounds), &steps);
        });
    }
}

/// Sends each batch to the embedded pool too, which must have the same entries as the naive one.
#[test]
fn engine_over_embedded_pool_under_swarms_is_the_naive_queue() {
    let driver = Driver::open();
    dice::check("swarms over a pool", 100, &swarm_steps(40), |steps| {
        history_in(World::over(&driver), &steps);
    });
}

/// Fixed swarms: this test notices a change of the engine or of the steps that keeps swarms away from the conditions of
/// earlier bugs.
#[test]
fn fixed_seed_swarms_reach_known_bugs() {
    let (driver, met) = (Driver::open(), Cell::new(Met::default()));
    for seed in 1..=5 {
        dice::check_seeded("fixed swarms", seed, 150, &swarm_steps(40), |steps| {
            met.set(met.get() + history_in(World::over(&driver), &steps));
        });
    }
    assert!(met.get().all().iter().all(|times| *times >= 5), "{:?}", met.get());
}

/// Regression: a release with a delay wrote its headers and did not end the claim; then its messages were deleted under
/// the claim, and the batch stated that the pool stored them as ready.
#[test]
fn delete_after_failed_delayed_release_is_right() {
    let put_off = [Step::PutOff(0, 60), Step::Send, Step::Apply, Step::Settle];
    for end in [Step::FailEnd(0), Step::LoseEnd(0), Step::Crash] {
        let mut steps = vec![Step::Post(vec![0, 0], false), Step::Flush, Step::Take(2), Step::Flush];
        steps.extend(put_off.clone());
        steps.extend([end, Step::Remove(Target::Known(0), Deleter::Holder), Step::Flush]);
        let met = history_in(World::over(&Driver::open()), &steps);
        // Without its record the claim does not exist after a crash.
        assert_eq!(met.stored_otherwise, 1, "{:?}", steps[steps.len() - 3]);
    }
}

/// Regression: a message was removed before the page that showed it as due was woken, and appeared without a body.
#[test]
fn message_removed_between_read_and_wake_stays_gone() {
    let removals: [&[Step]; 2] = [&[Step::Remove(Target::Known(0), Deleter::NoClaim)], &[Step::Purge]];
    for removal in removals {
        let delayed = [Step::Delayed(vec![0, 0], 30), Step::Flush, Step::Advance(31)];
        let writer = [Step::Send, Step::Apply, Step::Settle];
        let steps =
            [&delayed[..], &[Step::BeginWake, Step::ReadDue], removal, &writer, &[Step::Wake, Step::Flush]];
        let met = history_in(World::over(&Driver::open()), &steps.concat());
        assert_eq!(met.gone_while_due, 1, "{removal:?}");
    }
}

/// Regression: one batch forgot a deduplication id and posted a message with it, and the note of the message was
/// removed.
#[test]
fn id_forgotten_and_noted_in_one_batch_outlives_a_crash() {
    let once = [Step::PostOnce(0), Step::Flush];
    let steps =
        [&once[..], &[Step::ForgetOld], &once, &[Step::Crash, Step::PostOnce(0), Step::Flush]].concat();
    let met = history_in(World::over(&Driver::open()), &steps);
    assert_eq!(met.forgotten_and_noted, 1);
}

/// Regression: an id expired while its message was being written, and another message was posted with the same id. When
/// the first became durable, a duplicate was answered with the second, which was not durable.
#[test]
fn late_message_id_implies_nothing_for_the_next() {
    for first in [vec![Step::Apply, Step::Settle], vec![Step::Settle]] {
        let late = [Step::PostOnce(0), Step::Send, Step::ForgetOld, Step::PostOnce(0)];
        let then = [Step::PostOnce(0), Step::Flush, Step::PostOnce(0), Step::Crash, Step::PostOnce(0)];
        history_in(World::over(&Driver::open()), &[&late[..], &first, &then].concat());
    }
}

/// Two groups have messages so large that a receive of one group needs nearly all of the memory.
#[test]
fn large_messages_of_two_groups_do_not_evict_forever() {
    let steps = [
        Step::Delayed(vec![0], 1),
        Step::Flush,
        Step::Delayed(vec![0; 3], 1),
        Step::Crash,
        Step::Post(vec![2; 4], false),
        Step::Post(vec![0; 3], false),
        Step::Post(vec![0; 4], false),
    ];
    history_in(World::ordered(narrow(3, 2, 6)), &steps);
}

/// A list of groups shows a group whose first message is being removed, and was not in memory when the removal began.
#[test]
fn group_listed_while_its_head_leaves_is_kept() {
    let steps = [
        Step::Post(vec![1; 4], false),
        Step::Flush,
        Step::Post(vec![1; 2], false),
        Step::Flush,
        Step::Post(vec![1; 4], false),
        Step::Flush,
        Step::Crash,
        Step::BeginRefill,
        Step::ReadPage(8),
        Step::FinishRefill,
        Step::Take(2),
        Step::Post(vec![0; 2], false),
        Step::Send,
        Step::Apply,
        Step::BeginRefill,
        Step::Flush,
        Step::Take(1),
        Step::RemoveReceived(Target::Known(42)),
        Step::BeginRefill,
        Step::End(0, true),
        Step::FinishRefill,
        Step::FinishRefill,
        Step::BeginRefill,
        Step::BeginRefill,
        Step::BeginRefill,
    ];
    history_in(World::ordered(narrow(3, 2, 6)), &steps);
}

/// Regression: a page of a group was read before its first message was marked in transfer, and arrived after that. When
/// the message had left for the other queue it was ready here again.
#[test]
fn message_in_transfer_during_page_read_is_not_ready() {
    let steps = [
        Step::Post(vec![1; 5], false),
        Step::Flush,
        Step::Post(vec![1; 2], false),
        Step::Flush,
        Step::BeginRefill,
        Step::FinishRefill,
        Step::Take(2),
        Step::Flush,
        Step::BeginRefill,
        Step::FinishRefill,
        Step::Take(1),
        Step::Flush,
        Step::Crash,
        Step::End(1, true),
        Step::Post(vec![0], false),
        Step::Send,
        Step::Apply,
        Step::BeginRefill,
        Step::ReadPage(8),
        Step::FinishRefill,
        Step::Flush,
        Step::Take(2),
        Step::End(0, true),
        Step::Flush,
        Step::Crash,
        Step::Join(1),
        Step::End(0, true),
        Step::Flush,
        Step::BeginRefill,
        Step::BeginRefill,
        Step::ReadPage(8),
        Step::FinishRefill,
        Step::Flush,
        Step::Depart(0),
    ];
    history_in(World::ordered(GroupBounds::default()), &steps);
}

/// Bounds of memory: for all of a short history, for little of it, and for next to nothing.
fn all_bounds() -> [(&'static str, GroupBounds); 3] {
    [
        ("histories in groups", GroupBounds::default()),
        ("histories in groups, not all known", narrow(3, 2, 6)),
        ("histories in groups, hardly any known", narrow(1, 0, 2)),
    ]
}

fn narrow(known: usize, open: usize, messages: usize) -> GroupBounds {
    GroupBounds { known, open, messages, ..GroupBounds::default() }
}

fn history(steps: &[Step]) {
    history_in(World::new(), steps);
}

/// Takes the steps. Returns the conditions of earlier bugs that the history met.
fn history_in(mut world: World, steps: &[Step]) -> Met {
    for step in steps {
        world.take_step(step);
        world.check();
    }
    world.drain();
    world.met
}
