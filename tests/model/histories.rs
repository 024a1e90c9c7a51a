//! Random histories of one queue.

use angarium::engine::GroupBounds;

use super::dice;
use super::step::{Step, Target, deep_steps, steps, swarm_steps};
use super::world::World;

#[test]
fn engine_is_what_the_naive_queue_is_after_each_step() {
    dice::check("queue histories", 250, &steps(120), |steps| history(&steps));
}

#[test]
fn engine_with_a_deep_queue_is_what_the_naive_queue_is_after_each_step() {
    dice::check("deep queue histories", 500, &deep_steps(60), |steps| history(&steps));
}

#[test]
fn engine_in_order_of_groups_is_what_the_naive_queue_is_after_each_step() {
    for (name, bounds) in all_bounds() {
        dice::check(name, 250, &steps(120), |steps| history_in(World::ordered(bounds), &steps));
    }
}

#[test]
fn engine_with_deep_groups_is_what_the_naive_queue_is_after_each_step() {
    for (name, bounds) in all_bounds() {
        dice::check(name, 250, &deep_steps(60), |steps| history_in(World::ordered(bounds), &steps));
    }
}

#[test]
fn engine_under_swarms_of_steps_is_the_naive_queue() {
    dice::check("swarms", 500, &swarm_steps(40), |steps| history(&steps));
}

#[test]
fn engine_in_order_under_swarms_is_the_naive_queue() {
    for (name, bounds) in all_bounds() {
        dice::check(name, 150, &swarm_steps(40), |steps| history_in(World::ordered(bounds), &steps));
    }
}

/// Two groups whose messages are so large that a receive of one needs nearly all of the memory.
#[test]
fn large_messages_of_two_groups_do_not_drive_each_other_out_for_ever() {
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

/// A list of groups meets one whose first message is being removed, and was not in memory when that began.
#[test]
fn a_group_that_is_listed_while_its_first_message_goes_is_not_forgotten() {
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

/// What memory may hold: all of a short history, little of it, and next to nothing.
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

fn history_in(mut world: World, steps: &[Step]) {
    for step in steps {
        world.take_step(step);
        world.check();
    }
    world.drain();
}
