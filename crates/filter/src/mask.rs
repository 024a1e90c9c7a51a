//! Sets of alternatives of a policy.

use std::ops::{BitAnd, BitOr, Not};

use crate::limits::POLICY_COMBINATIONS;

/// A set of alternatives, by their index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask([u64; WORDS]);

const WORDS: usize = POLICY_COMBINATIONS.div_ceil(64) as usize;

impl Mask {
    /// The set of the first `count` alternatives, of which a policy has at most [`POLICY_COMBINATIONS`].
    pub fn first(count: usize) -> Self {
        let mut mask = Self::default();
        (0..count).for_each(|index| mask.insert(index));
        mask
    }

    pub fn insert(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl BitAnd for Mask {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }
}

impl BitOr for Mask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }
}

impl Not for Mask {
    type Output = Self;

    fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }
}
