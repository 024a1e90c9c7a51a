//! The writer's node: an ephemeral node that every multi of a session sets, and no other process does (P15).
//!
//! It tells whether a multi whose answer was lost was applied. Its data is the number of the last multi, or
//! `not` and the number of one that was given up by setting the node in its place: such a multi finds a version
//! that it does not expect, however late it arrives, and is refused.

use uuid::Uuid;
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};

use super::session::SessionLoss;

/// The directory of the writers' nodes.
pub(super) const WRITERS: &str = "/run/writers";

/// The node of one session.
pub(super) struct Writer {
    path: String,
    /// The version that the node has, if the last multi is settled.
    version: i32,
    /// The number of the multi that is under way, or is next.
    number: u64,
}

/// What became of a multi whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LostMulti {
    /// It was applied, by this transaction.
    Applied(u64),
    /// It was not applied and never will be.
    NotApplied,
}

impl Writer {
    /// Makes a node. Its name is new, so that no node of a lost session is in its way.
    pub(super) async fn create(client: &Client) -> Result<Self, ZkError> {
        let path = format!("{WRITERS}/{}", Uuid::new_v4());
        client.create(&path, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await?;
        Ok(Self { path, version: 0, number: 1 })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn version(&self) -> i32 {
        self.version
    }

    /// What the node holds when the multi under way is applied.
    pub(super) fn mark(&self) -> Vec<u8> {
        self.number.to_string().into_bytes()
    }

    fn counter_mark(&self) -> Vec<u8> {
        format!("not {}", self.number).into_bytes()
    }

    /// Notes that the multi under way is settled, and which version the node has now.
    pub(super) fn settled(&mut self, version: i32) {
        self.version = version;
        self.number += 1;
    }

    /// Settles a multi whose outcome is unknown, over a connection of the same session. None when this did not
    /// get an answer either, and must be asked again.
    pub(super) async fn find_out(&mut self, client: &Client) -> Result<Option<LostMulti>, SessionLoss> {
        let set = client.set_data(&self.path, &self.counter_mark(), Some(self.version)).await;
        let error = match set {
            Ok(stat) => {
                self.settled(stat.version);
                return Ok(Some(LostMulti::NotApplied));
            }
            Err(error) => error,
        };
        match error {
            // Either the multi set it, or an earlier call of this whose answer was lost too.
            ZkError::BadVersion => {}
            ZkError::NoNode => return Err(self.gone()),
            _ => return Ok(None),
        }
        let (data, stat) = match client.get_data(&self.path).await {
            Ok(node) => node,
            Err(ZkError::NoNode) => return Err(self.gone()),
            Err(_) => return Ok(None),
        };
        let found = if data == self.mark() {
            LostMulti::Applied(stat.mzxid.cast_unsigned())
        } else if data == self.counter_mark() {
            LostMulti::NotApplied
        } else {
            return Err(SessionLoss(format!("{} was set by another process", self.path)));
        };
        self.settled(stat.version);
        Ok(Some(found))
    }

    /// What it means that the node is not there or not as it was left: its session has ended, or was replaced.
    pub(super) fn gone(&self) -> SessionLoss {
        SessionLoss(format!("{} is gone, and so is the session", self.path))
    }
}
