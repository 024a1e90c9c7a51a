//! Bounds of what is looked at before a caller is known: the header of a proxy, and the log of failed authentication.

use std::time::Duration;

/// Bytes of a PROXY protocol header beyond its fixed part. Addresses take 36; the fields behind them, such as the name of a
/// certificate, a few hundred.
pub const PROXY_HEADER_BYTES: usize = 2_048;
/// How often a connection of a proxy is looked at whose header is not there yet. Proxies send it in one piece.
pub const PROXY_HEADER_LOOK: Duration = Duration::from_millis(5);
/// Hops that `X-Forwarded-For` is read back over. One with more proxies than this is not resolved.
pub const FORWARDED_HOPS: usize = 32;
/// Lines of failed authentication that are logged in [`AUTHENTICATION_LOG`], each of another address or for another reason.
pub const AUTHENTICATION_LINES: usize = 20;
/// See [`AUTHENTICATION_LINES`].
pub const AUTHENTICATION_LOG: Duration = Duration::from_secs(10);
