//! Sorted listing of the queues of a project, from the directories of all slots. A node whose name [`layout::escape`]
//! cannot produce is no queue: no request can name it, so it is left out.
//!
//! A page costs one small read of each of the 256 directories, however many queues there are. A long walk reads larger
//! parts of each directory, and skips directories that it has read to the end: 100,000 names cost four reads of each.

use futures_util::future::try_join_all;

use super::{Catalogue, OwnedSlot, QueueRecord, Schema, failed, from_json, layout};
use angarium_coordination::{Node, TreeError};
use angarium_core::error::Error;
use angarium_core::ids::Slot;
use angarium_core::limits::TREE_READS_AT_ONCE;
use angarium_core::names::{ProjectId, QueueKind, QueueName, QueueRef};

/// Names in the first read of each directory. Queues spread evenly over the directories, so with many queues four names
/// from each give about 140 names in order.
const SHARE: usize = 4;
/// Growth factor of the names per read within a walk.
const GROWTH: usize = 8;
/// Max names per read of a directory. 256 directories times this number are in memory at once.
const SHARE_MAX: usize = 256;
/// Directories that a long listing reads before it yields to other tasks: some thousands of names, which an embedded
/// tree reads in a few milliseconds on one thread.
const LISTING_DIRECTORIES: usize = 16;

/// A sorted walk through the names of the queues of a project. The order is that of ASCII, except that names with a
/// leading dot come first.
pub struct QueueNames<'c> {
    catalogue: &'c Catalogue,
    project: ProjectId,
    after: Option<String>,
    share: usize,
    /// The directories that may have more names after `after`.
    directories: Vec<Slot>,
}

impl QueueNames<'_> {
    /// Returns the next names; none at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<QueueName>>, Error> {
        if self.directories.is_empty() {
            return Ok(None);
        }
        let (after, share) = (self.after.as_deref(), self.share);
        let (tree, project) = (&self.catalogue.tree, &self.project);
        let mut pages = Vec::with_capacity(self.directories.len());
        let at_once = if share == SHARE { self.directories.len() } else { LISTING_DIRECTORIES };
        for chunk in self.directories.chunks(at_once) {
            let read = chunk.iter().map(|slot| async move {
                tree.children_behind(&layout::project(*slot, project), after, share).await
            });
            pages.extend(try_join_all(read).await.map_err(failed)?);
            // An embedded tree may read without ever yielding.
            tokio::task::yield_now().await;
        }
        // A directory that returned its whole share may have more names after its last one. So names are complete only
        // up to the smallest of these last names.
        let end = pages.iter().filter(|page| page.len() == share).filter_map(|page| page.last()).min();
        let end = end.cloned();
        let is_after = |name: &String| end.as_ref().is_some_and(|end| name > end);
        let has_more = pages.iter().map(|page| page.len() == share || page.iter().any(is_after));
        let mut has_more: std::vec::IntoIter<bool> = has_more.collect::<Vec<_>>().into_iter();
        self.directories.retain(|_| has_more.next().unwrap_or(false));
        let mut names: Vec<String> = pages.into_iter().flatten().filter(|name| !is_after(name)).collect();
        names.sort_unstable();
        self.after = end;
        self.share = (share * GROWTH).min(SHARE_MAX);
        Ok(Some(names.iter().filter_map(|element| queue_name(element)).collect()))
    }
}

impl Catalogue {
    /// Starts a walk through the names of the queues of a project after `after`.
    pub fn queue_names(&self, project: &ProjectId, after: Option<&str>) -> QueueNames<'_> {
        let (project, after) = (project.clone(), after.map(layout::escape));
        QueueNames { catalogue: self, project, after, share: SHARE, directories: Slot::all().collect() }
    }

    /// Returns the projects that have, or had, queues in a slot.
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

    /// Returns the number of queues of a kind that a project has. Costs 256 node reads; with subscriptions or topics in the
    /// service also the names of the queues. Nodes that are no queues count too.
    pub async fn queue_count(&self, project: &ProjectId, kind: QueueKind) -> Result<u64, Error> {
        let directories: Vec<String> = Slot::all().map(|slot| layout::project(slot, project)).collect();
        self.count_queues(directories, kind).await
    }

    /// Returns the number of queues of all projects, without topics and those of subscriptions. Costs one node read per
    /// project and slot; with subscriptions or topics in the service also the names of the queues.
    pub async fn queues_of_all(&self) -> Result<u64, Error> {
        let mut queues = 0;
        for slot in Slot::all() {
            let directories = self.tree.children(&layout::slot_queues(slot)).await.map_err(failed)?;
            let path = |element: &String| format!("{}/{element}", layout::slot_queues(slot));
            queues += self.count_queues(directories.iter().map(path).collect(), QueueKind::Queue).await?;
        }
        Ok(queues)
    }

    async fn count_queues(&self, directories: Vec<String>, kind: QueueKind) -> Result<u64, Error> {
        let nodes = self.tree.get_many(&directories).await.map_err(failed)?;
        let nodes = nodes.into_iter().map(|node| node.map_or(0, |node| u64::from(node.children)));
        if !self.is_in_force(Schema::SUBSCRIPTIONS) {
            return Ok(if kind == QueueKind::Queue { nodes.sum() } else { 0 });
        }
        let filled: Vec<String> = directories
            .into_iter()
            .zip(nodes)
            .filter(|(_, nodes)| *nodes > 0)
            .map(|(path, _)| path)
            .collect();
        let mut queues = 0;
        for chunk in filled.chunks(LISTING_DIRECTORIES) {
            let read = chunk.iter().map(|directory| self.tree.children(directory));
            for names in try_join_all(read).await.map_err(failed)? {
                let own = names.iter().filter(|name| layout::kind(name) == kind).count();
                queues += u64::try_from(own).unwrap_or(u64::MAX);
            }
            // An embedded tree may read without ever yielding.
            tokio::task::yield_now().await;
        }
        Ok(queues)
    }

    /// Returns the slots in which a project has queues. Costs 256 node reads.
    pub async fn slots_of(&self, project: &ProjectId) -> Result<Vec<Slot>, Error> {
        let nodes = Slot::all().map(|slot| async move {
            let node = self.node(&layout::project(slot, project)).await?;
            Ok::<_, Error>(node.filter(|node| node.children > 0).map(|_| slot))
        });
        Ok(try_join_all(nodes).await?.into_iter().flatten().collect())
    }

    /// Returns the records of all queues that a project has in one slot. Costs one read per queue.
    pub async fn queues_of(&self, slot: &OwnedSlot, project: &ProjectId) -> Result<Vec<QueueRecord>, Error> {
        let mut records = Vec::new();
        for some in self.project_queues(slot.slot, project).await?.chunks(TREE_READS_AT_ONCE) {
            records.extend(self.queue_records(some).await?.into_iter().flatten());
        }
        Ok(records)
    }

    /// Returns the records of queues, in the order of `queues`; none for a queue that was deleted meanwhile. Costs a read for
    /// each queue, and for each source of a subscription among them.
    pub async fn queue_records(&self, queues: &[QueueRef]) -> Result<Vec<Option<QueueRecord>>, Error> {
        let paths: Vec<String> = queues.iter().map(|queue| layout::queue(queue.slot(), queue)).collect();
        let nodes = self.tree.get_many(&paths).await.map_err(failed)?;
        let mut records: Vec<Option<QueueRecord>> =
            nodes.into_iter().map(decoded).collect::<Result<_, Error>>()?;
        let there = queues.iter().zip(&mut records).filter_map(|(at, record)| Some((at, record.as_mut()?)));
        self.follow_sources(there).await?;
        Ok(records)
    }

    /// Returns the record of a queue, with every change that was answered before; none when there is no such queue.
    pub async fn queue_record_now(&self, queue: &QueueRef) -> Result<Option<QueueRecord>, Error> {
        self.catch_up().await?;
        Ok(self.queue_records(std::slice::from_ref(queue)).await?.pop().flatten())
    }

    /// Returns the records of queues like [`Catalogue::queue_records`], but with a separate error for each record that
    /// is damaged or cannot be decoded.
    ///
    /// # Errors
    ///
    /// The error of a tree that does not answer.
    pub async fn queue_records_each(
        &self,
        queues: &[QueueRef],
    ) -> Result<Vec<Result<Option<QueueRecord>, Error>>, Error> {
        let paths: Vec<String> = queues.iter().map(|queue| layout::queue(queue.slot(), queue)).collect();
        let mut records = match self.tree.get_many(&paths).await {
            Ok(nodes) => nodes.into_iter().map(decoded).collect(),
            Err(TreeError::Damaged(_)) => self.records_alone(&paths).await?,
            Err(error) => return Err(failed(error)),
        };
        for (at, found) in queues.iter().zip(&mut records) {
            let Ok(Some(record)) = found else { continue };
            if let Err(error) = self.follow_source(at, record).await {
                *found = Err(error);
            }
        }
        Ok(records)
    }

    /// Reads each record alone: one of the nodes is damaged, and the error of a read of all does not name it.
    async fn records_alone(
        &self,
        paths: &[String],
    ) -> Result<Vec<Result<Option<QueueRecord>, Error>>, Error> {
        let mut records = Vec::with_capacity(paths.len());
        for path in paths {
            records.push(match self.node(path).await {
                Ok(node) => decoded(node),
                Err(error) if error.is_damaged() => Err(error),
                Err(error) => return Err(error),
            });
        }
        Ok(records)
    }
}

fn decoded(node: Option<Node>) -> Result<Option<QueueRecord>, Error> {
    node.as_ref().map(from_json).transpose()
}

fn project(element: &str) -> Option<ProjectId> {
    ProjectId::new(&layout::unescape(element)?)
        .ok()
        .filter(|project| layout::escape(project.as_str()) == element)
}

pub(super) fn queue_name(element: &str) -> Option<QueueName> {
    QueueName::stored(&layout::unescape(element)?)
        .ok()
        .filter(|name| layout::escape(name.as_str()) == element)
}
