//! The layout of a pool in Redis. Databases have these forms, so they never change; new forms get new tags.
//!
//! `P` is the prefix, `angarium` unless the URI names another. `T` is `{P:system id:pool id:slot}`, ids in 32 hex
//! digits and the slot in 2: its braces put all keys of a slot into one hash slot of a cluster. `Q` is the queue id in
//! 32 hex digits.
//!
//! | key | type | holds | life |
//! |---|---|---|---|
//! | `P:stamp` | string | installation, pool, in hex | for ever |
//! | `P:tenant` | string | the process that uses the pool alone, in the form of [`crate::Tenant`] | for ever; made with the first tenant |
//! | `T:record` | string | generation, transaction, tag of the numbering, number, greatest id, in hex (8 + 16 + 5 + 11 + 32) | for ever; made at registration |
//! | `T:bytes` | hash | queue id → bytes of its bodies | of the queue's messages |
//! | `T:schedule` | sorted set | ready, queue id, message id (8 + 16 + 16) | of the message, while it is scheduled |
//! | `T:buckets` | sorted set | end, queue id, ttl, 1 if of kept entries (8 + 16 + 4 + 0 or 1) | until a look-up of the due bucket, or of the first one of a queue, finds it empty |
//! | `T:bodies` | hash | body id (16) → body | while an entry has it |
//! | `T:readers` | hash | body id (16) → number of the entries that have it, in decimal digits | of the body |
//! | `T:shared` | hash | queue id → bytes, among its `bytes`, of shared bodies | while an entry of it has one |
//! | `T:lent` | hash | queue id → bytes of the bodies whose lender it is, each once | of these bodies, or until the queue is dropped |
//! | `T:lenders` | hash | body id (16) → id of its lender, a queue of the slot (16) | of the body |
//! | `T:entries:Q` | hash | message id → head of the header, body or body id | of the message |
//! | `T:headers:Q` | hash | message id → header | from the first change of the message (from its begin if its head is not all of it, or it is not ready) to its end |
//! | `T:ready:Q` | sorted set | message id | of the message, while it is ready |
//! | `T:aside:Q` | sorted set | message id | of the message, while it is neither ready nor kept |
//! | `T:scheduled:Q` | sorted set | ready, message id (8 + 16) | of the message, while it is scheduled |
//! | `T:ranges:Q` | hash | end, ttl, 1 if of kept entries (8 + 4 + 0 or 1) → least member, greatest member, in hex | of the bucket |
//! | `T:notes:Q` | hash | kind, key (1 + any) → expires, value (8 + any) | until the owner removes it |
//! | `T:names:Q` | sorted set | kind, key | of the note |
//! | `T:groups:Q` | sorted set | group, 0, message id (any + 1 + 16) | of the message, if it has a group, while it is not kept |
//! | `T:kept:Q` | sorted set | settled, message id (8 + 16) | of the message, while it is kept: done or failed |
//!
//! All scores are 0, so members are in the order of their bytes. A header in headers replaces the one in entries. An
//! entry that is not ready, or has more than a head, always has one there.
//!
//! A body that several entries of one batch have is stored once, in bodies, under an id of its own. The values
//! of these entries, its readers, have this id in place of the body, and 8 more in their tags. The script that removes
//! the last reader also removes the body. The bytes of a queue count the whole body for each reader, and so does
//! `shared`. Its lender, which may have no entries, counts the body once, in `lent`, until it is removed. Bodies of a
//! dropped lender count nowhere.
//!
//! A bucket has the entries of one queue and ttl that expire within one span of time, up to `end`; its range has the
//! smallest and the greatest id of them. Kept entries have buckets of their own, whose ranges have members of `kept`:
//! their ids are spread over the queue, but the times when they were settled are as close as those when they expire.
//!
//! For entries that live by queue, end and ttl are those of [`crate::retained`].
//!
//! Headers have the form of `crate::header`, with the tags 1 to 8 and the times in the order ready, expires, created;
//! entries have the head only, and the tags 9 to 16 with a body id. Scripts read the tag, the state, the times and the
//! ttl from it, and the group behind it. The ready time of a kept entry is when it was settled. Numbers are big-endian;
//! times are milliseconds, ttl seconds.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use uuid::Uuid;

pub(super) use crate::header::{HEAD_BYTES, damaged};
use crate::header::{HeaderForm, TimeOrder};
use crate::shared::BodyId;
use crate::{Epoch, Note, Position, Stamp, StoreError, retained};
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Life};
use angarium_core::time::Timestamp;

pub(super) const HEADER_FORM: HeaderForm = HeaderForm { first_tag: 1, times: TimeOrder::CreatedLast };

/// Milliseconds of the shortest span of a bucket.
const MIN_SPAN: u64 = 8_000;

pub(super) const SLOT_KEYS: usize = 9;
pub(super) const QUEUE_KEYS: usize = 10;

/// Added to the tag of an entry with the id of a body.
const SHARED: u8 = 8;

/// The names of all keys of a pool.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    tag: Arc<str>,
}

impl Keys {
    pub(super) fn new(prefix: &str, stamp: Stamp) -> Self {
        Self { tag: format!("{prefix}:{}:{}", stamp.system.simple(), stamp.pool.simple()).into() }
    }

    pub(super) fn record(&self, slot: Slot) -> String {
        self.of_slot(slot, "record")
    }

    pub(super) fn of_slot(&self, slot: Slot, what: &str) -> String {
        format!("{{{}:{slot}}}:{what}", self.tag)
    }

    pub(super) fn of_queue(&self, queue: QueueId, what: &str) -> String {
        format!("{{{}:{}}}:{what}:{queue}", self.tag, queue.slot())
    }

    /// The keys of a slot that every writing script names first.
    pub(super) fn slot_keys(&self, slot: Slot) -> [String; SLOT_KEYS] {
        ["record", "bytes", "schedule", "buckets", "bodies", "readers", "shared", "lent", "lenders"]
            .map(|what| self.of_slot(slot, what))
    }

    /// The keys of a queue, in the order of the scripts.
    pub(super) fn queue_keys(&self, queue: QueueId) -> [String; QUEUE_KEYS] {
        ["entries", "headers", "ready", "aside", "scheduled", "ranges", "notes", "names", "groups", "kept"]
            .map(|what| self.of_queue(queue, what))
    }

    /// The keys from which scripts read entries of a queue with their bodies: entries, headers, bodies.
    pub(super) fn entry_keys(&self, queue: QueueId) -> [String; 3] {
        let [entries, headers] = ["entries", "headers"].map(|what| self.of_queue(queue, what));
        [entries, headers, self.of_slot(queue.slot(), "bodies")]
    }

    /// The same keys, then an order of the queue.
    pub(super) fn order_keys(&self, queue: QueueId, order: &str) -> [String; 4] {
        let [entries, headers, bodies] = self.entry_keys(queue);
        [entries, headers, bodies, self.of_queue(queue, order)]
    }

    /// The keys of the totals of a queue, in the order of their script.
    pub(super) fn totals_keys(&self, queue: QueueId) -> [String; 7] {
        let [bytes, shared, lent] = ["bytes", "shared", "lent"].map(|what| self.of_slot(queue.slot(), what));
        let [entries, aside, scheduled, kept] =
            ["entries", "aside", "scheduled", "kept"].map(|what| self.of_queue(queue, what));
        [bytes, shared, lent, entries, aside, scheduled, kept]
    }
}

/// The key of the stamp, which does not depend on the stamp.
pub(super) fn stamp_key(prefix: &str) -> String {
    format!("{prefix}:stamp")
}

/// The key of the tenant, which belongs to the prefix as the stamp does.
pub(super) fn tenant_key(prefix: &str) -> String {
    format!("{prefix}:tenant")
}

pub(super) fn encode_hex_id(id: MessageId) -> String {
    format!("{:032x}", u128::from_be_bytes(*id.as_bytes()))
}

pub(super) fn encode_stamp(stamp: Stamp) -> String {
    format!("{} {}", stamp.system.simple(), stamp.pool.simple())
}

pub(super) fn decode_stamp(text: &str) -> Result<Stamp, StoreError> {
    let ids = text.split_once(' ').and_then(|(system, pool)| {
        Some(Stamp { system: Uuid::parse_str(system).ok()?, pool: Uuid::parse_str(pool).ok()? })
    });
    ids.ok_or_else(|| damaged("the stamp of the pool"))
}

/// The record of a slot that was never fenced.
pub(super) fn first_record() -> String {
    "0".repeat(72)
}

pub(super) fn encode_epoch(epoch: Epoch) -> String {
    format!("{:08x}{:016x}", epoch.generation, epoch.transaction)
}

pub(super) fn decode_epoch(text: &str) -> Result<Epoch, StoreError> {
    let parts = text.split_at_checked(8).and_then(|(generation, transaction)| {
        let generation = u32::from_str_radix(generation, 16).ok()?;
        Some(Epoch { generation, transaction: u64::from_str_radix(transaction, 16).ok()? })
    });
    parts.ok_or_else(|| damaged("the record of a slot"))
}

/// Distinguishes the numberings of two fences with the same epoch: a delayed fence must not restart the numbering of
/// its owner, or the first batch could be applied twice (P1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbering(u32);

impl Numbering {
    const BITS: u32 = 20;

    /// Returns a random numbering: two are equal once in a million cases. Older versions of the program always use 0.
    pub(super) fn fresh() -> Self {
        Self(rand::random_range(1..1 << Self::BITS))
    }

    pub(super) fn encode(self) -> String {
        format!("{:05x}", self.0)
    }
}

/// The record of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) epoch: Epoch,
    pub(super) numbering: Numbering,
    /// The number of the last batch.
    pub(super) seq: u64,
}

pub(super) fn decode_record(text: &str) -> Result<Record, StoreError> {
    let number = |from, to| text.get(from..to).and_then(|part| u64::from_str_radix(part, 16).ok());
    let numbering = number(24, 29).and_then(|tag| u32::try_from(tag).ok());
    let (Some(numbering), Some(seq)) = (numbering, number(29, 40)) else {
        return Err(damaged("the record of a slot"));
    };
    Ok(Record { epoch: decode_epoch(&text[..24])?, numbering: Numbering(numbering), seq })
}

/// Eleven digits, which no owner of a slot exhausts.
pub(super) fn encode_seq(seq: u64) -> String {
    format!("{seq:011x}")
}

pub(super) fn decode_hex_id(text: &str) -> Result<MessageId, StoreError> {
    let id = u128::from_str_radix(text, 16).map_err(|_| damaged("an id"))?;
    Ok(MessageId::from_bytes(id.to_be_bytes()))
}

pub(super) fn decode_id(bytes: &[u8]) -> Result<MessageId, StoreError> {
    bytes.try_into().map(MessageId::from_bytes).map_err(|_| damaged("the id of a message"))
}

/// The member of an entry in an order by time of its queue: the scheduled or the kept entries.
pub(super) fn timed_member(position: Position) -> Vec<u8> {
    [&position.ready.as_millis().to_be_bytes()[..], position.id.as_bytes()].concat()
}

/// Reads a member of a slot's schedule.
pub(super) fn decode_scheduled(mut member: &[u8]) -> Result<(Timestamp, QueueId, MessageId), StoreError> {
    if member.len() != 40 {
        return Err(damaged("the schedule of a slot"));
    }
    let ready = Timestamp::from_millis(member.get_u64());
    let queue = QueueId::from_bytes(member.get_u128().to_be_bytes());
    Ok((ready, queue, decode_id(member)?))
}

/// A bucket of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bucket {
    /// The first millisecond after the bucket.
    pub(super) end: u64,
    pub(super) ttl: u32,
    /// Whether its entries are kept: then they are read in order of the time when they were settled.
    pub(super) is_kept: bool,
}

impl Bucket {
    /// Added to the stored form of a bucket of kept entries.
    const KEPT: u8 = 1;

    /// Returns the bucket of an entry, in which it is found when it has expired. A kept entry has a life of its own:
    /// with a life by queue no look-up finds it.
    pub(super) fn of(queue: QueueId, header: &Header) -> Self {
        match header.life {
            Life::Own { ttl, expires } => {
                let span = span(ttl);
                let end = (expires.as_millis() / span).saturating_add(1).saturating_mul(span);
                Self { end, ttl, is_kept: header.state.is_kept() }
            }
            Life::Retained { since } => {
                let (end, ttl) = retained::bucket(queue, header.id, since);
                Self { end, ttl, is_kept: false }
            }
        }
    }

    /// Milliseconds of the bucket.
    pub(super) fn span(self) -> u64 {
        if retained::is_place(self.end) { retained::span(self.ttl) } else { span(self.ttl) }
    }

    /// Returns the position of an entry among those of the bucket.
    pub(super) fn position(self, header: &Header) -> Position {
        if self.is_kept { Position::of(header) } else { Position::id(header.id) }
    }

    /// Returns the member of an entry in the sets that have the entries of the bucket.
    pub(super) fn member(self, position: Position) -> Vec<u8> {
        if self.is_kept { timed_member(position) } else { position.id.as_bytes().to_vec() }
    }

    /// Returns the same member in hex, for the range of the bucket.
    pub(super) fn hex_member(self, position: Position) -> String {
        let id = encode_hex_id(position.id);
        if self.is_kept { format!("{:016x}{id}", position.ready.as_millis()) } else { id }
    }

    pub(super) fn encode(self) -> Vec<u8> {
        let mark: &[u8] = if self.is_kept { &[Self::KEPT] } else { &[] };
        [&self.end.to_be_bytes()[..], &self.ttl.to_be_bytes(), mark].concat()
    }

    /// Reads a member of a slot's buckets: the queue and the bucket.
    pub(super) fn decode(mut member: &[u8]) -> Result<(QueueId, Self), StoreError> {
        let is_kept = match (member.len(), member.last()) {
            (28, _) => false,
            (29, Some(&Self::KEPT)) => true,
            _ => return Err(damaged("the buckets of a slot")),
        };
        let end = member.get_u64();
        let queue = QueueId::from_bytes(member.get_u128().to_be_bytes());
        Ok((queue, Self { end, ttl: member.get_u32(), is_kept }))
    }
}

/// Returns the min span times a power of two, and at most a thirty-second part of the ttl if that is more than the min
/// span.
fn span(ttl: u32) -> u64 {
    let parts = u64::from(ttl) * 1_000 / 32 / MIN_SPAN;
    MIN_SPAN << parts.max(1).ilog2()
}

/// Prefix of the members of a group's entries.
pub(super) fn group_prefix(group: &GroupName) -> Vec<u8> {
    [group.as_str().as_bytes(), &[0]].concat()
}

pub(super) fn note_name(kind: u8, key: &[u8]) -> Vec<u8> {
    [&[kind], key].concat()
}

pub(super) fn encode_note(note: &Note) -> Vec<u8> {
    [&note.expires.as_millis().to_be_bytes()[..], &note.value].concat()
}

pub(super) fn decode_note(name: Bytes, value: Bytes) -> Result<Note, StoreError> {
    let (Some(&kind), true) = (name.first(), value.len() >= 8) else { return Err(damaged("a note")) };
    let expires = Timestamp::from_millis((&value[..8]).get_u64());
    Ok(Note { kind, key: name.slice(1..), value: value.slice(8..), expires })
}

/// The body in the value of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum StoredBody<'a> {
    Own(&'a [u8]),
    Shared(BodyId),
}

/// Appends the value of an entry: the head of its header, then its body or the id of its body.
pub(super) fn put_entry(value: &mut Vec<u8>, header: &Header, body: StoredBody<'_>) {
    let begin = value.len();
    HEADER_FORM.put_head(value, header);
    match body {
        StoredBody::Own(body) => value.extend_from_slice(body),
        StoredBody::Shared(id) => {
            value[begin] += SHARED;
            value.extend_from_slice(&id);
        }
    }
}

pub(super) fn decode_header(id: MessageId, mut value: &[u8]) -> Result<Header, StoreError> {
    HEADER_FORM.take(id, &mut value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::message::{Peer, State};
    use angarium_core::names::{ProjectId, QueueName, QueueRef};
    use angarium_core::outcome::Extras;

    fn header(state: State) -> Header {
        Header {
            id: MessageId::from_bytes([7; 16]),
            created: Timestamp::from_millis(1),
            ready: Timestamp::from_millis(5),
            life: Life::Own { ttl: 60, expires: Timestamp::from_millis(60_005) },
            attempts: 3,
            client: Some(Uuid::from_u128(9)),
            size: 2,
            state,
            group: None,
            first_claimed: None,
            extras: None,
        }
    }

    fn peer(queue: Option<QueueId>) -> Arc<Peer> {
        let (project, name) = (ProjectId::new("p/q r").unwrap(), QueueName::new("dead").unwrap());
        Arc::new(Peer { at: QueueRef { project, name }, queue })
    }

    #[test]
    fn header_survives_every_state_and_truncation_is_damage() {
        let queue = QueueId::from_bytes([3; 16]);
        for state in [
            State::Ready,
            State::Scheduled,
            State::Prepared(peer(Some(queue))),
            State::Moving(peer(None)),
            State::NoTarget,
            State::Done,
            State::Failed,
        ] {
            let group = Some(GroupName::new("g:1", "group").unwrap());
            let (plain, first_claimed) = (header(state), Some(Timestamp::from_millis(7)));
            let life = Life::Retained { since: Timestamp::from_millis(9) };
            let retained = Header { life, ..plain.clone() };
            let retained_in_group = Header { life, group: group.clone(), ..plain.clone() };
            let in_group = Header { group, first_claimed, ..plain.clone() };
            let extras = Some(Box::new(Extras { forgotten: 3, ..Extras::default() }));
            let with_fields = Header { extras: extras.clone(), ..plain.clone() };
            let with_all = Header { extras, ..retained_in_group.clone() };
            for header in [in_group, retained_in_group, retained, plain, with_fields, with_all] {
                let mut value = Vec::new();
                HEADER_FORM.put(&mut value, &header);
                assert_eq!(decode_header(header.id, &value).unwrap(), header);
                for length in 0..value.len() {
                    assert!(decode_header(header.id, &value[..length]).is_err(), "{length}");
                }
            }
        }
    }

    #[test]
    fn keys_of_a_slot_share_their_hash_tag() {
        let stamp = Stamp { system: Uuid::from_u128(1), pool: Uuid::from_u128(2) };
        let (keys, queue) = (Keys::new("p", stamp), QueueId::from_bytes([0xab; 16]));
        let tag = |key: &str| key.split_once('}').unwrap().0.to_owned();
        let record = keys.record(Slot(0xab));
        assert_eq!(tag(&record), format!("{{p:{:032x}:{:032x}:ab", 1, 2));
        let all = keys.queue_keys(queue).into_iter().chain(keys.slot_keys(Slot(0xab)));
        let all: Vec<String> = all.collect();
        for key in &all {
            assert_eq!(tag(key), tag(&record), "{key}");
        }
        let prelude = include_str!("lua/prelude.lua");
        assert!(prelude.contains(&format!("SLOT_KEYS, QUEUE_KEYS = {SLOT_KEYS}, {QUEUE_KEYS} ")));
        // The keys of reads are among those of the scripts that write.
        let read = keys.order_keys(queue, "kept");
        assert!(read.iter().chain(&keys.totals_keys(queue)).all(|key| all.contains(key)), "{read:?}");
        assert!(read.starts_with(&keys.entry_keys(queue)), "{read:?}");
    }

    #[test]
    fn stored_values_of_entries_never_change() {
        let own = header(State::Ready);
        let life = Life::Retained { since: Timestamp::from_millis(9) };
        for (header, tag) in [(Header { life, ..own.clone() }, 3), (own, 1)] {
            let (mut value, mut shared) = (Vec::new(), Vec::new());
            put_entry(&mut value, &header, StoredBody::Own(b"{}"));
            put_entry(&mut shared, &header, StoredBody::Shared([7; 16]));
            assert_eq!((value[0], shared[0]), (tag, tag + 8));
            assert_eq!((value.len(), shared.len()), (HEAD_BYTES + 2, HEAD_BYTES + 16));
            assert_eq!((&value[HEAD_BYTES..], &shared[HEAD_BYTES..]), (&b"{}"[..], &[7; 16][..]));
            assert_eq!(value[1..HEAD_BYTES], shared[1..HEAD_BYTES]);
            assert_eq!(decode_header(header.id, &value).unwrap(), header);
            // Scripts answer a value with the body and the tag of a header.
            assert!(decode_header(header.id, &shared).is_err());
        }
    }

    #[test]
    fn records_and_stamps_survive_their_stored_form() {
        let epoch = Epoch { generation: 3, transaction: u64::MAX };
        assert_eq!(decode_epoch(&encode_epoch(epoch)).unwrap(), epoch);
        let numbering = Numbering(0xabcde);
        let tag = numbering.encode();
        let record =
            format!("{}{tag}{}{}", encode_epoch(epoch), encode_seq(77), encode_hex_id(MessageId::ZERO));
        assert_eq!(record.len(), first_record().len());
        assert_eq!(decode_record(&record).unwrap(), Record { epoch, numbering, seq: 77 });
        let stamp = Stamp { system: Uuid::from_u128(1), pool: Uuid::from_u128(2) };
        assert_eq!(decode_stamp(&encode_stamp(stamp)).unwrap(), stamp);
        assert!(decode_stamp("angarium").is_err());
    }

    #[test]
    fn instant_is_within_its_bucket() {
        for (ttl, millis) in [(0, 0), (60, 7_999), (60, 8_000), (1_209_600, 123_456_789_012)] {
            let life = Life::Own { ttl, expires: Timestamp::from_millis(millis) };
            let bucket = Bucket::of(QueueId::from_bytes([7; 16]), &Header { life, ..header(State::Ready) });
            assert!(bucket.end > millis && bucket.end - bucket.span() <= millis, "{bucket:?}");
            assert!(bucket.span() <= 8_000.max(u64::from(ttl) * 1_000 / 32));
        }
    }

    #[test]
    fn kept_bucket_differs_from_others_of_its_time() {
        let queue = QueueId::from_bytes([7; 16]);
        let [ready, done, failed] = [State::Ready, State::Done, State::Failed].map(header);
        let (bucket, kept) = (Bucket::of(queue, &ready), Bucket::of(queue, &done));
        assert_eq!(kept, Bucket::of(queue, &failed));
        assert_eq!((bucket.end, bucket.ttl, bucket.is_kept), (kept.end, kept.ttl, !kept.is_kept));
        for (bucket, length) in [(bucket, 12), (kept, 13)] {
            let stored = bucket.encode();
            assert_eq!(stored.len(), length);
            let member = [&stored[..8], queue.as_bytes(), &stored[8..]].concat();
            assert_eq!(Bucket::decode(&member).unwrap(), (queue, bucket));
            assert!(Bucket::decode(&[&member[..], &[2]].concat()).is_err());
            let member = bucket.member(bucket.position(&done));
            let hex: String = member.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(bucket.hex_member(bucket.position(&done)), hex);
        }
    }
}
