//! The queues of a project in order of their names, out of the directories of all slots. A node whose name is not one that
//! [`layout::escape`] makes is no queue: no request can name it, so it is left out.
//!
//! A page costs one small read of each of the 256 directories, however many queues there are. Who looks through many
//! names reads more from each directory at once, and none again that is at its end: 100,000 names are four reads of each.

use futures_util::future::try_join_all;

use super::{Catalogue, OwnedSlot, QueueRecord, failed, from_json, layout};
use angarium_coordination::{Node, TreeError};
use angarium_core::error::Error;
use angarium_core::ids::Slot;
use angarium_core::limits::TREE_READS_AT_ONCE;
use angarium_core::names::{ProjectId, QueueName, QueueRef};

/// Names that are first read from each directory. Of many queues, which the directories share evenly, four from
/// each give about 140 names in order.
const SHARE: usize = 4;
/// How many times more each read of a walk takes than the one before.
const GROWTH: usize = 8;
/// Names that one read takes from a directory at most: 256 of them are in memory at once.
const SHARE_MAX: usize = 256;
/// Directories of names that a long listing reads before others have their turn: some thousands of names, which an embedded
/// tree reads in a few milliseconds of one thread.
const LISTING_DIRECTORIES: usize = 16;

/// A walk through the names of the queues of a project, in order: that of ASCII, but names that begin with a dot come
/// first.
pub struct QueueNames<'c> {
    catalogue: &'c Catalogue,
    project: ProjectId,
    after: Option<String>,
    share: usize,
    /// The directories that may have more behind `after`.
    directories: Vec<Slot>,
}

impl QueueNames<'_> {
    /// The next names; none at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<QueueName>>, Error> {
        if self.directories.is_empty() {
            return Ok(None);
        }
        let (after, share) = (self.after.as_deref(), self.share);
        let (tree, project) = (&self.catalogue.tree, &self.project);
        let mut pages = Vec::with_capacity(self.directories.len());
        let at_once = if share == SHARE { self.directories.len() } else { LISTING_DIRECTORIES };
        for some in self.directories.chunks(at_once) {
            let read = some.iter().map(|slot| async move {
                tree.children_behind(&layout::project(*slot, project), after, share).await
            });
            pages.extend(try_join_all(read).await.map_err(failed)?);
            // An embedded tree reads without waiting for anything.
            tokio::task::yield_now().await;
        }
        // A directory that gave its whole share may have more behind its last name: up to the least of these names
        // nothing is missing.
        let end = pages.iter().filter(|page| page.len() == share).filter_map(|page| page.last()).min();
        let end = end.cloned();
        let is_behind = |name: &String| end.as_ref().is_some_and(|end| name > end);
        let has_more = pages.iter().map(|page| page.len() == share || page.iter().any(is_behind));
        let mut has_more: std::vec::IntoIter<bool> = has_more.collect::<Vec<_>>().into_iter();
        self.directories.retain(|_| has_more.next().unwrap_or(false));
        let mut names: Vec<String> = pages.into_iter().flatten().filter(|name| !is_behind(name)).collect();
        names.sort_unstable();
        self.after = end;
        self.share = (share * GROWTH).min(SHARE_MAX);
        Ok(Some(names.iter().filter_map(|element| queue_name(element)).collect()))
    }
}

impl Catalogue {
    /// The names of the queues of a project behind `after`.
    pub fn queue_names(&self, project: &ProjectId, after: Option<&str>) -> QueueNames<'_> {
        let (project, after) = (project.clone(), after.map(layout::escape));
        QueueNames { catalogue: self, project, after, share: SHARE, directories: Slot::all().collect() }
    }

    /// The projects that have, or had, queues in a slot.
    pub async fn slot_projects(&self, slot: Slot) -> Result<Vec<ProjectId>, Error> {
        let elements = self.tree.children(&layout::slot_queues(slot)).await.map_err(failed)?;
        Ok(elements.iter().filter_map(|element| project(element)).collect())
    }

    pub async fn project_queues(&self, slot: Slot, project: &ProjectId) -> Result<Vec<QueueRef>, Error> {
        let elements = self.tree.children(&layout::project(slot, project)).await.map_err(failed)?;
        let queue =
            |element: &String| Some(QueueRef { project: project.clone(), name: queue_name(element)? });
        Ok(elements.iter().filter_map(queue).collect())
    }

    /// How many queues a project has, at the cost of reading 256 nodes. Nodes that are no queues count too.
    pub async fn queue_count(&self, project: &ProjectId) -> Result<u64, Error> {
        let nodes: Vec<String> = Slot::all().map(|slot| layout::project(slot, project)).collect();
        let nodes = self.tree.get_many(&nodes).await.map_err(failed)?;
        Ok(nodes.into_iter().flatten().map(|node| u64::from(node.children)).sum())
    }

    /// How many queues all projects have, at the cost of reading a node for each project in each slot.
    pub async fn queues_of_all(&self) -> Result<u64, Error> {
        let mut queues = 0;
        for slot in Slot::all() {
            let directories = self.tree.children(&layout::slot_queues(slot)).await.map_err(failed)?;
            let path = |element: &String| format!("{}/{element}", layout::slot_queues(slot));
            let paths: Vec<String> = directories.iter().map(path).collect();
            let nodes = self.tree.get_many(&paths).await.map_err(failed)?;
            queues += nodes.into_iter().flatten().map(|node| u64::from(node.children)).sum::<u64>();
        }
        Ok(queues)
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
        let mut elements = self.tree.children(&directory).await.map_err(failed)?;
        elements.retain(|element| queue_name(element).is_some());
        for some in elements.chunks(TREE_READS_AT_ONCE) {
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
        let paths: Vec<String> = queues.iter().map(|queue| layout::queue(queue.slot(), queue)).collect();
        let nodes = self.tree.get_many(&paths).await.map_err(failed)?;
        nodes.iter().map(|node| node.as_ref().map(from_json).transpose()).collect()
    }

    /// The records of queues as [`Catalogue::queue_records`] reads them, with an error in place of each record that is damaged
    /// or cannot be decoded.
    ///
    /// # Errors
    ///
    /// That of a tree that does not answer.
    pub async fn queue_records_each(
        &self,
        queues: &[QueueRef],
    ) -> Result<Vec<Result<Option<QueueRecord>, Error>>, Error> {
        let paths: Vec<String> = queues.iter().map(|queue| layout::queue(queue.slot(), queue)).collect();
        let record = |node: Option<Node>| node.as_ref().map(from_json).transpose();
        match self.tree.get_many(&paths).await {
            Ok(nodes) => return Ok(nodes.into_iter().map(record).collect()),
            Err(TreeError::Damaged(_)) => {}
            Err(error) => return Err(failed(error)),
        }
        // One of them is damaged; the error does not name it.
        let mut records = Vec::with_capacity(paths.len());
        for path in &paths {
            records.push(match self.node(path).await {
                Ok(node) => record(node),
                Err(error) if error.is_damaged() => Err(error),
                Err(error) => return Err(error),
            });
        }
        Ok(records)
    }
}

fn project(element: &str) -> Option<ProjectId> {
    ProjectId::new(&layout::unescape(element)?)
        .ok()
        .filter(|project| layout::escape(project.as_str()) == element)
}

fn queue_name(element: &str) -> Option<QueueName> {
    QueueName::new(&layout::unescape(element)?).ok().filter(|name| layout::escape(name.as_str()) == element)
}
