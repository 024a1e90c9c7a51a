//! Holds of queues: an operator stops deliveries or posts, and loses nothing.
//!
//! ```text
//! gate of the queue ─▶ commit of the record, as the slot's owner ─▶ memory ─▶ fence of the queue's pools ─▶ answer
//! ```
//!
//! Pops and posts have no commit in the tree, so the pools of the queue must refuse those of an earlier owner before the
//! answer. Most often the slot has fenced them already. Every choice of messages looks at the holds in memory under the
//! lock of the slot, so a claim that begins after the answer gets nothing. An owner that takes the slot later reads the records before it serves the first request.

use tokio::time::timeout;
use tracing::info;

use angarium_catalogue::Schema;
use angarium_core::error::{Error, InvalidPart, Resource};
use angarium_core::hold::{Hold, HoldEffects, PostEffect};
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;

use crate::holds::shared::unconfirmed;
use crate::holds::terms::HoldTerms;
use crate::limits;
use crate::open_queues::lookup::no_queue;
use crate::queues::Queues;
use crate::slot::slot_queue::SlotQueue;

impl Queues {
    /// Holds a queue, in place of an earlier hold. When this returns, no claim that begins later gets a message, or no
    /// post that begins later is stored. Claims that exist continue.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is no such queue; [`Error::Invalid`] when it would have ended already;
    /// [`Error::Unconfirmed`] when the hold is recorded, and a pool of the queue does not answer.
    pub async fn queue_hold(&self, at: &QueueRef, terms: HoldTerms) -> Result<Hold, Error> {
        let (queues, at) = (self.clone(), at.clone());
        let hold = async move {
            let queue = queues.0.slots.queue(&at).await?;
            let _gate = queue.hold_gate_soon().await?;
            let held = queues.hold_gated(&queue, terms).await;
            queues.0.slots.confirm_refusal(queue.slot(), held)
        };
        self.0.replica.carry_out(hold).await
    }

    async fn hold_gated(&self, queue: &SlotQueue, terms: HoldTerms) -> Result<Hold, Error> {
        let (slot, at, catalogue) = (queue.slot(), queue.at(), &self.0.replica.catalogue);
        slot.check_served()?;
        check_effects(at, terms.effects)?;
        let hold = terms.begin(self.0.replica.clock.now())?;
        check_exists(queue).await?;
        catalogue.schema_reach(Schema::HOLDS).await?;
        let written = catalogue.hold_write(&slot.owned, at, &hold).await;
        slot.note_placed(written.map(|()| true))?;
        slot.enter_hold(at, hold.clone());
        let (by, until) = (hold.by.as_deref().unwrap_or_default(), hold.until.map(Timestamp::calendar));
        info!(project = %at.project, queue = %at.name, reason = %hold.reason, by, until, "queue held");
        self.fence_held(queue).await?;
        Ok(hold)
    }

    /// Fences the pools of a queue of which the hold is recorded: an earlier owner of its slot gives and stores nothing
    /// there any more.
    ///
    /// # Errors
    ///
    /// [`Error::Unconfirmed`] when a pool does not answer in time.
    pub(in crate::queues) async fn fence_held(&self, queue: &SlotQueue) -> Result<(), Error> {
        let fence = async {
            let Some(record) = queue.record().await? else { return Ok(()) };
            for name in record.placement()?.pools() {
                queue.slot().open_writer(name, &*self.0.pools.pool_of_record(name).await?).await?;
            }
            Ok(())
        };
        let why = "a pool of the queue does not answer, so a stopped replica may still give out its messages";
        match timeout(limits::HOLD_FENCED, fence).await {
            Ok(fenced) => fenced.map_err(|error| unconfirmed(why, error)),
            Err(_) => Err(Error::Unconfirmed { why: why.to_owned(), cause: None }),
        }
    }

    /// Returns the hold of a queue.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is no such queue, or it is not held.
    pub async fn queue_hold_get(&self, at: &QueueRef) -> Result<Hold, Error> {
        let queue = self.0.slots.queue(at).await?;
        let found = match check_exists(&queue).await {
            Ok(()) => queue.slot().hold(at).ok_or_else(|| not_held(at)),
            Err(error) => Err(error),
        };
        self.0.slots.confirm(queue.slot(), found)
    }

    /// Ends the hold of a queue, for the caller with this name. Its messages can be claimed again when this returns. It is
    /// no error when there is no hold.
    pub async fn queue_release(&self, at: &QueueRef, by: Option<String>) -> Result<(), Error> {
        let (queues, at) = (self.clone(), at.clone());
        let release = async move {
            let queue = queues.0.slots.queue(&at).await?;
            let _gate = queue.hold_gate_soon().await?;
            let released = queues.release_gated(&queue, by).await;
            queues.0.slots.confirm_refusal(queue.slot(), released)
        };
        self.0.replica.carry_out(release).await
    }

    async fn release_gated(&self, queue: &SlotQueue, by: Option<String>) -> Result<(), Error> {
        let (slot, at) = (queue.slot(), queue.at());
        slot.check_served()?;
        check_exists(queue).await?;
        if !slot.has_hold(at) {
            return self.0.slots.check_ours(slot);
        }
        self.remove_hold(queue).await?;
        let by = by.as_deref().unwrap_or_default();
        info!(project = %at.project, queue = %at.name, by, "queue released");
        Ok(())
    }

    /// Removes the record of a hold, and the hold from memory. The caller holds the gate of the queue.
    async fn remove_hold(&self, queue: &SlotQueue) -> Result<(), Error> {
        let (slot, at) = (queue.slot(), queue.at());
        let removed = self.0.replica.catalogue.hold_delete(&slot.owned, at).await;
        slot.note_placed(removed.map(|()| true))?;
        slot.end_hold(at);
        Ok(())
    }

    /// Returns the hold because of which a claim of a queue got no message: of the queue, a pool or the project, or else
    /// of a group with messages that no claim has.
    pub async fn hold_of_claims(&self, at: &QueueRef) -> Option<Hold> {
        let queue = self.0.slots.queue(at).await.ok()?;
        match queue.slot().applied_holds(at).barring_claims() {
            Some(applied) => Some(applied.hold.clone()),
            None => self.group_hold_of_claims(&queue).await,
        }
    }

    /// Ends holds at their time, until the service stops. Claims of their queues have been granted since that time; this
    /// serves waiting claims, and removes the records.
    pub(crate) async fn end_holds(&self) {
        while self.0.replica.sleep_tick(limits::HOLD_TICK).await {
            for slot in self.0.slots.owned() {
                self.release_groups(&slot);
                for at in slot.serve_ended_holds(self.0.replica.clock.now()) {
                    if let Err(error) = self.end_hold(&slot.queue(&at)).await {
                        self.0.replica.task_failed("end holds", format_args!("queue {}", at.name), &error);
                    }
                }
            }
        }
    }

    async fn end_hold(&self, queue: &SlotQueue) -> Result<(), Error> {
        // The next tick tries again.
        let Some(_gate) = queue.try_hold_gate() else { return Ok(()) };
        queue.slot().check_served()?;
        // A request may have replaced the hold meanwhile.
        if !queue.slot().is_hold_ended(queue.at(), self.0.replica.clock.now()) {
            return Ok(());
        }
        self.remove_hold(queue).await?;
        let at = queue.at();
        info!(project = %at.project, queue = %at.name, "queue hold ended");
        Ok(())
    }
}

/// Checks that a queue exists, whether its pool answers or not.
pub(in crate::queues) async fn check_exists(queue: &SlotQueue) -> Result<(), Error> {
    if queue.handle().is_some() || queue.record().await?.is_some() {
        return Ok(());
    }
    Err(no_queue(queue.at()))
}

fn not_held(at: &QueueRef) -> Error {
    Error::NotFound { resource: Resource::Hold, name: at.name.to_string() }
}

/// Checks that a hold of a subscription has no effect on posts: those are made to its source. And that a hold of a topic
/// has none on claims: there are none. The transfers of pools are held as a whole.
pub(in crate::queues) fn check_effects(at: &QueueRef, effects: HoldEffects) -> Result<(), Error> {
    if effects.bars_transfers() {
        let why = "only the transfers of a pool are held";
        return Err(Error::invalid(InvalidPart::Limit, "transfer", why));
    }
    if at.name.is_topic() && effects.bars_claims() {
        let why = "a topic has no claims: hold its posts (post or discard), or one of its subscriptions";
        return Err(Error::invalid(InvalidPart::Limit, "claim", why));
    }
    let field = match effects.posts().filter(|_| at.name.subscription().is_some()) {
        Some(PostEffect::Refused) => "post",
        Some(PostEffect::Discarded) => "discard",
        None => return Ok(()),
    };
    let why = "the posts to its source fill a subscription: hold those, or delete the subscription";
    Err(Error::invalid(InvalidPart::Limit, field, why))
}
