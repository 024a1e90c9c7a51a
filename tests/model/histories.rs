//! Random histories of one queue.

use super::dice;
use super::step::steps;
use super::world::World;

#[test]
fn engine_is_what_the_naive_queue_is_after_each_step() {
    dice::check("queue histories", 400, &steps(120), |steps| {
        let mut world = World::new();
        for step in &steps {
            world.take_step(step);
            world.check();
        }
        world.drain();
    });
}
