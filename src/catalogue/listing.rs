//! The queues of a project in order of their names, out of the directories of all slots.
//!
//! A page costs one bounded read of each of the 256 directories, however many queues there are.

use futures_util::future::try_join_all;

use super::{Catalogue, QueueRecord, failed, from_json, layout};
use crate::domain::ids::Slot;
use crate::domain::names::{ProjectId, QueueName, QueueRef};
use crate::error::{Error, Part};

impl Catalogue {
    /// The names of at most `most` queues of a project behind `after`, in order: that of ASCII, but names that
    /// begin with a dot come first.
    pub async fn queue_names(
        &self,
        project: &ProjectId,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<QueueName>, Error> {
        let after = after.map(layout::escape);
        let directories = Slot::all().map(|slot| layout::project(slot, project));
        let pages = directories.map(|path| {
            let after = after.as_deref();
            async move { self.tree.children_behind(&path, after, most).await }
        });
        let mut elements: Vec<String> =
            try_join_all(pages).await.map_err(failed)?.into_iter().flatten().collect();
        elements.sort_unstable();
        elements.truncate(most);
        elements.iter().map(|element| queue_name(element)).collect()
    }

    /// How many queues a project has, at the cost of reading 256 nodes.
    pub async fn queue_count(&self, project: &ProjectId) -> Result<u64, Error> {
        let nodes = Slot::all().map(|slot| layout::project(slot, project));
        let nodes = nodes.map(|path| async move { self.node(&path).await });
        let nodes = try_join_all(nodes).await?;
        Ok(nodes.into_iter().flatten().map(|node| u64::from(node.children)).sum())
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

fn queue_name(element: &str) -> Result<QueueName, Error> {
    let damaged =
        || Error::unavailable(Part::Coordination, format!("{element:?} is not the name of a queue"));
    let name = layout::unescape(element).ok_or_else(damaged)?;
    QueueName::new(&name).map_err(|_| damaged())
}
