//! Transfers out of one queue in progress: one task for each target, and the results of ended tasks.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use angarium_core::error::{Error, Part};
use angarium_core::ids::MessageId;
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::message::{Header, State};
use angarium_core::names::QueueRef;

use crate::limits;
use crate::slot::transfer_targets::TransferTarget;

/// Max wait of a pass for the transfers that it began.
const TRANSFER_WAIT: Duration = Duration::from_secs(1);

/// Result of one pass over the entries in transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pass {
    /// No entry is in transfer.
    Idle,
    /// Some entries were settled.
    Moved,
    /// Some entries must wait.
    Waits,
}

/// Returns the worse of two results of a pass: an error, or the greater one.
pub(crate) fn worse(one: Result<Pass, Error>, other: Result<Pass, Error>) -> Result<Pass, Error> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(one.max(other)),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// A transfer that failed.
pub(crate) struct FailedTransfer {
    pub(crate) target: QueueRef,
    pub(crate) error: Error,
}

/// The transfers out of one queue, by target.
#[derive(Default)]
pub(crate) struct Transfers {
    tasks: HashMap<QueueRef, JoinHandle<Result<(), Error>>>,
    /// Messages that wait behind a transfer to their target: they are not read again before it has ended. Only messages
    /// that memory knows to be in transfer.
    behind: HashMap<MessageId, QueueRef>,
    /// Targets for which messages had to wait in this pass.
    barred: HashSet<QueueRef>,
    /// The last message that a pass at a rate has examined. The next pass begins behind it.
    examined: Option<MessageId>,
    /// Whether a transfer has succeeded since [`Transfers::take_moved`].
    has_moved: bool,
    /// Whether a transfer has failed since [`Transfers::finish`].
    has_failed: bool,
    /// The last transfer that has failed since [`Transfers::take_failed`].
    failed: Option<FailedTransfer>,
    /// Why the last transfer to a target has failed; at most [`limits::TRANSFER_TARGETS`].
    refusals: HashMap<QueueRef, String>,
}

impl Transfers {
    /// Collects the transfers that have ended. Must be called before entries are read: a transfer that ends later
    /// counts as in progress until the entries were examined, so that none of them is sent twice.
    pub(crate) fn collect(&mut self) {
        self.poll_ended(&mut Context::from_waker(Waker::noop()));
        // Their messages that wait behind a transfer may be no part of this pass.
        self.barred = self.tasks.keys().cloned().collect();
    }

    /// Returns the last message that a pass at a rate has examined; none when the next one begins with the first.
    pub(crate) fn examined(&self) -> Option<MessageId> {
        self.examined
    }

    /// Records the last message that a pass at a rate has examined; none when that was the last of all.
    pub(crate) fn note_examined(&mut self, last: Option<MessageId>) {
        self.examined = last;
    }

    /// Whether a transfer is in progress.
    pub(crate) fn are_in_progress(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Whether a transfer to this target is in progress.
    pub(crate) fn has(&self, target: &QueueRef) -> bool {
        self.tasks.contains_key(target)
    }

    /// Records that messages of this pass to a target must wait for the next pass.
    pub(crate) fn bar(&mut self, target: &QueueRef) {
        self.barred.insert(target.clone());
    }

    /// Whether messages to this target have had to wait since [`Transfers::collect`], like those of a transfer that
    /// failed. A queue with order sends no more to the target in this pass: later messages would arrive first.
    pub(crate) fn is_barred(&self, target: &QueueRef) -> bool {
        self.barred.contains(target)
    }

    /// Returns the messages in transfer that a pass must examine: all but those behind a transfer in progress.
    pub(crate) fn due(&mut self, known: Vec<MessageId>) -> Vec<MessageId> {
        let mut behind = std::mem::take(&mut self.behind);
        let is_aside: HashSet<&MessageId> = known.iter().collect();
        behind.retain(|id, target| is_aside.contains(id) && self.has(target));
        self.behind = behind;
        known.into_iter().filter(|id| !self.behind.contains_key(id)).collect()
    }

    /// Records which of these messages wait behind a transfer.
    pub(crate) fn note_behind(&mut self, headers: &[Header]) {
        for header in headers {
            if let State::Moving(peer) = &header.state
                && self.has(&peer.at)
            {
                self.behind.insert(header.id, peer.at.clone());
            }
        }
    }

    /// Records a transfer to a target that has none.
    pub(crate) fn begin(&mut self, target: QueueRef, transfer: JoinHandle<Result<(), Error>>) {
        self.tasks.insert(target, transfer);
    }

    /// Waits for the transfers that were just begun, at most [`TRANSFER_WAIT`]. Transfers that take longer continue
    /// during the next pass.
    pub(crate) async fn finish(&mut self, begun: &[QueueRef]) -> Pass {
        let ended = poll_fn(|context| {
            self.poll_ended(context);
            let are_over = begun.iter().all(|target| !self.tasks.contains_key(target));
            if are_over { Poll::Ready(()) } else { Poll::Pending }
        });
        // Transfers that take longer are collected when they end.
        let _ = timeout(TRANSFER_WAIT, ended).await;
        if std::mem::take(&mut self.has_failed) || !self.tasks.is_empty() {
            Pass::Waits
        } else if self.has_moved {
            Pass::Moved
        } else {
            Pass::Idle
        }
    }

    /// Waits until a transfer in progress succeeds.
    pub(crate) async fn moved(&mut self) {
        poll_fn(|context| {
            self.poll_ended(context);
            if self.has_moved { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Takes the last transfer that failed since the previous call.
    pub(crate) fn take_failed(&mut self) -> Option<FailedTransfer> {
        self.failed.take()
    }

    /// Returns the targets, by name, with why the last transfer to each has failed: at most
    /// [`limits::TRANSFER_TARGETS`]. After an idle `pass` there are none.
    pub(crate) fn targets(&mut self, pass: Pass) -> Vec<TransferTarget> {
        if pass == Pass::Idle {
            self.refusals.clear();
        }
        let refused =
            self.refusals.iter().map(|(at, why)| TransferTarget { at: at.clone(), why: Some(why.clone()) });
        let is_new = |at: &&QueueRef| !self.refusals.contains_key(*at);
        let begun = self.tasks.keys().filter(is_new).map(|at| TransferTarget { at: at.clone(), why: None });
        let mut targets: Vec<TransferTarget> = refused.chain(begun).collect();
        targets.sort_by(|one, other| one.at.name.as_str().cmp(other.at.name.as_str()));
        targets.truncate(limits::TRANSFER_TARGETS);
        targets
    }

    /// Whether a transfer has succeeded since the previous call.
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }

    /// Removes the transfers that have ended; the others wake the task.
    fn poll_ended(&mut self, context: &mut Context<'_>) {
        let Self { tasks, barred, has_moved, has_failed, failed, refusals, .. } = self;
        tasks.retain(|target, transfer| {
            let Poll::Ready(ended) = Pin::new(transfer).poll(context) else { return true };
            let unknown = |_| Err(Error::unknown(Part::Server, "a task ended without an answer"));
            match ended.unwrap_or_else(unknown) {
                Ok(()) => {
                    refusals.remove(target);
                    *has_moved = true;
                }
                Err(error) => {
                    if refusals.len() < limits::TRANSFER_TARGETS || refusals.contains_key(target) {
                        refusals.insert(target.clone(), refusal_text(&error));
                    }
                    barred.insert(target.clone());
                    *failed = Some(FailedTransfer { target: target.clone(), error });
                    *has_failed = true;
                }
            }
            false
        });
    }
}

/// Returns why a transfer has failed, for an explanation: without the advice to try again, since that is done anyway.
fn refusal_text(error: &Error) -> String {
    match error {
        Error::Unavailable { part, .. } | Error::Unknown { part, .. } => format!("{part} is unavailable"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::task::TaskTracker;

    use super::*;
    use angarium_core::names::{ProjectId, QueueName};

    fn target(name: &str) -> QueueRef {
        QueueRef { project: ProjectId::new("").unwrap(), name: QueueName::new(name).unwrap() }
    }

    fn ends_after(millis: u64, outcome: Result<(), Error>) -> JoinHandle<Result<(), Error>> {
        TaskTracker::new().spawn(async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            outcome
        })
    }

    #[tokio::test(start_paused = true)]
    async fn late_transfer_is_noted_when_it_ends() {
        let mut transfers = Transfers::default();
        transfers.begin(target("slow"), ends_after(3_000, Ok(())));
        assert_eq!(transfers.finish(&[target("slow")]).await, Pass::Waits);
        assert!(!transfers.take_moved() && transfers.has(&target("slow")));
        transfers.moved().await;
        assert!(transfers.take_moved() && !transfers.has(&target("slow")));
        assert_eq!(transfers.finish(&[]).await, Pass::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn target_with_waiting_messages_is_barred_until_next_pass() {
        let mut transfers = Transfers::default();
        let failed = Err(Error::unavailable(Part::Storage, "as planned"));
        transfers.begin(target("fails"), ends_after(10, failed));
        transfers.begin(target("slow"), ends_after(3_000, Ok(())));
        assert_eq!(transfers.finish(&[target("fails")]).await, Pass::Waits);
        assert!(transfers.is_barred(&target("fails")) && !transfers.is_barred(&target("slow")));
        transfers.collect();
        assert!(transfers.is_barred(&target("slow")) && !transfers.is_barred(&target("fails")));
        transfers.moved().await;
        assert!(transfers.is_barred(&target("slow")), "until the next pass");
        transfers.collect();
        assert!(!transfers.is_barred(&target("slow")));
    }

    #[tokio::test(start_paused = true)]
    async fn late_failure_makes_one_pass_wait() {
        let mut transfers = Transfers::default();
        let failed = Err(Error::unavailable(Part::Storage, "as planned"));
        transfers.begin(target("slow"), ends_after(3_000, failed));
        assert_eq!(transfers.finish(&[target("slow")]).await, Pass::Waits);
        assert!(timeout(Duration::from_secs(5), transfers.moved()).await.is_err());
        assert_eq!(transfers.finish(&[]).await, Pass::Waits);
        assert_eq!(transfers.finish(&[]).await, Pass::Idle);
    }
}
