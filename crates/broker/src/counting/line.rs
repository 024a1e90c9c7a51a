//! Reads of the queues of one placement that wait to be counted ([`crate::counting::background`]), by a task for each
//! placement.
//!
//! ```text
//! line ──▶ first read ──▶ figures of the slot
//!              │ no answer          ▲
//!              └──▶ read again, in turn, with a backoff
//! ```
//!
//! A queue that cannot be read does not stop the line: the other queues are read meanwhile. Only a round in which no
//! queue could be read, for example because the pool is unreachable, delays the next round.

use crate::counting::Counts;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::debug;

use crate::limits;
use crate::slot::state::Slot;
use angarium_catalogue::Placement;
use angarium_core::error::{Error, Part};
use angarium_core::ids::QueueId;
use angarium_core::names::QueueRef;

/// A queue to read.
pub(crate) struct Uncounted {
    pub(crate) slot: Arc<Slot>,
    pub(crate) at: QueueRef,
    pub(crate) id: QueueId,
    pub(crate) placement: Placement,
}

/// State of the task that reads one placement.
struct CountingLine {
    waiting: Receiver<Uncounted>,
    /// Queues that could not be read, at most [`limits::COUNTING_LINE`].
    unread: VecDeque<Uncounted>,
    /// Backoff of the first reads of queues.
    first: Backoff,
    /// Backoff of the reads of queues that could not be read before.
    repeat: Backoff,
}

/// Queues that are read at once.
struct Round {
    queues: Vec<Uncounted>,
    is_repeat: bool,
}

/// When the next reads may begin.
struct Backoff {
    next: Instant,
    pause: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: Instant::now(), pause: limits::COUNTING_PAUSES.0 }
    }
}

impl Backoff {
    /// Records a round in which no queue could be read.
    fn fail(&mut self) {
        self.next = Instant::now() + self.pause;
        self.pause = limits::COUNTING_PAUSES.1.min(self.pause * 2);
    }
}

impl CountingLine {
    pub(crate) fn new(waiting: Receiver<Uncounted>) -> Self {
        Self { waiting, unread: VecDeque::new(), first: Backoff::default(), repeat: Backoff::default() }
    }

    /// Waits for the queues to read next. Returns none when none has arrived for [`limits::COUNTING_IDLE`].
    async fn next_round(&mut self) -> Option<Round> {
        loop {
            let (first, is_idle) = (self.first.next, self.unread.is_empty());
            let has_room = self.unread.len() + limits::COUNTING_AT_ONCE <= limits::COUNTING_LINE;
            let (waiting, mut queues) = (&mut self.waiting, Vec::new());
            let arrive = async {
                sleep_until(first).await;
                waiting.recv_many(&mut queues, limits::COUNTING_AT_ONCE).await
            };
            tokio::select! {
                biased;
                () = sleep_until(self.repeat.next), if !is_idle => {
                    let most = self.unread.len().min(limits::COUNTING_AT_ONCE);
                    return Some(Round { queues: self.unread.drain(..most).collect(), is_repeat: true });
                }
                arrived = arrive, if has_room => {
                    return (arrived > 0).then_some(Round { queues, is_repeat: false });
                }
                // Queues that have arrived in the meantime are still read.
                () = sleep(limits::COUNTING_IDLE), if is_idle => self.waiting.close(),
            }
        }
    }

    /// Takes back the queues of a round of `size` that could not be read.
    fn finish_round(&mut self, unread: Vec<Uncounted>, size: usize, is_repeat: bool) {
        if unread.len() < size {
            (self.first, self.repeat) = (Backoff::default(), Backoff::default());
        } else if is_repeat {
            self.repeat.fail();
        } else {
            self.first.fail();
        }
        for queue in unread {
            if self.waiting.is_closed() {
                put_back(&queue.slot, [&queue.at].into_iter());
            } else {
                self.unread.push_back(queue);
            }
        }
    }
}

impl Counts {
    /// Starts a task that reads the queues sent to the returned sender, all of one placement.
    pub(crate) fn begin_line(&self) -> Sender<Uncounted> {
        let (line, waiting) = channel(limits::COUNTING_LINE);
        let counts = self.clone();
        self.0.replica.tasks.spawn(async move { counts.count_line(CountingLine::new(waiting)).await });
        line
    }

    async fn count_line(&self, mut line: CountingLine) {
        loop {
            let round = tokio::select! {
                biased;
                () = self.0.replica.stop.cancelled() => return,
                round = line.next_round() => round,
            };
            let Some(Round { queues, is_repeat }) = round else { return };
            let size = queues.len();
            let read = join_all(queues.into_iter().map(|queue| self.count_closed(queue))).await;
            line.finish_round(read.into_iter().flatten().collect(), size, is_repeat);
        }
    }

    /// Reads one queue into the figures of its slot. Returns it when its pool did not answer.
    async fn count_closed(&self, queue: Uncounted) -> Option<Uncounted> {
        let Uncounted { slot, at, .. } = &queue;
        if slot.closed.is_cancelled() || !slot.counting(|progress| progress.is_reading(at)) {
            return None;
        }
        match self.read_and_count(&queue).await {
            Ok(()) => None,
            Err(error) if error.is_damaged() => {
                slot.counting(|progress| progress.give_up(at));
                None
            }
            Err(error) => {
                debug!(%error, queue = %at.name, "a queue is not counted yet");
                Some(queue)
            }
        }
    }

    async fn read_and_count(&self, queue: &Uncounted) -> Result<(), Error> {
        let Uncounted { slot, at, id, placement } = queue;
        let silent = || Error::unavailable(Part::Pool(placement.pool.clone()), "it does not answer");
        let read = timeout(limits::COUNTING_WAIT, self.0.open_queues.read_closed(slot, *id, placement)).await;
        let read = read.map_err(|_| silent())??;
        let now = self.0.replica.clock.now();
        let mut next_look = read.next_ready;
        if next_look.is_some_and(|next| next <= now) {
            let opened =
                timeout(limits::COUNTING_WAIT, self.0.open_queues.open_if_there(&slot.queue(at))).await;
            if let Ok(Ok(_)) = opened {
                slot.counting(|progress| progress.forget(at));
                return Ok(());
            }
            // The due message counts as delayed until the queue can be opened.
            next_look = Some(now.plus_seconds(limits::DUE_RETRY_SECONDS));
        }
        slot.finish_count(at, *id, read.contents, next_look);
        Ok(())
    }
}

/// Makes queues of a slot that were not read wait for another pass.
pub(crate) fn put_back<'q>(slot: &Arc<Slot>, queues: impl Iterator<Item = &'q QueueRef>) {
    slot.counting(|progress| queues.for_each(|at| progress.put_back(at)));
}
