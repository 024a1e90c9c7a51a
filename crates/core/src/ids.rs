//! Slots and ids: the slot of a queue's name, and ids that only grow. Callers pass randomness in.

use std::fmt;
use std::str::FromStr;

use rand::RngCore;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

use crate::limits;
use crate::names::{ProjectId, QueueName};
use crate::time::Timestamp;

/// One of the 256 slots, the unit of ownership.
///
/// It is the first byte of the XXH3 hash of project, a zero byte and queue name. Stored ids and paths contain the slot,
/// so the rule never changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u8);

impl Slot {
    /// The slot of a queue's name. The queue of a subscription is in the slot of its source.
    pub fn of(project: &ProjectId, queue: &QueueName) -> Self {
        let mut hash = Xxh3::new();
        hash.update(project.as_str().as_bytes());
        hash.update(&[0]);
        hash.update(queue.source().as_bytes());
        Self(hash.digest().to_be_bytes()[0])
    }

    /// All slots, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).map(Self)
    }
}

impl fmt::Display for Slot {
    /// Two hex digits, as in the paths of the tree.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}", self.0)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The id of one incarnation of a queue: its slot, then 15 random bytes. A queue that is deleted and created again has
/// another id, so it never sees data of the old queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId([u8; 16]);

impl QueueId {
    /// Returns a new id in `slot`.
    pub fn new(slot: Slot, random: &mut dyn RngCore) -> Self {
        let mut bytes = [0; 16];
        random.fill_bytes(&mut bytes);
        bytes[0] = slot.0;
        Self(bytes)
    }

    /// The stored form, for keys.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The slot of the queue.
    pub const fn slot(&self) -> Slot {
        Slot(self.0[0])
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Uuid::from_bytes(self.0).simple())
    }
}

/// The id of a subscription, which is the id of its queue too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubscriptionId(pub QueueId);

impl fmt::Display for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_bytes(self.0.0).hyphenated().fmt(f)
    }
}

impl FromStr for SubscriptionId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl fmt::Debug for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for QueueId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(Uuid::parse_str(text)?.into_bytes()))
    }
}

impl Serialize for QueueId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for QueueId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The id of a message: a UUID of version 7, so ids sort in the order of posting within their queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(Uuid);

impl MessageId {
    /// A value below every id.
    pub const ZERO: Self = Self(Uuid::nil());
    /// A value above every id.
    pub const MAX: Self = Self(Uuid::max());

    /// The stored form, for keys; the bytes sort as the ids do.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The next greater value; the max value stays.
    pub const fn next(self) -> Self {
        Self(Uuid::from_u128(self.0.as_u128().saturating_add(1)))
    }

    /// The time in the id, in milliseconds since the Unix epoch: when it was made, or the time of the id before it if
    /// that was later.
    pub const fn millis(self) -> u64 {
        (self.0.as_u128() >> 80) as u64
    }

    /// The sequence number of the message: it grows from message to message of a queue, with gaps.
    pub const fn sequence(self) -> SequenceNumber {
        let bits = self.0.as_u128();
        let (time, high, low) = (bits >> 80, bits >> 64 & 0xfff, bits >> 56 & 0x3f);
        SequenceNumber(time << 18 | high << 6 | low)
    }

    /// The id of the copy of this message in the queue of a subscription: it has the same place in the order, and is no
    /// id of the source.
    #[must_use]
    pub fn of_copy(self, subscription: SubscriptionId) -> Self {
        let mut hash = Xxh3::new();
        hash.update(self.as_bytes());
        hash.update(subscription.0.as_bytes());
        let (bits, low) = (self.0.as_u128(), (1 << LOW_BITS) - 1);
        Self(Uuid::from_u128(bits & !low | u128::from(hash.digest()) & low))
    }

    /// The next smaller value; zero stays zero.
    pub const fn before(self) -> Self {
        Self(Uuid::from_u128(self.0.as_u128().saturating_sub(1)))
    }
}

/// The sequence number of a message: as text it has 20 digits, so texts sort as the numbers do (SQS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SequenceNumber(u128);

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}", self.0)
    }
}

/// The id that a client chooses for itself: the `Client-ID` of its requests. It is no secret and no proof of identity.
pub type ClientId = Uuid;

/// The id of a claim: a random UUID (version 4), because every caller that knows it may delete the messages of the
/// claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimId(Uuid);

impl ClaimId {
    /// The id of no claim: it replaces a text that cannot be an id.
    pub const NONE: Self = Self(Uuid::nil());

    /// A new id.
    pub fn new(random: &mut dyn RngCore) -> Self {
        let mut bytes = [0; 16];
        random.fill_bytes(&mut bytes);
        Self(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }

    /// The id that was stored as these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The bytes in which the id is stored.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The directory of its slot that holds the node of the claim.
    pub fn bucket(&self) -> u8 {
        let bucket = usize::from(self.0.as_bytes()[0]) % limits::CLAIM_BUCKETS;
        u8::try_from(bucket).expect("there are fewer than 256 buckets")
    }
}

macro_rules! uuid_text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    )*};
}

uuid_text!(MessageId, ClaimId);

/// Generates the message ids of one slot, each greater than the one before and than every id in the slot's pools.
///
/// The time in an id never decreases: while the clock is behind the last id, the random tail counts up instead. Source:
/// RFC 9562, section 6.2, method 2.
#[derive(Debug)]
pub struct IdSequence {
    last: u128,
}

/// Bits of a version 7 UUID that are neither time, version nor variant.
const TAIL_BITS: u32 = 74;
/// Bits of the tail that are not in the sequence number: any two ids differ in the other bits.
const LOW_BITS: u32 = 56;

impl IdSequence {
    /// Returns a sequence whose first id is greater than `last`.
    pub fn after(last: MessageId) -> Self {
        let bits = last.0.as_u128();
        let time = bits >> 80;
        let tail = (bits >> 64 & 0xfff) << 62 | bits & ((1 << 62) - 1);
        Self { last: time << TAIL_BITS | tail }
    }

    /// The last id, or the start value if there is none yet.
    pub fn last(&self) -> MessageId {
        Self::id_of(self.last)
    }

    /// Makes all later ids greater than `last`.
    pub fn skip_to(&mut self, last: MessageId) {
        self.last = self.last.max(Self::after(last).last);
    }

    /// Returns the next id. Its time is `now`, unless that would not exceed the time of the last id: then the tail
    /// counts up, and some hundred thousand ids fit into each millisecond.
    pub fn next(&mut self, now: Timestamp, random: &mut dyn RngCore) -> MessageId {
        // The top bit of a fresh tail is clear, so that there is room to count up within the millisecond.
        let fresh = u128::from(now.as_millis() & 0xffff_ffff_ffff) << TAIL_BITS
            | u128::from(random.next_u64()) << 9
            | u128::from(random.next_u32() >> 23);
        let step = (1 << LOW_BITS) + u128::from(random.next_u32());
        self.last = if fresh > self.last && fresh >> TAIL_BITS > self.last >> TAIL_BITS {
            fresh
        } else {
            self.last + step
        };
        Self::id_of(self.last)
    }

    fn id_of(count: u128) -> MessageId {
        let time = count >> TAIL_BITS;
        let high = count >> 62 & 0xfff;
        let low = count & ((1 << 62) - 1);
        MessageId(Uuid::from_u128(time << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn slots_of_names_never_change() {
        let slot = |project: &str, queue: &str| {
            Slot::of(&ProjectId::new(project).unwrap(), &QueueName::new(queue).unwrap()).0
        };
        assert_eq!([slot("", "orders"), slot("p1", "orders"), slot("p", "1orders")], [145, 88, 224]);
    }

    #[test]
    fn queue_ids_begin_with_their_slot_and_survive_text() {
        let id = QueueId::new(Slot(0xa7), &mut SmallRng::seed_from_u64(1));
        assert_eq!(id.slot(), Slot(0xa7));
        assert_eq!(id.to_string().parse::<QueueId>().unwrap(), id);
    }

    proptest! {
        #[test]
        fn copies_have_the_order_of_their_messages(seed: u64, clock in prop::collection::vec(0u64..4, 2..50)) {
            let mut random = SmallRng::seed_from_u64(seed);
            let subscription = SubscriptionId(QueueId::new(Slot(1), &mut random));
            let mut ids = IdSequence::after(MessageId::ZERO);
            let made: Vec<_> =
                clock.into_iter().map(|millis| ids.next(Timestamp::from_millis(millis), &mut random)).collect();
            let copies: Vec<_> = made.iter().map(|id| id.of_copy(subscription)).collect();
            prop_assert!(copies.is_sorted_by(|one, next| one < next));
            // The copies of the messages before an id are before each copy with a later id.
            prop_assert!(made.windows(2).zip(&copies).all(|(two, copy)| *copy < two[1]));
            prop_assert!(copies.iter().all(|copy| !made.contains(copy) && copy.0.get_version_num() == 7));
        }

        #[test]
        fn ids_only_grow_whatever_the_clock_does(seed: u64, clock in prop::collection::vec(0u64..4_000, 1..50)) {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut ids = IdSequence::after(MessageId::ZERO);
            let mut last = MessageId::ZERO;
            for millis in clock {
                let id = ids.next(Timestamp::from_millis(millis), &mut random);
                prop_assert!(id > last);
                prop_assert!(id.sequence() > last.sequence());
                prop_assert_eq!(id.sequence().to_string().len(), 20);
                prop_assert_eq!(id.0.get_version_num(), 7);
                last = id;
                if millis % 7 == 0 {
                    ids = IdSequence::after(last);
                }
            }
        }
    }
}
