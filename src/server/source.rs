//! Where requests come from: the connection itself, or what a proxy states of it that the settings trust.
//!
//! ```text
//! connection ──▶ of a trusted proxy? ──▶ its PROXY header, if it sends one ──▶ is that a trusted proxy too?
//!      │ no                                                                        │ yes, for each request:
//!      ▼                                                                           ▼
//!   its address, TLS or not                                    X-Forwarded-For, X-Forwarded-Proto
//! ```
//!
//! Owns the one answer to this question: everything behind it reads [`Source`] from a request and no header.

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

/// The proxies that are trusted. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Arc<[Network]>);

impl FromIterator<Network> for Proxies {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

impl Proxies {
    /// Whether the proxy at this address is believed.
    pub fn trust(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Where a connection is from that is `seen` to come from there. Takes the PROXY header off one of a trusted proxy,
    /// for which it waits at most for `max_wait`.
    ///
    /// # Errors
    ///
    /// A PROXY header that is wrong or late. The connection is of no use then.
    pub async fn source(&self, stream: &TcpStream, seen: Source, max_wait: Duration) -> io::Result<Source> {
        if !seen.address.is_some_and(|address| self.trust(address)) {
            return Ok(seen);
        }
        // Apart, for the room that it needs: most connections are of no proxy.
        let Some(told) = Box::pin(proxy_header::take(stream, max_wait)).await? else { return Ok(seen) };
        let address = told.address.map(|address| address.to_canonical());
        Ok(Source { address: address.or(seen.address), is_secure: told.is_secure.unwrap_or(seen.is_secure) })
    }

    /// Where a request over a connection is from.
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

    /// The last address of `X-Forwarded-For` that is of no trusted proxy, or the first one if all are; none when that
    /// cannot be read. What is before it the client itself may have written.
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

/// The last element of a list. That is what the nearest proxy has written.
fn last(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()?.rsplit(',').next().map(str::trim)
}

/// An address, which may have a port.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let address: IpAddr = text.parse().ok().or_else(bracketed).or_else(with_port)?;
    Some(address.to_canonical())
}

/// An app whose requests say where they come from.
#[derive(Clone, Debug)]
pub struct SourcedApp<A> {
    /// What answers.
    pub app: A,
    /// Where the connection is from.
    pub connection: Source,
    /// Who may say otherwise.
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

    /// Where a request with these headers is from, over a connection in the clear.
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
