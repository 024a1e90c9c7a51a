//! The bounds of a delivery.

use std::time::Duration;

use angarium_core::limits as core_limits;

/// Most bytes of an address.
pub const URL_BYTES: usize = core_limits::WEBHOOK_URL_BYTES;

/// Most bytes of an answer that are read and returned.
pub const ANSWER_BYTES: usize = 1024;

/// Most bytes that a subscriber may send for one delivery: interim answers, header and body.
pub const RECEIVED_BYTES: usize = 64 * 1024;

/// Most bytes of the header of an answer, which are in memory while it is read.
pub const WEBHOOK_HEADER_BYTES: usize = 16 * 1024;

/// Most headers of an answer.
pub const HEADERS: usize = 100;

/// Most addresses of a name that are tried.
pub const ADDRESSES: usize = 4;

/// Most look-ups of names at once. A look-up occupies a thread until the system answers, also after its deadline.
pub const LOOKUPS: usize = 32;

/// Most look-ups of names of one account at once, so that four accounts with names that are not answered leave no other
/// account without.
pub const ACCOUNT_LOOKUPS: usize = 8;

/// Longest wait that a subscriber can ask for with `Retry-After`.
pub const RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Most headers of the user.
pub const CUSTOM_HEADERS: usize = core_limits::WEBHOOK_HEADERS;

/// Most bytes of the headers of the user, names and values.
pub const CUSTOM_HEADER_BYTES: usize = 8 * 1024;

/// Most bytes of the id of a delivery.
pub const ID_BYTES: usize = 128;

/// Least and most bytes of a secret, as in Standard Webhooks.
pub const SECRET_BYTES: std::ops::RangeInclusive<usize> =
    core_limits::WEBHOOK_SECRET_BYTES.0..=core_limits::WEBHOOK_SECRET_BYTES.1;

/// Bounds of time and of idle connections.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// For the look-up of the name, the connection and the TLS handshake, together.
    pub connect: Duration,
    /// For the whole delivery up to the status of the answer; `connect` is part of it.
    pub exchange: Duration,
    /// For the body of the answer. Its status is known already, so this decides nothing.
    pub answer: Duration,
    /// How long a connection stays open without a delivery.
    pub idle: Duration,
    /// Most idle connections to one scheme, host and port.
    pub idle_per_origin: usize,
    /// Most idle connections in total.
    pub idle_total: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            exchange: Duration::from_secs(30),
            answer: Duration::from_secs(1),
            idle: Duration::from_secs(30),
            idle_per_origin: 16,
            idle_total: 512,
        }
    }
}
