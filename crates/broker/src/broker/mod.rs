//! The broker: one line for each verb of the service. Which component has it, and that is all there is here.

mod claims;
mod life;
mod messages;
mod peers;
mod pools;
mod queues;

use std::sync::Arc;

use crate::start::Components;

/// The service without its faces. Clones share it.
#[derive(Clone)]
pub struct Broker(pub(crate) Arc<Components>);
