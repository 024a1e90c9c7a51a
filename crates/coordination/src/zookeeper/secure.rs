//! Closes an existing tree to all but the identity of the service, while replicas with that identity use it.
//!
//! ZooKeeper sets one ACL at a time, so the tree is open in parts for a while, and replicas create nodes meanwhile:
//!
//! ```text
//! look for sessions without the identity ─▶ close the writers' directory: no such session can begin ─▶ look again
//!   ─▶ declare the tree closed ─▶ first pass ─▶ wait until every writer's node shows closed creations ─▶ passes, until
//!   one finds no open node
//! ```
//!
//! Each step may be repeated, and a pass leaves closed nodes alone. So after an interruption the same command continues.
//! A replica whose session began without the identity would lose its nodes: while there is one, nothing is closed.

use std::time::Duration;

use thiserror::Error as ThisError;
use tokio::time::Instant;
use zookeeper_client::{Acl, Acls, Client, Error as ZkError};

use super::limits::{CLOSE_PASSES, CLOSE_WAIT};
use super::protection::{Identity, Protection};
use super::session::Session;
use super::walk::Walk;
use super::writer::{WRITERS, Writer};

/// Pause between two looks at the writers' nodes.
const LOOK: Duration = Duration::from_millis(200);
/// Max sessions in an error.
const LISTED: usize = 10;

/// A tree that only the identity of the service can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecuredTree {
    /// Number of nodes of the last pass.
    pub nodes: u64,
    /// Number of nodes that this call has closed.
    pub closed: u64,
    /// Number of passes.
    pub passes: u32,
}

/// The reasons why a tree is not closed, or not known to be.
#[derive(Debug, ThisError)]
pub enum SecureError {
    /// Only an identity can close nodes.
    #[error("the session has no identity: name one with --zookeeper-auth-file, or with --zookeeper-tls-cert")]
    NoIdentity,
    /// Their nodes would be closed to these sessions. Nothing was closed.
    #[error(
        "{count} sessions use the tree without this identity: {listed}. Nothing was closed. Give the identity to their \
         replicas first, and end other programs that use the tree"
    )]
    Strangers {
        /// Number of sessions.
        count: usize,
        /// The first of them.
        listed: String,
    },
    /// A replica has not learned that the tree is closed.
    #[error(
        "{count} sessions have not learned in {} s that the tree is closed: {listed}. Run the command again",
        CLOSE_WAIT.as_secs()
    )]
    Unaware {
        /// Number of sessions.
        count: usize,
        /// The first of them.
        listed: String,
    },
    /// Nodes with another ACL are created all the time.
    #[error(
        "{open} nodes, as {first}, had another ACL after {CLOSE_PASSES} passes: a replica has other credentials; give the \
         same to all, and run the command again"
    )]
    Unsettled {
        /// Number of nodes in the last pass.
        open: u64,
        /// One of them.
        first: String,
    },
    /// Nodes are closed to this identity. All others are closed to other clients now.
    #[error(
        "{count} nodes, as {first}, are closed to this identity; all others are closed to other clients now. Delete them, \
         or add the login of their owner to the file, and run the command again"
    )]
    Foreign {
        /// Number of nodes, without those below them.
        count: u64,
        /// One of them.
        first: String,
    },
    /// A node that the service needs is closed to this identity.
    #[error(
        "a node is closed to this identity: add the login of its owner to the file, and run the command again"
    )]
    NoRight,
    /// ZooKeeper did not do it.
    #[error("ZooKeeper: {0}. Run the command again: it continues")]
    ZooKeeper(String),
}

impl From<ZkError> for SecureError {
    fn from(error: ZkError) -> Self {
        match error {
            ZkError::NoAuth => Self::NoRight,
            error => Self::ZooKeeper(error.to_string()),
        }
    }
}

/// Closes the tree. Calls `closed` after each node.
pub(super) async fn secure(
    session: &Session,
    closed: &mut (dyn FnMut(&str) + Send),
) -> Result<SecuredTree, SecureError> {
    let (client, identity) = (&session.client, session.identity.as_ref().ok_or(SecureError::NoIdentity)?);
    refuse_strangers(client, identity).await?;
    let (before, _) = client.get_acl(WRITERS).await?;
    let mut done = SecuredTree { nodes: 0, closed: 0, passes: 1 };
    if !identity.owns_alone(&before) {
        client.set_acl(WRITERS, &Acls::creator_all(), None).await?;
        if let Err(refused) = refuse_strangers(client, identity).await {
            client.set_acl(WRITERS, &before, None).await?;
            return Err(refused);
        }
        closed(WRITERS);
        done.closed += 1;
    }
    Protection::declare_closing(client).await?;
    let walk = Walk { client, identity, pause: Duration::ZERO };
    done.closed += walk.close(closed).await?.open;
    await_closed_creations(client).await?;
    loop {
        let census = walk.close(closed).await?;
        done =
            SecuredTree { nodes: census.nodes, closed: done.closed + census.open, passes: done.passes + 1 };
        match census.first {
            None => {
                Protection::declare_closed(client).await?;
                let count = census.foreign;
                return census
                    .first_foreign
                    .map_or(Ok(done), |first| Err(SecureError::Foreign { count, first }));
            }
            Some(first) if done.passes >= CLOSE_PASSES => {
                return Err(SecureError::Unsettled { open: census.open, first });
            }
            Some(_) => {}
        }
    }
}

/// A writer's node of another session or of this one.
struct WriterNode {
    name: String,
    session: i64,
    acl: Vec<Acl>,
}

async fn writers(client: &Client) -> Result<Vec<WriterNode>, ZkError> {
    client.sync(WRITERS).await?;
    let names = client.list_children(WRITERS).await?;
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        match client.get_acl(&format!("{WRITERS}/{name}")).await {
            Ok((acl, stat)) => found.push(WriterNode { name, session: stat.ephemeral_owner, acl }),
            // The node of another identity, which this one may not even look at.
            Err(ZkError::NoAuth) => found.push(WriterNode { name, session: 0, acl: Vec::new() }),
            Err(ZkError::NoNode) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn listed(writers: &[WriterNode]) -> String {
    let name = |writer: &WriterNode| match writer.session {
        0 => writer.name.clone(),
        session => format!("0x{session:x}"),
    };
    let mut listed: Vec<_> = writers.iter().take(LISTED).map(name).collect();
    if writers.len() > LISTED {
        listed.push("…".to_owned());
    }
    listed.join(" ")
}

async fn refuse_strangers(client: &Client, identity: &Identity) -> Result<(), SecureError> {
    let mut strangers = writers(client).await?;
    strangers.retain(|writer| !identity.shares(&writer.acl));
    if strangers.is_empty() {
        return Ok(());
    }
    Err(SecureError::Strangers { count: strangers.len(), listed: listed(&strangers) })
}

/// Waits until no session creates open nodes.
async fn await_closed_creations(client: &Client) -> Result<(), SecureError> {
    let end = Instant::now() + CLOSE_WAIT;
    loop {
        let mut unaware = writers(client).await?;
        unaware.retain(|writer| Writer::shown_by(&writer.name) == Protection::Open);
        if unaware.is_empty() {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(SecureError::Unaware { count: unaware.len(), listed: listed(&unaware) });
        }
        tokio::time::sleep(LOOK).await;
    }
}
