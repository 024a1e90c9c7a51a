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
    /// When it was received.
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

/// The secret of an installation with which it makes handles.
#[derive(Clone)]
pub struct ReceiptKey([u8; 32]);

impl ReceiptKey {
    /// A key of these bytes, which must be secret.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the handle of a receipt.
    pub fn seal(&self, receipt: &Receipt) -> String {
        let mut bytes = Vec::with_capacity(SIGNED + TAG);
        bytes.put_u8(FORM);
        bytes.put_slice(receipt.queue.as_bytes());
        bytes.put_slice(receipt.message.as_bytes());
        bytes.put_u32(receipt.attempt);
        bytes.put_u64(receipt.received.as_millis());
        let tag = self.mac(&bytes).finalize().into_bytes();
        bytes.put_slice(&tag[..TAG]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Returns the content of a handle; none when it was not made with this key. The comparison takes the same time for
    /// every forgery.
    pub fn open(&self, handle: &str) -> Option<Receipt> {
        let bytes = URL_SAFE_NO_PAD.decode(handle).ok()?;
        let (signed, tag) = bytes.split_at_checked(SIGNED)?;
        if signed[0] != FORM || tag.len() != TAG || self.mac(signed).verify_truncated_left(tag).is_err() {
            return None;
        }
        let mut rest = &signed[1..];
        let mut id = [0; 16];
        rest.copy_to_slice(&mut id);
        let queue = QueueId::from_bytes(id);
        rest.copy_to_slice(&mut id);
        let message = MessageId::from_bytes(id);
        let attempt = rest.get_u32();
        Some(Receipt { queue, message, attempt, received: Timestamp::from_millis(rest.get_u64()) })
    }

    fn mac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(bytes);
        mac
    }
}

impl std::fmt::Debug for ReceiptKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReceiptKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(ReceiptKey::new([7; 32]).open(&handle), Some(receipt()));
        assert_eq!(ReceiptKey::new([8; 32]).open(&handle), None);
    }

    #[test]
    fn altered_handle_is_none() {
        let key = ReceiptKey::new([7; 32]);
        let handle = key.seal(&receipt());
        for at in 0..handle.len() {
            let mut changed = handle.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(key.open(&changed).is_none(), "{at}");
        }
        for bad in ["", "AAAA", "not a handle", &handle[..80], &format!("{handle}AAAA")] {
            assert!(key.open(bad).is_none(), "{bad}");
        }
    }
}
