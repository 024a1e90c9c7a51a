//! Time limits of requests and commits.

use std::time::Duration;

/// Max time of a request after the last byte of its body, without the time that it waits for a message. A replica that
/// serves a forwarded request has the same time.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(45);
/// Max time of a purge, which removes some thousands of messages a second.
pub const PURGE_DEADLINE: Duration = Duration::from_secs(600);
/// Max time to add or change a pool: an embedded store replays its log, of which it keeps 256 MiB.
pub const POOL_DEADLINE: Duration = Duration::from_secs(300);
/// Max time of a backup, whose client decides how fast it reads. Until its end, removed data keeps its disk
/// space.
pub const BACKUP_DEADLINE: Duration = Duration::from_secs(24 * 3_600);
