//! The replicas, for operators. Only the drain changes one.

use uuid::Uuid;

use angarium_catalogue::{Component, Schema};
use angarium_cluster::view::AssignmentView;
use angarium_core::error::{Error, Resource};
use angarium_core::ids::Slot;
use angarium_core::maps::HashMap;

use crate::slots::Slots;

/// A replica and its slots.
#[derive(Clone, Debug)]
pub struct ComponentView {
    /// Its record in the registry.
    pub component: Component,
    /// Its slots, in order.
    pub slots: Vec<Slot>,
    /// Whether it serves and gets no slot, because others reach more.
    pub is_passed_over: bool,
}

/// All registered replicas.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// The replica that answers.
    pub answered_by: Uuid,
    /// All replicas, by address.
    pub components: Vec<ComponentView>,
    /// The newest form of record that may be stored.
    pub schema: Schema,
    /// Slots without an owner at this moment, in order.
    pub unowned: Vec<Slot>,
}

impl Slots {
    /// Tells a replica to hand all its slots over to the others and to take none from now on. It continues to accept
    /// requests and forwards them, until it is stopped.
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

    /// Returns every replica with its slots, as stored in the tree: no replica is called.
    pub async fn components(&self) -> Result<ClusterView, Error> {
        self.0.replica.catalogue.catch_up().await?;
        let registry = self.0.replica.catalogue.registry().await?;
        let all: Vec<Slot> = Slot::all().collect();
        let owners = self.0.replica.catalogue.slot_owners(&all).await?;
        let (mut slots, mut unowned) = (HashMap::<Uuid, Vec<Slot>>::default(), Vec::new());
        for (slot, owner) in all.into_iter().zip(owners) {
            match owner {
                Some(owner) => slots.entry(owner.instance).or_default().push(slot),
                None => unowned.push(slot),
            }
        }
        let assignment = AssignmentView::of(registry.all());
        let view = |component: &Component| ComponentView {
            component: component.clone(),
            slots: slots.get(&component.instance).cloned().unwrap_or_default(),
            is_passed_over: assignment.yielding_replicas().contains(&component.instance),
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
