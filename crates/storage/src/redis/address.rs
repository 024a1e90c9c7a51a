//! The address of a pool's Redis, read from its URI. This file makes no connection, and never shows a password.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates};
use thiserror::Error as ThisError;

use angarium_settings::files;

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;
const PREFIX: &str = "angarium";
const PARAMETERS: &str =
    "its parameters are prefix, wait, waitaof, tls, ca, sentinel_user and sentinel_password";
/// Max characters of a prefix, which is in every key.
const PREFIX_CHARS: usize = 32;

/// Error in a URI. Its text has no part of the URI.
#[derive(Debug, ThisError, PartialEq, Eq)]
#[error("the URI of the Redis pool: {0}")]
pub struct AddressError(String);

fn wrong<T>(why: impl Into<String>) -> Result<T, AddressError> {
    Err(AddressError(why.into()))
}

/// How the servers are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Discovery {
    Server,
    /// The nodes of the URI know the other nodes of their cluster.
    Cluster,
    /// The nodes of the URI are Sentinels, which know the master of this name.
    Sentinel(String),
}

/// The copies of a batch that an acknowledgement needs, in addition to the master's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WriteConcern {
    /// Replicas that must have it in memory (`WAIT`).
    pub(super) replicas: u32,
    /// Number of replicas that must have synced their append-only file, in addition to the master (`WAITAOF`); none: no
    /// file need be synced.
    pub(super) synced: Option<u32>,
}

impl WriteConcern {
    /// Whether there is a copy to wait for.
    pub(super) fn any(self) -> bool {
        self.replicas > 0 || self.synced.is_some()
    }
}

/// A user name and a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Credentials {
    user: Option<String>,
    password: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.password.is_some() { "with a password" } else { "none" })
    }
}

/// The address of a server or a Sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) host: String,
    pub(super) port: u16,
}

/// A URI, checked:
///
/// ```text
/// redis://[user[:password]@]host[:port][/database]           rediss:// with TLS
/// redis-cluster://[user[:password]@]host[:port][,host[:port]…]
/// redis-sentinel://[user[:password]@]host[:port][,host[:port]…]/master[/database]
/// ```
///
/// Parameters: `prefix` of all keys; `wait` and `waitaof`, numbers of replicas; `tls=on` for a cluster and Sentinels;
/// `ca`, a file with the certificates to trust in place of the system's; `sentinel_user` and `sentinel_password`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub(super) found: Discovery,
    pub(super) nodes: Vec<Node>,
    pub(super) credentials: Credentials,
    pub(super) sentinel_credentials: Credentials,
    pub(super) database: i64,
    pub(super) tls: bool,
    pub(super) ca: Option<PathBuf>,
    pub(super) prefix: String,
    pub(super) waits: WriteConcern,
}

impl Address {
    /// Returns the connection data of the client for a node or a Sentinel.
    pub(super) fn connection(&self, node: &Node) -> redis::RedisResult<ConnectionInfo> {
        self.address_of(node).into_connection_info().map(|info| info.set_redis_settings(self.settings()))
    }

    pub(super) fn address_of(&self, node: &Node) -> ConnectionAddr {
        let Node { host, port } = node.clone();
        if self.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        }
    }

    pub(super) fn user(&self) -> Option<&str> {
        self.credentials.user.as_deref()
    }

    pub(super) fn password(&self) -> Option<&str> {
        self.credentials.password.as_deref()
    }

    /// Name and password for Sentinels.
    pub(super) fn sentinel_login(&self) -> (Option<&str>, Option<&str>) {
        (self.sentinel_credentials.user.as_deref(), self.sentinel_credentials.password.as_deref())
    }

    fn settings(&self) -> RedisConnectionInfo {
        let mut settings = RedisConnectionInfo::default().set_db(self.database);
        if let Some(user) = self.user() {
            settings = settings.set_username(user);
        }
        if let Some(password) = self.password() {
            settings = settings.set_password(password);
        }
        settings
    }

    /// Checks that the files in the URI can be read.
    pub fn check_files(&self) -> Result<(), String> {
        self.certificates().map(drop)
    }

    /// Reads the file of the certificates to trust; none if the system's are trusted.
    pub(super) fn certificates(&self) -> Result<Option<TlsCertificates>, String> {
        let Some(path) = &self.ca else { return Ok(None) };
        let read = files::read(path, files::POOL_FILE_BYTES);
        let read = read.map_err(|error| format!("the certificates in `ca`: {error}"))?;
        Ok(Some(TlsCertificates { client_tls: None, root_cert: Some(read) }))
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(uri: &str) -> Result<Self, AddressError> {
        let Some((scheme, rest)) = uri.split_once("://") else { return wrong("it has no ://") };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (found, port, database) = match scheme {
            "redis" | "rediss" => (Discovery::Server, PORT, path),
            "redis-cluster" => (Discovery::Cluster, PORT, path),
            "redis-sentinel" => {
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return wrong("a slash and the name of the master follow the Sentinels");
                }
                (Discovery::Sentinel(decode(name)?), SENTINEL_PORT, database)
            }
            _ => return wrong("its scheme is redis, rediss, redis-cluster or redis-sentinel"),
        };
        let nodes = hosts.split(',').map(|host| node(host, port)).collect::<Result<Vec<_>, _>>()?;
        if found == Discovery::Server && nodes.len() > 1 {
            return wrong("several servers are a redis-cluster or a redis-sentinel");
        }
        let mut address = Self {
            found,
            nodes,
            credentials: credentials(login)?,
            sentinel_credentials: Credentials::default(),
            database: number("the database", if database.is_empty() { "0" } else { database })?.into(),
            tls: scheme == "rediss",
            ca: None,
            prefix: PREFIX.to_owned(),
            waits: WriteConcern::default(),
        };
        if address.found == Discovery::Cluster && address.database != 0 {
            return wrong("a cluster has only the database 0");
        }
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            address.set(name, decode(value)?)?;
        }
        Ok(address)
    }
}

impl Address {
    fn set(&mut self, name: &str, value: String) -> Result<(), AddressError> {
        match name {
            "prefix" => self.prefix = prefix(value)?,
            "wait" => self.waits.replicas = number("`wait`", &value)?,
            "waitaof" => self.waits.synced = Some(number("`waitaof`", &value)?),
            "tls" if value == "on" => self.tls = true,
            "tls" => return wrong("`tls` can only be on"),
            "ca" => self.ca = Some(value.into()),
            "sentinel_user" => self.sentinel_credentials.user = Some(value),
            "sentinel_password" => self.sentinel_credentials.password = Some(value),
            // The parameter is not repeated: behind a `?` in a password that was not escaped it would be a part of the
            // password.
            _ => return wrong(PARAMETERS),
        }
        Ok(())
    }
}

fn prefix(text: String) -> Result<String, AddressError> {
    let fits = (1..=PREFIX_CHARS).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if fits { Ok(text) } else { wrong("`prefix` is 1 to 32 letters, digits, `-`, `_` and `.`") }
}

fn number(what: &str, text: &str) -> Result<u32, AddressError> {
    text.parse().or_else(|_| wrong(format!("{what} is a number")))
}

fn node(text: &str, port: u16) -> Result<Node, AddressError> {
    // An IPv6 address is in brackets.
    let (host, after) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or(("", "")),
        None => text.find(':').map_or((text, ""), |colon| text.split_at(colon)),
    };
    if host.is_empty() {
        return wrong("a host is missing");
    }
    let port = match after.strip_prefix(':') {
        Some(port) => port.parse().or_else(|_| wrong("a port is a number up to 65535"))?,
        None if after.is_empty() => port,
        None => return wrong("a colon and a port follow a host"),
    };
    Ok(Node { host: host.to_owned(), port })
}

fn credentials(login: &str) -> Result<Credentials, AddressError> {
    let (user, password) =
        login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
    let user = (!user.is_empty()).then(|| decode(user)).transpose()?;
    Ok(Credentials { user, password: password.map(decode).transpose()? })
}

/// Decodes `%XX` in text.
fn decode(text: &str) -> Result<String, AddressError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = after.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        let Some(value) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            return wrong("after a % come two hex digits");
        };
        bytes.push(value);
        rest = &after[2..];
    }
    String::from_utf8(bytes).or_else(|_| wrong("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(host: &str, port: u16) -> Node {
        Node { host: host.to_owned(), port }
    }

    fn address(uri: &str) -> Address {
        uri.parse().unwrap()
    }

    #[test]
    fn each_scheme_is_read() {
        let one = address("redis://h");
        assert_eq!(
            (one.found, one.nodes, one.database, one.tls),
            (Discovery::Server, vec![listening("h", 6379)], 0, false)
        );
        let secure = address("rediss://u:p%40ss@[::1]:7000/3?ca=/etc/ca.pem");
        assert_eq!((secure.user(), secure.password()), (Some("u"), Some("p@ss")));
        assert_eq!(
            (&secure.nodes[..], secure.database, secure.tls),
            (&[listening("::1", 7000)][..], 3, true)
        );
        let cluster = address("redis-cluster://:secret@a:1,b?prefix=x&wait=1&waitaof=0&tls=on");
        assert_eq!((cluster.user(), cluster.password()), (None, Some("secret")));
        assert_eq!(cluster.nodes, [listening("a", 1), listening("b", 6379)]);
        assert_eq!(cluster.waits, WriteConcern { replicas: 1, synced: Some(0) });
        let sentinel = address("redis-sentinel://a,b:2/main/4?sentinel_password=s");
        assert_eq!((sentinel.found, sentinel.database), (Discovery::Sentinel("main".into()), 4));
        assert_eq!(sentinel.nodes, [listening("a", 26_379), listening("b", 2)]);
    }

    #[test]
    fn wrong_uri_error_hides_the_password() {
        for uri in [
            "redis:h",
            "redis://:hidden@",
            "redis://:hidden@a,b",
            "redis://:hidden@a/x",
            "redis://:hidden@a:70000",
            "redis://:hid%zzden@a",
            "redis://:hidden@a?what=1",
            "redis://:hidden@a?tls=off",
            "redis://:hidden@a?prefix={}",
            "redis://:hidden@a?wait=-1",
            "redis-cluster://:hidden@a/1",
            "redis-sentinel://:hidden@a",
            "http://:hidden@a",
        ] {
            let error = uri.parse::<Address>().unwrap_err().to_string();
            assert!(!error.contains("hid"), "{error}");
        }
        assert!(!format!("{:?}", address("redis://u:hidden@a?sentinel_password=hidden")).contains("hidden"));
    }
}
