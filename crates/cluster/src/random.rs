//! Randomness as a handle that is passed in, so that one seed can determine all random values of a replica.

use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use uuid::{Builder, Uuid};

/// A source of random values. Clones share one source.
#[derive(Clone, Debug, Default)]
pub struct Random(Option<Arc<Mutex<StdRng>>>);

impl Random {
    /// The generator of the process, which the system seeds. It is fit for secrets.
    pub const fn system() -> Self {
        Self(None)
    }

    /// A generator whose values the seed determines, as long as its callers take them in the same order.
    pub fn seeded(seed: u64) -> Self {
        Self(Some(Arc::new(Mutex::new(StdRng::seed_from_u64(seed)))))
    }

    /// Returns a random UUID, of version 4.
    pub fn uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        self.clone().fill_bytes(&mut bytes);
        Builder::from_random_bytes(bytes).into_uuid()
    }
}

impl RngCore for Random {
    fn next_u32(&mut self) -> u32 {
        self.0.as_ref().map_or_else(|| rand::rng().next_u32(), |shared| shared.lock().next_u32())
    }

    fn next_u64(&mut self) -> u64 {
        self.0.as_ref().map_or_else(|| rand::rng().next_u64(), |shared| shared.lock().next_u64())
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        match &self.0 {
            None => rand::rng().fill_bytes(bytes),
            Some(shared) => shared.lock().fill_bytes(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_determines_values() {
        let (first, second, other) = (Random::seeded(7), Random::seeded(7), Random::seeded(8));
        let shared = first.clone();
        let values = [first.uuid(), shared.uuid(), first.uuid()];
        assert_eq!(values, [second.uuid(), second.uuid(), second.uuid()]);
        assert!(!values.contains(&other.uuid()));
        assert_eq!(values[0].get_version_num(), 4);
        assert_ne!(Random::system().uuid(), Random::system().uuid());
    }
}
