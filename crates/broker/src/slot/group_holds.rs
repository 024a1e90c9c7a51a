//! Holds of the groups of the queues of a slot, in memory as the tree has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::group::GroupName;
use angarium_core::hold::{GroupHold, HoldId};
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;

use crate::slot::state::{Slot, SlotState};

/// The holds of a slot by the names of their queues and groups.
#[derive(Debug, Default)]
pub(crate) struct SlotGroupHolds {
    of: HashMap<QueueRef, BTreeMap<GroupName, GroupHold>>,
    /// Queues whose releases a task carries out.
    releasing: HashSet<QueueRef>,
}

impl SlotGroupHolds {
    /// The holds that were found when the slot was acquired.
    pub(in crate::slot) fn new(found: Vec<(QueueRef, Vec<(GroupName, GroupHold)>)>) -> Self {
        let of = found.into_iter().map(|(at, holds)| (at, holds.into_iter().collect())).collect();
        Self { of, releasing: HashSet::default() }
    }

    /// The groups of a queue of which no message is given to a claim.
    pub(in crate::slot) fn barred(&self, at: &QueueRef) -> impl Iterator<Item = (GroupName, HoldId)> {
        let groups = self.of.get(at).into_iter().flatten();
        groups.filter(|(_, held)| held.bars_claims()).map(|(group, held)| (group.clone(), held.id))
    }

    /// Checks that the messages of a post are stored at this time.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] when the hold of a group refuses one of them, or when holds discard all of them. If holds discard
    /// only some of them, all are refused: none is stored, and none is lost.
    pub(in crate::slot) fn check_post(
        &self,
        at: &QueueRef,
        messages: &[NewMessage],
        now: Timestamp,
    ) -> Result<(), Error> {
        if self.of.is_empty() {
            return Ok(());
        }
        let Some(groups) = self.of.get(at) else { return Ok(()) };
        let (mut stored, mut discarded) = (0, None);
        for message in messages {
            let held = message.group.as_ref().and_then(|group| groups.get(group));
            match held.filter(|held| !held.is_releasing).map(|held| held.hold.check_post(now)) {
                None | Some(Ok(())) => stored += 1,
                Some(Err(error @ Error::Held { is_discarded: true, .. })) => discarded = Some(error),
                Some(Err(error)) => return Err(error),
            }
        }
        match discarded {
            Some(Error::Held { reason, retry_after, .. }) => {
                Err(Error::Held { reason, retry_after, is_discarded: stored == 0 })
            }
            _ => Ok(()),
        }
    }

    /// Returns the times when the holds in force were made.
    pub(in crate::slot) fn times(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let holds = self.of.values().flat_map(BTreeMap::values);
        holds.filter(move |held| !held.is_ended(now)).map(|held| held.hold.since)
    }
}

impl SlotState {
    /// Tells the engine of a queue which of its groups are held.
    pub(in crate::slot) fn follow_group_holds(&mut self, at: &QueueRef) {
        let Self { queues, group_holds, .. } = self;
        if let Some(queue) = queues.get_mut(at) {
            queue.engine.hold_groups(group_holds.barred(at));
        }
    }
}

impl Slot {
    /// Returns the holds of the groups of a queue, also ended ones that are not removed yet.
    pub(crate) fn group_holds(self: &Arc<Self>, at: &QueueRef) -> BTreeMap<GroupName, GroupHold> {
        self.lock().group_holds.of.get(at).cloned().unwrap_or_default()
    }

    /// Whether the tree has a record of holds of groups of a queue.
    pub(crate) fn has_group_holds(self: &Arc<Self>, at: &QueueRef) -> bool {
        self.lock().group_holds.of.contains_key(at)
    }

    /// Checks that a hold of its group lets a message be stored now.
    pub(crate) fn check_group_post(
        self: &Arc<Self>,
        at: &QueueRef,
        message: &NewMessage,
    ) -> Result<(), Error> {
        let now = self.around.replica.clock.now();
        self.lock().group_holds.check_post(at, std::slice::from_ref(message), now)
    }

    /// Enters the holds that the tree has. No later look at the queue chooses a message of a held group, and claims that
    /// wait get messages of the others.
    pub(crate) fn enter_group_holds(self: &Arc<Self>, at: &QueueRef, holds: BTreeMap<GroupName, GroupHold>) {
        let mut state = self.lock();
        if holds.is_empty() {
            state.group_holds.of.remove(at);
        } else {
            state.group_holds.of.insert(at.clone(), holds);
        }
        state.follow_group_holds(at);
        state.serve(at);
    }

    /// Removes the holds of the groups of a deleted queue.
    pub(crate) fn forget_group_holds(self: &Arc<Self>, at: &QueueRef) {
        self.lock().group_holds.of.remove(at);
    }

    /// Returns queues with ended holds of groups whose releases no task carries out. The caller carries them out, and
    /// calls [`Self::end_group_releases`].
    pub(crate) fn begin_group_releases(self: &Arc<Self>, now: Timestamp) -> Vec<QueueRef> {
        let mut state = self.lock();
        let SlotGroupHolds { of, releasing } = &mut state.group_holds;
        let ended = of.iter().filter(|(_, groups)| groups.values().any(|held| held.is_ended(now)));
        let begun: Vec<QueueRef> =
            ended.map(|(at, _)| at.clone()).filter(|at| !releasing.contains(at)).collect();
        releasing.extend(begun.iter().cloned());
        begun
    }

    /// A task does not carry out the releases of a queue any more.
    pub(crate) fn end_group_releases(self: &Arc<Self>, at: &QueueRef) {
        self.lock().group_holds.releasing.remove(at);
    }
}
