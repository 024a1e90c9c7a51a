//! Verbs that replicas use with each other.

use angarium_cluster::identity::Fingerprint;
use angarium_cluster::peer_client::{
    ArrivalRequest, CountsRequest, CountsResponse, DepartureRequest, HoldRequest, HoldResponse,
    HoldingsRequest, HoldingsResponse, LeaveRequest, LeaveResponse, LoadsResponse, PeerClient,
    PeerMigrationRequest, ReportResponse, StatesRequest, StatesResponse,
};
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, Slot as SlotNumber};
use angarium_core::names::QueueRef;

use crate::broker::Broker;
use crate::claims::create::DeliveryGuard;
use crate::slots::table::SlotLocation;

impl Broker {
    /// Whether another replica is registered, in any state. It may serve slots.
    pub fn has_others(&self) -> bool {
        self.0.slots.has_others()
    }

    /// Returns the location of a slot.
    pub fn slot_location(&self, slot: SlotNumber) -> SlotLocation {
        self.0.slots.slot_location(slot)
    }

    /// Waits until a slot is served, at another replica or in another epoch than `before`.
    pub async fn moved(&self, slot: SlotNumber, before: &SlotLocation) {
        self.0.slots.moved(slot, before).await
    }

    /// Publishes another certificate of this process for the other replicas, beside the one before.
    ///
    /// # Errors
    ///
    /// The registry may not have it.
    pub async fn publish_certificate(&self, fingerprint: Fingerprint) -> Result<(), Error> {
        self.0.slots.publish_certificate(fingerprint).await
    }

    /// Notes that a client uses this replica although it is leaving.
    pub fn note_late_client(&self) {
        self.0.slots.note_late_client()
    }

    /// Sets the client for the other replicas. A single replica runs without one.
    pub fn meet(&self, peer_client: PeerClient) {
        self.0.slots.meet(peer_client)
    }

    /// Returns the amounts that a project holds in the slots that are served here.
    pub async fn local_holdings(&self, question: &HoldingsRequest) -> Result<HoldingsResponse, Error> {
        self.0.quotas.local_holdings(question).await
    }

    /// Accepts messages that another replica has marked in transfer to a queue that is served here.
    pub async fn accept_transfers(&self, arrival: ArrivalRequest) -> Result<(), Error> {
        self.0.transfers.accept_transfers(arrival).await
    }

    /// Removes messages that the owner of their target has stored as prepared.
    pub async fn remove_departed(&self, departure: DepartureRequest) -> Result<(), Error> {
        self.0.transfers.remove_departed(departure).await
    }

    /// Moves queues of a slot that is served here out of a pool that is removed with the messages in it.
    pub async fn leave_pool_local(&self, question: LeaveRequest) -> Result<LeaveResponse, Error> {
        self.0.balance.leave_local(question).await
    }

    /// Returns which of these messages are here, to the owner of the queue that they were prepared for. From then on no
    /// earlier owner of that queue can remove any of them.
    pub async fn read_transfer_states(&self, question: StatesRequest) -> Result<StatesResponse, Error> {
        self.0.transfers.read_transfer_states(question).await
    }

    /// Counts, for another replica, the messages of queues that are served here.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] for more queues than a page has.
    pub async fn local_counts(&self, question: CountsRequest) -> Result<CountsResponse, Error> {
        self.0.counting.local_counts(question).await
    }

    /// Returns the guard of a claim that another replica granted and that this one delivers to the holder.
    pub fn handover_from(&self, address: String, at: QueueRef, claim: ClaimId) -> DeliveryGuard {
        self.0.claims.handover_from(address, at, claim)
    }

    /// Ends a claim that its holder never got, without counting an attempt. It is no error when the claim has ended. A
    /// claim that has had new terms since stays.
    pub async fn claim_unheld(&self, at: QueueRef, claim: ClaimId) -> Result<(), Error> {
        self.0.claims.claim_unheld(at, claim).await
    }

    /// Returns the write load of queues that are served here: the busiest [`limits::LOADS`].
    pub fn local_loads(&self) -> LoadsResponse {
        self.0.balance.local_loads()
    }

    /// Begins a migration, for another replica, of a queue that is served here.
    pub async fn migrate_local(&self, question: PeerMigrationRequest) -> Result<(), Error> {
        self.0.balance.migrate_local(question).await
    }

    /// Returns the slots served here in which the hold of a pool or of a project is in force, to the replica that makes
    /// it.
    pub async fn confirm_hold(&self, question: HoldRequest) -> Result<HoldResponse, Error> {
        self.0.holds.confirm_local(question).await
    }

    /// Returns the report of this replica. All of it is in memory.
    pub fn local_report(&self) -> ReportResponse {
        self.0.reports.local_report()
    }
}
