//! Balance plan: which queues should move between pools, so that each pool has its share by weight of the stored bytes
//! and of the writes. Pure.
//!
//! Each step takes the pool that is farthest above a share, and makes the move that brings all pools nearest to their
//! shares. It repeats until no move is better, all pools are near enough, or there are enough moves. No queue moves
//! twice. The distance of the pools from their shares is the sum of the squares over all pools and both kinds of
//! shares: so a pool that is full and idle does not compensate one that is empty and busy.

/// Max deviation of a pool that is near enough to its shares, as a part of the total of all pools.
const TOLERANCE: f64 = 0.02;

/// One of the pools that take the same queues.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Weight, above 0. The share of the pool is its weight divided by the weights of all.
    pub weight: u32,
    /// Whether queues may move to it. Queues may move away from it in any case.
    pub takes: bool,
}

/// The load of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// The index of its pool.
    pub pool: usize,
    /// Amount that it stores, in a unit common to all loads.
    pub held: u64,
    /// Amount of its writes, in a unit common to all loads.
    pub written: u64,
    /// Whether it must stay in its pool.
    pub stays: bool,
    /// The index of a pool that it may not move to.
    pub avoids: Option<usize>,
}

/// A load that should go to another pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The index of the load.
    pub load: usize,
    /// The index of the target pool.
    pub to: usize,
}

/// The loads of all pools that take the same queues.
pub struct Distribution {
    pools: Vec<Pool>,
    /// Number of kinds of loads that are measured, of two.
    kinds: f64,
}

impl Distribution {
    /// Adds up the loads of each pool.
    pub fn new(shares: &[Share], loads: &[Load]) -> Self {
        let total = |of: fn(&Load) -> u64| loads.iter().map(|load| of(load) as f64).sum::<f64>().max(1.0);
        let totals = [total(|load| load.held), total(|load| load.written)];
        let weights: f64 = shares.iter().map(|share| f64::from(share.weight)).sum();
        let is_measured =
            [|load: &Load| load.held > 0, |load: &Load| load.written > 0].map(|is| loads.iter().any(is));
        let due =
            |share: &Share| is_measured.map(|is| if is { f64::from(share.weight) / weights } else { 0.0 });
        let mut pools: Vec<Pool> = shares
            .iter()
            .map(|share| Pool { takes: share.takes, excess: due(share).map(|due| -due), parts: Vec::new() })
            .collect();
        for (index, load) in loads.iter().enumerate() {
            let sizes = [load.held as f64 / totals[0], load.written as f64 / totals[1]];
            pools[load.pool].add(sizes);
            if !load.stays {
                pools[load.pool].parts.push(Part { load: index, sizes, avoids: load.avoids });
            }
        }
        Self { pools, kinds: is_measured.iter().filter(|is| **is).count().max(1) as f64 }
    }

    /// Moves at most `max` loads and returns the moves, the most effective first. The cost of each is a look at every
    /// load of one pool.
    pub fn plan(&mut self, max: usize) -> Vec<Move> {
        let pools = &mut self.pools;
        let mut moves = Vec::new();
        while moves.len() < max && pools.iter().any(Pool::is_off) {
            let Some((from, at, to)) = next(pools) else { break };
            let part = pools[from].parts.swap_remove(at);
            pools[from].add(part.sizes.map(|size| -size));
            // A load that has moved stays at its target, so it is not in the parts.
            pools[to].add(part.sizes);
            moves.push(Move { load: part.load, to });
        }
        moves
    }

    /// Returns the part of all loads, from 0 to 1, that pools have beyond their shares: the mean of both kinds.
    pub fn misplaced(&self) -> f64 {
        let excess = |pool: &Pool| pool.excess.iter().map(|excess| excess.max(0.0)).sum::<f64>();
        self.pools.iter().map(excess).sum::<f64>() / self.kinds
    }

    /// Returns what a pool has of all stored bytes and of all writes, beyond its share; negative below it.
    pub fn excess(&self, pool: usize) -> [f64; 2] {
        self.pools[pool].excess
    }
}

/// A load that can be moved: its parts of the totals of stored bytes and of writes.
struct Part {
    load: usize,
    sizes: [f64; 2],
    avoids: Option<usize>,
}

struct Pool {
    takes: bool,
    /// Excess over both of its shares; negative below them.
    excess: [f64; 2],
    /// Loads that may move away.
    parts: Vec<Part>,
}

impl Pool {
    fn add(&mut self, sizes: [f64; 2]) {
        for (excess, size) in self.excess.iter_mut().zip(sizes) {
            *excess += size;
        }
    }

    fn max_excess(&self) -> f64 {
        self.excess[0].max(self.excess[1])
    }

    fn is_off(&self) -> bool {
        self.excess.iter().any(|excess| excess.abs() > TOLERANCE)
    }

    /// The decrease of the sum of squares when `part` moves from this pool to `to`.
    fn gain(&self, part: &Part, to: &Self) -> f64 {
        let gain =
            |kind: usize| 2.0 * part.sizes[kind] * (self.excess[kind] - to.excess[kind] - part.sizes[kind]);
        gain(0) + gain(1)
    }
}

/// The best next move: the source pool, the index of the part in it, and the target pool.
fn next(pools: &[Pool]) -> Option<(usize, usize, usize)> {
    // Smaller gains are rounding errors.
    const MIN_GAIN: f64 = 1e-12;
    let mut givers: Vec<usize> = (0..pools.len()).collect();
    givers.sort_by(|a, b| pools[*b].max_excess().total_cmp(&pools[*a].max_excess()));
    givers.into_iter().find_map(|from| {
        let takers = (0..pools.len()).filter(|to| *to != from && pools[*to].takes);
        let all = takers.flat_map(|to| (0..pools[from].parts.len()).map(move |at| (at, to)));
        let moves = all.filter(|&(at, to)| pools[from].parts[at].avoids != Some(to));
        let gain = |&(at, to): &(usize, usize)| pools[from].gain(&pools[from].parts[at], &pools[to]);
        let best = moves.map(|one| (gain(&one), one)).max_by(|a, b| a.0.total_cmp(&b.0))?;
        (best.0 > MIN_GAIN).then_some((from, best.1.0, best.1.1))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(shares: &[Share], loads: &[Load], max: usize) -> Vec<Move> {
        Distribution::new(shares, loads).plan(max)
    }

    fn load(pool: usize, held: u64, written: u64) -> Load {
        Load { pool, held, written, ..Load::default() }
    }

    fn shares(weights: &[u32]) -> Vec<Share> {
        weights.iter().map(|weight| Share { weight: *weight, takes: true }).collect()
    }

    fn after(pools: usize, loads: &[Load], moves: &[Move], of: fn(&Load) -> u64) -> Vec<u64> {
        let mut held = vec![0; pools];
        for (index, load) in loads.iter().enumerate() {
            let moved = moves.iter().find(|one| one.load == index);
            held[moved.map_or(load.pool, |one| one.to)] += of(load);
        }
        held
    }

    #[test]
    fn a_new_pool_gets_its_share_by_weight() {
        let loads: Vec<Load> = (0..90).map(|_| load(0, 10, 0)).collect();
        let moves = plan(&shares(&[1, 2]), &loads, 1_000);
        let held = after(2, &loads, &moves, |load| load.held);
        assert!(held[0].abs_diff(300) <= 18 && held[1].abs_diff(600) <= 18, "{held:?}");
    }

    #[test]
    fn balanced_pools_stay() {
        let loads: Vec<Load> = (0..100).map(|index| load(index % 2, 10, 0)).collect();
        assert_eq!(plan(&shares(&[100, 100]), &loads, 1_000), []);
    }

    #[test]
    fn single_queue_stays() {
        assert_eq!(plan(&shares(&[1, 1]), &[load(0, 1_000, 5)], 10), []);
    }

    #[test]
    fn closed_pool_only_gives_queues() {
        let shares = [Share { weight: 1, takes: true }, Share { weight: 8, takes: false }];
        let loads: Vec<Load> = (0..50).map(|index| load(index % 2, 10, 0)).collect();
        assert_eq!(plan(&shares, &loads, 1_000), []);
        assert_eq!(plan(&[], &[], 10), []);
    }

    #[test]
    fn write_rate_is_shared_too() {
        // Two pools store the same amount, and one of them takes all writes.
        let loads: Vec<Load> =
            (0..40).map(|index| load(index % 2, 10, if index % 2 == 0 { 6 } else { 0 })).collect();
        let moves = plan(&shares(&[1, 1]), &loads, 1_000);
        let (held, written) =
            (after(2, &loads, &moves, |load| load.held), after(2, &loads, &moves, |load| load.written));
        assert!(held[0].abs_diff(held[1]) <= 16, "{held:?}");
        assert!(written[0].abs_diff(written[1]) <= 6, "{written:?}");
    }

    #[test]
    fn resting_load_stays_and_no_load_enters_its_avoided_pool() {
        let resting: Vec<Load> = (0..90).map(|_| Load { stays: true, ..load(0, 10, 0) }).collect();
        assert_eq!(plan(&shares(&[1, 1, 1]), &resting, 1_000), []);
        let avoiding: Vec<Load> = (0..90).map(|_| Load { avoids: Some(1), ..load(0, 10, 0) }).collect();
        let moves = plan(&shares(&[1, 1, 1]), &avoiding, 1_000);
        assert!(!moves.is_empty() && moves.iter().all(|one| one.to == 2), "{moves:?}");
    }

    #[test]
    fn misplaced_part_falls_by_the_gain_of_a_plan() {
        let loads: Vec<Load> = (0..100).map(|_| load(0, 10, 7)).collect();
        let mut pools = Distribution::new(&shares(&[1, 1]), &loads);
        assert!((pools.misplaced() - 0.5).abs() < 1e-9, "{}", pools.misplaced());
        assert!(
            pools.excess(0).iter().chain(&pools.excess(1)).all(|excess| (excess.abs() - 0.5).abs() < 1e-9)
        );
        assert!(!pools.plan(1_000).is_empty());
        assert!(pools.misplaced() <= TOLERANCE, "{}", pools.misplaced());
        // One kind is not measured, so it is not in the mean.
        let stored: Vec<Load> = (0..100).map(|_| load(0, 10, 0)).collect();
        assert!((Distribution::new(&shares(&[1, 1]), &stored).misplaced() - 0.5).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn no_plan_makes_it_worse_or_moves_twice_or_more_than_asked(
            weights in prop::collection::vec(1_u32..1_000, 1..6),
            sizes in prop::collection::vec((any::<prop::sample::Index>(), 0_u64..1_000_000, 0_u64..1_000), 0..200),
            max in 0_usize..50,
        ) {
            let load = |(pool, held, written): &(prop::sample::Index, u64, u64)| {
                load(pool.index(weights.len()), *held, *written)
            };
            let loads: Vec<Load> = sizes.iter().map(load).collect();
            let moves = plan(&shares(&weights), &loads, max);
            prop_assert!(moves.len() <= max);
            let mut moved: Vec<usize> = moves.iter().map(|one| one.load).collect();
            moved.sort_unstable();
            moved.dedup();
            prop_assert_eq!(moved.len(), moves.len());
            prop_assert!(moves.iter().all(|one| loads[one.load].pool != one.to));
            let all: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            let off = |moves: &[Move], of: fn(&Load) -> u64| -> f64 {
                let total = loads.iter().map(of).sum::<u64>() as f64;
                let target = |weight: u32| f64::from(weight) / all as f64;
                let parts = after(weights.len(), &loads, moves, of);
                let parts = parts.iter().zip(&weights);
                parts.map(|(part, weight)| (*part as f64 / total.max(1.0) - target(*weight)).powi(2)).sum()
            };
            let both = |moves: &[Move]| off(moves, |load| load.held) + off(moves, |load| load.written);
            let (before, after) = (both(&[]), both(&moves));
            prop_assert!(after <= before + 1e-9, "{} became {}", before, after);
        }
    }
}
