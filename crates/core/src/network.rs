//! Networks of IP addresses in CIDR notation, and membership of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network: the addresses that share its first bits. An IPv4 address written as IPv6 (`::ffff:10.0.0.1`) counts as
/// the IPv4 address, in a network and in an address that is compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The bits that its addresses share; the others are zero.
    bits: u128,
    /// Number of shared bits: 0 to 32, or 0 to 128.
    prefix: u32,
    is_v4: bool,
}

/// Returns the address by which a client is counted. A customer gets a network of 2^64 IPv6 addresses, so each such
/// network counts as one address.
pub fn customer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

const FORM: &str =
    "a network is an IP address, and a prefix if it is more than one, as in 10.0.0.0/8 or fd00::/8";

impl Network {
    /// Whether the network has this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (bits, is_v4) = number(address.to_canonical());
        is_v4 == self.is_v4 && masked(bits, self.prefix, width(is_v4)) == self.bits
    }
}

impl FromStr for Network {
    type Err = &'static str;

    /// Bits after the prefix may be set, as in `10.1.2.3/8`: they are ignored.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| FORM)?;
        let max = if address.is_ipv4() { Ipv4Addr::BITS } else { u128::BITS };
        let prefix = match prefix {
            Some(digits) if digits.len() <= 3 && digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                digits.parse().ok().filter(|prefix| *prefix <= max).ok_or(FORM)?
            }
            Some(_) => return Err(FORM),
            None => max,
        };
        // An IPv4 network in IPv6: the first 96 bits are those of the mapping.
        let mapping = u128::BITS - Ipv4Addr::BITS;
        let (address, prefix) = match address.to_canonical() {
            IpAddr::V4(mapped) if address.is_ipv6() && prefix >= mapping => (mapped.into(), prefix - mapping),
            _ => (address, prefix),
        };
        let (bits, is_v4) = number(address);
        Ok(Self { bits: masked(bits, prefix, width(is_v4)), prefix, is_v4 })
    }
}

fn number(address: IpAddr) -> (u128, bool) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), true),
        IpAddr::V6(address) => (address.to_bits(), false),
    }
}

fn width(is_v4: bool) -> u32 {
    if is_v4 { Ipv4Addr::BITS } else { u128::BITS }
}

/// Returns the first `prefix` of `width` bits; the rest is zero.
fn masked(bits: u128, prefix: u32, width: u32) -> u128 {
    let rest = width - prefix;
    bits.checked_shr(rest).and_then(|first| first.checked_shl(rest)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn network_contains_addresses_of_its_prefix() {
        for (text, inside, outside) in [
            (
                "10.0.0.0/8",
                &["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"][..],
                &["11.0.0.0", "9.255.255.255"][..],
            ),
            ("10.1.2.3/8", &["10.0.0.1"], &["11.0.0.1"]),
            ("192.0.2.7", &["192.0.2.7"], &["192.0.2.6", "::c000:207"]),
            ("192.0.2.7/32", &["192.0.2.7"], &["192.0.2.8"]),
            ("192.0.2.6/31", &["192.0.2.6", "192.0.2.7"], &["192.0.2.5", "192.0.2.8"]),
            ("0.0.0.0/0", &["0.0.0.0", "255.255.255.255"], &["::", "2001:db8::1"]),
            ("::/0", &["::", "2001:db8::1"], &["10.0.0.1", "::ffff:10.0.0.1"]),
            ("2001:db8::/33", &["2001:db8:7fff::1"], &["2001:db8:8000::", "2001:db9::"]),
            ("::1", &["::1"], &["::2", "127.0.0.1"]),
            ("::ffff:10.0.0.0/104", &["10.2.3.4"], &["11.0.0.1"]),
            ("::ffff:10.0.0.1", &["10.0.0.1"], &["10.0.0.2"]),
        ] {
            for address in inside {
                assert!(network(text).contains(address.parse().unwrap()), "{address} is in {text}");
            }
            for address in outside {
                assert!(!network(text).contains(address.parse().unwrap()), "{address} is not in {text}");
            }
        }
    }

    #[test]
    fn malformed_network_is_refused() {
        for bad in [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
            "10.0.0/8",
            "::/129",
            "::/",
            "localhost",
            "10.0.0.0/255.0.0.0",
            "10.0.0.1 ",
            "010.0.0.1",
            "10.0.0.0/0008",
        ] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
