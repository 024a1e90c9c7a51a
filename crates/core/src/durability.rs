//! The durability class of an acknowledged write.

use std::fmt;
use std::str::FromStr;

/// The promise of an acknowledgement. The classes are ordered: the greater one promises more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// The write survives the end of the process. A power cut may lose the writes of the last
    /// [`limits::RELAXED_SYNC`](crate::limits::RELAXED_SYNC).
    Relaxed,
    /// The write is on disk, or wherever the pool stores data that survives a power cut.
    #[default]
    Sync,
}

impl Durability {
    /// The word for the class, in metadata and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Relaxed => "relaxed",
            Self::Sync => "sync",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Durability {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "relaxed" => Ok(Self::Relaxed),
            "sync" => Ok(Self::Sync),
            _ => Err("a durability is `relaxed` or `sync`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_is_read_as_it_is_written() {
        for class in [Durability::Relaxed, Durability::Sync] {
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        assert!("Sync".parse::<Durability>().is_err());
        assert!(Durability::Relaxed < Durability::Sync);
    }
}
