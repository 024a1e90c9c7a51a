//! The parts that this replica reaches: each pool and each other replica. It checks them at an interval. It reports in
//! the registry the ones that it has not reached for the length of a session timeout, and the pools that are used
//! ([`crate::stores::usage_notes`]). From the answers of the others it decides whether clients should use a replica
//! without a session.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};
use uuid::Uuid;

use angarium_catalogue::{ReachReport, UnreachedParts};
use angarium_cluster::peer_client::PeerStatus;
use angarium_core::error::Error;
use angarium_core::maps::HashMap;
use angarium_core::names::PoolName;

use crate::health::Health;
use crate::limits;
use crate::slots::peers::ServingPeer;

/// State of one part that is checked at an interval.
#[derive(Clone, Copy, Debug)]
struct Contact {
    /// When the last successful check began; before it, when the first check began.
    reached: Instant,
    /// Whether the last check got no answer.
    is_silent: bool,
    /// For a replica: whether it has a session. None when it did not report that.
    has_session: Option<bool>,
}

/// Every part that is checked, by its key.
#[derive(Debug)]
struct Contacts<K>(HashMap<K, Contact>);

impl<K> Default for Contacts<K> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Eq + Hash + Clone + Ord> Contacts<K> {
    /// Records the answers of a round of checks that began at `asked`, and forgets parts that were not checked.
    pub(crate) fn note(&mut self, asked: Instant, answers: Vec<(K, Option<PeerStatus>)>) {
        let is_asked: BTreeSet<K> = answers.iter().map(|(key, _)| key.clone()).collect();
        self.0.retain(|key, _| is_asked.contains(key));
        for (key, answer) in answers {
            let contact = self.0.entry(key);
            let contact = contact.or_insert(Contact { reached: asked, is_silent: false, has_session: None });
            contact.is_silent = answer.is_none();
            contact.has_session = answer.and_then(|peering| peering.has_session);
            if answer.is_some() {
                contact.reached = asked;
            }
        }
    }

    /// Returns the parts that were not reached for `span`, in order.
    pub(crate) fn lost(&self, span: Duration, now: Instant) -> Vec<K> {
        let is_lost = |contact: &Contact| contact.is_silent && now.duration_since(contact.reached) >= span;
        let lost = self.0.iter().filter(|(_, contact)| is_lost(contact)).map(|(key, _)| key.clone());
        let mut lost: Vec<K> = lost.collect();
        lost.sort_unstable();
        lost.truncate(limits::UNREACHED);
        lost
    }
}

/// The parts that this replica reaches, and since when it has no session. Each lock is held for one access.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    pools: Mutex<Contacts<PoolName>>,
    peers: Mutex<Contacts<Uuid>>,
    /// Since when there is no session; none while there is one.
    outage: Mutex<Option<Instant>>,
}

impl Reach {
    /// Records that there is a session.
    fn end_outage(&self) {
        *self.outage.lock() = None;
    }

    /// Records that there is no session. Returns how long there has been none.
    fn note_outage(&self) -> Duration {
        self.outage.lock().get_or_insert_with(Instant::now).elapsed()
    }

    fn has_peer_with_session(&self) -> bool {
        self.peers.lock().0.values().any(|contact| contact.has_session == Some(true))
    }

    pub(crate) fn unreached(&self, span: Duration) -> UnreachedParts {
        let now = Instant::now();
        let pools = self.pools.lock().lost(span, now);
        let pools = pools.iter().map(ToString::to_string).collect();
        UnreachedParts { pools, peers: self.peers.lock().lost(span, now) }
    }
}

/// The report of this replica in the registry.
#[derive(Debug)]
struct ReachRecord {
    /// None from the begin of a write until one succeeds: the registry may contain the older or the newer report.
    report: Option<ReachReport>,
    /// When it was last written.
    written: Instant,
}

impl Default for ReachRecord {
    /// The record of a replica that has just registered.
    fn default() -> Self {
        Self { report: Some(ReachReport::default()), written: Instant::now() }
    }
}

impl ReachRecord {
    /// Whether this report must be written now. Writes that succeed are at least `pause` apart.
    fn is_due(&self, found: &ReachReport, pause: Duration) -> bool {
        self.report.as_ref() != Some(found) && self.written.elapsed() >= pause
    }
}

/// A replica, and its answer to the last check, or the reason why there is none.
type PeerAnswer = (ServingPeer, Result<PeerStatus, String>);

/// Logs each replica that is not reached any more, with the cause of the last check.
fn log_unreached(before: &UnreachedParts, now: &UnreachedParts, answers: &[PeerAnswer]) {
    for (ServingPeer { instance, address }, answer) in answers {
        let is_new = now.peers.contains(instance) && !before.peers.contains(instance);
        if let (true, Err(error)) = (is_new, answer) {
            warn!(%instance, %address, error, "replica not reached");
        }
    }
}

impl Health {
    /// Whether clients should use this replica as far as its session is concerned. Without one it stays ready for two
    /// session timeouts, since posts and deletes need none, and longer while no other replica is known to have one.
    /// Otherwise no replica would be ready during an election or without a majority.
    pub(crate) fn check_session(&self) -> Result<(), Error> {
        let registered = self.0.slots.check_registered();
        if registered.is_ok() {
            self.0.reach.end_outage();
            return registered;
        }
        let outage = self.0.reach.note_outage();
        let Some(session) = self.0.replica.catalogue.session_timeout() else { return registered };
        let is_alone_in_it = outage > 2 * session && self.0.reach.has_peer_with_session();
        if is_alone_in_it { registered } else { Ok(()) }
    }

    /// Records whether there is a session. Returns how long there has been none; none while there is one.
    fn session_outage(&self) -> Option<Duration> {
        if self.0.slots.has_session() {
            self.0.reach.end_outage();
            return None;
        }
        Some(self.0.reach.note_outage())
    }

    /// Returns a warning for the operator of a replica that is ready without a session.
    pub(crate) fn session_warning(&self) -> Option<String> {
        self.0.replica.catalogue.session_timeout()?;
        let seconds = self.session_outage()?.as_secs();
        Some(format!(
            "there is no session with ZooKeeper for {seconds} s: claims and new queues are refused, posts to open queues and \
             deletes are served"
        ))
    }

    /// Checks pools and replicas until the service stops. A single replica has no other to report to, and does nothing.
    pub(crate) async fn watch_reach(&self) {
        let Some(session) = self.0.replica.catalogue.session_timeout() else { return };
        let tick = (session / 8).clamp(limits::REACH_TICK.0, limits::REACH_TICK.1);
        let deadline = session / 4;
        let (mut record, mut logged) = (ReachRecord::default(), UnreachedParts::default());
        while self.0.replica.sleep_tick(tick).await {
            let asked = Instant::now();
            let (pools, peers) = tokio::join!(self.reach_pools(deadline), self.reach_peers(deadline));
            let answers = peers.iter().map(|(peer, answer)| (peer.instance, answer.as_ref().ok().copied()));
            self.0.reach.pools.lock().note(asked, pools);
            self.0.reach.peers.lock().note(asked, answers.collect());
            self.session_outage();
            self.0.pools.begin_pool_search();
            let (unreached, used_pools) = (self.0.reach.unreached(session), self.0.stores.pool_use.used());
            let found = ReachReport { unreached, used_pools };
            if record.is_due(&found, session / 2) && self.publish_reach(&mut record, &found).await {
                log_unreached(&logged, &found.unreached, &peers);
                logged = found.unreached;
            }
        }
    }

    async fn reach_pools(&self, deadline: Duration) -> Vec<(PoolName, Option<PeerStatus>)> {
        let asked = self.0.stores.all().into_iter().map(|pool| async move {
            let answers = async {
                let Ok(store) = pool.store() else { return false };
                timeout(deadline, store.health()).await.is_ok_and(|answer| answer.is_ok())
            };
            let answer = answers.await.then(PeerStatus::default);
            (pool.entry.name.clone(), answer)
        });
        join_all(asked).await
    }

    async fn reach_peers(&self, deadline: Duration) -> Vec<PeerAnswer> {
        let Ok(peer_client) = self.0.slots.peer_client() else { return Vec::new() };
        let others = self.0.slots.serving_peers();
        let asked = others.into_iter().map(|peer| async move {
            let answer = peer_client.reach(&peer.address, peer.instance, deadline).await;
            (peer, answer)
        });
        join_all(asked).await
    }

    /// Reports in the registry the parts that this replica does not reach, and the used pools. Returns false when it
    /// failed and must be repeated.
    async fn publish_reach(&self, record: &mut ReachRecord, found: &ReachReport) -> bool {
        // A registration may write it from now on, whatever the outcome of the write below.
        record.report = None;
        let node = self.0.slots.note_report(found);
        match self.0.replica.catalogue.component_report(&node, found).await {
            Ok(true) => {
                *record = ReachRecord { report: Some(found.clone()), written: Instant::now() };
                let UnreachedParts { pools, peers } = &found.unreached;
                info!(pools = pools.join(" "), peers = peers.len(), "unreached parts reported");
                true
            }
            // The replica is not registered now, and reports this when it registers.
            Ok(false) => false,
            Err(error) => {
                self.0.replica.task_failed("publish reach", "registry", &error);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(12);

    fn after(seconds: u64, start: Instant) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn part_silent_for_a_session_is_lost_until_it_answers() {
        let (start, there) = (Instant::now(), Some(PeerStatus::default()));
        let mut contacts = Contacts::default();
        contacts.note(start, vec![("a", there), ("b", there)]);
        for second in 1..12 {
            contacts.note(after(second, start), vec![("a", None), ("b", there)]);
            assert_eq!(contacts.lost(SPAN, after(second, start)), [""; 0]);
        }
        assert_eq!(contacts.lost(SPAN, after(12, start)), ["a"]);
        contacts.note(after(13, start), vec![("a", there), ("b", None)]);
        assert_eq!(contacts.lost(SPAN, after(13, start)), [""; 0]);
        // Silence counts from the last answer, at second 11.
        assert_eq!(contacts.lost(SPAN, after(22, start)), [""; 0]);
        assert_eq!(contacts.lost(SPAN, after(23, start)), ["b"]);
    }

    #[test]
    fn part_never_reached_is_lost_after_a_session() {
        let start = Instant::now();
        let mut contacts = Contacts::default();
        contacts.note(start, vec![("a", None)]);
        assert_eq!(contacts.lost(SPAN, after(11, start)), [""; 0]);
        assert_eq!(contacts.lost(SPAN, after(12, start)), ["a"]);
        // A replica that is not in the registry any more is not reported.
        contacts.note(after(12, start), Vec::new());
        assert_eq!(contacts.lost(SPAN, after(12, start)), [""; 0]);
    }

    #[test]
    fn only_confirming_peers_have_a_session() {
        let reach = Reach::default();
        let said = |has_session| Some(PeerStatus { has_session });
        let note = |peers: Vec<Option<PeerStatus>>| {
            let peers = (0..).map(Uuid::from_u128).zip(peers).collect();
            reach.peers.lock().note(Instant::now(), peers);
            reach.has_peer_with_session()
        };
        assert!(!note(Vec::new()));
        assert!(!note(vec![None, said(None), said(Some(false))]));
        assert!(note(vec![None, said(Some(true))]));
        assert!(!note(vec![None, None]));
    }
}
