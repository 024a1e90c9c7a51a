//! The source of a request: the address of its client, and whether the client's connection is encrypted. The replica
//! that the client is connected to finds out, and tells the replica that serves the request.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The source of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The client's address, never an IPv4 address written as IPv6; none when a proxy sent an unreadable one.
    pub address: Option<IpAddr>,
    /// Whether the client uses TLS, as far as the service or a trusted proxy knows.
    pub is_secure: bool,
}

impl Source {
    /// The client at `address`.
    pub fn new(address: IpAddr, is_secure: bool) -> Self {
        Self { address: Some(address.to_canonical()), is_secure }
    }
}

/// The address that a trusted proxy names in `X-Forwarded-For`, beside the [`Source`] of a request; none when it is
/// unreadable. Absent when the client is connected without a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedFor(pub Option<IpAddr>);

/// Text form of an unknown address.
const UNKNOWN: &str = "unknown";
const SECURE: &str = "https";
const CLEAR: &str = "http";

/// The scheme and the address, as in `https 192.0.2.7`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_secure { SECURE } else { CLEAR })?;
        match self.address {
            Some(address) => write!(f, " {address}"),
            None => write!(f, " {UNKNOWN}"),
        }
    }
}

impl FromStr for Source {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "a source is a scheme and an address";
        let (scheme, address) = text.split_once(' ').ok_or(FORM)?;
        let is_secure = match scheme {
            SECURE => true,
            CLEAR => false,
            _ => return Err(FORM),
        };
        let address = match address {
            UNKNOWN => None,
            address => Some(address.parse::<IpAddr>().map_err(|_| FORM)?.to_canonical()),
        };
        Ok(Self { address, is_secure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_text_is_read_back() {
        for (address, is_secure, text) in [
            (Some("192.0.2.7"), true, "https 192.0.2.7"),
            (Some("2001:db8::1"), false, "http 2001:db8::1"),
            (None, true, "https unknown"),
        ] {
            let address = address.map(|address| address.parse().unwrap());
            let source = Source { address, is_secure };
            assert_eq!(source.to_string(), text);
            assert_eq!(text.parse(), Ok(source));
        }
        assert_eq!(Source::new("::ffff:192.0.2.7".parse().unwrap(), false).to_string(), "http 192.0.2.7");
        for bad in ["", "https", "ftp 192.0.2.7", "https 192.0.2", "https  192.0.2.7", "192.0.2.7 https"] {
            assert!(bad.parse::<Source>().is_err(), "{bad}");
        }
    }
}
