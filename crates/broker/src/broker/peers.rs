//! What replicas ask each other.

use angarium_cluster::peer_client::{
    ArrivalRequest, CountsRequest, CountsResponse, DepartureRequest, HoldingsRequest, HoldingsResponse,
    LoadsResponse, PeerClient, PeerMigrationRequest, ReportResponse, StatesRequest, StatesResponse,
};
use angarium_core::access::PeerSecret;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, Slot as SlotNumber};
use angarium_core::names::QueueRef;

use crate::broker::Broker;
use crate::claims::create::DeliveryGuard;
use crate::slots::table::SlotLocation;

impl Broker {
    /// Whether some replica is registered beside this one, which may serve slots whatever its state is.
    pub fn has_others(&self) -> bool {
        self.0.slots.has_others()
    }

    /// Where a slot is served.
    pub fn slot_location(&self, slot: SlotNumber) -> SlotLocation {
        self.0.slots.slot_location(slot)
    }

    /// Waits until a slot is served, and elsewhere or in another epoch than there.
    pub async fn moved(&self, slot: SlotNumber, before: &SlotLocation) {
        self.0.slots.moved(slot, before).await
    }

    /// What the replicas of this installation show each other.
    pub async fn peer_secret(&self) -> Result<PeerSecret, Error> {
        self.0.slots.peer_secret().await
    }

    /// Notes that a client asks this replica, which it should have left.
    pub fn note_late_client(&self) {
        self.0.slots.note_late_client()
    }

    /// Has the ways to the other replicas, which a service that is alone does without.
    pub fn meet(&self, peer_client: PeerClient) {
        self.0.slots.meet(peer_client)
    }

    /// What a project holds in the slots that are served here.
    pub async fn local_holdings(&self, question: &HoldingsRequest) -> Result<HoldingsResponse, Error> {
        self.0.quotas.local_holdings(question).await
    }

    /// Takes over messages that another replica has marked in transfer for a queue of ours.
    pub async fn accept_transfers(&self, arrival: ArrivalRequest) -> Result<(), Error> {
        self.0.transfers.accept_transfers(arrival).await
    }

    /// Removes messages that the owner of their target has, prepared.
    pub async fn remove_departed(&self, departure: DepartureRequest) -> Result<(), Error> {
        self.0.transfers.remove_departed(departure).await
    }

    /// States which of these messages are here, to the owner of the queue that they were prepared for. From then on no
    /// caller before that owner takes any of them out.
    pub async fn read_transfer_states(&self, question: StatesRequest) -> Result<StatesResponse, Error> {
        self.0.transfers.read_transfer_states(question).await
    }

    /// Counts the messages of queues that are served here, for a replica that asks.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] for more queues than a page has.
    pub async fn local_counts(&self, question: CountsRequest) -> Result<CountsResponse, Error> {
        self.0.counting.local_counts(question).await
    }

    /// A claim of another replica that moves to its holder through this one.
    pub fn handover_from(&self, address: String, at: QueueRef, claim: ClaimId) -> DeliveryGuard {
        self.0.claims.handover_from(address, at, claim)
    }

    /// Ends a claim that its holder never got, uncounted. One that has ended is ended already.
    pub async fn claim_unheld(&self, at: QueueRef, claim: ClaimId) -> Result<(), Error> {
        self.0.claims.claim_unheld(at, claim).await
    }

    /// What is written to the queues that are served here: the busiest [`limits::LOADS`].
    pub fn local_loads(&self) -> LoadsResponse {
        self.0.balance.local_loads()
    }

    /// Begins a migration that another replica asks for, of a queue that is served here.
    pub async fn migrate_local(&self, question: PeerMigrationRequest) -> Result<(), Error> {
        self.0.balance.migrate_local(question).await
    }

    /// What this replica states when it is asked: all of it is in its memory.
    pub fn local_report(&self) -> ReportResponse {
        self.0.reports.local_report()
    }
}
