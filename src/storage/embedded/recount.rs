//! Counting again what queues hold, after a crash: totals are kept by additions, and what was wrong once stays wrong.
//!
//! A queue is counted in one view, some entries at a time. What differs there from the totals of the same view is added to
//! the totals as they are by then: batches since have changed both alike.

use bytes::Bytes;

use super::stored::{self, QueueTotals};
use super::{batch, entries, failed, scan};
use crate::domain::ids::QueueId;
use crate::domain::limits;
use crate::domain::message::State;
use crate::journal::{Journal, Space, Txn, View};
use crate::storage::{Correction, StoreError, Totals};

const SPACES: [Space; 2] = [Space::Entries, Space::Aside];

/// How far a count came.
#[derive(Default)]
pub(super) struct Progress {
    /// The queue that is being counted.
    counting: Option<Counting>,
    /// The key of the last queue that was.
    after: Option<Bytes>,
}

/// A queue that is being counted.
struct Counting {
    view: View,
    queue: QueueId,
    stored: Totals,
    counted: Totals,
    /// The place among [`SPACES`], and the first key that is not counted.
    space: usize,
    from: Bytes,
}

/// What one step of a count found.
pub(super) struct Step {
    pub(super) progress: Progress,
    pub(super) corrections: Vec<Correction>,
    /// Whether no queue is left.
    pub(super) is_end: bool,
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

/// Counts on, up to the bounds of a step.
pub(super) fn step(journal: &Journal, progress: Progress) -> Result<Step, StoreError> {
    let mut budget = Budget { entries: limits::RECOUNT_ENTRIES, bytes: limits::RECOUNT_BYTES };
    let mut step = Step { progress, corrections: Vec::new(), is_end: false };
    while !budget.is_spent() {
        let next = match step.progress.counting.take() {
            Some(counting) => Some(counting),
            None => Counting::next(journal, step.progress.after.as_ref())?,
        };
        let Some(mut counting) = next else {
            step.is_end = true;
            break;
        };
        budget.take(0);
        if !counting.count_on(&mut budget)? {
            step.progress.counting = Some(counting);
            break;
        }
        let Counting { queue, stored: before, counted: after, .. } = counting;
        step.progress.after = Some(Bytes::copy_from_slice(queue.as_bytes()));
        if before != after {
            step.corrections.push(Correction { queue, before, after });
        }
    }
    Ok(step)
}

impl Counting {
    /// The queue behind the last one; none when that was the last.
    fn next(journal: &Journal, after: Option<&Bytes>) -> Result<Option<Self>, StoreError> {
        let view = journal.view().map_err(failed)?;
        let from = after.map_or(&[][..], |after| &after[..]);
        for pair in view.scan(Space::Totals, &[], from) {
            let (key, value) = pair.map_err(failed)?;
            if Some(&key) == after {
                continue;
            }
            let id = key[..].try_into().map_err(|_| stored::damaged("the key of a queue"))?;
            let (queue, QueueTotals { totals, low }) =
                (QueueId::from_bytes(id), QueueTotals::decode(Some(&value))?);
            // What lies below the head was removed: no walk over it.
            let from = stored::entry_key(queue, low);
            return Ok(Some(Self {
                view,
                queue,
                stored: totals,
                counted: Totals::default(),
                space: 0,
                from,
            }));
        }
        Ok(None)
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
    now.aside = by(now.aside, before.aside, after.aside);
    txn.put(Space::Totals, Bytes::copy_from_slice(queue.as_bytes()), stored.encode());
    Ok(())
}
