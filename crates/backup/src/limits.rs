//! Bounds of a backup and of its parts.

/// Bytes of keys and values after which a frame of a backup ends.
pub const BACKUP_BLOCK_BYTES: usize = 256 << 10;
/// Max bytes of the content of a frame: a pair is never divided, and the largest has a message of 4 MiB with its extras.
pub const BACKUP_FRAME_BYTES: usize = 16 << 20;
/// Max journals of an installation with a backup: the tree's, and one for each further embedded pool.
pub const BACKUP_JOURNALS: usize = 1_000;
/// Max characters of the path of a journal: that of the URI of its pool.
pub const BACKUP_PATH_CHARS: usize = 255;
/// Max pools of other machines that a head names.
pub const BACKUP_OUTSIDE: usize = 1_000;
/// Max bytes of a key: the bound of the store.
pub const BACKUP_KEY_BYTES: usize = 65_535;
