//! Protection of the tree: whether its nodes are open to every client of the ensemble, or closed to all but the identity
//! of the service.
//!
//! The data of `/run/writers` is `closed` in a closed tree, and `closing` until its last node is closed. A tree is closed
//! from its first session on if that session has an identity; one that began open stays open, so that replicas without an
//! identity find what the others create, until [`secure`](super::secure) closes it. Then each session learns of it within
//! one sixth of its timeout, and replaces its writer's node, whose name shows how the session creates nodes: see
//! [`Writer`](super::writer::Writer).
//!
//! A stranger may have prepared the upper nodes of a tree that declares itself closed. Each session reads its own ids
//! from its writer's node, and compares the ACLs of the upper nodes with them. While a login is replaced, the session
//! with the new login alone finds the earlier one there: it cannot tell that one from a stranger's, so the tree is shared
//! until it is secured again.

use zookeeper_client::{Acl, Acls, Client, CreateMode, CreateOptions, Error as ZkError, Permission};

use super::writer::WRITERS;

/// The data of [`WRITERS`] in a closed tree.
const CLOSED: &[u8] = b"closed";
/// The data of [`WRITERS`] while a tree is being closed: new nodes are closed, and earlier ones may be open.
const CLOSING: &[u8] = b"closing";
/// Its directory.
const RUN: &str = "/run";
/// The upper nodes of the tree: a client with rights to one of them can add nodes that replicas use.
const UPPER: [&str; 5] = ["/", "/meta", "/queues", RUN, WRITERS];

/// Who may use the nodes of the tree. A later variant protects more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// Every client of the ensemble.
    Open,
    /// The identity of the service, and another one that has rights to upper nodes. New nodes are closed.
    Shared,
    /// The identity of the service.
    Closed,
}

impl Protection {
    /// Returns the ACL of new nodes: all rights for everyone, or for the ids of the session that creates them.
    pub(super) fn acls(self) -> Acls<'static> {
        match self {
            Self::Open => Acls::anyone_all(),
            Self::Shared | Self::Closed => Acls::creator_all(),
        }
    }

    /// Reads the protection of a tree, for a session with this identity. A declaration that every client could have
    /// written does not count. Without an identity a closed tree is not told from a shared one.
    pub(super) async fn read(client: &Client, identity: Option<&Identity>) -> Result<Self, ZkError> {
        let (data, _) = client.get_data(WRITERS).await?;
        if data != CLOSED && data != CLOSING {
            return Ok(Self::Open);
        }
        let (acl, _) = client.get_acl(WRITERS).await?;
        if is_open(&acl) {
            return Ok(Self::Open);
        }
        // The upper nodes are closed after the declaration that the closing has begun.
        let Some(identity) = identity.filter(|_| data == CLOSED) else { return Ok(Self::Closed) };
        let is_shared = identity.shares_upper_nodes(client).await?;
        Ok(if is_shared { Self::Shared } else { Self::Closed })
    }

    /// Returns the protection that a session with an identity gives a new tree. A root with nodes of others is not new:
    /// they may have prepared them. Closes the root of a new tree, so that they add none from then on.
    pub(super) async fn of_new_tree(client: &Client) -> Result<Self, ZkError> {
        if !is_new(client).await? {
            return Ok(Self::Open);
        }
        close_open(client, "/").await?;
        Ok(if is_new(client).await? { Self::Closed } else { Self::Open })
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
            Self::Shared | Self::Closed => CLOSED,
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

/// Returns whether a tree has no nodes but those with which another session with the identity has begun.
async fn is_new(client: &Client) -> Result<bool, ZkError> {
    let names = client.list_children("/").await?;
    if names.is_empty() {
        return Ok(true);
    }
    if names != [&RUN[1..]] {
        return Ok(false);
    }
    let (acl, _) = client.get_acl(RUN).await?;
    let names = client.list_children(RUN).await?;
    Ok(!is_open(&acl) && names.iter().all(|name| format!("{RUN}/{name}") == WRITERS))
}

/// Closes the root and the directories of the writers in a closed tree: an operator may have created the root, open.
pub(super) async fn close_top(client: &Client) -> Result<(), ZkError> {
    for path in ["/", RUN, WRITERS] {
        close_open(client, path).await?;
    }
    Ok(())
}

/// Closes a node if it is open. One that this session may not close stays open.
async fn close_open(client: &Client, path: &str) -> Result<(), ZkError> {
    let (acl, _) = client.get_acl(path).await?;
    if !is_open(&acl) {
        return Ok(());
    }
    match client.set_acl(path, &Acls::creator_all(), None).await {
        Ok(_) | Err(ZkError::NoAuth) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns whether this ACL gives a right to clients without an identity: to all of them, or to those at some addresses.
fn is_open(acl: &[Acl]) -> bool {
    acl.iter().any(|entry| matches!(entry.scheme(), "world" | "ip"))
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

    /// Returns whether the ACL grants rights to ids of the session alone. They need not be all of its ids, nor have all
    /// rights: a session has two logins while one replaces the other.
    fn has_only_own(&self, acl: &[Acl]) -> bool {
        let is_own = |entry: &Acl| self.0.iter().any(|own| own.auth_id() == entry.auth_id());
        // ZooKeeper takes an empty ACL for an open one.
        !acl.is_empty() && acl.iter().all(is_own)
    }

    /// Returns whether another has rights to an upper node of the tree. One whose ACL the session may not read is that
    /// of another.
    async fn shares_upper_nodes(&self, client: &Client) -> Result<bool, ZkError> {
        // The client sends requests at creation, so all answers together take one round trip.
        let requests: Vec<_> = UPPER.iter().map(|path| client.get_acl(path)).collect();
        let mut is_shared = false;
        for request in requests {
            match request.await {
                Ok((acl, _)) => is_shared |= !self.has_only_own(&acl),
                Err(ZkError::NoAuth) => is_shared = true,
                Err(ZkError::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(is_shared)
    }
}
