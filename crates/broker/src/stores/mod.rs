//! The open storages by the name of their pool, and reading a queue in them.

pub(crate) mod milestone;
pub(crate) mod open_pool;
pub(crate) mod queue_contents;
pub(crate) mod queue_store;
pub(crate) mod read_failure;
pub(crate) mod refusal;
pub(crate) mod table;
pub(crate) mod tenants;
pub(crate) mod usage_notes;

use angarium_core::error::{Error, Part};
use angarium_core::names::PoolName;
use angarium_storage::StoreError;

/// Whether the storage of such a pool is the reason of an error, or a storage that the error does not name.
pub(crate) fn is_of_storage(error: &Error, is_such: impl Fn(&PoolName) -> bool) -> bool {
    let part = match error {
        Error::Unavailable { part, .. } | Error::Unknown { part, .. } | Error::Damaged { part, .. } => part,
        _ => return false,
    };
    matches!(part, Part::Storage) || matches!(part, Part::Pool(name) if is_such(name))
}

/// Converts the error of a call to a pool, or to a storage that shall become one, into the error of a request.
pub(crate) fn storage_failed(part: Part, error: StoreError) -> Error {
    match error {
        StoreError::Full => Error::Full,
        error @ StoreError::Damaged(_) => Error::damaged(part, error),
        error if error.nothing_written() => Error::unavailable(part, error),
        error => Error::unknown(part, error),
    }
}
