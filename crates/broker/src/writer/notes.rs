//! The notes of a queue that the broker keeps in pools: their kinds, keys and values.

use bytes::Bytes;

use angarium_core::dedup::DedupKey;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::overflow::{Gap, Omissions};
use angarium_core::quota::Amount;
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

/// The kind of the note of a fill. Stored in pools; must never change.
pub(crate) const FILL_KIND: u8 = 5;

/// How far messages of the source are copied, page by page, to the queue of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FillProgress {
    /// Messages up to this position are copied so: an id that no message has.
    pub(crate) end: MessageId,
    /// Messages with ids up to this one are copied.
    pub(crate) after: MessageId,
    /// The pass over a gap that it is. None while the messages are copied that waited when the subscription was created:
    /// then posts behind the end bring their copies.
    pub(crate) pass: Option<GapPass>,
}

/// A pass over the messages that a suspended subscription was left out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GapPass {
    /// The position at which the gap begins, which tells it from others.
    pub(crate) gap: MessageId,
    /// Messages from this position on are copied.
    pub(crate) from: MessageId,
    /// The room that the last pass keeps for its messages, while posts behind the end bring their copies again. None in an
    /// earlier pass: these are left out.
    pub(crate) room: Option<Amount>,
    /// Messages of the gap that are copied.
    pub(crate) copied: u64,
    /// Messages of earlier gaps that were copied.
    pub(crate) copied_before: u64,
}

impl GapPass {
    /// That of a subscription which was never suspended.
    pub(crate) const NONE: Self =
        Self { gap: MessageId::ZERO, from: MessageId::ZERO, room: None, copied: 0, copied_before: 0 };
}

impl FillProgress {
    /// A fill with the messages that wait when a subscription is created, before its begin.
    pub(crate) const NONE: Self = Self { end: MessageId::ZERO, after: MessageId::ZERO, pass: None };

    pub(crate) fn is_over(&self) -> bool {
        self.after >= self.end
    }

    /// The later one of the notes of two pools: each pass ends behind the one before, and each page behind the one before.
    pub(crate) fn later(self, other: Self) -> Self {
        if (other.end, other.after) >= (self.end, self.after) { other } else { self }
    }

    /// Whether posts behind the end bring their copies.
    pub(crate) fn is_joined(&self) -> bool {
        self.pass.is_none_or(|pass| pass.room.is_some())
    }

    /// Whether a message at this position is copied so.
    pub(crate) fn covers(&self, position: MessageId) -> bool {
        position <= self.end && self.pass.is_none_or(|pass| position >= pass.from)
    }
}

/// The note of a fill, which stays as long as the queue. Its value: the end, and the last copied id (16 + 16); of a pass
/// over a gap also where the gap and the pass begin (16 + 16), the copied messages of it and of earlier ones (8 + 8), and
/// whether it is the last pass, with the messages and bytes that it keeps room for (1 + 8 + 8).
pub(crate) fn fill_note(FillProgress { end, after, pass }: FillProgress) -> Note {
    let mut value = [&end.as_bytes()[..], &after.as_bytes()[..]].concat();
    if let Some(GapPass { gap, from, room, copied, copied_before }) = pass {
        value.extend(gap.as_bytes());
        value.extend(from.as_bytes());
        value.extend(copied.to_be_bytes());
        value.extend(copied_before.to_be_bytes());
        value.push(u8::from(room.is_some()));
        let Amount { messages, bytes } = room.unwrap_or_default();
        value.extend(messages.to_be_bytes());
        value.extend(bytes.to_be_bytes());
    }
    Note { kind: FILL_KIND, key: Bytes::from_static(b"fill"), value: value.into(), expires: Timestamp::NEVER }
}

/// Reads a note of a fill; none when the note has another form.
pub(crate) fn read_fill_note(note: &Note) -> Option<FillProgress> {
    let mut rest = &note.value[..];
    let (end, after) = (take_id(&mut rest)?, take_id(&mut rest)?);
    if rest.is_empty() {
        return Some(FillProgress { end, after, pass: None });
    }
    let (gap, from) = (take_id(&mut rest)?, take_id(&mut rest)?);
    let (copied, copied_before) = (take_number(&mut rest)?, take_number(&mut rest)?);
    let is_last = take::<1>(&mut rest)? != [0];
    let room = Amount { messages: take_number(&mut rest)?, bytes: take_number(&mut rest)? };
    let pass = GapPass { gap, from, room: is_last.then_some(room), copied, copied_before };
    rest.is_empty().then_some(FillProgress { end, after, pass: Some(pass) })
}

/// The kind of the note of the messages that a subscription did not get. Stored in pools; must never change.
pub(crate) const OMISSIONS_KIND: u8 = 4;

/// Its key, the only one of its kind.
const OMISSIONS_KEY: &[u8] = b"omissions";

/// The messages that a subscription did not get, as its pool has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OmissionsNote {
    /// All of them, also the ones that were copied later.
    pub(crate) omissions: Omissions,
    /// Whether it was suspended when this was written.
    pub(crate) is_suspended: bool,
    /// Where the messages of the gap are. None when the source keeps none.
    pub(crate) span: Option<GapSpan>,
}

/// Where the messages of a gap are in the source. The position of a message is its id; one that came from another queue
/// has the position at which it arrived, and an id before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GapSpan {
    /// The position of the first one.
    pub(crate) from: MessageId,
    /// The position of the last one.
    pub(crate) last: MessageId,
    /// The least id of the ones that came from other queues; [`MessageId::MAX`] without any.
    pub(crate) lowest: MessageId,
}

impl OmissionsNote {
    /// The later one of the notes of two pools: each change counts more messages, or ends a suspension.
    pub(crate) fn later(self, other: Self) -> Self {
        let order = |note: &Self| {
            let Omissions { left_out, dropped, .. } = note.omissions;
            (left_out.saturating_add(dropped), !note.is_suspended)
        };
        if order(&other) >= order(&self) { other } else { self }
    }

    /// The note. Its value: whether it is suspended (1), left out (8), dropped (8); and with a gap its begin in
    /// milliseconds (8), its first and last id (16 + 16), its messages (8), and the three ids of its span (16 each), if it
    /// has one.
    pub(crate) fn note(&self) -> Note {
        let Omissions { left_out, dropped, gap } = self.omissions;
        let mut value = vec![u8::from(self.is_suspended)];
        value.extend(left_out.to_be_bytes());
        value.extend(dropped.to_be_bytes());
        if let Some(Gap { since, first, last, messages }) = gap {
            value.extend(since.as_millis().to_be_bytes());
            value.extend(first.as_bytes());
            value.extend(last.as_bytes());
            value.extend(messages.to_be_bytes());
            if let Some(GapSpan { from, last, lowest }) = self.span {
                [from, last, lowest].iter().for_each(|id| value.extend(id.as_bytes()));
            }
        }
        let key = Bytes::from_static(OMISSIONS_KEY);
        Note { kind: OMISSIONS_KIND, key, value: value.into(), expires: Timestamp::NEVER }
    }

    /// Reads the note; none for another note, or when it has another form.
    pub(crate) fn read(note: &Note) -> Option<Self> {
        if note.kind != OMISSIONS_KIND {
            return None;
        }
        let mut rest = &note.value[..];
        let is_suspended = take::<1>(&mut rest)? != [0];
        let (left_out, dropped) = (take_number(&mut rest)?, take_number(&mut rest)?);
        let (mut gap, mut span) = (None, None);
        if !rest.is_empty() {
            let since = Timestamp::from_millis(take_number(&mut rest)?);
            let (first, last) = (take_id(&mut rest)?, take_id(&mut rest)?);
            gap = Some(Gap { since, first, last, messages: take_number(&mut rest)? });
        }
        if !rest.is_empty() {
            let (from, last) = (take_id(&mut rest)?, take_id(&mut rest)?);
            span = Some(GapSpan { from, last, lowest: take_id(&mut rest)? });
        }
        let omissions = Omissions { left_out, dropped, gap };
        rest.is_empty().then_some(Self { omissions, is_suspended, span })
    }
}

/// Takes the first bytes of a value.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_be_bytes)
}

fn take_id(rest: &mut &[u8]) -> Option<MessageId> {
    take(rest).map(MessageId::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_note_survives_its_stored_form() {
        let id = |byte| MessageId::from_bytes([byte; 16]);
        let pass = GapPass { gap: id(1), from: id(2), room: None, copied: 5, copied_before: 6 };
        let last = GapPass { room: Some(Amount { messages: 3, bytes: 4 }), ..pass };
        for (pass, is_joined) in [(None, true), (Some(pass), false), (Some(last), true)] {
            let progress = FillProgress { end: id(7), after: id(3), pass };
            let note = fill_note(progress);
            assert_eq!(read_fill_note(&note), Some(progress));
            assert_eq!(read_fill_note(&Note { value: note.value.slice(1..), ..note }), None);
            assert!(!progress.is_over() && FillProgress { after: id(7), ..progress }.is_over());
            assert_eq!(progress.is_joined(), is_joined);
            assert_eq!((progress.covers(id(7)), progress.covers(id(8))), (true, false));
            assert_eq!(progress.covers(id(1)), pass.is_none());
        }
    }

    #[test]
    fn omissions_survive_their_stored_form() {
        let id = |last: u8| MessageId::from_bytes([last; 16]);
        let since = Timestamp::from_millis(7);
        let gap = Gap { since, first: id(1), last: id(2), messages: 3 };
        let span = GapSpan { from: id(4), last: id(6), lowest: id(3) };
        for (is_suspended, gap, span) in
            [(true, Some(gap), Some(span)), (false, Some(gap), None), (false, None, None)]
        {
            let omissions = Omissions { left_out: 5, dropped: u64::MAX, gap };
            let noted = OmissionsNote { omissions, is_suspended, span };
            let note = noted.note();
            assert_eq!(OmissionsNote::read(&note), Some(noted));
            let cut = Note { value: note.value.slice(1..), ..note.clone() };
            assert_eq!(OmissionsNote::read(&cut), None);
            assert_eq!(OmissionsNote::read(&Note { kind: SETTLE_KIND, ..note }), None);
        }
    }

    #[test]
    fn later_one_of_two_notes_counts() {
        let id = |byte| MessageId::from_bytes([byte; 16]);
        let page = |end, after| FillProgress { end: id(end), after: id(after), pass: None };
        for (earlier, later) in [(page(5, 1), page(5, 2)), (page(5, 5), page(7, 1))] {
            assert_eq!((earlier.later(later), later.later(earlier)), (later, later));
        }
        let note = |left_out, dropped, is_suspended| {
            let omissions = Omissions { left_out, dropped, gap: None };
            OmissionsNote { omissions, is_suspended, span: None }
        };
        let suspended = note(3, 1, true);
        for later in [note(4, 1, true), note(3, 2, true), note(3, 1, false)] {
            assert_eq!((suspended.later(later), later.later(suspended)), (later, later));
        }
    }

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
