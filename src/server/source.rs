//! The source of requests: the connection itself, or the statement of a trusted proxy.
//!
//! ```text
//! connection ──▶ of a trusted proxy? ──▶ its PROXY header, if it sends one ──▶ is that a trusted proxy too?
//!      │ no                                                                        │ yes, for each request:
//!      ▼                                                                           ▼
//!   its address, TLS or not                                    X-Forwarded-For, X-Forwarded-Proto
//! ```
//!
//! Only this module resolves the source: all later steps read [`Source`] from a request and no header.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tokio::net::TcpStream;
use tower::Service;

use super::exchange::App;
use super::limits;
use super::proxy_header;
use angarium_core::network::Network;
use angarium_core::source::{ForwardedFor, Source};

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The trusted proxies. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Arc<[Network]>);

impl FromIterator<Network> for Proxies {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

impl Proxies {
    /// Whether the proxy at this address is trusted.
    pub fn trust(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Returns the source of a connection whose peer is `seen`. If the peer is a trusted proxy, takes its PROXY header
    /// off the connection, for which it waits at most `max_wait`.
    ///
    /// # Errors
    ///
    /// The PROXY header is invalid or late. The connection cannot be used then.
    pub async fn source(&self, stream: &TcpStream, seen: Source, max_wait: Duration) -> io::Result<Source> {
        if !seen.address.is_some_and(|address| self.trust(address)) {
            return Ok(seen);
        }
        // Boxed, because the state is large and most connections have no proxy.
        let Some(told) = Box::pin(proxy_header::take(stream, max_wait)).await? else { return Ok(seen) };
        let address = told.address.map(|address| address.to_canonical());
        Ok(Source { address: address.or(seen.address), is_secure: told.is_secure.unwrap_or(seen.is_secure) })
    }

    /// Returns the source of a request on a connection.
    fn of_request(&self, connection: Source, headers: &HeaderMap) -> Source {
        let Some(proxy) = connection.address.filter(|address| self.trust(*address)) else {
            return connection;
        };
        let is_secure = match headers.get_all(PROTO).iter().next_back() {
            None => connection.is_secure,
            Some(value) => last(value).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
        };
        Source { address: self.client(proxy, headers), is_secure }
    }

    /// Returns the last address of `X-Forwarded-For` that is not a trusted proxy, or the first one if all are; none
    /// when the header cannot be read. The client itself may have written the addresses before it.
    fn client(&self, proxy: IpAddr, headers: &HeaderMap) -> Option<IpAddr> {
        let mut client = proxy;
        let mut hops = 0;
        for value in headers.get_all(FOR).iter().rev() {
            let text = value.to_str().ok()?.trim();
            if text.is_empty() {
                continue;
            }
            for hop in text.rsplit(',') {
                hops += 1;
                client = address(hop.trim()).filter(|_| hops <= limits::FORWARDED_HOPS)?;
                if !self.trust(client) {
                    return Some(client);
                }
            }
        }
        Some(client)
    }
}

/// Returns the last element of a list: the nearest proxy has added it.
fn last(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()?.rsplit(',').next().map(str::trim)
}

/// Parses an address, optionally with a port.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let address: IpAddr = text.parse().ok().or_else(bracketed).or_else(with_port)?;
    Some(address.to_canonical())
}

/// An app that adds the source to its requests.
#[derive(Clone, Debug)]
pub struct SourcedApp<A> {
    /// The app that answers.
    pub app: A,
    /// The source of the connection.
    pub connection: Source,
    /// The proxies that may state another source.
    pub proxies: Proxies,
}

impl<A: App> Service<Request<Body>> for SourcedApp<A> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = A::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.app.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> A::Future {
        let source = self.proxies.of_request(self.connection, request.headers());
        if source.address != self.connection.address {
            request.extensions_mut().insert(ForwardedFor(source.address));
        }
        request.extensions_mut().insert(source);
        self.app.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(networks: &[&str]) -> Proxies {
        networks.iter().map(|network| network.parse::<Network>().unwrap()).collect()
    }

    /// Returns the source of a request with these headers, over a plain connection.
    fn source(trusted: &[&str], from: &str, headers: &[(HeaderName, &str)]) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        proxies(trusted).of_request(Source::new(from.parse().unwrap(), false), &map).to_string()
    }

    #[test]
    fn forwarded_headers_of_untrusted_connection_are_ignored() {
        let headers = [(FOR, "203.0.113.9"), (PROTO, "https")];
        assert_eq!(source(&["10.0.0.0/8"], "192.0.2.1", &headers), "http 192.0.2.1");
        assert_eq!(source(&[], "10.0.0.1", &headers), "http 10.0.0.1");
        assert_eq!(source(&["10.0.0.0/8"], "10.0.0.1", &headers), "https 203.0.113.9");
        assert_eq!(source(&["10.0.0.0/8"], "::ffff:10.0.0.1", &headers), "https 203.0.113.9");
        assert_eq!(source(&["10.0.0.0/8"], "10.0.0.1", &[]), "http 10.0.0.1");
    }

    #[test]
    fn rightmost_untrusted_address_is_the_client() {
        for (lines, client) in [
            (&["203.0.113.9"][..], "203.0.113.9"),
            (&["192.0.2.66, 203.0.113.9"], "203.0.113.9"),
            (&["192.0.2.66, 203.0.113.9, 10.0.0.2,10.0.0.3"], "203.0.113.9"),
            (&["192.0.2.66", "203.0.113.9, 10.0.0.2", "10.0.0.3"], "203.0.113.9"),
            (&["10.0.0.4, 10.0.0.2"], "10.0.0.4"),
            (&["203.0.113.9:4711"], "203.0.113.9"),
            (&["2001:db8::1, [fd00::1]:80, [fd00::2]"], "2001:db8::1"),
            (&["::ffff:10.0.0.9, 10.0.0.2"], "10.0.0.9"),
            (&["", "203.0.113.9"], "203.0.113.9"),
            (&["what, 203.0.113.9"], "203.0.113.9"),
            (&["203.0.113.9, unknown"], "unknown"),
            (&["203.0.113.9, , 10.0.0.2"], "unknown"),
            (&["203.0.113.9, ü"], "unknown"),
        ] {
            let headers: Vec<_> = lines.iter().map(|line| (FOR, *line)).collect();
            let found = source(&["10.0.0.0/8", "fd00::/8"], "10.0.0.1", &headers);
            assert_eq!(found, format!("http {client}"), "{lines:?}");
        }
        let many = ["10.0.0.2"; limits::FORWARDED_HOPS + 1].join(",");
        assert_eq!(source(&["10.0.0.0/8"], "10.0.0.1", &[(FOR, &many)]), "http unknown");
    }

    #[test]
    fn scheme_is_set_by_the_nearest_proxy() {
        for (lines, scheme) in [
            (&["https"][..], "https"),
            (&["HTTPS"], "https"),
            (&["http"], "http"),
            (&["https, http"], "http"),
            (&["http", "https"], "https"),
            (&["wss"], "http"),
            (&[""], "http"),
        ] {
            let headers: Vec<_> = lines.iter().map(|line| (PROTO, *line)).collect();
            let found = source(&["10.0.0.0/8"], "10.0.0.1", &headers);
            assert_eq!(found, format!("{scheme} 10.0.0.1"), "{lines:?}");
        }
    }
}
