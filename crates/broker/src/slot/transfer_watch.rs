//! Who waits for messages to arrive in another queue: the claim that set them aside is answered when they can be claimed there.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use angarium_core::ids::MessageId;

use crate::limits;

/// Told when some messages have arrived; dropped unsent when no caller will say.
pub(crate) type ArrivalReceiver = oneshot::Receiver<()>;

/// Those who wait for messages of one queue.
#[derive(Debug, Default)]
pub(crate) struct TransferWatch {
    pub(crate) waiting: Vec<ArrivalWaiter>,
}

#[derive(Debug)]
pub(crate) struct ArrivalWaiter {
    /// The messages that are on their way still.
    pub(crate) ids: Vec<MessageId>,
    pub(crate) arrived: oneshot::Sender<()>,
}

impl TransferWatch {
    /// Waits for these messages; none when too many wait already.
    pub(crate) fn watch(&mut self, ids: Vec<MessageId>) -> Option<ArrivalReceiver> {
        // A waiter that has waited long enough is gone.
        self.waiting.retain(|waiting| !waiting.arrived.is_closed());
        if self.waiting.len() >= limits::ARRIVAL_WAITERS {
            return None;
        }
        let (arrived, arrival) = oneshot::channel();
        self.waiting.push(ArrivalWaiter { ids, arrived });
        Some(arrival)
    }

    /// These messages can be claimed where they went.
    pub(crate) fn arrived(&mut self, ids: &[MessageId]) {
        for waiting in &mut self.waiting {
            waiting.ids.retain(|id| !ids.contains(id));
        }
        for waiting in self.waiting.extract_if(.., |waiting| waiting.ids.is_empty()) {
            // Who has left needs no answer.
            let _ = waiting.arrived.send(());
        }
    }
}

/// Adds arrivals to others, of which those are forgotten that have ended.
pub(crate) fn add(more: Vec<ArrivalReceiver>, to: &mut Vec<ArrivalReceiver>) {
    to.retain_mut(|arrival| arrival.try_recv() == Err(oneshot::error::TryRecvError::Empty));
    to.extend(more);
}

/// Waits until all have arrived, or no caller will say, or for so long.
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
