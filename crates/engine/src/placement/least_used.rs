//! Power of two choices: two candidates are drawn by weight, and the one with the lower use for its weight is chosen.
//!
//! The least used of all candidates would get every choice until its figures are read again. Two draws keep the load
//! nearly even with old figures. Source: Mitzenmacher, *The Power of Two Choices in Randomized Load Balancing*, 2001.

use rand::RngCore;

use super::{Candidate, weighted};

/// Returns the index of the choice; none when no weight is above zero. If both are equal it is the first draw.
pub fn choose(candidates: &[Candidate<'_>], random: &mut dyn RngCore) -> Option<usize> {
    let first = weighted::choose(candidates, random)?;
    let mut others = candidates.to_vec();
    others[first].weight = 0;
    let second = weighted::choose(&others, random).unwrap_or(first);
    Some(if is_less_used(&candidates[second], &candidates[first]) { second } else { first })
}

/// Whether `a` has a lower use for its weight than `b`: compares use / weight without a division.
fn is_less_used(a: &Candidate<'_>, b: &Candidate<'_>) -> bool {
    u128::from(a.used) * u128::from(b.weight) < u128::from(b.used) * u128::from(a.weight)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    fn candidate(weight: u32, used: u64) -> Candidate<'static> {
        Candidate { name: "", weight, used }
    }

    #[test]
    fn of_two_the_one_used_less_for_its_weight_is_chosen() {
        let mut random = SmallRng::seed_from_u64(1);
        for _ in 0..100 {
            assert_eq!(choose(&[candidate(1, 10), candidate(1, 11)], &mut random), Some(0));
            assert_eq!(choose(&[candidate(1, 10), candidate(10, 99)], &mut random), Some(1));
            assert_eq!(choose(&[candidate(0, 0), candidate(1, u64::MAX)], &mut random), Some(1));
        }
    }

    #[test]
    fn use_settles_in_the_ratio_of_the_weights() {
        let mut random = SmallRng::seed_from_u64(5);
        let mut candidates = [candidate(1, 0), candidate(2, 0), candidate(5, 0)];
        for _ in 0..8_000 {
            candidates[choose(&candidates, &mut random).unwrap()].used += 1;
        }
        let used = candidates.map(|candidate| candidate.used);
        assert!(used[0].abs_diff(1_000) < 50 && used[1].abs_diff(2_000) < 50, "{used:?}");
    }

    #[test]
    fn the_greatest_figures_are_compared_right() {
        assert!(is_less_used(&candidate(u32::MAX, u64::MAX - 1), &candidate(u32::MAX, u64::MAX)));
    }
}
