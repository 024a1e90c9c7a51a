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

use crate::limits;
use crate::slot::state::{Slot, SlotState};

/// The holds of a slot by the names of their queues and groups.
#[derive(Debug, Default)]
pub(crate) struct SlotGroupHolds {
    of: HashMap<QueueRef, BTreeMap<GroupName, GroupHold>>,
    /// Queues whose releases a task carries out.
    releasing: HashSet<QueueRef>,
    /// Where the next look for waiting messages of held groups begins, of queues with many held groups.
    next_look: HashMap<QueueRef, GroupName>,
}

impl SlotGroupHolds {
    /// The holds that were found when the slot was acquired.
    pub(in crate::slot) fn new(found: Vec<(QueueRef, Vec<(GroupName, GroupHold)>)>) -> Self {
        let of = found.into_iter().map(|(at, holds)| (at, holds.into_iter().collect())).collect();
        Self { of, ..Self::default() }
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

    fn forget(&mut self, at: &QueueRef) {
        self.of.remove(at);
        self.next_look.remove(at);
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

    /// Returns at most [`limits::HELD_GROUPS_READ`] of the groups of a queue that are held from claims, in order of their
    /// names. If there are more, the next call continues behind them, and after the last group with the first.
    pub(crate) fn held_groups_to_look_at(
        self: &Arc<Self>,
        at: &QueueRef,
        now: Timestamp,
    ) -> Vec<(GroupName, GroupHold)> {
        let mut state = self.lock();
        let SlotGroupHolds { of, next_look, .. } = &mut state.group_holds;
        let Some(groups) = of.get(at) else { return Vec::new() };
        let is_barred = |(_, held): &(&GroupName, &GroupHold)| held.bars_claims() && !held.is_ended(now);
        if groups.iter().filter(is_barred).count() <= limits::HELD_GROUPS_READ {
            next_look.remove(at);
            return groups
                .iter()
                .filter(is_barred)
                .map(|(group, held)| (group.clone(), held.clone()))
                .collect();
        }
        let begin = next_look.get(at).cloned();
        let is_before = |group: &GroupName| begin.as_ref().is_some_and(|begin| group < begin);
        let later = groups.iter().filter(|(group, _)| !is_before(group));
        let all = later.chain(groups.iter().filter(|(group, _)| is_before(group)));
        let mut chosen: Vec<(GroupName, GroupHold)> = all
            .filter(is_barred)
            .take(limits::HELD_GROUPS_READ + 1)
            .map(|(group, held)| (group.clone(), held.clone()))
            .collect();
        if let Some((next, _)) = chosen.pop() {
            next_look.insert(at.clone(), next);
        }
        chosen
    }

    /// The next look at the held groups of a queue begins with this one, which had a waiting message.
    pub(crate) fn note_waiting_group(self: &Arc<Self>, at: &QueueRef, group: &GroupName) {
        if let Some(next) = self.lock().group_holds.next_look.get_mut(at) {
            *next = group.clone();
        }
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
            state.group_holds.forget(at);
        } else {
            state.group_holds.of.insert(at.clone(), holds);
        }
        state.follow_group_holds(at);
        state.serve(at);
    }

    /// Removes the holds of the groups of a deleted queue.
    pub(crate) fn forget_group_holds(self: &Arc<Self>, at: &QueueRef) {
        self.lock().group_holds.forget(at);
    }

    /// Returns queues with ended holds of groups whose releases no task carries out. The caller carries them out, and
    /// calls [`Self::end_group_releases`].
    pub(crate) fn begin_group_releases(self: &Arc<Self>, now: Timestamp) -> Vec<QueueRef> {
        let mut state = self.lock();
        let SlotGroupHolds { of, releasing, .. } = &mut state.group_holds;
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
