//! Receives and receipts: claims of messages as in SQS, and operations on single messages by their handles.
//!
//! A receive is a claim. Its messages are deleted one by one, and each may get a visibility timeout of its own (see
//! [`crate::claims::split`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use angarium_core::attributes::Attributes;
use angarium_core::claim::{ClaimLimit, ClaimWait, Claimer, Visibility};
use angarium_core::error::{Error, InvalidPart, Part};
use angarium_core::group::AttemptId;
use angarium_core::ids::{ClaimId, MessageId, QueueId};
use angarium_core::limits as core_limits;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_core::receipt::{Receipt, ReceiptKey};
use angarium_core::time::Timestamp;
use angarium_engine::{LookupResult, ReceiptStatus};

use crate::claims::Claims;
use crate::claims::create::{ClaimView, DeliveryGuard};
use crate::limits;
use crate::messages::view::MessageView;
use crate::open_queues::lookup::ExistingQueue;
use crate::slot::delete::DeleteStart;
use crate::slot::queue_handle::{QueueHandle, closed};
use crate::slot::receipts::ClaimedRemoval;
use crate::writer::pending::{WriteOutcome, settled};

/// Pause before another look at a message whose claim is being written or released.
const PAUSE: Duration = Duration::from_millis(10);

/// The parameters of a receive. The attributes of the queue give the missing ones.
#[derive(Clone, Debug)]
pub struct Receive {
    /// Maximum of messages.
    pub limit: ClaimLimit,
    /// How long the messages are hidden.
    pub visibility: Option<Visibility>,
    /// How long to wait for the first message.
    pub wait: Option<ClaimWait>,
    /// How much of the wait has passed already.
    pub waited: Duration,
    /// Id that makes this receive a repetition of another one with the same id. Only FIFO queues use it.
    pub attempt: Option<AttemptId>,
    /// Maximum of messages of the queue under claims. Beyond it a receive gets no messages.
    pub in_flight: usize,
}

/// The result of a receive.
pub struct ReceiveResult {
    /// The messages, oldest first, each with its handle.
    pub messages: Vec<(MessageView, String)>,
    /// Releases the messages if they never reach the client. None for a repeated receive, since the client may repeat
    /// it again.
    pub delivery_guard: Option<DeliveryGuard>,
}

/// The result of a change of visibility.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisibilityResult {
    /// The message is hidden for the requested time from now on.
    Done,
    /// No receive for which the receipt is valid holds the message: nothing was changed.
    Over,
    /// There is no such message.
    Gone,
}

impl Claims {
    /// Receives messages of a queue that exists. Returns none when there are no messages after the wait.
    pub async fn receive(&self, at: &QueueRef, asked: Receive) -> Result<Option<ReceiveResult>, Error> {
        // Before messages are claimed; the key may be another one after the wait.
        self.0.replica.receipt_key().await?;
        let ExistingQueue { id: queue, attributes } = self.0.open_queues.opened(at).await?;
        let visibility = asked.visibility.or(attributes.visibility).unwrap_or_default();
        let wait = asked.wait.or(attributes.receive_wait).unwrap_or_default().less(asked.waited);
        let attempt = asked.attempt.filter(|_| attributes.is_fifo);
        if let Some(attempt) = &attempt
            && let Some(repeated) = self.receive_again(at, attempt, visibility).await?
        {
            let key = self.0.replica.receipt_key().await?;
            let messages = sealed(&key, queue, repeated.received, repeated.view);
            return Ok(Some(ReceiveResult { messages, delivery_guard: None }));
        }
        if !self.wait_for_room(at, asked.in_flight, wait).await? {
            // A client that waits, or that uses a FIFO queue, gets an empty answer (SQS).
            let is_refused = wait == ClaimWait::default() && !attributes.is_fifo;
            return if is_refused {
                Err(Error::TooManyInFlight { bound: asked.in_flight })
            } else {
                Ok(None)
            };
        }
        let claimed = self
            .claim_wait(at, visibility.terms(), asked.limit, wait, Claimer { attempt, ..Claimer::default() })
            .await?;
        let Some((view, mut delivery_guard)) = claimed else { return Ok(None) };
        let key = self.0.replica.receipt_key().await?;
        if visibility.seconds() == 0 {
            // The messages count as received and stay visible. If this fails the claim ends nevertheless: its time is
            // zero.
            delivery_guard.done();
            let _ = self.claim_release(at, view.id).await;
        }
        let messages = sealed(&key, queue, view.received, view);
        Ok(Some(ReceiveResult { messages, delivery_guard: Some(delivery_guard) }))
    }

    /// Waits until a queue has fewer messages under claims than `most`. Returns false when the wait ended before that.
    async fn wait_for_room(&self, at: &QueueRef, most: usize, wait: ClaimWait) -> Result<bool, Error> {
        let start = Instant::now();
        loop {
            let slot = self.0.slots.slot(at).await?;
            let claimed = slot.claimed_in(at);
            if usize::try_from(claimed).is_ok_and(|claimed| claimed < most) {
                return Ok(true);
            }
            if start.elapsed() >= wait.duration()
                || !self.0.replica.sleep_tick(limits::SQS_IN_FLIGHT_LOOK).await
            {
                return self.0.slots.check_ours(&slot).map(|()| false);
            }
        }
    }

    /// Whether a queue may have a policy. False only when memory shows that it has none.
    pub fn may_have_policy(&self, at: &QueueRef) -> bool {
        let Some(slot) = self.0.slots.get(at.slot()) else { return true };
        slot.may_have_policy(at)
    }

    /// Deletes messages by their handles, each with its own outcome. Messages with a successful outcome are gone from
    /// the pool when this returns.
    pub async fn receipts_delete(
        &self,
        at: &QueueRef,
        handles: &[&str],
    ) -> Result<Vec<Result<(), Arc<Error>>>, Error> {
        let key = self.0.replica.receipt_key_of(handles.iter().copied()).await?;
        let (now, ExistingQueue { id, attributes }) =
            (self.0.replica.clock.now(), self.0.open_queues.opened(at).await?);
        let named = self.0.slots.queue(at).await?;
        let asked: Vec<_> = handles.iter().map(|handle| opened_receipt(&key, now, id, handle)).collect();
        let is_receipt: Vec<bool> = asked.iter().map(Result::is_ok).collect();
        let queue = named.handle().ok_or_else(|| closed(at))?;
        let ClaimedRemoval { ids: claimed, outcome: together } =
            queue.remove_claimed(asked.iter().flatten(), self.0.slots.claim_time())?;
        let mut begun = Vec::with_capacity(asked.len());
        for receipt in asked {
            begun.push(match receipt {
                Ok(receipt) if claimed.contains(&receipt.message) => Ok(None),
                Ok(receipt) => match self.check_ordered(&queue, &attributes, receipt).await {
                    Ok(()) => self.receipt_delete(&queue, receipt.message).await.map(Some),
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            });
        }
        let together = match together {
            Some(outcome) => settled(outcome).await.map_err(Arc::new),
            None => Ok(()),
        };
        let mut done = Vec::with_capacity(begun.len());
        for outcome in begun {
            done.push(match outcome {
                Ok(Some(outcome)) => settled(outcome).await.map_err(Arc::new),
                Ok(None) => together.clone(),
                Err(error) => Err(Arc::new(error)),
            });
        }
        // A refusal depends on memory (P8), but not that of a text which is no receipt of this queue.
        if done.iter().zip(is_receipt).any(|(done, is_receipt)| done.is_err() && is_receipt) {
            // The next owner of the queue will delete all of them again, which does no harm to messages that are gone.
            let is_refused = |done: &Result<(), Arc<Error>>| matches!(done, Err(e) if e.nothing_written());
            let is_unwritten = done.iter().all(is_refused);
            let served = match is_on(Mutation::RefuseReceiptFromMemory) {
                true => named.slot().check_served(),
                false => self.0.slots.check_ours(named.slot()),
            };
            served.map_err(|error| if is_unwritten { error } else { error.into_unknown() })?;
        }
        Ok(done)
    }

    /// Refuses, in a FIFO queue, a receipt whose receive has ended while its message still exists: the delete would
    /// overtake a later receive.
    async fn check_ordered(
        &self,
        queue: &QueueHandle,
        attributes: &Attributes,
        receipt: Receipt,
    ) -> Result<(), Error> {
        if !attributes.is_fifo {
            return Ok(());
        }
        match self.found(queue, receipt).await? {
            ReceiptTarget::Held(_)
            | ReceiptTarget::Removing
            | ReceiptTarget::Other(VisibilityResult::Done | VisibilityResult::Gone) => Ok(()),
            // Never in a FIFO queue.
            ReceiptTarget::Changing => Err(being_claimed()),
            ReceiptTarget::Other(VisibilityResult::Over) => {
                Err(Error::invalid(InvalidPart::Limit, "ReceiptHandle", "the receipt handle has expired"))
            }
        }
    }

    async fn receipt_delete(&self, queue: &QueueHandle, id: MessageId) -> Result<WriteOutcome, Error> {
        let start = Instant::now();
        loop {
            let mut begun = queue.remove_received(id, self.0.slots.claim_time())?;
            while let Some(DeleteStart::Asked(asked)) = begun {
                let found = queue.message_state(id).await?;
                let answered = found.as_ref().map_or(LookupResult::Absent, LookupResult::There);
                begun = Some(queue.begin_delete(id, self.0.slots.claim_time(), |engine, now| {
                    engine.begin_remove_after_lookup(id, None, asked, answered, now)
                })?);
            }
            if let Some(DeleteStart::Removal(outcome)) = begun {
                return Ok(outcome);
            }
            if start.elapsed() > limits::CLAIM_DEADLINE {
                return Err(being_claimed());
            }
            sleep(PAUSE).await;
        }
    }

    /// Hides messages from now on, each by its handle and for its own time. Zero seconds make a message visible. In a
    /// FIFO queue a receipt is valid for its own receive only, in other queues for any receive that holds the message.
    /// A receipt of a message that is under no claim changes nothing (SQS answers success). Successful changes are
    /// durable when this returns.
    pub async fn receipts_change(
        &self,
        at: &QueueRef,
        asked: &[(&str, Visibility)],
    ) -> Result<Vec<Result<VisibilityResult, Arc<Error>>>, Error> {
        let key = self.0.replica.receipt_key_of(asked.iter().map(|(handle, _)| *handle)).await?;
        let (now, ExistingQueue { id, .. }) =
            (self.0.replica.clock.now(), self.0.open_queues.opened(at).await?);
        let named = self.0.slots.queue(at).await?;
        let mut outcomes = Vec::with_capacity(asked.len());
        let mut alike: BTreeMap<u32, Vec<IndexedReceipt>> = BTreeMap::new();
        for (index, (handle, visibility)) in asked.iter().enumerate() {
            let receipt = opened_receipt(&key, now, id, handle).and_then(|receipt| {
                self.check_total(&receipt, *visibility)?;
                Ok(receipt)
            });
            outcomes.push(match receipt {
                Ok(receipt) => {
                    alike.entry(visibility.seconds()).or_default().push(IndexedReceipt { index, receipt });
                    Ok(VisibilityResult::Over)
                }
                Err(error) => Err(Arc::new(error)),
            });
        }
        // If the queue was closed meanwhile, each entry has its own error.
        let queue = named.with_id(id);
        let start = Instant::now();
        while !alike.is_empty() {
            let mut changing: BTreeMap<u32, Vec<IndexedReceipt>> = BTreeMap::new();
            for (seconds, receipts) in alike {
                let visibility = Visibility::new(seconds.into(), "")?;
                let pass = self.change_alike(&queue, visibility, receipts).await;
                for VisibilityOutcome { index, outcome } in pass.outcomes {
                    outcomes[index] = outcome;
                }
                if !pass.changing.is_empty() {
                    changing.insert(seconds, pass.changing);
                }
            }
            if !changing.is_empty() && start.elapsed() > limits::CLAIM_DEADLINE {
                for IndexedReceipt { index, .. } in changing.into_values().flatten() {
                    outcomes[index] = Err(Arc::new(being_claimed()));
                }
                break;
            }
            if !changing.is_empty() {
                sleep(PAUSE).await;
            }
            alike = changing;
        }
        Ok(outcomes)
    }

    /// Checks the total time since its receive for which a message may be hidden.
    fn check_total(&self, receipt: &Receipt, visibility: Visibility) -> Result<(), Error> {
        let (_, most) = core_limits::VISIBILITY;
        let ends = self.0.replica.clock.now().plus_seconds(visibility.seconds());
        if ends > receipt.received.plus_seconds(most) {
            let why = format!("Total VisibilityTimeout for the message is beyond the limit [{most} seconds]");
            return Err(Error::invalid(InvalidPart::Limit, "VisibilityTimeout", why));
        }
        Ok(())
    }

    /// Gives the same time to several messages, together for messages of one claim. Messages whose claims are being
    /// written or released, or that are being removed, are left for the next pass, so that they delay no others.
    async fn change_alike(
        &self,
        queue: &QueueHandle,
        visibility: Visibility,
        receipts: Vec<IndexedReceipt>,
    ) -> ChangePass {
        let (mut outcomes, mut changing) = (Vec::with_capacity(receipts.len()), Vec::new());
        let mut held: BTreeMap<ClaimId, Vec<(usize, MessageId)>> = BTreeMap::new();
        for IndexedReceipt { index, receipt } in receipts {
            let outcome = match self.found(queue, receipt).await {
                Ok(ReceiptTarget::Held(claim)) => {
                    held.entry(claim).or_default().push((index, receipt.message));
                    continue;
                }
                Ok(ReceiptTarget::Changing | ReceiptTarget::Removing) => {
                    changing.push(IndexedReceipt { index, receipt });
                    continue;
                }
                Ok(ReceiptTarget::Other(changed)) => self.0.slots.check_ours(queue.slot()).map(|()| changed),
                Err(error) => Err(error),
            };
            outcomes.push(VisibilityOutcome { index, outcome: outcome.map_err(Arc::new) });
        }
        for (claim, messages) in held {
            let ids: Vec<MessageId> = messages.iter().map(|(_, id)| *id).collect();
            let parted = self.split_claim(queue, claim, ids, visibility.terms()).await;
            let changed =
                |own: Option<ClaimId>| own.map_or(VisibilityResult::Over, |_| VisibilityResult::Done);
            let outcome = parted.map(changed).map_err(Arc::new);
            let shared = |(index, _)| VisibilityOutcome { index, outcome: outcome.clone() };
            outcomes.extend(messages.into_iter().map(shared));
        }
        ChangePass { outcomes, changing }
    }

    /// Returns the target of a receipt, looked up in the pool where memory does not have it.
    async fn found(&self, queue: &QueueHandle, receipt: Receipt) -> Result<ReceiptTarget, Error> {
        let now = self.0.slots.claim_time();
        let worth =
            queue.decide(|engine| engine.worth(receipt.message, receipt.attempt, receipt.received, now));
        Ok(match worth.ok_or_else(|| queue.closed())? {
            ReceiptStatus::Holds(claim) => ReceiptTarget::Held(claim),
            ReceiptStatus::Over => ReceiptTarget::Other(VisibilityResult::Over),
            ReceiptStatus::Changing => ReceiptTarget::Changing,
            ReceiptStatus::Removing => ReceiptTarget::Removing,
            ReceiptStatus::AskPool => match queue.message_state(receipt.message).await? {
                Some(_) => ReceiptTarget::Other(VisibilityResult::Over),
                None => ReceiptTarget::Other(VisibilityResult::Gone),
            },
        })
    }
}

/// Error for a message whose claim was still being written or released at the deadline.
fn being_claimed() -> Error {
    Error::unavailable(Part::Coordination, "the message is being claimed")
}

/// A receipt, with its index in the request.
struct IndexedReceipt {
    index: usize,
    receipt: Receipt,
}

/// The outcome of a change of visibility, with the index of its receipt in the request.
struct VisibilityOutcome {
    index: usize,
    outcome: Result<VisibilityResult, Arc<Error>>,
}

/// The outcomes of one pass over messages that get the same time.
struct ChangePass {
    outcomes: Vec<VisibilityOutcome>,
    /// Receipts to look up again.
    changing: Vec<IndexedReceipt>,
}

/// What a receipt refers to now.
enum ReceiptTarget {
    /// Its message is still under this claim.
    Held(ClaimId),
    /// A claim of its message is being written or released.
    Changing,
    /// Its message is being removed.
    Removing,
    /// Its message is under no claim of the receipt, for this reason.
    Other(VisibilityResult),
}

/// Returns the messages of a claim, each with the handle of its receipt. A replica whose clock is behind that of the
/// message's maker receives it before its creation: such a receipt would count as one of an earlier message with its id.
fn sealed(
    key: &ReceiptKey,
    queue: QueueId,
    received: Timestamp,
    view: ClaimView,
) -> Vec<(MessageView, String)> {
    let sealed = |message: MessageView| {
        let received = received.max(message.created);
        let receipt = Receipt { queue, message: message.id, attempt: message.grant, received };
        let handle = key.seal(&receipt);
        (message, handle)
    };
    view.messages.into_iter().map(sealed).collect()
}

fn opened_receipt(key: &ReceiptKey, now: Timestamp, queue: QueueId, handle: &str) -> Result<Receipt, Error> {
    let receipt = key.open(handle, now).filter(|receipt| receipt.queue == queue);
    receipt.ok_or(Error::BadReceipt)
}
