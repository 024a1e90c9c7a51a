//! Bounds of what replicas send each other.

use std::time::Duration;

/// How long a connection to another replica may take to come about.
pub const PEER_CONNECT: Duration = Duration::from_secs(1);
/// How long a connection to another replica is kept without use: less than that one keeps it.
pub const PEER_IDLE: Duration = Duration::from_secs(30);
/// Connections to one replica that are kept without use.
pub const PEER_IDLE_CONNECTIONS: usize = 256;
/// Requests to other replicas that may be under way at once, long polls too; each has a connection.
pub const PEER_REQUESTS: usize = 8_192;
/// Bytes of the answer of another replica to a question about its own work.
pub const PEER_ANSWER_BYTES: usize = 16 << 20;
/// Bytes of an answer that is passed on which are kept, so that the request can be made again if it breaks off. A
/// longer one is passed on as it arrives, and is not in memory as a whole.
pub const PEER_ANSWER_KEPT: u64 = 64 << 10;
/// How long such an answer may stand still.
pub const PEER_STEP: Duration = Duration::from_secs(10);
/// How long the answer to a request is waited for whose client has left: what is on its way may be a claim, which is given back.
pub const PEER_ABANDONED_WAIT: Duration = Duration::from_millis(50);
/// How long a question to another replica about its own work may take.
pub const PEER_RPC_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than any wait for a message: a request whose wait was cut short is made again as if it had waited for so long.
pub const FORWARD_WAITED: Duration = Duration::from_secs(45);

/// How long a connection to another replica rests until the system asks whether that is still there, and how long it waits for
/// each of [`PEER_PROBES`] answers.
pub const PEER_PROBE: Duration = Duration::from_secs(2);
/// See [`PEER_PROBE`].
pub const PEER_PROBES: u32 = 3;
/// How long the system of another replica may leave what was sent to it without an acknowledgement. Less than a session by
/// default: a replica whose machine vanished keeps a request no longer than its queues wait for another owner.
pub const PEER_UNHEARD: Duration = Duration::from_secs(8);

/// How often a replica asks each pool and each other replica whether it is there, least and most: an eighth of a session.
pub const REACH_TICK: (Duration, Duration) = (Duration::from_millis(250), Duration::from_millis(1_500));
/// Pools, and replicas, that a replica names at most as not reached: its record is one value in the tree.
pub const UNREACHED: usize = 256;
