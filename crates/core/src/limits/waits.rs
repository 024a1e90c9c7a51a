//! Bounds of how long a request and a commit may take.

use std::time::Duration;

/// How long a request may take from the last byte of its body on, without the time that it waits for a message. Another replica
/// to which it is passed on has as long.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(45);
/// How long a purge may take: it removes what a queue holds, some thousands of messages a second.
pub const PURGE_DEADLINE: Duration = Duration::from_secs(600);
/// How long it may take to make or change a pool: an embedded store replays its log, of which it keeps 256 MiB.
pub const POOL_DEADLINE: Duration = Duration::from_secs(300);
