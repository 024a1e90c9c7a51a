//! Receipts: an SQS client gets one with each received message, and uses it to delete the message or to change its
//! visibility. A receipt is bound to the queue, the message and the receive. It is opaque to clients, and only a holder
//! of the installation's key can make one.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | the form of the rest, 1 |
//! | 16 + 16 | the queue's id, the message's id |
//! | 4 | number of claims of the message, this receive included |
//! | 8 | when it was received, in milliseconds since the Unix epoch |
//! | 16 | HMAC-SHA-256 of all bytes before, under the installation's key, cut to 128 bits |
//!
//! The handle is this in base64. Clients hold handles over restarts and upgrades, so the form never changes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Buf, BufMut};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::group::AttemptId;
use crate::ids::{MessageId, QueueId};
use crate::limits;
use crate::time::Timestamp;

const FORM: u8 = 1;
const SIGNED: usize = 45;
const TAG: usize = 16;

/// The content of a receipt handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The incarnation of the queue.
    pub queue: QueueId,
    /// The message that was received.
    pub message: MessageId,
    /// Number of claims of the message, this receive included.
    pub attempt: u32,
    /// When it was received, and not before its creation.
    pub received: Timestamp,
}

/// A receive that its client may repeat, because it did not get the answer: the repetition returns the same messages
/// and handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The client's id for the receive.
    pub id: AttemptId,
    /// When the messages were received, as in their handles.
    pub received: Timestamp,
    /// Number of its messages. If one of them is gone, the receive cannot be repeated.
    pub messages: usize,
}

impl Attempt {
    /// Whether the receive is young enough to be repeated at `now` (SQS: five minutes).
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        now < self.received.plus_seconds(limits::DEDUP_SECONDS)
    }
}

/// The secret of an installation with which it makes handles, and its earlier ones from before rotations and restores
/// of backups.
///
/// A key follows another at a moment. The handle of a receive has the key of the time of that receive, so replicas with
/// different clocks make the same handle of it.
#[derive(Clone)]
pub struct ReceiptKey {
    key: [u8; 32],
    /// The first moment of receives with this key.
    since: Timestamp,
    /// The latest one first.
    earlier: Vec<EarlierReceiptKey>,
}

/// The key of an installation before another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EarlierReceiptKey {
    /// The key.
    pub key: [u8; 32],
    /// The moment of the backup or of the change: a later receive with this key has not happened.
    pub until: Timestamp,
    /// When its handles end to be valid; none after a restore.
    pub expires: Option<Timestamp>,
}

impl std::fmt::Debug for EarlierReceiptKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EarlierReceiptKey(until {:?})", self.until)
    }
}

impl ReceiptKey {
    /// A key of these bytes, which must be secret.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self { key: bytes, since: Timestamp::from_millis(0), earlier: Vec::new() }
    }

    /// The same key, which follows others.
    #[must_use]
    pub fn after(self, earlier: Vec<EarlierReceiptKey>) -> Self {
        Self { earlier, ..self }
    }

    /// The same key, for receives from this moment on.
    #[must_use]
    pub fn since(self, since: Timestamp) -> Self {
        Self { since, ..self }
    }

    /// Returns the key of receives at a moment.
    fn at(&self, received: Timestamp) -> &[u8; 32] {
        let earlier = || self.earlier.iter().rev().find(|earlier| received < earlier.until);
        if received >= self.since { &self.key } else { earlier().map_or(&self.key, |earlier| &earlier.key) }
    }

    /// Returns the handle of a receipt.
    pub fn seal(&self, receipt: &Receipt) -> String {
        let mut bytes = Vec::with_capacity(SIGNED + TAG);
        bytes.put_u8(FORM);
        bytes.put_slice(receipt.queue.as_bytes());
        bytes.put_slice(receipt.message.as_bytes());
        bytes.put_u32(receipt.attempt);
        bytes.put_u64(receipt.received.as_millis());
        let tag = mac(self.at(receipt.received), &bytes).finalize().into_bytes();
        bytes.put_slice(&tag[..TAG]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Returns the content of a handle; none when it was not made with a key that is valid at `now`. The comparison
    /// takes the same time for every forgery.
    pub fn open(&self, handle: &str, now: Timestamp) -> Option<Receipt> {
        let bytes = URL_SAFE_NO_PAD.decode(handle).ok()?;
        let (signed, tag) = bytes.split_at_checked(SIGNED)?;
        let is_of = |key: &[u8; 32]| mac(key, signed).verify_truncated_left(tag).is_ok();
        if signed[0] != FORM || tag.len() != TAG {
            return None;
        }
        let receipt = decode(signed);
        let is_known = |earlier: &EarlierReceiptKey| {
            let is_valid = earlier.expires.is_none_or(|expires| now < expires);
            is_valid && receipt.received <= earlier.until && is_of(&earlier.key)
        };
        (is_of(&self.key) || self.earlier.iter().any(is_known)).then_some(receipt)
    }
}

/// Decodes the signed bytes of a handle.
fn decode(signed: &[u8]) -> Receipt {
    let mut rest = &signed[1..];
    let mut id = [0; 16];
    rest.copy_to_slice(&mut id);
    let queue = QueueId::from_bytes(id);
    rest.copy_to_slice(&mut id);
    let message = MessageId::from_bytes(id);
    let attempt = rest.get_u32();
    Receipt { queue, message, attempt, received: Timestamp::from_millis(rest.get_u64()) }
}

fn mac(key: &[u8; 32], bytes: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(bytes);
    mac
}

impl std::fmt::Debug for ReceiptKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReceiptKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_001_000);

    fn receipt() -> Receipt {
        Receipt {
            queue: QueueId::from_bytes([1; 16]),
            message: MessageId::from_bytes([2; 16]),
            attempt: 3,
            received: Timestamp::from_millis(1_700_000_000_000),
        }
    }

    #[test]
    fn handle_opens_only_with_its_key() {
        let handle = ReceiptKey::new([7; 32]).seal(&receipt());
        assert_eq!(ReceiptKey::new([7; 32]).open(&handle, NOW), Some(receipt()));
        assert_eq!(ReceiptKey::new([8; 32]).open(&handle, NOW), None);
    }

    #[test]
    fn earlier_key_opens_receipts_up_to_its_moment() {
        let (before, after) = (ReceiptKey::new([7; 32]), ReceiptKey::new([8; 32]));
        let until = |millis: u64| {
            let earlier =
                EarlierReceiptKey { key: [7; 32], until: Timestamp::from_millis(millis), expires: None };
            after.clone().after(vec![earlier])
        };
        let received = receipt().received.as_millis();
        let handle = before.seal(&receipt());
        assert_eq!(until(received).open(&handle, NOW), Some(receipt()));
        assert_eq!(until(received - 1).open(&handle, NOW), None);
        assert_eq!(until(0).open(&after.seal(&receipt()), NOW), Some(receipt()));
        assert_ne!(until(received).seal(&receipt()), handle);
    }

    #[test]
    fn handle_has_the_key_of_its_receive() {
        let at = |millis: u64| Receipt { received: Timestamp::from_millis(millis), ..receipt() };
        let earlier = |key: u8, until: u64| EarlierReceiptKey {
            key: [key; 32],
            until: Timestamp::from_millis(until),
            expires: Some(Timestamp::from_millis(until + 1_000)),
        };
        let all = ReceiptKey::new([3; 32])
            .since(Timestamp::from_millis(200))
            .after(vec![earlier(2, 200), earlier(1, 100)]);
        for (received, key) in [(99, 1), (100, 2), (199, 2), (200, 3), (5_000, 3)] {
            let handle = ReceiptKey::new([key; 32]).seal(&at(received));
            assert_eq!(all.seal(&at(received)), handle, "{received}");
            assert_eq!(all.open(&handle, Timestamp::from_millis(250)), Some(at(received)));
        }
        let first = all.seal(&at(99));
        assert!(all.open(&first, Timestamp::from_millis(1_099)).is_some());
        assert!(all.open(&first, Timestamp::from_millis(1_100)).is_none(), "its key has expired");
        assert!(all.open(&all.seal(&at(150)), Timestamp::from_millis(1_199)).is_some());
        assert!(all.open(&all.seal(&at(150)), Timestamp::from_millis(1_200)).is_none());
        assert!(all.open(&all.seal(&at(200)), Timestamp::from_millis(9_000_000)).is_some());
        let forged = ReceiptKey::new([2; 32]).seal(&at(201));
        assert!(all.open(&forged, Timestamp::from_millis(250)).is_none(), "a later receive has the next key");
    }

    #[test]
    fn altered_handle_is_none() {
        let key = ReceiptKey::new([7; 32]);
        let handle = key.seal(&receipt());
        for at in 0..handle.len() {
            let mut changed = handle.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(key.open(&changed, NOW).is_none(), "{at}");
        }
        for bad in ["", "AAAA", "not a handle", &handle[..80], &format!("{handle}AAAA")] {
            assert!(key.open(bad, NOW).is_none(), "{bad}");
        }
    }
}
