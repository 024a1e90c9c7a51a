//! The replicas as operators see them. It changes nothing.

use std::collections::HashMap;

use uuid::Uuid;

use angarium_catalogue::{Component, Schema};
use angarium_cluster::view::AssignmentView;
use angarium_core::access::{PeerSecret, new_token};
use angarium_core::error::{Error, Resource};
use angarium_core::ids::Slot;

use crate::slots::Slots;

/// A replica, and the slots that it has.
#[derive(Clone, Debug)]
pub struct ComponentView {
    /// What it states of itself.
    pub component: Component,
    /// Its slots, in order.
    pub slots: Vec<Slot>,
}

/// All replicas that are registered.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// Which of them answers.
    pub answered_by: Uuid,
    /// Each of them, by address.
    pub components: Vec<ComponentView>,
    /// The newest form of record that may be there.
    pub schema: Schema,
    /// Slots that no caller has at this moment, in order.
    pub unowned: Vec<Slot>,
}

impl Slots {
    /// What the replicas of this installation show each other.
    pub async fn peer_secret(&self) -> Result<PeerSecret, Error> {
        let fresh = new_token(&mut rand::rng());
        self.0.replica.catalogue.peer_secret(&fresh).await.map(|secret| PeerSecret::new(&secret))
    }

    /// Tells a replica to hand all its slots over to the others and to take none from now on. It continues serving by
    /// passing requests on, until it is stopped.
    pub async fn component_drain(&self, instance: Uuid) -> Result<(), Error> {
        self.0.replica.catalogue.catch_up().await?;
        let registry = self.0.replica.catalogue.registry().await?;
        let missing = || Error::NotFound { resource: Resource::Component, name: instance.to_string() };
        if registry.all().all(|component| component.instance != instance) {
            return Err(missing());
        }
        if !AssignmentView::of(registry.all()).has_heirs(instance) {
            return Err(Error::Conflict("no other replica runs that could take its queues".to_owned()));
        }
        let is_told = self.0.replica.catalogue.component_drain(&registry, instance).await?;
        if is_told { Ok(()) } else { Err(missing()) }
    }

    /// Every replica with its slots, as the tree states: none of them needs to answer for it.
    pub async fn components(&self) -> Result<ClusterView, Error> {
        self.0.replica.catalogue.catch_up().await?;
        let registry = self.0.replica.catalogue.registry().await?;
        let all: Vec<Slot> = Slot::all().collect();
        let owners = self.0.replica.catalogue.slot_owners(&all).await?;
        let (mut slots, mut unowned) = (HashMap::<Uuid, Vec<Slot>>::new(), Vec::new());
        for (slot, owner) in all.into_iter().zip(owners) {
            match owner {
                Some(owner) => slots.entry(owner.instance).or_default().push(slot),
                None => unowned.push(slot),
            }
        }
        let view = |component: &Component| ComponentView {
            component: component.clone(),
            slots: slots.get(&component.instance).cloned().unwrap_or_default(),
        };
        let mut components: Vec<ComponentView> = registry.all().map(view).collect();
        components.sort_by(|a, b| a.component.address.cmp(&b.component.address));
        Ok(ClusterView {
            answered_by: self.0.replica.owner.instance,
            schema: registry.schema(),
            components,
            unowned,
        })
    }
}
