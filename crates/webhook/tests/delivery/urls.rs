//! Addresses of subscribers.

use angarium_webhook::WebhookUrl;
use angarium_webhook::url::UrlError;
use proptest::prelude::*;

/// The spelling in which a subscription has an address; the text itself if it is none.
fn stored(text: &str) -> String {
    let url = angarium_core::webhook::WebhookUrl::new(text).and_then(Result::ok);
    url.map_or_else(|| text.to_owned(), |url| url.as_str().to_owned())
}

#[test]
fn addresses_have_one_spelling() {
    for (text, expected) in [
        ("http://a.example", "http://a.example/"),
        ("HTTPS://A.Example:443/P?q", "https://a.example/P?q"),
        ("http://a.example:443/", "http://a.example:443/"),
        ("http://a.example.:80", "http://a.example/"),
        ("http://a?b", "http://a/?b"),
        ("http://127.0.0.1/", "http://127.0.0.1/"),
        ("http://[::FFFF:127.0.0.1]:81/", "http://[::ffff:127.0.0.1]:81/"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
    ] {
        assert_eq!(WebhookUrl::parse(text).unwrap().as_str(), expected, "{text}");
        assert_eq!(stored(text), expected, "{text}");
    }
}

#[test]
fn unusable_addresses_are_refused() {
    for (text, error) in [
        ("", UrlError::NotAbsolute),
        ("/path", UrlError::NotAbsolute),
        ("a.example", UrlError::NotAbsolute),
        ("ftp://a.example/", UrlError::Scheme),
        ("file:///etc/passwd", UrlError::Scheme),
        ("http://", UrlError::Host),
        ("http:///path", UrlError::Host),
        ("http://user@a.example/", UrlError::UserInfo),
        ("http://user:pass@a.example/", UrlError::UserInfo),
        ("http://a.example\\@127.0.0.1/", UrlError::Backslash),
        ("http://a.example/\\x", UrlError::Backslash),
        ("http://a.example/#x", UrlError::Fragment),
        ("http://bücher.example/", UrlError::NotAscii),
        ("http://a.example/ x", UrlError::NotAscii),
        ("http://a.example/\r\nx: y", UrlError::NotAscii),
        ("http://a.example:0/", UrlError::Port),
        ("http://a.example:65536/", UrlError::Port),
        ("http://a.example:+80/", UrlError::Port),
        ("http://a.example:/", UrlError::Port),
        ("http://a:1:2/", UrlError::Port),
        ("http://a:443:80/", UrlError::Port),
        ("http://0x7f.1/", UrlError::Host),
        ("http://0x7f000001/", UrlError::Host),
        ("http://127.0.0.0x1/", UrlError::Host),
        ("http://017700000001/", UrlError::Host),
        ("http://0177.0.0.1/", UrlError::Host),
        ("http://2130706433/", UrlError::Host),
        ("http://127.1/", UrlError::Host),
        ("http://127.0.0.1../", UrlError::Host),
        ("http://256.0.0.1/", UrlError::Host),
        ("http://a..b/", UrlError::Host),
        ("http://-a.example/", UrlError::Host),
        ("http://%31%32%37.0.0.1/", UrlError::Host),
        ("http://[::1/", UrlError::Host),
        ("http://[fe80::1%25eth0]/", UrlError::Host),
        ("http://[127.0.0.1]/", UrlError::Host),
        ("http://[::1]x/", UrlError::Host),
        ("http://::1/", UrlError::Host),
    ] {
        assert_eq!(WebhookUrl::parse(text).map(|url| url.to_string()), Err(error), "{text}");
        assert!(WebhookUrl::parse(&stored(text)).is_err(), "{text}");
    }
    let long = format!("http://a.example/{}", "x".repeat(2048));
    assert_eq!(WebhookUrl::parse(&long), Err(UrlError::TooLong { bytes: long.len() }));
}

#[test]
fn debug_shows_no_path() {
    let url = WebhookUrl::parse("https://a.example/token/abc?key=1").unwrap();
    assert_eq!(format!("{url:?}"), "WebhookUrl(https://a.example)");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(http|https)?(://)?[ -~é]{0,40}") {
        if let Ok(url) = WebhookUrl::parse(&text) {
            prop_assert_eq!(WebhookUrl::parse(url.as_str()), Ok(url));
        }
    }
}
