//! Holds of groups: a held group is not delivered, and the rest of its queue is.
//!
//! ```text
//! hold ─▶ record ─▶ memory ─▶ answer          messages that claims meet are put aside, each once
//! release ─▶ record: releasing ─▶ memory ─▶ answer ─▶ make the withheld ready ─▶ record without the hold
//! ```
//!
//! As for the hold of a queue, its pools are fenced before the first answer. From the second line on the engine puts no
//! message aside, so a pass over the group that begins after the last one was put aside finds all of them. After a kill
//! a later owner repeats the passes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::timeout;
use tracing::{debug, info};

use angarium_catalogue::Schema;
use angarium_core::error::{Error, Resource};
use angarium_core::group::GroupName;
use angarium_core::hold::{GroupHold, Hold, HoldEffects, HoldId, HoldReason};
use angarium_core::ids::MessageId;
use angarium_core::limits as core_limits;
use angarium_core::message::{Header, State};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::QueueEngine;

use crate::holds::terms::HoldTerms;
use crate::limits;
use crate::queues::Queues;
use crate::queues::holds::{check_effects, check_exists};
use crate::slot::figure_sums::Contents;
use crate::slot::queue_handle::{EngineReading, QueueHandle};
use crate::slot::selected::HiddenSelection;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::state::Slot;
use crate::stores::queue_store::PageBound;
use crate::writer::pending::settled;

/// The reason of a hold that is released and is not recorded.
const UNRECORDED: &str = "its record is lost";

type Groups = BTreeMap<GroupName, GroupHold>;

impl Queues {
    /// Holds a group of a queue, in place of an earlier hold of the group. When this returns, no claim that begins later
    /// gets a message of the group, or no post to it that begins later is stored. Claims that exist continue.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is no such queue; [`Error::Invalid`] when it would have ended already;
    /// [`Error::TooMany`] when the queue has as many held groups as it may; [`Error::Unconfirmed`] when the hold is
    /// recorded, and a pool of the queue does not answer.
    pub async fn group_hold(
        &self,
        at: &QueueRef,
        group: &GroupName,
        terms: HoldTerms,
    ) -> Result<Hold, Error> {
        let (queues, at, group) = (self.clone(), at.clone(), group.clone());
        let hold = async move {
            let queue = queues.0.slots.queue(&at).await?;
            let _gate = queue.hold_gate_soon().await?;
            let held = queues.group_hold_gated(&queue, group, terms).await;
            queues.0.slots.confirm_refusal(queue.slot(), held)
        };
        self.0.replica.carry_out(hold).await
    }

    async fn group_hold_gated(
        &self,
        queue: &SlotQueue,
        group: GroupName,
        terms: HoldTerms,
    ) -> Result<Hold, Error> {
        queue.slot().check_served()?;
        check_effects(queue.at(), terms.effects)?;
        let (effects, hold) = (terms.effects, terms.begin(self.0.replica.clock.now())?);
        check_exists(queue).await?;
        self.0.replica.catalogue.schema_reach(Schema::GROUP_HOLDS).await?;
        let mut groups = queue.slot().group_holds(queue.at());
        let earlier = groups.remove(&group);
        // What an earlier hold has put aside stays aside under the same id, until this hold ends. Without an effect on
        // claims this hold has nothing aside: then the release of the earlier one must end first.
        if earlier.as_ref().is_some_and(|earlier| earlier.hold.effects.bars_claims())
            && !effects.bars_claims()
        {
            let why = "the group is held with claim, or its release has not ended: release it first";
            return Err(Error::Conflict(why.to_owned()));
        }
        let id = earlier.map_or_else(|| HoldId(self.0.replica.random.uuid()), |earlier| earlier.id);
        groups.insert(group.clone(), GroupHold { id, hold: hold.clone(), is_releasing: false });
        check_count(&groups)?;
        self.write_group_holds(queue, groups).await?;
        let (at, by) = (queue.at(), hold.by.as_deref().unwrap_or_default());
        let (project, name, until) = (&at.project, &at.name, hold.until.map(Timestamp::calendar));
        info!(%project, queue = %name, %group, reason = %hold.reason, by, until, "group held");
        self.fence_held(queue).await?;
        Ok(hold)
    }

    /// Writes the holds of the groups of a queue, and enters them. The caller holds the gate of the queue.
    async fn write_group_holds(&self, queue: &SlotQueue, groups: Groups) -> Result<(), Error> {
        let (slot, at) = (queue.slot(), queue.at());
        let holds: Vec<(GroupName, GroupHold)> =
            groups.iter().map(|(group, held)| (group.clone(), held.clone())).collect();
        let written = self.0.replica.catalogue.group_holds_write(&slot.owned, at, &holds).await;
        slot.note_placed(written.map(|()| true))?;
        slot.enter_group_holds(at, groups);
        Ok(())
    }

    /// Returns the hold of a group.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is no such queue, or the group is not held.
    pub async fn group_hold_get(&self, at: &QueueRef, group: &GroupName) -> Result<Hold, Error> {
        let queue = self.0.slots.queue(at).await?;
        let found = match check_exists(&queue).await {
            Ok(()) => {
                let held = queue.slot().group_holds(at).remove(group);
                let held = held.filter(|held| !held.is_ended(self.0.replica.clock.now()));
                held.map(|held| held.hold).ok_or_else(|| not_held(group))
            }
            Err(error) => Err(error),
        };
        self.0.slots.confirm(queue.slot(), found)
    }

    /// Ends the hold of a group, for the caller with this name. Posts to it are stored when this returns, and its messages
    /// can be claimed, the withheld ones soon after. It is no error when there is no hold; messages that a hold has put
    /// aside whose record was lost are made ready too.
    pub async fn group_release(
        &self,
        at: &QueueRef,
        group: &GroupName,
        by: Option<String>,
    ) -> Result<(), Error> {
        let (queues, at, group) = (self.clone(), at.clone(), group.clone());
        let release = async move {
            let queue = queues.0.slots.queue(&at).await?;
            let released = queues.group_release_of(&queue, &group, by).await;
            let released = queues.0.slots.confirm_refusal(queue.slot(), released);
            queues.release_groups(queue.slot());
            released
        };
        self.0.replica.carry_out(release).await
    }

    async fn group_release_of(
        &self,
        queue: &SlotQueue,
        group: &GroupName,
        by: Option<String>,
    ) -> Result<(), Error> {
        let (slot, at) = (queue.slot(), queue.at());
        slot.check_served()?;
        check_exists(queue).await?;
        let is_recorded = slot.group_holds(at).contains_key(group);
        // Read before the gate is taken, so that a pool without an answer delays no other request. A hold that is
        // recorded later puts aside for itself, and its own release finds that.
        let may_have_withheld = !is_recorded && self.may_have_withheld(queue).await?;
        let _gate = queue.hold_gate_soon().await?;
        slot.check_served()?;
        let mut groups = slot.group_holds(at);
        match groups.get(group) {
            Some(held) if held.is_releasing => return self.0.slots.check_ours(slot),
            Some(_) => begin_release(&mut groups, group),
            None if may_have_withheld => {
                let held = self.unrecorded(by.clone());
                groups.insert(group.clone(), held);
                check_count(&groups)?;
            }
            None => return self.0.slots.check_ours(slot),
        }
        self.write_group_holds(queue, groups).await?;
        let (project, name, by) = (&at.project, &at.name, by.as_deref().unwrap_or_default());
        info!(%project, queue = %name, %group, by, "group released");
        Ok(())
    }

    /// Whether messages of a group may be aside of which no hold is recorded. So it is after the tree was restored from
    /// an export that is older than the hold. The caller does not hold the gate of the queue.
    async fn may_have_withheld(&self, queue: &SlotQueue) -> Result<bool, Error> {
        let Some(open) = self.0.open_queues.open(queue).await? else { return Ok(false) };
        let is_ordered = open.read(|engine| engine.is_ordered())?.shown;
        Ok(!is_ordered && open.store()?.totals(open.id()).await?.scheduled > 0)
    }

    /// Returns the hold of a group that is not recorded, as it is while it is released.
    fn unrecorded(&self, by: Option<String>) -> GroupHold {
        let hold = Hold {
            effects: HoldEffects::CLAIMS,
            reason: HoldReason::stored(UNRECORDED.to_owned()),
            by,
            since: self.0.replica.clock.now(),
            until: None,
        };
        GroupHold { id: HoldId(self.0.replica.random.uuid()), hold, is_releasing: true }
    }

    /// Returns the hold of a group that keeps messages from the claims of a queue, among
    /// [`limits::HELD_GROUPS_READ`] groups. Of few groups it is the first one by name.
    pub(in crate::queues) async fn group_hold_of_claims(&self, queue: &SlotQueue) -> Option<Hold> {
        let groups = queue.slot().held_groups_to_look_at(queue.at(), self.0.replica.clock.now());
        if groups.is_empty() {
            return None;
        }
        match timeout(limits::HELD_GROUPS_LOOK, self.first_held(&queue.handle()?, groups)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                debug!(%error, "held groups not read");
                None
            }
            Err(_) => None,
        }
    }

    /// Returns the hold of the first of these groups that has a message which no claim has, among the first
    /// [`limits::HELD_GROUP_MESSAGES`] of the group. Of a queue without unclaimed messages it reads the totals alone.
    async fn first_held(
        &self,
        open: &QueueHandle,
        groups: Vec<(GroupName, GroupHold)>,
    ) -> Result<Option<Hold>, Error> {
        let EngineReading { store, shown: claimed } = open.read(|engine| engine.claimed_counts())?;
        let contents = Contents::of(&store.totals(open.id()).await?, claimed);
        if contents.ready + contents.delayed == 0 {
            return Ok(None);
        }
        let most = PageBound { messages: limits::HELD_GROUP_MESSAGES, bytes: limits::HELD_GROUP_BYTES };
        for (group, held) in groups {
            let page = open.store()?.group(open.id(), &group, None, most).await?;
            let is_waiting = |engine: &mut QueueEngine| {
                let headers = page.messages.iter().map(|message| &message.header);
                let mut unclaimed = headers.filter(|header| engine.hold(header.id).is_none());
                unclaimed.any(|header| header.state == State::Ready || header.held().is_some())
            };
            if open.decide(is_waiting).ok_or_else(|| open.closed())? {
                open.slot().note_waiting_group(open.at(), &group);
                return Ok(Some(held.hold));
            }
        }
        Ok(None)
    }

    /// Starts tasks for the ended holds of groups of a slot, one for each queue that has none.
    pub(crate) fn release_groups(&self, slot: &Arc<Slot>) {
        for at in slot.begin_group_releases(self.0.replica.clock.now()) {
            let (queues, within) = (self.clone(), Arc::clone(slot));
            slot.spawn(async move {
                if let Err(error) = queues.release_groups_of(&within.queue(&at)).await {
                    queues.0.replica.task_failed("release groups", format_args!("queue {}", at.name), &error);
                }
                within.end_group_releases(&at);
            });
        }
    }

    /// Carries out the releases of the groups of a queue, one after the other, until another task holds the gate of the
    /// queue: the next tick continues.
    async fn release_groups_of(&self, queue: &SlotQueue) -> Result<(), Error> {
        while let Some(group) = self.next_release(queue).await? {
            let mut is_done = false;
            while !is_done {
                queue.slot().check_served()?;
                if !self.is_releasing(queue, &group) {
                    break;
                }
                let Some(open) = self.0.open_queues.open_if_there(queue).await? else { return Ok(()) };
                is_done = self.release_pass(queue, &open, &group).await? || is_on(Mutation::ReleaseInOnePass);
                if !is_done && !self.0.replica.sleep_tick(limits::MOVE_TASK_STEP).await {
                    return Ok(());
                }
            }
            let Some(_gate) = queue.hold_gate_in_background().await else { return Ok(()) };
            queue.slot().check_served()?;
            // A request may have held the group again.
            if self.is_releasing(queue, &group) {
                let mut groups = queue.slot().group_holds(queue.at());
                groups.remove(&group);
                self.write_group_holds(queue, groups).await?;
            }
        }
        Ok(())
    }

    /// Returns a group that is being released. The release of one whose hold has ended by itself begins. None while
    /// another task holds the gate of the queue.
    async fn next_release(&self, queue: &SlotQueue) -> Result<Option<GroupName>, Error> {
        let now = self.0.replica.clock.now();
        let Some(_gate) = queue.hold_gate_in_background().await else { return Ok(None) };
        queue.slot().check_served()?;
        let mut groups = queue.slot().group_holds(queue.at());
        let ended = groups.iter().find(|(_, held)| held.is_ended(now));
        let Some((group, is_begun)) = ended.map(|(group, held)| (group.clone(), held.is_releasing)) else {
            return Ok(None);
        };
        if !is_begun {
            begin_release(&mut groups, &group);
            self.write_group_holds(queue, groups).await?;
            let at = queue.at();
            info!(project = %at.project, queue = %at.name, %group, "group hold ended");
        }
        Ok(Some(group))
    }

    fn is_releasing(&self, queue: &SlotQueue, group: &GroupName) -> bool {
        queue.slot().group_holds(queue.at()).get(group).is_some_and(|held| held.is_releasing)
    }

    /// Makes the withheld messages of a group ready. Returns whether nothing was aside, and nothing is being put aside.
    async fn release_pass(
        &self,
        queue: &SlotQueue,
        open: &QueueHandle,
        group: &GroupName,
    ) -> Result<bool, Error> {
        let is_settled = |engine: &mut QueueEngine| (engine.is_ordered(), engine.is_withholding(group));
        match open.decide(is_settled).ok_or_else(|| open.closed())? {
            // Its messages stay in their place.
            (true, _) => return Ok(true),
            _ if is_on(Mutation::ForgetWithheld) => return Ok(true),
            (false, true) => return Ok(false),
            (false, false) => {}
        }
        let _guard = open.slot().lost_on_panic();
        let most = PageBound { messages: limits::MOVE_MESSAGES, bytes: limits::MOVE_BYTES };
        let (mut after, mut is_clean) = (None, true);
        loop {
            let page = open.store()?.group(open.id(), group, after, most).await?;
            let marked = page.messages.iter().filter(|message| message.header.held().is_some());
            let aside: Vec<MessageId> = marked.map(|message| message.header.id).collect();
            is_clean &= aside.is_empty();
            if !aside.is_empty() {
                self.make_ready(open, &aside).await?;
            }
            match page.messages.last() {
                Some(last) if !page.is_last => after = Some(last.header.id),
                _ => return Ok(is_clean),
            }
            if !self.is_releasing(queue, group) {
                return Ok(false);
            }
        }
    }

    /// Makes messages ready that are aside, and counts nothing.
    async fn make_ready(&self, open: &QueueHandle, aside: &[MessageId]) -> Result<(), Error> {
        // Another request changes the others: the next pass finds the rest.
        let HiddenSelection { hidden, in_use: _in_use, .. } = open.hide_selected(aside)?;
        let read = async { open.store()?.get(open.id(), &hidden).await };
        let found = match read.await {
            Ok(found) => found,
            Err(error) => {
                open.cancel_selected(&hidden);
                return Err(error);
            }
        };
        let is_absent = |id: &MessageId| !found.iter().any(|message| message.header.id == *id);
        let absent: Vec<MessageId> = hidden.iter().copied().filter(is_absent).collect();
        let (chosen, others): (Vec<Header>, Vec<Header>) =
            found.into_iter().map(|message| message.header).partition(|header| header.held().is_some());
        open.show_selected(others.iter(), &absent);
        if chosen.is_empty() {
            return Ok(());
        }
        let now = self.0.replica.clock.now();
        let ready = chosen.iter().map(|header| header.clone().released(now)).collect();
        settled(open.requeue_selected(&chosen, ready)?).await
    }
}

fn check_count(groups: &Groups) -> Result<(), Error> {
    let bound = core_limits::HELD_GROUPS;
    if groups.len() > bound {
        return Err(Error::TooMany { what: "held groups in one queue", bound });
    }
    Ok(())
}

/// Lets the release of a group begin. A hold without an effect on claims has put nothing aside, so it ends with that.
fn begin_release(groups: &mut Groups, group: &GroupName) {
    if let Some(held) = groups.get_mut(group).filter(|held| held.hold.effects.bars_claims()) {
        held.is_releasing = true;
    } else {
        groups.remove(group);
    }
}

fn not_held(group: &GroupName) -> Error {
    Error::NotFound { resource: Resource::GroupHold, name: group.as_str().to_owned() }
}
