//! Weighted rendezvous hashing: each candidate has a score for the key, and the highest score is chosen.
//!
//! A score depends only on key, name and weight. So all callers with the same candidates make the same choice without
//! communication. When a candidate leaves, only its keys move, to the others by weight; a new candidate takes its share
//! of the keys, and no other key moves. Source: Thaler and Ravishankar, 1998; the score is that of Schindelhauer and
//! Schomaker, *Weighted Distributed Hash Tables*, 2005.

use xxhash_rust::xxh3::Xxh3;

use super::Candidate;

/// Returns the index of the choice for `key`; none when no weight is above zero. The order of the candidates has no
/// effect.
pub fn choose(candidates: &[Candidate<'_>], key: &[u8]) -> Option<usize> {
    let open = candidates.iter().enumerate().filter(|(_, candidate)| candidate.weight > 0);
    let scored = open.map(|(index, candidate)| (score(candidate, key), candidate.name, index));
    // Names break ties, so that the order of the candidates has no effect.
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1)));
    best.map(|(_, _, index)| index)
}

/// The weight divided by an exponentially distributed number: the chance of a candidate to have the greatest score is
/// its weight divided by the total.
fn score(candidate: &Candidate<'_>, key: &[u8]) -> f64 {
    let mut hash = Xxh3::new();
    hash.update(candidate.name.as_bytes());
    hash.update(&[0]);
    hash.update(key);
    // Half a step is added, so that the fraction is never 0 or 1; 32 bits are exact in the following arithmetic.
    let bits = u32::try_from(hash.digest() >> 32).expect("half of 64 bits are 32");
    let fraction = (f64::from(bits) + 0.5) / (f64::from(u32::MAX) + 1.0);
    f64::from(candidate.weight) / -fraction.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u32 = 20_000;

    fn candidate(name: &str, weight: u32) -> Candidate<'_> {
        Candidate { name, weight, used: 0 }
    }

    /// The name of the choice for each key.
    fn choices<'a>(candidates: &[Candidate<'a>]) -> Vec<&'a str> {
        (0..KEYS).map(|key| candidates[choose(candidates, &key.to_be_bytes()).unwrap()].name).collect()
    }

    fn share(choices: &[&str], name: &str) -> f64 {
        let count = choices.iter().filter(|choice| **choice == name).count();
        f64::from(u32::try_from(count).unwrap()) / f64::from(KEYS)
    }

    #[test]
    fn shares_follow_the_weights() {
        let choices = choices(&[candidate("a", 1), candidate("b", 2), candidate("c", 5)]);
        for (name, expected) in [("a", 0.125), ("b", 0.25), ("c", 0.625)] {
            assert!((share(&choices, name) - expected).abs() < 0.015, "{name}: {}", share(&choices, name));
        }
    }

    #[test]
    fn new_candidate_takes_only_its_share() {
        let names: Vec<String> = (0..10).map(|n| format!("replica-{n}")).collect();
        let all: Vec<_> = names.iter().map(|name| candidate(name, 100)).collect();
        let (before, after) = (choices(&all[..9]), choices(&all));
        let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
        assert!(moved.iter().all(|(_, after)| **after == "replica-9"), "a key moved between two that stayed");
        let moved = f64::from(u32::try_from(moved.len()).unwrap()) / f64::from(KEYS);
        assert!((moved - 0.1).abs() < 0.01, "{moved} of the keys moved");
    }

    #[test]
    fn removed_candidate_leaves_keys_by_weight() {
        let all = [candidate("a", 3), candidate("b", 1), candidate("gone", 4)];
        let (before, after) = (choices(&all), choices(&all[..2]));
        let left: Vec<_> = before.iter().zip(&after).filter(|(before, _)| **before == "gone").collect();
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        assert_eq!(moved, left.len());
        let to_a = left.iter().filter(|(_, after)| **after == "a").count();
        assert!(to_a.abs_diff(left.len() * 3 / 4) < left.len() / 20, "{to_a} of {}", left.len());
    }

    #[test]
    fn more_weight_only_draws_keys_to_it() {
        let before = choices(&[candidate("a", 1), candidate("b", 1), candidate("c", 1)]);
        let after = choices(&[candidate("a", 1), candidate("b", 2), candidate("c", 1)]);
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
        assert!(moved.clone().count() > 0 && moved.clone().all(|(_, after)| *after == "b"));
    }

    #[test]
    fn candidate_order_never_changes_choices() {
        let one = [candidate("a", 1), candidate("b", 1), candidate("c", 2)];
        let other = [one[2], one[0], one[1]];
        assert_eq!(choices(&one), choices(&other));
        // Every replica of every version finds slots by this rule.
        assert_eq!(choices(&one)[..12].concat(), "cbaacabbccbb");
    }
}
