//! Drop of a queue, some entries at a time: a blocking task reads them, and the committer removes them under the fence.
//!
//! Buckets of entries that were removed earlier stay: the next look-up finds them empty and removes them.

use bytes::Bytes;

use super::bodies::{self, GoneReaders, LentChanges};
use super::buckets::Bucket;
use super::entries::StoredEntry;
use super::stored::{self, QueueTotals};
use super::{batch, entries, failed, record, scan};
use crate::{DropResult, Epoch, StoreError, Totals};
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::State;
use angarium_journal::{Space, Txn, View};

/// Progress of the drop of a queue. A read that begins here does not walk over keys that were removed earlier.
#[derive(Clone, Debug)]
pub(super) struct DropProgress {
    queue: QueueId,
    /// The index in [`SPACES`], and the key that was removed last.
    space: usize,
    key: Bytes,
}

/// The spaces of the entries and notes of a queue.
const SPACES: [Space; 4] = [Space::Entries, Space::Aside, Space::Kept, Space::Notes];

/// Keys of a queue that are removed together.
pub(super) struct KeyRange {
    queue: QueueId,
    keys: Vec<(Space, Bytes)>,
    /// The stored totals of the queue, when the keys were read.
    found: Option<Bytes>,
    totals: Totals,
    /// The readers of shared bodies among them.
    gone: GoneReaders,
    /// Lower bound of the ready entries that are left.
    low: MessageId,
    /// Progress after this removal; none when there is nothing to remove.
    pub(super) reached: Option<DropProgress>,
    /// Whether nothing is left after this removal.
    dropped: DropResult,
}

impl KeyRange {
    /// Reads the next keys: at most `limit` entries and notes. When there are none after `reached`, it reads from the
    /// begin once more.
    pub(super) fn read(
        view: &View,
        queue: QueueId,
        limit: usize,
        reached: Option<DropProgress>,
    ) -> Result<Self, StoreError> {
        let found = view.get(Space::Totals, queue.as_bytes()).map_err(failed)?;
        let low = QueueTotals::decode(found.as_ref())?.low;
        let mut part = Self {
            queue,
            keys: Vec::new(),
            found,
            totals: Totals::default(),
            gone: GoneReaders::default(),
            low,
            reached: None,
            dropped: DropResult::More,
        };
        if let Some(reached) = reached.filter(|reached| reached.queue == queue) {
            part.take(view, limit, reached.space, &reached.key)?;
        }
        if part.keys.is_empty() && part.take(view, limit, 0, &stored::entry_key(queue, low))? {
            part.dropped = DropResult::Done;
        }
        Ok(part)
    }

    /// Adds the keys from `first` in one space on. Returns whether these are all.
    fn take(
        &mut self,
        view: &View,
        limit: usize,
        first_space: usize,
        first: &[u8],
    ) -> Result<bool, StoreError> {
        let (queue, mut left) = (self.queue, limit);
        for (number, space) in SPACES.into_iter().enumerate().skip(first_space) {
            let from = if number == first_space { first } else { queue.as_bytes() };
            for pair in view.scan(space, queue.as_bytes(), from) {
                if left == 0 {
                    return Ok(false);
                }
                left -= 1;
                let (key, value) = pair.map_err(failed)?;
                self.reached = Some(DropProgress { queue, space: number, key: key.clone() });
                self.add(view, space, key, &value)?;
            }
        }
        Ok(true)
    }

    fn add(&mut self, view: &View, space: Space, key: Bytes, value: &Bytes) -> Result<(), StoreError> {
        if space != Space::Notes {
            let id = stored::entry_id(&key)?;
            let stored = entries::decode_entry(id, value)?;
            self.add_entry(view, space, &stored)?;
        }
        self.keys.push((space, key));
        Ok(())
    }

    fn add_entry(&mut self, view: &View, space: Space, stored: &StoredEntry) -> Result<(), StoreError> {
        let (queue, id) = (self.queue, stored.header.id);
        let header = scan::header(view, queue, stored)?;
        batch::count(&mut self.totals, &header.state, stored.body.bytes());
        if let Some(place) = stored.body.shared() {
            self.gone.add(place);
            self.totals.shared += u64::from(place.bytes);
        }
        self.keys.push((Space::Headers, stored::entry_key(queue, id)));
        if let Some(group) = header.group.as_ref().filter(|_| !header.state.is_kept()) {
            self.keys.push((Space::Groups, stored::group_key(queue, group, id)));
        }
        self.keys.push((Space::Buckets, Bucket::of_expiry(queue, &header).key()));
        self.keys.extend(stored::ordered_key(queue, &header));
        if header.state == State::Scheduled {
            self.keys.push((Space::Buckets, Bucket::of_schedule(queue, header.ready).key()));
        }
        if space == Space::Entries {
            self.low = id.next();
        }
        Ok(())
    }

    /// Removes the keys, if `epoch` is the slot's current one. None if the totals are others than when they were read:
    /// then nothing is removed. All look-ups are before the first write.
    pub(super) fn remove(
        self,
        txn: &mut Txn<'_>,
        slot: Slot,
        epoch: Epoch,
    ) -> Result<Option<DropResult>, StoreError> {
        match record(txn, slot)? {
            Some(record) if record.epoch > epoch => return Err(StoreError::Fenced(record.epoch)),
            Some(record) if record.epoch == epoch => {}
            Some(_) | None => return Err(StoreError::WentBack),
        }
        let key = Bytes::copy_from_slice(self.queue.as_bytes());
        let value = txn.get(Space::Totals, &key).map_err(failed)?;
        if value != self.found {
            // A call before this one, whose caller has left, may have removed some of the keys: their readers must not be
            // counted as gone twice.
            return Ok(None);
        }
        let mut stored = QueueTotals::decode(value.as_ref())?;
        let left = self.gone.look_up(txn)?;
        let mut lent = LentChanges::of(None, &left);
        lent.apply(self.queue, &mut stored);
        let lenders = lent.look_up(txn)?;
        let mut keys = Vec::with_capacity(self.keys.len());
        for (space, key) in self.keys {
            if space != Space::Headers || txn.size_of(space, &key).map_err(failed)?.is_some() {
                keys.push((space, key));
            }
        }
        left.write(txn);
        bodies::write_lenders(txn, lenders);
        keys.into_iter().for_each(|(space, key)| txn.remove(space, key));
        let totals = &mut stored.totals;
        totals.messages = totals.messages.saturating_sub(self.totals.messages);
        totals.bytes = totals.bytes.saturating_sub(self.totals.bytes);
        totals.scheduled = totals.scheduled.saturating_sub(self.totals.scheduled);
        totals.in_transfer = totals.in_transfer.saturating_sub(self.totals.in_transfer);
        totals.kept = totals.kept.saturating_sub(self.totals.kept);
        totals.shared = totals.shared.saturating_sub(self.totals.shared);
        stored.low = stored.low.max(self.low);
        match self.dropped {
            DropResult::Done => txn.remove(Space::Totals, key),
            DropResult::More => txn.put(Space::Totals, key, stored.encode()),
        }
        Ok(Some(self.dropped))
    }
}
