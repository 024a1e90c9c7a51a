//! Waiters for the arrival of messages in another queue. The claim that marked the messages in transfer is answered
//! when they can be claimed there.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use angarium_core::ids::MessageId;
use angarium_core::maps::HashSet;

use crate::limits;

/// Resolves when some messages have arrived; dropped unsent when that will not be reported.
pub(crate) type ArrivalReceiver = oneshot::Receiver<()>;

/// Waiters for messages of one queue.
#[derive(Debug, Default)]
pub(crate) struct TransferWatch {
    pub(crate) waiting: Vec<ArrivalWaiter>,
    /// Messages of the last batch of a redrive that stay, because their target is gone.
    pub(crate) returned: HashSet<MessageId>,
}

#[derive(Debug)]
pub(crate) struct ArrivalWaiter {
    /// The messages that have not arrived yet.
    pub(crate) ids: Vec<MessageId>,
    pub(crate) arrived: oneshot::Sender<()>,
}

impl TransferWatch {
    /// Adds a waiter for these messages. Returns none when there are too many waiters.
    pub(crate) fn watch(&mut self, ids: Vec<MessageId>) -> Option<ArrivalReceiver> {
        // A waiter whose wait has timed out is gone.
        self.waiting.retain(|waiting| !waiting.arrived.is_closed());
        if self.waiting.len() >= limits::ARRIVAL_WAITERS {
            return None;
        }
        let (arrived, arrival) = oneshot::channel();
        self.waiting.push(ArrivalWaiter { ids, arrived });
        Some(arrival)
    }

    /// Reports that these messages can be claimed in their target queue.
    pub(crate) fn arrived(&mut self, ids: &[MessageId]) {
        for waiting in &mut self.waiting {
            waiting.ids.retain(|id| !ids.contains(id));
        }
        for waiting in self.waiting.extract_if(.., |waiting| waiting.ids.is_empty()) {
            // A waiter that has left needs no answer.
            let _ = waiting.arrived.send(());
        }
    }
}

/// Adds arrivals to others, and removes those of the others that are complete.
pub(crate) fn add(more: Vec<ArrivalReceiver>, to: &mut Vec<ArrivalReceiver>) {
    to.retain_mut(|arrival| arrival.try_recv() == Err(oneshot::error::TryRecvError::Empty));
    to.extend(more);
}

/// Waits until all have arrived, or their senders are dropped, or for `longest`.
pub(crate) async fn wait(arrivals: Vec<ArrivalReceiver>, longest: Duration) {
    let end = Instant::now() + longest;
    for arrival in arrivals {
        if timeout_at(end, arrival).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> MessageId {
        MessageId::from_bytes([number; 16])
    }

    #[tokio::test(start_paused = true)]
    async fn waiter_is_notified_of_all_its_messages() {
        let mut watch = TransferWatch::default();
        let mut both = watch.watch(vec![id(1), id(2)]).unwrap();
        let one = watch.watch(vec![id(3)]).unwrap();
        watch.arrived(&[id(2), id(4)]);
        assert!(both.try_recv().is_err());
        watch.arrived(&[id(1)]);
        let mut arrivals = vec![both];
        add(vec![one], &mut arrivals);
        assert_eq!(arrivals.len(), 1, "one is over");
        let began = Instant::now();
        wait(arrivals, Duration::from_millis(100)).await;
        assert_eq!(
            began.elapsed().as_millis(),
            100,
            "a target that takes its time holds nobody up for longer"
        );
        for _ in 0..2 {
            let kept: Vec<_> = (0..limits::ARRIVAL_WAITERS).map(|_| watch.watch(vec![id(5)])).collect();
            assert!(kept.iter().all(Option::is_some), "who waits no more is forgotten");
            assert!(watch.watch(vec![id(5)]).is_none());
        }
    }
}
