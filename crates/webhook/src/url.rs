//! Addresses of subscribers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderValue, Uri};

use crate::limits::URL_BYTES;

/// Scheme of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    Http,
    Https,
}

/// Host of an address: a network address that was written as one, or a name to resolve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    Address(IpAddr),
    /// In lower case, without a dot at its end.
    Name(String),
}

/// The target of a connection. Connections are shared by deliveries of the same origin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    pub scheme: Scheme,
    pub host: Host,
    pub port: u16,
}

/// An address of a subscriber: an absolute `http` or `https` URL of at most 2,048 bytes of visible ASCII, without user
/// info and fragment.
///
/// An IPv4 address is written in four decimal parts; `0x7f.1`, `017700000001` and `2130706433`, which systems read as
/// addresses, are refused. International names are written in punycode.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl {
    text: String,
    origin: Origin,
    /// Path and query, as in the first line of a request.
    target: Uri,
    /// Value of the header `Host`.
    host_header: HeaderValue,
}

/// Why an address of a subscriber is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("the address has {bytes} bytes; at most {URL_BYTES} are allowed")]
    TooLong { bytes: usize },
    #[error(
        "the address must be visible ASCII: write other characters of a name in punycode, and those of a path as %XX"
    )]
    NotAscii,
    #[error("the address is not an absolute URL, as https://example.com/path")]
    NotAbsolute,
    #[error("the scheme must be http or https")]
    Scheme,
    #[error("user name and password are not allowed in the address; use a header")]
    UserInfo,
    #[error("a backslash is not allowed in the address; write %5C")]
    Backslash,
    #[error("a fragment (#...) is not allowed in the address")]
    Fragment,
    #[error(
        "the host is neither a DNS name nor an IPv4 address of four decimal parts nor an IPv6 address in brackets"
    )]
    Host,
    #[error("the port must be a number from 1 to 65535")]
    Port,
}

impl WebhookUrl {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > URL_BYTES {
            return Err(UrlError::TooLong { bytes: text.len() });
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(UrlError::NotAscii);
        }
        // Programs differ about a backslash: some read it as a slash, some as part of the host.
        if text.contains('\\') {
            return Err(UrlError::Backslash);
        }
        // The parser of URIs cuts a fragment off.
        if text.contains('#') {
            return Err(UrlError::Fragment);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::NotAbsolute)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(UrlError::Scheme),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(UrlError::UserInfo);
        }
        let (host, port) = split_port(authority)?;
        let host = parse_host(host)?;
        let port = match port {
            Some(port) => parse_port(port)?,
            None => scheme.port(),
        };
        let origin = Origin { scheme, host, port };
        let target = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let uri = target.parse::<Uri>().map_err(|_| UrlError::NotAbsolute)?;
        let authority = origin.authority();
        let host_header = HeaderValue::try_from(&authority).map_err(|_| UrlError::Host)?;
        Ok(Self { text: format!("{scheme}://{authority}{target}"), origin, target: uri, host_header })
    }

    /// Returns the address in its one spelling: scheme and host in lower case, the usual port left out.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns scheme, host and port. A log may show it; path and query may be secrets of the subscriber.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(crate) fn target(&self) -> &Uri {
        &self.target
    }

    pub(crate) fn host_header(&self) -> &HeaderValue {
        &self.host_header
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// Shows the origin only: path and query may be secrets of the subscriber.
impl fmt::Debug for WebhookUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "WebhookUrl({})", self.origin)
    }
}

impl Scheme {
    /// Returns the port of an address without one.
    pub fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

impl Origin {
    /// Returns host and port, without the usual port of the scheme.
    fn authority(&self) -> String {
        let host = match &self.host {
            Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
            Host::Address(IpAddr::V4(address)) => address.to_string(),
            Host::Name(name) => name.clone(),
        };
        if self.port == self.scheme.port() { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}", self.scheme, self.authority())
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), UrlError> {
    if authority.starts_with('[') {
        let end = authority.find(']').ok_or(UrlError::Host)?;
        let (host, rest) = authority.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(UrlError::Host),
        };
    }
    match authority.split_once(':') {
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((authority, None)),
    }
}

fn parse_port(text: &str) -> Result<u16, UrlError> {
    // The parser of numbers accepts a sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UrlError::Port);
    }
    text.parse().ok().filter(|port| *port != 0).ok_or(UrlError::Port)
}

fn parse_host(text: &str) -> Result<Host, UrlError> {
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or(UrlError::Host)?;
        let address = inner.parse::<Ipv6Addr>().map_err(|_| UrlError::Host)?;
        return Ok(Host::Address(IpAddr::V6(address)));
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    // Systems read such names as IPv4 addresses, each in its own way.
    if last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit()) {
        let address = name.parse::<Ipv4Addr>().map_err(|_| UrlError::Host)?;
        return Ok(Host::Address(IpAddr::V4(address)));
    }
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Err(UrlError::Host);
    }
    Ok(Host::Name(name))
}

fn is_label(label: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=63).contains(&label.len())
        && label.bytes().all(is_allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}
