//! The peer client, and the other serving replicas.

use uuid::Uuid;

use angarium_catalogue::{Component, ComponentState, SlotOwner};
use angarium_cluster::peer_client::PeerClient;
use angarium_core::error::{Error, Part};
use angarium_core::names::QueueRef;

use crate::slots::Slots;
use crate::slots::table::SlotLocation;

/// A serving replica with its address for peers.
#[derive(Clone, Debug)]
pub(crate) struct ServingPeer {
    pub(crate) instance: Uuid,
    pub(crate) address: String,
}

impl Slots {
    /// Sets the peer client. A service with a single replica works without it.
    pub(crate) fn meet(&self, peer_client: PeerClient) {
        // A second call has no effect; the service starts once.
        let _ = self.0.replica.peer_client.set(peer_client);
    }

    pub(crate) fn peer_client(&self) -> Result<&PeerClient, Error> {
        let alone = || Error::unavailable(Part::Coordination, "there is no way to the other replicas yet");
        self.0.replica.peer_client.get().ok_or_else(alone)
    }

    /// Returns the owner of the slot of a queue, if it is another replica.
    pub(crate) fn elsewhere(&self, at: &QueueRef) -> Option<SlotOwner> {
        match self.slot_location(at.slot()) {
            SlotLocation::There(owner) => Some(owner),
            SlotLocation::Here(_) | SlotLocation::Nowhere => None,
        }
    }

    /// Records the other serving replicas. A starting replica does not answer yet.
    pub(in crate::slots) fn note_serving<'c>(&self, others: impl Iterator<Item = &'c Component>) {
        let serving = others.filter(|other| other.state != ComponentState::Starting);
        let peer =
            |other: &Component| ServingPeer { instance: other.instance, address: other.address.clone() };
        *self.0.serving.lock() = serving.map(peer).collect();
    }

    /// Returns the other serving replicas, as the registry has them.
    pub(crate) fn serving_peers(&self) -> Vec<ServingPeer> {
        self.0.serving.lock().clone()
    }
}
