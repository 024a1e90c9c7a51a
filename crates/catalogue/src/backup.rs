//! A tree as lines of text, and back: all of it that outlives the processes, to be put into an empty tree.
//!
//! The first line states which installation it is, then each node has one, parents before what is below them, and the
//! last line states how many there were. Who serves what now is left out, and so are those who are up.

use std::borrow::Cow;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error as ThisError;
use uuid::Uuid;

use super::{Catalogue, Schema, System, failed, from_json, layout, to_json};
use angarium_coordination::{Fence, Node, Op};
use angarium_core::error::Error;
use angarium_core::limits;

/// The form of the lines.
const FORM: u32 = 1;
/// Names of a directory that are read at a time.
const PAGE: usize = 1_000;
/// Bytes of nodes in a commit. The fence, and what a path takes beside its node, has room in what is left.
const COMMIT_BYTES: usize = limits::TREE_BATCH_BYTES / 2;

/// Why a tree was not written down, or not put into another.
#[derive(Debug, ThisError)]
pub enum BackupError {
    #[error("the tree could not be used: {}", cause(.0))]
    Tree(#[from] Error),
    /// The lines could not be read or written.
    #[error("the lines of the tree")]
    Lines(#[from] io::Error),
    /// There is nothing to write down.
    #[error("the tree is empty: no service was started on it yet")]
    Empty,
    /// There is an installation already. Nothing was written.
    #[error("the tree is not empty: it holds installation {0}")]
    NotEmpty(Uuid),
    /// The lines are not those of a whole tree.
    #[error("line {line}: {why}")]
    Damaged {
        /// Which one, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
}

/// An error with its cause, which its text leaves out because it is written for clients.
fn cause(error: &Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// What was written down, or put in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The installation, as it is in the tree now.
    pub system: System,
    /// How many nodes.
    pub nodes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum BackupLine<'a> {
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
    /// Hands every line to `write`, each with its end. What changes meanwhile may be in it or not; a queue, a claim or a
    /// pool is in it whole or not at all.
    pub async fn export(
        &self,
        write: &mut (dyn FnMut(&[u8]) -> io::Result<()> + Send),
    ) -> Result<Backup, BackupError> {
        let system: System = from_json(&self.node(layout::SYSTEM).await?.ok_or(BackupError::Empty)?)?;
        put(write, &BackupLine::Tree { form: FORM, system: system.clone() })?;
        let mut nodes = 0;
        self.walk(&mut |path, node| {
            nodes += 1;
            // Who had a slot is nothing to him who takes it.
            let data: &[u8] = if layout::is_slot(path) { b"{}" } else { &node.data };
            let wrong = |error| io::Error::other(format!("{path} is no JSON: {error}"));
            let data = match data {
                [] => None,
                data => Some(serde_json::from_slice(data).map_err(wrong)?),
            };
            put(write, &BackupLine::Node { path: path.into(), data })
        })
        .await?;
        put(write, &BackupLine::End { nodes })?;
        Ok(Backup { system, nodes })
    }

    /// Puts the lines into an empty tree, as `generation` or the one after that of the lines, if that is greater. The
    /// installation is there when all of it is: one that was cut short may be repeated, and no service starts on it.
    pub async fn import(
        &self,
        lines: &mut (dyn Iterator<Item = io::Result<String>> + Send),
        generation: u32,
    ) -> Result<Backup, BackupError> {
        if let Some(node) = self.node(layout::SYSTEM).await? {
            return Err(BackupError::NotEmpty(from_json::<System>(&node)?.id));
        }
        let mut lines = (1..).zip(lines);
        let mut system = head(lines.next())?;
        system.generation = system.generation.saturating_add(1).max(generation);
        let mut filling = self.begin_import().await?;
        let mut nodes = 0;
        for (line, text) in &mut lines {
            let text = text?;
            match parsed(line, &text)? {
                BackupLine::Node { path, data } if layout::outlives(&path) => {
                    nodes += 1;
                    let data = data.map_or(String::new(), |data| data.get().to_owned());
                    filling.add(self, Op::create(path, data)).await?;
                }
                BackupLine::End { nodes: written } if written == nodes => {
                    if lines.next().is_some() {
                        return Err(BackupError::Damaged { line: line + 1, why: "more than the end".into() });
                    }
                    filling.finish(self, &system).await?;
                    return Ok(Backup { system, nodes });
                }
                BackupLine::End { .. } => {
                    return Err(BackupError::Damaged {
                        line,
                        why: "lines are missing before the end".into(),
                    });
                }
                BackupLine::Node { .. } | BackupLine::Tree { .. } => {
                    return Err(BackupError::Damaged { line, why: "it has no place here".into() });
                }
            }
        }
        Err(BackupError::Damaged { line: nodes + 2, why: "the end is missing".into() })
    }

    /// Marks the tree as being filled, and clears away what one that was cut short has left.
    async fn begin_import(&self) -> Result<RestoreBatch, BackupError> {
        self.create_missing(&layout::ROOTS.map(str::to_owned)).await?;
        self.create_missing(&[layout::IMPORT.to_owned()]).await?;
        // Of two at the same time the one before fails.
        let mark = Op::Set { path: layout::IMPORT.into(), data: "{}".into(), version: None };
        let marked = self.tree.commit(&[], &[mark]).await.map_err(failed)?;
        let version = marked.first().copied().flatten().map_or(0, |stat| stat.version);
        let mut left = Vec::new();
        self.walk(&mut |path, _| {
            if !layout::ROOTS.contains(&path) {
                left.push(path.to_owned());
            }
            Ok(())
        })
        .await?;
        let mut filling =
            RestoreBatch { fence: Fence { path: layout::IMPORT.into(), version }, ops: Vec::new(), bytes: 0 };
        for path in left.into_iter().rev() {
            filling.add(self, Op::Delete { path }).await?;
        }
        filling.flush(self).await?;
        Ok(filling)
    }

    /// Shows every node that outlives the processes, but for the system's own, parents before what is below them.
    async fn walk(
        &self,
        see: &mut (dyn FnMut(&str, &Node) -> io::Result<()> + Send),
    ) -> Result<(), BackupError> {
        let mut directories = Vec::new();
        for root in layout::ROOTS {
            if let Some(node) = self.node(root).await? {
                see(root, &node)?;
                directories.push(root.to_owned());
            }
        }
        while let Some(directory) = directories.pop() {
            let mut after: Option<String> = None;
            loop {
                let names =
                    self.tree.children_behind(&directory, after.as_deref(), PAGE).await.map_err(failed)?;
                let paths = names.iter().map(|name| format!("{directory}/{name}"));
                let paths: Vec<String> = paths.filter(|path| layout::outlives(path)).collect();
                for paths in paths.chunks(limits::TREE_BATCH_OPS) {
                    let nodes = self.tree.get_many(paths).await.map_err(failed)?;
                    // One that is gone by now was not to be.
                    for (path, node) in paths.iter().zip(nodes).filter_map(|(path, node)| Some((path, node?)))
                    {
                        see(path, &node)?;
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

/// Nodes on their way into a tree.
struct RestoreBatch {
    /// No other replica is filling it.
    fence: Fence,
    ops: Vec<Op>,
    bytes: usize,
}

impl RestoreBatch {
    async fn add(&mut self, catalogue: &Catalogue, op: Op) -> Result<(), BackupError> {
        // The roots were made with the mark.
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

    async fn flush(&mut self, catalogue: &Catalogue) -> Result<(), BackupError> {
        let ops = std::mem::take(&mut self.ops);
        self.bytes = 0;
        if ops.is_empty() {
            return Ok(());
        }
        catalogue.tree.commit(std::slice::from_ref(&self.fence), &ops).await.map_err(failed)?;
        Ok(())
    }

    /// Makes what was put into the tree an installation.
    async fn finish(mut self, catalogue: &Catalogue, system: &System) -> Result<(), BackupError> {
        self.flush(catalogue).await?;
        let made = Op::create(layout::SYSTEM, to_json(system));
        let unmarked = Op::Delete { path: layout::IMPORT.into() };
        catalogue.tree.commit(&[self.fence], &[made, unmarked]).await.map_err(failed)?;
        Ok(())
    }
}

fn put(write: &mut (dyn FnMut(&[u8]) -> io::Result<()> + Send), line: &BackupLine<'_>) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    write(&text)
}

fn parsed(line: u64, text: &str) -> Result<BackupLine<'_>, BackupError> {
    serde_json::from_str(text).map_err(|error| BackupError::Damaged { line, why: error.to_string() })
}

/// The installation that the first line names, if this program can put it into a tree.
fn head(first: Option<(u64, io::Result<String>)>) -> Result<System, BackupError> {
    let damaged = |why: String| BackupError::Damaged { line: 1, why };
    let Some((line, text)) = first else { return Err(damaged("there is none".into())) };
    let text = text?;
    let BackupLine::Tree { form, system } = parsed(line, &text)? else {
        return Err(damaged("it does not say which installation it is".into()));
    };
    let slots = usize::try_from(system.slots).ok();
    if form != FORM || Schema(system.schema) > Schema::KNOWN || slots != Some(limits::SLOTS) {
        return Err(damaged("it was written by a program that this one does not know".into()));
    }
    Ok(system)
}
