//! Messages as clients see them: post, read, delete. The slot decides; this component waits until changes are durable.

pub(crate) mod bulk;
pub(crate) mod kept;
pub(crate) mod list;
pub(crate) mod overflow;
pub(crate) mod peek;
pub(crate) mod peek_read;
pub(crate) mod pool_page;
pub(crate) mod posts;
pub(crate) mod recall;
pub(crate) mod replace;
pub(crate) mod requeue;
pub(crate) mod send;
pub(crate) mod single;
pub(crate) mod status;
pub(crate) mod view;

use std::sync::Arc;

use crate::open_queues::OpenQueues;
use crate::quotas::QuotaCounts;
use crate::replica::LocalReplica;
use crate::slots::Slots;

#[derive(Clone)]
pub(crate) struct Messages(pub(crate) Arc<MessagesParts>);

pub(crate) struct MessagesParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) slots: Slots,
    pub(crate) quotas: QuotaCounts,
    pub(crate) open_queues: OpenQueues,
}

impl Messages {
    pub(crate) fn new(parts: MessagesParts) -> Self {
        Self(Arc::new(parts))
    }
}
