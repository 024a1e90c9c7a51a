//! What a reader sees: the state after one commit, in all spaces, however long he reads.

use std::iter::once_with;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use fjall::{Readable, Snapshot};

use super::store::Store;
use super::{JournalError, Space};

/// A key and its value, or why they could not be read.
pub type ReadPair = Result<(Bytes, Bytes), JournalError>;

/// The journal as it was at one moment. It keeps the files of that moment, and a journal that failed cannot be opened
/// again before it leaves, so no process holds one for long.
pub struct View {
    snapshot: Snapshot,
    store: Arc<Store>,
}

impl View {
    pub(super) fn of(store: Arc<Store>) -> Self {
        Self { snapshot: store.database.snapshot(), store }
    }

    /// The value of a key.
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        self.store.check_read(space, key)?;
        let value = self.snapshot.get(self.store.space(space), key);
        let value = value.map_err(|failure| self.store.read_failed(space, &failure))?;
        Ok(value.map(Bytes::from))
    }

    /// Keys and values from `from` (inclusive) that begin with `prefix`, upwards. Reads lazily: a caller that stops
    /// early has not paid for the rest. Where damage has taken keys it shows an error, and a caller that continues
    /// beyond that misses them.
    pub fn scan(&self, space: Space, prefix: &[u8], from: &[u8]) -> impl Iterator<Item = ReadPair> + use<> {
        let prefix = prefix.to_vec();
        // Nearly always nothing is lost, and nothing more is to be done.
        let end = if self.store.lost.is_empty() { None } else { end_of(&prefix) };
        self.parts(space, from, Bound::Unbounded, end.as_deref())
            .take_while(move |item| item.as_ref().map_or(true, |(key, _)| key.starts_with(&prefix)))
    }

    /// Keys and values from `first` to `last`, both inclusive, which may be read from either end. Damage as in [`View::scan`].
    pub fn range(
        &self,
        space: Space,
        first: &[u8],
        last: &[u8],
    ) -> impl DoubleEndedIterator<Item = ReadPair> + use<> {
        self.parts(space, first, Bound::Included(last), Some(last))
    }

    /// What is before the keys that damage has taken, an error in their place, and what is behind them. `shown` is the last key
    /// that a caller may be shown.
    fn parts(
        &self,
        space: Space,
        first: &[u8],
        last: Bound<&[u8]>,
        shown: Option<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = ReadPair> + use<> {
        let range = |from: Bound<&[u8]>, to: Bound<&[u8]>| {
            let damage = Arc::clone(&self.store.damage);
            let bounds = (from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec));
            let pairs = self.snapshot.range::<Vec<u8>, _>(self.store.space(space), bounds);
            pairs.map(move |guard| pair(guard).map_err(|failure| damage.judge(space, &failure)))
        };
        let (before, lost, behind) = match self.store.lost.within(space, first, shown) {
            None => (Some(range(Bound::Included(first), last)), None, None),
            Some((lowest, highest)) => {
                let is_before = lowest.first.as_slice() > first;
                let is_behind = match last {
                    Bound::Included(last) | Bound::Excluded(last) => last > highest.last.as_slice(),
                    Bound::Unbounded => true,
                };
                let damage = Arc::clone(&self.store.damage);
                let text = lowest.text().to_owned();
                (
                    is_before.then(|| range(Bound::Included(first), Bound::Excluded(&lowest.first))),
                    Some(once_with(move || Err(damage.meet(space, &text)))),
                    is_behind.then(|| range(Bound::Excluded(&highest.last), last)),
                )
            }
        };
        let (before, behind) = (before.into_iter().flatten(), behind.into_iter().flatten());
        before.chain(lost.into_iter().flatten()).chain(behind)
    }
}

/// The last key that may begin with `prefix` is below this one; none when there is no such key.
fn end_of(prefix: &[u8]) -> Option<Vec<u8>> {
    let length = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=length].to_vec();
    end[length] += 1;
    Some(end)
}

fn pair(guard: fjall::Guard) -> Result<(Bytes, Bytes), fjall::Error> {
    let (key, value) = guard.into_inner()?;
    Ok((key.into(), value.into()))
}
