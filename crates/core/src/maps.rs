//! Hash maps and sets whose order of iteration a simulation can fix.
//!
//! The hash function is SipHash-1-3, as that of the standard library: clients choose many of the keys, and must not be
//! able to make them collide. Its keys are random once per process, unless the process sets them first.

use std::collections;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::OnceLock;

use siphasher::sip::SipHasher13;

/// A map like that of the standard library. `HashMap::default()` creates one.
pub type HashMap<K, V> = collections::HashMap<K, V, HashKeys>;

/// A set like that of the standard library. `HashSet::default()` creates one.
pub type HashSet<T> = collections::HashSet<T, HashKeys>;

static KEYS: OnceLock<[u64; 2]> = OnceLock::new();

/// Builds the hashers of all maps and sets with the keys of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct HashKeys;

impl HashKeys {
    /// Sets the keys of the process, so that maps have the same order in each run. Returns false when the process has
    /// others, because a key was hashed before. With known keys a client can slow maps down: only a simulation sets
    /// them.
    pub fn fix(keys: [u64; 2]) -> bool {
        *KEYS.get_or_init(|| keys) == keys
    }
}

impl BuildHasher for HashKeys {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        let [first, second] = *KEYS.get_or_init(|| {
            let random = RandomState::new();
            [random.hash_one(0), random.hash_one(1)]
        });
        SipHasher13::new_with_keys(first, second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_one_process_have_one_order() {
        let orders = [(); 2].map(|()| (0..100).collect::<HashSet<u32>>().into_iter().collect::<Vec<_>>());
        assert_eq!(orders[0], orders[1]);
        assert!(!HashKeys::fix([3, 4]), "a key was hashed");
        assert_eq!(HashKeys.hash_one(7), HashKeys.hash_one(7));
    }
}
