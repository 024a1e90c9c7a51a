//! Queues and topics share the names of a project: of a queue and a topic of the same name only one exists.
//!
//! Both are in one slot. A creation of either holds the gate of the queue's name, and finds the other one in the tree.

use tokio::sync::OwnedMutexGuard;

use angarium_catalogue::Schema;
use angarium_core::attributes::Attributes;
use angarium_core::error::{Error, InvalidPart, Resource};
use angarium_core::names::{ProjectId, QueueRef};

use crate::open_queues::OpenQueues;
use crate::slot::slot_queue::SlotQueue;

impl OpenQueues {
    /// Checks that a queue which does not exist is no topic, nor a topic a queue: a caller that took one for the other
    /// would read it as empty for ever.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`], which names the kind that exists.
    pub(crate) async fn check_missing(&self, queue: &SlotQueue) -> Result<(), Error> {
        let at = queue.at();
        if !self.0.replica.catalogue.is_in_force(Schema::SUBSCRIPTIONS) || !has_namesake(queue).await? {
            return Ok(());
        }
        let (resource, kind) =
            if at.name.is_topic() { (Resource::Topic, "queue") } else { (Resource::Queue, "topic") };
        Err(Error::NotFound { resource, name: format!("{} (there is a {kind} of this name)", at.name) })
    }

    /// Checks that a queue which messages are to be transferred to is no topic, at the field that names it. A topic of
    /// the name may be created later: then they wait at their source.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`].
    pub(crate) async fn check_target(&self, target: &QueueRef, field: &str) -> Result<(), Error> {
        let catalogue = &self.0.replica.catalogue;
        let Some(topic) = target.namesake().filter(|topic| topic.name.is_topic()) else { return Ok(()) };
        if !catalogue.is_in_force(Schema::SUBSCRIPTIONS) {
            return Ok(());
        }
        let found = catalogue.queue_records(std::slice::from_ref(&topic)).await?;
        if found.iter().all(Option::is_none) {
            return Ok(());
        }
        let why = format!("{} is a topic, which keeps no messages: name a queue", target.name);
        Err(Error::invalid(InvalidPart::Limit, field, why))
    }

    /// Checks the queue for dead letters that attributes name, like `check_target`.
    pub(crate) async fn check_dead_letters(
        &self,
        project: &ProjectId,
        attributes: &Attributes,
        field: &str,
    ) -> Result<(), Error> {
        let Some(name) = &attributes.dead_letter_queue else { return Ok(()) };
        self.check_target(&QueueRef { project: project.clone(), name: name.clone() }, field).await
    }

    /// Checks that no queue has the name of a new topic, and no topic that of a new queue. The caller holds the gates of
    /// [`hold_name`].
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`].
    pub(in crate::open_queues) async fn check_name_free(&self, queue: &SlotQueue) -> Result<(), Error> {
        // Another replica may have raised the format unseen, so the tree is always asked.
        if !has_namesake(queue).await? {
            return Ok(());
        }
        let name = &queue.at().name;
        let kind = if name.is_topic() { "queue" } else { "topic" };
        Err(Error::Conflict(format!(
            "there is a {kind} {name}: queues and topics of a project share their names"
        )))
    }
}

/// Waits for the gate of the name that a new topic shares with queues. A new queue has that gate as its own.
pub(in crate::open_queues) async fn hold_name(queue: &SlotQueue) -> Option<OwnedMutexGuard<()>> {
    let namesake = queue.at().namesake().filter(|_| queue.at().name.is_topic())?;
    Some(queue.slot().queue(&namesake).hold_gate().await)
}

async fn has_namesake(queue: &SlotQueue) -> Result<bool, Error> {
    let namesake: Option<QueueRef> = queue.at().namesake();
    let Some(namesake) = namesake else { return Ok(false) };
    let namesake = queue.slot().queue(&namesake);
    Ok(namesake.handle().is_some() || namesake.record().await?.is_some())
}
