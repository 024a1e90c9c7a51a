//! The stamp of a storage: it tells to which pool the storage belongs (P9). This file decides what a stamp means; a
//! driver only reads the stamp of its storage, and writes it in one step if there is none.

use parking_lot::Mutex;
use uuid::Uuid;

use super::StoreError;

/// Identifies the pool of a storage, so that no process serves an empty or foreign storage in its place (P9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The installation: the id in `/meta/system`.
    pub system: Uuid,
    /// The id in the record of the pool.
    pub pool: Uuid,
}

impl Stamp {
    /// Checks that a storage with the stamp `found` is that of this pool.
    pub(super) fn check(self, found: Self) -> Result<(), StoreError> {
        if found == self { Ok(()) } else { Err(StoreError::Stamped(found)) }
    }
}

/// The first stamp that a driver read: if the address later leads to another stamp, it is another pool.
#[derive(Debug, Default)]
pub(super) struct FirstStamp(
    /// Held to read or write it.
    Mutex<Option<Stamp>>,
);

impl FirstStamp {
    /// Checks the stamp that a new connection read against the first one, and keeps it if it is the first.
    pub(super) fn recognise(&self, found: Option<Stamp>) -> Result<Stamp, StoreError> {
        let mut first = self.0.lock();
        match (found, *first) {
            (Some(found), Some(first)) => first.check(found).map(|()| found),
            (Some(found), None) => Ok(*first.insert(found)),
            (None, Some(_)) => Err(StoreError::NotSent(
                "the storage lost its stamp: it was emptied, or is another one".into(),
            )),
            (None, None) => Err(StoreError::NotSent("the storage was never registered".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(pool: u128) -> Stamp {
        Stamp { system: Uuid::from_u128(1), pool: Uuid::from_u128(pool) }
    }

    #[test]
    fn storage_with_another_stamp_than_the_first_is_refused() {
        let first = FirstStamp::default();
        let unregistered = first.recognise(None);
        assert!(matches!(&unregistered, Err(StoreError::NotSent(why)) if why.contains("never registered")));
        assert_eq!(first.recognise(Some(stamp(1))).unwrap(), stamp(1));
        let foreign = first.recognise(Some(stamp(2)));
        assert!(matches!(foreign, Err(StoreError::Stamped(found)) if found == stamp(2)));
        let emptied = first.recognise(None);
        assert!(matches!(&emptied, Err(StoreError::NotSent(why)) if why.contains("lost its stamp")));
        assert_eq!(first.recognise(Some(stamp(1))).unwrap(), stamp(1));
    }
}
