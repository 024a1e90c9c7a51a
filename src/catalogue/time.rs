//! The record of the time: written every minute, so that the next start knows how far time had come, and so that the
//! time of the write can be learnt.

use serde::{Deserialize, Serialize};

use super::{Catalogue, failed, from_json, layout, to_json};
use crate::coordination::{Op, Refusal, TreeError};
use crate::domain::time::Timestamp;
use crate::error::Error;

#[derive(Serialize, Deserialize)]
struct TimeRecord {
    /// Milliseconds since the Unix epoch.
    time: u64,
}

impl Catalogue {
    /// Whether the tree has a clock of its own, which then is everybody's.
    pub fn keeps_time(&self) -> bool {
        self.tree.keeps_time()
    }

    /// How far time had come at the last write of the record; none before the first.
    pub async fn time(&self) -> Result<Option<Timestamp>, Error> {
        let node = self.node(layout::TIME).await?;
        let record: Option<TimeRecord> = node.as_ref().map(from_json).transpose()?;
        Ok(record.map(|record| Timestamp::from_millis(record.time)))
    }

    /// Records the time, and returns what the tree's clock showed at that write.
    pub async fn time_record(&self, now: Timestamp) -> Result<Timestamp, Error> {
        let data = to_json(&TimeRecord { time: now.as_millis() });
        let set = Op::Set { path: layout::TIME.into(), data: data.clone(), version: None };
        match self.tree.commit(&[], &[set]).await {
            Ok(_) => {}
            Err(TreeError::Refused { why: Refusal::NoNode, .. }) => {
                self.tree.commit(&[], &[Op::create(layout::TIME, data)]).await.map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        let node = self.node(layout::TIME).await?;
        Ok(node.map_or(now, |node| node.time))
    }
}
