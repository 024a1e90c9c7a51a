//! Numbers of messages in queues: counted in the background for pages of metrics, and on request for pages of queues.

pub(crate) mod background;
pub(crate) mod line;
pub(crate) mod page_counts;

use std::sync::Arc;

use crate::open_queues::OpenQueues;
use crate::replica::LocalReplica;
use crate::slots::Slots;

#[derive(Clone)]
pub(crate) struct Counts(pub(crate) Arc<CountsParts>);

pub(crate) struct CountsParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) slots: Slots,
    pub(crate) open_queues: OpenQueues,
}

impl Counts {
    pub(crate) fn new(parts: CountsParts) -> Self {
        Self(Arc::new(parts))
    }
}
