//! The way to the other replicas, and which of them serve.

use uuid::Uuid;

use angarium_catalogue::{Component, ComponentState, SlotOwner};
use angarium_cluster::peer_client::PeerClient;
use angarium_core::error::{Error, Part};
use angarium_core::names::QueueRef;

use crate::slots::Slots;
use crate::slots::table::SlotLocation;

/// A replica that serves, and its address for peers.
#[derive(Clone, Debug)]
pub(crate) struct ServingPeer {
    pub(crate) instance: Uuid,
    pub(crate) address: String,
}

impl Slots {
    /// Has the way to the other replicas, which a service that is alone does without.
    pub(crate) fn meet(&self, peer_client: PeerClient) {
        // The first one stays; there is one start.
        let _ = self.0.replica.peer_client.set(peer_client);
    }

    pub(crate) fn peer_client(&self) -> Result<&PeerClient, Error> {
        let alone = || Error::unavailable(Part::Coordination, "there is no way to the other replicas yet");
        self.0.replica.peer_client.get().ok_or_else(alone)
    }

    /// The owner of the slot of a queue, if it is another replica.
    pub(crate) fn elsewhere(&self, at: &QueueRef) -> Option<SlotOwner> {
        match self.slot_location(at.slot()) {
            SlotLocation::There(owner) => Some(owner),
            SlotLocation::Here(_) | SlotLocation::Nowhere => None,
        }
    }

    /// Keeps which of the other replicas serve. A replica that starts does not answer yet.
    pub(in crate::slots) fn note_serving<'c>(&self, others: impl Iterator<Item = &'c Component>) {
        let serving = others.filter(|other| other.state != ComponentState::Starting);
        let peer =
            |other: &Component| ServingPeer { instance: other.instance, address: other.address.clone() };
        *self.0.serving.lock() = serving.map(peer).collect();
    }

    /// The other replicas that serve, as the registry has them.
    pub(crate) fn serving_peers(&self) -> Vec<ServingPeer> {
        self.0.serving.lock().clone()
    }
}
