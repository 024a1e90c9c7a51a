//! Host names of the service: the values of `Host` that it accepts from requests without credentials.
//!
//! In an attack by DNS rebinding, the name of a foreign page points to this machine, so its browser treats the service
//! as the same origin; only the host name gives the page away. The page cannot have a name that only this machine or
//! its operator gives out.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Bytes of a host name (RFC 1035).
const NAME_BYTES: usize = 253;
const LOCALHOST: &str = "localhost";

/// A host name in lower case, or a wildcard for all names below one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName {
    name: String,
    is_wildcard: bool,
}

impl FromStr for HostName {
    type Err = &'static str;

    /// Reads `queue.example.com`, or `*.example.com` for every name below it. A port or an address is refused.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let why =
            "it is a host name without a port, as in queue.example.com, or *.example.com for all below it";
        let (name, is_wildcard) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_plain);
        if name.len() > NAME_BYTES || !name.split('.').all(is_label) {
            return Err(why);
        }
        Ok(Self { name: name.to_ascii_lowercase(), is_wildcard })
    }
}

impl HostName {
    /// Whether `host`, in lower case, is this name or matches the wildcard.
    fn covers(&self, host: &str) -> bool {
        match host.strip_suffix(self.name.as_str()) {
            Some("") => !self.is_wildcard,
            Some(below) => self.is_wildcard && below.len() > 1 && below.ends_with('.'),
            None => false,
        }
    }
}

/// The host names that a service without authentication accepts, in addition to IP addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(Vec<HostName>);

impl AllowedHosts {
    /// Takes the names from the settings and from the machine.
    pub fn new(names: impl IntoIterator<Item = HostName>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Whether `authority`, a host with or without a port, is an IP address, `localhost`, a name below it, or one of
    /// these names. Addresses are safe: a browser sends the page's own name, which is never an address.
    pub fn admit(&self, authority: &str) -> bool {
        let Some(host) = host_of(authority) else { return false };
        if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let address = address.split('%').next().unwrap_or_default();
            return address.parse::<Ipv6Addr>().is_ok();
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let is_local = name == LOCALHOST || name.ends_with(".localhost");
        is_local || name.parse::<Ipv4Addr>().is_ok() || self.0.iter().any(|allowed| allowed.covers(&name))
    }
}

/// Marks a request that names no host, or several (RFC 9112, 3.2; RFC 9113, 8.3.1), so its target is ambiguous. Requests
/// of HTTP/1.0 need not name one.
#[derive(Clone, Copy, Debug)]
pub struct WrongHost;

/// Returns the host of an authority without its port; an IPv6 address keeps its brackets. None when the text is no
/// authority.
pub fn host_of(authority: &str) -> Option<&str> {
    let end = if authority.starts_with('[') {
        authority.find(']')? + 1
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, port) = authority.split_at_checked(end)?;
    let port = port.strip_prefix(':').unwrap_or(port);
    (!host.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> AllowedHosts {
        AllowedHosts::new(names.iter().map(|name| name.parse().unwrap()))
    }

    #[test]
    fn addresses_and_localhost_are_always_admitted() {
        for authority in [
            "127.0.0.1",
            "127.0.0.1:8888",
            "10.1.2.3:80",
            "[::1]",
            "[::1]:8888",
            "[fe80::1%eth0]:1",
            "localhost",
            "LocalHost:8888",
            "localhost.:8888",
            "a.localhost:8888",
        ] {
            assert!(hosts(&[]).admit(authority), "{authority}");
        }
    }

    #[test]
    fn foreign_name_is_refused_in_every_form() {
        for authority in [
            "",
            ":8888",
            "evil.example",
            "evil.example:8888",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "[::1].evil.example",
            "[evil]",
            "[::1",
            "user@localhost",
            "localhost:80@evil.example",
            "localhost:8888x",
            "::1",
            "queue.example.com.evil.example",
            "xqueue.example.com",
        ] {
            assert!(!hosts(&["queue.example.com", "*.queue.example.com"]).admit(authority), "{authority}");
        }
    }

    #[test]
    fn given_names_are_admitted_and_wildcards_cover_those_below() {
        let hosts = hosts(&["Angarium", "*.example.com"]);
        for authority in ["angarium:8888", "ANGARIUM", "a.example.com", "a.b.example.com.:1"] {
            assert!(hosts.admit(authority), "{authority}");
        }
        for authority in ["example.com", ".example.com", "aexample.com", "angarium.evil.example"] {
            assert!(!hosts.admit(authority), "{authority}");
        }
    }

    #[test]
    fn host_name_has_no_port_and_no_empty_label() {
        for text in ["angarium", "replica-1", "a_b.c", "*.svc.cluster.local"] {
            assert!(text.parse::<HostName>().is_ok(), "{text}");
        }
        for text in ["", "*", "*.", "a:80", "http://a", "a..b", "[::1]", "a.*.b", "ä", "a b"] {
            assert!(text.parse::<HostName>().is_err(), "{text}");
        }
    }
}
