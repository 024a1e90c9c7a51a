//! Rounds of automatic balance under loads that change all the time: the plans and rests of the product, with loads in
//! place of queues and pools.
//!
//! The number of migrations is bounded by the rests. A round begins [`limits::BALANCE_AT_ONCE`] at most, so there are 576
//! a day of all queues. A queue rests for an hour and does not return for a day to the pool that it left: between two
//! pools it moves once a day, and among more pools at most 24 times. In fact it moves less often, because its load is
//! the mean of an hour and a plan must gain a tenth.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use angarium_catalogue::EndedMigration;
use angarium_core::time::Timestamp;
use angarium_engine::placement::balance::{Distribution, Load, Share};

use super::*;
use crate::balance::plan::FlavorPlan;

const DAY: u64 = 24 * 60;
/// Minutes between two rounds.
const ROUND: u64 = 10;
const MIN_GAIN: f64 = 0.1;

fn queue(number: usize) -> QueueId {
    QueueId::from_bytes(u128::to_be_bytes(number as u128))
}

/// The load of a queue at one time.
#[derive(Clone, Copy)]
struct QueueState {
    /// Stored amount.
    held: u64,
    /// Changes per minute.
    written: u64,
}

/// A migration that a round has begun, and that has ended at once.
#[derive(Clone, Copy, Debug)]
struct Migration {
    minute: u64,
    queue: usize,
    from: usize,
    to: usize,
}

/// Pools, queues, and their rounds.
struct Course {
    shares: Vec<Share>,
    /// The pool of each queue.
    pools: Vec<usize>,
    migrated: Vec<Option<EndedMigration>>,
    loads: MeanLoads,
    moves: Vec<Migration>,
}

impl Course {
    /// Pools of these weights, and queues in equal numbers.
    fn new(weights: &[u32], queues: usize) -> Self {
        Self {
            shares: weights.iter().map(|weight| Share { weight: *weight, takes: true }).collect(),
            pools: (0..queues).map(|queue| queue * weights.len() / queues).collect(),
            migrated: vec![None; queues],
            loads: MeanLoads::default(),
            moves: Vec::new(),
        }
    }

    /// Takes the samples of a minute, and makes a round if one is due.
    fn minute(&mut self, minute: u64, states: &[QueueState]) {
        let is_written = |(_, state): &(usize, &QueueState)| state.written > 0;
        let sample = states.iter().enumerate().filter(is_written);
        self.loads.add(&sample.map(|(number, state)| (queue(number), state.written)).collect(), 60);
        if minute.is_multiple_of(ROUND) {
            self.round(minute, states);
        }
    }

    fn distribution(&self, terms: &PlanTerms, states: &[QueueState]) -> Distribution {
        let written = self.loads.rounded();
        let load = |(number, pool): (usize, &usize)| {
            let written = written.get(&queue(number)).copied().unwrap_or(0) + limits::BALANCE_QUEUE_CHANGES;
            let held = limits::BALANCE_QUEUE_BYTES + states[number].held;
            let load = Load { pool: *pool, held, written, ..Load::default() };
            terms.load(load, self.migrated[number].as_ref(), |name| name.parse().ok())
        };
        let loads: Vec<Load> = self.pools.iter().enumerate().map(load).collect();
        Distribution::new(&self.shares, &loads)
    }

    fn round(&mut self, minute: u64, states: &[QueueState]) {
        let now = Timestamp::from_millis(minute * 60_000);
        let terms = PlanTerms { max_moves: BALANCE_MOVES.most(), min_gain: MIN_GAIN, rested_at: Some(now) };
        let mut pools = self.distribution(&terms, states);
        let before = pools.misplaced();
        let FlavorPlan { mut moves, gain } = terms.moves_within(&mut pools, 0);
        assert!(moves.is_empty() || gain >= MIN_GAIN, "{gain}");
        moves.truncate(limits::BALANCE_AT_ONCE);
        for planned in &moves {
            let (queue, from, to) = (planned.load, self.pools[planned.load], planned.to);
            self.migrated[queue] = Some(EndedMigration { ended: now.as_millis(), from: from.to_string() });
            self.pools[queue] = to;
            self.moves.push(Migration { minute, queue, from, to });
        }
        // The first moves of a plan do not spoil what the whole plan gains.
        let after = self.distribution(&terms, states).misplaced();
        assert!(after <= before + 1e-9, "{before} became {after} by {moves:?}");
    }

    /// Checks the rests, and the bounds that follow from them.
    fn check(&self, minutes: u64) {
        let days = usize::try_from(minutes.div_ceil(DAY)).unwrap();
        assert!(self.moves.len() <= days * 576, "{}", self.moves.len());
        for number in 0..self.pools.len() {
            let own: Vec<&Migration> = self.moves.iter().filter(|one| one.queue == number).collect();
            for pair in own.windows(2) {
                let rest = pair[1].minute - pair[0].minute;
                assert!(rest >= 60 && pair[0].to == pair[1].from, "{pair:?}");
                assert!(rest >= DAY || pair[1].to != pair[0].from, "{pair:?}");
            }
            if self.shares.len() == 2 {
                assert!(own.len() <= days, "{own:?}");
            }
        }
    }
}

/// Half of four queues are busy or full at a time, in two pools. The queues change their parts every `half` minutes.
fn swing(minutes: u64, half: u64, [low, high]: [QueueState; 2]) -> Course {
    let mut course = Course::new(&[1, 1], 4);
    for minute in 1..=minutes {
        let is_first = (minute / half).is_multiple_of(2);
        let state = |number: usize| if (number < 2) == is_first { high } else { low };
        course.minute(minute, &[0, 1, 2, 3].map(state));
    }
    course.check(minutes);
    course
}

/// A load that swings in its writes, and one that swings in its bytes.
const SWINGS: [[QueueState; 2]; 2] = [
    [QueueState { held: 1_000, written: 0 }, QueueState { held: 1_000, written: 60_000 }],
    [QueueState { held: 0, written: 60 }, QueueState { held: 1 << 30, written: 60 }],
];

#[test]
fn queues_stay_when_writes_alternate_within_an_hour() {
    for half in [5, 10, 20, 30] {
        let course = swing(2 * DAY, half, SWINGS[0]);
        let late = course.moves.iter().filter(|one| one.minute > 120).count();
        assert!(late == 0 && course.moves.len() <= 8, "{half}: {:?}", course.moves);
    }
}

#[test]
fn queue_moves_once_a_day_when_load_alternates() {
    for load in SWINGS {
        for half in [10, 40, 60, 90, 180, 360, 720] {
            let course = swing(5 * DAY, half, load);
            assert!(course.moves.len() <= 4 * 5, "{half}: {:?}", course.moves);
        }
    }
}

/// Queues whose loads jump, swing against each other, or grow, at random.
struct RandomLoads {
    random: StdRng,
    states: Vec<QueueState>,
    /// Minutes of half a swing of each queue; zero for one that does not swing.
    halves: Vec<u64>,
}

impl RandomLoads {
    fn next(&mut self, minute: u64) -> &[QueueState] {
        for (number, state) in self.states.iter_mut().enumerate() {
            let half = self.halves[number];
            if half > 0 && minute.is_multiple_of(half) {
                let is_high = (minute / half + number as u64).is_multiple_of(2);
                *state = if is_high {
                    QueueState {
                        held: self.random.random_range(0..1 << 30),
                        written: self.random.random_range(0..60_000),
                    }
                } else {
                    QueueState { held: 0, written: 0 }
                };
            } else if half == 0 && self.random.random_ratio(1, 100) {
                state.held = self.random.random_range(0..1 << 24);
                state.written = self.random.random_range(0..1_000);
            }
        }
        &self.states
    }
}

#[test]
fn random_load_histories_keep_rests_and_gain() {
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let weights: Vec<u32> =
            (0..random.random_range(2..=5)).map(|_| random.random_range(1..=10)).collect();
        let queues = random.random_range(1..=40);
        let halves =
            (0..queues).map(|_| [0, 10, 30, 60, 70, 120, 360, 720][random.random_range(0..8)]).collect();
        let mut loads =
            RandomLoads { states: vec![QueueState { held: 0, written: 0 }; queues], halves, random };
        let mut course = Course::new(&weights, queues);
        for minute in 1..=3 * DAY {
            let states = loads.next(minute).to_vec();
            course.minute(minute, &states);
        }
        course.check(3 * DAY);
    }
}
