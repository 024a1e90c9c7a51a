//! Records of holds of groups: one node for each queue that has some.

use serde::{Deserialize, Serialize};

use super::holds::HoldRecord;
use super::{Catalogue, OwnedSlot, layout, to_json};
use angarium_core::error::{Error, Part};
use angarium_core::group::GroupName;
use angarium_core::hold::{GroupHold, HoldId};
use angarium_core::names::{QueueRef, address};

/// The holds of the groups of a queue as they are stored.
#[derive(Serialize, Deserialize)]
struct GroupHoldsRecord {
    #[serde(flatten, with = "address")]
    at: QueueRef,
    groups: Vec<GroupHoldRecord>,
}

/// The hold of one group.
#[derive(Serialize, Deserialize)]
struct GroupHoldRecord {
    group: String,
    id: HoldId,
    #[serde(default)]
    is_releasing: bool,
    #[serde(flatten)]
    hold: HoldRecord,
}

impl GroupHoldsRecord {
    fn of(at: &QueueRef, holds: &[(GroupName, GroupHold)]) -> Self {
        let record = |(group, held): &(GroupName, GroupHold)| GroupHoldRecord {
            group: group.as_str().to_owned(),
            id: held.id,
            is_releasing: held.is_releasing,
            hold: HoldRecord::from(&held.hold),
        };
        Self { at: at.clone(), groups: holds.iter().map(record).collect() }
    }

    fn into_holds(self) -> Result<(QueueRef, Vec<(GroupName, GroupHold)>), Error> {
        let hold = |record: GroupHoldRecord| {
            let GroupHoldRecord { group, id, is_releasing, hold } = record;
            let damaged = |error: Error| Error::unavailable(Part::Coordination, error);
            let group = GroupName::new(&group, "group").map_err(damaged)?;
            Ok((group, GroupHold { id, hold: hold.into_hold(), is_releasing }))
        };
        Ok((self.at, self.groups.into_iter().map(hold).collect::<Result<_, Error>>()?))
    }
}

impl Catalogue {
    /// Returns the holds of groups in the queues of a slot.
    pub async fn group_holds(
        &self,
        slot: &OwnedSlot,
    ) -> Result<Vec<(QueueRef, Vec<(GroupName, GroupHold)>)>, Error> {
        let directory = layout::slot_group_holds(slot.slot);
        let records = self.read_directory::<GroupHoldsRecord>(&directory).await?;
        records.into_iter().map(GroupHoldsRecord::into_holds).collect()
    }

    /// Writes the holds of the groups of a queue, in place of the earlier ones. Without any the record is deleted.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] when the slot has as many queues with held groups as it may.
    pub async fn group_holds_write(
        &self,
        slot: &OwnedSlot,
        queue: &QueueRef,
        holds: &[(GroupName, GroupHold)],
    ) -> Result<(), Error> {
        let path = layout::group_holds(slot.slot, queue);
        if holds.is_empty() {
            return self.delete_of_slot(slot, path).await;
        }
        let data = to_json(&GroupHoldsRecord::of(queue, holds));
        let directory = layout::slot_group_holds(slot.slot);
        self.write_in_directory(slot, (directory, path), data, "queues with held groups in one slot").await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::hold::{Hold, HoldEffects, HoldReason};
    use angarium_core::names::{ProjectId, QueueName};
    use angarium_core::time::Timestamp;
    use uuid::Uuid;

    #[test]
    fn stored_holds_of_groups_are_read_as_they_were_written() {
        let at = QueueRef { project: ProjectId::new("p").unwrap(), name: QueueName::new("q").unwrap() };
        let held = |group: &str, is_releasing| {
            let hold = Hold {
                effects: HoldEffects::new(true, false, true).unwrap(),
                reason: HoldReason::new("bad deploy").unwrap(),
                by: None,
                since: Timestamp::from_millis(7),
                until: None,
            };
            let id = HoldId(Uuid::from_u128(7));
            (GroupName::new(group, "group").unwrap(), GroupHold { id, hold, is_releasing })
        };
        let holds = vec![held("a/b:c", false), held("d", true)];
        let stored = to_json(&GroupHoldsRecord::of(&at, &holds));
        let read: GroupHoldsRecord = serde_json::from_slice(&stored).unwrap();
        assert_eq!(read.into_holds().unwrap(), (at, holds));
    }
}
