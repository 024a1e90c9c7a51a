//! The errors of a request whose storage cannot become a pool.

use tracing::info;

use angarium_core::error::{Error, InvalidPart, Part};
use angarium_core::pool::PoolUri;
use angarium_storage::StoreError;
use angarium_storage::open::PoolOpenError;

use crate::stores::storage_failed;

/// Converts the failure to register a pool at a URI into the error of a request. A client that names servers gets their
/// failures; failures of a local disk are not for clients.
pub(crate) fn storage_refusal(uri: &PoolUri, failure: StoreError) -> Error {
    match failure {
        StoreError::NotSent(why) if !uri.is_embedded() => Error::invalid(InvalidPart::Body, "uri", why),
        other => storage_failed(Part::Storage, other),
    }
}

/// Converts the failure to open a storage at a URI into the error of a request.
pub(crate) fn cannot_open(uri: &PoolUri, error: &PoolOpenError) -> Error {
    match error {
        PoolOpenError::Scheme(_)
        | PoolOpenError::Postgres(_)
        | PoolOpenError::Redis(_)
        | PoolOpenError::File(_)
        | PoolOpenError::Path(_)
        | PoolOpenError::Shared(_) => Error::invalid(InvalidPart::Body, "uri", error.to_string()),
        PoolOpenError::Journal(_) | PoolOpenError::Absent(_) | PoolOpenError::Interrupted(_) => {
            // The reason may name local paths, which are not for clients.
            info!(is_embedded = uri.is_embedded(), %error, "pool storage not opened");
            Error::invalid(
                InvalidPart::Body,
                "uri",
                "the storage cannot be opened; the log of the service has the reason",
            )
        }
    }
}
