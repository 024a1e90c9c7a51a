//! A flavor: a name for a set of pools, and what they can do.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::domain::names::FlavorName;

/// What the catalogue holds of a flavor. Which pools it has is said by the pools themselves, each of which names
/// its flavor: kept in one place, the two cannot disagree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flavor {
    /// What every queue of the flavor can rely on.
    pub capabilities: Vec<Capability>,
}

/// What a storage can do, in Zaqar's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Capability {
    /// Messages are claimed in the order in which they were posted.
    Fifo,
    /// Messages can be claimed.
    Claims,
    /// What was acknowledged survives the end of the process.
    Durability,
    /// Every message is delivered at least once.
    Aod,
    /// Many messages a second.
    HighThroughput,
}

impl Capability {
    /// All of them, in Zaqar's order. The engine gives them to every pool, whatever its storage.
    pub const ALL: [Self; 5] = [Self::Fifo, Self::Claims, Self::Durability, Self::Aod, Self::HighThroughput];

    /// The capability as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fifo => "FIFO",
            Self::Claims => "CLAIMS",
            Self::Durability => "DURABILITY",
            Self::Aod => "AOD",
            Self::HighThroughput => "HIGH_THROUGHPUT",
        }
    }
}

impl Serialize for FlavorName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for FlavorName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_written_in_zaqars_words() {
        for capability in Capability::ALL {
            let json = serde_json::to_string(&capability).unwrap();
            assert_eq!(json, format!("\"{}\"", capability.as_str()));
        }
    }
}
