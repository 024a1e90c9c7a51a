//! The scripts that run in Redis, and their calls. Their code is in `lua/`.
//!
//! A script names all its keys, although they are in one hash slot: while a cluster moves that hash slot, Redis then
//! refuses the script as a whole, and never in the middle.

use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs};

/// A script, with its first line, which declares the commands that it uses.
pub(super) struct Script {
    body: String,
    sha: String,
}

/// A batch with appends: Redis refuses it before it begins when the memory is full (P12).
pub(super) static APPEND: LazyLock<Script> =
    LazyLock::new(|| Script::new("#!lua", include_str!("lua/commit.lua")));
/// A batch without appends, which frees memory or needs hardly any.
pub(super) static COMMIT: LazyLock<Script> =
    LazyLock::new(|| Script::writing(include_str!("lua/commit.lua")));
pub(super) static FENCE: LazyLock<Script> = LazyLock::new(|| Script::writing(include_str!("lua/fence.lua")));
pub(super) static TENANT: LazyLock<Script> =
    LazyLock::new(|| Script::writing(include_str!("lua/tenant.lua")));
pub(super) static DROP: LazyLock<Script> = LazyLock::new(|| Script::writing(include_str!("lua/drop.lua")));
pub(super) static EXPIRED: LazyLock<Script> =
    LazyLock::new(|| Script::writing(include_str!("lua/expired.lua")));
pub(super) static SCAN: LazyLock<Script> = LazyLock::new(|| Script::reading(include_str!("lua/scan.lua")));
pub(super) static GROUPS: LazyLock<Script> =
    LazyLock::new(|| Script::reading(include_str!("lua/groups.lua")));
pub(super) static GET: LazyLock<Script> = LazyLock::new(|| Script::reading(include_str!("lua/get.lua")));
pub(super) static TOTALS: LazyLock<Script> =
    LazyLock::new(|| Script::reading(include_str!("lua/totals.lua")));
pub(super) static NOTES: LazyLock<Script> = LazyLock::new(|| Script::reading(include_str!("lua/notes.lua")));

impl Script {
    fn new(flags: &str, code: &str) -> Self {
        let body = format!("{flags}\n{}\n{code}", include_str!("lua/prelude.lua"));
        let sha = redis::Script::new(&body).get_hash().to_owned();
        Self { body, sha }
    }

    fn writing(code: &str) -> Self {
        Self::new("#!lua flags=allow-oom", code)
    }

    fn reading(code: &str) -> Self {
        Self::new("#!lua flags=no-writes", code)
    }

    /// Returns a call by the hash of the script; the caller appends the arguments.
    pub(super) fn call<K: ToRedisArgs>(&self, keys: &[K]) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.sha).arg(keys.len()).arg(keys);
        call
    }

    /// Returns the same call with the code of the script, for a server that does not have it.
    pub(super) fn with_body(&self, call: &Cmd) -> Cmd {
        let mut whole = redis::cmd("EVAL");
        whole.arg(&self.body);
        for argument in call.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = argument {
                whole.arg(bytes);
            }
        }
        whole
    }
}
