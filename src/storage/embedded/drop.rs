//! Dropping a queue, some entries at a time: read away from the committer, removed under the fence.
//!
//! Buckets of entries that were removed before are left: a look into them finds nothing, and then they go.

use bytes::Bytes;

use super::buckets::Bucket;
use super::stored::{self, QueueTotals};
use super::{entries, failed, record, scan};
use crate::domain::ids::{MessageId, QueueId, Slot};
use crate::domain::message::{Message, State};
use crate::journal::{ReadPair, Space, Txn, View};
use crate::storage::{Dropped, Epoch, StoreError, Totals};

/// Keys of a queue that go together.
pub(super) struct Part {
    queue: QueueId,
    keys: Vec<(Space, Bytes)>,
    totals: Totals,
    /// Nothing ready is left below it.
    low: MessageId,
    /// Whether this is all there is.
    dropped: Dropped,
}

impl Part {
    /// Reads what goes next: at most `limit` entries and notes.
    pub(super) fn read(view: &View, queue: QueueId, limit: usize) -> Result<Self, StoreError> {
        let low = scan::totals(view, queue)?.low;
        let (totals, dropped) = (Totals::default(), Dropped::More);
        let mut part = Self { queue, keys: Vec::new(), totals, low, dropped };
        let prefix = queue.as_bytes();
        let mut left = limit;
        for (space, from) in [
            (Space::Entries, stored::entry_key(queue, low)),
            (Space::Aside, Bytes::copy_from_slice(prefix)),
            (Space::Notes, Bytes::copy_from_slice(prefix)),
        ] {
            for pair in view.scan(space, prefix, &from) {
                if left == 0 {
                    return Ok(part);
                }
                left -= 1;
                part.add(view, space, pair)?;
            }
        }
        part.dropped = Dropped::Done;
        Ok(part)
    }

    fn add(&mut self, view: &View, space: Space, pair: ReadPair) -> Result<(), StoreError> {
        let (key, value) = pair.map_err(failed)?;
        if space != Space::Notes {
            let id = stored::entry_id(&key)?;
            let stored = entries::decode_entry(id, &value)?;
            self.add_entry(view, space, &stored)?;
        }
        self.keys.push((space, key));
        Ok(())
    }

    fn add_entry(&mut self, view: &View, space: Space, stored: &Message) -> Result<(), StoreError> {
        let (queue, id) = (self.queue, stored.header.id);
        let header = scan::header(view, queue, stored)?;
        self.totals.messages += 1;
        self.totals.bytes += stored.body.len() as u64;
        self.keys.push((Space::Headers, stored::entry_key(queue, id)));
        if let Some(group) = &header.group {
            self.keys.push((Space::Groups, stored::group_key(queue, group, id)));
        }
        self.keys.push((Space::Buckets, Bucket::of_expiry(queue, &header).key()));
        match header.state {
            State::Ready => {}
            State::Scheduled => {
                self.totals.scheduled += 1;
                self.keys.push((Space::Schedule, stored::schedule_key(queue, header.ready, id)));
                self.keys.push((Space::Buckets, Bucket::of_schedule(queue, header.ready).key()));
            }
            State::Prepared(_) | State::Moving(_) | State::Failed => self.totals.aside += 1,
        }
        if space == Space::Entries {
            self.low = id.next();
        }
        Ok(())
    }

    /// Removes what was read, for the owner of the slot alone.
    pub(super) fn remove(self, txn: &mut Txn<'_>, slot: Slot, epoch: Epoch) -> Result<Dropped, StoreError> {
        match record(txn, slot)? {
            Some(record) if record.epoch > epoch => return Err(StoreError::Fenced(record.epoch)),
            Some(record) if record.epoch == epoch => {}
            Some(_) | None => return Err(StoreError::WentBack),
        }
        let key = Bytes::copy_from_slice(self.queue.as_bytes());
        let value = txn.get(Space::Totals, &key).map_err(failed)?;
        let mut stored = QueueTotals::decode(value.as_ref())?;
        for (space, key) in self.keys {
            if space != Space::Headers || txn.size_of(space, &key).map_err(failed)?.is_some() {
                txn.remove(space, key);
            }
        }
        let totals = &mut stored.totals;
        totals.messages = totals.messages.saturating_sub(self.totals.messages);
        totals.bytes = totals.bytes.saturating_sub(self.totals.bytes);
        totals.scheduled = totals.scheduled.saturating_sub(self.totals.scheduled);
        totals.aside = totals.aside.saturating_sub(self.totals.aside);
        stored.low = stored.low.max(self.low);
        match self.dropped {
            Dropped::Done => txn.remove(Space::Totals, key),
            Dropped::More => txn.put(Space::Totals, key, stored.encode()),
        }
        Ok(self.dropped)
    }
}
