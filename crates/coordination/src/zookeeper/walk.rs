//! Walks through all nodes of the tree, parents before their children, and looks at their ACLs.

use std::time::Duration;

use zookeeper_client::{Acls, Client, Error as ZkError};

use super::limits::WALK_AT_ONCE;
use super::protection::Identity;

/// What a walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    /// Number of nodes.
    pub(super) nodes: u64,
    /// Number of nodes with rights for another than the identity of the session, or without some of its ids.
    pub(super) open: u64,
    /// The first of these nodes.
    pub(super) first: Option<String>,
    /// Number of nodes that are closed to the session. Their children are not known.
    pub(super) foreign: u64,
    /// The first of them.
    pub(super) first_foreign: Option<String>,
}

impl Census {
    fn note_foreign(&mut self, path: &str) {
        self.foreign += 1;
        self.first_foreign.get_or_insert_with(|| path.to_owned());
    }
}

/// A walk by one session.
pub(super) struct Walk<'a> {
    pub(super) client: &'a Client,
    pub(super) identity: &'a Identity,
    /// Pause after each group of nodes.
    pub(super) pause: Duration,
}

impl Walk<'_> {
    /// Counts the open nodes.
    pub(super) async fn count(&self) -> Result<Census, ZkError> {
        self.go(Act::Count, &mut |_| {}).await
    }

    /// Closes each open node, before its children are read. Calls `closed` after each.
    pub(super) async fn close(&self, closed: &mut (dyn FnMut(&str) + Send)) -> Result<Census, ZkError> {
        self.go(Act::Close, closed).await
    }

    async fn go(&self, act: Act, closed: &mut (dyn FnMut(&str) + Send)) -> Result<Census, ZkError> {
        // A server that lags behind would show nodes as foreign that this identity has now.
        self.client.sync("/").await?;
        let (mut census, mut waiting) = (Census::default(), vec!["/".to_owned()]);
        while !waiting.is_empty() {
            let group = waiting.split_off(waiting.len().saturating_sub(WALK_AT_ONCE));
            let open = self.look(&group, &mut census).await?;
            if act == Act::Close {
                self.close_all(&open, closed).await?;
            }
            let foreign = self.list(group, &mut waiting).await?;
            foreign.iter().for_each(|path| census.note_foreign(path));
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
        }
        Ok(census)
    }

    /// Counts the nodes of a group, and returns the open ones.
    async fn look<'g>(&self, group: &'g [String], census: &mut Census) -> Result<Vec<&'g str>, ZkError> {
        // The client sends requests at creation, so all answers together take one round trip.
        let requests: Vec<_> = group.iter().map(|path| (path, self.client.get_acl(path))).collect();
        let mut open = Vec::new();
        for (path, request) in requests {
            let answer = request.await;
            if matches!(answer, Err(ZkError::NoAuth)) {
                // Its children cannot be listed either, and then it is noted.
                continue;
            }
            let Some((acl, _)) = present(answer)? else { continue };
            census.nodes += 1;
            if !self.identity.owns_alone(&acl) {
                census.open += 1;
                census.first.get_or_insert_with(|| path.clone());
                open.push(path.as_str());
            }
        }
        Ok(open)
    }

    async fn close_all(&self, open: &[&str], closed: &mut (dyn FnMut(&str) + Send)) -> Result<(), ZkError> {
        let acl = Acls::creator_all();
        let requests: Vec<_> =
            open.iter().map(|path| (path, self.client.set_acl(path, &acl, None))).collect();
        for (path, request) in requests {
            let answer = request.await;
            // Others may have rights to it that this session has not. It stays an open node.
            if !matches!(answer, Err(ZkError::NoAuth)) && present(answer)?.is_some() {
                closed(path);
                // A caller may stop the walk after any node.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Adds the children of a group to the waiting nodes. Returns the nodes that are closed to the session.
    async fn list(&self, group: Vec<String>, waiting: &mut Vec<String>) -> Result<Vec<String>, ZkError> {
        let requests: Vec<_> = group.iter().map(|path| (path, self.client.list_children(path))).collect();
        let mut foreign = Vec::new();
        for (path, request) in requests {
            let answer = request.await;
            if matches!(answer, Err(ZkError::NoAuth)) {
                foreign.push(path.clone());
                continue;
            }
            let names = present(answer)?.unwrap_or_default();
            let directory = path.trim_end_matches('/');
            waiting.extend(names.iter().map(|name| format!("{directory}/{name}")));
        }
        Ok(foreign)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Count,
    Close,
}

/// Returns none for a node that was deleted meanwhile.
fn present<T>(answer: Result<T, ZkError>) -> Result<Option<T>, ZkError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}
