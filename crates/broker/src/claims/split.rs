//! Split of a claim. Messages that get a time of their own leave their claim for a new one, in one commit that writes
//! both records (P7). A commit with an unknown outcome is repeated until its outcome is known. Meanwhile the claim
//! neither ends nor changes, and its messages may be deleted.

use std::time::Duration;

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{info, warn};

use angarium_catalogue::{ClaimRecord, ClaimedMessage, SplitPart};
use angarium_core::claim::ClaimTerms;
use angarium_core::error::{Error, Resource};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_core::outcome::Holder;
use angarium_core::time::Timestamp;
use angarium_engine::{ClaimSnapshot, ClaimSplit};

use crate::claims::Claims;
use crate::claims::change_wait::ChangeWait;
use crate::limits;
use crate::slot::claims::{ClaimStep, SplitClaims, retry_at};
use crate::slot::queue_handle::QueueHandle;

impl Claims {
    /// Gives a message of a claim a time of its own. Returns the claim that holds the message then. With a time of zero
    /// the message can be claimed again at once.
    pub async fn message_hide(
        &self,
        at: &QueueRef,
        claim: ClaimId,
        message: MessageId,
        terms: ClaimTerms,
    ) -> Result<ClaimId, Error> {
        let queue = self.0.slots.queue(at).await?;
        let no_claim = || Error::NotFound { resource: Resource::ClaimedMessage, name: message.to_string() };
        let Some(queue) = self.0.open_queues.open(&queue).await? else {
            return self.0.slots.check_ours(queue.slot()).and(Err(no_claim()));
        };
        self.split_claim(&queue, claim, vec![message], terms).await?.ok_or_else(no_claim)
    }

    /// Gives messages of one claim a time of their own. Returns the claim that holds them then or, with a time of zero,
    /// that held them. Returns none when the claim holds none of them.
    pub(crate) async fn split_claim(
        &self,
        queue: &QueueHandle,
        claim: ClaimId,
        messages: Vec<MessageId>,
        terms: ClaimTerms,
    ) -> Result<Option<ClaimId>, Error> {
        let (claims, queue) = (self.clone(), queue.clone());
        let change = async move {
            let (slot, at) = (queue.slot(), queue.at());
            let _guard = slot.lost_on_panic();
            let Some(own) = claims.part(&queue, claim, &messages, terms).await? else { return Ok(None) };
            if terms.ttl() == 0 {
                let released = claims.claim_release(at, own).await;
                // If this fails for the new claim, that claim expires nevertheless: its time is zero.
                if own == claim {
                    released?;
                }
            } else if own == claim {
                claims.claim_renew(at, claim, terms).await?;
            }
            Ok(Some(own))
        };
        self.0.replica.carry_out(change).await
    }

    /// Has a claim of their own hold messages of a claim: a new one, or the old one if it holds no others. Returns none
    /// when the claim holds none of them.
    async fn part(
        &self,
        queue: &QueueHandle,
        claim: ClaimId,
        messages: &[MessageId],
        terms: ClaimTerms,
    ) -> Result<Option<ClaimId>, Error> {
        // A deletion of the queue waits for the split, so that it knows both claims.
        let in_use = match queue.hold_use() {
            Some(_) if is_on(Mutation::SplitInClosedQueue) => TaskTracker::new().token(),
            held => held.ok_or_else(|| queue.closed())?,
        };
        match self.begin_split(queue, claim, messages).await? {
            ClaimSplit::Ended | ClaimSplit::Busy => self.0.slots.check_ours(queue.slot()).map(|()| None),
            ClaimSplit::Whole => Ok(Some(claim)),
            ClaimSplit::Begun { rest, parted } => {
                let now = self.0.replica.clock.now();
                let split = SplitCommit::new(queue, claim, rest, parted, terms, now);
                let done = self.commit_split(queue, split, in_use).await;
                queue.slot().changed.notify_waiters();
                done.map(Some)
            }
        }
    }

    /// Begins a split as soon as no other caller is changing the claim.
    async fn begin_split(
        &self,
        queue: &QueueHandle,
        claim: ClaimId,
        messages: &[MessageId],
    ) -> Result<ClaimSplit, Error> {
        let wait = ChangeWait::begin();
        loop {
            let changed = match queue.begin_split(claim, messages, self.0.slots.claim_time())? {
                ClaimStep::Begun(split) => return Ok(split),
                ClaimStep::Ended => return Ok(ClaimSplit::Ended),
                ClaimStep::Busy(changed) => changed,
            };
            wait.next(changed).await?;
        }
    }

    /// Writes the old claim without the messages and the new claim with them in one commit. Returns the id of the new
    /// claim. If the outcome is unknown, the claim stays as it is for every caller, in doubt, until the commit has been
    /// repeated; the slot continues to serve.
    async fn commit_split(
        &self,
        queue: &QueueHandle,
        split: SplitCommit,
        in_use: TaskTrackerToken,
    ) -> Result<ClaimId, Error> {
        let slot = queue.slot();
        let is_new_bucket = slot.is_new_bucket(split.new);
        let (kept, own) = split.parts();
        match self.0.replica.catalogue.split_claim(&slot.owned, kept, own, is_new_bucket).await {
            Ok(()) => {
                let is_open = queue.finish_split(&split.claims());
                is_open.map(|()| split.new).ok_or_else(|| queue.closed().into_unknown())
            }
            Err(error) if error.nothing_written() => {
                let again = retry_at(self.0.replica.clock.now());
                // In a closed queue there is nothing to restore.
                let _ = queue.renew_failed(split.old, again);
                Err(error)
            }
            Err(error) => {
                let (claims, queue) = (self.clone(), queue.clone());
                slot.spawn(async move {
                    claims.settle_split(&queue, &split).await;
                    drop(in_use);
                });
                Err(error)
            }
        }
    }

    /// Repeats a commit with an unknown outcome until the outcome is known, the slot is recovered or served elsewhere,
    /// or the service stops.
    async fn settle_split(&self, queue: &QueueHandle, split: &SplitCommit) {
        let slot = queue.slot();
        warn!(slot = slot.owned.slot.0, claim = %split.old, "claim split in doubt");
        let pause = Duration::from_secs(limits::RETRY_SECONDS.into());
        while self.0.replica.sleep_tick(pause).await && slot.check_served().is_ok() {
            let (kept, own) = split.parts();
            let is_new_bucket = slot.is_new_bucket(split.new);
            let settled =
                match self.0.replica.catalogue.repeat_split(&slot.owned, kept, own, is_new_bucket).await {
                    // If all messages of the old claim were deleted, the new claim gets none, and its record is cleared
                    // away.
                    Ok(_) => queue.finish_split(&split.claims()),
                    Err(Error::Unavailable { .. } | Error::Unknown { .. }) => continue,
                    Err(_) => queue.renew_failed(split.old, retry_at(self.0.replica.clock.now())),
                };
            slot.changed.notify_waiters();
            // If the queue is closed, its deletion waits for this, and removes both records.
            let is_open = settled.is_some();
            info!(slot = slot.owned.slot.0, claim = %split.old, is_open, "claim split settled");
            return;
        }
    }
}

/// A split of a claim in two: the records to write, and the values that memory needs after the commit.
struct SplitCommit {
    old: ClaimId,
    /// The claim of the messages that get a time of their own.
    new: ClaimId,
    parted: Vec<(MessageId, u32)>,
    terms: ClaimTerms,
    expires: Timestamp,
    rest_expires: Timestamp,
    /// The records of the old claim without these messages, and of the new one.
    kept: ClaimRecord,
    own: ClaimRecord,
}

impl SplitCommit {
    /// Returns the parts of the old and of the new claim.
    fn parts(&self) -> (SplitPart<'_>, SplitPart<'_>) {
        (SplitPart { id: self.old, record: &self.kept }, SplitPart { id: self.new, record: &self.own })
    }

    fn new(
        queue: &QueueHandle,
        old: ClaimId,
        rest: ClaimSnapshot,
        parted: Vec<(MessageId, u32)>,
        terms: ClaimTerms,
        now: Timestamp,
    ) -> Self {
        // A new claim with a time of zero expires at once, under the client of the old claim.
        let (expires, client) = (now.plus_seconds(terms.ttl()), rest.client);
        let by = rest.by.as_ref().map(Holder::to_string);
        let record = |messages: Vec<ClaimedMessage>, terms: ClaimTerms, created, expires| {
            let (ttl, grace) = (terms.ttl(), terms.grace());
            let (at, queue) = (queue.at().clone(), queue.id());
            ClaimRecord {
                at,
                queue,
                messages,
                ttl,
                grace,
                created,
                expires,
                client,
                attempt: None,
                by: by.clone(),
            }
        };
        let staying = rest.headers.iter().map(|h| ClaimedMessage { id: h.id, attempt: h.grant() }).collect();
        let created = rest.expires.minus_seconds(rest.terms.ttl());
        let kept = record(staying, rest.terms, created.as_millis(), rest.expires.as_millis());
        let going =
            parted.iter().map(|(id, attempt)| ClaimedMessage { id: *id, attempt: *attempt }).collect();
        let own = record(going, terms, now.as_millis(), expires.as_millis());
        let (new, rest_expires) =
            (ClaimId::new(&mut queue.slot().around.replica.random.clone()), rest.expires);
        Self { old, new, parted, terms, expires, rest_expires, kept, own }
    }

    /// Returns the values that memory needs after the commit.
    fn claims(&self) -> SplitClaims<'_> {
        let Self { old, new, terms, expires, rest_expires, .. } = *self;
        SplitClaims { old, new, parted: &self.parted, terms, expires, rest_expires }
    }
}
