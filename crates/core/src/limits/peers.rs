//! Bounds of what replicas send each other.

use std::time::Duration;

/// Requests to other replicas that may be under way at once, long polls too; each has a connection.
pub const PEER_REQUESTS: usize = 8_192;
/// How long the answer to a request is waited for whose client has left: what is on its way may be a claim, which is given back.
pub const PEER_ABANDONED_WAIT: Duration = Duration::from_millis(50);
/// Longer than any wait for a message: a request whose wait was cut short is made again as if it had waited for so long.
pub const FORWARD_WAITED: Duration = Duration::from_secs(45);
