//! The facade of the broker: one line for each verb of the service, which calls the component that has it.

mod backup;
mod claims;
mod explain;
mod holds;
mod life;
mod messages;
mod outcomes;
mod peers;
mod pools;
mod queues;
mod subscriptions;

use std::sync::Arc;

use crate::start::Components;

/// The broker without any protocol. Clones share it.
#[derive(Clone)]
pub struct Broker(pub(crate) Arc<Components>);
