//! Holds of pools and projects. Those of queues are in [`crate::queues::holds`].
//!
//! ```text
//! commit of the record ─▶ each owner: memory, fences of the pools ─▶ confirmed for all slots ─▶ answer
//! ```
//!
//! Every replica has these holds in memory, and every choice of messages and every post looks at them under the lock of
//! its slot. The answer waits until each slot has an owner that knows the hold and that has fenced the pools of the held
//! queues: whatever an earlier owner still does there is refused, even if it was stopped and has seen nothing.

pub(crate) mod confirmation;
pub(crate) mod following;
pub(crate) mod shared;
pub(crate) mod terms;

use std::sync::Arc;

use crate::pools::Pools;
use crate::replica::LocalReplica;
use crate::slots::Slots;

#[derive(Clone)]
pub(crate) struct Holds(pub(in crate::holds) Arc<HoldsParts>);

pub(crate) struct HoldsParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) slots: Slots,
    pub(crate) pools: Pools,
}

impl Holds {
    pub(crate) fn new(parts: HoldsParts) -> Self {
        Self(Arc::new(parts))
    }
}
