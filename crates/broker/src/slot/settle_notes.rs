//! Removal of the notes of settles from the pools, some time after they expire.
//!
//! Memory has the notes that were written since the queue was opened, up to a bound. Other notes are found by reading the
//! notes of the pool, a page at a time: those of an earlier owner, those beyond the bound, and those whose removal failed.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use angarium_core::error::Error;
use angarium_core::limits as core_limits;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::QueueEngine;
use angarium_storage::Note;

use crate::limits;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::{OpenQueue, Slot};
use crate::writer::change::Change;
use crate::writer::notes::{SETTLE_KIND, SettleKey, read_settle_note};

/// The notes of settles that the pool of a queue has.
#[derive(Debug, Default)]
pub(crate) struct SettleNotes {
    /// The notes in memory, by the time when they expire.
    known: BTreeSet<(Timestamp, SettleKey)>,
    /// When the last of the notes expires that are neither in memory nor found by the search in progress.
    missed: Option<Timestamp>,
    search: NoteSearch,
}

/// Progress of the search for notes in the pool.
#[derive(Debug, Default)]
enum NoteSearch {
    #[default]
    Done,
    /// Not begun since the queue was opened.
    Opened,
    /// From the first note on.
    Begun,
    /// Continues after the note with this key.
    After(Bytes),
}

impl SettleNotes {
    /// The notes of a queue that an earlier owner may have written notes of.
    pub(crate) fn unread() -> Self {
        Self { search: NoteSearch::Opened, ..Self::default() }
    }

    /// Records notes that are durable now.
    pub(crate) fn written(&mut self, notes: &[Note]) {
        for note in notes {
            if let Some((key, _)) = read_settle_note(note) {
                self.add(key, note.expires);
            }
        }
    }

    /// Leaves out an expired note, because a note with the same key is about to be written.
    pub(crate) fn forget(&mut self, key: &SettleKey, now: Timestamp) {
        let expired = self.known.iter().take_while(|(expires, _)| *expires <= now);
        if let Some(old) = expired.filter(|(_, known)| known == key).copied().next() {
            self.known.remove(&old);
        }
    }

    /// Has the pool searched again: the removal of notes has failed.
    pub(crate) fn search_again(&mut self) {
        self.missed.get_or_insert_default();
    }

    /// Whether memory knows all notes of the queue, and has none. The search after the opening is not waited for.
    pub(crate) fn is_idle(&self) -> bool {
        let is_searching = matches!(self.search, NoteSearch::Begun | NoteSearch::After(_));
        self.known.is_empty() && self.missed.is_none() && !is_searching
    }

    fn add(&mut self, key: SettleKey, expires: Timestamp) {
        if self.known.len() < limits::SETTLE_NOTES {
            self.known.insert((expires, key));
        } else {
            self.missed = self.missed.max(Some(expires));
        }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.known.first().is_some_and(|(expires, _)| *expires <= now)
    }

    /// Takes the first expired notes, at most a page. A note whose message its claim still holds stays a while longer: an
    /// earlier owner ended before it took the message out of the claim, and a repeat of the settle must find the note.
    fn take_expired(&mut self, now: Timestamp, is_held: impl Fn(&SettleKey) -> bool) -> Vec<SettleKey> {
        let mut taken = Vec::new();
        while self.is_due(now) && taken.len() < limits::notes_page() {
            let Some((_, key)) = self.known.pop_first() else { break };
            if is_held(&key) {
                self.known.insert((now.plus_seconds(core_limits::SETTLE_SECONDS), key));
            } else {
                taken.push(key);
            }
        }
        taken
    }

    /// Whether a page of the pool must be read. Begins a search if missed notes have expired.
    fn must_search(&mut self, now: Timestamp) -> bool {
        if matches!(self.search, NoteSearch::Done) && self.missed.is_some_and(|missed| missed <= now) {
            self.missed = None;
            self.search = NoteSearch::Begun;
        }
        !matches!(self.search, NoteSearch::Done)
    }

    /// Where the next page of the search begins. None when the search has ended.
    fn search_position(&self) -> Option<Option<Bytes>> {
        match &self.search {
            NoteSearch::Done => None,
            NoteSearch::Opened | NoteSearch::Begun => Some(None),
            NoteSearch::After(key) => Some(Some(key.clone())),
        }
    }

    /// Records a page that was read. Returns the expired notes in it.
    fn read(
        &mut self,
        page: &[Note],
        now: Timestamp,
        is_held: impl Fn(&SettleKey) -> bool,
    ) -> Vec<SettleKey> {
        self.search = match page.last() {
            Some(last) if page.len() >= limits::notes_page() => NoteSearch::After(last.key.clone()),
            Some(_) | None => NoteSearch::Done,
        };
        let mut expired = Vec::new();
        for note in page {
            match read_settle_note(note) {
                Some((key, _)) if is_held(&key) => {
                    self.add(key, note.expires.max(now.plus_seconds(core_limits::SETTLE_SECONDS)));
                }
                Some((key, _)) if note.expires <= now => expired.push(key),
                Some((key, _)) => self.add(key, note.expires),
                None => {}
            }
        }
        expired
    }
}

impl Slot {
    /// Removes expired notes of settles of the open queues. Returns the queues whose pools must be searched for others.
    pub(crate) fn expire_settle_notes(self: &Arc<Self>) -> Vec<QueueHandle> {
        let now = self.around.replica.clock.now();
        let mut state = self.lock();
        let due = state.queues.iter().filter(|(_, queue)| queue.settle_notes.is_due(now));
        let due: Vec<QueueRef> = due.map(|(at, _)| at.clone()).collect();
        for at in due {
            while let Some(queue) = state.queues.get_mut(&at) {
                let OpenQueue { settle_notes, engine, .. } = &mut **queue;
                let keys = settle_notes.take_expired(now, |key| holds(engine, key));
                // The outcome is reported to the queue: notes that stay in the pool are searched.
                if keys.is_empty() || state.submit(&at, Change::forget_settles(&keys)).is_err() {
                    break;
                }
            }
        }
        let mut searched = Vec::new();
        for (at, queue) in &mut state.queues {
            if queue.settle_notes.must_search(now) {
                searched.push(QueueHandle::new(Arc::clone(self), at.clone(), queue.id));
            }
        }
        searched
    }
}

impl QueueHandle {
    /// Reads the next page of the notes in the pool, and removes the expired ones.
    pub(crate) async fn search_settle_notes(&self) -> Result<(), Error> {
        let position = self.lock_queue(|queue| queue.settle_notes.search_position()).flatten();
        let Some(after) = position else { return Ok(()) };
        let page = self.store()?.notes(self.id, SETTLE_KIND, after, limits::notes_page()).await?;
        let now = self.slot.around.replica.clock.now();
        let mut state = self.slot.lock();
        let Some(queue) = state.queue_mut(&self.at, self.id) else { return Ok(()) };
        let OpenQueue { settle_notes, engine, .. } = queue;
        let expired = settle_notes.read(&page, now, |key| holds(engine, key));
        if expired.is_empty() {
            return Ok(());
        }
        // The outcome is reported to the queue.
        state.submit(&self.at, Change::forget_settles(&expired)).map(drop)
    }

    /// Records notes that were copied to another pool.
    pub(crate) fn settle_notes_copied(&self, notes: &[Note]) {
        self.lock_queue(|queue| queue.settle_notes.written(notes));
    }
}

/// Whether the claim of a settle holds its message still.
fn holds(engine: &QueueEngine, key: &SettleKey) -> bool {
    engine.hold(key.message).is_some_and(|(claim, _)| claim == key.claim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::notes::settle_note;
    use angarium_core::ids::{ClaimId, MessageId};
    use angarium_core::settle::{MessageState, Settled};

    fn key(number: usize) -> SettleKey {
        let mut message = [0; 16];
        message[..8].copy_from_slice(&number.to_be_bytes());
        SettleKey { claim: ClaimId::NONE, message: MessageId::from_bytes(message) }
    }

    fn note(number: usize, expires: u64) -> Note {
        let settled = Settled { state: MessageState::Done, ids: vec![] };
        settle_note(&key(number), &settled, at(expires))
    }

    /// No claim holds the message of a note.
    fn free(_: &SettleKey) -> bool {
        false
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn note_of_a_held_message_stays() {
        let mut notes = SettleNotes::unread();
        let held = |found: &SettleKey| *found == key(1);
        assert!(notes.must_search(at(0)));
        assert_eq!(notes.read(&[note(1, 10), note(2, 10)], at(20), held), [key(2)]);
        let later = 20 + 1_000 * u64::from(core_limits::SETTLE_SECONDS);
        assert_eq!(notes.take_expired(at(later - 1), held), []);
        assert_eq!(notes.take_expired(at(later), held), []);
        assert_eq!(notes.take_expired(at(2 * later), free), [key(1)]);
    }

    #[test]
    fn written_notes_are_taken_once_they_expire() {
        let mut notes = SettleNotes::default();
        notes.written(&[note(2, 20), note(1, 10)]);
        assert!(!notes.is_idle() && !notes.must_search(at(100)));
        assert_eq!(notes.take_expired(at(9), free), []);
        assert_eq!(notes.take_expired(at(10), free), [key(1)]);
        assert_eq!(notes.take_expired(at(20), free), [key(2)]);
        assert!(notes.is_idle());
    }

    #[test]
    fn note_written_again_is_not_taken_early() {
        let mut notes = SettleNotes::default();
        notes.written(&[note(1, 10)]);
        notes.forget(&key(1), at(9));
        assert!(!notes.is_idle(), "it has not expired");
        notes.forget(&key(1), at(10));
        notes.written(&[note(1, 30)]);
        assert_eq!(notes.take_expired(at(29), free), []);
        assert_eq!(notes.take_expired(at(30), free), [key(1)]);
    }

    #[test]
    fn notes_beyond_bound_are_found_in_pool() {
        let mut notes = SettleNotes::default();
        let all: Vec<Note> = (0..limits::SETTLE_NOTES + 2).map(|number| note(number, 10)).collect();
        notes.written(&all);
        let mut taken = 0;
        while notes.is_due(at(10)) {
            taken += notes.take_expired(at(10), free).len();
        }
        assert_eq!(taken, limits::SETTLE_NOTES);
        assert!(!notes.is_idle() && !notes.must_search(at(9)) && notes.must_search(at(10)));
        assert_eq!(notes.read(&all[limits::SETTLE_NOTES..], at(10), free).len(), 2);
        assert!(notes.is_idle() && !notes.must_search(at(100)));
    }

    #[test]
    fn search_reads_all_pages_after_opening() {
        let mut notes = SettleNotes::unread();
        assert!(notes.is_idle() && notes.must_search(at(0)));
        assert_eq!(notes.search_position(), Some(None));
        let page: Vec<Note> = (0..limits::notes_page()).map(|number| note(number, 10)).collect();
        assert_eq!(notes.read(&page, at(10), free).len(), limits::notes_page());
        assert_eq!(notes.search_position(), Some(Some(page.last().unwrap().key.clone())));
        assert!(!notes.is_idle() && notes.must_search(at(0)));
        assert!(notes.read(&[note(9_999, 30)], at(10), free).is_empty());
        assert!(notes.search_position().is_none() && !notes.is_idle());
        assert_eq!(notes.take_expired(at(30), free), [key(9_999)]);
    }

    #[test]
    fn failed_removal_is_searched_for() {
        let mut notes = SettleNotes::default();
        notes.search_again();
        assert!(!notes.is_idle() && notes.must_search(at(0)));
        assert_eq!(notes.search_position(), Some(None));
    }
}
