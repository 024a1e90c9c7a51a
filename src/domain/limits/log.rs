//! Bounds of the log of the embedded store.

use std::time::Duration;

/// The last synced group is witnessed beside the log at most this often.
pub const WITNESS_PAUSE: Duration = Duration::from_millis(500);
