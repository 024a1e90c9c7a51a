//! Bounds of the connections between replicas, and of requests on them.

use std::time::Duration;

/// Max time to connect to another replica.
pub const PEER_CONNECT: Duration = Duration::from_secs(1);
/// Max time of the handshake on a new connection. A busy replica may need it; a suspended one costs its callers this, once
/// for each request.
pub const PEER_HANDSHAKE: Duration = Duration::from_secs(5);
/// Max handshakes that a process performs at once. Further ones wait.
pub const PEER_HANDSHAKES: usize = 64;
/// Max connections from one address that have not shown yet that they are of a replica: more than the processes of one
/// machine need, each of which performs [`PEER_HANDSHAKES`] at once.
pub const PEER_UNPROVEN: usize = 256;
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

/// Time from the publication of another certificate of a process to its first use: the other replicas learn of it in
/// the registry.
pub const PEER_CERTIFICATE_LEAD: Duration = Duration::from_secs(10);
/// Max certificates of a process in the registry: the one in use, and the one that follows or was before.
pub const PEER_CERTIFICATES: usize = 2;
/// Time that a replica is admitted after it has left the registry. A replica that has lost its session forwards requests
/// meanwhile.
pub const PEER_LEFT: Duration = Duration::from_secs(600);
/// Interval at which it is checked whether the peer of a connection is still admitted.
pub const PEER_TRUST_CHECK: Duration = Duration::from_secs(5);
