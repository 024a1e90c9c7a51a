//! The survey: a session with an identity looks for open nodes from time to time, slowly, for the warnings of the
//! replica.

use std::convert::Infallible;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::{debug, warn};

use super::protection::Protection;
use super::session::Session;
use super::walk::{Census, Walk};

/// Pause between two surveys.
const INTERVAL: Duration = Duration::from_secs(3600);
/// Pause after a survey that found open nodes: an operator closes them.
const AGAIN: Duration = Duration::from_secs(60);
/// Pause before the first survey of a session, and after one that failed. A start has more urgent requests.
const FIRST: Duration = Duration::from_secs(5);
/// Pause after each group of nodes: a hundred thousand of them take about three minutes.
const PAUSE: Duration = Duration::from_millis(100);

/// The result of the last survey of this process.
#[derive(Default)]
pub(super) struct Survey(Mutex<Option<Census>>);

impl Survey {
    /// Returns a warning if the tree is open or shared, or nodes of a closed tree are open. `session` is the current one.
    pub(super) fn warning(&self, session: Option<&Session>) -> Option<String> {
        const MEND: &str = "run `angarium tree secure`";
        match session.map(Session::protection) {
            Some(Protection::Open) => {
                let has_identity = session.is_some_and(|session| session.identity.is_some());
                let mend = if has_identity { MEND } else { "see the page Security" };
                return Some(format!(
                    "the tree in ZooKeeper is open to every client of the ensemble: {mend}"
                ));
            }
            Some(Protection::Shared) => {
                return Some(format!("another identity has rights to the tree in ZooKeeper: {MEND}"));
            }
            Some(Protection::Closed) | None => {}
        }
        let (open, first) = open_nodes(self.0.lock().clone()?)?;
        Some(format!(
            "{open} nodes of the tree in ZooKeeper, as {first}, are open or have another identity: {MEND}"
        ))
    }

    /// Looks for open nodes while the session lasts, if it has an identity. Cancel safe.
    pub(super) async fn keep(&self, session: &Session) -> Infallible {
        let Some(identity) = &session.identity else { return std::future::pending().await };
        let mut pause = FIRST;
        loop {
            tokio::time::sleep(pause).await;
            if session.protection() == Protection::Open {
                continue;
            }
            let walk = Walk { client: &session.client, identity, pause: PAUSE };
            pause = match walk.count().await {
                Ok(census) => {
                    *self.0.lock() = Some(census.clone());
                    match open_nodes(census) {
                        Some((open, first)) => {
                            warn!(open, first, "open nodes in the zookeeper tree");
                            AGAIN
                        }
                        None => INTERVAL,
                    }
                }
                Err(error) => {
                    debug!(%error, "zookeeper tree not surveyed");
                    FIRST
                }
            };
        }
    }
}

/// Returns the number of nodes that are open or have another identity, and one of them; none if there is none.
fn open_nodes(census: Census) -> Option<(u64, String)> {
    let Census { open, first, foreign, first_foreign, .. } = census;
    Some((open + foreign, first.or(first_foreign)?))
}
