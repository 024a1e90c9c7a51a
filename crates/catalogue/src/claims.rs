//! Records of claims: one node each, whatever the number of messages.

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

/// A claim as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// The queue of its messages, as its clients address it: a claim ends in time whether its queue is used or not.
    #[serde(flatten, with = "address")]
    pub at: QueueRef,
    /// The incarnation of the queue.
    pub queue: QueueId,
    /// Its messages. Those that were deleted since may still be named.
    pub messages: Vec<ClaimedMessage>,
    /// Seconds.
    pub ttl: u32,
    /// Seconds.
    pub grace: u32,
    /// Milliseconds since the Unix epoch.
    pub created: u64,
    /// Milliseconds since the Unix epoch.
    pub expires: u64,
    /// The `Client-ID` that it was made under, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientId>,
    /// The receive that made it, if that may be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptRecord>,
}

/// A receive that may be repeated, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// What its client calls it.
    id: String,
    /// Milliseconds since the Unix epoch.
    received: u64,
    /// How many messages it had.
    messages: usize,
}

impl From<&Attempt> for AttemptRecord {
    fn from(attempt: &Attempt) -> Self {
        let Attempt { id, received, messages } = attempt;
        Self { id: id.to_string(), received: received.as_millis(), messages: *messages }
    }
}

impl AttemptRecord {
    /// What it states; none when it is not what this program writes.
    pub fn read(&self) -> Option<Attempt> {
        let (id, received) = (AttemptId::new(&self.id, "").ok()?, Timestamp::from_millis(self.received));
        Some(Attempt { id, received, messages: self.messages })
    }
}

/// A message in a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedMessage {
    pub id: MessageId,
    /// How often it has been claimed, this claim included.
    pub attempt: u32,
}

/// The claims of a slot as a new owner finds them.
#[derive(Debug, Default)]
pub struct SlotClaims {
    /// Every claim.
    pub claims: Vec<(ClaimId, ClaimRecord)>,
    /// One bit for each directory that is there.
    pub buckets: u64,
}

/// One of the two claims that a claim is split into, with the record that it has from then on.
#[derive(Clone, Copy, Debug)]
pub struct SplitPart<'a> {
    pub id: ClaimId,
    pub record: &'a ClaimRecord,
}

impl Catalogue {
    /// All claims of a slot. Its directories are read at the same time.
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

    /// Records a claim; with `new_bucket` also the directory it is in, if that is not there yet.
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
                // Another claim of this process made it at the same time.
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

    /// Replaces the record of a claim. False when there is none any more.
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

    /// Replaces the record of a claim by one with fewer messages and records the claim of the others, in one commit.
    /// With `new_bucket` also the directory that one is in, if that is not there yet.
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

    /// As [`Catalogue::split_claim`], after a try whose outcome is unknown. False when the old claim has no record any more, as once
    /// all its messages were deleted; then the new one may have one. Commits reach the tree in order, so an answer settles the first
    /// try too.
    pub async fn repeat_split(
        &self,
        slot: &OwnedSlot,
        old: SplitPart<'_>,
        new: SplitPart<'_>,
        new_bucket: bool,
    ) -> Result<bool, Error> {
        match self.commit_split(slot, old, new, new_bucket).await {
            // The first try has made it, and its id is no other replica's.
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
                // Another claim of this process made it at the same time.
                Err(TreeError::Refused { op: 0, why: Refusal::NodeExists }) => {}
                outcome => return outcome.map(drop),
            }
        }
        self.commit_as_owner(slot, &[], &ops).await.map(drop)
    }

    /// Removes the records of claims; those that are gone already stay so.
    pub async fn claims_delete(&self, slot: &OwnedSlot, ids: &[ClaimId]) -> Result<(), Error> {
        for (number, some) in ids.chunks(limits::TREE_BATCH_OPS - 1).enumerate() {
            let mut ops: Vec<Op> =
                some.iter().map(|id| Op::Delete { path: layout::claim(slot.slot, *id) }).collect();
            loop {
                match self.commit_as_owner(slot, &[], &ops).await {
                    Ok(_) => break,
                    Err(TreeError::Refused { op, why: Refusal::NoNode }) => drop(ops.remove(op)),
                    // Those of the parts before are gone.
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
