//! Bounds of the connections between replicas, and of requests on them.

use std::time::Duration;

/// Max time to connect to another replica.
pub const PEER_CONNECT: Duration = Duration::from_secs(1);
/// Max idle time of a kept connection. It is shorter than the idle timeout of the other replica.
pub const PEER_IDLE: Duration = Duration::from_secs(30);
/// Max idle connections to one replica.
pub const PEER_IDLE_CONNECTIONS: usize = 256;
/// Max bytes of the response to a peer RPC.
pub const PEER_ANSWER_BYTES: usize = 16 << 20;
/// Max bytes of a forwarded response that is held in memory, so that the request can be repeated if the response breaks
/// off. A longer response is forwarded as it arrives, and is never in memory as a whole.
pub const PEER_ANSWER_KEPT: u64 = 64 << 10;
/// Max pause within such a response.
pub const PEER_STEP: Duration = Duration::from_secs(10);
/// Timeout of a peer RPC.
pub const PEER_RPC_TIMEOUT: Duration = Duration::from_secs(10);

/// Idle time of a connection to another replica before the operating system probes it, and the wait for the answer to
/// each of [`PEER_PROBES`] probes.
pub const PEER_PROBE: Duration = Duration::from_secs(2);
/// Number of unanswered probes after which a connection counts as lost, see [`PEER_PROBE`].
pub const PEER_PROBES: u32 = 3;
/// Max time that data sent to another replica may stay unacknowledged by its operating system. It is shorter than the
/// default session timeout: a request to a vanished machine does not wait longer than its queues wait for a new owner.
pub const PEER_UNHEARD: Duration = Duration::from_secs(8);
