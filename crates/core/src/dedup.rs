//! Deduplication: two posts with one id are one message, if the second arrives soon after the first. Source: SQS.

use sha2::{Digest as _, Sha256};

use crate::group::{DedupId, GroupName};

/// The scope within which a deduplication id is unique.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DedupScope {
    /// The whole queue, for all groups together.
    #[default]
    Queue,
    /// The group of the message.
    Group,
}

impl DedupScope {
    /// The scope that the queue may have had before a change.
    pub const fn other(self) -> Self {
        match self {
            Self::Queue => Self::Group,
            Self::Group => Self::Queue,
        }
    }
}

/// A deduplication id within its scope, as 16 bytes of a hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DedupKey([u8; 16]);

impl DedupKey {
    /// Returns the key of `id` in `scope`, for a message of `group`.
    pub fn of(id: &DedupId, scope: DedupScope, group: &GroupName) -> Self {
        let mut hash = Sha256::new();
        if scope == DedupScope::Group {
            hash.update(group.as_str());
            // No group and no id has a zero byte, so the boundary between the two is unambiguous.
            hash.update([0]);
        }
        hash.update(id.as_str());
        let mut key = [0; 16];
        key.copy_from_slice(&hash.finalize()[..16]);
        Self(key)
    }

    /// The key with these stored bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The stored form.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl DedupId {
    /// Returns the id of a message in a queue with content-based deduplication: the SHA-256 of the content in hex, as
    /// in SQS. The content of a JSON string is its text, of any other JSON the JSON itself: both as SQS clients receive
    /// them.
    pub fn of_body(body: &[u8]) -> Self {
        use std::fmt::Write as _;
        let text = serde_json::from_slice::<std::borrow::Cow<'_, str>>(body).ok();
        let hash = Sha256::digest(text.as_deref().map_or(body, str::as_bytes));
        let mut hex = String::with_capacity(64);
        for byte in hash {
            write!(hex, "{byte:02x}").expect("a string takes all there is");
        }
        Self::new(&hex, "").expect("64 hex digits are an id")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_id_is_hash_of_sqs_text() {
        // printf abc | sha256sum
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(DedupId::of_body(b"\"abc\"").as_str(), abc);
        assert_eq!(DedupId::of_body(b"\"\\u0061bc\"").as_str(), abc);
        assert_eq!(DedupId::of_body(b"abc").as_str(), abc);
        assert_ne!(DedupId::of_body(b"{}"), DedupId::of_body(b"{ }"));
    }

    #[test]
    fn groups_share_ids_in_the_scope_of_the_queue_only() {
        let (id, one, other) = (
            DedupId::new("i", "").unwrap(),
            GroupName::new("a", "").unwrap(),
            GroupName::new("b", "").unwrap(),
        );
        let key = |scope, group| DedupKey::of(&id, scope, group);
        assert_eq!(key(DedupScope::Queue, &one), key(DedupScope::Queue, &other));
        assert_ne!(key(DedupScope::Group, &one), key(DedupScope::Group, &other));
        assert_ne!(key(DedupScope::Group, &one), key(DedupScope::Queue, &one));
        let (ia, b) = (DedupId::new("ia", "").unwrap(), GroupName::new("b", "").unwrap());
        let ab = GroupName::new("bi", "").unwrap();
        assert_ne!(
            DedupKey::of(&ia, DedupScope::Group, &b),
            DedupKey::of(&DedupId::new("a", "").unwrap(), DedupScope::Group, &ab)
        );
    }
}
