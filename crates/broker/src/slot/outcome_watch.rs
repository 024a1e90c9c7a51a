//! Requests that wait for the outcomes of messages of a queue.
//!
//! A waiter is woken once a change that keeps or removes its message is durable. The waiter then reads the message, so
//! its answer is a state that a later request sees too. Waiters are only in memory: when the queue is closed, they are
//! woken without a change, and watch the message again.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::oneshot;

use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::limits as core_limits;
use angarium_core::message::{Header, State};
use angarium_core::names::QueueName;
use angarium_storage::Changes;

use crate::slot::queue_handle::QueueHandle;

/// Resolves when the message was kept or removed: with the queue that a transfer has taken it to, if one has. Dropped
/// unsent when the queue was closed.
type Wake = oneshot::Receiver<Option<QueueName>>;

/// Waiters for messages of one queue.
#[derive(Debug, Default)]
pub(crate) struct OutcomeWatch {
    waiters: BTreeMap<WaiterKey, OutcomeWaiter>,
    /// Number of the next waiter.
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WaiterKey {
    message: MessageId,
    number: u64,
}

#[derive(Debug)]
struct OutcomeWaiter {
    /// The queue that the message is in transfer to, if it is.
    target: Option<QueueName>,
    wake: oneshot::Sender<Option<QueueName>>,
}

impl OutcomeWatch {
    fn join(&mut self, message: MessageId) -> Result<(WaiterKey, Wake), Error> {
        let bound = core_limits::OUTCOME_WAITERS;
        if self.waiters.len() >= bound {
            return Err(Error::TooMany { what: "requests that wait for outcomes in one queue", bound });
        }
        let key = WaiterKey { message, number: self.next };
        self.next += 1;
        let (wake, woken) = oneshot::channel();
        self.waiters.insert(key, OutcomeWaiter { target: None, wake });
        Ok((key, woken))
    }

    /// Replaces the tree when it becomes empty, because an empty tree keeps a leaf allocated.
    fn leave(&mut self, key: WaiterKey) -> Option<OutcomeWaiter> {
        let waiter = self.waiters.remove(&key);
        if self.waiters.is_empty() {
            self.waiters = BTreeMap::new();
        }
        waiter
    }

    fn note_target(&mut self, key: WaiterKey, target: QueueName) {
        if let Some(waiter) = self.waiters.get_mut(&key) {
            waiter.target = Some(target);
        }
    }

    /// Wakes the waiters of the messages that a durable change keeps or removes. Costs nothing without waiters.
    pub(crate) fn note(&mut self, changes: &Changes) {
        if self.waiters.is_empty() {
            return;
        }
        for Header { id, state, .. } in &changes.updates {
            match state {
                State::Moving(peer) => self.set_target(*id, Some(&peer.at.name)),
                State::Done | State::Failed => {
                    self.set_target(*id, None);
                    self.wake(*id);
                }
                State::Ready | State::Scheduled => self.set_target(*id, None),
                State::Prepared(_) | State::NoTarget => {}
            }
        }
        changes.removes.iter().for_each(|id| self.wake(*id));
    }

    fn set_target(&mut self, message: MessageId, target: Option<&QueueName>) {
        for (_, waiter) in self.waiters.range_mut(keys_of(message)) {
            waiter.target = target.cloned();
        }
    }

    fn wake(&mut self, message: MessageId) {
        while let Some((key, _)) = self.waiters.range(keys_of(message)).next() {
            let Some(OutcomeWaiter { target, wake }) = self.leave(*key) else { return };
            // A waiter that has left needs no answer.
            let _ = wake.send(target);
        }
    }
}

fn keys_of(message: MessageId) -> std::ops::RangeInclusive<WaiterKey> {
    WaiterKey { message, number: 0 }..=WaiterKey { message, number: u64::MAX }
}

/// A message whose outcome a request waits for. The waiter leaves when this is dropped.
pub(crate) struct WatchedMessage {
    queue: QueueHandle,
    key: WaiterKey,
    woken: Wake,
}

impl WatchedMessage {
    /// Notes that the message was in transfer to this queue when it was read.
    pub(crate) fn note_target(&self, target: QueueName) {
        self.queue.lock_queue(|queue| queue.outcomes.note_target(self.key, target));
    }

    /// Waits until the message was kept or removed, at most for this time. Ends early when the slot or the queue is
    /// closed, or the service stops: then the message must be read again. Returns the queue that a transfer has taken
    /// the message to, if one has.
    pub(crate) async fn changed(mut self, longest: Duration) -> Option<QueueName> {
        let slot = &self.queue.slot;
        tokio::select! {
            biased;
            woken = &mut self.woken => woken.ok().flatten(),
            () = tokio::time::sleep(longest) => None,
            () = slot.around.replica.waits.cancelled() => None,
            () = slot.closed.cancelled() => None,
        }
    }
}

impl Drop for WatchedMessage {
    fn drop(&mut self) {
        self.queue.lock_queue(|queue| drop(queue.outcomes.leave(self.key)));
    }
}

impl QueueHandle {
    /// Begins to watch a message, whether it exists or not.
    pub(crate) fn watch_outcome(&self, message: MessageId) -> Result<WatchedMessage, Error> {
        let joined = self.lock_queue(|queue| queue.outcomes.join(message));
        let (key, woken) = joined.ok_or_else(|| self.closed())??;
        Ok(WatchedMessage { queue: self.clone(), key, woken })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use angarium_core::ids::QueueId;
    use angarium_core::message::{Life, Peer};
    use angarium_core::names::{ProjectId, QueueRef};
    use angarium_core::time::Timestamp;

    use super::*;

    fn id(number: u8) -> MessageId {
        MessageId::from_bytes([number; 16])
    }

    fn in_state(id: MessageId, state: State) -> Header {
        let at = Timestamp::from_millis(1);
        Header {
            id,
            created: at,
            ready: at,
            life: Life::lasting(60, at),
            attempts: 1,
            client: None,
            size: 1,
            state,
            group: None,
            first_claimed: None,
            extras: None,
        }
    }

    fn moving(target: &str) -> State {
        let name = QueueName::new(target).unwrap();
        let at = QueueRef { project: ProjectId::new("").unwrap(), name };
        State::Moving(Arc::new(Peer { at, queue: Some(QueueId::from_bytes([1; 16])) }))
    }

    fn updates(headers: Vec<Header>) -> Changes {
        Changes { updates: headers, ..Changes::default() }
    }

    #[test]
    fn waiter_is_woken_by_outcome_of_its_message() {
        let mut watch = OutcomeWatch::default();
        let [mut kept, mut removed, mut other] = [1, 2, 3].map(|number| watch.join(id(number)).unwrap().1);
        watch.note(&updates(vec![in_state(id(1), State::Ready), in_state(id(3), State::Scheduled)]));
        assert!([&mut kept, &mut removed, &mut other].into_iter().all(|wake| wake.try_recv().is_err()));
        watch.note(&updates(vec![in_state(id(1), State::Failed)]));
        watch.note(&Changes { removes: vec![id(2)], ..Changes::default() });
        assert_eq!((kept.try_recv(), removed.try_recv()), (Ok(None), Ok(None)));
        assert!(other.try_recv().is_err());
        assert_eq!(watch.waiters.len(), 1);
    }

    #[test]
    fn waiter_of_moved_message_learns_its_target() {
        let mut watch = OutcomeWatch::default();
        let (key, mut read) = watch.join(id(1)).unwrap();
        watch.note_target(key, QueueName::new("old").unwrap());
        let mut marked = watch.join(id(2)).unwrap().1;
        watch.note(&updates(vec![in_state(id(2), moving("new"))]));
        watch.note(&Changes { removes: vec![id(1), id(2)], ..Changes::default() });
        let name = |name| Ok(Some(QueueName::new(name).unwrap()));
        assert_eq!((read.try_recv(), marked.try_recv()), (name("old"), name("new")));
    }

    #[test]
    fn target_is_forgotten_when_the_message_stays() {
        let mut watch = OutcomeWatch::default();
        let [mut failed, mut back] = [1, 2].map(|number| watch.join(id(number)).unwrap().1);
        watch.note(&updates(vec![in_state(id(1), moving("next")), in_state(id(2), moving("next"))]));
        watch.note(&updates(vec![in_state(id(1), State::Failed), in_state(id(2), State::Ready)]));
        watch.note(&Changes { removes: vec![id(2)], ..Changes::default() });
        assert_eq!((failed.try_recv(), back.try_recv()), (Ok(None), Ok(None)));
    }

    #[test]
    fn waiters_of_one_queue_are_bounded() {
        let mut watch = OutcomeWatch::default();
        let joined: Vec<_> = (0..core_limits::OUTCOME_WAITERS).map(|_| watch.join(id(1)).unwrap()).collect();
        assert!(matches!(watch.join(id(2)), Err(Error::TooMany { .. })));
        watch.leave(joined[7].0);
        let (_, mut last) = watch.join(id(2)).unwrap();
        watch.note(&Changes { removes: vec![id(1)], ..Changes::default() });
        assert_eq!(watch.waiters.len(), 1);
        assert!(last.try_recv().is_err());
    }
}
