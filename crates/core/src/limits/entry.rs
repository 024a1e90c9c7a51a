//! Bounds of the log of failed authentication.

use std::time::Duration;

/// Lines of failed authentication that are logged in [`AUTHENTICATION_LOG`], each of another address or for another reason.
pub const AUTHENTICATION_LINES: usize = 20;
/// See [`AUTHENTICATION_LINES`].
pub const AUTHENTICATION_LOG: Duration = Duration::from_secs(10);
