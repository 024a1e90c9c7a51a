//! Batches as parameters of a statement: one array for each column. This file decides which change of an entry remains
//! when a batch has several.

use std::collections::{BTreeMap, HashSet};

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::stored::{
    encode_extras, encode_peer, id_key, life_columns, millis, number, queue_key, seq, state_number,
};
use crate::limits;
use crate::shared::SharedBodies;
use crate::{Batch, Note, QueueChanges, StoreError};
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, State};

/// Checks the sizes of notes, which no earlier layer checks.
pub(super) fn check_bounds(batch: &Batch) -> Result<(), StoreError> {
    let fits =
        |note: &Note| note.key.len() <= limits::NOTE_KEY_BYTES && note.value.len() <= limits::NOTE_BYTES;
    if batch.queues.iter().flat_map(|queue| &queue.changes.notes).all(fits) {
        Ok(())
    } else {
        Err(StoreError::NotSent("a note is too long".to_owned()))
    }
}

/// The records on which batches depend, one array for each column.
#[derive(Default)]
struct Records {
    slot: Vec<i16>,
    generation: Vec<i64>,
    transaction: Vec<i64>,
    seq: Vec<i64>,
    fences: Vec<Option<i64>>,
    /// The greatest id among the appends, also if the batch removes it again.
    last_id: Vec<Uuid>,
}

/// Headers, one array for each column.
#[derive(Default)]
struct Headers {
    slot: Vec<i16>,
    queue: Vec<Uuid>,
    id: Vec<Uuid>,
    state: Vec<i16>,
    created: Vec<i64>,
    ready: Vec<i64>,
    expires: Vec<i64>,
    ttl: Vec<i32>,
    attempts: Vec<i32>,
    size: Vec<i32>,
    client: Vec<Option<Uuid>>,
    peer: Vec<Option<Vec<u8>>>,
    group: Vec<Option<String>>,
    first_claimed: Vec<Option<i64>>,
    extras: Vec<Option<Vec<u8>>>,
}

impl Headers {
    fn push(&mut self, slot: Slot, queue: QueueId, header: &Header) {
        self.slot.push(slot.0.into());
        self.queue.push(queue_key(queue));
        self.id.push(id_key(header.id));
        self.state.push(state_number(&header.state));
        self.created.push(millis(header.created));
        self.ready.push(millis(header.ready));
        let (ttl, expires) = life_columns(queue, header.life);
        self.expires.push(expires);
        self.ttl.push(ttl);
        self.attempts.push(header.attempts.cast_signed());
        self.size.push(header.size.cast_signed());
        self.client.push(header.client);
        self.peer.push(encode_peer(&header.state));
        self.group.push(header.group.as_ref().map(ToString::to_string));
        self.first_claimed.push(header.first_claimed.map(millis));
        self.extras.push(encode_extras(header));
    }

    /// All columns but the group, which never changes.
    fn columns(&self) -> [&(dyn ToSql + Sync); 14] {
        let Self { slot, queue, id, state, created, ready, expires, ttl, attempts, size, client, .. } = self;
        let (peer, first, extras) = (&self.peer, &self.first_claimed, &self.extras);
        [slot, queue, id, state, created, ready, expires, ttl, attempts, size, client, peer, first, extras]
    }
}

/// The queues of the batches, and lower bounds of their heads.
#[derive(Default)]
struct Queues {
    slot: Vec<i16>,
    queue: Vec<Uuid>,
    low: Vec<Uuid>,
    /// The smallest id that becomes ready.
    min_ready: Vec<Uuid>,
}

#[derive(Default)]
struct Notes<'a> {
    slot: Vec<i16>,
    queue: Vec<Uuid>,
    kind: Vec<i16>,
    key: Vec<&'a [u8]>,
    value: Vec<&'a [u8]>,
    expires: Vec<i64>,
}

/// Bodies that several appends share, one array for each column.
#[derive(Default)]
struct NewBodies<'a> {
    slot: Vec<i16>,
    id: Vec<Uuid>,
    readers: Vec<i32>,
    lender: Vec<Uuid>,
    body: Vec<&'a [u8]>,
}

impl<'a> NewBodies<'a> {
    fn push(&mut self, slot: Slot, bodies: &SharedBodies<'a>) {
        for shared in bodies.iter() {
            self.slot.push(slot.0.into());
            self.id.push(Uuid::from_bytes(shared.id));
            self.readers.push(shared.lasting.cast_signed());
            self.lender.push(queue_key(shared.lender));
            self.body.push(shared.body);
        }
    }
}

/// The arrays of batches of different slots. Each id is in only one of appends, updates and removes: a message that a
/// batch appends and removes is only removed, and one that it appends and updates is appended with the update. The same
/// applies to notes.
#[derive(Default)]
pub(super) struct Arrays<'a> {
    records: Records,
    queues: Queues,
    appends: Headers,
    /// The bodies of the appends; none for a shared one.
    bodies: Vec<Option<&'a [u8]>>,
    /// The ids of the shared bodies of the appends; none for an own one.
    shared: Vec<Option<Uuid>>,
    new_bodies: NewBodies<'a>,
    updates: Headers,
    remove_slots: Vec<i16>,
    remove_queues: Vec<Uuid>,
    removes: Vec<Uuid>,
    notes: Notes<'a>,
    note_removes: Notes<'a>,
}

impl<'a> Arrays<'a> {
    /// Adds a batch; its slot is above those of the earlier ones. With `fences`, the batch is refused if the slot was
    /// fenced since.
    pub(super) fn add(&mut self, batch: &'a Batch, fences: Option<i64>) -> Result<(), StoreError> {
        self.records.transaction.push(number(batch.epoch.transaction)?);
        self.records.generation.push(batch.epoch.generation.into());
        self.records.slot.push(batch.slot.0.into());
        self.records.seq.push(seq(batch.seq));
        self.records.fences.push(fences);
        let appended = batch.queues.iter().flat_map(|queue| &queue.changes.appends);
        let last_id = appended.map(|message| message.header.id).max();
        self.records.last_id.push(last_id.map_or(Uuid::nil(), id_key));
        let bodies = SharedBodies::of(batch);
        for changes in &batch.queues {
            self.add_entries(batch.slot, changes, &bodies);
            self.add_notes(batch.slot, changes);
        }
        self.new_bodies.push(batch.slot, &bodies);
        Ok(())
    }

    fn add_entries(&mut self, slot: Slot, queue: &'a QueueChanges, bodies: &SharedBodies<'_>) {
        let &QueueChanges { queue, low, ref changes } = queue;
        let removes: HashSet<MessageId> = changes.removes.iter().copied().collect();
        let stays = |header: &&Header| !removes.contains(&header.id);
        let updates = changes.updates.iter().filter(stays);
        let mut updates: BTreeMap<MessageId, &Header> = updates.map(|header| (header.id, header)).collect();
        let mut min_ready = MessageId::MAX;
        for message in &changes.appends {
            if !stays(&&message.header) {
                continue;
            }
            let header = updates.remove(&message.header.id).unwrap_or(&message.header);
            if header.state == State::Ready {
                min_ready = min_ready.min(header.id);
            }
            self.appends.push(slot, queue, header);
            let shared = bodies.of_append(message).map(|shared| Uuid::from_bytes(shared.id));
            self.bodies.push(shared.is_none().then_some(&message.body[..]));
            self.shared.push(shared);
        }
        for header in updates.into_values() {
            if header.state == State::Ready {
                min_ready = min_ready.min(header.id);
            }
            self.updates.push(slot, queue, header);
        }
        self.remove_slots.extend(removes.iter().map(|_| i16::from(slot.0)));
        self.remove_queues.extend(removes.iter().map(|_| queue_key(queue)));
        self.removes.extend(removes.into_iter().map(id_key));
        self.queues.slot.push(slot.0.into());
        self.queues.queue.push(queue_key(queue));
        self.queues.low.push(id_key(low));
        self.queues.min_ready.push(id_key(min_ready));
    }

    fn add_notes(&mut self, slot: Slot, queue: &'a QueueChanges) {
        let &QueueChanges { queue, ref changes, .. } = queue;
        let kept = changes.notes.iter().map(|note| ((note.kind, &note.key[..]), Some(note)));
        let gone = changes.note_removes.iter().map(|(kind, key)| ((*kind, &key[..]), None));
        let last: BTreeMap<(u8, &[u8]), Option<&Note>> = gone.chain(kept).collect();
        for ((kind, key), note) in last {
            let notes = if note.is_some() { &mut self.notes } else { &mut self.note_removes };
            notes.slot.push(slot.0.into());
            notes.queue.push(queue_key(queue));
            notes.kind.push(kind.into());
            notes.key.push(key);
            if let Some(note) = note {
                notes.value.push(&note.value);
                notes.expires.push(millis(note.expires));
            }
        }
    }

    /// Whether the batches only post and delete, and their posts share no bodies.
    pub(super) fn is_plain(&self) -> bool {
        let Self { updates, notes, note_removes, new_bodies, .. } = self;
        updates.id.is_empty()
            && notes.key.is_empty()
            && note_removes.key.is_empty()
            && new_bodies.id.is_empty()
    }

    /// The parameters of the statement, in its order, for the pool and the commit mode.
    pub(super) fn parameters<'p>(
        &'p self,
        pool: &'p Uuid,
        commits: &'p Option<&'static str>,
    ) -> Vec<&'p (dyn ToSql + Sync)> {
        let Records { slot, generation, transaction, seq, fences, last_id } = &self.records;
        let mut columns: Vec<&(dyn ToSql + Sync)> =
            vec![slot, pool, generation, transaction, seq, fences, last_id, commits];
        let Queues { slot, queue, low, min_ready } = &self.queues;
        columns.extend([slot as &(dyn ToSql + Sync), queue, low, min_ready]);
        columns.extend([&self.remove_slots as &(dyn ToSql + Sync), &self.remove_queues, &self.removes]);
        columns.extend(self.appends.columns());
        columns.extend([&self.appends.group as &(dyn ToSql + Sync), &self.bodies, &self.shared]);
        if self.is_plain() {
            return columns;
        }
        columns.extend(self.updates.columns());
        let Notes { slot, queue, kind, key, value, expires } = &self.notes;
        columns.extend([slot as &(dyn ToSql + Sync), queue, kind, key, value, expires]);
        let Notes { slot, queue, kind, key, .. } = &self.note_removes;
        columns.extend([slot as &(dyn ToSql + Sync), queue, kind, key]);
        let NewBodies { slot, id, readers, lender, body } = &self.new_bodies;
        columns.extend([slot as &(dyn ToSql + Sync), id, readers, lender, body]);
        columns
    }
}
