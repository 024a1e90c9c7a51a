//! The session of this replica with the tree. After a lost session the replica registers again and shows as owner of
//! its slots again; after every suspension no claim expires for a moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;
use tracing::{debug, error, info};

use angarium_catalogue::{Component, ComponentState, Link, OwnedSlot, ReachReport, Registry, Session};
use angarium_cluster as cluster;
use angarium_cluster::identity::Fingerprint;
use angarium_cluster::replicas::{Reentry, Replica};
use angarium_cluster::trust::PeerTrust;
use angarium_core::error::Error;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::PoolName;
use angarium_core::time::Timestamp;

use crate::limits;
use crate::replica::successor::SuccessorProcess;
use crate::slots::Slots;

/// The first and the longest pause before the replica registers again; each is twice the previous one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The registration of this replica in the present session.
pub(crate) struct Membership {
    replica: Replica,
    started: Timestamp,
    /// The published state, and the node of the registry. The lock is held for single reads or writes.
    said: Mutex<(ComponentState, String)>,
    /// Whether the registry may not have the published state, and the notice that it became so.
    is_unpublished: AtomicBool,
    unpublished: Notify,
    /// The session in which the registry node and the owner nodes are in place. Written by one task.
    held: AtomicU64,
    /// The lock is held for single look-ups.
    hold: Mutex<ExpiryHold>,
    /// Fingerprints of the certificates of this process, the newest first. The lock is held for single reads or writes.
    fingerprints: Mutex<Vec<String>>,
    /// The last report of its reach. The lock is held for single reads or writes.
    report: Mutex<ReachReport>,
    /// When a client last sent a request to this replica, which it should have left. The lock is held for single reads
    /// or writes.
    asked: Mutex<Instant>,
}

/// When and where a replica was registered.
pub(crate) struct Registration {
    pub(crate) started: Timestamp,
    /// The node of the registry.
    pub(crate) node: String,
    /// The generation of the session.
    pub(crate) generation: u64,
}

/// The time before which no claim expires. The first call after a suspension notices the suspension itself, so no claim
/// expires before that.
struct ExpiryHold {
    session: Receiver<Session>,
    /// No claim expires before this time.
    until: Timestamp,
    /// The last call at which claims could expire.
    calm: Timestamp,
}

impl ExpiryHold {
    /// Checks the session, and returns the time by which the expiry of claims is judged.
    pub(crate) fn claim_time(&mut self, now: Timestamp) -> Timestamp {
        let session = self.session.borrow_and_update();
        if session.has_changed() && !is_on(Mutation::ExpireWithoutHold) {
            self.until = now.plus_seconds(limits::EXPIRY_HOLD_SECONDS);
        }
        if session.link == Link::Connected && now >= self.until {
            self.calm = now;
        }
        self.calm
    }
}

impl Membership {
    /// The membership of a replica that was registered and is starting, in the first session of `session`.
    pub(crate) fn new(replica: Replica, registration: Registration, session: Receiver<Session>) -> Self {
        let Registration { started, node, generation } = registration;
        let hold = ExpiryHold { session, until: Timestamp::default(), calm: Timestamp::default() };
        let said = Mutex::new((ComponentState::Starting, node));
        let (held, asked) = (AtomicU64::new(generation), Mutex::new(Instant::now()));
        let (report, hold) = (Mutex::default(), Mutex::new(hold));
        let (is_unpublished, unpublished) = (AtomicBool::new(false), Notify::new());
        let fingerprints = Mutex::new(replica.certificate.iter().map(ToString::to_string).collect());
        Self { replica, started, said, is_unpublished, unpublished, held, fingerprints, report, hold, asked }
    }

    /// Notes a request of a client that should use another replica.
    pub(crate) fn note_client_request(&self) {
        *self.asked.lock() = Instant::now();
    }

    /// Waits until no client has sent a request for [`limits::FAREWELL_IDLE`], from now on.
    pub(crate) async fn await_idle_clients(&self) {
        self.note_client_request();
        loop {
            let rest = *self.asked.lock() + limits::FAREWELL_IDLE;
            if rest <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(rest).await;
        }
    }

    /// Notes that the registry has this replica as draining.
    pub(crate) fn note_draining(&self) {
        self.said.lock().0 = ComponentState::Draining;
    }

    /// Keeps the report of the replica's reach, for its next registration, and returns the node to which the report is
    /// written.
    pub(crate) fn note_report(&self, report: &ReachReport) -> String {
        *self.report.lock() = report.clone();
        self.said.lock().1.clone()
    }

    /// Returns the record of this replica in this state.
    pub(crate) fn component(&self, state: ComponentState) -> Component {
        let ReachReport { unreached, used_pools } = self.report.lock().clone();
        let (fingerprints, unreached) = (self.fingerprints.lock().clone(), Some(unreached));
        Component { fingerprints, unreached, used_pools, ..self.replica.component(state, self.started) }
    }

    /// Adds a certificate of this process. Returns all that it has now, and the node of the registry.
    fn add_certificate(&self, fingerprint: &str) -> (Vec<String>, String) {
        let mut fingerprints = self.fingerprints.lock();
        fingerprints.retain(|known| known != fingerprint);
        fingerprints.insert(0, fingerprint.to_owned());
        fingerprints.truncate(cluster::limits::PEER_CERTIFICATES);
        (fingerprints.clone(), self.said.lock().1.clone())
    }

    /// Notes the registry as it was just read. Returns a later process with the identity of this replica, if one is
    /// registered.
    pub(crate) fn note_registry<'r>(&self, registry: &'r Registry) -> Option<&'r Component> {
        self.replica.trust.learn(registry.all());
        registry.successor(&self.component(self.state()))
    }

    /// Returns the replicas that are admitted.
    pub(crate) fn trust(&self) -> &PeerTrust {
        &self.replica.trust
    }

    /// Returns the published state of the replica.
    pub(crate) fn state(&self) -> ComponentState {
        self.said.lock().0
    }
}

impl Slots {
    /// Notes a request of a client that should use another replica.
    pub fn note_late_client(&self) {
        self.0.membership.note_client_request();
    }

    /// Whether this replica has a session in which it is registered.
    pub fn has_session(&self) -> bool {
        self.check_registered().is_ok()
    }

    pub(crate) fn check_registered(&self) -> Result<(), Error> {
        self.0.replica.catalogue.check_open().and_then(|()| self.check_member())
    }

    /// Checks that this replica may have an embedded pool of this name: that needs that no other replica is registered.
    pub(crate) fn check_alone(&self, registry: &Registry, pool: &PoolName) -> Result<(), Error> {
        cluster::replicas::check_alone(registry, &self.0.membership.replica, pool)
    }

    /// Publishes another certificate of this process, beside the one before.
    ///
    /// # Errors
    ///
    /// The registry may not have it. A later registration has it.
    pub(crate) async fn publish_certificate(&self, fingerprint: Fingerprint) -> Result<(), Error> {
        let (fingerprints, node) = self.0.membership.add_certificate(&fingerprint.to_string());
        if self.0.replica.catalogue.component_certificates(&node, &fingerprints).await? {
            return Ok(());
        }
        let part = angarium_core::error::Part::Coordination;
        Err(Error::unavailable(part, "the replica is not registered"))
    }

    /// Keeps the report of the replica's reach; see [`Membership::note_report`].
    pub(crate) fn note_report(&self, report: &ReachReport) -> String {
        self.0.membership.note_report(report)
    }

    /// Ends the work of this process for good: another process with its identity has started later, and takes its slots.
    /// Both would take them from each other for ever.
    pub(crate) fn end_for(&self, successor: &Component) {
        let process = successor.process.as_ref();
        let successor = SuccessorProcess {
            host: process.map(|process| process.host.clone()).unwrap_or_default(),
            pid: process.map(|process| process.pid).unwrap_or_default(),
            started: Timestamp::from_millis(successor.started),
            address: successor.address.clone(),
        };
        let SuccessorProcess { host, pid, started, address } = &successor;
        error!(%host, pid, started = %started.calendar(), %address, "replica runs twice");
        self.0.replica.end_for(successor);
    }

    /// Returns the number of the present session with the tree, or of the last one.
    pub(crate) fn session(&self) -> u64 {
        self.0.replica.catalogue.session().borrow().generation
    }

    /// Checks that the replica shows as owner of its slots in the present session.
    pub(crate) fn check_member(&self) -> Result<(), Error> {
        let is_registered = self.0.membership.held.load(Ordering::Acquire) == self.session();
        if is_registered && !self.0.replica.has_successor() {
            Ok(())
        } else {
            let part = angarium_core::error::Part::Coordination;
            Err(Error::unavailable(
                part,
                "the replica is not registered: it has lost its session, or runs twice",
            ))
        }
    }

    /// Returns the time by which the expiry of claims is judged. It is the present, but is stopped during a suspension,
    /// in which no holder can renew a claim, and for a moment after it (P3).
    pub(crate) fn claim_time(&self) -> Timestamp {
        self.0.membership.hold.lock().claim_time(self.0.replica.clock.now())
    }

    /// Publishes the state of this replica. If that fails, it is published again until the registry has it: without
    /// the state `Running` the replica would serve nothing.
    pub(crate) async fn set_state(&self, state: ComponentState) {
        self.0.membership.said.lock().0 = state;
        if !self.publish().await && !is_on(Mutation::PublishStateOnce) {
            self.0.membership.is_unpublished.store(true, Ordering::Release);
            self.0.membership.unpublished.notify_one();
        }
    }

    /// Writes the present state to the registry. Returns false when the registry may not have it.
    async fn publish(&self) -> bool {
        let membership = &self.0.membership;
        loop {
            let (state, node) = membership.said.lock().clone();
            match self.0.replica.catalogue.component_publish(&node, state).await {
                Ok(Some(ComponentState::Draining)) => membership.note_draining(),
                Ok(Some(_)) => {}
                // The next registration has the state.
                Ok(None) => debug!("replica not registered yet"),
                Err(error) => {
                    self.0.replica.task_failed("publish replica state", "registry", &error);
                    return false;
                }
            }
            // The state may have changed meanwhile. A change after this lock marks its own failure after this mark.
            let said = membership.said.lock();
            if said.0 == state {
                membership.is_unpublished.store(false, Ordering::Release);
                return true;
            }
        }
    }

    /// Waits until a state could not be published, then publishes the present one until the registry has it. Cancel
    /// safe.
    async fn publish_again(&self) {
        let membership = &self.0.membership;
        while !membership.is_unpublished.load(Ordering::Acquire) {
            membership.unpublished.notified().await;
        }
        let mut pause = PAUSE.0;
        while self.0.replica.sleep_tick(pause).await && !self.publish().await {
            pause = PAUSE.1.min(pause * 2);
        }
    }

    /// Follows the session until the service stops.
    pub(crate) async fn watch_session(&self) {
        let mut session = self.0.replica.catalogue.session();
        loop {
            let now = *session.borrow_and_update();
            let held = self.0.membership.held.load(Ordering::Acquire);
            if now.link == Link::Connected && now.generation != held {
                self.rejoin(now.generation).await;
            }
            tokio::select! {
                biased;
                () = self.0.replica.stop.cancelled() => return,
                changed = session.changed() => if changed.is_err() { return },
                () = self.publish_again() => {}
            }
        }
    }

    /// Registers and shows as owner in a new session, until that succeeds or the session changes again.
    async fn rejoin(&self, generation: u64) {
        let mut pause = PAUSE.0;
        while self.0.replica.catalogue.session().borrow().generation == generation {
            match self.try_rejoin().await {
                Ok(()) => {
                    self.0.membership.held.store(generation, Ordering::Release);
                    info!(generation, "replica registered again");
                    return;
                }
                Err(error) => self.0.replica.task_failed("register replica", "registry", &error),
            }
            if !self.0.replica.sleep_tick(pause).await {
                return;
            }
            pause = PAUSE.1.min(pause * 2);
        }
    }

    async fn try_rejoin(&self) -> Result<(), Error> {
        let membership = &self.0.membership;
        let (replica, state) = (&membership.replica, membership.state());
        let me = membership.component(state);
        match cluster::replicas::rejoin(&self.0.replica.catalogue, &replica.host, &me).await? {
            Reentry::Registered(node) => membership.said.lock().1 = node,
            Reentry::Succeeded(by) => {
                self.end_for(&by);
                let part = angarium_core::error::Part::Coordination;
                return Err(Error::unavailable(part, "a later process has the identity of this replica"));
            }
        }
        // The state may have changed meanwhile.
        if membership.state() != state {
            self.set_state(membership.state()).await;
        }
        let owned: Vec<OwnedSlot> = self.0.table.owned().map(|slot| slot.owned.clone()).collect();
        cluster::slots::hold_all(&self.0.replica.catalogue, &owned, &self.0.replica.owner).await
    }
}
