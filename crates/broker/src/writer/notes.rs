//! The notes of a queue that the broker keeps in pools: their kinds, keys and values.

use bytes::Bytes;

use angarium_core::dedup::DedupKey;
use angarium_core::ids::MessageId;
use angarium_core::time::Timestamp;
use angarium_storage::Note;

/// The kind of the note of the last copied messages. Stored in pools; must never change.
pub(crate) const COPIED_KIND: u8 = 2;

pub(crate) const KEY: &[u8] = b"copied";

/// Kind and key of that note. Its value is the ids of the messages, 16 bytes each.
pub(crate) fn copied_note_name() -> (u8, Bytes) {
    (COPIED_KIND, Bytes::from_static(KEY))
}

/// The note of messages that were copied together.
pub(crate) fn copied_note(ids: &[MessageId], expires: Timestamp) -> Note {
    let (kind, key) = copied_note_name();
    Note { kind, key, value: ids.iter().flat_map(|id| *id.as_bytes()).collect(), expires }
}

/// The kind of the notes of deduplication ids. Stored in pools; must never change.
pub(crate) const DEDUP_KIND: u8 = 1;

/// Kind and key of the note of a deduplication id.
pub(crate) fn dedup_note_name(key: &DedupKey) -> (u8, Bytes) {
    (DEDUP_KIND, Bytes::copy_from_slice(key.as_bytes()))
}

pub(crate) fn dedup_note(key: &DedupKey, id: MessageId, expires: Timestamp) -> Note {
    let (kind, key) = dedup_note_name(key);
    Note { kind, key, value: Bytes::copy_from_slice(id.as_bytes()), expires }
}

/// Reads a note of a deduplication id; none when the note has another form.
pub(crate) fn read_dedup_note(note: &Note) -> Option<(DedupKey, MessageId)> {
    let key = DedupKey::from_bytes(note.key[..].try_into().ok()?);
    Some((key, MessageId::from_bytes(note.value[..].try_into().ok()?)))
}
