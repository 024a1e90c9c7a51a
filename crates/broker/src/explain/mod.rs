//! Explanations for people: what a claim of a queue would get now, and what a message waits for. All of it is read from
//! memory and from totals; nothing is changed by it.

pub(crate) mod message;
mod message_text;
pub(crate) mod pool_state;
pub(crate) mod queue;
mod queue_text;
mod words;

use std::sync::Arc;

use crate::messages::Messages;
use crate::open_queues::OpenQueues;
use crate::replica::LocalReplica;
use crate::slots::Slots;
use crate::stores::table::PoolTable;
use crate::webhooks::Webhooks;

#[derive(Clone)]
pub(crate) struct Explanations(Arc<ExplanationsParts>);

pub(crate) struct ExplanationsParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) stores: Arc<PoolTable>,
    pub(crate) slots: Slots,
    pub(crate) open_queues: OpenQueues,
    pub(crate) messages: Messages,
    pub(crate) webhooks: Webhooks,
}

impl Explanations {
    pub(crate) fn new(parts: ExplanationsParts) -> Self {
        Self(Arc::new(parts))
    }
}
