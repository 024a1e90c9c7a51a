//! Random histories of one queue.

use super::dice;
use super::step::{Step, deep_steps, steps};
use super::world::World;

#[test]
fn engine_is_what_the_naive_queue_is_after_each_step() {
    dice::check("queue histories", 250, &steps(120), |steps| history(&steps));
}

#[test]
fn engine_with_a_deep_queue_is_what_the_naive_queue_is_after_each_step() {
    dice::check("deep queue histories", 500, &deep_steps(60), |steps| history(&steps));
}

fn history(steps: &[Step]) {
    let mut world = World::new();
    for step in steps {
        world.take_step(step);
        world.check();
    }
    world.drain();
}
