//! The keys with which SQS clients sign their requests, and the project that each grants. `config` reads the file of
//! keys.

use std::fmt;

use crate::maps::HashMap;
use crate::names::ProjectId;

/// An access key of SQS.
#[derive(Clone)]
pub struct AccessKey {
    /// The secret, shared with the client: every holder can sign. It is stored as plain text, because the service needs
    /// it to check a signature.
    pub secret: String,
    /// The account: the project whose queues the key's holder uses.
    pub project: ProjectId,
}

/// Access keys by their ids.
#[derive(Clone, Debug, Default)]
pub struct AccessKeyTable(HashMap<String, AccessKey>);

impl AccessKeyTable {
    /// Returns the key with this id.
    pub fn get(&self, id: &str) -> Option<&AccessKey> {
        self.0.get(id)
    }

    /// The projects of all keys.
    pub fn projects(&self) -> impl Iterator<Item = &ProjectId> {
        self.0.values().map(|key| &key.project)
    }
}

impl FromIterator<(String, AccessKey)> for AccessKeyTable {
    fn from_iter<I: IntoIterator<Item = (String, AccessKey)>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey").field("project", &self.project).finish_non_exhaustive()
    }
}
