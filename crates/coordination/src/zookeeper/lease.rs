//! The lease: until when what this process knows of the tree is still true, without asking (P8).
//!
//! Servers keep a session for its timeout after they last heard of it. So for most of that time after a request was
//! *sent* that was answered, no other process can have taken what belongs to the session. A request of our own is sent
//! six times in a timeout. It is a `sync`, which the leader answers: a follower that is cut off from the others would
//! answer reads long after the session has ended.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use super::TreeError;
use super::session::Session;
use angarium_clock as clock;

/// Until when, on the clock that continues while the machine is suspended.
#[derive(Default)]
pub(super) struct Lease(AtomicU64);

impl Lease {
    /// Whether it lasts still.
    pub(super) fn check(&self) -> Result<(), TreeError> {
        if clock::since_boot() < self.0.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(TreeError::NotSent("ZooKeeper has not answered for too long".into()))
        }
    }

    /// Ends it at once: the session has ended.
    pub(super) fn end(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Renews it as long as the session has answers. May be dropped at any time.
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
