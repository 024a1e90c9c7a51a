//! Records of holds of queues: one node for each held queue.

use serde::{Deserialize, Serialize};

use super::{Catalogue, OwnedSlot, failed, from_json, layout, to_json};
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::hold::{Hold, HoldEffects, HoldReason, PostEffect};
use angarium_core::limits;
use angarium_core::names::{QueueRef, address};
use angarium_core::time::Timestamp;

/// The hold of a queue as it is stored.
#[derive(Serialize, Deserialize)]
struct HoldRecord {
    #[serde(flatten, with = "address")]
    at: QueueRef,
    #[serde(default)]
    claim: bool,
    #[serde(default)]
    post: bool,
    #[serde(default)]
    discard: bool,
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// In milliseconds since the Unix epoch.
    since: u64,
    /// Likewise; absent when it does not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
}

impl HoldRecord {
    fn of(at: &QueueRef, hold: &Hold) -> Self {
        Self {
            at: at.clone(),
            claim: hold.effects.bars_claims(),
            post: hold.effects.posts() == Some(PostEffect::Refused),
            discard: hold.effects.posts() == Some(PostEffect::Discarded),
            reason: hold.reason.to_string(),
            by: hold.by.clone(),
            since: hold.since.as_millis(),
            until: hold.until.map(Timestamp::as_millis),
        }
    }

    fn into_hold(self) -> Result<(QueueRef, Hold), Error> {
        let damaged = |error: Error| Error::unavailable(Part::Coordination, error);
        let hold = Hold {
            effects: HoldEffects::new(self.claim, self.post, self.discard).map_err(damaged)?,
            reason: HoldReason::stored(self.reason),
            by: self.by,
            since: Timestamp::from_millis(self.since),
            until: self.until.map(Timestamp::from_millis),
        };
        Ok((self.at, hold))
    }
}

impl Catalogue {
    /// Returns the holds of the queues of a slot.
    pub async fn holds(&self, slot: &OwnedSlot) -> Result<Vec<(QueueRef, Hold)>, Error> {
        let names = self.tree.children(&layout::slot_holds(slot.slot)).await.map_err(failed)?;
        let mut holds = Vec::with_capacity(names.len());
        for chunk in names.chunks(limits::LISTING_RECORDS) {
            let paths: Vec<String> =
                chunk.iter().map(|name| format!("{}/{name}", layout::slot_holds(slot.slot))).collect();
            for node in self.tree.get_many(&paths).await.map_err(failed)?.into_iter().flatten() {
                holds.push(from_json::<HoldRecord>(&node)?.into_hold()?);
            }
        }
        Ok(holds)
    }

    /// Writes the hold of a queue, in place of an earlier one.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] when the slot has as many held queues as it may.
    pub async fn hold_write(&self, slot: &OwnedSlot, queue: &QueueRef, hold: &Hold) -> Result<(), Error> {
        let (path, data) = (layout::hold(slot.slot, queue), to_json(&HoldRecord::of(queue, hold)));
        let directory = layout::slot_holds(slot.slot);
        self.write_in_directory(slot, (directory, path), data, "held queues in one slot").await
    }

    /// Deletes the hold of a queue. A hold that is already deleted is no error.
    pub async fn hold_delete(&self, slot: &OwnedSlot, queue: &QueueRef) -> Result<(), Error> {
        let path = layout::hold(slot.slot, queue);
        match self.commit_as_owner(slot, &[], &[Op::Delete { path }]).await {
            Ok(_) | Err(TreeError::Refused { why: Refusal::NoNode, .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::names::{ProjectId, QueueName};

    #[test]
    fn stored_hold_is_read_as_it_was_written() {
        let at = QueueRef { project: ProjectId::new("p").unwrap(), name: QueueName::new("q").unwrap() };
        for (claim, post, discard) in [(true, false, false), (false, true, false), (true, false, true)] {
            let hold = Hold {
                effects: HoldEffects::new(claim, post, discard).unwrap(),
                reason: HoldReason::new("bad deploy").unwrap(),
                by: Some("ops".to_owned()),
                since: Timestamp::from_millis(7),
                until: Some(Timestamp::from_millis(9)),
            };
            let stored = to_json(&HoldRecord::of(&at, &hold));
            let read: HoldRecord = serde_json::from_slice(&stored).unwrap();
            assert_eq!(read.into_hold().unwrap(), (at.clone(), hold));
        }
    }
}
