//! Bounds of the questions to Keystone, and of the memory of its answers.

use std::time::Duration;

/// Bytes of a token that Keystone is asked about. Fernet tokens have a few hundred, signed ones (JWS) about a thousand; those of
/// federated users with many groups have more.
pub const KEYSTONE_TOKEN_BYTES: usize = 4_096;
/// Bytes of an answer of Keystone. Without the catalogue, which is asked for never, one has a few thousand.
pub const KEYSTONE_ANSWER_BYTES: usize = 512 << 10;
/// Bytes of the head of an answer of Keystone, and its fields.
pub const KEYSTONE_HEAD_BYTES: usize = 64 << 10;
/// See [`KEYSTONE_HEAD_BYTES`].
pub const KEYSTONE_HEAD_FIELDS: usize = 100;
/// How long a connection to Keystone may take to come about, with the handshake of TLS.
pub const KEYSTONE_CONNECT: Duration = Duration::from_secs(3);
/// How long a connection to Keystone is kept without use: less than servers in front of Keystone keep theirs.
pub const KEYSTONE_IDLE: Duration = Duration::from_secs(4);
/// Look-ups of tokens under way at once. Keystone needs some ten milliseconds for one.
pub const KEYSTONE_LOOKUPS: usize = 32;
/// Requests that wait for look-ups, all together.
pub const KEYSTONE_WAITING: usize = 4_096;
/// Of so many parts of the look-ups, and of the requests that wait for them, one is for addresses that have none yet. Of the rest
/// an address has at most as many as all others leave free: bad tokens of a few clients leave room for the tokens of others.
pub const KEYSTONE_RESERVE_PARTS: usize = 4;
/// Tokens whose validation is remembered, with at most about 600 bytes each.
pub const KEYSTONE_TOKENS_KNOWN: usize = 32_768;
/// Refused tokens that are remembered, about 100 bytes each, apart from the others: refused tokens push no valid one out.
pub const KEYSTONE_REFUSED_KNOWN: usize = 16_384;
/// How long a refused token is known as such, at most: it may be one that a replica of Keystone does not know yet.
pub const KEYSTONE_REFUSED: Duration = Duration::from_secs(10);
/// The service's own token is replaced so many seconds before it expires.
pub const KEYSTONE_RENEWAL: u32 = 60;
/// How long Keystone is not asked for a token of the service again after it refused the credentials, or a token that it had just
/// given: each try may count towards the lock of the account, and a client whose token Keystone answers with 401 would cause one.
pub const KEYSTONE_LOGIN_PAUSE: Duration = Duration::from_secs(30);
/// Bytes of the file with the secret of the service.
pub const KEYSTONE_SECRET_BYTES: u64 = 16 << 10;
/// Of failed look-ups one is logged in this time.
pub const KEYSTONE_LOG: Duration = Duration::from_secs(10);
/// Of look-ups that Keystone forbids the service's user one is logged in this time: the setting of Keystone is wrong until an
/// operator changes it, or a policy of Keystone excepts some tokens.
pub const KEYSTONE_FORBIDDEN_LOG: Duration = Duration::from_secs(3_600);
