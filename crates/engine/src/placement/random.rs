//! Equal chances for all candidates with a weight above zero.

use rand::{Rng, RngCore};

use super::Candidate;

/// Returns the index of the choice; none when no weight is above zero.
pub fn choose(candidates: &[Candidate<'_>], random: &mut dyn RngCore) -> Option<usize> {
    let mut open = (0..candidates.len()).filter(|&index| candidates[index].weight > 0);
    let count = open.clone().count();
    if count == 0 {
        return None;
    }
    open.nth(random.random_range(0..count))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn shares_are_equal_whatever_the_weights() {
        let mut random = SmallRng::seed_from_u64(7);
        let candidates = [1, 0, 1_000].map(|weight| Candidate { name: "", weight, used: 0 });
        let mut counts = [0_u32; 3];
        for _ in 0..10_000 {
            counts[choose(&candidates, &mut random).unwrap()] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((4_700..5_300).contains(&counts[0]), "{counts:?}");
    }
}
