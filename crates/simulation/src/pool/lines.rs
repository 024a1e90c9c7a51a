//! The lines of the pools in the trace, with short ids.

use std::fmt::Write;

use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Header, Message};
use angarium_storage::{Batch, Changes, Epoch, Note, StoreError};

/// The hex digits of a queue id in the trace: the slot, then six digits.
const QUEUE_DIGITS: usize = 8;

/// Returns the first digits of a queue id.
pub(super) fn queue(id: QueueId) -> String {
    let mut digits = id.to_string();
    digits.truncate(QUEUE_DIGITS);
    digits
}

/// Returns the digits of a message id that differ between messages of the same minute: the end of its time, then its
/// sequence number.
fn message(id: MessageId) -> String {
    let digits = u128::from_be_bytes(*id.as_bytes()) >> 56 & 0xff_ffff_ffff;
    format!("{digits:010x}")
}

/// Returns an epoch as its two numbers.
pub(super) fn epoch(Epoch { generation, transaction }: Epoch) -> String {
    format!("{generation}.{transaction}")
}

/// Returns the result of a write.
pub(super) fn outcome<T>(result: &Result<T, StoreError>) -> String {
    match result {
        Ok(_) => "done".into(),
        Err(StoreError::Fenced(by)) => format!("fenced by {}", epoch(*by)),
        Err(error) => error.to_string(),
    }
}

/// Returns the parts of a batch: its number, then the changes of each queue.
pub(super) fn batch(batch: &Batch) -> String {
    let Batch { slot, seq, durability, queues, .. } = batch;
    let mut line = format!("slot {slot} epoch {} seq {seq} {durability}", epoch(batch.epoch));
    for changes in queues {
        // A write to a string succeeds.
        let _ = write!(line, " {}{}", queue(changes.queue), changes_of(&changes.changes));
    }
    line
}

fn changes_of(changes: &Changes) -> String {
    let mut text = String::new();
    let mut add = |sign: &str, items: Vec<String>| {
        if !items.is_empty() {
            let _ = write!(text, " {sign}{}[{}]", items.len(), items.join(" "));
        }
    };
    let header = |header: &Header| format!("{} {:?}", message(header.id), header.state);
    add("+", changes.appends.iter().map(|Message { header, .. }| message(header.id)).collect());
    add("~", changes.updates.iter().map(header).collect());
    add("-", changes.removes.iter().map(|id| message(*id)).collect());
    add("-notes", changes.note_removes.iter().map(|(kind, key)| note(*kind, key)).collect());
    add("+notes", changes.notes.iter().map(|Note { kind, key, .. }| note(*kind, key)).collect());
    text
}

/// The last bytes of the key of a note.
fn note(kind: u8, key: &[u8]) -> String {
    let end = &key[key.len().saturating_sub(8)..];
    format!("{kind}:{}", end.escape_ascii())
}
