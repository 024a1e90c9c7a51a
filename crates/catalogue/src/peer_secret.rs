//! The shared secret of replicas without certificates. Programs of older releases create it and show it to each other
//! in clear text. It is in the tree only while such programs may need it.

use uuid::Uuid;

use super::{Catalogue, Registry, failed, layout};
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};

impl Registry {
    /// Returns whether a replica other than `me` has no certificate.
    pub fn has_clear_text(&self, me: Uuid) -> bool {
        self.others(me).any(|other| other.fingerprints.is_empty())
    }
}

impl Catalogue {
    /// Returns the secret of replicas without certificates. Creates it as `fresh` when there is none: such a replica
    /// does the same at its start, and keeps what it has found.
    pub async fn peer_secret(&self, fresh: &str) -> Result<String, Error> {
        let missing = || Error::unavailable(Part::Coordination, "the secret of the replicas is not there");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| missing());
        if let Some(node) = self.node(layout::PEER_SECRET).await? {
            return text(node.data.into());
        }
        let create = Op::create(layout::PEER_SECRET, fresh.to_owned());
        match self.tree.commit(&[], &[create]).await {
            Ok(_) => return Ok(fresh.to_owned()),
            Err(TreeError::Refused { why: Refusal::NodeExists, .. }) => {}
            Err(error) => return Err(failed(error)),
        }
        text(self.node(layout::PEER_SECRET).await?.ok_or_else(missing)?.data.into())
    }

    /// Removes that secret, unless a replica other than `me` has no certificate. Returns whether there was one. A
    /// replica that joins at the same time creates the secret after it has joined, and so after this commit, or makes
    /// it fail.
    pub async fn peer_secret_remove(&self, me: Uuid) -> Result<bool, Error> {
        // As it is stored: a value that does not open is removed too.
        if self.tree.stored().get(layout::PEER_SECRET).await.map_err(failed)?.is_none() {
            return Ok(false);
        }
        let registry = self.registry().await?;
        if registry.has_clear_text(me) {
            return Ok(false);
        }
        let ops = [registry.unchanged(), Op::Delete { path: layout::PEER_SECRET.into() }];
        match self.tree.commit(&[], &ops).await {
            Ok(_) => Ok(true),
            Err(TreeError::Refused { why: Refusal::BadVersion | Refusal::NoNode, .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}
