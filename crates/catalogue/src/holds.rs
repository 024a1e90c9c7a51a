//! Records of holds of queues: one node for each held queue.

use serde::{Deserialize, Serialize};

use super::{Catalogue, OwnedSlot, layout, to_json};
use angarium_core::error::Error;
use angarium_core::hold::{Hold, HoldEffects, HoldReason, PostEffect};
use angarium_core::names::{QueueRef, address};
use angarium_core::time::Timestamp;

/// The hold of a queue as it is stored.
#[derive(Serialize, Deserialize)]
struct QueueHoldRecord {
    #[serde(flatten, with = "address")]
    at: QueueRef,
    #[serde(flatten)]
    hold: HoldRecord,
}

/// A hold as it is stored.
#[derive(Serialize, Deserialize)]
pub(super) struct HoldRecord {
    #[serde(default)]
    claim: bool,
    #[serde(default)]
    post: bool,
    #[serde(default)]
    discard: bool,
    /// Of pools alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    transfer: bool,
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// In milliseconds since the Unix epoch.
    since: u64,
    /// Likewise; absent when it does not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
}

impl From<&Hold> for HoldRecord {
    fn from(hold: &Hold) -> Self {
        Self {
            claim: hold.effects.bars_claims(),
            post: hold.effects.posts() == Some(PostEffect::Refused),
            discard: hold.effects.posts() == Some(PostEffect::Discarded),
            transfer: hold.effects.bars_transfers(),
            reason: hold.reason.to_string(),
            by: hold.by.clone(),
            since: hold.since.as_millis(),
            until: hold.until.map(Timestamp::as_millis),
        }
    }
}

impl HoldRecord {
    /// Returns the hold. Effects that no program writes count as all of them: nothing is granted and posts are refused
    /// until it is released.
    pub(super) fn into_hold(self) -> Hold {
        let effects = match self.transfer {
            true => HoldEffects::with_transfers(self.claim, self.post, self.discard),
            false => HoldEffects::new(self.claim, self.post, self.discard),
        };
        Hold {
            effects: effects.unwrap_or(HoldEffects::ALL),
            reason: HoldReason::stored(self.reason),
            by: self.by,
            since: Timestamp::from_millis(self.since),
            until: self.until.map(Timestamp::from_millis),
        }
    }
}

impl Catalogue {
    /// Returns the holds of the queues of a slot.
    pub async fn holds(&self, slot: &OwnedSlot) -> Result<Vec<(QueueRef, Hold)>, Error> {
        let records = self.read_directory::<QueueHoldRecord>(&layout::slot_holds(slot.slot)).await?;
        Ok(records.into_iter().map(|QueueHoldRecord { at, hold }| (at, hold.into_hold())).collect())
    }

    /// Writes the hold of a queue, in place of an earlier one.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] when the slot has as many held queues as it may.
    pub async fn hold_write(&self, slot: &OwnedSlot, queue: &QueueRef, hold: &Hold) -> Result<(), Error> {
        let record = QueueHoldRecord { at: queue.clone(), hold: hold.into() };
        let (path, data) = (layout::hold(slot.slot, queue), to_json(&record));
        let directory = layout::slot_holds(slot.slot);
        self.write_in_directory(slot, (directory, path), data, "held queues in one slot").await
    }

    /// Deletes the hold of a queue. A hold that is already deleted is no error.
    pub async fn hold_delete(&self, slot: &OwnedSlot, queue: &QueueRef) -> Result<(), Error> {
        self.delete_of_slot(slot, layout::hold(slot.slot, queue)).await
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
            let stored = to_json(&QueueHoldRecord { at: at.clone(), hold: (&hold).into() });
            let read: QueueHoldRecord = serde_json::from_slice(&stored).unwrap();
            assert_eq!((read.at, read.hold.into_hold()), (at.clone(), hold));
        }
    }

    #[test]
    fn stored_hold_with_impossible_effects_bars_everything() {
        for (post, discard) in [(false, false), (true, true)] {
            let record = HoldRecord {
                claim: false,
                post,
                discard,
                transfer: false,
                reason: "bad deploy".to_owned(),
                by: None,
                since: 7,
                until: None,
            };
            assert_eq!(record.into_hold().effects, HoldEffects::ALL);
        }
    }
}
