//! Log of failed authentication. Each failure is counted, and a log line has the address, the reason and the kind of
//! path, never a credential. The log is bounded: within ten seconds at most one line for each address and reason, and
//! at most twenty lines in all. The next line has the number of failures without a line.

use std::net::IpAddr;

use axum::http::Extensions;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use angarium_core::limits;
use angarium_core::network::customer;
use angarium_core::source::Source;
use angarium_metrics::{AuthenticationFailure, Meter};

/// Counts and logs failed authentication.
#[derive(Debug)]
pub struct FailureLog {
    meter: Meter,
    /// Held for one access.
    window: Mutex<LogWindow>,
}

/// Failures that share one log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FailureKey {
    /// None when the address is unknown.
    client: Option<IpAddr>,
    failure: AuthenticationFailure,
}

/// The lines of the current interval.
#[derive(Debug, Default)]
struct LogWindow {
    began: Option<Instant>,
    logged: Vec<FailureKey>,
    /// Failures without a line since the last line.
    left_out: u64,
}

impl LogWindow {
    /// Decides whether a failure gets a log line. If so, returns the number of failures without one since the last
    /// line.
    fn admit(&mut self, now: Instant, key: FailureKey) -> Option<u64> {
        if self.began.is_none_or(|began| now.duration_since(began) >= limits::AUTHENTICATION_LOG) {
            self.began = Some(now);
            self.logged.clear();
        }
        if self.logged.len() >= limits::AUTHENTICATION_LINES || self.logged.contains(&key) {
            self.left_out += 1;
            return None;
        }
        self.logged.push(key);
        Some(std::mem::take(&mut self.left_out))
    }
}

impl FailureLog {
    /// Creates a log without failures.
    pub fn new(meter: Meter) -> Self {
        Self { meter, window: Mutex::default() }
    }

    /// Counts a failure, and logs it if the bounds allow. `path` is the [`kind`] of its path.
    pub fn note(&self, failure: AuthenticationFailure, extensions: &Extensions, path: &'static str) {
        self.meter.fail_authentication(failure);
        let address = extensions.get::<Source>().and_then(|source| source.address);
        let key = FailureKey { client: address.map(customer), failure };
        let Some(left_out) = self.window.lock().admit(Instant::now(), key) else { return };
        let (reason, address) = (failure.as_str(), address.map(|address| address.to_string()));
        warn!(address, reason, path, left_out, "authentication failed");
    }
}

/// Path kind of SQS requests.
pub const SQS: &str = "sqs";
/// Path kind of requests between replicas.
pub const PEER: &str = "peer";

/// Path prefixes of REST that the log names. Any other path may contain text that a caller has chosen.
const KINDS: [&str; 11] = [
    "/v2/queues",
    "/v2/topics",
    "/v2/pools",
    "/v2/flavors",
    "/v2/admin",
    "/v2/components",
    "/v2/health",
    "/v2/stats",
    "/v2/quota",
    "/v2",
    "/metrics",
];

/// Returns the kind of a REST path.
pub fn kind(path: &str) -> &'static str {
    let is_below =
        |kind: &&&str| path.strip_prefix(**kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    KINDS.iter().find(is_below).copied().unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_are_logged_once_for_each_address_and_reason() {
        use AuthenticationFailure::{MissingToken, UnknownToken};
        let mut window = LogWindow::default();
        let key = |last: u8, failure| FailureKey { client: Some([192, 0, 2, last].into()), failure };
        let start = Instant::now();
        assert_eq!(window.admit(start, key(1, UnknownToken)), Some(0));
        assert_eq!(window.admit(start, key(1, UnknownToken)), None);
        assert_eq!(window.admit(start, key(1, UnknownToken)), None);
        assert_eq!(window.admit(start, key(1, MissingToken)), Some(2), "it says what was left out");
        assert_eq!(window.admit(start, key(2, UnknownToken)), Some(0));
        for last in 0..=255 {
            window.admit(start, key(last, UnknownToken));
        }
        assert_eq!(window.logged.len(), limits::AUTHENTICATION_LINES);
        // A later line has counted two of the failures without a line.
        let left_out = 256 + 3 - 2 - u64::try_from(limits::AUTHENTICATION_LINES).unwrap();
        let later = start + limits::AUTHENTICATION_LOG;
        assert_eq!(window.admit(later, key(1, UnknownToken)), Some(left_out));
    }

    #[test]
    fn paths_are_named_by_their_kind_alone() {
        for (path, named) in [
            ("/v2/queues/orders/messages", "/v2/queues"),
            ("/v2/queuesx", "/v2"),
            ("/v2/pools", "/v2/pools"),
            ("/metrics", "/metrics"),
            ("/111111111111/orders", "other"),
            ("/", "other"),
            ("", "other"),
        ] {
            assert_eq!(kind(path), named, "{path}");
        }
    }
}
