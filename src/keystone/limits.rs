//! Bounds of look-ups at Keystone, and of the cache of its answers.

use std::time::Duration;

/// Max bytes of a token that is looked up at Keystone. Fernet tokens have a few hundred, signed ones (JWS) about a
/// thousand; those of federated users with many groups have more.
pub const KEYSTONE_TOKEN_BYTES: usize = 4_096;
/// Max bytes of an answer of Keystone. Without the catalogue, which is never requested, an answer has a few thousand.
pub const KEYSTONE_ANSWER_BYTES: usize = 512 << 10;
/// Max bytes of the headers of an answer of Keystone, and of their fields.
pub const KEYSTONE_HEAD_BYTES: usize = 64 << 10;
/// Max header fields of an answer of Keystone.
pub const KEYSTONE_HEAD_FIELDS: usize = 100;
/// Max time to connect to Keystone, TLS handshake included.
pub const KEYSTONE_CONNECT: Duration = Duration::from_secs(3);
/// Max idle time of a connection to Keystone: shorter than the idle time of servers in front of Keystone.
pub const KEYSTONE_IDLE: Duration = Duration::from_secs(4);
/// Max concurrent look-ups of tokens. Keystone needs about ten milliseconds for one.
pub const KEYSTONE_LOOKUPS: usize = 32;
/// Max requests that wait for look-ups.
pub const KEYSTONE_WAITING: usize = 4_096;
/// One of this many parts of the look-ups, and of the waiting requests, is reserved for addresses that have none yet.
/// Of the rest, an address has at most as many as all others leave free, so that bad tokens of a few clients leave room
/// for the tokens of others.
pub const KEYSTONE_RESERVE_PARTS: usize = 4;
/// Max cached valid tokens, with at most about 600 bytes each.
pub const KEYSTONE_TOKENS_KNOWN: usize = 32_768;
/// Max cached refused tokens, about 100 bytes each. They have their own cache, so that refused tokens evict no valid
/// one.
pub const KEYSTONE_REFUSED_KNOWN: usize = 16_384;
/// Max time for which a refused token is cached: a replica of Keystone may not know a new token yet.
pub const KEYSTONE_REFUSED: Duration = Duration::from_secs(10);
/// Seconds before its expiry at which the service's own token is replaced.
pub const KEYSTONE_RENEWAL: u32 = 60;
/// Pause before the service requests its own token again, after Keystone refused the credentials or a token that it had
/// just issued: each attempt may count towards the lock of the account, and a client whose token Keystone answers with
/// 401 would cause one.
pub const KEYSTONE_LOGIN_PAUSE: Duration = Duration::from_secs(30);
/// Max bytes of the file with the secret of the service.
pub const KEYSTONE_SECRET_BYTES: u64 = 16 << 10;
/// Interval in which one failed look-up is logged.
pub const KEYSTONE_LOG: Duration = Duration::from_secs(10);
/// Interval in which one look-up that Keystone forbids to the service's user is logged: the configuration of Keystone
/// is wrong until an operator changes it, or a policy of Keystone excludes some tokens.
pub const KEYSTONE_FORBIDDEN_LOG: Duration = Duration::from_secs(3_600);
/// Bytes of the name of a user of which the service takes notice: as long as a name of Keystone can be, in characters.
pub const KEYSTONE_NAME_BYTES: usize = 255;
