//! Warnings about files with secrets that other users of this machine can read. It only warns: no client is locked out
//! by the mode of a file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tracing::warn;

/// The mode bits for the group and all others: read, write, execute.
const OTHERS: u32 = 0o077;

/// The directory in which systemd provides the files of `LoadCredential=`. Only the user of the service can read them,
/// through an ACL whose mask looks like a right of the group.
const CREDENTIALS: &str = "/run/credentials";

/// Warns of each of these files, with its setting, if other users can access it.
pub fn warn_of_others<'a>(files: impl IntoIterator<Item = (&'static str, &'a Path)>) {
    for (setting, path) in files {
        if let Some(mode) = open_to_others(path) {
            let (file, mode) = (path.display(), format!("{mode:04o}"));
            warn!(setting, %file, mode, next_step = "chmod 600", "secret file open to others");
        }
    }
}

/// Returns the mode of a file if other users can access it. A file that cannot be examined is skipped: its reader
/// reports it.
fn open_to_others(path: &Path) -> Option<u32> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    (mode & OTHERS != 0 && !path.starts_with(CREDENTIALS)).then_some(mode)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};

    use super::*;

    #[test]
    fn file_is_open_by_any_right_of_others() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("keys");
        assert_eq!(open_to_others(&path), None);
        std::fs::write(&path, "").unwrap();
        for (mode, is_open) in
            [(0o600, false), (0o400, false), (0o700, false), (0o640, true), (0o604, true), (0o620, true)]
        {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_to_others(&path), is_open.then_some(mode), "{mode:o}");
        }
    }
}
