//! Tests with manual clocks: following the servers' clock, and replicas of which one is cut off, starts, or steps.

use super::*;

const NOW: u64 = 1_700_000_000_000;
const DAY: u64 = 24 * 3_600 * 1_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

#[test]
fn time_continues_from_its_last_value() {
    for clock in [Clock::system(), Clock::manual(NOW)] {
        let ahead = at(clock.now().as_millis() + 1_000_000);
        clock.resume(ahead);
        let now = clock.now();
        assert!(now >= ahead);
        clock.resume(at(ahead.as_millis() - 500_000));
        assert!(clock.now() >= now);
    }
}

#[test]
fn quiet_storage_does_not_set_time_back() {
    let clock = Clock::manual(NOW);
    clock.not_before(at(NOW - 7 * DAY));
    assert_eq!((clock.now(), clock.doubt()), (at(NOW), None));
    clock.not_before(at(NOW + 5));
    assert_eq!(clock.now(), at(NOW + 5));
}

#[test]
fn large_step_since_last_write_needs_acceptance() {
    let clock = Clock::manual(NOW);
    clock.resume(at(NOW - DAY));
    assert_eq!((clock.now(), clock.doubt()), (at(NOW), None));

    let clock = Clock::manual(NOW);
    clock.resume(at(NOW - DAY - 1));
    assert_eq!(clock.now(), at(NOW - DAY - 1));
    assert_eq!(clock.doubt(), Some(Duration::from_millis(DAY + 1)));

    let clock = Clock::manual(NOW);
    clock.accept_steps();
    clock.resume(at(NOW - DAY - 1));
    assert_eq!((clock.now(), clock.doubt()), (at(NOW), None));
}

fn recorded(time: u64, servers: u64) -> Option<TimeRecords> {
    Some(TimeRecords { time: at(time), servers: at(servers) })
}

/// Returns a clock that follows servers which run at its rate.
fn following() -> Clock {
    let clock = Clock::manual(NOW - 7_000);
    clock.begin(clock.asking(), at(NOW), None);
    assert_eq!(clock.now(), at(NOW), "at the start the machine's clock does not count");
    clock
}

#[test]
fn step_of_the_servers_is_followed_by_a_tenth() {
    for (step, rate) in [(3_600_000_i64, 11_000), (-3_600_000, 9_000)] {
        let clock = following();
        let mut servers = NOW.saturating_add_signed(step);
        for _ in 0..100 {
            clock.learn(clock.asking(), at(servers));
            let before = clock.now().as_millis();
            clock.advance(1);
            let moved = clock.now().as_millis() - before;
            assert!(moved <= 2, "{moved}");
            clock.advance(9_999);
            assert_eq!(clock.now().as_millis() - before, rate, "{step}");
            servers += 10_000;
        }
        let gap = clock.gap().unwrap();
        assert_eq!(gap, step - step.signum() * 100_000);
        assert_eq!(clock.doubt(), None);
    }
}

#[test]
fn step_is_reported_until_followed() {
    let clock = following();
    clock.learn(clock.asking(), at(NOW + 5_000));
    assert_eq!(clock.gap(), None, "a small one is not told");
    let clock = following();
    let mut servers = NOW + 6_000;
    for seconds in 0..70 {
        clock.learn(clock.asking(), at(servers));
        assert_eq!(clock.gap().is_some(), seconds < 50, "after {seconds} s");
        clock.advance(1_000);
        servers += 1_000;
    }
    assert_eq!(clock.now(), at(servers));
}

#[test]
fn time_without_the_servers_runs_at_the_rate_of_the_machine() {
    let clock = following();
    clock.learn(clock.asking(), at(NOW + 3_600_000));
    clock.advance(600_000);
    assert_eq!(clock.now(), at(NOW + 601_500));
}

#[test]
fn start_continues_record_at_server_pace() {
    for (last, servers, expected) in [
        // After a step of an hour that is still being followed.
        (recorded(NOW, NOW + 3_600_000), NOW + 3_603_000, NOW + 3_300),
        (recorded(NOW, NOW - 3_600_000), NOW - 3_597_000, NOW + 2_700),
        // The servers' clock moved back while no replica ran.
        (recorded(NOW, NOW), NOW - 3_600_000, NOW),
        // No replica ran for an hour.
        (recorded(NOW, NOW), NOW + 3_600_000, NOW + 3_600_000),
    ] {
        let clock = Clock::manual(NOW + 5 * DAY);
        clock.begin(clock.asking(), at(servers), last);
        assert_eq!((clock.now(), clock.doubt()), (at(expected), None), "{last:?}");
    }
}

#[test]
fn start_after_a_day_continues_record_until_accepted() {
    let clock = Clock::manual(NOW);
    clock.begin(clock.asking(), at(NOW + DAY + 1), recorded(NOW, NOW));
    assert_eq!(clock.now(), at(NOW));
    assert_eq!(clock.doubt(), Some(Duration::from_millis(DAY + 1)));
    let clock = Clock::manual(NOW);
    clock.accept_steps();
    clock.begin(clock.asking(), at(NOW + DAY + 1), recorded(NOW, NOW));
    assert_eq!((clock.now(), clock.doubt()), (at(NOW + DAY + 1), None));
}

#[test]
fn a_slow_answer_moves_it_no_further_than_it_must() {
    let clock = following();
    let query = clock.asking();
    clock.advance(50);
    // The time that a correct clock may have shown at any moment of the request.
    clock.learn(query, at(NOW + 30));
    clock.advance(1_000);
    assert_eq!(clock.now(), at(NOW + 1_050));
}

#[test]
fn tree_a_day_off_is_ignored_until_right() {
    for wrong in [NOW + DAY + 1, NOW - DAY - 1] {
        let clock = Clock::manual(NOW);
        clock.begin(clock.asking(), at(NOW), recorded(NOW - 5, NOW - 5));
        clock.learn(clock.asking(), at(wrong));
        clock.advance(1_000);
        assert_eq!(clock.now(), at(NOW + 1_000));
        assert!(clock.doubt().is_some());
        clock.learn(clock.asking(), at(NOW + 1_001));
        clock.advance(10);
        assert_eq!((clock.now(), clock.doubt()), (at(NOW + 1_011), None));
    }
}

/// Replicas around one tree, in steps of a tenth of a second.
struct World {
    servers: u64,
    record: TimeRecords,
    replicas: Vec<Clock>,
    /// Tenths of a second until each replica records the time.
    due: Vec<u64>,
}

impl World {
    fn new() -> Self {
        let record = TimeRecords { time: at(NOW), servers: at(NOW) };
        let replicas: Vec<Clock> = (0..3).map(|n| Clock::manual(NOW + n * DAY)).collect();
        for clock in &replicas {
            clock.begin(clock.asking(), at(NOW), Some(record));
        }
        Self { servers: NOW, record, replicas, due: vec![100, 2_000, 4_900] }
    }

    /// Does what [`angarium_broker`] does at each tick.
    fn record(&mut self, replica: usize) {
        let clock = &self.replicas[replica];
        let query = clock.asking();
        self.record = TimeRecords { time: clock.now(), servers: at(self.servers) };
        clock.learn(query, at(self.servers));
        self.due[replica] = u64::try_from(core_limits::TREE_CLOCK_TICK.as_millis()).unwrap();
    }

    /// Lets tenths of a second pass for all replicas, of which only `reaching` reach the tree, and checks the spread of
    /// their times.
    fn pass(&mut self, tenths: u64, reaching: &[usize]) {
        for _ in 0..tenths {
            let before: Vec<_> = self.replicas.iter().map(Clock::now).collect();
            self.servers += 100;
            for (replica, clock) in self.replicas.iter().enumerate() {
                clock.advance(100);
                self.due[replica] = self.due[replica].saturating_sub(100);
            }
            for replica in reaching.iter().copied() {
                if self.due[replica] == 0 {
                    self.record(replica);
                }
            }
            for (clock, before) in self.replicas.iter().zip(before) {
                let moved = clock.now().as_millis() - before.as_millis();
                assert!((89..=111).contains(&moved), "{moved}");
            }
            assert!(self.spread(reaching) <= 1_000, "they differ by {} ms", self.spread(reaching));
        }
    }

    fn spread(&self, replicas: &[usize]) -> u64 {
        let times = || replicas.iter().map(|replica| self.replicas[*replica].now().as_millis());
        times().max().unwrap_or(0) - times().min().unwrap_or(0)
    }

    fn step(&mut self, by: i64) {
        self.servers = self.servers.saturating_add_signed(by);
    }

    /// Restarts a replica, whose machine clock may show any time.
    fn restart(&mut self, replica: usize) {
        let clock = Clock::manual(NOW - DAY);
        clock.begin(clock.asking(), at(self.servers), Some(self.record));
        // The registration makes another replica record the time.
        let query = clock.asking();
        self.record((replica + 1) % 3);
        clock.begin_beside(query, self.record.time);
        self.replicas[replica] = clock;
    }
}

#[test]
fn replicas_agree_within_a_second_whenever_the_servers_step() {
    for step in [3_600_000_i64, -3_600_000, 20_000, -20_000, 5_500, -4_000] {
        for before in 0..55 {
            let mut world = World::new();
            world.pass(before, &[0, 1, 2]);
            world.step(step);
            world.pass(200, &[0, 1, 2]);
            world.step(-step / 2);
            world.pass(200, &[0, 1, 2]);
        }
    }
}

#[test]
fn starting_replica_after_step_has_shared_time() {
    for step in [3_600_000_i64, -3_600_000, 4_000, -4_000] {
        for after in [0, 1, 17, 30, 49, 80, 600] {
            let mut world = World::new();
            world.pass(37, &[0, 1, 2]);
            world.step(step);
            world.pass(after, &[0, 1, 2]);
            world.restart(2);
            assert!(world.spread(&[0, 1, 2]) <= 700, "{step} {after}: {}", world.spread(&[0, 1, 2]));
            world.pass(600, &[0, 1, 2]);
        }
    }
}

#[test]
fn isolated_replica_adopts_shared_time() {
    for step in [3_600_000_i64, -3_600_000] {
        let mut world = World::new();
        world.pass(37, &[0, 1, 2]);
        world.step(step);
        world.pass(3_000, &[0, 1]);
        let before = world.replicas[2].now();
        assert!(world.spread(&[0, 2]) > 20_000);
        let query = world.replicas[2].asking();
        world.record(0);
        world.replicas[2].agree(query, world.record.time);
        let agreed = world.replicas[2].agreed().as_millis();
        assert!(agreed.abs_diff(world.replicas[0].now().as_millis()) <= 1, "a lead is not told to others");
        if step > 0 {
            assert!(world.spread(&[0, 2]) <= 1, "{}", world.spread(&[0, 2]));
        } else {
            for _ in 0..1_000 {
                world.replicas.iter().for_each(|clock| clock.advance(100));
                world.servers += 100;
                world.record(2);
                world.record(0);
            }
            assert!(world.replicas[2].now() > before);
            assert!(world.spread(&[0, 2]) <= 1_000, "{}", world.spread(&[0, 2]));
        }
    }
}

#[test]
fn wall_clock_ignores_steps_of_tree_time() {
    let clock = Clock::manual(NOW);
    clock.begin(clock.asking(), at(NOW - 7_000_000), None);
    assert_eq!((clock.now(), clock.wall()), (at(NOW - 7_000_000), at(NOW)));
    clock.advance(5);
    assert_eq!(clock.wall(), at(NOW + 5));
}
