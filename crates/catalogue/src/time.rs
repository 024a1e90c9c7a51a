//! The record of the tree time. The next start and other replicas continue from it, and the write of it shows the clock
//! of the tree.

use serde::{Deserialize, Serialize};

use super::{Catalogue, failed, from_json, layout, to_json};
use angarium_clock::TimeRecords;
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::error::Error;
use angarium_core::time::Timestamp;

#[derive(Serialize, Deserialize)]
struct TimeRecord {
    /// Milliseconds since the Unix epoch.
    time: u64,
}

/// The record of the time when it was read.
#[derive(Clone, Copy, Debug)]
pub struct LastTime {
    /// The recorded time, and the tree's clock at the write.
    pub recorded: TimeRecords,
    /// The transaction that wrote it. It is greater than that of every earlier write.
    pub transaction: u64,
}

/// A write that showed the tree's clock.
#[derive(Clone, Copy, Debug)]
pub struct TimeWrite {
    /// Time of the tree's clock at the write or later.
    pub servers: Timestamp,
    /// The transaction of the write, or a later one.
    pub transaction: u64,
}

impl Catalogue {
    /// Returns whether the tree has its own clock, which all replicas follow.
    pub fn keeps_time(&self) -> bool {
        self.tree.keeps_time()
    }

    /// Returns the last recorded time; none before the first record.
    pub async fn time(&self) -> Result<Option<LastTime>, Error> {
        let Some(node) = self.node(layout::TIME).await? else { return Ok(None) };
        let TimeRecord { time } = from_json(&node)?;
        let recorded = TimeRecords { time: Timestamp::from_millis(time), servers: node.time };
        Ok(Some(LastTime { recorded, transaction: node.modified }))
    }

    /// Records the time, and returns the time of the tree's clock.
    pub async fn time_record(&self, now: Timestamp) -> Result<TimeWrite, Error> {
        self.time_write(layout::TIME, now).await
    }

    /// Returns the time of the tree's clock, by a write to another node than the record.
    pub async fn time_probe(&self, now: Timestamp) -> Result<Timestamp, Error> {
        self.time_write(layout::CLOCK, now).await.map(|written| written.servers)
    }

    async fn time_write(&self, path: &str, now: Timestamp) -> Result<TimeWrite, Error> {
        let data = to_json(&TimeRecord { time: now.as_millis() });
        let set = Op::Set { path: path.into(), data: data.clone(), version: None };
        let mut transaction = None;
        match self.tree.commit(&[], &[set]).await {
            Ok(committed) => transaction = committed.into_iter().flatten().next().map(|stat| stat.modified),
            Err(TreeError::Refused { why: Refusal::NoNode, .. }) => {
                match self.tree.commit(&[], &[Op::create(path, data)]).await {
                    // Another replica may have just created it, which shows the clock as well.
                    Ok(_) | Err(TreeError::Refused { why: Refusal::NodeExists, .. }) => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            Err(error) => return Err(failed(error)),
        }
        let node = self.node(path).await?;
        let (servers, modified) = node.map_or((now, 0), |node| (node.time, node.modified));
        Ok(TimeWrite { servers, transaction: transaction.unwrap_or(modified) })
    }
}
