//! Webhooks: subscribers to which the service sends messages over HTTP.

use std::fmt;
use std::net::Ipv6Addr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::attributes;
use crate::backoff::Backoff;
use crate::error::{Error, InvalidPart};
use crate::limits;
use crate::retry_policy::RetryPolicy;
use crate::settle::Retry;

/// The part of a template that the notification replaces: a JSON string, with its quotation marks (Zaqar).
pub(crate) const TEMPLATE_PART: &str = r#""$zaqar_message$""#;

/// Begins the text of a secret (Standard Webhooks).
const SECRET_PREFIX: &str = "whsec_";

const MAX_IN_FLIGHT: &str = "max_in_flight";
const RAW: &str = "raw";
const POST_HEADERS: &str = "post_headers";
const POST_DATA: &str = "post_data";
const RETRY_POLICY: &str = "_retry_policy";
const BACKOFF: &str = "_backoff";

/// The address of a webhook: text with the scheme `http` or `https`, in its one spelling. The sender of the service checks
/// all else of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl(String);

impl WebhookUrl {
    /// Reads an address; none for text with another scheme.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for one of more than [`limits::WEBHOOK_URL_BYTES`], and with other than visible ASCII
    /// characters.
    pub fn new(text: &str) -> Option<Result<Self, Error>> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme)?;
        if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return None;
        }
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        let fits = text.len() <= limits::WEBHOOK_URL_BYTES && is_visible;
        let why = || {
            let most = limits::WEBHOOK_URL_BYTES;
            let why = format!("the address has at most {most} ASCII characters, and no blanks");
            Error::invalid(InvalidPart::Limit, "subscriber", why)
        };
        Some(if fits { Ok(Self(one_spelling(text))) } else { Err(why()) })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The scheme, the host and the port. The rest of an address is often a credential.
    pub fn origin(&self) -> &str {
        let host = self.0.find("://").map_or(0, |at| at + "://".len());
        let end = self.0[host..].find(['/', '?', '#']).map_or(self.0.len(), |at| host + at);
        &self.0[..end]
    }
}

/// Returns an address in its one spelling, so that a repeated subscriber is recognised: scheme and host in lower case, the
/// usual port and a dot at the end of the host left out, the path not empty. Path and query stay as they are, because a
/// subscriber may tell their spellings apart. An address that the sender refuses stays one.
fn one_spelling(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let scheme = scheme.to_ascii_lowercase();
    let (authority, target) = rest.split_at(rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return text.to_owned();
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let ipv6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match ipv6.and_then(|address| address.parse::<Ipv6Addr>().ok()) {
        Some(address) => format!("[{address}]"),
        None => {
            host.strip_suffix('.').filter(|name| !name.ends_with('.')).unwrap_or(host).to_ascii_lowercase()
        }
    };
    let usual = if scheme == "http" { 80 } else { 443 };
    // The parser of numbers accepts a sign.
    let number =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse::<u16>().ok());
    let port = match port.map(|port| number(port).flatten().ok_or(port)) {
        Some(Ok(port)) if port != usual => format!(":{port}"),
        Some(Err(port)) => format!(":{port}"),
        Some(Ok(_)) | None => String::new(),
    };
    let slash = if target.is_empty() || target.starts_with('?') { "/" } else { "" };
    format!("{scheme}://{host}{port}{slash}{target}")
}

/// A key with which the requests to a webhook are signed, as its text: `whsec_` and Base64 (Standard Webhooks).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WebhookSecret(String);

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret")
    }
}

impl WebhookSecret {
    /// Makes a secret of random bytes.
    pub fn of_bytes(bytes: [u8; 32]) -> Self {
        Self(format!("{SECRET_PREFIX}{}", STANDARD.encode(bytes)))
    }

    /// Reads a secret: `whsec_` and the Base64 form of 24 to 64 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], which does not contain the text.
    pub fn new(text: &str) -> Result<Self, Error> {
        let (min, most) = limits::WEBHOOK_SECRET_BYTES;
        let bytes = text.strip_prefix(SECRET_PREFIX).and_then(|text| STANDARD.decode(text).ok());
        if bytes.is_some_and(|bytes| (min..=most).contains(&bytes.len())) {
            return Ok(Self(text.to_owned()));
        }
        let why = format!("a secret is {SECRET_PREFIX} and the Base64 form of {min} to {most} bytes");
        Err(Error::invalid(InvalidPart::Limit, "secrets", why))
    }

    /// The text, for the sender and for the answer to its maker.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The options of a subscription that concern its webhook.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Messages that are being delivered at the same time.
    pub max_in_flight: u32,
    /// Whether the body of a request is that of the message, without a notification around it.
    pub is_raw: bool,
    /// Names and values of further headers of a request.
    pub headers: Vec<(String, String)>,
    /// The body of a request, with a place for the notification.
    pub template: Option<String>,
    /// The pauses between attempts.
    pauses: Pauses,
}

#[derive(Clone, Debug)]
enum Pauses {
    /// Zaqar's `_retry_policy`.
    Policy(RetryPolicy),
    /// The `_backoff` of the subscription's queue.
    OfQueue,
    Default,
}

impl WebhookOptions {
    /// Reads the JSON object of a subscription's options.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], which names the key.
    pub fn read(options: &RawValue) -> Result<Self, Error> {
        let entries = attributes::entries(options).unwrap_or_default();
        let wrong = |key: &str, why: &str| {
            Error::invalid(InvalidPart::Limit, format!("options.{key}"), why.to_owned())
        };
        let value = |key: &str| -> Option<Value> { serde_json::from_str(entries.get(key)?.get()).ok() };
        let max_in_flight = match value(MAX_IN_FLIGHT) {
            None => limits::WEBHOOK_IN_FLIGHT_DEFAULT,
            Some(number) => number
                .as_u64()
                .and_then(|number| u32::try_from(number).ok())
                .filter(|number| (1..=limits::WEBHOOK_IN_FLIGHT_MAX).contains(number))
                .ok_or_else(|| wrong(MAX_IN_FLIGHT, "it is a whole number from 1 to 100"))?,
        };
        let is_raw = match value(RAW) {
            None => false,
            Some(raw) => raw.as_bool().ok_or_else(|| wrong(RAW, "it is true or false"))?,
        };
        let template = match value(POST_DATA) {
            None => None,
            // A notification is as large as its message: the place for it multiplies the memory of a request.
            Some(Value::String(text)) if text.matches(TEMPLATE_PART).count() > 1 => {
                return Err(wrong(POST_DATA, "the notification has one place in it"));
            }
            Some(Value::String(text)) if !is_raw => Some(text),
            Some(Value::String(_)) => return Err(wrong(POST_DATA, "a raw body has no template")),
            Some(_) => return Err(wrong(POST_DATA, "it is a text")),
        };
        let pauses = match entries.get(RETRY_POLICY) {
            Some(policy) => {
                Pauses::Policy(RetryPolicy::parse(policy.get()).map_err(|why| wrong(RETRY_POLICY, &why))?)
            }
            None if entries.contains_key(BACKOFF) => Pauses::OfQueue,
            None => Pauses::Default,
        };
        let headers = headers(value(POST_HEADERS)).map_err(|why| wrong(POST_HEADERS, &why))?;
        Ok(Self { max_in_flight, is_raw, headers, template, pauses })
    }

    /// Whether and when a message is sent again after this many failed attempts. `chance` is a random number from 0 to 1.
    pub fn retry(&self, attempts: u32, chance: f64) -> Retry {
        match &self.pauses {
            Pauses::Policy(policy) => policy.pause(attempts).map_or(Retry::Never, Retry::After),
            Pauses::OfQueue => Retry::Backoff,
            Pauses::Default => Retry::After(Backoff::WEBHOOK.seconds(attempts, chance)),
        }
    }
}

/// Reads the further headers. Their names and values are checked by the sender.
fn headers(value: Option<Value>) -> Result<Vec<(String, String)>, String> {
    let object = match value {
        None => return Ok(Vec::new()),
        Some(Value::Object(object)) => object,
        Some(_) => return Err("it is an object of texts".to_owned()),
    };
    if object.len() > limits::WEBHOOK_HEADERS {
        return Err(format!("there are at most {} headers", limits::WEBHOOK_HEADERS));
    }
    let text = |(name, value): (String, Value)| match value {
        Value::String(value) => Ok((name, value)),
        _ => Err(format!("the value of {name} is no text")),
    };
    object.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<WebhookOptions, Error> {
        WebhookOptions::read(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn address_has_a_scheme_of_the_web() {
        assert!(WebhookUrl::new("queue:a").is_none() && WebhookUrl::new("ftp://a").is_none());
        assert_eq!(WebhookUrl::new("HTTPS://a/B?C").unwrap().unwrap().as_str(), "https://a/B?C");
        for (text, origin) in [
            ("https://a:1/b?c", "https://a:1"),
            ("http://a", "http://a"),
            ("http://a?b/c", "http://a"),
            ("http://", "http://"),
        ] {
            assert_eq!(WebhookUrl::new(text).unwrap().unwrap().origin(), origin);
        }
        let long = format!("https://a/{}", "b".repeat(limits::WEBHOOK_URL_BYTES));
        for wrong in ["http://a b", "http://ä", "https://a\r\nb", &long] {
            assert!(WebhookUrl::new(wrong).unwrap().is_err(), "{wrong}");
        }
    }

    #[test]
    fn spellings_of_an_address_are_one_address() {
        for (spellings, expected) in [
            (&["HTTP://Host:80/", "http://host/", "http://host", "http://host.:080"][..], "http://host/"),
            (&["https://A.example:443?x=Y"], "https://a.example/?x=Y"),
            (&["https://[0:0::1]:443/a", "https://[::1]/a"], "https://[::1]/a"),
            (&["https://a:0080/B/../c%2f"], "https://a:80/B/../c%2f"),
            // The sender refuses these.
            (&["http://me:pass@Host"], "http://me:pass@Host"),
            (&["http://a:x/"], "http://a:x/"),
            (&["http://a:/"], "http://a:/"),
            (&["http://[::1"], "http://[::1/"),
        ] {
            for spelling in spellings {
                let url = WebhookUrl::new(spelling).unwrap().unwrap();
                assert_eq!(url.as_str(), expected, "{spelling}");
                assert_eq!(WebhookUrl::new(url.as_str()).unwrap().unwrap(), url);
            }
        }
    }

    #[test]
    fn secret_is_read_as_it_is_made_and_never_shown() {
        let secret = WebhookSecret::of_bytes([7; 32]);
        assert_eq!(WebhookSecret::new(secret.as_str()).unwrap(), secret);
        assert!(!format!("{secret:?}").contains("Bwc"));
        for wrong in ["", "whsec_", "whsec_YWJj", "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH", "whsec_%"] {
            let error = WebhookSecret::new(wrong).unwrap_err();
            assert!(wrong.len() < 8 || !error.to_string().contains(wrong), "{error}");
        }
    }

    #[test]
    fn options_have_defaults_and_bounds() {
        let read = options("{}").unwrap();
        assert_eq!((read.max_in_flight, read.is_raw, read.template), (10, false, None));
        let read = options(r#"{"max_in_flight": 100, "raw": true, "post_headers": {"X-Key": "a"}}"#).unwrap();
        assert_eq!((read.max_in_flight, read.is_raw), (100, true));
        assert_eq!(read.headers, [("X-Key".to_owned(), "a".to_owned())]);
        for wrong in [
            r#"{"max_in_flight": 0}"#,
            r#"{"max_in_flight": 101}"#,
            r#"{"max_in_flight": "1"}"#,
            r#"{"raw": 1}"#,
            r#"{"raw": true, "post_data": "a"}"#,
            r#"{"post_data": {}}"#,
            r#"{"post_data": "[\"$zaqar_message$\", \"$zaqar_message$\"]"}"#,
            r#"{"post_headers": []}"#,
            r#"{"post_headers": {"a": 1}}"#,
            r#"{"_retry_policy": {"maximum_delay": -1}}"#,
        ] {
            assert!(options(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn policy_or_backoff_replaces_the_pauses() {
        assert!(matches!(options("{}").unwrap().retry(1, 0.5), Retry::After(1)));
        assert!(matches!(options(r#"{"_backoff": {"first": 5}}"#).unwrap().retry(1, 0.5), Retry::Backoff));
        let policy = options(
            r#"{"_retry_policy": {"retries_with_no_delay": 1, "minimum_delay_retries": 0,
            "maximum_delay_retries": 0, "minimum_delay": 1, "maximum_delay": 11}}"#,
        );
        let policy = policy.unwrap();
        assert!(matches!(policy.retry(1, 0.5), Retry::After(0)));
        assert!(matches!(policy.retry(1_000, 0.5), Retry::Never));
    }
}
