//! Assignment of slots to this replica. One task follows the running replicas and the owners of slots, takes free slots
//! that this replica should serve, and hands over slots that another one should serve.
//!
//! After a failure or a hand-over the slots are free, and the replica that should serve them takes them at once. A
//! served slot moves to another replica only when the running replicas have been the same for [`limits::SETTLE`], so
//! that a restart moves no slot twice. When the reach of replicas (to pools, or to each other) has changed, the view
//! must have been the same for a session timeout. The tree decides which replica owns a slot: the owner's node can be
//! created once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{error, info, warn};

use angarium_catalogue::{ComponentState, MetaChange, MetaWatch, OwnedSlot};
use angarium_cluster::view::AssignmentView;
use angarium_core::error::{Error, Part};
use angarium_core::ids::Slot as SlotNumber;
use angarium_core::limits as core_limits;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::time::millis;

use crate::limits;
use crate::slot::life::RecoveryPace;
use crate::slot::state::Slot;
use crate::slots::Slots;
use crate::slots::reservation::SlotReservation;
use crate::slots::table::SlotLocation;

/// The first and the longest pause after the tree did not answer; each is twice the previous one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// State of the task that follows the cluster, as far as other tasks share it.
pub(crate) struct Assignment {
    /// Slots of which the owner must be looked up again. The lock is held for single entries.
    again: Mutex<BTreeSet<SlotNumber>>,
    pub(crate) wake: Notify,
    /// Wakes the task that reads the records of pools.
    pub(crate) pools: Notify,
    /// Wakes the task that reads the holds of pools and projects.
    pub(crate) holds: Notify,
    /// Wakes the task that records the time: a starting replica waits for it.
    pub(crate) time: Notify,
    /// Whether a task is handing slots over.
    is_handing: AtomicBool,
    /// Whether another replica is registered.
    has_others: AtomicBool,
    /// Whether another replica runs that could take the slots of this one.
    has_heirs: AtomicBool,
    /// Whether this replica should have no slot, because others reach more, and that view is settled.
    is_passed_over: AtomicBool,
    /// Number of consecutive failures to take slots.
    failures: AtomicU32,
    /// Bounds the acquired slots whose claims are read at the same time.
    loading: Semaphore,
}

impl Default for Assignment {
    fn default() -> Self {
        Self {
            again: Mutex::default(),
            wake: Notify::default(),
            pools: Notify::default(),
            holds: Notify::default(),
            time: Notify::default(),
            is_handing: AtomicBool::default(),
            has_others: AtomicBool::default(),
            has_heirs: AtomicBool::default(),
            is_passed_over: AtomicBool::default(),
            failures: AtomicU32::default(),
            loading: Semaphore::new(limits::SLOTS_LOADED),
        }
    }
}

/// State of the task that follows the cluster.
pub(crate) struct FollowedCluster {
    view: AssignmentView,
    /// When served slots may move to others, if the view stays the same.
    settled: Instant,
    /// Whether the components may have changed since they were last read.
    are_components_new: bool,
    new: BTreeSet<SlotNumber>,
    /// Slots that this replica owned in an earlier process, or since an attempt of its own that was aborted.
    left: BTreeSet<SlotNumber>,
}

impl FollowedCluster {
    /// The initial state, in which nothing was read yet.
    pub(crate) fn new() -> Self {
        Self {
            view: AssignmentView::default(),
            settled: Instant::now() + limits::SETTLE,
            are_components_new: true,
            new: SlotNumber::all().collect(),
            left: BTreeSet::new(),
        }
    }
}

/// Held by the task that hands slots over: another one may begin when it is dropped.
struct HandoverPermit(Slots);

impl Drop for HandoverPermit {
    fn drop(&mut self) {
        self.0.0.assignment.is_handing.store(false, Ordering::Release);
        self.0.0.assignment.wake.notify_one();
    }
}

impl Slots {
    /// Reads everything that may have changed. Returns reservations of the free slots that this replica should serve.
    pub(crate) async fn catch_up_slots(
        &self,
        following: &mut FollowedCluster,
    ) -> Result<Vec<SlotReservation>, Error> {
        following.new.append(&mut self.0.assignment.again.lock());
        if following.are_components_new {
            let registry = self.0.replica.catalogue.registry().await?;
            self.learn_peer_secret(&registry).await?;
            following.are_components_new = false;
            if let Some(successor) = self.0.membership.note_registry(&registry) {
                self.end_for(successor);
                return Ok(Vec::new());
            }
            let me = registry.all().find(|component| component.instance == self.0.replica.owner.instance);
            if me.is_some_and(|me| me.state == ComponentState::Draining) {
                self.0.membership.note_draining();
            }
            let has_others = registry.others(self.0.replica.owner.instance).next().is_some();
            self.0.assignment.has_others.store(has_others, Ordering::Relaxed);
            let view = AssignmentView::of(registry.all());
            self.note_serving(registry.others(self.0.replica.owner.instance));
            let unreached = registry.all().filter_map(|component| component.unreached.as_ref());
            self.0.stores.pool_use.note_missed(unreached.flat_map(|unreached| &unreached.pools));
            if view != following.view {
                self.note_view(following, &view);
                self.0
                    .assignment
                    .has_heirs
                    .store(view.has_heirs(self.0.replica.owner.instance), Ordering::Relaxed);
                following.view = view;
            }
        }
        let slots: Vec<SlotNumber> = following.new.iter().copied().collect();
        let owners = self.0.replica.catalogue.slot_owners(&slots).await?;
        following.new.clear();
        for (number, owner) in slots.into_iter().zip(owners) {
            if owner.as_ref().is_some_and(|owner| owner.instance == self.0.replica.owner.instance) {
                following.left.insert(number);
            }
            let other = owner.filter(|owner| owner.instance != self.0.replica.owner.instance);
            if let Some(slot) = self.0.table.learn(number, other) {
                self.begin_recovery(&slot, "another replica took it");
            }
        }
        Ok(self.claim_free(following))
    }

    /// Logs a change of the view, and sets for how long the view must stay the same. Replicas start and stop in a
    /// moment, but a replica with less reach may soon reach everything again, and its slots would have moved twice.
    fn note_view(&self, following: &mut FollowedCluster, view: &AssignmentView) {
        let now = Instant::now();
        if !view.has_replicas_of(&following.view) {
            info!(running = view.running(), "running replicas changed");
            following.settled = following.settled.max(now + limits::SETTLE);
        }
        if !view.prefers_as(&following.view) {
            info!(passed_over = view.yielding_replicas().len(), "reach of replicas changed");
            let stable = self.0.replica.catalogue.session_timeout().unwrap_or(limits::SETTLE);
            following.settled = following.settled.max(now + stable);
        }
    }

    /// Reserves the free slots that this replica should serve, for the task that takes them.
    fn claim_free(&self, following: &mut FollowedCluster) -> Vec<SlotReservation> {
        let left = std::mem::take(&mut following.left);
        let should = |number: &SlotNumber| {
            left.contains(number) || following.view.owner(*number) == Some(self.0.replica.owner.instance)
        };
        let free = SlotNumber::all().filter(should);
        free.filter_map(|number| self.reserve_slot(number, "it is being taken")).collect()
    }

    /// Takes reserved slots, and serves each as soon as its claims are read. If some could not be taken, returns their
    /// reservations and the error.
    pub(crate) async fn take_all(
        &self,
        mut free: Vec<SlotReservation>,
    ) -> Result<(), (Vec<SlotReservation>, Error)> {
        let (began, mut entering) = (Instant::now(), Vec::with_capacity(free.len()));
        let (mut failed, mut why) = (Vec::new(), None);
        while !free.is_empty() {
            let some: Vec<SlotReservation> = free.drain(..free.len().min(core_limits::SLOTS_TAKEN)).collect();
            let numbers: Vec<SlotNumber> = some.iter().map(SlotReservation::number).collect();
            let session = self.session();
            match self.0.replica.catalogue.slots_take(&numbers, &self.0.replica.owner).await {
                // The reservations of slots that another replica has are dropped.
                Ok(mut taken) => entering.extend(some.into_iter().filter_map(|away| {
                    let at = taken.iter().position(|owned| owned.slot == away.number())?;
                    Some(self.begin_entering(away, taken.swap_remove(at), session))
                })),
                Err(error) => {
                    failed.extend(some);
                    why = Some(error);
                }
            }
        }
        let slots = entering.len();
        for entered in entering {
            match entered.await {
                Ok(Ok(())) => {}
                Ok(Err((away, error))) => {
                    failed.push(away);
                    why = Some(error);
                }
                // The task has dropped its reservation.
                Err(_) => why = Some(Error::unknown(Part::Server, "a task ended without an answer")),
            }
        }
        if slots > 0 {
            info!(slots, took_ms = millis(began.elapsed()), "slots taken");
        }
        why.map_or(Ok(()), |error| Err((failed, error)))
    }

    /// Begins to take reserved slots in a task of its own, so that following the cluster continues. The owners of slots
    /// that it fails to take are looked up again after a pause.
    fn begin_taking(&self, free: Vec<SlotReservation>) {
        if free.is_empty() {
            return;
        }
        let slots = self.clone();
        self.0.replica.tasks.spawn(async move {
            let failures = &slots.0.assignment.failures;
            let Err((failed, error)) = slots.take_all(free).await else {
                return failures.store(0, Ordering::Relaxed);
            };
            slots.0.replica.task_failed("take slots", format_args!("{} slots", failed.len()), &error);
            let before = failures.fetch_add(1, Ordering::Relaxed);
            let pause = PAUSE.1.min(PAUSE.0 * 2_u32.saturating_pow(before));
            let _ = slots.0.replica.sleep_tick(pause).await;
            drop(failed);
        });
    }

    fn begin_entering(
        &self,
        away: SlotReservation,
        owned: OwnedSlot,
        session: u64,
    ) -> JoinHandle<Result<(), (SlotReservation, Error)>> {
        let slots = self.clone();
        self.0.replica.tasks.spawn(async move { slots.enter_slot(away, owned, session).await })
    }

    /// Serves a slot that was acquired in `session`, once its claims are read. If they cannot be read, returns the
    /// reservation.
    async fn enter_slot(
        &self,
        away: SlotReservation,
        owned: OwnedSlot,
        session: u64,
    ) -> Result<(), (SlotReservation, Error)> {
        let number = owned.slot;
        let _turn = self.0.assignment.loading.acquire().await;
        match self.load(owned, RecoveryPace::first()).await {
            Ok(slot) => away.enter(slot, session),
            Err(error) => return Err((away, error)),
        }
        self.0.ledger.taken(number);
        Ok(())
    }

    /// Has the owner of a slot looked up again.
    pub(crate) fn refresh_owner(&self, number: SlotNumber) {
        self.0.assignment.again.lock().insert(number);
        self.0.assignment.wake.notify_one();
    }

    /// Follows the cluster until the service stops.
    pub(crate) async fn follow_cluster(&self, mut following: FollowedCluster) {
        let mut watch = match self.0.replica.catalogue.watch_meta() {
            Ok(watch) => watch,
            Err(error) => return error!(error = %error.detail(), "cluster not followed"),
        };
        let mut pause = PAUSE.0;
        loop {
            let settled = following.settled;
            let settles = async {
                // Slots that are being recovered are not part of the surplus, and must leave too.
                let is_passed_over =
                    following.view.yielding_replicas().contains(&self.0.replica.owner.instance);
                if self.surplus(&following).is_empty() && !(is_passed_over && settled > Instant::now()) {
                    std::future::pending::<()>().await;
                } else {
                    tokio::time::sleep_until(settled.max(Instant::now() + PAUSE.0)).await;
                }
            };
            tokio::select! {
                biased;
                () = self.0.replica.stop.cancelled() => return,
                () = settles => {}
                () = self.0.assignment.wake.notified() => {}
                change = watch.next() => match change {
                    Some(change) => self.note(&mut following, change),
                    None => return,
                }
            }
            if !self.gather(&mut watch, &mut following).await {
                return;
            }
            match self.catch_up_slots(&mut following).await {
                Ok(free) => {
                    pause = PAUSE.0;
                    self.begin_taking(free);
                }
                Err(error) => {
                    self.0.replica.task_failed("look up slot owners", "cluster", &error);
                    if !self.0.replica.sleep_tick(pause).await {
                        return;
                    }
                    pause = PAUSE.1.min(pause * 2);
                    self.0.assignment.wake.notify_one();
                }
            }
            let is_settled = following.settled <= Instant::now();
            let is_passed_over = following.view.yielding_replicas().contains(&self.0.replica.owner.instance);
            self.0.assignment.is_passed_over.store(is_settled && is_passed_over, Ordering::Relaxed);
            self.hand_over_surplus(&following);
        }
    }

    /// Whether every slot of this replica should move to others that reach more.
    pub(crate) fn should_yield_slots(&self) -> bool {
        self.0.assignment.is_passed_over.load(Ordering::Relaxed)
    }

    pub(crate) fn note(&self, following: &mut FollowedCluster, change: MetaChange) {
        match change {
            MetaChange::Pools => self.0.assignment.pools.notify_one(),
            MetaChange::Holds => self.0.assignment.holds.notify_one(),
            MetaChange::Components if is_on(Mutation::OverlookReplicas) => {}
            MetaChange::Components => {
                self.0.assignment.time.notify_one();
                following.are_components_new = true;
            }
            MetaChange::Receipts => self.0.replica.receipt_keys.note_change(),
            MetaChange::Slot(slot) => drop(following.new.insert(slot)),
            MetaChange::Resync => {
                self.0.assignment.pools.notify_one();
                self.0.assignment.holds.notify_one();
                self.0.replica.receipt_keys.note_change();
                following.are_components_new = true;
                following.new.extend(SlotNumber::all());
            }
        }
    }

    /// Notes all changes that arrive within [`limits::GATHER`]: the end of a session is many changes. Returns false
    /// when the tree is closed.
    async fn gather(&self, watch: &mut MetaWatch, following: &mut FollowedCluster) -> bool {
        let end = Instant::now() + limits::GATHER;
        loop {
            match timeout_at(end, watch.next()).await {
                Ok(Some(change)) => self.note(following, change),
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Returns the slots that are served here and that another replica should serve.
    fn surplus(&self, following: &FollowedCluster) -> Vec<Arc<Slot>> {
        let me = self.0.replica.owner.instance;
        let is_others =
            |slot: &Arc<Slot>| following.view.owner(slot.owned.slot).is_some_and(|instance| instance != me);
        self.0.table.owned().filter(is_others).collect()
    }

    fn hand_over_surplus(&self, following: &FollowedCluster) {
        let is_settled =
            following.settled <= Instant::now() || self.0.membership.state() == ComponentState::Draining;
        if !is_settled {
            return;
        }
        let surplus = self.surplus(following);
        if surplus.is_empty() || self.0.assignment.is_handing.swap(true, Ordering::AcqRel) {
            return;
        }
        let handing = HandoverPermit(self.clone());
        self.0.replica.tasks.spawn(async move {
            let table = &handing.0;
            let (slots, began) = (surplus.len(), Instant::now());
            info!(slots, "slot hand-over begun");
            let mut max_wait = limits::HAND_OVER;
            for some in surplus.chunks(limits::SLOTS_HANDED) {
                if !table.hand_over(some, max_wait).await {
                    // A wait for an unreachable pool would repeat for each of the next slots.
                    max_wait = limits::HANDED_REST;
                }
                let _ = timeout(limits::HANDED_REST, table.await_new_owners(some)).await;
            }
            info!(slots, took_ms = millis(began.elapsed()), "slots handed over");
        });
    }

    /// Waits until slots that were handed over are served again. The replica that takes them reads the tree to do so,
    /// and its reads wait for its commits: commits for the next slots would delay these reads.
    async fn await_new_owners(&self, slots: &[Arc<Slot>]) {
        for slot in slots {
            self.0.table.moved(slot.owned.slot, &SlotLocation::Nowhere).await;
        }
    }

    /// Hands slots over: no operation begins any more, operations in progress end, then the replica that should serve
    /// the slots may take them. Returns false when operations did not end in `max_wait`; the fences refuse those once
    /// the slots are taken.
    async fn hand_over(&self, slots: &[Arc<Slot>], max_wait: Duration) -> bool {
        let leave = |slot| self.take_reserved(slot, "it moves to another replica").map(|away| (slot, away));
        let (left, aways): (Vec<&Arc<Slot>>, Vec<SlotReservation>) = slots.iter().filter_map(leave).unzip();
        left.iter().for_each(|slot| slot.close());
        let finished = async {
            for slot in &left {
                slot.finished().await;
            }
        };
        let is_finished = timeout(max_wait, finished).await.is_ok();
        if !is_finished {
            warn!(slots = left.len(), "slots handed over with open work");
        }
        let owned: Vec<OwnedSlot> = left.iter().map(|slot| slot.owned.clone()).collect();
        while let Err(error) = self.0.replica.catalogue.slots_give_up(&owned, &self.0.replica.owner).await {
            self.0.replica.task_failed("give up slots", format_args!("{} slots", owned.len()), &error);
            if !self.0.replica.sleep_tick(PAUSE.0).await {
                break;
            }
        }
        for away in aways {
            self.0.ledger.left(away.number());
        }
        is_finished
    }

    /// Hands every slot over to the other replicas, if any runs, and takes none from now on. Returns when no slot is
    /// left, or after [`limits::DRAIN`], and then once clients have stopped sending requests, or after
    /// [`limits::FAREWELL`]. Requests are still accepted until then and forwarded to the other replicas.
    pub async fn drain(&self) {
        let has_heirs = || self.0.assignment.has_heirs.load(Ordering::Relaxed);
        // A process that has the identity of this one has its slots.
        if !has_heirs() || self.0.replica.has_successor() {
            return;
        }
        self.set_state(ComponentState::Draining).await;
        let drained = async {
            while self.0.table.count() > 0 && has_heirs() {
                tokio::time::sleep(limits::GATHER).await;
            }
        };
        if timeout(limits::DRAIN, drained).await.is_err() {
            warn!(slots = self.0.table.count(), "slots not handed over in time");
        }
        let _ = timeout(limits::FAREWELL, self.0.membership.await_idle_clients()).await;
    }

    /// Whether this replica is about to stop, so that clients should use another one.
    pub fn is_leaving(&self) -> bool {
        self.0.membership.state() == ComponentState::Draining || self.0.replica.waits.is_cancelled()
    }

    /// Whether another replica is registered. It may serve slots whatever its state is.
    pub fn has_others(&self) -> bool {
        self.0.assignment.has_others.load(Ordering::Relaxed)
    }

    /// Returns the location of a slot.
    pub fn slot_location(&self, slot: SlotNumber) -> SlotLocation {
        self.0.table.slot_location(slot)
    }

    /// Waits until a slot is served at another location or in another epoch than `before`.
    pub async fn moved(&self, slot: SlotNumber, before: &SlotLocation) {
        self.0.table.moved(slot, before).await;
    }
}
