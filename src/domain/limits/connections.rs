//! Bounds of connections that are not served yet.

use std::time::Duration;

/// Connections beyond the bound that wait until one ends, at the cost of a socket each; one more is refused.
pub const WAITING_CONNECTIONS: usize = 1_024;
/// Connections over TLS beyond the bound that shake hands at once, to be answered if they probe.
pub const PROBE_CONNECTIONS: usize = 16;
/// How long such a connection waits to be served like any other before it shakes hands: less than a probe waits.
pub const PROBE_PAUSE: Duration = Duration::from_millis(500);
/// How long such a connection may be silent.
pub const PROBE_SILENCE: Duration = Duration::from_secs(2);
