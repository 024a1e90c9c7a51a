//! A flavor: a name for a set of pools, and the capabilities of that set.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::durability::Durability;
use crate::names::FlavorName;

/// The record of a flavor in the catalogue: it exists. Each pool names its flavor, and the capabilities follow from the
/// pools. Each fact is stored once, so the two cannot disagree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flavor {}

/// A capability of a storage, in Zaqar's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Capability {
    /// Messages are claimed in the order in which they were posted.
    Fifo,
    /// Messages can be claimed.
    Claims,
    /// Acknowledged writes survive the end of the storage's process, and a power cut.
    Durability,
    /// Every message is delivered at least once.
    Aod,
    /// High throughput.
    HighThroughput,
}

impl Capability {
    /// All capabilities, in Zaqar's order.
    pub const ALL: [Self; 5] = [Self::Fifo, Self::Claims, Self::Durability, Self::Aod, Self::HighThroughput];

    /// Returns the capabilities of queues whose pools all reach this class. The engine provides all but durability with
    /// any storage; only the storage decides whether an acknowledged write survives more than the process.
    pub fn of(class: Durability) -> Vec<Self> {
        let is_given = |capability: &Self| match capability {
            Self::Durability => class == Durability::Sync,
            Self::Fifo | Self::Claims | Self::Aod | Self::HighThroughput => true,
        };
        Self::ALL.into_iter().filter(is_given).collect()
    }

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
    fn only_power_safe_storage_is_durable() {
        assert_eq!(Capability::of(Durability::Sync), Capability::ALL);
        let relaxed = Capability::of(Durability::Relaxed);
        assert_eq!((relaxed.len(), relaxed.contains(&Capability::Durability)), (4, false));
    }

    #[test]
    fn a_record_with_capabilities_of_its_own_is_read() {
        let read: Flavor = serde_json::from_str(r#"{"capabilities": ["FIFO"]}"#).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), "{}");
    }

    #[test]
    fn capabilities_are_written_in_zaqars_words() {
        for capability in Capability::ALL {
            let json = serde_json::to_string(&capability).unwrap();
            assert_eq!(json, format!("\"{}\"", capability.as_str()));
        }
    }
}
