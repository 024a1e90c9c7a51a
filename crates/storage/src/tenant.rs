//! The tenant of a storage: the process that uses it for an installation with an embedded tree, which has one process at
//! a time. A second one, on a copy of the data directory, meets the first here. This file has the form of the record; a
//! driver only reads it, and replaces it in one step.

use std::fmt;

use uuid::Uuid;

use angarium_core::time::Timestamp;

/// A process that holds a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// The generation of its tree.
    pub generation: u32,
    /// Distinguishes it from all other processes.
    pub nonce: Uuid,
    /// When it started; later than each process that had the storage before.
    pub started: Timestamp,
    /// Its id on its host.
    pub pid: u32,
    /// Its address.
    pub address: String,
    /// The name of its host.
    pub host: String,
}

impl Tenant {
    /// Reads the record; none for one that no known program writes.
    pub fn decode(text: &str) -> Option<Self> {
        let mut parts = text.splitn(6, ' ');
        let mut next = || parts.next();
        Some(Self {
            generation: u32::from_str_radix(next()?, 16).ok()?,
            nonce: Uuid::parse_str(next()?).ok()?,
            started: Timestamp::from_millis(u64::from_str_radix(next()?, 16).ok()?),
            pid: next()?.parse().ok()?,
            address: next()?.to_owned(),
            host: next()?.to_owned(),
        })
    }

    /// Whether it took the storage after `other`: a process of a later generation, or one that started later.
    pub fn is_after(&self, other: &Self) -> bool {
        let order = |one: &Self| (one.generation, one.started, one.nonce);
        order(self) > order(other)
    }
}

impl fmt::Display for Tenant {
    /// Writes the record. Only the last part, the name of the host, may have spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { generation, nonce, started, pid, address, host } = self;
        let (nonce, started, address) = (nonce.simple(), started.as_millis(), address.replace(' ', ""));
        write!(f, "{generation:08x} {nonce} {started:016x} {pid} {address} {host}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_as_written() {
        for (address, host) in [("127.0.0.1:8888", "host"), ("[::1]:8888", "a host"), ("", "")] {
            let tenant = Tenant {
                generation: u32::MAX,
                nonce: Uuid::from_u128(7),
                started: Timestamp::from_millis(1_700_000_000_000),
                pid: 42,
                address: address.to_owned(),
                host: host.to_owned(),
            };
            assert_eq!(Tenant::decode(&tenant.to_string()), Some(tenant));
        }
        for text in ["", "1", "00000001 x 0 1 a h", "00000001 7"] {
            assert_eq!(Tenant::decode(text), None, "{text}");
        }
    }
}
