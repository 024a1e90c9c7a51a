//! The address of a tree in ZooKeeper: the servers of the ensemble, and the node that is the root of the tree.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::path;

/// The scheme of the address.
const SCHEME: &str = "zookeeper://";
/// The root of the tree when the address names no node.
const DEFAULT_ROOT: &str = "/angarium";
/// Max bytes of the root's path. It precedes every path of a request, whose size is bounded.
const ROOT_BYTES: usize = 256;
/// Number of times that a single server is listed.
const LONE_TRIES: usize = 16;

/// `zookeeper://host:port,host:port/node`: the servers, and the node that is the root of the tree.
///
/// The default port is 2181, the default node `/angarium`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    hosts: String,
    root: String,
}

impl Address {
    /// Returns `host:port,host:port` for the client.
    ///
    /// A single server is listed many times. The client doubles its pause after each pass through the whole list
    /// (zookeeper-client 0.11.2), so a server that was away for four seconds would only be found after another four.
    /// Listed 16 times, it is tried at least every two seconds.
    pub(super) fn hosts(&self) -> String {
        let is_alone = !self.hosts.contains(',');
        vec![self.hosts.as_str(); if is_alone { LONE_TRIES } else { 1 }].join(",")
    }

    /// Returns each server once, as `host:port`.
    pub(super) fn servers(&self) -> impl Iterator<Item = &str> {
        self.hosts.split(',')
    }

    /// Returns the name or the IP address of each server, without brackets.
    pub(super) fn host_names(&self) -> impl Iterator<Item = &str> {
        self.servers().map(host_name)
    }

    /// Returns whether all servers are on this machine.
    pub fn is_local(&self) -> bool {
        let is_loopback = |host: &str| host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
        self.host_names().all(|host| host == "localhost" || is_loopback(host))
    }

    /// Returns the root as an absolute path. It is never `/`, because ZooKeeper has its own nodes there.
    pub(super) fn root(&self) -> &str {
        &self.root
    }
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return Err("an address of ZooKeeper begins with zookeeper://");
        };
        let (hosts, root) = rest.split_once('/').unwrap_or((rest, ""));
        for host in hosts.split(',') {
            check_host(host)?;
        }
        let root = match root.trim_end_matches('/') {
            "" => DEFAULT_ROOT.to_owned(),
            root => format!("/{root}"),
        };
        path::check(&root).map_err(|_| "the node after the servers is no path that ZooKeeper accepts")?;
        if root.len() > ROOT_BYTES {
            return Err("the node after the servers has a path of more than 256 bytes");
        }
        Ok(Self { hosts: hosts.to_owned(), root })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}{}", self.hosts, self.root)
    }
}

/// Returns the host of `host:port`, as the client reads it.
pub(super) fn host_name(server: &str) -> &str {
    match server.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => server.rsplit_once(':').map_or(server, |(name, _)| name),
    }
}

fn check_host(host: &str) -> Result<(), &'static str> {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) => (name, port.strip_prefix(':')),
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err("a server of ZooKeeper has no name");
    }
    match port {
        Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(()),
        Some(_) => Err("the port of a server of ZooKeeper is a number from 1 to 65535"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_servers_and_a_root() {
        let parsed = |text: &str| text.parse::<Address>().map(|address| (address.hosts, address.root));
        let some = |hosts: &str, root: &str| Ok((hosts.to_owned(), root.to_owned()));
        assert_eq!(parsed("zookeeper://a:1,b,[::1]:3/x/y"), some("a:1,b,[::1]:3", "/x/y"));
        assert_eq!(parsed("zookeeper://a"), some("a", "/angarium"));
        assert_eq!(parsed("zookeeper://a/"), some("a", "/angarium"));
        assert_eq!(parsed("zookeeper://a/x/"), some("a", "/x"));
        assert!(parsed(&format!("zookeeper://a/{}", "x".repeat(256))).is_err());
        for bad in [
            "a:1/x",
            "zookeeper://",
            "zookeeper://a:0",
            "zookeeper://a:x",
            "zookeeper://a,,b",
            "zookeeper://a/../b",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn servers_beyond_this_machine_are_told_apart() {
        let is_local = |text: &str| text.parse::<Address>().unwrap().is_local();
        assert!(is_local("zookeeper://127.0.0.1:1,localhost,[::1]:3,[::ffff:127.0.0.1]"));
        for far in ["zookeeper://127.0.0.1,zk", "zookeeper://10.0.0.1:2181", "zookeeper://[::2]"] {
            assert!(!is_local(far), "{far}");
        }
    }

    #[test]
    fn addresses_print_as_they_are_read() {
        let address: Address = "zookeeper://a:1,b:2".parse().unwrap();
        assert_eq!(address.to_string(), "zookeeper://a:1,b:2/angarium");
        assert_eq!(address.to_string().parse(), Ok(address));
    }
}
