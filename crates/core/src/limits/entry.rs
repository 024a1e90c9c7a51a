//! Bounds of the log of failed authentication.

use std::time::Duration;

/// Max log lines about failed authentication in [`AUTHENTICATION_LOG`], each for another address or another reason.
pub const AUTHENTICATION_LINES: usize = 20;
/// Period of [`AUTHENTICATION_LINES`].
pub const AUTHENTICATION_LOG: Duration = Duration::from_secs(10);
