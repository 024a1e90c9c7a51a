//! Export of a tree as lines of text, and import of the lines into an empty tree.
//!
//! The first line names the installation. Then each node has one line, parents before their children, and the last line
//! has the number of nodes. The export leaves out everything that belongs to running processes: the registered
//! replicas, and the owners of the slots.

use std::borrow::Cow;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error as ThisError;
use uuid::Uuid;

use super::imported_holds::{ImportedTransfers, TransferHolds};
use super::{Catalogue, Schema, System, failed, from_json, layout, to_json};
use angarium_coordination::{Fence, Node, Op};
use angarium_core::error::Error;
use angarium_core::limits;

/// Version of the format of the lines.
const FORM: u32 = 1;
/// Max names of a directory per read.
const PAGE: usize = 1_000;
/// Max bytes of nodes in a commit. The rest of the bound is for the fence, and for the paths.
const COMMIT_BYTES: usize = limits::TREE_BATCH_BYTES / 2;

/// Errors of an export or an import.
#[derive(Debug, ThisError)]
pub enum ExportError {
    #[error("the tree could not be used: {}", cause(.0))]
    Tree(#[from] Error),
    /// The lines could not be read or written.
    #[error("the lines of the tree")]
    Lines(#[from] io::Error),
    /// The tree to export is empty.
    #[error("the tree is empty: no service was started on it yet")]
    Empty,
    /// The tree has an installation already. Nothing was written.
    #[error("the tree is not empty: it holds installation {0}")]
    NotEmpty(Uuid),
    /// The lines are not those of a whole tree.
    #[error("line {line}: {why}")]
    Damaged {
        /// Number of the damaged line, from 1.
        line: u64,
        /// Description of the damage.
        why: String,
    },
}

/// Returns the cause of an error as text. The text of the error itself leaves it out, because clients read that text.
fn cause(error: &Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Result of an export or an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeExport {
    /// The installation as it is in the tree now.
    pub system: System,
    /// Number of nodes.
    pub nodes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ExportLine<'a> {
    Tree {
        form: u32,
        system: System,
    },
    Node {
        path: Cow<'a, str>,
        /// Absent when the node is empty.
        #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
        data: Option<&'a RawValue>,
    },
    End {
        nodes: u64,
    },
}

impl Catalogue {
    /// Returns whether a service has begun the tree.
    pub async fn is_begun(&self) -> Result<bool, Error> {
        Ok(self.node(layout::SYSTEM).await?.is_some())
    }

    /// Passes every line, with its line end, to `write`. Sealed values stay sealed, so no key is needed.
    ///
    /// Concurrent changes may be included or not; a queue, a claim or a pool is included whole or not at all.
    pub async fn export(
        &self,
        write: &mut (dyn FnMut(&[u8]) -> io::Result<()> + Send),
    ) -> Result<TreeExport, ExportError> {
        let system: System = from_json(&self.node(layout::SYSTEM).await?.ok_or(ExportError::Empty)?)?;
        put(write, &ExportLine::Tree { form: FORM, system: system.clone() })?;
        let mut nodes = 0;
        self.walk(&mut |path, node| {
            nodes += 1;
            // The next owner of a slot does not need the previous one.
            let data: &[u8] = if layout::is_slot(path) { b"{}" } else { &node.data };
            let wrong = |error| io::Error::other(format!("{path} is no JSON: {error}"));
            let data = match data {
                [] => None,
                data => Some(serde_json::from_slice(data).map_err(wrong)?),
            };
            put(write, &ExportLine::Node { path: path.into(), data })
        })
        .await?;
        put(write, &ExportLine::End { nodes })?;
        Ok(TreeExport { system, nodes })
    }

    /// Imports the lines into an empty tree. The generation becomes `generation`, or that of the lines plus one if that
    /// is greater; `transfers` are those of the imported queues. The last commit creates the installation: an interrupted
    /// import may be repeated, and until then no service starts on the tree.
    pub async fn import(
        &self,
        lines: &mut (dyn Iterator<Item = io::Result<String>> + Send),
        generation: u32,
        transfers: ImportedTransfers,
    ) -> Result<TreeExport, ExportError> {
        if let Some(node) = self.node(layout::SYSTEM).await? {
            return Err(ExportError::NotEmpty(from_json::<System>(&node)?.id));
        }
        let mut lines = (1..).zip(lines);
        let mut system = head(lines.next())?;
        system.generation = system.generation.saturating_add(1).max(generation);
        let mut batch = self.begin_import().await?;
        let mut holds = TransferHolds::new(transfers, &mut system);
        for op in holds.directories() {
            batch.add(self, op).await?;
        }
        let mut nodes = 0;
        for (line, text) in &mut lines {
            let text = text?;
            match parsed(line, &text)? {
                ExportLine::Node { path, data } if layout::outlives(&path) => {
                    nodes += 1;
                    let data = data.map_or(String::new(), |data| data.get().to_owned());
                    if holds.keeps(&path, &data) {
                        batch.add(self, Op::create(path, data)).await?;
                    }
                }
                ExportLine::End { nodes: written } if written == nodes => {
                    if lines.next().is_some() {
                        return Err(ExportError::Damaged { line: line + 1, why: "more than the end".into() });
                    }
                    for op in holds.ops() {
                        batch.add(self, op).await?;
                    }
                    batch.finish(self, &system).await?;
                    return Ok(TreeExport { system, nodes });
                }
                ExportLine::End { .. } => {
                    return Err(ExportError::Damaged {
                        line,
                        why: "lines are missing before the end".into(),
                    });
                }
                ExportLine::Node { .. } | ExportLine::Tree { .. } => {
                    return Err(ExportError::Damaged { line, why: "it has no place here".into() });
                }
            }
        }
        Err(ExportError::Damaged { line: nodes + 2, why: "the end is missing".into() })
    }

    /// Marks the tree as being imported, and deletes the nodes that an interrupted import left.
    async fn begin_import(&self) -> Result<ImportBatch, ExportError> {
        self.create_missing(&layout::ROOTS.map(str::to_owned)).await?;
        self.create_missing(&[layout::IMPORT.to_owned()]).await?;
        // Of two concurrent imports, this makes the earlier one fail.
        let mark = Op::Set { path: layout::IMPORT.into(), data: "{}".into(), version: None };
        let marked = self.tree.stored().commit(&[], &[mark]).await.map_err(failed)?;
        let version = marked.first().copied().flatten().map_or(0, |stat| stat.version);
        let mut leftover = Vec::new();
        self.walk(&mut |path, _| {
            if !layout::ROOTS.contains(&path) {
                leftover.push(path.to_owned());
            }
            Ok(())
        })
        .await?;
        let mut batch =
            ImportBatch { fence: Fence { path: layout::IMPORT.into(), version }, ops: Vec::new(), bytes: 0 };
        for path in leftover.into_iter().rev() {
            batch.add(self, Op::Delete { path }).await?;
        }
        batch.flush(self).await?;
        Ok(batch)
    }

    /// Passes every node of the export to `visit`, parents before their children. The nodes of the installation itself
    /// are left out.
    async fn walk(
        &self,
        visit: &mut (dyn FnMut(&str, &Node) -> io::Result<()> + Send),
    ) -> Result<(), ExportError> {
        let mut directories = Vec::new();
        for root in layout::ROOTS {
            if let Some(node) = self.node(root).await? {
                visit(root, &node)?;
                directories.push(root.to_owned());
            }
        }
        while let Some(directory) = directories.pop() {
            let mut after: Option<String> = None;
            loop {
                let names = self
                    .tree
                    .stored()
                    .children_behind(&directory, after.as_deref(), PAGE)
                    .await
                    .map_err(failed)?;
                let paths = names.iter().map(|name| format!("{directory}/{name}"));
                let paths: Vec<String> = paths.filter(|path| layout::outlives(path)).collect();
                for paths in paths.chunks(limits::TREE_BATCH_OPS) {
                    let nodes = self.tree.stored().get_many(paths).await.map_err(failed)?;
                    // A node that was deleted meanwhile is left out.
                    for (path, node) in paths.iter().zip(nodes).filter_map(|(path, node)| Some((path, node?)))
                    {
                        visit(path, &node)?;
                        if node.children > 0 {
                            directories.push(path.clone());
                        }
                    }
                }
                match names.into_iter().nth(PAGE - 1) {
                    Some(last) => after = Some(last),
                    None => break,
                }
            }
        }
        Ok(())
    }
}

/// Pending operations of an import.
struct ImportBatch {
    /// Makes commits fail when another import has started.
    fence: Fence,
    ops: Vec<Op>,
    bytes: usize,
}

impl ImportBatch {
    async fn add(&mut self, catalogue: &Catalogue, op: Op) -> Result<(), ExportError> {
        // The roots were created with the mark.
        if layout::ROOTS.contains(&op.path()) {
            return Ok(());
        }
        self.bytes += op.size();
        self.ops.push(op);
        if self.bytes > COMMIT_BYTES || self.ops.len() >= limits::TREE_BATCH_OPS - 1 {
            self.flush(catalogue).await?;
        }
        Ok(())
    }

    async fn flush(&mut self, catalogue: &Catalogue) -> Result<(), ExportError> {
        let ops = std::mem::take(&mut self.ops);
        self.bytes = 0;
        if ops.is_empty() {
            return Ok(());
        }
        catalogue.tree.stored().commit(std::slice::from_ref(&self.fence), &ops).await.map_err(failed)?;
        Ok(())
    }

    /// Completes the import: creates the installation and removes the mark.
    async fn finish(mut self, catalogue: &Catalogue, system: &System) -> Result<(), ExportError> {
        self.flush(catalogue).await?;
        let create = Op::create(layout::SYSTEM, to_json(system));
        let unmark = Op::Delete { path: layout::IMPORT.into() };
        catalogue.tree.stored().commit(&[self.fence], &[create, unmark]).await.map_err(failed)?;
        Ok(())
    }
}

fn put(write: &mut (dyn FnMut(&[u8]) -> io::Result<()> + Send), line: &ExportLine<'_>) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    write(&text)
}

fn parsed(line: u64, text: &str) -> Result<ExportLine<'_>, ExportError> {
    serde_json::from_str(text).map_err(|error| ExportError::Damaged { line, why: error.to_string() })
}

/// Returns the installation of the first line, if this program can import it.
fn head(first: Option<(u64, io::Result<String>)>) -> Result<System, ExportError> {
    let damaged = |why: String| ExportError::Damaged { line: 1, why };
    let Some((line, text)) = first else { return Err(damaged("there is none".into())) };
    let text = text?;
    let ExportLine::Tree { form, system } = parsed(line, &text)? else {
        return Err(damaged("it does not say which installation it is".into()));
    };
    let slots = usize::try_from(system.slots).ok();
    if form != FORM || Schema(system.schema) > Schema::KNOWN || slots != Some(limits::SLOTS) {
        return Err(damaged("it was written by a program that this one does not know".into()));
    }
    Ok(system)
}
