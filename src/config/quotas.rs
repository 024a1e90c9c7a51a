//! The settings of quotas: for every project, and the file with the quotas of single projects.
//!
//! ```toml
//! [[project]]
//! name = "acme"
//! queues = 1000
//! messages = "unbounded"  # what is not named is as for every project
//! bytes = "10GiB"         # or a number of bytes
//! ```

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;

use super::layers::in_words;
use angarium_core::maps::{HashKeys, HashMap};
use angarium_core::names::ProjectId;
use angarium_core::quota::{Quota, QuotaTable};
use angarium_settings::files;
use angarium_settings::units;

/// Bounds of what a project holds. Beyond one of them a request that adds to it is answered 429.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Quotas of projects")]
pub struct QuotaSettings {
    /// Queues that each project may have; unlimited when absent
    #[arg(long, env = "ANGARIUM_PROJECT_QUEUES", value_name = "NUMBER")]
    pub project_queues: Option<u64>,

    /// Messages that each project may have in all its queues, claimed and delayed ones too
    #[arg(long, env = "ANGARIUM_PROJECT_MESSAGES", value_name = "NUMBER")]
    pub project_messages: Option<u64>,

    /// Bytes that the bodies of those messages may have
    #[arg(long, env = "ANGARIUM_PROJECT_BYTES", value_name = "SIZE", value_parser = units::bytes)]
    pub project_bytes: Option<u64>,

    /// File of the projects that have other quotas. It is read again when it changes
    #[arg(long, env = "ANGARIUM_QUOTAS", value_name = "FILE")]
    pub quotas: Option<PathBuf>,
}

impl QuotaSettings {
    /// Returns the quota of a project that is not in the file.
    pub fn default_quota(&self) -> Quota {
        Quota { queues: self.project_queues, messages: self.project_messages, bytes: self.project_bytes }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaFile {
    #[serde(default)]
    project: Vec<QuotaEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaEntry {
    name: String,
    queues: Option<Bound>,
    messages: Option<Bound>,
    bytes: Option<SizeBound>,
}

/// As [`Bound`], of bytes: also a size with its unit.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "toml::Value")]
struct SizeBound(Option<u64>);

impl TryFrom<toml::Value> for SizeBound {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match &value {
            toml::Value::String(text) if text != "unbounded" => {
                let wrong = |_| "a bound is a size as in 10485760 or \"10MiB\", or \"unbounded\"".to_owned();
                units::bytes(text).map(|size| Self(Some(size))).map_err(wrong)
            }
            _ => Bound::try_from(value).map(|Bound(bound)| Self(bound)),
        }
    }
}

/// A bound, or the word for none.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "toml::Value")]
struct Bound(Option<u64>);

impl TryFrom<toml::Value> for Bound {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match value {
            toml::Value::Integer(number) => u64::try_from(number).ok().map(|number| Self(Some(number))),
            toml::Value::String(word) if word == "unbounded" => Some(Self(None)),
            _ => None,
        }
        .ok_or_else(|| "a bound is a whole number, or \"unbounded\"".to_owned())
    }
}

/// Reads a file of quotas. An error has the name of the file.
pub fn read(path: &Path, default: Quota) -> Result<QuotaTable, String> {
    let text = files::read_text(path, files::SETTINGS_FILE_BYTES).map_err(|error| error.to_string());
    text.and_then(|text| parse(&text, default)).map_err(|why| format!("{}: {why}", path.display()))
}

fn parse(text: &str, default: Quota) -> Result<QuotaTable, String> {
    let file: QuotaFile = toml::from_str(text).map_err(|error| in_words(text, &error))?;
    let mut projects = HashMap::with_capacity_and_hasher(file.project.len(), HashKeys);
    for QuotaEntry { name, queues, messages, bytes } in file.project {
        if name.is_empty() {
            return Err("a project has no name".to_owned());
        }
        let project = ProjectId::new(&name).map_err(|error| format!("project {name}: {error}"))?;
        let or = |named: Option<Bound>, default| named.map_or(default, |Bound(bound)| bound);
        let quota = Quota {
            queues: or(queues, default.queues),
            messages: or(messages, default.messages),
            bytes: bytes.map_or(default.bytes, |SizeBound(bound)| bound),
        };
        if projects.insert(project, quota).is_some() {
            return Err(format!("project {name} is there twice"));
        }
    }
    Ok(QuotaTable::new(default, projects))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Quota = Quota { queues: Some(5), messages: Some(50), bytes: None };

    #[test]
    fn project_quota_is_from_file_or_default() {
        let text = "[[project]]\nname='a'\nqueues=7\nmessages='unbounded'\n[[project]]\nname='b'\nbytes=0";
        let table = parse(text, DEFAULT).unwrap();
        let of = |name| table.of(&ProjectId::new(name).unwrap());
        assert_eq!(of("a"), Quota { queues: Some(7), messages: None, bytes: None });
        assert_eq!(of("b"), Quota { bytes: Some(0), ..DEFAULT });
        assert_eq!(of("c"), DEFAULT);
        let table = parse("[[project]]\nname='a'\nbytes='10MiB'", DEFAULT).unwrap();
        assert_eq!(table.of(&ProjectId::new("a").unwrap()).bytes, Some(10 << 20));
    }

    #[test]
    fn wrong_quota_is_named() {
        for (text, said) in [
            ("[[project]]\nname='a'\nqueues=-1", "a bound is a whole number"),
            ("[[project]]\nname='a'\nqueues='none'", "a bound is a whole number"),
            ("[[project]]\nname='a'\nbytes='much'", "a bound is a size"),
            ("[[project]]\nname='a'\nqueues='10MiB'", "a bound is a whole number"),
            ("[[project]]\nname=''", "a project has no name"),
            ("[[project]]\nname='a'\n[[project]]\nname='a'", "project a is there twice"),
            ("[[project]]\nqueues=1", "name"),
            ("[[project]]\nname='a'\nmesages=1", "mesages"),
            ("[[projects]]", "projects"),
        ] {
            let error = parse(text, DEFAULT).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
