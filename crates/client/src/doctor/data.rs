//! Checks of this machine: the data directory, its disk and the limits of a process. Writes nothing.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{Access, StatVfs, access, statfs, statvfs};
use rustix::process::{Resource, getrlimit};
use uuid::Uuid;

use super::Check;

/// Free bytes below which the disk is nearly full.
const ROOM_WARNING: u64 = 1 << 30;
/// Free bytes below which a service cannot continue.
const ROOM_WRONG: u64 = 64 << 20;
/// Min number of open files for a service with many connections.
const FILES: u64 = 4_096;
/// `f_type` of file systems that lose their contents when the machine stops (tmpfs, ramfs).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// `f_type` of NFS, whose locks and syncs depend on another machine.
const NFS: u64 = 0x6969;

/// Runs all checks of a data directory.
pub(super) fn checks(data: &Path) -> Vec<Check> {
    let mut checks = vec![directory(data)];
    checks.extend(identity(data));
    if let Ok(space) = statvfs(data) {
        checks.push(room(&space));
    }
    if let Ok(system) = statfs(data) {
        checks.push(disk(u64::from_ne_bytes(system.f_type.to_ne_bytes())));
    }
    checks.push(files(getrlimit(Resource::Nofile).current));
    checks
}

fn directory(data: &Path) -> Check {
    const NAME: &str = "data";
    let path = data.display();
    let meta = match std::fs::metadata(data) {
        Ok(meta) if meta.is_dir() => meta,
        Ok(_) => {
            return Check::wrong(NAME, format!("{path} is no directory"), "name the directory of --data");
        }
        Err(error) => {
            let advice = "a service makes it at its first start; is it the right one?";
            return Check::wrong(NAME, format!("{path}: {error}"), advice);
        }
    };
    if let Err(error) = access(data, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        let advice = "give it to the user that the service runs as";
        return Check::wrong(NAME, format!("{path} cannot be used by this user: {error}"), advice);
    }
    match meta.permissions().mode() & 0o007 {
        0 => Check::ok(NAME, format!("{path} can be used")),
        _ => Check::warning(
            NAME,
            format!("{path} is open to every user"),
            "chmod o-rwx: it holds all messages",
        ),
    }
}

/// Checks the two files with the replica's id. A directory without them was never used by a service.
fn identity(data: &Path) -> Option<Check> {
    const NAME: &str = "instance";
    let read = |name: &str| {
        let mut text = Vec::new();
        let read = File::open(data.join(name)).and_then(|file| file.take(64).read_to_end(&mut text));
        read.ok().map(|_| String::from_utf8_lossy(&text).into_owned())
    };
    let is_whole =
        |text: &String| Uuid::parse_str(text.trim_end()).is_ok_and(|id| text.trim_end() == id.to_string());
    let advice = "put the one that is right in the place of the other, or restore them from a backup";
    Some(match (read("instance"), read("instance.copy")) {
        (None, None) => return None,
        (Some(text), Some(copy)) if text == copy && is_whole(&text) => {
            Check::ok(NAME, "the replica is known")
        }
        (Some(text), None) if is_whole(&text) => {
            Check::warning(NAME, "there is no instance.copy", "none: the next start makes it")
        }
        (text, copy) => {
            let shown = |text: Option<String>| text.map_or("missing".to_owned(), |text| format!("{text:?}"));
            let found = format!("instance is {}, and instance.copy {}", shown(text), shown(copy));
            Check::wrong(NAME, found, advice)
        }
    })
}

fn room(space: &StatVfs) -> Check {
    const NAME: &str = "room";
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let found = format!("{} MiB are free", free >> 20);
    match free {
        ..ROOM_WRONG => {
            Check::wrong(NAME, found, "the service stops writing: make room, then start it again")
        }
        ROOM_WRONG..ROOM_WARNING => Check::warning(NAME, found, "make room before posts are refused"),
        _ => Check::ok(NAME, found),
    }
}

fn disk(kind: u64) -> Check {
    const NAME: &str = "disk";
    match kind {
        kind if IN_MEMORY.contains(&kind) => {
            Check::warning(NAME, "it is in memory", "nothing outlives this machine's run: use a disk")
        }
        NFS => {
            Check::warning(NAME, "it is on NFS", "locks and syncs are not this machine's: use a local disk")
        }
        _ => Check::ok(NAME, "it is a file system of this machine"),
    }
}

fn files(limit: Option<u64>) -> Check {
    const NAME: &str = "files";
    match limit {
        Some(limit) if limit < FILES => {
            let found = format!("a process started here may open {limit} files");
            Check::warning(NAME, found, "each connection is one: ulimit -n 65536, or LimitNOFILE in its unit")
        }
        Some(limit) => Check::ok(NAME, format!("a process started here may open {limit} files")),
        None => Check::ok(NAME, "a process started here may open as many files as it likes"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn missing_directory_fails_and_open_one_warns() {
        let directory_here = tempfile::tempdir().unwrap();
        assert_eq!(directory(&directory_here.path().join("none")).verdict, Verdict::Wrong);
        let set = |mode| {
            std::fs::set_permissions(directory_here.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            directory(directory_here.path()).verdict
        };
        assert_eq!((set(0o700), set(0o755)), (Verdict::Ok, Verdict::Warning));
    }

    #[test]
    fn low_room_and_few_files_are_reported() {
        let directory_here = tempfile::tempdir().unwrap();
        let mut space = statvfs(directory_here.path()).unwrap();
        space.f_frsize = 1;
        let mut verdict = |free| {
            space.f_bavail = free;
            room(&space).verdict
        };
        assert_eq!(verdict(ROOM_WARNING), Verdict::Ok);
        assert_eq!(verdict(ROOM_WARNING - 1), Verdict::Warning);
        assert_eq!(verdict(ROOM_WRONG - 1), Verdict::Wrong);
        assert_eq!(files(Some(1_024)).verdict, Verdict::Warning);
        assert_eq!(files(None).verdict, Verdict::Ok);
    }

    #[test]
    fn volatile_storage_is_reported() {
        assert_eq!(disk(IN_MEMORY[0]).verdict, Verdict::Warning);
        assert_eq!(disk(NFS).verdict, Verdict::Warning);
        assert_eq!(disk(0xef53).verdict, Verdict::Ok);
    }
}
