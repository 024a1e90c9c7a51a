//! The keys for the secrets in the tree, by the settings.

use super::secret_files;
use crate::config::Config;
use angarium_sealing::{KeyFileError, KeyRing};

/// Reads the file of keys; none when no file is named.
pub(super) fn keys(config: &Config) -> Result<Option<KeyRing>, KeyFileError> {
    let Some(path) = &config.secret_key_file else { return Ok(None) };
    secret_files::warn_of_others([("secret_key_file", path.as_path())]);
    KeyRing::read(path).map(Some)
}
