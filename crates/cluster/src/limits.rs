//! Bounds of the connections between replicas, and of requests on them.

use std::time::Duration;

/// How long a connection to another replica may take to come about.
pub const PEER_CONNECT: Duration = Duration::from_secs(1);
/// How long a connection to another replica is kept without use: less than that one keeps it.
pub const PEER_IDLE: Duration = Duration::from_secs(30);
/// Connections to one replica that are kept without use.
pub const PEER_IDLE_CONNECTIONS: usize = 256;
/// Bytes of the answer of another replica to a question about its own work.
pub const PEER_ANSWER_BYTES: usize = 16 << 20;
/// Bytes of an answer that is passed on which are kept, so that the request can be made again if it breaks off. A
/// longer one is passed on as it arrives, and is not in memory as a whole.
pub const PEER_ANSWER_KEPT: u64 = 64 << 10;
/// How long such an answer may stand still.
pub const PEER_STEP: Duration = Duration::from_secs(10);
/// How long a question to another replica about its own work may take.
pub const PEER_RPC_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection to another replica rests until the system asks whether that is still there, and how long it waits for
/// each of [`PEER_PROBES`] answers.
pub const PEER_PROBE: Duration = Duration::from_secs(2);
/// See [`PEER_PROBE`].
pub const PEER_PROBES: u32 = 3;
/// How long the system of another replica may leave what was sent to it without an acknowledgement. Less than a session by
/// default: a replica whose machine vanished keeps a request no longer than its queues wait for another owner.
pub const PEER_UNHEARD: Duration = Duration::from_secs(8);
