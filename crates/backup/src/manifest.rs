//! The head and the manifest of a backup, and the checks of everything that they name.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::limits;
use angarium_core::data_files;
use angarium_journal::Space;

/// The form of backups that this program writes and reads.
pub const FORM: u32 = 1;

/// What a backup is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The form of the backup.
    pub form: u32,
    /// Version of the program that wrote it.
    pub program: String,
    /// Id of the installation.
    pub installation: Uuid,
    /// Generation of its tree.
    pub generation: u32,
    /// The form of records in force.
    pub schema: u32,
    /// Tree time at the moment of the backup, in milliseconds since the Unix epoch.
    pub point: u64,
    /// Tree time just before that moment: everything acknowledged by then is in the backup.
    pub begun: u64,
    /// The machine's clock at that moment.
    pub clock: u64,
    /// Microseconds for which the commits stopped.
    pub stopped_us: u64,
    /// Paths of the journals below the data directory; the first one has the tree.
    pub journals: Vec<String>,
    /// Names of the key spaces of each journal, in the order of its parts.
    pub spaces: Vec<String>,
    /// Names of the pools whose messages are stored elsewhere, and are not in the backup.
    pub outside: Vec<String>,
}

/// The sums of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartSum {
    /// Path of the journal.
    pub journal: String,
    /// Name of the key space.
    pub space: String,
    /// Number of pairs of key and value.
    pub pairs: u64,
    /// Bytes of the contents of its frames.
    pub bytes: u64,
    /// SHA-256 of these bytes, in hex.
    pub sha256: String,
}

/// The head of a backup, and the sums of all its parts in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The head.
    pub head: Head,
    /// One for each key space of each journal.
    pub parts: Vec<PartSum>,
}

impl Manifest {
    /// Returns the text of the file `manifest.json`.
    pub fn text(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("a manifest has text keys");
        text + "\n"
    }

    /// Number of pairs of all parts.
    pub fn pairs(&self) -> u64 {
        self.parts.iter().map(|part| part.pairs).fold(0, u64::saturating_add)
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add)
    }
}

impl Head {
    /// Reads and checks a head. The error states why it cannot be used.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form {
            form: u32,
        }
        let form: Form = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if form.form != FORM {
            return Err(format!("it has form {}, and this program reads form {FORM}", form.form));
        }
        let head: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        head.check()?;
        Ok(head)
    }

    /// Checks everything that the head names. The error states why it cannot be used.
    pub fn check(&self) -> Result<(), String> {
        self.spaces()?;
        self.check_journals()?;
        if self.outside.len() > limits::BACKUP_OUTSIDE {
            return Err(format!("it names {} pools elsewhere", self.outside.len()));
        }
        if [&self.program].into_iter().chain(&self.outside).all(|text| is_printable(text)) {
            Ok(())
        } else {
            Err("the version of its program or the name of a pool is too long or has control characters"
                .to_owned())
        }
    }

    /// Returns the key spaces. Fails if this program does not know one, or one is named twice.
    pub fn spaces(&self) -> Result<Vec<Space>, String> {
        let known = |name: &String| {
            let space = Space::contents().find(|space| space.name() == name);
            space.ok_or_else(|| format!("this program knows no key space {:?}", brief(name)))
        };
        let spaces = self.spaces.iter().map(known).collect::<Result<Vec<_>, _>>()?;
        let unique: BTreeSet<_> = spaces.iter().map(|space| space.name()).collect();
        if unique.len() < spaces.len() || spaces.is_empty() {
            return Err("its key spaces are not named once each".to_owned());
        }
        Ok(spaces)
    }

    /// Checks the paths of the journals: they stay below the data directory and apart from each other.
    fn check_journals(&self) -> Result<(), String> {
        if self.journals.is_empty() || self.journals.len() > limits::BACKUP_JOURNALS {
            let (found, most) = (self.journals.len(), limits::BACKUP_JOURNALS);
            return Err(format!("it has {found} journals, and a backup has 1 to {most}"));
        }
        for (index, journal) in self.journals.iter().enumerate() {
            if !is_plain(journal) {
                return Err(format!("{:?} is no path below a data directory", brief(journal)));
            }
            let (path, others) = (Path::new(journal), &self.journals[..index]);
            let overlaps = |other: &&String| path.starts_with(other) || Path::new(other).starts_with(path);
            if let Some(other) = others.iter().find(overlaps) {
                return Err(format!("the journals {:?} and {:?} overlap", brief(other), brief(journal)));
            }
        }
        Ok(())
    }
}

/// Whether a path is relative, plain and in its shortest spelling.
fn is_plain(path: &str) -> bool {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let parts: Vec<_> = Path::new(path).components().collect();
    let spelling: Vec<_> = parts.iter().filter_map(|part| part.as_os_str().to_str()).collect();
    parts.iter().copied().all(plain)
        && spelling.join("/") == path
        && !path.is_empty()
        && path.chars().count() <= limits::BACKUP_PATH_CHARS
        && !path.chars().any(char::is_control)
        && !spelling.first().is_some_and(|first| data_files::ALL.contains(first))
}

/// Whether a text can be shown as it is.
fn is_printable(text: &str) -> bool {
    text.chars().count() <= limits::BACKUP_PATH_CHARS && !text.chars().any(char::is_control)
}

/// Returns the beginning of a text that may be hostile.
fn brief(text: &str) -> String {
    text.chars().take(limits::BACKUP_PATH_CHARS).collect()
}
