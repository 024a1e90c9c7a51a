//! Recount of the entries of queues after a crash: totals are updated by additions, so a wrong total would stay wrong.
//!
//! A queue is counted as it was in one view, some entries at a time. The difference to the totals of the same view is
//! added to the current totals, because later batches change both numbers equally. There is one exception: totals that
//! were too low may be decreased to zero by removals before the queue is empty; then the correction makes them too
//! high. So a corrected queue is counted again, until its totals are correct.
//!
//! A queue that cannot be read is skipped, and the next ones are counted. After all queues the shared bodies are
//! counted, and with them what each lender lends: in one view for all lenders, and again after corrections.
//!
//! A count may take minutes. So it holds scans of its view, and not the view itself, which would keep in memory all
//! that is written meanwhile.

use std::collections::BTreeMap;
use std::iter::Peekable;

use bytes::Bytes;
use tracing::warn;

use super::entries::StoredEntry;
use super::limits;
use super::stored::{self, BodyReaders, QueueTotals};
use super::{batch, entries, failed};
use crate::{Correction, StoreError, Totals};
use angarium_core::ids::QueueId;
use angarium_core::message::State;
use angarium_journal::{Journal, ReadPair, Space, Txn, View};

const SPACES: [Space; 3] = [Space::Entries, Space::Aside, Space::Kept];

/// Progress of a recount.
#[derive(Default)]
pub(super) struct Progress {
    /// The queue that is being counted.
    counting: Option<QueueCount>,
    /// The key of the last queue that was counted.
    after: Option<Bytes>,
    /// The queue that was corrected last, and how often.
    corrected: Option<(QueueId, usize)>,
    /// Whether a queue was skipped.
    has_skipped: bool,
    /// The bodies that lenders count, once all queues were counted or skipped.
    lending: Option<LentCount>,
    /// How often they were counted again.
    lent_again: usize,
    /// Whether all queues and lenders were counted or skipped.
    is_end: bool,
}

impl Progress {
    /// Whether all queues were counted or skipped.
    pub(super) fn is_end(&self) -> bool {
        self.is_end
    }

    /// Whether the totals of all queues are correct.
    pub(super) fn is_complete(&self) -> bool {
        self.is_end && !self.has_skipped
    }

    fn pass(&mut self, queue: QueueId) {
        self.after = Some(Bytes::copy_from_slice(queue.as_bytes()));
    }

    /// Skips a queue. Each queue is passed once, so this is logged once.
    fn skip(&mut self, queue: QueueId, error: &StoreError) {
        warn!(%queue, %error, "totals not countable");
        self.has_skipped = true;
        self.pass(queue);
    }

    /// Records that a queue is being corrected. It is counted again, up to the max number of times.
    fn note_corrected(&mut self, queue: QueueId) {
        let times =
            self.corrected.filter(|(corrected, _)| *corrected == queue).map_or(0, |(_, times)| times) + 1;
        self.corrected = Some((queue, times));
        if times > limits::RECOUNT_AGAIN {
            self.pass(queue);
        }
    }
}

/// The rest of a scan.
type ScanRest<T> = Box<dyn Iterator<Item = T> + Send>;

/// A queue that is being counted.
struct QueueCount {
    queue: QueueId,
    stored: Totals,
    counted: Totals,
    /// Its entries that are not counted, with their spaces, in the order of [`SPACES`].
    entries: Peekable<ScanRest<(Space, ReadPair)>>,
    /// Its changed headers. Those before the next entry aside are not needed any more.
    headers: Peekable<ScanRest<ReadPair>>,
}

/// The rest of what one step may read.
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

/// Continues the count, up to the bounds of a step or to the first wrong totals, which it returns as a correction.
/// After an error the progress is unchanged.
pub(super) fn step(journal: &Journal, progress: &mut Progress) -> Result<Option<Correction>, StoreError> {
    let mut budget = Budget { entries: limits::RECOUNT_ENTRIES, bytes: limits::RECOUNT_BYTES };
    while !budget.is_spent() {
        let Some(mut counting) = next(journal, progress)? else {
            return count_lent(journal, progress, &mut budget);
        };
        budget.take(0);
        match counting.count_on(&mut budget) {
            Ok(false) => {
                progress.counting = Some(counting);
                break;
            }
            Ok(true) => {}
            Err(error) => {
                // If the journal was closed, the queue is not the reason of the error.
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

/// The queue that is being counted, or the next one; none when there are no more.
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
            Ok(found) => return Ok(Some(QueueCount::begin(&view, queue, &found))),
            Err(error) => progress.skip(queue, &error),
        }
    }
    Ok(None)
}

/// The bytes of shared bodies, by their lenders.
struct LentCount {
    lent: BTreeMap<QueueId, u64>,
    /// The bodies that are not counted.
    readers: ScanRest<ReadPair>,
    /// The totals that are not compared.
    totals: ScanRest<ReadPair>,
    /// Whether all totals were compared.
    is_end: bool,
    /// Whether a lender had wrong totals.
    has_corrected: bool,
}

/// Counts what lenders lend, up to the bounds of a step or to the first wrong totals, which it returns as a correction.
fn count_lent(
    journal: &Journal,
    progress: &mut Progress,
    budget: &mut Budget,
) -> Result<Option<Correction>, StoreError> {
    let mut lending = match progress.lending.take() {
        Some(lending) => lending,
        None => LentCount::begin(journal)?,
    };
    let wrong = match lending.count_on(budget) {
        Ok(wrong) => wrong,
        Err(error) => {
            // If the journal was closed, the bodies are not the reason of the error.
            journal.check_open().map_err(failed)?;
            warn!(%error, "shared bodies not countable");
            (progress.has_skipped, progress.is_end) = (true, true);
            return Ok(None);
        }
    };
    lending.has_corrected |= wrong.is_some();
    if !lending.is_end {
        progress.lending = Some(lending);
    } else if lending.has_corrected && progress.lent_again < limits::RECOUNT_AGAIN {
        progress.lent_again += 1;
    } else {
        progress.is_end = true;
    }
    Ok(wrong)
}

impl LentCount {
    fn begin(journal: &Journal) -> Result<Self, StoreError> {
        let view = journal.view().map_err(failed)?;
        let rest = |space| -> ScanRest<ReadPair> { Box::new(view.scan(space, &[], &[]).fuse()) };
        let (readers, totals) = (rest(Space::Readers), rest(Space::Totals));
        Ok(Self { lent: BTreeMap::new(), readers, totals, is_end: false, has_corrected: false })
    }

    /// Counts bodies, then compares totals, until the budget is spent or totals are wrong.
    fn count_on(&mut self, budget: &mut Budget) -> Result<Option<Correction>, StoreError> {
        while !budget.is_spent() {
            if let Some(pair) = self.readers.next() {
                let (_, value) = pair.map_err(failed)?;
                budget.take(value.len());
                let BodyReaders { lender, bytes, .. } = BodyReaders::decode(&value)?;
                *self.lent.entry(lender).or_default() += u64::from(bytes);
                continue;
            }
            let Some(pair) = self.totals.next() else {
                self.is_end = true;
                break;
            };
            let (key, value) = pair.map_err(failed)?;
            budget.take(value.len());
            if let Some(wrong) = self.compare(&key, &value)? {
                return Ok(Some(wrong));
            }
        }
        Ok(None)
    }

    /// Returns the correction of a queue, if it lends other bytes than its totals say.
    fn compare(&self, key: &Bytes, value: &Bytes) -> Result<Option<Correction>, StoreError> {
        let id = key[..].try_into().map_err(|_| stored::damaged("the key of a queue"))?;
        let queue = QueueId::from_bytes(id);
        // Totals that cannot be read were skipped before.
        let Ok(QueueTotals { totals: before, .. }) = QueueTotals::decode(Some(value)) else {
            return Ok(None);
        };
        let after = Totals { lent: self.lent.get(&queue).copied().unwrap_or_default(), ..before };
        Ok((before != after).then_some(Correction { queue, before, after }))
    }
}

impl QueueCount {
    fn begin(view: &View, queue: QueueId, found: &QueueTotals) -> Self {
        // Keys below the head were removed, so the count begins at the head.
        let (id, head) = (queue.as_bytes(), stored::entry_key(queue, found.low));
        let scans = SPACES.map(|space| {
            let from = if space == Space::Entries { &head[..] } else { &id[..] };
            view.scan(space, id, from).map(move |pair| (space, pair))
        });
        let entries: ScanRest<(Space, ReadPair)> = Box::new(scans.into_iter().flatten());
        let headers: ScanRest<ReadPair> = Box::new(view.scan(Space::Headers, id, id));
        // What it lends is counted after all queues.
        let counted = Totals { lent: found.totals.lent, ..Totals::default() };
        let (entries, headers) = (entries.peekable(), headers.peekable());
        Self { queue, stored: found.totals, counted, entries, headers }
    }

    /// Counts until the budget is spent. Returns whether the whole queue is counted.
    fn count_on(&mut self, budget: &mut Budget) -> Result<bool, StoreError> {
        while !budget.is_spent() {
            match self.entries.peek() {
                None => return Ok(true),
                Some((Space::Aside, Ok((key, _)))) => {
                    let is_before = |pair: &ReadPair| pair.as_ref().is_ok_and(|(other, _)| other < key);
                    if self.headers.next_if(is_before).is_some() {
                        budget.take(0);
                        continue;
                    }
                }
                Some(_) => {}
            }
            let Some((space, pair)) = self.entries.next() else { return Ok(true) };
            let (key, value) = pair.map_err(failed)?;
            budget.take(value.len());
            let stored = entries::decode_entry(stored::entry_id(&key)?, &value)?;
            let state = match space {
                Space::Entries => State::Ready,
                // Done and failed entries count in the same way.
                Space::Kept => State::Done,
                _ => self.state_of(&key, &stored)?,
            };
            batch::count(&mut self.counted, &state, stored.body.bytes());
            self.counted.shared += stored.body.shared().map_or(0, |place| place.bytes.into());
        }
        Ok(false)
    }

    /// Returns the state of an entry aside, by its changed header if it has one. The headers before it were passed.
    fn state_of(&mut self, key: &Bytes, stored: &StoredEntry) -> Result<State, StoreError> {
        let is_behind = |pair: &ReadPair| pair.as_ref().is_ok_and(|(other, _)| other > key);
        match self.headers.next_if(|pair| !is_behind(pair)) {
            Some(pair) => {
                let (_, changed) = pair.map_err(failed)?;
                Ok(entries::decode_header(stored.header.id, &changed)?.state)
            }
            None => Ok(stored.header.state.clone()),
        }
    }
}

/// Corrects the totals of a queue, unless it was dropped meanwhile.
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
    now.kept = by(now.kept, before.kept, after.kept);
    now.shared = by(now.shared, before.shared, after.shared);
    now.lent = by(now.lent, before.lent, after.lent);
    txn.put(Space::Totals, Bytes::copy_from_slice(queue.as_bytes()), stored.encode());
    Ok(())
}
