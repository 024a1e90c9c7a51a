//! Placement: the choice of a pool or a replica among several; [`balance`] plans moves between pools. Pure: callers
//! pass randomness in.
//!
//! A new algorithm is one file here, one variant of [`Algorithm`] with an entry in its list, and one arm in each
//! `match` below.

pub mod balance;
pub mod least_used;
pub mod random;
pub mod rendezvous;
pub mod weighted;

use std::fmt;
use std::str::FromStr;

use rand::RngCore;

/// A candidate for a choice.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The name, which is unique among the candidates.
    pub name: &'a str,
    /// The weight; a candidate of weight 0 is never chosen.
    pub weight: u32,
    /// The amount in use, in a unit common to all candidates. For a pool: the bytes in use on its storage, by any user,
    /// and 0 when the storage does not report them.
    pub used: u64,
}

/// Algorithms of placement. Each ignores candidates of weight 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// By weight, as in Zaqar.
    #[default]
    Weighted,
    /// Two draws by weight, then the one with the lower use for its weight: the power of two choices.
    LeastUsed,
    /// Equal chances, without weights.
    Random,
    /// By the key alone: the same key has the same choice while that candidate exists.
    Rendezvous,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Weighted, Self::LeastUsed, Self::Random, Self::Rendezvous];

    /// Returns the index of the choice for `key`; none when no candidate has a weight.
    pub fn choose(self, candidates: &[Candidate<'_>], key: &[u8], random: &mut dyn RngCore) -> Option<usize> {
        match self {
            Self::Weighted => weighted::choose(candidates, random),
            Self::LeastUsed => least_used::choose(candidates, random),
            Self::Random => random::choose(candidates, random),
            Self::Rendezvous => rendezvous::choose(candidates, key),
        }
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.to_string() == text);
        found.ok_or_else(|| {
            format!("it is one of {}", Self::ALL.map(|algorithm| algorithm.to_string()).join(", "))
        })
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Weighted => "weighted",
            Self::LeastUsed => "least_used",
            Self::Random => "random",
            Self::Rendezvous => "rendezvous",
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    fn candidate(name: &str, weight: u32) -> Candidate<'_> {
        Candidate { name, weight, used: 0 }
    }

    #[test]
    fn names_of_algorithms_are_read_as_they_are_written() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert!("Weighted".parse::<Algorithm>().is_err());
    }

    #[test]
    fn none_is_chosen_when_there_is_no_weight() {
        let mut random = SmallRng::seed_from_u64(1);
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.choose(&[], b"q", &mut random), None, "{algorithm}");
            let idle = [candidate("a", 0), candidate("b", 0)];
            assert_eq!(algorithm.choose(&idle, b"q", &mut random), None, "{algorithm}");
        }
    }

    #[test]
    fn a_weight_of_zero_is_never_chosen_and_a_lone_candidate_always() {
        let mut random = SmallRng::seed_from_u64(2);
        let candidates = [candidate("a", 0), candidate("b", 1), candidate("c", 0)];
        for algorithm in Algorithm::ALL {
            for key in 0..1_000_u32 {
                let choice = algorithm.choose(&candidates, &key.to_be_bytes(), &mut random);
                assert_eq!(choice, Some(1), "{algorithm}");
            }
        }
    }
}
