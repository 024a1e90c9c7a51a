//! Messages that get a time of their own: they part from the others of their claim into a claim of their own, in the commit
//! that writes both (P7). A commit without a known outcome is made again until it has one; meanwhile the claim neither ends nor
//! changes, and its messages may be deleted.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::Broker;
use super::deadlines::Deadline;
use super::receipts::closed;
use super::slot::Slot;
use angarium_catalogue::{ClaimRecord, ClaimedMessage, SplitPart};
use angarium_core::claim::ClaimTerms;
use angarium_core::error::{Error, Part, Resource};
use angarium_core::ids::{ClaimId, MessageId, QueueId};
use angarium_core::limits;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::{ClaimSnapshot, ClaimSplit};

impl Broker {
    /// Gives a message of a claim a time of its own: the claim that it is under then. Without any time it can be claimed again
    /// at once.
    pub async fn message_hide(
        &self,
        at: &QueueRef,
        claim: ClaimId,
        message: MessageId,
        terms: ClaimTerms,
    ) -> Result<ClaimId, Error> {
        let slot = self.slot(at).await?;
        let no_claim = || Error::NotFound { resource: Resource::ClaimedMessage, name: message.to_string() };
        if !self.open(&slot, at).await? {
            return self.check_ours(&slot).and(Err(no_claim()));
        }
        self.part(&slot, at, claim, vec![message], terms).await?.ok_or_else(no_claim)
    }

    /// Gives messages of one claim a time of their own: the claim that they are under then, or were under if they get none.
    /// None when the claim holds none of them.
    pub(super) async fn part(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        claim: ClaimId,
        messages: Vec<MessageId>,
        terms: ClaimTerms,
    ) -> Result<Option<ClaimId>, Error> {
        let (broker, slot, at) = (self.clone(), Arc::clone(slot), at.clone());
        let change = async move {
            let _guard = slot.lost_on_panic();
            let parted = broker.begin_split_commit(&slot, &at, claim, &messages).await?;
            let own = match parted {
                SplitStart::Over => return broker.check_ours(&slot).map(|()| None),
                SplitStart::Whole => claim,
                SplitStart::Some(queue, rest, parted) => {
                    let done = broker.commit_split(&slot, &at, claim, (queue, rest, parted), terms).await;
                    slot.changed.notify_waiters();
                    done?
                }
            };
            match (terms.ttl() == 0, own == claim) {
                (true, true) => broker.claim_release(&at, own).await?,
                // If this fails it ends all the same: it has no time.
                (true, false) => drop(broker.claim_release(&at, own).await),
                (false, true) => broker.claim_renew(&at, claim, terms).await?,
                (false, false) => {}
            }
            Ok(Some(own))
        };
        self.carry_out(change).await
    }

    async fn begin_split_commit(
        &self,
        slot: &Slot,
        at: &QueueRef,
        claim: ClaimId,
        messages: &[MessageId],
    ) -> Result<SplitStart, Error> {
        loop {
            let changed = {
                let mut state = slot.state.lock();
                let queue = state.queues.get_mut(at).ok_or_else(closed)?;
                match queue.engine.begin_split(claim, messages, self.claim_time()) {
                    ClaimSplit::Whole => return Ok(SplitStart::Whole),
                    ClaimSplit::Ended => return Ok(SplitStart::Over),
                    ClaimSplit::Begun { rest, parted } => {
                        return Ok(SplitStart::Some(queue.id, rest, parted));
                    }
                    ClaimSplit::Busy => Arc::clone(&slot.changed).notified_owned(),
                }
            };
            if tokio::time::timeout(limits::CLAIM_DEADLINE, changed).await.is_err() {
                let why = "a change of the claim has no outcome yet";
                return Err(Error::unavailable(Part::Coordination, why));
            }
        }
    }

    /// Writes the claim without the messages, and theirs, in one commit. Returns theirs. When its outcome is unknown
    /// the claim stays as it is for every caller, in doubt, until the commit has been made again; the slot continues.
    async fn commit_split(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        old: ClaimId,
        (queue, rest, parted): (QueueId, ClaimSnapshot, Vec<(MessageId, u32)>),
        terms: ClaimTerms,
    ) -> Result<ClaimId, Error> {
        let split = SplitCommit::new(at, (queue, old), (rest, parted), terms, self.0.clock.now());
        let (kept, own) = (split.kept.clone(), split.own.clone());
        let is_new_bucket = slot.state.lock().buckets >> split.new.bucket() & 1 == 0;
        let (kept, own) = (SplitPart { id: old, record: &kept }, SplitPart { id: split.new, record: &own });
        let done = self.0.catalogue.split_claim(&slot.owned, kept, own, is_new_bucket).await;
        match done {
            Ok(()) => self.finish_split(slot, &split),
            Err(error) if error.nothing_written() => {
                self.cancel_split(slot, &split)?;
                Err(error)
            }
            Err(error) => {
                let (broker, slot) = (self.clone(), Arc::clone(slot));
                self.spawn_in(&Arc::clone(&slot), async move { broker.settle_split(&slot, &split).await });
                Err(error)
            }
        }
    }

    /// Makes a commit again whose outcome is unknown, until that is known, the slot is served elsewhere or recovered,
    /// or the service stops.
    async fn settle_split(&self, slot: &Arc<Slot>, split: &SplitCommit) {
        warn!(slot = slot.owned.slot.0, claim = %split.old, "claim split in doubt");
        let pause = Duration::from_secs(limits::RETRY_SECONDS.into());
        while self.sleep_tick(pause).await && slot.check_served().is_ok() {
            let kept = SplitPart { id: split.old, record: &split.kept };
            let own = SplitPart { id: split.new, record: &split.own };
            let is_new_bucket = slot.state.lock().buckets >> split.new.bucket() & 1 == 0;
            let settled = match self.0.catalogue.repeat_split(&slot.owned, kept, own, is_new_bucket).await {
                // Without messages in the old claim the new one gets none, and its record is cleared away.
                Ok(_) => self.finish_split(slot, split).map(drop),
                Err(Error::Unavailable { .. } | Error::Unknown { .. }) => continue,
                Err(_) => self.cancel_split(slot, split),
            };
            slot.changed.notify_waiters();
            // An error means that the queue was deleted, and its claims with it.
            info!(slot = slot.owned.slot.0, claim = %split.old, is_open = settled.is_ok(), "claim split settled");
            return;
        }
    }

    /// Both records are durable.
    fn finish_split(&self, slot: &Slot, split: &SplitCommit) -> Result<ClaimId, Error> {
        let mut state = slot.state.lock();
        if state.queue_mut(&split.at, split.queue).is_none() {
            state.note_orphan(split.new);
        }
        let Some(open) = state.queue_mut(&split.at, split.queue) else { return Err(queue_closed()) };
        let over = open.engine.finish_split(split.old, split.new, split.terms, split.expires, &split.parted);
        state.spend(over);
        state.buckets |= 1 << split.new.bucket();
        state.live_claims += 1;
        state.note_deadline(Deadline { at: split.expires, claim: split.new, queue: split.at.clone() });
        state.note_deadline(Deadline { at: split.rest_expires, claim: split.old, queue: split.at.clone() });
        Ok(split.new)
    }

    /// Nothing was written.
    fn cancel_split(&self, slot: &Slot, split: &SplitCommit) -> Result<(), Error> {
        let soon = self.0.clock.now().plus_seconds(limits::RETRY_SECONDS);
        let mut state = slot.state.lock();
        let Some(open) = state.queue_mut(&split.at, split.queue) else { return Err(queue_closed()) };
        open.engine.renew_failed(split.old);
        state.note_deadline(Deadline { at: soon, claim: split.old, queue: split.at.clone() });
        Ok(())
    }
}

fn queue_closed() -> Error {
    Error::unknown(Part::Server, "the queue was closed")
}

/// A claim that is split in two: what is written, and what memory needs once it is.
struct SplitCommit {
    at: QueueRef,
    queue: QueueId,
    old: ClaimId,
    /// The claim of the messages that get a time of their own.
    new: ClaimId,
    parted: Vec<(MessageId, u32)>,
    terms: ClaimTerms,
    expires: Timestamp,
    rest_expires: Timestamp,
    /// The record of the old claim without them, and that of the new one.
    kept: ClaimRecord,
    own: ClaimRecord,
}

impl SplitCommit {
    fn new(
        at: &QueueRef,
        (queue, old): (QueueId, ClaimId),
        (rest, parted): (ClaimSnapshot, Vec<(MessageId, u32)>),
        terms: ClaimTerms,
        now: Timestamp,
    ) -> Self {
        // A claim without any time ends as soon as it is there, by who parted it.
        let (expires, client) = (now.plus_seconds(terms.ttl()), rest.client);
        let record = |messages: Vec<ClaimedMessage>, terms: ClaimTerms, created, expires| {
            let (ttl, grace) = (terms.ttl(), terms.grace());
            let at = at.clone();
            ClaimRecord { at, queue, messages, ttl, grace, created, expires, client, attempt: None }
        };
        let staying = rest.headers.iter().map(|h| ClaimedMessage { id: h.id, attempt: h.attempts }).collect();
        let created = rest.expires.minus_seconds(rest.terms.ttl());
        let kept = record(staying, rest.terms, created.as_millis(), rest.expires.as_millis());
        let going =
            parted.iter().map(|(id, attempt)| ClaimedMessage { id: *id, attempt: *attempt }).collect();
        let own = record(going, terms, now.as_millis(), expires.as_millis());
        let (new, rest_expires) = (ClaimId::new(&mut rand::rng()), rest.expires);
        Self { at: at.clone(), queue, old, new, parted, terms, expires, rest_expires, kept, own }
    }
}

/// What can be parted from a claim.
enum SplitStart {
    /// Nothing: it has ended.
    Over,
    /// All that it has.
    Whole,
    /// Some of it: its queue, what stays, and what leaves.
    Some(QueueId, ClaimSnapshot, Vec<(MessageId, u32)>),
}
