//! Bounds of counting pools again.

use std::time::Duration;

/// The pause between two steps of a count after a crash.
pub const RECOUNT_STEP: Duration = Duration::from_millis(50);
/// How often it is looked whether a pool is to be counted.
pub const RECOUNT_REST: Duration = Duration::from_secs(60);
