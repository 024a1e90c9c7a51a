//! Requests that a page of another site makes a browser send. Without authentication whoever can reach the service may
//! use it, and a browser on this machine reaches it for every page that it shows; so what says that it comes from
//! another site is refused. With authentication the token is what a foreign page does not have.
//!
//! Not covered: a page whose own name was pointed at this machine (DNS rebinding) is of the same origin by all that a
//! request says. Who fears it turns authentication on.

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};

use crate::error::Error;

/// Refuses a request whose `Origin` is another than where it was sent to.
pub fn check(uri: &Uri, headers: &HeaderMap) -> Result<(), Error> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    // In HTTP/2 the host is a part of the URI.
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = uri.authority().map(Authority::as_str).or(host).unwrap_or_default();
    if is_same(origin, host) { Ok(()) } else { Err(Error::ForeignOrigin(shown(origin))) }
}

fn is_same(origin: &str, host: &str) -> bool {
    let Some((scheme, place)) = origin.split_once("://") else { return false };
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    // Either may leave out the port that goes with the scheme.
    let plain = |place: &str| place.strip_suffix(port).unwrap_or(place).to_ascii_lowercase();
    !host.is_empty() && plain(place) == plain(host)
}

/// As much of it as an answer repeats.
fn shown(origin: &str) -> String {
    origin.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        for (origin, host) in [
            ("http://localhost:8888", "localhost:8888"),
            ("http://LocalHost:8888", "localhost:8888"),
            ("http://a", "a:80"),
            ("https://a:443", "a"),
            ("http://[::1]:8888", "[::1]:8888"),
        ] {
            assert!(is_same(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("null", "localhost:8888"),
            ("", ""),
            ("http://", ""),
            ("http://evil.example", "localhost:8888"),
            ("http://localhost:3000", "localhost:8888"),
            ("http://localhost", "localhost:8888"),
            ("https://a", "a:80"),
            ("file://a", "a"),
            ("http://a.evil.example", "a"),
        ] {
            assert!(!is_same(origin, host), "{origin} {host}");
        }
    }
}
