//! The lease: how long this process may trust its knowledge of the tree without a request (P8).
//!
//! Servers keep a session for its timeout after they last received a request of it. So for most of that time after an
//! answered request was *sent*, no other process can have taken what belongs to the session. This module sends a
//! request six times per timeout. It is a `sync`, because the leader answers it: a follower that is cut off from the
//! others would answer reads long after the session has ended.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use super::TreeError;
use super::session::Session;
use angarium_clock as clock;

/// End of the lease, in milliseconds of a clock that continues while the machine is suspended.
#[derive(Default)]
pub(super) struct Lease(AtomicU64);

impl Lease {
    /// Checks that the lease has not ended.
    pub(super) fn check(&self) -> Result<(), TreeError> {
        if clock::since_boot() < self.0.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(TreeError::NotSent("ZooKeeper has not answered for too long".into()))
        }
    }

    /// Ends the lease at once, because the session has ended.
    pub(super) fn end(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Renews the lease while the session has answers. Cancel safe.
    pub(super) async fn keep(&self, session: &Session) -> Infallible {
        let timeout = session.client.session_timeout();
        let length = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX) / 10 * 6;
        loop {
            let sent = clock::since_boot();
            if session.client.sync("/").await.is_ok() {
                self.0.fetch_max(sent.saturating_add(length), Ordering::AcqRel);
            }
            tokio::time::sleep(timeout / 6).await;
        }
    }
}
