//! A batch as a call of its script: keys and arguments in the order in which `lua/commit.lua` reads them.

use std::collections::BTreeMap;

use redis::Cmd;

use super::scripts::{APPEND, COMMIT, Script};
use super::stored::{self, Bucket, HEADER_FORM, Keys, Numbering, QUEUE_KEYS, SLOT_KEYS, StoredBody};
use crate::limits;
use crate::shared::SharedBodies;
use crate::{Batch, Changes, Note, Position, QueueChanges, StoreError, header};
use angarium_core::ids::QueueId;
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

/// Returns the call that applies a batch.
pub(super) fn call(batch: &Batch, own: Option<Numbering>, keys: &Keys) -> (&'static Script, Cmd) {
    let script: &Script = if batch.needs_room() { &APPEND } else { &COMMIT };
    (script, call_of(script, batch, own, keys))
}

/// Returns the call that repeats an applied batch. It also runs when the memory is full, so it must not be sent for a
/// batch that was not applied.
pub(super) fn repeat(batch: &Batch, own: Option<Numbering>, keys: &Keys) -> (&'static Script, Cmd) {
    (&COMMIT, call_of(&COMMIT, batch, own, keys))
}

/// `own` is the numbering that this process began when it fenced the slot.
fn call_of(script: &Script, batch: &Batch, own: Option<Numbering>, keys: &Keys) -> Cmd {
    let mut names = Vec::with_capacity(SLOT_KEYS + QUEUE_KEYS * batch.queues.len());
    names.extend(keys.slot_keys(batch.slot));
    names.extend(batch.queues.iter().flat_map(|queue| keys.queue_keys(queue.queue)));
    let mut call = script.call(&names);
    let before = batch.seq.checked_sub(1).map_or("none".to_owned(), stored::encode_seq);
    let appended = batch.queues.iter().flat_map(|queue| &queue.changes.appends);
    let max = appended.map(|message| message.header.id).max();
    call.arg(stored::encode_epoch(batch.epoch))
        .arg(before)
        .arg(stored::encode_seq(batch.seq))
        .arg(max.map(stored::encode_hex_id).unwrap_or_default())
        .arg(own.map(Numbering::encode).unwrap_or_default());
    let bodies = SharedBodies::of(batch);
    call.arg(bodies.len());
    for shared in bodies.iter() {
        // The script writes all appends, and counts the removed ones down.
        call.arg(&shared.id[..]).arg(shared.appends);
        call.arg(&shared.lender.as_bytes()[..]).arg(&shared.body[..]);
    }
    for changes in &batch.queues {
        add_queue(&mut call, changes, &bodies);
    }
    call
}

/// Adds the changes of a queue in a batch whose entries share some bodies.
fn add_queue(call: &mut Cmd, queue: &QueueChanges, bodies: &SharedBodies<'_>) {
    let QueueChanges { queue, changes, .. } = queue;
    call.arg(&queue.as_bytes()[..]).arg(changes.bytes());
    let mut value = Vec::new();
    call.arg(changes.appends.len());
    for message in &changes.appends {
        value.clear();
        let body = match bodies.of_append(message) {
            Some(shared) => StoredBody::Shared(shared.id),
            None => StoredBody::Own(&message.body),
        };
        stored::put_entry(&mut value, &message.header, body);
        call.arg(&message.header.id.as_bytes()[..]).arg(&value[..]);
    }
    let headers = || changes.appends.iter().map(|message| &message.header);
    let ready: Vec<&Header> = headers().filter(|header| header.state == State::Ready).collect();
    call.arg(ready.len());
    for header in ready {
        call.arg(&header.id.as_bytes()[..]);
    }
    let has_own = |header: &&Header| header.state != State::Ready || header::has_extras(header);
    let own: Vec<&Header> = headers().filter(has_own).collect();
    call.arg(own.len() + changes.updates.len());
    for header in own.into_iter().chain(&changes.updates) {
        value.clear();
        HEADER_FORM.put(&mut value, header);
        call.arg(&header.id.as_bytes()[..]).arg(&value[..]);
    }
    let removes = changes.sorted_removes();
    call.arg(removes.len());
    for id in &removes {
        call.arg(&id.as_bytes()[..]);
    }
    add_buckets(call, *queue, changes);
    call.arg(changes.note_removes.len());
    for (kind, key) in &changes.note_removes {
        call.arg(stored::note_name(*kind, key));
    }
    call.arg(changes.notes.len());
    for note in &changes.notes {
        call.arg(stored::note_name(note.kind, &note.key)).arg(stored::encode_note(note));
    }
}

/// Adds the buckets of the entries that the batch writes, each with the smallest and the greatest of their members.
fn add_buckets(call: &mut Cmd, queue: QueueId, changes: &Changes) {
    let mut touched: BTreeMap<Bucket, (Position, Position)> = BTreeMap::new();
    let mut touch = |header: &Header| {
        let bucket = Bucket::of(queue, header);
        let position = bucket.position(header);
        let (min, max) = touched.entry(bucket).or_insert((position, position));
        *min = (*min).min(position);
        *max = (*max).max(position);
    };
    changes.headers().for_each(&mut touch);
    call.arg(touched.len());
    for (bucket, (min, max)) in &touched {
        call.arg(bucket.encode()).arg(bucket.hex_member(*min)).arg(bucket.hex_member(*max));
    }
}
