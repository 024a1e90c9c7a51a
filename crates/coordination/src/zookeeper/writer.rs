//! The writer's node: an ephemeral node that every multi of a session sets, and that no other process sets (P15).
//!
//! It tells whether a multi whose answer was lost was applied. Its data is the number of the last multi, or `not` and
//! the number of a voided multi. The committer voids a multi by setting the node in its place: the multi then finds an
//! unexpected version, however late it arrives, and is refused.
//!
//! Its name also shows how its multis create nodes: open, or closed to all but the identity of the service. A session
//! has one writer's node and one multi in flight. So a tree in which no name of a writer's node shows open creations
//! gets no further open node.

use uuid::Uuid;
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};

use super::protection::Protection;
use super::session::SessionLoss;

/// The directory of the writers' nodes.
pub(super) const WRITERS: &str = "/run/writers";
/// The end of the name of a node whose multis create closed nodes.
const CLOSED: &str = "-closed";

/// The node of one session.
pub(super) struct Writer {
    path: String,
    /// The version of the node, if the last multi is settled.
    version: i32,
    /// The number of the multi in flight, or of the next one.
    number: u64,
    /// Protection of the nodes that its multis create.
    protection: Protection,
}

/// The outcome of a multi whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LostMulti {
    /// Applied, by this transaction.
    Applied(u64),
    /// Not applied, and never will be.
    NotApplied,
}

impl Writer {
    /// Creates a node. Its name is new, so a node of a lost session is no conflict. No other session uses it, so a
    /// session with an identity closes it, whatever the protection of the tree: the node shows that identity.
    pub(super) async fn create(
        client: &Client,
        has_identity: bool,
        protection: Protection,
    ) -> Result<Self, ZkError> {
        let end = if protection == Protection::Open { "" } else { CLOSED };
        let path = format!("{WRITERS}/{}{end}", Uuid::new_v4());
        let acls = if has_identity { Acls::creator_all() } else { Acls::anyone_all() };
        client.create(&path, b"", &CreateMode::Ephemeral.with_acls(acls)).await?;
        Ok(Self { path, version: 0, number: 1, protection })
    }

    /// Returns the protection that the name of a writer's node shows: open, or closed for all others.
    pub(super) fn shown_by(name: &str) -> Protection {
        if name.ends_with(CLOSED) { Protection::Closed } else { Protection::Open }
    }

    /// Returns the protection of the nodes that its multis create.
    pub(super) fn protection(&self) -> Protection {
        self.protection
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn version(&self) -> i32 {
        self.version
    }

    /// Returns the data of the node if the multi in flight is applied.
    pub(super) fn mark(&self) -> Vec<u8> {
        self.number.to_string().into_bytes()
    }

    fn counter_mark(&self) -> Vec<u8> {
        format!("not {}", self.number).into_bytes()
    }

    /// Records that the multi in flight is settled, and the new version of the node.
    pub(super) fn settled(&mut self, version: i32) {
        self.version = version;
        self.number += 1;
    }

    /// Settles a multi whose outcome is unknown, over a connection of the same session. Returns none when this request
    /// got no answer either and must be repeated.
    pub(super) async fn settle(&mut self, client: &Client) -> Result<Option<LostMulti>, SessionLoss> {
        let set = client.set_data(&self.path, &self.counter_mark(), Some(self.version)).await;
        let error = match set {
            Ok(stat) => {
                self.settled(stat.version);
                return Ok(Some(LostMulti::NotApplied));
            }
            Err(error) => error,
        };
        match error {
            // Set by the multi, or by an earlier call of this function whose answer was lost too.
            ZkError::BadVersion => {}
            ZkError::NoNode => return Err(self.loss()),
            _ => return Ok(None),
        }
        let (data, stat) = match client.get_data(&self.path).await {
            Ok(node) => node,
            Err(ZkError::NoNode) => return Err(self.loss()),
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

    /// Returns the error for a writer's node that is missing or was changed: its session has ended or was replaced.
    pub(super) fn loss(&self) -> SessionLoss {
        SessionLoss(format!("{} is gone, and so is the session", self.path))
    }
}
