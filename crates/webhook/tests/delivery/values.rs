//! Secrets, ids and headers of users.

use angarium_webhook::headers::HeaderError;
use angarium_webhook::signature::SecretError;
use angarium_webhook::{CustomHeaders, DeliveryId, SigningSecret};

use crate::sink::SECRET;

#[test]
fn signature_equals_the_published_vector() {
    let secret = SigningSecret::parse(SECRET).unwrap();
    let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b"{\"test\": 2432232314}");
    assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

#[test]
fn secret_is_bounded_and_hidden() {
    let secret = SigningSecret::parse(SECRET).unwrap();
    assert_eq!(format!("{secret:?}"), "SigningSecret(..)");
    for (text, error) in [
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", SecretError::Prefix),
        ("whsec_%%%%", SecretError::Base64),
        ("whsec_", SecretError::Length { bytes: 0 }),
        ("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", SecretError::Length { bytes: 23 }),
    ] {
        assert_eq!(SigningSecret::parse(text).unwrap_err(), error, "{text}");
    }
}

#[test]
fn id_has_no_dot() {
    assert_eq!(DeliveryId::parse("a-1").unwrap().as_str(), "a-1");
    for text in ["", "a.b", "a b", "a\r\nb", "é", &"a".repeat(129)] {
        assert!(DeliveryId::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn headers_of_the_service_are_reserved() {
    for name in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "connection",
        "keep-alive",
        "TE",
        "trailer",
        "upgrade",
        "proxy-authorization",
        "Content-Type",
        "webhook-id",
        "Webhook-Signature",
        "webhook-anything",
        "expect",
    ] {
        let refused = CustomHeaders::parse([(name, "x")]);
        assert!(matches!(refused, Err(HeaderError::Reserved { .. })), "{name}");
    }
    assert!(matches!(CustomHeaders::parse([("a b", "x")]), Err(HeaderError::Name { .. })));
    assert!(matches!(CustomHeaders::parse([("a", "x\r\nhost: b")]), Err(HeaderError::Value { .. })));
    assert_eq!(CustomHeaders::parse(vec![("a", "x"); 33]), Err(HeaderError::Count));
    assert_eq!(CustomHeaders::parse([("a", "x".repeat(8192).as_str())]), Err(HeaderError::Bytes));
    let headers = CustomHeaders::parse([("authorization", "hidden")]).unwrap();
    assert_eq!(format!("{headers:?}"), "[\"authorization\"]");
}
