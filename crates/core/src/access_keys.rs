//! The keys that SQS clients sign their requests with, and what each grants. A file of them is read by `config`.

use std::collections::HashMap;
use std::fmt;

use crate::names::ProjectId;

/// What a key is.
#[derive(Clone)]
pub struct AccessKey {
    /// Shared with the client: every holder can sign. It is kept as it is, because a signature is checked
    /// with it.
    pub secret: String,
    /// The account: the project whose queues it uses.
    pub project: ProjectId,
}

/// Keys by their ids.
#[derive(Clone, Debug, Default)]
pub struct AccessKeyTable(HashMap<String, AccessKey>);

impl AccessKeyTable {
    /// The key with this id.
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
