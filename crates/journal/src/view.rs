//! A read view: the state after one commit, in all spaces, for as long as the reader needs it.

use std::iter::once_with;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use fjall::{Readable, Snapshot};

use super::store::Store;
use super::{JournalError, Space};

/// A key with its value, or the error of reading them.
pub type ReadPair = Result<(Bytes, Bytes), JournalError>;

/// The journal at one moment. A view keeps the files of that moment, and a failed journal cannot be opened again before
/// the view is dropped. So a caller must not hold one for long.
pub struct View {
    snapshot: Snapshot,
    store: Arc<Store>,
}

impl View {
    pub(super) fn of(store: Arc<Store>) -> Self {
        Self { snapshot: store.database.snapshot(), store }
    }

    /// Returns the value of a key.
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        self.store.check_read(space, key)?;
        let value = self.snapshot.get(self.store.space(space), key);
        let value = value.map_err(|failure| self.store.read_failed(space, &failure))?;
        Ok(value.map(Bytes::from))
    }

    /// Returns keys and values from `from` (inclusive) that begin with `prefix`, in ascending order. Reads lazily: a
    /// caller that stops early has not paid for the rest. A range that damage has taken yields one error; a caller that
    /// continues after it misses the lost keys.
    pub fn scan(&self, space: Space, prefix: &[u8], from: &[u8]) -> impl Iterator<Item = ReadPair> + use<> {
        let prefix = prefix.to_vec();
        // Nearly always nothing is lost, so the end of the prefix is not needed.
        let end = if self.store.lost.is_empty() { None } else { end_of(&prefix) };
        self.parts(space, from, Bound::Unbounded, end.as_deref())
            .take_while(move |item| item.as_ref().map_or(true, |(key, _)| key.starts_with(&prefix)))
    }

    /// Returns keys and values from `first` to `last`, both inclusive. They can be read from either end. Damage yields
    /// errors as in [`View::scan`].
    pub fn range(
        &self,
        space: Space,
        first: &[u8],
        last: &[u8],
    ) -> impl DoubleEndedIterator<Item = ReadPair> + use<> {
        self.parts(space, first, Bound::Included(last), Some(last))
    }

    /// Chains the pairs before the lost keys, one error in their place, and the pairs after them. `shown` is the last
    /// key that the caller may see.
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

/// Returns the smallest key above all keys that begin with `prefix`; none when there is no such key.
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
