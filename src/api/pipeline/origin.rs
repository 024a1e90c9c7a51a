//! Defence against web pages of other sites. Without authentication, every client that can reach the service may use
//! it, and a browser on this machine reaches it for every page that it shows. So a request without proof of its sender
//! is refused if its headers name another site, if it changes something in a form that any page can have a browser
//! send, or if it names a host that is not a name of this service.
//!
//! | a page tries | refused by |
//! |---|---|
//! | `fetch`, a form of another site | `Origin`, `Sec-Fetch-Site` |
//! | `<img>`, a link, `window.open` | `Sec-Fetch-Site`; from a browser without it, a GET that changes something |
//! | its own name pointed at this machine (DNS rebinding) | the host, whatever other headers the request has: they are not checked, and such a page can add any header |
//!
//! A header with credentials exempts a request from the first two: a page of another site cannot add one, because the
//! browser asks for permission first and gets none. Credentials that a browser adds by itself (`Basic` and the like)
//! exempt from nothing. With authentication on, a foreign page has no token, so these checks are not needed.

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};

use angarium_core::error::Error;
use angarium_core::hosts::{AllowedHosts, host_of};
use angarium_core::probe;

/// The header in which a browser states the site of a request (Fetch Metadata). Pages cannot change it.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Values for an address that a person typed, and for a page of this service.
const OWN_SITES: [&[u8]; 2] = [b"none", b"same-origin"];

const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// Credential schemes that a browser keeps and adds by itself.
const OF_BROWSERS: [&str; 4] = ["basic", "digest", "negotiate", "ntlm"];

/// Refuses the request of a page of another site. `hosts` are the names of the service.
pub fn check(hosts: &AllowedHosts, uri: &Uri, headers: &HeaderMap) -> Result<(), Error> {
    check_host(hosts, uri, headers)?;
    check_origin(uri, headers)?;
    match headers.get(SITE) {
        Some(site) if !OWN_SITES.contains(&site.as_bytes()) && !has_credentials(headers) => {
            Err(Error::ForeignSite(shown(site.to_str().unwrap_or_default())))
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses `operation`, which changes something, if any page can have a browser send it.
pub fn check_change(head: &Parts, operation: &'static str) -> Result<(), Error> {
    let is_safe = head.method != Method::GET || has_credentials(&head.headers);
    if is_safe { Ok(()) } else { Err(Error::UnsafeGet(operation)) }
}

/// Whether a request has a header with credentials that a page of another site cannot add.
fn has_credentials(headers: &HeaderMap) -> bool {
    let is_own = |credentials: &HeaderValue| {
        let scheme = credentials.to_str().unwrap_or_default().split(' ').next().unwrap_or_default();
        !scheme.is_empty() && !OF_BROWSERS.iter().any(|of_browser| scheme.eq_ignore_ascii_case(of_browser))
    };
    headers.get(header::AUTHORIZATION).is_some_and(is_own) || headers.contains_key(TOKEN)
}

/// Refuses a host that is not a name of this service. Probes are exempt: they show and change nothing, and a client
/// that probes may use its own name for the service. Browsers always send the host.
fn check_host(hosts: &AllowedHosts, uri: &Uri, headers: &HeaderMap) -> Result<(), Error> {
    if probe::is_health(uri.path()) {
        return Ok(());
    }
    let named = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    // In HTTP/2 the host is a part of the URI.
    match uri.authority().map(Authority::as_str).into_iter().chain(named).find(|host| !hosts.admit(host)) {
        Some(foreign) => {
            let foreign = host_of(foreign).unwrap_or(foreign);
            Err(Error::ForeignHost(shown(foreign)))
        }
        None => Ok(()),
    }
}

/// Refuses a request whose `Origin` differs from the host that it was sent to.
fn check_origin(uri: &Uri, headers: &HeaderMap) -> Result<(), Error> {
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
    // Either of them may omit the default port of the scheme.
    let plain = |place: &str| place.strip_suffix(port).unwrap_or(place).to_ascii_lowercase();
    !host.is_empty() && plain(place) == plain(host)
}

/// Truncates a text for an error message.
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

    fn request(target: &str, headers: &[(&'static str, &str)]) -> Parts {
        let mut request = axum::http::Request::get(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn refusal(target: &str, headers: &[(&'static str, &str)]) -> Option<&'static str> {
        let head = request(target, headers);
        let hosts = AllowedHosts::new(["angarium".parse().unwrap()]);
        check(&hosts, &head.uri, &head.headers).err().map(|error| error.code())
    }

    #[test]
    fn requests_of_programs_and_own_pages_are_served() {
        for headers in [
            &[][..],
            &[("host", "localhost:8888")],
            &[("host", "angarium:8888")],
            &[("host", "127.0.0.1"), ("sec-fetch-site", "none")],
            &[("host", "[::1]:1"), ("sec-fetch-site", "same-origin"), ("origin", "http://[::1]:1")],
            &[
                ("host", "127.0.0.1"),
                ("sec-fetch-site", "cross-site"),
                ("authorization", "AWS4-HMAC-SHA256 x"),
            ],
            &[("host", "127.0.0.1"), ("sec-fetch-site", "same-site"), ("x-auth-token", "t")],
        ] {
            assert_eq!(refusal("/v2/queues", headers), None, "{headers:?}");
        }
    }

    #[test]
    fn requests_of_foreign_pages_are_refused() {
        for (headers, code) in [
            (&[("host", "127.0.0.1"), ("sec-fetch-site", "cross-site")][..], "foreign_site"),
            (&[("host", "127.0.0.1"), ("sec-fetch-site", "same-site")], "foreign_site"),
            (&[("host", "127.0.0.1"), ("sec-fetch-site", "")], "foreign_site"),
            (
                &[("host", "127.0.0.1"), ("sec-fetch-site", "cross-site"), ("authorization", "Basic eDp5")],
                "foreign_site",
            ),
            (&[("host", "127.0.0.1"), ("origin", "null")], "foreign_origin"),
            (&[("host", "evil.example:8888")], "foreign_host"),
            (&[("host", "evil.example:8888"), ("sec-fetch-site", "same-origin")], "foreign_host"),
            (&[("host", "evil.example"), ("authorization", "Bearer made-up")], "foreign_host"),
            (&[("host", "localhost"), ("host", "evil.example")], "foreign_host"),
        ] {
            assert_eq!(refusal("/v2/queues", headers), Some(code), "{headers:?}");
        }
        assert_eq!(refusal("http://evil.example:1/v2/queues", &[]), Some("foreign_host"));
        assert_eq!(
            refusal("http://evil.example:1/v2/queues", &[("host", "localhost")]),
            Some("foreign_host")
        );
    }

    #[test]
    fn probe_under_another_name_is_answered() {
        for path in ["/livez", "/readyz", "/v2/ping"] {
            assert_eq!(refusal(path, &[("host", "balancer.example")]), None, "{path}");
        }
        assert_eq!(refusal("/metrics", &[("host", "balancer.example")]), Some("foreign_host"));
    }

    #[test]
    fn change_by_get_needs_a_header_with_credentials() {
        let check = |headers: &[(&'static str, &str)]| check_change(&request("/", headers), "SendMessage");
        assert!(matches!(check(&[]), Err(Error::UnsafeGet("SendMessage"))));
        assert!(matches!(check(&[("authorization", "Basic eDp5")]), Err(Error::UnsafeGet(_))));
        assert!(check(&[("authorization", "AWS4-HMAC-SHA256 Credential=x")]).is_ok());
        let mut post = request("/", &[]);
        post.method = Method::POST;
        assert!(check_change(&post, "SendMessage").is_ok());
    }
}
