//! Messages without their bodies: for a queue whose bodies are large or confidential. A body is read later by its id.

use serde::Deserialize;

use super::Details;
use angarium_settings::units::span;

/// A message in a response without bodies. A server that does not know that parameter sends the body, which is left
/// aside, and no length.
#[derive(Debug, Deserialize)]
pub struct MessageOutline {
    id: String,
    #[serde(default)]
    age: Option<u64>,
    #[serde(default)]
    ttl: Option<u64>,
    #[serde(default)]
    details: Details,
    #[serde(default)]
    body_bytes: Option<u64>,
}

impl MessageOutline {
    /// Column heads of a table of messages without bodies.
    pub const HEADS: &'static [&'static str] = &["ID", "STATE", "AGE", "TTL", "GROUP", "TAGS", "BYTES"];
    /// The parameter that leaves bodies out.
    pub const PARAMETER: (&'static str, &'static str) = ("bodies", "false");

    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the cells for [`Self::HEADS`].
    pub fn row(&self) -> Vec<String> {
        let absent = || "-".to_owned();
        let tags = &self.details.tags;
        vec![
            self.id.clone(),
            self.details.state(),
            self.age.map_or_else(absent, span),
            self.ttl.map_or_else(absent, span),
            self.details.group.clone().unwrap_or_else(absent),
            if tags.is_empty() { absent() } else { tags.join(", ") },
            self.body_bytes.map_or_else(absent, |bytes| bytes.to_string()),
        ]
    }
}
