//! Bounds of requests between replicas.

use std::time::Duration;

/// Max concurrent requests to other replicas, long polls included; each has a connection.
pub const PEER_REQUESTS: usize = 8_192;
/// Max time that a replica waits for the answer to a forwarded request after its client disconnected: the answer may be
/// a claim, which is then released.
pub const PEER_ABANDONED_WAIT: Duration = Duration::from_millis(50);
/// Wait time that a forward counts as used when its wait was cut short. It is longer than any wait for a message, so
/// the repeated request does not wait again.
pub const FORWARD_WAITED: Duration = Duration::from_secs(45);
