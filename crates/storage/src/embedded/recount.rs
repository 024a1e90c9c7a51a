//! Counting again what queues hold, after a crash: totals are kept by additions, and what was wrong once stays wrong.
//!
//! A queue is counted in one view, some entries at a time. What differs there from the totals of the same view is added to
//! the totals as they are by then: batches since have changed both alike. Unless the totals were too low, and removals since
//! have brought them to nothing before the queue was empty: then the correction makes them too high. So a queue that was
//! corrected is counted again, until its totals are right.
//!
//! A queue that cannot be read is left as it is, and those behind it are counted.

use bytes::Bytes;
use tracing::warn;

use super::limits;
use super::stored::{self, QueueTotals};
use super::{batch, entries, failed, scan};
use crate::{Correction, StoreError, Totals};
use angarium_core::ids::QueueId;
use angarium_core::message::State;
use angarium_journal::{Journal, Space, Txn, View};

const SPACES: [Space; 2] = [Space::Entries, Space::Aside];

/// How far a count came.
#[derive(Default)]
pub(super) struct Progress {
    /// The queue that is being counted.
    counting: Option<QueueCount>,
    /// The key of the last queue that was.
    after: Option<Bytes>,
    /// The queue that was corrected last, and how often.
    corrected: Option<(QueueId, usize)>,
    /// Whether a queue was left as it is.
    has_skipped: bool,
    /// Whether no queue is left.
    is_end: bool,
}

impl Progress {
    /// Whether no queue is left.
    pub(super) fn is_end(&self) -> bool {
        self.is_end
    }

    /// Whether the totals of all queues are right.
    pub(super) fn is_complete(&self) -> bool {
        self.is_end && !self.has_skipped
    }

    fn pass(&mut self, queue: QueueId) {
        self.after = Some(Bytes::copy_from_slice(queue.as_bytes()));
    }

    /// Leaves a queue as it is. A queue is passed once, so this is told once.
    fn skip(&mut self, queue: QueueId, error: &StoreError) {
        warn!(%queue, %error, "totals not countable");
        self.has_skipped = true;
        self.pass(queue);
    }

    /// Notes that a queue is corrected now. It is counted again, unless that was done as often as it may be.
    fn note_corrected(&mut self, queue: QueueId) {
        let times =
            self.corrected.filter(|(corrected, _)| *corrected == queue).map_or(0, |(_, times)| times) + 1;
        self.corrected = Some((queue, times));
        if times > limits::RECOUNT_AGAIN {
            self.pass(queue);
        }
    }
}

/// A queue that is being counted.
struct QueueCount {
    view: View,
    queue: QueueId,
    stored: Totals,
    counted: Totals,
    /// The place among [`SPACES`], and the first key that is not counted.
    space: usize,
    from: Bytes,
}

/// How much one step may still read.
struct Budget {
    entries: usize,
    bytes: usize,
}

impl Budget {
    fn take(&mut self, bytes: usize) {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn is_spent(&self) -> bool {
        self.entries == 0 || self.bytes == 0
    }
}

/// Counts on, up to the bounds of a step or the first totals that are to be corrected, which are returned. On an error the
/// count stays where it is.
pub(super) fn step(journal: &Journal, progress: &mut Progress) -> Result<Option<Correction>, StoreError> {
    let mut budget = Budget { entries: limits::RECOUNT_ENTRIES, bytes: limits::RECOUNT_BYTES };
    while !budget.is_spent() {
        let Some(mut counting) = next(journal, progress)? else {
            progress.is_end = true;
            break;
        };
        budget.take(0);
        match counting.count_on(&mut budget) {
            Ok(false) => {
                progress.counting = Some(counting);
                break;
            }
            Ok(true) => {}
            Err(error) => {
                // A journal that was closed is not the queue's fault.
                journal.check_open().map_err(failed)?;
                progress.skip(counting.queue, &error);
                continue;
            }
        }
        let QueueCount { queue, stored: before, counted: after, .. } = counting;
        if before != after {
            progress.note_corrected(queue);
            return Ok(Some(Correction { queue, before, after }));
        }
        progress.pass(queue);
    }
    Ok(None)
}

/// The queue that is being counted, or the one behind the last one; none when that was the last.
fn next(journal: &Journal, progress: &mut Progress) -> Result<Option<QueueCount>, StoreError> {
    if let Some(counting) = progress.counting.take() {
        return Ok(Some(counting));
    }
    let view = journal.view().map_err(failed)?;
    let from = progress.after.clone();
    for pair in view.scan(Space::Totals, &[], from.as_deref().unwrap_or_default()) {
        let (key, value) = pair.map_err(failed)?;
        if Some(&key) == from.as_ref() {
            continue;
        }
        let id = key[..].try_into().map_err(|_| stored::damaged("the key of a queue"))?;
        let queue = QueueId::from_bytes(id);
        match QueueTotals::decode(Some(&value)) {
            Ok(found) => return Ok(Some(QueueCount::new(view, queue, &found))),
            Err(error) => progress.skip(queue, &error),
        }
    }
    Ok(None)
}

impl QueueCount {
    fn new(view: View, queue: QueueId, found: &QueueTotals) -> Self {
        // What is below the head was removed: no walk over it.
        let from = stored::entry_key(queue, found.low);
        Self { view, queue, stored: found.totals, counted: Totals::default(), space: 0, from }
    }

    /// Counts until the budget is spent. Whether all of the queue is counted.
    fn count_on(&mut self, budget: &mut Budget) -> Result<bool, StoreError> {
        while let Some(space) = SPACES.get(self.space) {
            for pair in self.view.scan(*space, self.queue.as_bytes(), &self.from) {
                let (key, value) = pair.map_err(failed)?;
                if budget.is_spent() {
                    self.from = key;
                    return Ok(false);
                }
                budget.take(value.len());
                let message = entries::decode_entry(stored::entry_id(&key)?, &value)?;
                let state = match space {
                    Space::Entries => State::Ready,
                    _ => scan::header(&self.view, self.queue, &message)?.state,
                };
                batch::count(&mut self.counted, &state, message.body.len() as u64);
            }
            self.space += 1;
            self.from = Bytes::copy_from_slice(self.queue.as_bytes());
        }
        Ok(true)
    }
}

/// Corrects the totals of a queue, unless it was dropped since.
pub(super) fn correct(txn: &mut Txn<'_>, correction: &Correction) -> Result<(), StoreError> {
    let Correction { queue, before, after } = correction;
    let Some(value) = txn.get(Space::Totals, queue.as_bytes()).map_err(failed)? else { return Ok(()) };
    let mut stored = QueueTotals::decode(Some(&value))?;
    let by = |now: u64, before: u64, after: u64| now.saturating_add(after).saturating_sub(before);
    let now = &mut stored.totals;
    now.messages = by(now.messages, before.messages, after.messages);
    now.bytes = by(now.bytes, before.bytes, after.bytes);
    now.scheduled = by(now.scheduled, before.scheduled, after.scheduled);
    now.in_transfer = by(now.in_transfer, before.in_transfer, after.in_transfer);
    txn.put(Space::Totals, Bytes::copy_from_slice(queue.as_bytes()), stored.encode());
    Ok(())
}
