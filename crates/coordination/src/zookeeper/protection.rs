//! Protection of the tree: whether its nodes are open to every client of the ensemble, or closed to all but the identity
//! of the service.
//!
//! The data of `/run/writers` is `closed` in a closed tree, and `closing` until its last node is closed. A tree is closed from its first session on if that session
//! has an identity; one that began open stays open, so that replicas without an identity find what the others create,
//! until [`secure`](super::secure) closes it. Then each session learns of it within one sixth of its timeout, and
//! replaces its writer's node, whose name shows how the session creates nodes: see [`Writer`](super::writer::Writer).

use zookeeper_client::{Acl, Acls, Client, CreateMode, CreateOptions, Error as ZkError, Permission};

use super::writer::WRITERS;

/// The data of [`WRITERS`] in a closed tree.
const CLOSED: &[u8] = b"closed";
/// The data of [`WRITERS`] while a tree is being closed: new nodes are closed, and earlier ones may be open.
const CLOSING: &[u8] = b"closing";
/// Its directory.
const RUN: &str = "/run";

/// Who may use the nodes of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Every client of the ensemble.
    Open,
    /// The identity of the service.
    Closed,
}

impl Protection {
    /// Returns the ACL of new nodes: all rights for everyone, or for the ids of the session that creates them.
    pub(super) fn acls(self) -> Acls<'static> {
        match self {
            Self::Open => Acls::anyone_all(),
            Self::Closed => Acls::creator_all(),
        }
    }

    /// Reads the protection of a tree. A declaration that every client could have written does not count.
    pub(super) async fn read(client: &Client) -> Result<Self, ZkError> {
        let (data, _) = client.get_data(WRITERS).await?;
        if data != CLOSED && data != CLOSING {
            return Ok(Self::Open);
        }
        let (acl, _) = client.get_acl(WRITERS).await?;
        Ok(if is_open(&acl) { Self::Open } else { Self::Closed })
    }

    /// Returns the protection that a session with an identity gives a new tree. A root with nodes of others is not new:
    /// they may have prepared them.
    pub(super) async fn of_new_tree(client: &Client) -> Result<Self, ZkError> {
        let names = client.list_children("/").await?;
        if names.is_empty() {
            return Ok(Self::Closed);
        }
        // Another session with the identity may have begun.
        let is_begun = names == [&RUN[1..]];
        let (acl, _) = client.get_acl(if is_begun { RUN } else { "/" }).await?;
        Ok(if is_begun && !is_open(&acl) { Self::Closed } else { Self::Open })
    }

    /// Declares that a tree is being closed, unless it is closed already. Sessions learn of it later.
    pub(super) async fn declare_closing(client: &Client) -> Result<(), ZkError> {
        let (data, _) = client.get_data(WRITERS).await?;
        if data == CLOSED { Ok(()) } else { client.set_data(WRITERS, CLOSING, None).await.map(drop) }
    }

    /// Declares that no node of a tree is open.
    pub(super) async fn declare_closed(client: &Client) -> Result<(), ZkError> {
        client.set_data(WRITERS, CLOSED, None).await.map(drop)
    }

    /// Returns whether the closing of a tree has begun and not ended.
    pub(super) async fn is_unfinished(client: &Client) -> Result<bool, ZkError> {
        let (data, _) = client.get_data(WRITERS).await?;
        Ok(data == CLOSING)
    }

    /// Creates the directory of the writers' nodes if it is missing. The creator decides about the protection of a new
    /// tree.
    pub(super) async fn create(self, client: &Client) -> Result<(), ZkError> {
        let data = match self {
            Self::Open => b"".as_slice(),
            Self::Closed => CLOSED,
        };
        create_missing(client, RUN, b"", self).await?;
        create_missing(client, WRITERS, data, self).await
    }
}

fn options(protection: Protection) -> CreateOptions<'static> {
    CreateMode::Persistent.with_acls(protection.acls())
}

async fn create_missing(
    client: &Client,
    path: &str,
    data: &[u8],
    protection: Protection,
) -> Result<(), ZkError> {
    // A creation needs rights to the parent even if the node exists; this question needs none.
    if client.check_stat(path).await?.is_some() {
        return Ok(());
    }
    match client.create(path, data, &options(protection)).await {
        Ok(_) | Err(ZkError::NodeExists) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Creates the root of the tree, with its parents, if it is missing.
pub(super) async fn create_root(client: &Client, root: &str, protection: Protection) -> Result<(), ZkError> {
    if client.check_stat(root).await?.is_some() {
        return Ok(());
    }
    client.mkdir(root, &options(protection)).await
}

/// Closes the root and the directories of the writers in a closed tree: an operator may have created the root, open.
pub(super) async fn close_top(client: &Client, identity: &Identity) -> Result<(), ZkError> {
    for path in ["/", RUN, WRITERS] {
        let (acl, _) = client.get_acl(path).await?;
        if !identity.owns_alone(&acl) && is_open(&acl) {
            client.set_acl(path, &Acls::creator_all(), None).await?;
        }
    }
    Ok(())
}

/// Returns whether every client has some right by this ACL.
fn is_open(acl: &[Acl]) -> bool {
    acl.iter().any(|entry| entry.scheme() == "world")
}

/// The ids that ZooKeeper has given a session.
#[derive(Clone, Debug)]
pub(super) struct Identity(Vec<Acl>);

impl Identity {
    /// Reads the ids of the session from a node that it has created with the ACL of its creator.
    pub(super) async fn read(client: &Client, path: &str) -> Result<Self, ZkError> {
        let (acl, _) = client.get_acl(path).await?;
        Ok(Self(acl))
    }

    /// Returns whether the ACL grants all rights to each id of the session, and none to any other.
    pub(super) fn owns_alone(&self, acl: &[Acl]) -> bool {
        acl.len() == self.0.len() && self.0.iter().all(|entry| acl.contains(entry))
    }

    /// Returns whether the ACL grants all rights to one of the ids of the session.
    pub(super) fn shares(&self, acl: &[Acl]) -> bool {
        acl.iter().any(|entry| entry.permission().has(Permission::ALL) && self.0.contains(entry))
    }
}
