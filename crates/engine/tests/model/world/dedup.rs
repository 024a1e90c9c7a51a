//! Deduplication ids and their notes in the pool.

use angarium_core::limits;

use super::*;

/// The kind of the notes of deduplication ids.
pub(super) const KIND: u8 = 1;

fn key(number: u8) -> DedupKey {
    DedupKey::from_bytes([number % 4; 16])
}

/// Kind and key of the note of a deduplication id.
pub(super) fn name(key: &DedupKey) -> (u8, Bytes) {
    (KIND, Bytes::copy_from_slice(key.as_bytes()))
}

impl World {
    /// Posts a message with a deduplication id, unless it is a duplicate.
    pub(super) fn post_once(&mut self, number: u8) {
        let key = key(number);
        if self.engine.first_post(key, self.now).is_some() {
            return;
        }
        self.post(&[0], Life::lasting(3_600, self.now), 0);
        let Some(Change::Post(messages, notes)) = self.waiting.back_mut() else { return };
        let (id, expires) = (messages[0].header.id, self.now.plus_seconds(limits::DEDUP_SECONDS));
        let (kind, name) = name(&key);
        let value = Bytes::copy_from_slice(id.as_bytes());
        notes.push((key, Note { kind, key: name, value, expires }));
        self.engine.begin_dedup(key, id, expires);
    }

    pub(super) fn forget_old(&mut self) {
        self.now = self.now.plus_seconds(limits::DEDUP_SECONDS);
        let keys = self.engine.expire_dedup_ids(self.now, 3);
        // The engine has forgotten them already, and needs no ids of messages.
        self.forget(keys.into_iter().map(|key| (key, MessageId::ZERO)).collect());
    }

    pub(super) fn forget_all(&mut self) {
        let ids = self.engine.begin_forget_dedup();
        self.forget(ids);
    }

    fn forget(&mut self, ids: Vec<(DedupKey, MessageId)>) {
        if !ids.is_empty() {
            self.waiting.push_back(Change::Forget(ids));
        }
    }

    /// Restores the ids, as the broker does when it opens a queue.
    pub(super) fn restore_dedup_ids(&mut self) {
        for note in self.pool.notes.values() {
            let key = DedupKey::from_bytes(note.key[..].try_into().expect("the key of an id"));
            let id = MessageId::from_bytes(note.value[..].try_into().expect("an id"));
            self.engine.restore_dedup(key, id, note.expires);
        }
    }

    /// Checks that every id which answers a duplicate would survive a crash.
    pub(super) fn check_dedup_ids(&self) {
        for key in (0..4).map(key) {
            let Some(duplicate) =
                self.engine.first_post(key, self.now).filter(|duplicate| duplicate.is_durable)
            else {
                continue;
            };
            let note = self.pool.notes.get(&name(&key)).expect("the note of an id that is remembered");
            assert_eq!(note.value[..], duplicate.id.as_bytes()[..], "the message of an id");
        }
    }
}
