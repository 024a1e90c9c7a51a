//! Reads of groups of an ordered queue from its pool, for its engine.

use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits;
use angarium_core::message::Message;
use angarium_core::names::QueueRef;
use angarium_engine::{GroupRead, Heads};
use angarium_storage::{GroupHead, Page};

use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::{OpenQueue, Slot};
use crate::stores::queue_store::{PageBound, QueueStore};
use crate::stores::read_failure::ReadFailure;

/// The result of a read.
pub(crate) enum GroupPage {
    Group(Page),
    Heads(Heads),
}

impl Slot {
    /// Begins the reads that the engine of an ordered queue needs.
    pub(crate) fn start_group_reads(self: &Arc<Self>, at: &QueueRef, queue: &mut OpenQueue) {
        while let Some(read) = queue.engine.begin_group_read() {
            let handle = QueueHandle::new(Arc::clone(self), at.clone(), queue.id);
            let store = self.store_of(queue);
            self.spawn(async move {
                let found = match store {
                    Ok(store) => read_groups(&store, handle.id, &read).await,
                    Err(error) => Err(error),
                };
                handle.finish_group_read(&read, found);
            });
        }
    }
}

impl QueueHandle {
    pub(crate) fn finish_group_read(&self, read: &GroupRead, found: Result<GroupPage, Error>) {
        let mut state = self.slot.lock();
        let Some(queue) = state.queue_mut(&self.at, self.id) else { return };
        queue.pool_failed = found.as_ref().err().map(ReadFailure::of);
        let failure = match found {
            Ok(GroupPage::Group(page)) => {
                queue.engine.finish_group_read(read, page.messages, page.is_last);
                None
            }
            Ok(GroupPage::Heads(heads)) => {
                let is_end = heads.len() < limits::GROUPS_PAGE;
                queue.engine.finish_heads_read(read, heads, is_end);
                None
            }
            Err(cause) => {
                queue.engine.group_read_failed(read);
                Some(cause)
            }
        };
        state.serve(&self.at);
        drop(state);
        if let Some(cause) = failure {
            self.slot.around.replica.task_failed(
                "read waiting messages",
                format_args!("queue {}", self.at.name),
                &cause,
            );
        }
    }
}

async fn read_groups(store: &QueueStore, queue: QueueId, read: &GroupRead) -> Result<GroupPage, Error> {
    match read {
        GroupRead::Group { name, after, most, .. } => {
            let after = Some(*after).filter(|after| *after > MessageId::ZERO);
            let most = PageBound { messages: *most, bytes: limits::GROUP_BYTES };
            store.group(queue, name, after, most).await.map(GroupPage::Group)
        }
        GroupRead::Heads { after, .. } => {
            let heads = store.groups(queue, after.clone(), limits::GROUPS_PAGE).await?;
            Ok(GroupPage::Heads(heads.into_iter().map(head).collect()))
        }
    }
}

pub(crate) fn head(head: GroupHead) -> (Message, bool) {
    (head.message, head.is_only)
}
