//! Records of claims: one node per claim, whatever its number of messages.

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use super::{Catalogue, OwnedSlot, failed, from_json, layout, to_json};
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::group::AttemptId;
use angarium_core::ids::{ClaimId, ClientId, MessageId, QueueId, Slot};
use angarium_core::limits;
use angarium_core::names::{QueueRef, address};
use angarium_core::receipt::Attempt;
use angarium_core::time::Timestamp;

/// The stored record of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// The queue of its messages, as clients address it: a claim expires whether its queue is in use or not.
    #[serde(flatten, with = "address")]
    pub at: QueueRef,
    /// Incarnation of the queue.
    pub queue: QueueId,
    /// The claimed messages. Messages that were deleted since may still be listed.
    pub messages: Vec<ClaimedMessage>,
    /// Time to live in seconds.
    pub ttl: u32,
    /// Grace in seconds.
    pub grace: u32,
    /// Creation time in milliseconds since the Unix epoch.
    pub created: u64,
    /// Expiry in milliseconds since the Unix epoch.
    pub expires: u64,
    /// The `Client-ID` of the request that created the claim, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientId>,
    /// The receive request that created the claim, if the request may be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptRecord>,
    /// The name that the holder gave itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl ClaimRecord {
    /// Whether the receive request that created the claim was repeated: the claim began again later than that request.
    pub fn is_repeated(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.received < self.created)
    }
}

/// The stored record of a receive request that may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// The client's id of the request.
    id: String,
    /// Time of the request in milliseconds since the Unix epoch.
    received: u64,
    /// Number of its messages.
    messages: usize,
}

impl From<&Attempt> for AttemptRecord {
    fn from(attempt: &Attempt) -> Self {
        let Attempt { id, received, messages } = attempt;
        Self { id: id.to_string(), received: received.as_millis(), messages: *messages }
    }
}

impl AttemptRecord {
    /// Returns the decoded record; none when it has values that this program does not write.
    pub fn read(&self) -> Option<Attempt> {
        let (id, received) = (AttemptId::new(&self.id, "").ok()?, Timestamp::from_millis(self.received));
        Some(Attempt { id, received, messages: self.messages })
    }
}

/// A message in a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedMessage {
    pub id: MessageId,
    /// How often the message has been claimed, including this claim.
    pub attempt: u32,
}

/// The claims of a slot, read by a new owner.
#[derive(Debug, Default)]
pub struct SlotClaims {
    pub claims: Vec<(ClaimId, ClaimRecord)>,
    /// Bit set of the existing bucket directories, one bit per bucket.
    pub buckets: u64,
}

/// One of the two claims of a split, with its new record.
#[derive(Clone, Copy, Debug)]
pub struct SplitPart<'a> {
    pub id: ClaimId,
    pub record: &'a ClaimRecord,
}

impl Catalogue {
    /// Reads all claims of a slot. The bucket directories are read concurrently.
    pub async fn claims(&self, slot: &OwnedSlot) -> Result<SlotClaims, Error> {
        let mut found = SlotClaims::default();
        let elements = self.tree.children(&layout::slot_claims(slot.slot)).await.map_err(failed)?;
        let mut reads = Vec::with_capacity(elements.len());
        for element in elements {
            let Some(bucket) = parse_bucket(&element) else {
                return Err(Error::unavailable(Part::Coordination, format!("{element:?} is no bucket")));
            };
            found.buckets |= 1 << bucket;
            reads.push(self.bucket_claims(slot.slot, bucket));
        }
        found.claims = try_join_all(reads).await?.into_iter().flatten().collect();
        Ok(found)
    }

    async fn bucket_claims(&self, slot: Slot, bucket: u8) -> Result<Vec<(ClaimId, ClaimRecord)>, Error> {
        let damaged = |error: uuid::Error| Error::unavailable(Part::Coordination, error);
        let names = self.tree.children(&layout::bucket(slot, bucket)).await.map_err(failed)?;
        let ids =
            names.iter().map(|name| name.parse().map_err(damaged)).collect::<Result<Vec<ClaimId>, _>>()?;
        let paths: Vec<String> = ids.iter().map(|id| layout::claim(slot, *id)).collect();
        let nodes = self.tree.get_many(&paths).await.map_err(failed)?;
        let found = ids.into_iter().zip(nodes).filter_map(|(id, node)| Some((id, node?)));
        found.map(|(id, node)| Ok((id, from_json(&node)?))).collect()
    }

    /// Creates the record of a claim. With `new_bucket`, also creates its bucket directory, if that is missing.
    pub async fn claim_create(
        &self,
        slot: &OwnedSlot,
        id: ClaimId,
        record: &ClaimRecord,
        new_bucket: bool,
    ) -> Result<(), Error> {
        let node = Op::create(layout::claim(slot.slot, id), to_json(record));
        if new_bucket {
            let directory = Op::create(layout::bucket(slot.slot, id.bucket()), "{}");
            match self.commit_as_owner(slot, &[], &[directory, node.clone()]).await {
                Ok(_) => return Ok(()),
                // Another claim of this process created it at the same time.
                Err(TreeError::Refused { op: 0, why: Refusal::NodeExists }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        match self.commit_as_owner(slot, &[], &[node]).await {
            Ok(_) => Ok(()),
            Err(TreeError::Refused { why: Refusal::Full, .. }) => {
                Err(Error::TooMany { what: "live claims in one slot", bound: limits::SLOT_CLAIMS })
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Replaces the record of a claim. Returns false when the claim has no record any more.
    pub async fn claim_update(
        &self,
        slot: &OwnedSlot,
        id: ClaimId,
        record: &ClaimRecord,
    ) -> Result<bool, Error> {
        let path = layout::claim(slot.slot, id);
        let op = Op::Set { path, data: to_json(record), version: None };
        match self.commit_as_owner(slot, &[], &[op]).await {
            Ok(_) => Ok(true),
            Err(TreeError::Refused { why: Refusal::NoNode, .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Splits a claim in one commit: replaces its record by one with fewer messages, and creates the record of a new
    /// claim with the others. With `new_bucket`, also creates the bucket directory of the new claim, if that is
    /// missing.
    pub async fn split_claim(
        &self,
        slot: &OwnedSlot,
        old: SplitPart<'_>,
        new: SplitPart<'_>,
        new_bucket: bool,
    ) -> Result<(), Error> {
        match self.commit_split(slot, old, new, new_bucket).await {
            Ok(()) => Ok(()),
            Err(TreeError::Refused { why: Refusal::Full, .. }) => {
                Err(Error::TooMany { what: "live claims in one slot", bound: limits::SLOT_CLAIMS })
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Repeats [`Catalogue::split_claim`] after an attempt with an unknown outcome. Commits reach the tree in order, so
    /// an answer settles the first attempt too. Returns false when the old claim has no record any more, which happens
    /// once all its messages are deleted; then the new claim may have a record.
    pub async fn repeat_split(
        &self,
        slot: &OwnedSlot,
        old: SplitPart<'_>,
        new: SplitPart<'_>,
        new_bucket: bool,
    ) -> Result<bool, Error> {
        match self.commit_split(slot, old, new, new_bucket).await {
            // The first attempt created it: no other replica uses this id.
            Ok(()) | Err(TreeError::Refused { why: Refusal::NodeExists, .. }) => Ok(true),
            Err(TreeError::Refused { why: Refusal::NoNode, .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    async fn commit_split(
        &self,
        slot: &OwnedSlot,
        old: SplitPart<'_>,
        new: SplitPart<'_>,
        new_bucket: bool,
    ) -> Result<(), TreeError> {
        let set =
            Op::Set { path: layout::claim(slot.slot, old.id), data: to_json(old.record), version: None };
        let ops = [set, Op::create(layout::claim(slot.slot, new.id), to_json(new.record))];
        if new_bucket {
            let directory = Op::create(layout::bucket(slot.slot, new.id.bucket()), "{}");
            let ops = [&[directory], &ops[..]].concat();
            match self.commit_as_owner(slot, &[], &ops).await {
                // Another claim of this process created it at the same time.
                Err(TreeError::Refused { op: 0, why: Refusal::NodeExists }) => {}
                outcome => return outcome.map(drop),
            }
        }
        self.commit_as_owner(slot, &[], &ops).await.map(drop)
    }

    /// Deletes the records of claims. Records that are already deleted are no error.
    pub async fn claims_delete(&self, slot: &OwnedSlot, ids: &[ClaimId]) -> Result<(), Error> {
        for (number, chunk) in ids.chunks(limits::TREE_BATCH_OPS - 1).enumerate() {
            let mut ops: Vec<Op> =
                chunk.iter().map(|id| Op::Delete { path: layout::claim(slot.slot, *id) }).collect();
            loop {
                match self.commit_as_owner(slot, &[], &ops).await {
                    Ok(_) => break,
                    Err(TreeError::Refused { op, why: Refusal::NoNode }) => drop(ops.remove(op)),
                    // The records of the earlier chunks are already deleted.
                    Err(error) if number > 0 => return Err(failed(error).into_unknown()),
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        Ok(())
    }
}

fn parse_bucket(element: &str) -> Option<u8> {
    let bucket = u8::from_str_radix(element, 16).ok()?;
    (usize::from(bucket) < limits::CLAIM_BUCKETS).then_some(bucket)
}
