//! Zaqar's algorithm: one draw in [0, total of the weights), and the first choice whose cumulative weight
//! is above it. Source: `zaqar/common/storage/select.py`.

use rand::{Rng, RngCore};

use super::Candidate;

/// Returns the index of the choice, by weight in the given order; none when no weight is above zero.
///
/// A candidate of weight zero is never chosen. The chance of each other one is its weight divided by the total.
pub fn choose(candidates: &[Candidate<'_>], random: &mut dyn RngCore) -> Option<usize> {
    let total = candidates.iter().map(|candidate| u64::from(candidate.weight)).sum();
    if total == 0 {
        return None;
    }
    at(candidates, random.random_range(0..total))
}

/// The candidate for a draw.
fn at(candidates: &[Candidate<'_>], draw: u64) -> Option<usize> {
    let mut cumulative = 0;
    candidates.iter().position(|candidate| {
        cumulative += u64::from(candidate.weight);
        draw < cumulative
    })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    fn weights<const N: usize>(weights: [u32; N]) -> [Candidate<'static>; N] {
        weights.map(|weight| Candidate { name: "", weight, used: 0 })
    }

    #[test]
    fn draws_fall_on_the_first_cumulative_weight_above_them() {
        let weights = weights([0, 10, 0, 20, u32::MAX]);
        for (draw, choice) in [(0, Some(1)), (9, Some(1)), (10, Some(3)), (29, Some(3)), (30, Some(4))] {
            assert_eq!(at(&weights, draw), choice, "{draw}");
        }
        assert_eq!(at(&weights, 30 + u64::from(u32::MAX) - 1), Some(4));
        assert_eq!(at(&weights, 30 + u64::from(u32::MAX)), None);
    }

    #[test]
    fn weights_add_up_beyond_32_bits() {
        let mut random = SmallRng::seed_from_u64(3);
        let mut seen = [false; 3];
        for _ in 0..1_000 {
            seen[choose(&weights([u32::MAX; 3]), &mut random).unwrap()] = true;
        }
        assert_eq!(seen, [true; 3]);
    }

    #[test]
    fn shares_follow_the_weights_and_zero_is_never_chosen() {
        let mut random = SmallRng::seed_from_u64(7);
        let mut counts = [0_u32; 3];
        for _ in 0..40_000 {
            counts[choose(&weights([1, 0, 3]), &mut random).unwrap()] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((9_500..10_500).contains(&counts[0]), "{counts:?}");
    }
}
