//! The network addresses that may be reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use angarium_core::network::Network;

use crate::url::{Host, WebhookUrl};

/// Which addresses deliveries may reach: public ones, and networks that the operator names. Addresses of the
/// installation itself are refused in any case.
#[derive(Clone, Debug, Default)]
pub struct EgressRules {
    allowed: Vec<Network>,
    refused: Vec<SocketAddr>,
}

/// An address that may not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deliveries to {address} are not allowed")]
pub struct ForbiddenAddress {
    pub address: SocketAddr,
}

/// IPv4 networks that are not public.
const SPECIAL_V4: &[([u8; 4], u8)] = &[
    // This network.
    ([0, 0, 0, 0], 8),
    // Private use.
    ([10, 0, 0, 0], 8),
    // Carriers' translation.
    ([100, 64, 0, 0], 10),
    // Loopback.
    ([127, 0, 0, 0], 8),
    // Metadata of virtual machines in Azure.
    ([168, 63, 129, 16], 32),
    // Link-local, with the metadata of most clouds.
    ([169, 254, 0, 0], 16),
    // Private use.
    ([172, 16, 0, 0], 12),
    // Protocol assignments.
    ([192, 0, 0, 0], 24),
    // Documentation.
    ([192, 0, 2, 0], 24),
    // Relays of 6to4, which is withdrawn.
    ([192, 88, 99, 0], 24),
    // Private use.
    ([192, 168, 0, 0], 16),
    // Benchmarks.
    ([198, 18, 0, 0], 15),
    // Documentation.
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    // Multicast.
    ([224, 0, 0, 0], 4),
    // Reserved, with the broadcast address.
    ([240, 0, 0, 0], 4),
];

/// IPv6 networks within `2000::/3`, the only public one, that are not public.
const SPECIAL_V6: &[([u16; 3], u8)] = &[
    // Protocol assignments, with Teredo, benchmarks and ORCHID.
    ([0x2001, 0, 0], 23),
    // Documentation.
    ([0x2001, 0xdb8, 0], 32),
    ([0x3fff, 0, 0], 20),
];

impl EgressRules {
    /// Makes rules of the networks that are allowed besides public addresses, and of the listeners of this installation,
    /// which are refused. A listener at the unspecified address (`0.0.0.0:8888`) is refused at each address of this
    /// machine.
    pub fn new(allowed: Vec<Network>, refused: Vec<SocketAddr>) -> Self {
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        Self { allowed, refused: refused.into_iter().map(canonical).collect() }
    }

    /// Checks one address. An IPv6 address that embeds an IPv4 address is checked as that one too.
    pub fn check(&self, address: SocketAddr) -> Result<(), ForbiddenAddress> {
        let ip = address.ip().to_canonical();
        let inner = match ip {
            IpAddr::V6(outer) => translated(outer).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        let is_listener = |ip| self.refused.iter().any(|listener| is_at(*listener, ip, address.port()));
        let is_allowed = self.is_allowed(ip) && inner.is_none_or(|inner| self.is_allowed(inner));
        if !is_allowed || is_listener(ip) || inner.is_some_and(is_listener) {
            return Err(ForbiddenAddress { address });
        }
        Ok(())
    }

    /// Checks an address of a subscriber as far as this is possible without a look-up: a name passes.
    pub fn check_literal(&self, url: &WebhookUrl) -> Result<(), ForbiddenAddress> {
        match url.origin().host {
            Host::Address(ip) => self.check(SocketAddr::new(ip, url.origin().port)),
            Host::Name(_) => Ok(()),
        }
    }

    /// Checks a connection by both its ends. A connection of this machine to itself has the same address at both.
    pub(crate) fn check_connected(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Result<(), ForbiddenAddress> {
        let ip = peer.ip().to_canonical();
        let is_own = ip == local.ip().to_canonical();
        let is_listener = |listener: &SocketAddr| {
            let is_any = is_own && listener.ip().is_unspecified() && listener.port() == peer.port();
            is_any || is_at(*listener, ip, peer.port())
        };
        if self.refused.iter().any(is_listener) {
            return Err(ForbiddenAddress { address: peer });
        }
        Ok(())
    }

    fn is_allowed(&self, ip: IpAddr) -> bool {
        is_public(ip) || self.allowed.iter().any(|network| network.contains(ip))
    }
}

/// Whether the address is that of the listener. That of a listener at each address of the machine is known only once a
/// connection is made, but for loopback.
fn is_at(listener: SocketAddr, ip: IpAddr, port: u16) -> bool {
    // The system connects the unspecified address to this machine.
    let is_any = ip.is_unspecified() || (listener.ip().is_unspecified() && ip.is_loopback());
    listener.port() == port && (listener.ip() == ip || is_any)
}

/// Whether the address is public. Of an IPv6 address that embeds an IPv4 address, both must be.
pub fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match translated(address) {
            Some(inner) => is_public_v4(inner),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let is_in = |(network, length): &([u8; 4], u8)| {
        let mask = u32::MAX << (32 - u32::from(*length));
        (address.to_bits() ^ u32::from_be_bytes(*network)) & mask == 0
    };
    !SPECIAL_V4.iter().any(is_in)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let is_in = |(network, length): &([u16; 3], u8)| {
        let [first, second, third] = *network;
        let network = Ipv6Addr::new(first, second, third, 0, 0, 0, 0, 0).to_bits();
        let mask = u128::MAX << (128 - u32::from(*length));
        (address.to_bits() ^ network) & mask == 0
    };
    address.segments()[0] & 0xe000 == 0x2000 && !SPECIAL_V6.iter().any(is_in)
}

/// Returns the IPv4 address that an address of NAT64 (`64:ff9b::/96`) or 6to4 (`2002::/16`) embeds.
fn translated(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let inner = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(inner(high, low)),
        [0x2002, high, low, ..] => Some(inner(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::EgressRules;

    #[test]
    fn connection_of_this_machine_to_its_listener_is_refused() {
        let rules = EgressRules::new(Vec::new(), vec!["[::]:8888".parse().expect("an address")]);
        let check = |peer: &str, local: &str| {
            rules.check_connected(peer.parse().expect("an address"), local.parse().expect("an address"))
        };
        assert!(check("203.0.113.7:8888", "203.0.113.7:40000").is_err());
        assert!(check("[::ffff:203.0.113.7]:8888", "203.0.113.7:40000").is_err());
        assert!(check("203.0.113.7:8889", "203.0.113.7:40000").is_ok());
        assert!(check("203.0.113.8:8888", "203.0.113.7:40000").is_ok());
    }

    #[test]
    fn unspecified_address_is_each_listener_of_this_machine() {
        let all = vec!["0.0.0.0/0".parse().expect("a network"), "::/0".parse().expect("a network")];
        let rules = EgressRules::new(all, vec!["127.0.0.1:8888".parse().expect("an address")]);
        let check = |address: &str| rules.check(address.parse().expect("an address"));
        assert!(check("0.0.0.0:8888").is_err() && check("[::]:8888").is_err());
        assert!(check("[::ffff:0.0.0.0]:8888").is_err() && check("127.0.0.1:8888").is_err());
        assert!(check("0.0.0.0:8889").is_ok());
        let (peer, local) = ("127.0.0.1:8888", "127.0.0.2:40000");
        let (peer, local) = (peer.parse().expect("an address"), local.parse().expect("an address"));
        assert!(rules.check_connected(peer, local).is_err());
    }
}
