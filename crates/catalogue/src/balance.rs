//! The record of automatic balance: the last round, and the moves that the last rounds with moves began.

use serde::{Deserialize, Serialize};

use super::{Catalogue, OwnedSlot, failed, from_json, layout, to_json};
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::error::Error;
use angarium_core::names::{QueueRef, address};

/// The last round of automatic balance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BalanceRecord {
    /// Its time in milliseconds since the Unix epoch.
    pub at: u64,
    /// Address of the replica that made it.
    pub replica: String,
    /// Its outcome, for operators.
    pub outcome: String,
    /// The moves that it and earlier rounds have decided, the newest first.
    pub moves: Vec<AutomaticMove>,
}

/// A move that automatic balance has decided. Its round records it first and begins it then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AutomaticMove {
    #[serde(flatten, with = "address")]
    pub at: QueueRef,
    /// Time of its round in milliseconds since the Unix epoch.
    pub since: u64,
    /// The pool that the queue leaves.
    pub from: String,
    /// The pool that the queue moves to.
    pub to: String,
    /// The reason, for operators.
    pub reason: String,
    /// Why its migration was not begun; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Catalogue {
    /// Returns the last round of automatic balance; none when there was none.
    pub async fn balance(&self) -> Result<Option<BalanceRecord>, Error> {
        let node = self.node(layout::BALANCE).await?;
        node.as_ref().map(from_json).transpose()
    }

    /// Replaces the record of automatic balance in a commit that checks the owner of `slot`.
    pub async fn balance_write(&self, slot: &OwnedSlot, record: &BalanceRecord) -> Result<(), Error> {
        let data = to_json(record);
        let set = Op::Set { path: layout::BALANCE.to_owned(), data: data.clone(), version: None };
        match self.commit_as_owner(slot, &[], &[set]).await {
            Err(TreeError::Refused { why: Refusal::NoNode, .. }) => {}
            written => return written.map(drop).map_err(failed),
        }
        self.commit_as_owner(slot, &[], &[Op::create(layout::BALANCE, data)]).await.map(drop).map_err(failed)
    }
}
