//! The notes of a queue that the broker keeps in pools: their kinds, keys and values.

use bytes::Bytes;

use angarium_core::dedup::DedupKey;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::settle::{MessageState, Settled};
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

/// The kind of the notes of settles. Stored in pools; must never change.
pub(crate) const SETTLE_KIND: u8 = 3;

/// A settle: the claim, and the message that its holder settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SettleKey {
    pub(crate) claim: ClaimId,
    pub(crate) message: MessageId,
}

/// Kind and key of the note of a settle: the id of the claim, then that of the message (16 + 16).
pub(crate) fn settle_note_name(key: &SettleKey) -> (u8, Bytes) {
    (SETTLE_KIND, [&key.claim.as_bytes()[..], &key.message.as_bytes()[..]].concat().into())
}

/// The key before that of a settle, for a read that begins after it.
pub(crate) fn before_settle_note(key: &SettleKey) -> Bytes {
    let (_, name) = settle_note_name(key);
    let mut before = name.to_vec();
    for byte in before.iter_mut().rev() {
        let (less, borrows) = byte.overflowing_sub(1);
        *byte = less;
        if !borrows {
            break;
        }
    }
    before.into()
}

/// The note of a settle. Its value is the state of the message, then the ids of its forwards (1 + 16 each).
pub(crate) fn settle_note(key: &SettleKey, settled: &Settled, expires: Timestamp) -> Note {
    let (kind, key) = settle_note_name(key);
    let state = match settled.state {
        MessageState::Done => 0,
        MessageState::InTransfer => 1,
        MessageState::Failed => 2,
        MessageState::Ready => 3,
        MessageState::Delayed => 4,
        MessageState::Claimed => 5,
        MessageState::Held => 6,
    };
    let ids = settled.ids.iter().flat_map(|id| *id.as_bytes());
    Note { kind, key, value: std::iter::once(state).chain(ids).collect(), expires }
}

/// Reads a note of a settle; none when the note has another form.
pub(crate) fn read_settle_note(note: &Note) -> Option<(SettleKey, Settled)> {
    let (claim, message) = note.key.split_at_checked(16)?;
    let claim = ClaimId::from_bytes(claim.try_into().ok()?);
    let key = SettleKey { claim, message: MessageId::from_bytes(message.try_into().ok()?) };
    let (state, ids) = note.value.split_first()?;
    let state = match state {
        0 => MessageState::Done,
        1 => MessageState::InTransfer,
        2 => MessageState::Failed,
        3 => MessageState::Ready,
        4 => MessageState::Delayed,
        5 => MessageState::Claimed,
        6 => MessageState::Held,
        _ => return None,
    };
    let ids = ids.chunks(16).map(|id| id.try_into().ok().map(MessageId::from_bytes));
    Some((key, Settled { state, ids: ids.collect::<Option<_>>()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settle_note_survives_its_stored_form() {
        let bytes = |last: u8| std::array::from_fn(|at| if at == 15 { last } else { 7 });
        let key =
            SettleKey { claim: ClaimId::from_bytes(bytes(1)), message: MessageId::from_bytes(bytes(0)) };
        for ids in [vec![], vec![MessageId::from_bytes(bytes(2)), MessageId::from_bytes(bytes(3))]] {
            let settled = Settled { state: MessageState::InTransfer, ids };
            let note = settle_note(&key, &settled, Timestamp::default());
            assert_eq!(read_settle_note(&note), Some((key, settled)));
            assert!(before_settle_note(&key) < note.key);
            assert_eq!(before_settle_note(&key).last(), Some(&255));
        }
    }
}
