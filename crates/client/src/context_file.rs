//! The file of contexts: named servers with project, token and client id. It is read and written as a whole, and only
//! its owner can read it. This module opens no connection.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::failure::Failure;

/// Max bytes of the file, far above any real list of servers.
const FILE_BYTES: u64 = 1 << 20;

/// A server, and the identity to use on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Root URL of the server.
    pub url: String,
    /// The tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The id that marks the user's own messages in listings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<Uuid>,
    /// A file of certificates to trust in place of the public ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// Name of the context that is used when none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Contexts by name.
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

impl Contexts {
    /// Reads the file. A missing file has no contexts.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let unreadable = |why: String| Failure::Usage(format!("{}: {why}", path.display()));
        match fs::metadata(path) {
            Ok(meta) if meta.len() > FILE_BYTES => return Err(unreadable("it is too long".into())),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(unreadable(error.to_string())),
        }
        let text = fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        // Without the excerpt of the file, which could show a token.
        toml::from_str(&text).map_err(|error| unreadable(error.message().to_owned()))
    }

    pub fn named(&self, name: &str) -> Result<&Context, Failure> {
        self.contexts.get(name).ok_or_else(|| {
            Failure::Usage(format!(
                "there is no context {name}; `angarium context list` shows those there are"
            ))
        })
    }

    /// Writes the file atomically, so that a reader or a crash never sees a partial file.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = toml::to_string_pretty(self).map_err(|error| Failure::Usage(error.to_string()))?;
        write_private(path, &text)
            .map_err(|error| Failure::Usage(format!("{} cannot be written: {error}", path.display())))
    }
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let fresh = directory.join(format!(".contexts-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&fresh, path)).inspect_err(|_| {
        // The error is reported. A leftover file is private, whatever its contents.
        let _ = fs::remove_file(&fresh);
    })
}

/// Returns the default path of the file: below `XDG_CONFIG_HOME`, or `~/.config`.
pub fn default_path() -> Result<PathBuf, Failure> {
    let config = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let config = config.or_else(|| std::env::home_dir().map(|home| home.join(".config")));
    let config =
        config.ok_or_else(|| Failure::Usage("no home directory; name a file with --contexts".into()))?;
    Ok(config.join("angarium").join("contexts.toml"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn written_file_is_private_and_readable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/contexts.toml");
        let context = Context { url: "http://a".into(), token: Some("t".into()), ..Context::default() };
        let written =
            Contexts { current: Some("a".into()), contexts: BTreeMap::from([("a".to_owned(), context)]) };
        written.write(&path).unwrap();
        assert_eq!(Contexts::read(&path).unwrap(), written);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn missing_file_is_empty_and_unknown_keys_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("contexts.toml");
        assert_eq!(Contexts::read(&path).unwrap(), Contexts::default());
        fs::write(&path, "[contexts.a]\nurl = \"http://a\"\npasword = \"secret\"").unwrap();
        let text = Contexts::read(&path).unwrap_err().to_string();
        assert!(text.contains("pasword") && !text.contains("secret"), "{text}");
    }
}
