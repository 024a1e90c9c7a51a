//! The file of the keys of SQS: TOML with one table per key. It holds secrets, so only the service should be able to read it.
//!
//! ```toml
//! [[key]]
//! id = "AKIDEXAMPLE"          # what clients call the access key id
//! secret = "…"                # and the secret access key
//! project = "123456789012"    # the account: whose queues it uses
//! name = "the billing worker" # for people; optional
//! ```

use std::path::Path;

use serde::Deserialize;

use super::layers::in_words;
use angarium_core::access_keys::{AccessKey, AccessKeyTable};
use angarium_core::names::ProjectId;
use angarium_settings::files;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    #[serde(default)]
    key: Vec<KeyEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyEntry {
    id: String,
    secret: String,
    project: String,
    #[serde(rename = "name")]
    _name: Option<String>,
}

/// Reads a file of keys. An error has the name of the file.
pub fn read(path: &Path) -> Result<AccessKeyTable, String> {
    let text = files::read_text(path, files::SETTINGS_FILE_BYTES).map_err(|error| error.to_string());
    text.and_then(|text| parse(&text)).map_err(|why| format!("{}: {why}", path.display()))
}

/// Parses a file of keys.
pub fn parse(text: &str) -> Result<AccessKeyTable, String> {
    let file: KeyFile = toml::from_str(text).map_err(|error| in_words(text, &error))?;
    let mut ids: Vec<String> = file.key.iter().map(|entry| entry.id.clone()).collect();
    ids.sort_unstable();
    if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("the key {} is there twice", twice[0]));
    }
    let checked = file.key.into_iter().map(|entry| {
        let id = entry.id.clone();
        checked(entry).map_err(|why| format!("key {id:?}: {why}"))
    });
    checked.collect()
}

fn checked(entry: KeyEntry) -> Result<(String, AccessKey), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !(3..=128).contains(&entry.id.len()) || !entry.id.bytes().all(plain) {
        return Err("an id has 3 to 128 letters, digits, hyphens and underscores".to_owned());
    }
    if entry.secret.is_empty() {
        return Err("it has no secret".to_owned());
    }
    if entry.project.is_empty() {
        return Err("it has no project".to_owned());
    }
    let project = ProjectId::new(&entry.project).map_err(|error| error.to_string())?;
    Ok((entry.id, AccessKey { secret: entry.secret, project }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_id() {
        let text = "[[key]]\nid='AKIDEXAMPLE'\nsecret='s'\nproject='123456789012'\nname='n'";
        let table = parse(text).unwrap();
        assert_eq!(table.get("AKIDEXAMPLE").unwrap().project.as_str(), "123456789012");
        assert!(table.get("AKIDOTHER").is_none());
        assert!(!format!("{table:?}").contains("'s'") && !format!("{table:?}").contains("secret"));
    }

    #[test]
    fn wrong_key_entry_is_named() {
        for (text, said) in [
            ("[[key]]\nid='a'\nsecret='s'\nproject='p'", "an id has"),
            ("[[key]]\nid='abc'\nsecret=''\nproject='p'", "no secret"),
            ("[[key]]\nid='abc'\nsecret='s'\nproject=''", "no project"),
            ("[[key]]\nid='abc'\nsecret='s'", "project"),
            ("[[key]]\nid='abc'\nsecret='s'\nproject='p'\nrole='r'", "role"),
            (
                "[[key]]\nid='abc'\nsecret='s'\nproject='p'\n[[key]]\nid='abc'\nsecret='t'\nproject='p'",
                "is there twice",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
