//! The properties that a server reports, and whether it is suitable for a pool (P11).

use redis::Value;

use super::address::WriteConcern;
use angarium_core::durability::Durability;

/// Min version of Redis: from it on scripts declare which commands they use.
const OLDEST: (u32, u32) = (7, 0);
/// Min version with WAITAOF.
const WAITAOF: (u32, u32) = (7, 2);

/// The properties of a master at the time of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Server {
    version: (u32, u32),
    role: String,
    is_loading: bool,
    policy: String,
    pub(super) used: u64,
    /// Max bytes that it may use; 0 for no bound.
    pub(super) max_memory: u64,
    is_logging: bool,
    /// Whether it syncs every write before it answers.
    is_synced: bool,
}

impl Server {
    /// Reads the answers to `INFO` and `CONFIG GET`. Where the user may not read settings they are empty, and no write
    /// counts as synced.
    pub(super) fn read(info: &str, settings: &[(String, String)]) -> Self {
        let field = |name: &str| {
            let of_line = |line: &'_ str| {
                line.strip_prefix(name)?.strip_prefix(':').map(|value| value.trim().to_owned())
            };
            info.lines().find_map(of_line).unwrap_or_default()
        };
        let setting =
            |name: &str| settings.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let number = |name: &str| field(name).parse().unwrap_or(0);
        let version = field("redis_version");
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        Self {
            version: (parts.next().unwrap_or(0), parts.next().unwrap_or(0)),
            role: field("role"),
            is_loading: field("loading") == "1",
            policy: field("maxmemory_policy"),
            used: number("used_memory"),
            max_memory: number("maxmemory"),
            is_logging: field("aof_enabled") == "1",
            is_synced: setting("appendfsync") == Some("always")
                && setting("no-appendfsync-on-rewrite") == Some("no"),
        }
    }

    /// Checks that the server is suitable for a pool; the error is the reason.
    pub(super) fn check(&self, waits: WriteConcern) -> Result<(), String> {
        let (major, minor) = self.version;
        if self.version < OLDEST {
            return Err(format!("the server is Redis {major}.{minor}, and 7.0 is needed"));
        }
        if self.is_loading {
            return Err("the server is loading its data".into());
        }
        if self.role != "master" {
            return Err(format!("the server is a {}, not a master", self.role));
        }
        if self.policy != "noeviction" {
            let policy = &self.policy;
            return Err(format!(
                "the server may drop messages when its memory is full: its maxmemory-policy is {policy} and must be \
                 noeviction"
            ));
        }
        if waits.synced.is_some() && (self.version < WAITAOF || !self.is_logging) {
            return Err(format!(
                "waitaof needs a server from 7.2 on with appendonly yes; this one is {major}.{minor} with \
                 appendonly {}",
                if self.is_logging { "yes" } else { "no" }
            ));
        }
        Ok(())
    }

    /// The most durable class of its acknowledgements.
    pub(super) fn class(&self, waits: WriteConcern) -> Durability {
        if self.is_logging && (self.is_synced || waits.synced.is_some()) {
            Durability::Sync
        } else {
            Durability::Relaxed
        }
    }
}

/// Pairs of text in the answer to `CONFIG GET`, in either of its forms.
pub(super) fn pairs(value: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| redis::from_redis_value_ref::<String>(value).unwrap_or_default();
    match value {
        Value::Array(flat) => flat.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
        Value::Map(pairs) => pairs.iter().map(|(key, value)| (text(key), text(value))).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nloading:0\r\nused_memory:1000\r\n\
                        maxmemory:4000\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";

    fn server(info: &str, appendfsync: &str) -> Server {
        let settings = [("appendfsync", appendfsync), ("no-appendfsync-on-rewrite", "no")];
        Server::read(info, &settings.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    #[test]
    fn only_always_synced_log_is_sync() {
        let none = WriteConcern::default();
        assert_eq!(server(INFO, "always").class(none), Durability::Sync);
        assert_eq!(server(INFO, "everysec").class(none), Durability::Relaxed);
        assert_eq!(
            server(&INFO.replace("aof_enabled:1", "aof_enabled:0"), "always").class(none),
            Durability::Relaxed
        );
        assert_eq!(Server::read(INFO, &[]).class(none), Durability::Relaxed);
        let replicas = WriteConcern { replicas: 2, synced: None };
        assert_eq!(server(INFO, "everysec").class(replicas), Durability::Relaxed);
        let synced = WriteConcern { replicas: 0, synced: Some(0) };
        assert_eq!(server(INFO, "everysec").class(synced), Durability::Sync);
    }

    #[test]
    fn unsuitable_servers_are_refused_with_reason() {
        let none = WriteConcern::default();
        assert_eq!(server(INFO, "always").check(none), Ok(()));
        for (from, to, reason) in [
            ("7.0.15", "6.2.14", "7.0 is needed"),
            ("loading:0", "loading:1", "loading"),
            ("role:master", "role:slave", "not a master"),
            ("noeviction", "allkeys-lru", "maxmemory-policy is allkeys-lru"),
        ] {
            let refused = server(&INFO.replace(from, to), "always").check(none).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        let waits = WriteConcern { replicas: 0, synced: Some(1) };
        assert!(server(INFO, "always").check(waits).unwrap_err().contains("waitaof needs"));
        assert_eq!(server(&INFO.replace("7.0.15", "7.2.4"), "always").check(waits), Ok(()));
    }
}
