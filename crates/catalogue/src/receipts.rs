//! The key of the receipts. It is created once per installation, all replicas share it, and another one may follow it.
//!
//! ```text
//!            rotation               since: from here on receipts have the new key       expiry of the earlier key
//! ──────────────┼────────────────────────────────┼──────────────────────────────────────────────┼──────────▶
//!               │ every replica reads the record │ receipts of both keys are valid              │
//!               │  RECEIPT_KEY_LEAD_SECONDS      │  the longest visibility timeout              │
//! ```
//!
//! A replica makes receipts with a record that it has read less than half of the first time ago.

use serde::{Deserialize, Serialize};

use super::{Catalogue, Schema, failed, from_json, layout, to_json};
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::limits;
use angarium_core::receipt::{EarlierReceiptKey, ReceiptKey};
use angarium_core::time::Timestamp;

/// Max earlier keys that are kept: after restores the latest valid ones. A rotation beyond it waits until one has
/// expired.
const EARLIER_KEYS: usize = 8;

/// Max attempts of a rotation when the record changes at the same time.
const TRIES: usize = 8;

#[derive(Serialize, Deserialize)]
struct KeyRecord {
    key: [u8; 32],
    /// The first moment of receives with the key, in milliseconds since the Unix epoch. Its writer has raised the form
    /// of records: an older program would use the key at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    since: u64,
    /// The keys before, the latest one first. A program from before restores ignores them, and refuses their receipts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<EarlierKeyRecord>,
}

#[derive(Serialize, Deserialize)]
struct EarlierKeyRecord {
    key: [u8; 32],
    /// In milliseconds since the Unix epoch.
    until: u64,
    /// Likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

impl EarlierKeyRecord {
    /// Whether receipts of the key are valid at a time in milliseconds since the Unix epoch.
    fn is_valid(&self, now: u64) -> bool {
        self.expires.is_none_or(|expires| expires > now)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl From<KeyRecord> for ReceiptKey {
    fn from(record: KeyRecord) -> Self {
        let earlier = |EarlierKeyRecord { key, until, expires }| EarlierReceiptKey {
            key,
            until: Timestamp::from_millis(until),
            expires: expires.map(Timestamp::from_millis),
        };
        let since = Timestamp::from_millis(record.since);
        Self::new(record.key).since(since).after(record.earlier.into_iter().map(earlier).collect())
    }
}

/// The moments of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiptKeyRotation {
    /// The first moment of receives with the new key.
    pub since: Timestamp,
    /// The end of the receipts of all keys before.
    pub expires: Timestamp,
}

impl Catalogue {
    /// Returns the key of the receipts. Creates it as `fresh` when there is none.
    pub async fn receipt_key(&self, fresh: [u8; 32]) -> Result<ReceiptKey, Error> {
        if let Some(node) = self.node(layout::RECEIPTS).await? {
            return from_json::<KeyRecord>(&node).map(ReceiptKey::from);
        }
        let record = KeyRecord { key: fresh, since: 0, earlier: Vec::new() };
        let op = Op::create(layout::RECEIPTS, to_json(&record));
        match self.tree.commit(&[], &[op]).await {
            Ok(_) | Err(TreeError::Refused { why: Refusal::NodeExists, .. }) => {}
            Err(error) => return Err(failed(error)),
        }
        let missing = || Error::unavailable(Part::Coordination, "the key of the receipts is not there");
        let node = self.node(layout::RECEIPTS).await?.ok_or_else(missing)?;
        from_json::<KeyRecord>(&node).map(ReceiptKey::from)
    }

    /// Has `fresh` follow the key of the receipts, [`limits::RECEIPT_KEY_LEAD_SECONDS`] after `now`. The keys before
    /// end when no receive with them can hold a message any more. Raises the form of records if needed.
    ///
    /// # Errors
    ///
    /// A conflict while there is no key, while another rotation is in its first phase, and while as many earlier keys
    /// are valid as are kept.
    pub async fn receipt_key_rotate(
        &self,
        fresh: [u8; 32],
        now: Timestamp,
    ) -> Result<ReceiptKeyRotation, Error> {
        self.schema_reach(Schema::RECEIPT_KEYS).await?;
        for _ in 0..TRIES {
            self.catch_up().await?;
            let none = || Error::Conflict("no receive has made a receipt yet: there is no key".to_owned());
            let node = self.node(layout::RECEIPTS).await?.ok_or_else(none)?;
            let (record, rotation) = rotated(from_json(&node)?, fresh, now)?;
            let data = to_json(&record);
            let set = Op::Set { path: layout::RECEIPTS.into(), data, version: Some(node.version) };
            match self.tree.commit(&[], &[set]).await {
                Ok(_) => return Ok(rotation),
                Err(TreeError::Refused { why: Refusal::BadVersion, .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Error::unavailable(Part::Coordination, "the key of receipts changes all the time"))
    }

    /// Returns the operation by which `fresh` becomes the key of the receipts, and the keys so far are valid for
    /// receives up to `until` only; none when there is no key.
    pub(super) async fn receipt_key_change(
        &self,
        fresh: [u8; 32],
        until: Timestamp,
    ) -> Result<Option<Op>, Error> {
        let Some(node) = self.node(layout::RECEIPTS).await? else { return Ok(None) };
        let data = to_json(&restored(from_json(&node)?, fresh, until));
        Ok(Some(Op::Set { path: layout::RECEIPTS.into(), data, version: Some(node.version) }))
    }
}

/// Returns the record in which `fresh` replaces the key of `record` after a restore, and the keys so far are valid for
/// receives up to `until` only. Keys that have expired then are left out. Of more than [`EARLIER_KEYS`] valid ones the
/// oldest are dropped.
fn restored(record: KeyRecord, fresh: [u8; 32], until: Timestamp) -> KeyRecord {
    let KeyRecord { key, mut earlier, .. } = record;
    let until = until.as_millis();
    earlier.retain(|earlier| earlier.is_valid(until));
    earlier.insert(0, EarlierKeyRecord { key, until, expires: None });
    // A rotation of the backup may be in its first phase.
    earlier.iter_mut().for_each(|earlier| earlier.until = earlier.until.min(until));
    earlier.truncate(EARLIER_KEYS);
    KeyRecord { key: fresh, since: 0, earlier }
}

/// Returns the record in which `fresh` follows the key of `record`.
fn rotated(
    record: KeyRecord,
    fresh: [u8; 32],
    now: Timestamp,
) -> Result<(KeyRecord, ReceiptKeyRotation), Error> {
    let KeyRecord { key, since, mut earlier } = record;
    if since > now.as_millis() {
        let since = Timestamp::from_millis(since).calendar();
        let why = format!("the key of receipts is being changed: receipts have the new one from {since} on");
        return Err(Error::Conflict(why));
    }
    earlier.retain(|earlier| earlier.is_valid(now.as_millis()));
    if earlier.len() >= EARLIER_KEYS {
        let first = earlier.iter().filter_map(|earlier| earlier.expires).min();
        // Keys from before restores alone are replaced.
        if let Some(first) = first {
            let first = Timestamp::from_millis(first).calendar();
            let why = format!("{EARLIER_KEYS} earlier keys of receipts are valid, one of them until {first}");
            return Err(Error::Conflict(why));
        }
        earlier.truncate(EARLIER_KEYS - 1);
    }
    let since = now.plus_seconds(limits::RECEIPT_KEY_LEAD_SECONDS);
    let (_, longest) = limits::VISIBILITY;
    let expires = since.plus_seconds(longest);
    for earlier in &mut earlier {
        earlier.expires.get_or_insert(expires.as_millis());
    }
    let before = EarlierKeyRecord { key, until: since.as_millis(), expires: Some(expires.as_millis()) };
    earlier.insert(0, before);
    let record = KeyRecord { key: fresh, since: since.as_millis(), earlier };
    Ok((record, ReceiptKeyRotation { since, expires }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u32 = 3_600;

    fn first() -> KeyRecord {
        KeyRecord { key: [0; 32], since: 0, earlier: Vec::new() }
    }

    #[test]
    fn rotations_keep_keys_of_receipts_in_use() {
        let (mut record, mut now) = (first(), Timestamp::from_millis(1_000));
        for number in 1..=20 {
            let (next, rotation) = rotated(record, [number; 32], now).unwrap();
            assert_eq!(rotation.since, now.plus_seconds(limits::RECEIPT_KEY_LEAD_SECONDS));
            assert_eq!(rotation.expires, rotation.since.plus_seconds(12 * HOUR));
            assert_eq!((next.key, next.since), ([number; 32], rotation.since.as_millis()));
            assert_eq!(next.earlier[0].until, rotation.since.as_millis());
            let valid = usize::from(number).min(7);
            assert_eq!(next.earlier.len(), valid, "the others have expired");
            (record, now) = (next, now.plus_seconds(2 * HOUR));
        }
    }

    #[test]
    fn rotation_waits_for_the_one_before_and_for_room() {
        let now = Timestamp::from_millis(1_000);
        let (mut record, rotation) = rotated(first(), [1; 32], now).unwrap();
        let early = Timestamp::from_millis(rotation.since.as_millis() - 1);
        let copy = |record: &KeyRecord| serde_json::from_slice::<KeyRecord>(&to_json(record)).unwrap();
        let refused = rotated(copy(&record), [2; 32], early).err().unwrap();
        assert!(matches!(&refused, Error::Conflict(why) if why.contains("being changed")), "{refused:?}");
        let mut now = rotation.since;
        for number in 2..=8 {
            record = rotated(record, [number; 32], now).unwrap().0;
            now = now.plus_seconds(HOUR);
        }
        let refused = rotated(copy(&record), [9; 32], now).err().unwrap();
        assert!(matches!(&refused, Error::Conflict(why) if why.contains("8 earlier keys")), "{refused:?}");
        assert!(rotated(record, [9; 32], rotation.expires).is_ok());
    }

    /// Keys from before restores are valid without an end, until a rotation.
    #[test]
    fn rotation_ends_keys_from_before_restores() {
        let earlier = (0..8).map(|until| EarlierKeyRecord { key: [9; 32], until, expires: None }).collect();
        let record = KeyRecord { earlier, ..first() };
        let (next, rotation) = rotated(record, [1; 32], Timestamp::from_millis(1_000)).unwrap();
        assert_eq!(next.earlier.len(), EARLIER_KEYS);
        assert!(next.earlier.iter().all(|earlier| earlier.expires == Some(rotation.expires.as_millis())));
    }

    #[test]
    fn restore_drops_expired_keys_before_valid_ones() {
        let earlier = |number: u8, expires| EarlierKeyRecord { key: [number; 32], until: 9_000, expires };
        let keys =
            |record: KeyRecord| record.earlier.iter().map(|earlier| earlier.key[0]).collect::<Vec<_>>();
        let mut record = first();
        record.earlier.push(earlier(1, Some(20_000)));
        record.earlier.extend((2..9).map(|number| earlier(number, Some(10_000))));
        record.earlier.push(earlier(9, None));
        let now = Timestamp::from_millis(10_000);
        assert_eq!(keys(restored(record, [10; 32], now)), [0, 1, 9]);
        // Of more valid keys than are kept the oldest are dropped.
        let earlier = (1..12).map(|number| earlier(number, Some(20_000))).collect();
        let next = restored(KeyRecord { earlier, ..first() }, [12; 32], now);
        assert_eq!((next.key, next.since), ([12; 32], 0));
        assert_eq!(keys(next), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
