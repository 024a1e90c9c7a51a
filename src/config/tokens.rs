//! The file of tokens: TOML with one table per token. It holds hashes, never tokens.
//!
//! ```toml
//! [[token]]
//! sha256 = "ba7816bf…"        # of the token's text; `angarium token new` prints both
//! project = "acme"            # whose queues it uses
//! role = "member"             # or "reader"; or "admin": every project, and the pools
//! name = "the billing worker" # for people: holds of queues show it; optional
//! ```

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::layers::in_words;
use super::quoted;
use angarium_core::access::{Grant, Role, TokenHash, TokenTable};
use angarium_core::names::ProjectId;
use angarium_settings::files;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    #[serde(default)]
    token: Vec<TokenEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    sha256: String,
    project: String,
    role: String,
    name: Option<String>,
}

/// Reads a file of tokens. An error has the name of the file.
pub fn read(path: &Path) -> Result<TokenTable, String> {
    let text = files::read_text(path, files::SETTINGS_FILE_BYTES).map_err(|error| error.to_string());
    text.and_then(|text| parse(&text)).map_err(|why| format!("{}: {why}", path.display()))
}

/// Parses a file of tokens.
pub fn parse(text: &str) -> Result<TokenTable, String> {
    let file: TokenFile = toml::from_str(text).map_err(|error| in_words(text, &error))?;
    let mut hashes = Vec::with_capacity(file.token.len());
    let mut entries = Vec::with_capacity(file.token.len());
    for (at, entry) in file.token.into_iter().enumerate() {
        let name = entry.name.clone().unwrap_or_else(|| format!("number {}", at + 1));
        let (hash, grant) = checked(entry).map_err(|why| format!("token {name}: {why}"))?;
        hashes.push(hash.to_string());
        entries.push((hash, grant));
    }
    hashes.sort_unstable();
    if let Some(twice) = hashes.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("the token with the hash {} is there twice", twice[0]));
    }
    Ok(entries.into_iter().collect())
}

fn checked(entry: TokenEntry) -> Result<(TokenHash, Grant), String> {
    let hash: TokenHash = entry.sha256.parse()?;
    let role: Role = entry.role.parse()?;
    if entry.project.is_empty() {
        return Err("it has no project".to_owned());
    }
    let project = ProjectId::new(&entry.project).map_err(|error| error.to_string())?;
    Ok((hash, Grant { project, role, name: entry.name.map(Arc::from) }))
}

/// Returns the table of a token for the file.
pub fn entry(hash: &TokenHash, project: &ProjectId, role: Role, name: Option<&str>) -> String {
    let project = quoted(project.as_str());
    let mut text = format!("[[token]]\nsha256 = \"{hash}\"\nproject = {project}\nrole = \"{role}\"\n");
    if let Some(name) = name {
        text.push_str(&format!("name = {}\n", quoted(name)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_file_is_read() {
        let projects = ["acme", "two words", "\"quoted\\\"\n\u{7f}", "ä"];
        let text: String = projects
            .iter()
            .map(|project| {
                let project = ProjectId::new(project).unwrap();
                entry(&TokenHash::of(project.as_str()), &project, Role::Member, Some(project.as_str()))
            })
            .collect();
        let table = parse(&text).unwrap();
        for project in projects {
            assert_eq!(table.grant(project).unwrap().project.as_str(), project);
        }
    }

    #[test]
    fn wrong_token_entry_is_named() {
        let hash = TokenHash::of("a").to_string();
        for (text, said) in [
            (format!("[[token]]\nsha256='{hash}'\nproject='p'\nrole='king'"), "token number 1: a role is"),
            (
                "[[token]]\nsha256='x'\nproject='p'\nrole='admin'\nname='n'".to_owned(),
                "token n: a SHA-256 has",
            ),
            (format!("[[token]]\nsha256='{hash}'\nproject=''\nrole='admin'"), "it has no project"),
            (format!("[[token]]\nsha256='{hash}'\nproject='p'\nrole='admin'\n").repeat(2), "is there twice"),
            ("[[token]]\nsecret='s'".to_owned(), "secret"),
            ("[[tokens]]".to_owned(), "tokens"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        assert!(parse("# nobody").unwrap().is_empty());
    }
}
