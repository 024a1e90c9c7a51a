//! The cache of Keystone's answers about tokens, by their hashes, bounded in time and number. Refused tokens have their
//! own cache, because clients can make up any number of them.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use super::limits;
use super::{Key, Refusal, TokenHolder, Validation};

/// Cached answers.
pub(super) struct Memory {
    valid: Bounded<TokenHolder>,
    refused: Bounded<Refusal>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            valid: Bounded::new(limits::KEYSTONE_TOKENS_KNOWN),
            refused: Bounded::new(limits::KEYSTONE_REFUSED_KNOWN),
        }
    }
}

impl Memory {
    /// Returns the cached answer for a token.
    pub(super) fn get(&mut self, key: &Key, now: Instant) -> Option<Validation> {
        if let Some(holder) = self.valid.get(key, now) {
            return Some(Ok(holder.clone()));
        }
        self.refused.get(key, now).map(|refusal| Err(*refusal))
    }

    /// Caches the answer for a token until an instant.
    pub(super) fn put(&mut self, key: Key, answer: Validation, until: Instant) {
        match answer {
            Ok(holder) => {
                self.refused.entries.remove(&key);
                self.valid.put(key, holder, until);
            }
            Err(refusal) => {
                self.valid.entries.remove(&key);
                self.refused.put(key, refusal, until);
            }
        }
    }

    /// Returns the number of cached answers.
    pub(super) fn len(&self) -> usize {
        self.valid.entries.len() + self.refused.entries.len()
    }
}

/// A map with at most `most` entries; the oldest are evicted.
struct Bounded<V> {
    most: usize,
    entries: HashMap<Key, (V, Instant)>,
    /// The keys in the order of insertion, with the expiry of their entries. If the entry of a key has another expiry,
    /// the key was inserted again.
    order: VecDeque<(Key, Instant)>,
}

impl<V> Bounded<V> {
    fn new(most: usize) -> Self {
        Self { most, entries: HashMap::new(), order: VecDeque::new() }
    }

    fn get(&mut self, key: &Key, now: Instant) -> Option<&V> {
        self.entries.get(key).filter(|(_, until)| *until > now).map(|(value, _)| value)
    }

    fn put(&mut self, key: Key, value: V, until: Instant) {
        while self.order.len() >= self.most {
            let Some((oldest, end)) = self.order.pop_front() else { break };
            if self.entries.get(&oldest).is_some_and(|(_, until)| *until == end) {
                self.entries.remove(&oldest);
            }
        }
        self.entries.insert(key, (value, until));
        self.order.push_back((key, until));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(number: usize) -> Key {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        key
    }

    #[tokio::test(start_paused = true)]
    async fn answer_is_remembered_until_its_end() {
        let mut memory = Memory::default();
        let now = Instant::now();
        memory.put(key(1), Err(Refusal::Unknown), now + Duration::from_secs(1));
        assert_eq!(memory.get(&key(1), now), Some(Err(Refusal::Unknown)));
        assert_eq!(memory.get(&key(2), now), None);
        assert_eq!(memory.get(&key(1), now + Duration::from_secs(1)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_entries_make_room() {
        let (mut known, now) = (Bounded::new(100), Instant::now());
        for number in 0..1_000 {
            known.put(key(number), number, now + Duration::from_secs(60));
            // A key that is inserted again has one entry.
            known.put(key(0), number, now + Duration::from_secs(61 + number as u64));
            assert!(known.entries.len() <= 100 && known.order.len() <= 100);
        }
        assert_eq!(known.get(&key(999), now), Some(&999));
        assert_eq!(known.get(&key(0), now), Some(&999));
        assert_eq!(known.get(&key(900), now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_tokens_push_no_valid_one_out() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let until = now + Duration::from_secs(60);
        let holder = TokenHolder { project: None, role: None, name: None, expires: Default::default() };
        memory.put(key(0), Ok(holder.clone()), until);
        for number in 1..limits::KEYSTONE_REFUSED_KNOWN + 1_000 {
            memory.put(key(number), Err(Refusal::Unknown), until);
        }
        assert_eq!(memory.get(&key(0), now), Some(Ok(holder)));
        assert_eq!(memory.len(), limits::KEYSTONE_REFUSED_KNOWN + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn later_answer_replaces_earlier_one() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let until = now + Duration::from_secs(60);
        let holder = TokenHolder { project: None, role: None, name: None, expires: Default::default() };
        for answer in [Ok(holder.clone()), Err(Refusal::Unknown), Ok(holder)] {
            memory.put(key(1), answer.clone(), until);
            assert_eq!(memory.get(&key(1), now), Some(answer));
        }
        assert_eq!(memory.len(), 1);
    }
}
