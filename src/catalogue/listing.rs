//! The queues of a project in order of their names, out of the directories of all slots.
//!
//! A page costs one small read of each of the 256 directories, however many queues there are.

use futures_util::future::try_join_all;

use super::{Catalogue, OwnedSlot, QueueRecord, failed, from_json, layout};
use crate::domain::ids::Slot;
use crate::domain::limits::TREE_READS_AT_ONCE;
use crate::domain::names::{ProjectId, QueueName, QueueRef};
use crate::error::{Error, Part};

/// Names that are read from each directory at once. Of many queues, which the directories share evenly, four from
/// each give about 140 names in order, and three about 70.
const SHARE: usize = 4;

impl Catalogue {
    /// The names of at most `most` queues of a project behind `after`, in order: that of ASCII, but names that
    /// begin with a dot come first.
    pub async fn queue_names(
        &self,
        project: &ProjectId,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<QueueName>, Error> {
        let mut after = after.map(layout::escape);
        let mut elements: Vec<String> = Vec::new();
        while elements.len() < most {
            let (mut some, end) = self.first_of_each(project, after.as_deref()).await?;
            elements.append(&mut some);
            if end.is_none() {
                break;
            }
            after = end;
        }
        elements.truncate(most);
        elements.iter().map(|element| queue_name(element)).collect()
    }

    /// The next names behind `after`, in order, out of a few from each directory: complete up to the name that comes
    /// with them, or to the end when none does.
    async fn first_of_each(
        &self,
        project: &ProjectId,
        after: Option<&str>,
    ) -> Result<(Vec<String>, Option<String>), Error> {
        let pages = Slot::all().map(|slot| async move {
            self.tree.children_behind(&layout::project(slot, project), after, SHARE).await
        });
        let pages = try_join_all(pages).await.map_err(failed)?;
        // A directory that gave its whole share may have more behind its last name.
        let end =
            pages.iter().filter(|page| page.len() == SHARE).filter_map(|page| page.last()).min().cloned();
        let mut elements: Vec<String> = pages.into_iter().flatten().collect();
        elements.retain(|element| end.as_ref().is_none_or(|end| element <= end));
        elements.sort_unstable();
        Ok((elements, end))
    }

    /// The projects that have, or had, queues in a slot.
    pub async fn slot_projects(&self, slot: Slot) -> Result<Vec<ProjectId>, Error> {
        let elements = self.tree.children(&layout::slot_queues(slot)).await.map_err(failed)?;
        elements.iter().map(|element| project(element)).collect()
    }

    /// The queues of a project in a slot.
    pub async fn project_queues(&self, slot: Slot, project: &ProjectId) -> Result<Vec<QueueRef>, Error> {
        let elements = self.tree.children(&layout::project(slot, project)).await.map_err(failed)?;
        let queue = |element: &String| Ok(QueueRef { project: project.clone(), name: queue_name(element)? });
        elements.iter().map(queue).collect()
    }

    /// How many queues a project has, at the cost of reading 256 nodes.
    pub async fn queue_count(&self, project: &ProjectId) -> Result<u64, Error> {
        let nodes = Slot::all().map(|slot| layout::project(slot, project));
        let nodes = nodes.map(|path| async move { self.node(&path).await });
        let nodes = try_join_all(nodes).await?;
        Ok(nodes.into_iter().flatten().map(|node| u64::from(node.children)).sum())
    }

    /// The slots in which a project has queues, at the same cost.
    pub async fn slots_of(&self, project: &ProjectId) -> Result<Vec<Slot>, Error> {
        let nodes = Slot::all().map(|slot| async move {
            let node = self.node(&layout::project(slot, project)).await?;
            Ok::<_, Error>(node.filter(|node| node.children > 0).map(|_| slot))
        });
        Ok(try_join_all(nodes).await?.into_iter().flatten().collect())
    }

    /// The records of all queues that a project has in one slot, at the cost of reading each.
    pub async fn queues_of(&self, slot: &OwnedSlot, project: &ProjectId) -> Result<Vec<QueueRecord>, Error> {
        let directory = layout::project(slot.slot, project);
        let mut records = Vec::new();
        for some in self.tree.children(&directory).await.map_err(failed)?.chunks(TREE_READS_AT_ONCE) {
            let nodes = some.iter().map(|element| {
                let path = format!("{directory}/{element}");
                async move { self.node(&path).await }
            });
            for node in try_join_all(nodes).await?.iter().flatten() {
                records.push(from_json(node)?);
            }
        }
        Ok(records)
    }

    /// The records of queues, each where it is found; one that was deleted meanwhile is absent.
    pub async fn queue_records(&self, queues: &[QueueRef]) -> Result<Vec<Option<QueueRecord>>, Error> {
        let records = queues.iter().map(|queue| async move {
            let node = self.node(&layout::queue(queue.slot(), queue)).await?;
            node.as_ref().map(from_json).transpose()
        });
        try_join_all(records).await
    }
}

fn project(element: &str) -> Result<ProjectId, Error> {
    let damaged = || Error::unavailable(Part::Coordination, format!("{element:?} is no project"));
    let name = layout::unescape(element).ok_or_else(damaged)?;
    ProjectId::new(&name).map_err(|_| damaged())
}

fn queue_name(element: &str) -> Result<QueueName, Error> {
    let damaged =
        || Error::unavailable(Part::Coordination, format!("{element:?} is not the name of a queue"));
    let name = layout::unescape(element).ok_or_else(damaged)?;
    QueueName::new(&name).map_err(|_| damaged())
}
