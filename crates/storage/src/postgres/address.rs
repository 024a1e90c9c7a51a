//! The address of a pool's PostgreSQL, read from its URI. This file makes no connection, and never shows a password.

use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error as ThisError;
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use super::limits;
use angarium_settings::files;

const SCHEMA: &str = "angarium";
/// Max bytes of a schema name: PostgreSQL cuts longer names.
const SCHEMA_CHARS: usize = 63;
const PARAMETERS: &str =
    "its parameters are schema, quota, sslmode, sslrootcert, options and application_name";

/// Error in a URI. Its text has no part of the URI.
#[derive(Debug, ThisError, PartialEq, Eq)]
#[error("the URI of the PostgreSQL pool: {0}")]
pub struct AddressError(&'static str);

/// A URI, checked:
///
/// ```text
/// postgres://[user[:password]@]host[:port][,host[:port]…][/database][?parameters]        or postgresql://
/// ```
///
/// Of several hosts the driver uses the one that accepts writes. Parameters: `schema` of the tables; `quota`, max bytes
/// of messages there; `sslmode`, `disable` (the default), `require` or `verify-full`, which both check the certificate;
/// `sslrootcert`, a file with the certificates to trust in place of the system's; `options` and `application_name` for
/// the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub(super) config: Config,
    pub(super) schema: String,
    /// Max bytes of messages.
    pub(super) quota: Option<u64>,
    pub(super) ca: Option<PathBuf>,
}

impl Address {
    /// Reads the file of the certificates to trust, in PEM; none if the system's are trusted.
    pub(super) fn certificates(&self) -> Result<Option<Vec<u8>>, String> {
        let read = |path: &PathBuf| files::read(path, files::POOL_FILE_BYTES);
        let read = self.ca.as_ref().map(read).transpose();
        read.map_err(|error| format!("the certificates in `sslrootcert`: {error}"))
    }

    /// Checks that the files in the URI can be read.
    pub fn check_files(&self) -> Result<(), String> {
        self.certificates().map(drop)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(uri: &str) -> Result<Self, AddressError> {
        let (server, query) = uri.split_once('?').unwrap_or((uri, ""));
        decode(server)?;
        let mut config: Config = server
            .parse()
            .map_err(|_| AddressError("it is not of the form postgres://user:password@host:port/database"))?;
        if config.get_hosts().is_empty() {
            return Err(AddressError("a host is missing"));
        }
        // Overrides the default of the client library: `prefer` would send a password in clear text.
        config.ssl_mode(SslMode::Disable);
        config.application_name("angarium");
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.connect_timeout(limits::CONNECT);
        config.tcp_user_timeout(limits::ANSWER);
        let mut address = Self { config, schema: SCHEMA.to_owned(), quota: None, ca: None };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            address.set(name, decode(value)?)?;
        }
        Ok(address)
    }
}

impl Address {
    fn set(&mut self, name: &str, value: String) -> Result<(), AddressError> {
        match (name, value.as_str()) {
            ("schema", _) => self.schema = schema(value)?,
            ("quota", bytes) => {
                let quota = bytes.parse().map_err(|_| AddressError("`quota` is a number of bytes"))?;
                self.quota = Some(quota);
            }
            ("sslmode", "disable") => {
                self.config.ssl_mode(SslMode::Disable);
            }
            ("sslmode", "require" | "verify-full") => {
                self.config.ssl_mode(SslMode::Require);
            }
            ("sslmode", _) => return Err(AddressError("`sslmode` is disable, require or verify-full")),
            ("sslrootcert", _) => self.ca = Some(value.into()),
            ("options", _) => {
                self.config.options(value);
            }
            ("application_name", _) => {
                self.config.application_name(value);
            }
            // A pool needs a server that accepts writes.
            ("target_session_attrs", "read-write" | "primary") => {}
            ("target_session_attrs", _) => {
                return Err(AddressError("`target_session_attrs` can only be read-write"));
            }
            // The parameter is not repeated: behind a `?` in a password that was not escaped it would be a part of the
            // password.
            _ => return Err(AddressError(PARAMETERS)),
        }
        Ok(())
    }
}

fn schema(text: String) -> Result<String, AddressError> {
    let begins = text.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    let fits = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if begins && fits && text.len() <= SCHEMA_CHARS && !text.starts_with("pg_") {
        Ok(text)
    } else {
        Err(AddressError("`schema` is 1 to 63 small letters, digits and `_`, and does not begin with `pg_`"))
    }
}

/// Decodes `%XX` in text.
fn decode(text: &str) -> Result<String, AddressError> {
    const WRONG: AddressError = AddressError("after a % come two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or(WRONG)?;
        let digits = str::from_utf8(digits).map_err(|_| WRONG)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| WRONG)?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| AddressError("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(uri: &str) -> Address {
        uri.parse().unwrap()
    }

    #[test]
    fn every_part_of_a_uri_counts() {
        let address = parsed(
            "postgresql://me:p%40ss@a:5433,b/db?schema=other&quota=1000&sslmode=verify-full&sslrootcert=/ca%20x.pem",
        );
        assert_eq!(address.config.get_user(), Some("me"));
        assert_eq!(address.config.get_password(), Some(&b"p@ss"[..]));
        assert_eq!(address.config.get_hosts().len(), 2);
        assert_eq!(address.config.get_dbname(), Some("db"));
        assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
        assert_eq!((address.schema.as_str(), address.quota), ("other", Some(1000)));
        assert_eq!(address.ca, Some("/ca x.pem".into()));
    }

    #[test]
    fn only_writable_server_is_used() {
        let address = parsed("postgres://a,b/db?target_session_attrs=read-write");
        assert_eq!(address.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert!("postgres://a/db?target_session_attrs=any".parse::<Address>().is_err());
    }

    #[test]
    fn nothing_of_a_wrong_uri_is_repeated_and_no_password_shown() {
        for uri in [
            "postgres://me:secret@/db",
            "postgres://me:secret@a:port/db",
            "postgres://me:secret@a/db?schema=Secret",
            "postgres://me:secret@a/db?secret=1",
            "postgres://me:secret@a/db?sslmode=prefer",
            "postgres://me:secret@a/db?quota=secret",
            "postgres://me:se?secret@a/db",
            "postgres://me:%zzsecret@a/db",
            "postgres://a/db?schema=%f",
        ] {
            let refused = uri.parse::<Address>().unwrap_err().to_string();
            assert!(!refused.to_lowercase().contains("secret"), "{refused}");
        }
        assert!(!format!("{:?}", parsed("postgres://me:secret@a/db")).contains("secret"));
    }
}
