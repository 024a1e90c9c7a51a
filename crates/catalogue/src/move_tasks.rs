//! Records of message move tasks: one node for each queue that had one.

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use super::{Catalogue, OwnedSlot, failed, from_json, layout, to_json};
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::ids::{QueueId, Slot};
use angarium_core::limits;
use angarium_core::move_task::MoveTask;
use angarium_core::names::{ProjectId, QueueRef, address};

/// The move tasks of one queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveTasks {
    /// The queue, as clients address it: a task continues whether its queue is in use or not.
    #[serde(flatten, with = "address")]
    pub at: QueueRef,
    /// Tasks, the newest first, at most [`limits::MOVE_TASKS`]. Only the first one may be active.
    pub tasks: Vec<MoveTask>,
}

impl Catalogue {
    /// Returns the tasks of a queue; none when it never had one.
    pub async fn move_tasks(&self, slot: &OwnedSlot, queue: QueueId) -> Result<Option<MoveTasks>, Error> {
        let node = self.node(&layout::tasks(slot.slot, queue)).await?;
        node.as_ref().map(from_json).transpose()
    }

    pub async fn active_move_tasks(&self, slot: Slot) -> Result<Vec<(QueueId, QueueRef)>, Error> {
        let damaged = |error: uuid::Error| Error::unavailable(Part::Coordination, error);
        let names = self.tree.children(&layout::slot_tasks(slot)).await.map_err(failed)?;
        let mut active = Vec::new();
        for chunk in names.chunks(limits::LISTING_RECORDS) {
            let ids = chunk.iter().map(|name| name.parse().map_err(damaged));
            let ids = ids.collect::<Result<Vec<QueueId>, _>>()?;
            let paths: Vec<String> = ids.iter().map(|id| layout::tasks(slot, *id)).collect();
            let nodes = self.tree.get_many(&paths).await.map_err(failed)?;
            for (id, node) in ids.into_iter().zip(nodes) {
                let Some(node) = node else { continue };
                let record: MoveTasks = from_json(&node)?;
                if record.tasks.first().is_some_and(MoveTask::is_active) {
                    active.push((id, record.at));
                }
            }
        }
        Ok(active)
    }

    /// Returns the queues of a project that have an active task. Costs a read of the task records of all slots.
    pub async fn queues_with_move_tasks(&self, project: &ProjectId) -> Result<Vec<QueueRef>, Error> {
        let active = try_join_all(Slot::all().map(|slot| self.active_move_tasks(slot))).await?;
        let queues = active.into_iter().flatten().map(|(_, queue)| queue);
        Ok(queues.filter(|queue| queue.project == *project).collect())
    }

    /// Writes the tasks of a queue. The caller must serialize its reads and writes within this process.
    pub async fn move_tasks_write(
        &self,
        slot: &OwnedSlot,
        queue: QueueId,
        record: &MoveTasks,
    ) -> Result<(), Error> {
        let path = layout::tasks(slot.slot, queue);
        let what = "queues in one slot that had a task which moved their messages";
        self.write_in_directory(slot, (layout::slot_tasks(slot.slot), path), to_json(record), what).await
    }

    /// Deletes the tasks of a deleted queue. Tasks that are already deleted are no error.
    pub async fn move_tasks_delete(&self, slot: &OwnedSlot, queue: QueueId) -> Result<(), Error> {
        let path = layout::tasks(slot.slot, queue);
        // Most queues never had a task, and a read costs less than a commit.
        if self.node(&path).await?.is_none() {
            return Ok(());
        }
        match self.commit_as_owner(slot, &[], &[Op::Delete { path }]).await {
            Ok(_) | Err(TreeError::Refused { why: Refusal::NoNode, .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }
}
