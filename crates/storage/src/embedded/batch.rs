//! A batch as writes to the journal: all entries are looked up first, then written.
//!
//! Nothing is written before all look-ups have succeeded, so a failed read refuses the whole batch. The look-ups of entries
//! do not see writes of other work in the same group; that is safe because a slot has at most one batch in flight. A drop
//! may be in the same group: totals, buckets and readers of shared bodies are read with the writes before them.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::bodies::{BodyPlace, GoneReaders, LentChanges};
use super::buckets::TouchedBuckets;
use super::entries::{self, StoredBody, StoredEntry};
use super::failed;
use super::stored::{self, QueueTotals};
use crate::limits;
use crate::shared::{SharedBodies, is_shareable};
use crate::{Changes, Note, QueueChanges, RemoveHint, StoreError, Totals};
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Header, State};
use angarium_journal::{Space, Txn};

/// Whether the driver also looks up entries for which the owner gave a hint, and panics at a difference: in builds for
/// development and tests. It costs the read that the hint saves.
const VERIFIES_HINTS: bool = cfg!(any(debug_assertions, feature = "verify-hints"));

/// The changes of one queue, ready for the look-ups. Each id is in only one of the three lists: a message that the
/// batch appends and removes is only removed, and one that it appends and updates is appended with the update.
pub(super) struct EncodedChanges {
    queue: QueueId,
    low: MessageId,
    appends: Vec<NewEntry>,
    updates: Vec<Header>,
    /// In order.
    removes: Vec<MessageId>,
    /// Hints of the owner about removed entries.
    remove_hints: HashMap<MessageId, RemoveHint>,
    /// Removed notes, then written notes.
    notes: Vec<(Bytes, Option<Bytes>)>,
    touched: TouchedBuckets,
    /// The greatest id among the appends, also if the batch removes it again.
    pub(super) last_id: MessageId,
}

/// A new entry with its stored value.
struct NewEntry {
    header: Header,
    /// Bytes of its body.
    bytes: u64,
    is_shared: bool,
    value: Bytes,
}

/// The stored state of an entry.
struct StoredForm {
    group: Option<GroupName>,
    /// The stored header of an entry that is not ready.
    apart: Option<Header>,
    overlay: Overlay,
    bytes: u64,
    /// The body, if other entries have it too.
    shared: Option<BodyPlace>,
}

impl StoredForm {
    fn state(&self) -> &State {
        self.apart.as_ref().map_or(&State::Ready, |header| &header.state)
    }
}

/// Whether a changed header in space headers replaces the one in the entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overlay {
    None,
    Present,
}

/// The stored values that a batch needs.
pub(super) struct StoredKeys {
    totals: QueueTotals,
    /// With their bodies; none for an absent entry.
    updates: Vec<Option<(StoredForm, StoredBody)>>,
    removes: Vec<Option<StoredForm>>,
    buckets: Vec<(Bytes, Bytes)>,
}

/// Checks the sizes of notes, which no earlier layer checks.
pub(super) fn check_bounds(queue: &QueueChanges) -> Result<(), StoreError> {
    let fits =
        |note: &Note| note.key.len() <= limits::NOTE_KEY_BYTES && note.value.len() <= limits::NOTE_BYTES;
    if queue.changes.notes.iter().all(fits) {
        Ok(())
    } else {
        Err(StoreError::NotSent("a note is too long".to_owned()))
    }
}

impl EncodedChanges {
    /// Encodes the changes of a queue in a batch whose entries share some bodies.
    pub(super) fn new(queue: &QueueChanges, bodies: &SharedBodies<'_>) -> Self {
        let &QueueChanges { queue, low, ref changes } = queue;
        let removes = changes.sorted_removes();
        let stays = |id: &MessageId| removes.binary_search(id).is_err();
        let updates = changes.updates.iter().filter(|header| stays(&header.id));
        let mut updates: BTreeMap<MessageId, &Header> = updates.map(|header| (header.id, header)).collect();
        let mut touched = TouchedBuckets::default();
        let mut appends = Vec::with_capacity(changes.appends.len());
        for append in changes.appends.iter().filter(|append| stays(&append.header.id)) {
            let header = updates.remove(&append.header.id).unwrap_or(&append.header);
            touched.add(queue, header);
            let shared = bodies.of_append(append).map(BodyPlace::of);
            let value = match shared {
                Some(place) => entries::encode_entry(header, &StoredBody::Shared(place)),
                None => entries::encode_own(header, &append.body),
            };
            let (header, bytes) = (header.clone(), append.body.len() as u64);
            appends.push(NewEntry { header, bytes, is_shared: shared.is_some(), value });
        }
        for header in updates.values() {
            touched.add(queue, header);
        }
        Self {
            queue,
            low,
            appends,
            updates: updates.into_values().cloned().collect(),
            last_id: changes.appends.iter().map(|m| m.header.id).max().unwrap_or(MessageId::ZERO),
            removes,
            remove_hints: changes.remove_hints.iter().map(|hint| (hint.id, hint.clone())).collect(),
            notes: encode_notes(queue, changes),
            touched,
        }
    }

    pub(super) fn look_up(&self, txn: &Txn<'_>) -> Result<StoredKeys, StoreError> {
        let totals = txn.get(Space::Totals, self.queue.as_bytes()).map_err(failed)?;
        let totals = QueueTotals::decode(totals.as_ref())?;
        let updates = self.updates.iter().map(|header| find(txn, self.queue, header.id));
        let removes = self.removes.iter().map(|id| match self.remove_hints.get(id) {
            // A hint does not know whether the body is shared.
            Some(hint) if totals.totals.shared == 0 || !is_shareable(hint.bytes) => {
                find_hinted(txn, self.queue, hint).map(Some)
            }
            _ => find(txn, self.queue, *id).map(|found| found.map(|(stored, _)| stored)),
        });
        Ok(StoredKeys {
            totals,
            updates: updates.collect::<Result<_, _>>()?,
            removes: removes.collect::<Result<_, _>>()?,
            buckets: self.touched.merged(txn)?,
        })
    }

    /// Adds the readers of shared bodies that are removed to `gone`.
    pub(super) fn note_gone(known: &StoredKeys, gone: &mut GoneReaders) {
        known.removes.iter().flatten().filter_map(|stored| stored.shared).for_each(|shared| gone.add(shared));
    }

    /// Takes the change of the bytes that the queue lends out of `lent`.
    pub(super) fn lend(&self, known: &mut StoredKeys, lent: &mut LentChanges) {
        lent.apply(self.queue, &mut known.totals);
    }

    pub(super) fn write(self, txn: &mut Txn<'_>, known: StoredKeys) {
        let queue = self.queue;
        let mut totals = known.totals;
        totals.low = totals.low.max(self.low);
        for NewEntry { header, bytes, is_shared, value } in self.appends {
            count(&mut totals.totals, &header.state, bytes);
            totals.totals.shared += if is_shared { bytes } else { 0 };
            if let Some(group) = header.group.as_ref().filter(|_| !header.state.is_kept()) {
                txn.put(Space::Groups, stored::group_key(queue, group, header.id), Bytes::new());
            }
            put_entry(txn, queue, &header, value, &mut totals.low);
        }
        for (header, found) in self.updates.iter().zip(known.updates) {
            if let Some((found, body)) = found {
                update(txn, queue, header, found, &body, &mut totals);
            }
        }
        for (id, stored) in self.removes.into_iter().zip(known.removes) {
            if let Some(stored) = stored {
                remove(txn, queue, id, &stored, &mut totals.totals);
                let shared = stored.shared.map_or(0, |place| place.bytes.into());
                totals.totals.shared = totals.totals.shared.saturating_sub(shared);
            }
        }
        for (key, value) in known.buckets {
            txn.put(Space::Buckets, key, value);
        }
        for (key, value) in self.notes {
            match value {
                Some(value) => txn.put(Space::Notes, key, value),
                None => txn.remove(Space::Notes, key),
            }
        }
        txn.put(Space::Totals, Bytes::copy_from_slice(queue.as_bytes()), totals.encode());
    }
}

fn encode_notes(queue: QueueId, changes: &Changes) -> Vec<(Bytes, Option<Bytes>)> {
    let key = |kind, name: &Bytes| stored::note_key(queue, kind, name);
    let kept = changes.notes.iter().map(|note| (key(note.kind, &note.key), Some(stored::encode_note(note))));
    let gone = changes.note_removes.iter().map(|(kind, name)| (key(*kind, name), None));
    gone.chain(kept).collect()
}

/// Looks up an entry in spaces entries, aside and kept.
fn find(
    txn: &Txn<'_>,
    queue: QueueId,
    id: MessageId,
) -> Result<Option<(StoredForm, StoredBody)>, StoreError> {
    let key = stored::entry_key(queue, id);
    if let Some(value) = txn.get(Space::Entries, &key).map_err(failed)? {
        let StoredEntry { header, body } = entries::decode_entry(id, &value)?;
        let (bytes, shared, overlay) = (body.bytes(), body.shared(), overlay(txn, &key)?);
        return Ok(Some((StoredForm { group: header.group, apart: None, overlay, bytes, shared }, body)));
    }
    let value = match txn.get(Space::Aside, &key).map_err(failed)? {
        Some(value) => Some(value),
        None => txn.get(Space::Kept, &key).map_err(failed)?,
    };
    let Some(value) = value else { return Ok(None) };
    let StoredEntry { header, body } = entries::decode_entry(id, &value)?;
    let (header, overlay) = match txn.get(Space::Headers, &key).map_err(failed)? {
        Some(changed) => (entries::decode_header(id, &changed)?, Overlay::Present),
        None => (header, Overlay::None),
    };
    let (group, bytes, shared) = (header.group.clone(), body.bytes(), body.shared());
    Ok(Some((StoredForm { group, apart: Some(header), overlay, bytes, shared }, body)))
}

/// The stored form of a ready entry by the hint of its owner. The entry is not read; only whether its header was changed
/// is looked up.
fn find_hinted(txn: &Txn<'_>, queue: QueueId, hint: &RemoveHint) -> Result<StoredForm, StoreError> {
    if VERIFIES_HINTS {
        assert!(is_right(txn, queue, hint)?, "the pool has it otherwise: {hint:?}");
    }
    let overlay = overlay(txn, &stored::entry_key(queue, hint.id))?;
    Ok(StoredForm { group: hint.group.clone(), apart: None, overlay, bytes: hint.bytes, shared: None })
}

/// Whether an entry is stored as the hint states.
fn is_right(txn: &Txn<'_>, queue: QueueId, hint: &RemoveHint) -> Result<bool, StoreError> {
    let found = find(txn, queue, hint.id)?;
    Ok(found.is_some_and(|(stored, _)| {
        stored.apart.is_none()
            && stored.shared.is_none()
            && stored.group == hint.group
            && stored.bytes == hint.bytes
    }))
}

fn overlay(txn: &Txn<'_>, key: &[u8]) -> Result<Overlay, StoreError> {
    let changed = txn.size_of(Space::Headers, key).map_err(failed)?;
    Ok(if changed.is_some() { Overlay::Present } else { Overlay::None })
}

pub(super) fn count(totals: &mut Totals, state: &State, bytes: u64) {
    totals.messages += 1;
    totals.bytes += bytes;
    match state {
        State::Ready => {}
        State::Scheduled => totals.scheduled += 1,
        State::Prepared(_) | State::Moving(_) | State::NoTarget => totals.in_transfer += 1,
        State::Done | State::Failed => totals.kept += 1,
    }
}

fn uncount(totals: &mut Totals, state: &State, bytes: u64) {
    totals.messages = totals.messages.saturating_sub(1);
    totals.bytes = totals.bytes.saturating_sub(bytes);
    match state {
        State::Ready => {}
        State::Scheduled => totals.scheduled = totals.scheduled.saturating_sub(1),
        State::Prepared(_) | State::Moving(_) | State::NoTarget => {
            totals.in_transfer = totals.in_transfer.saturating_sub(1);
        }
        State::Done | State::Failed => totals.kept = totals.kept.saturating_sub(1),
    }
}

fn put_entry(txn: &mut Txn<'_>, queue: QueueId, header: &Header, value: Bytes, low: &mut MessageId) {
    let key = stored::entry_key(queue, header.id);
    if header.state == State::Ready {
        *low = (*low).min(header.id);
    }
    if let Some((space, key)) = stored::ordered_key(queue, header) {
        txn.put(space, key, Bytes::new());
    }
    txn.put(stored::space(&header.state), key, value);
}

/// Writes a header: into headers if the entry stays in its space, otherwise with its body into the other space.
fn update(
    txn: &mut Txn<'_>,
    queue: QueueId,
    header: &Header,
    found: StoredForm,
    body: &StoredBody,
    totals: &mut QueueTotals,
) {
    let (space, next) = (stored::space(found.state()), stored::space(&header.state));
    if space == next {
        if let Some(old) = &found.apart {
            uncount(&mut totals.totals, &old.state, found.bytes);
            count(&mut totals.totals, &header.state, found.bytes);
            reorder(txn, queue, old, header);
        }
        let key = stored::entry_key(queue, header.id);
        return txn.put(Space::Headers, key, entries::encode_header(header));
    }
    if let Some(group) = &found.group {
        let key = stored::group_key(queue, group, header.id);
        match (space, next) {
            (Space::Kept, _) => txn.put(Space::Groups, key, Bytes::new()),
            (_, Space::Kept) => txn.remove(Space::Groups, key),
            (_, _) => {}
        }
    }
    take_out(txn, queue, header.id, &found, &mut totals.totals);
    count(&mut totals.totals, &header.state, found.bytes);
    put_entry(txn, queue, header, entries::encode_entry(header, body), &mut totals.low);
}

/// Moves the key by time of an entry that stays in its space.
fn reorder(txn: &mut Txn<'_>, queue: QueueId, old: &Header, header: &Header) {
    let (old, new) = (stored::ordered_key(queue, old), stored::ordered_key(queue, header));
    if old == new {
        return;
    }
    if let Some((space, key)) = old {
        txn.remove(space, key);
    }
    if let Some((space, key)) = new {
        txn.put(space, key, Bytes::new());
    }
}

/// Removes an entry from all spaces.
fn remove(txn: &mut Txn<'_>, queue: QueueId, id: MessageId, stored: &StoredForm, totals: &mut Totals) {
    if let Some(group) = stored.group.as_ref().filter(|_| !stored.state().is_kept()) {
        txn.remove(Space::Groups, stored::group_key(queue, group, id));
    }
    take_out(txn, queue, id, stored, totals);
}

/// Removes an entry from the space of its state, with its changed header and its key by time.
fn take_out(txn: &mut Txn<'_>, queue: QueueId, id: MessageId, stored: &StoredForm, totals: &mut Totals) {
    let key = stored::entry_key(queue, id);
    uncount(totals, stored.state(), stored.bytes);
    if let Some((space, key)) = stored.apart.as_ref().and_then(|old| stored::ordered_key(queue, old)) {
        txn.remove(space, key);
    }
    txn.remove(stored::space(stored.state()), key.clone());
    if stored.overlay == Overlay::Present {
        txn.remove(Space::Headers, key);
    }
}
