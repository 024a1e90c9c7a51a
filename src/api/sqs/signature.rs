//! AWS signatures of requests, version 4, in a header or in the URL. The signed text is rebuilt from the received
//! request, and the signature is compared in constant time.
//!
//! The service keeps no record of used signatures: a recorded request can be repeated until its date expires. TLS
//! prevents the recording.

use std::fmt;

use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::fault::{Fault, Kind};
use angarium_core::access_keys::AccessKeyTable;
use angarium_core::limits;
use angarium_core::names::ProjectId;
use angarium_core::time::Timestamp;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const TERMINATOR: &str = "aws4_request";
const SERVICE: &str = "sqs";
const DATE: &str = "x-amz-date";
const CONTENT: &str = "x-amz-content-sha256";
const SIGNATURE: &str = "X-Amz-Signature";

/// The signer of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Signer {
    /// The account of the key.
    pub project: ProjectId,
    /// The region of the signature.
    pub region: String,
}

/// A signature and its scope, as the request states them.
#[derive(Debug)]
struct Signature {
    key: String,
    /// `DATE/REGION/SERVICE/aws4_request`
    scope: String,
    headers: Vec<String>,
    signature: String,
    date: String,
    /// Validity in seconds, for a signature in a URL.
    expires: Option<u32>,
}

/// A request with checked headers; the body is still to be checked.
pub struct ScreenedHeaders {
    signed: Signature,
    query: Vec<(String, String)>,
    secret: String,
    project: ProjectId,
    region: String,
    /// The hash of the body, if the headers have it. The signature was then checked for this hash.
    told: Option<String>,
}

impl fmt::Debug for ScreenedHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScreenedHeaders").field("signed", &self.signed).finish_non_exhaustive()
    }
}

/// Checks the headers of a request: the key, the scope of the signature, its date, and, if the headers have the hash of
/// the body, the signature itself.
pub fn judge(head: &Parts, keys: &AccessKeyTable, now: Timestamp) -> Result<ScreenedHeaders, Fault> {
    let query = pairs(head.uri.query().unwrap_or_default());
    let is_in_query = query.iter().any(|(name, _)| name == SIGNATURE);
    let signed = if is_in_query { in_query(&query)? } else { in_header(&head.headers)? };
    let unknown =
        || Fault::new(Kind::InvalidClientTokenId, "The security token included in the request is invalid.");
    let key = keys.get(&signed.key).ok_or_else(unknown)?;
    let [day, region, service, terminator] = signed.scope.split('/').collect::<Vec<_>>()[..] else {
        return Err(incomplete("the credential is not of the form KEY/DATE/REGION/sqs/aws4_request"));
    };
    if service != SERVICE || terminator != TERMINATOR || !signed.date.starts_with(day) {
        return Err(mismatch("The credential is for another service, or another day."));
    }
    check_date(&signed, now)?;
    check_headers(head, &signed)?;
    let region = region.to_owned();
    let told = told(head, &signed);
    let (secret, project) = (key.secret.clone(), key.project.clone());
    let judged = ScreenedHeaders { signed, query, secret, project, region, told };
    if let Some(told) = &judged.told {
        judged.check(head, told)?;
    }
    Ok(judged)
}

impl ScreenedHeaders {
    /// Returns the account of the key and the region of the signature.
    pub fn project(&self) -> (&ProjectId, &str) {
        (&self.project, &self.region)
    }

    /// Whether the headers have the hash of the body, so that their signature was checked.
    pub fn has_content_hash(&self) -> bool {
        self.told.is_some()
    }

    /// Checks that the signature is for this body.
    pub fn check_body(self, head: &Parts, body: &[u8]) -> Result<Signer, Fault> {
        let hash = hex(&Sha256::digest(body));
        match &self.told {
            Some(told) if *told == hash => {}
            Some(_) => return Err(mismatch("The body is not the one of X-Amz-Content-Sha256.")),
            None => self.check(head, &hash)?,
        }
        Ok(Signer { project: self.project, region: self.region })
    }

    /// Checks that the signature is for a body with this hash.
    fn check(&self, head: &Parts, content: &str) -> Result<(), Fault> {
        let text = to_sign(&canonical(head, &self.query, &self.signed, content), &self.signed);
        let signature =
            from_hex(&self.signed.signature).ok_or_else(|| incomplete("the signature is not hexadecimal"))?;
        let mut mac = mac(&signing_key(&self.secret, &self.signed.scope));
        mac.update(text.as_bytes());
        let why = "The request signature we calculated does not match the signature you provided. Check your secret \
                   access key and signing method.";
        mac.verify_slice(&signature).map_err(|_| mismatch(why))
    }
}

fn incomplete(why: &str) -> Fault {
    Fault::new(Kind::IncompleteSignature, format!("The signature cannot be checked: {why}."))
}

fn mismatch(why: &str) -> Fault {
    Fault::new(Kind::SignatureDoesNotMatch, why)
}

fn in_header(headers: &HeaderMap) -> Result<Signature, Fault> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let authorization = text(header::AUTHORIZATION.as_str());
    if authorization.is_empty() {
        return Err(Fault::new(Kind::MissingAuthenticationToken, "Request is missing Authentication Token."));
    }
    let parts =
        authorization.strip_prefix(ALGORITHM).ok_or_else(|| incomplete("it is not AWS4-HMAC-SHA256"))?;
    let part = |name: &str| {
        let mut parts = parts.split(',').filter_map(|part| part.trim().split_once('='));
        parts.find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
    };
    let (Some(credential), Some(headers), Some(signature)) =
        (part("Credential"), part("SignedHeaders"), part("Signature"))
    else {
        return Err(incomplete("it lacks Credential, SignedHeaders or Signature"));
    };
    Signature::new(&credential, &headers, signature, text(DATE).to_owned(), None)
}

fn in_query(query: &[(String, String)]) -> Result<Signature, Fault> {
    let value = |name: &str| query.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
    if value("X-Amz-Algorithm").as_deref() != Some(ALGORITHM) {
        return Err(incomplete("it is not AWS4-HMAC-SHA256"));
    }
    let expires = value("X-Amz-Expires").and_then(|seconds| seconds.parse().ok());
    let expires = expires.filter(|seconds| (1..=limits::SQS_PRESIGNED_SECONDS).contains(seconds));
    let (Some(credential), Some(headers), Some(signature), Some(date), Some(expires)) = (
        value("X-Amz-Credential"),
        value("X-Amz-SignedHeaders"),
        value(SIGNATURE),
        value("X-Amz-Date"),
        expires,
    ) else {
        return Err(incomplete("it lacks Credential, Date, SignedHeaders or Signature, or expires never"));
    };
    Signature::new(&credential, &headers, signature, date, Some(expires))
}

impl Signature {
    fn new(
        credential: &str,
        headers: &str,
        signature: String,
        date: String,
        expires: Option<u32>,
    ) -> Result<Self, Fault> {
        let (key, scope) =
            credential.split_once('/').ok_or_else(|| incomplete("the credential has no scope"))?;
        let headers: Vec<_> = headers.split(';').map(str::to_ascii_lowercase).collect();
        // Each header is looked up and its value copied before the client is authenticated, so their number is bounded.
        let is_repeated = |(at, name): (usize, &String)| headers.iter().skip(at + 1).any(|next| next == name);
        if headers.len() > limits::SIGNED_HEADERS || headers.iter().enumerate().any(is_repeated) {
            return Err(incomplete("SignedHeaders names a header twice, or more than 100 of them"));
        }
        Ok(Self { key: key.to_owned(), scope: scope.to_owned(), headers, signature, date, expires })
    }
}

fn check_date(signed: &Signature, now: Timestamp) -> Result<(), Fault> {
    let date =
        instant(&signed.date).ok_or_else(|| incomplete("X-Amz-Date is not a date as in 20150830T123600Z"))?;
    let skew = limits::SQS_CLOCK_SKEW_SECONDS;
    let ends = date.plus_seconds(signed.expires.unwrap_or(skew));
    if now.plus_seconds(skew) < date || now > ends {
        let why =
            format!("Signature not current: it is of {}, and now it is {}.", signed.date, now.calendar());
        let kind = if signed.expires.is_some() { Kind::AccessDenied } else { Kind::SignatureNotCurrent };
        return Err(Fault::new(kind, why));
    }
    Ok(())
}

/// Parses a date like `20150830T123600Z`.
fn instant(date: &str) -> Option<Timestamp> {
    let is_plain = date.len() == 16 && date.is_ascii();
    let of = |from: usize, to: usize| date.get(from..to);
    let (day, time) = ((of(0, 4)?, of(4, 6)?, of(6, 8)?), (of(9, 11)?, of(11, 13)?, of(13, 15)?));
    let text = format!("{}-{}-{}T{}:{}:{}Z", day.0, day.1, day.2, time.0, time.1, time.2);
    let is_framed = of(8, 9)? == "T" && of(15, 16)? == "Z";
    Timestamp::from_calendar(&text).filter(|_| is_plain && is_framed)
}

/// Checks that the signature covers the host and the header with the operation.
fn check_headers(head: &Parts, signed: &Signature) -> Result<(), Fault> {
    let is_signed = |name: &str| signed.headers.iter().any(|header| header == name);
    let target = "x-amz-target";
    if !is_signed("host") || (head.headers.contains_key(target) && !is_signed(target)) {
        return Err(mismatch("The signature must cover the headers Host and X-Amz-Target."));
    }
    Ok(())
}

/// Returns the hash of the body, if a signed header has it.
fn told(head: &Parts, signed: &Signature) -> Option<String> {
    let told = head.headers.get(CONTENT).filter(|_| signed.headers.iter().any(|name| name == CONTENT))?;
    // A value that is not text matches no hash.
    Some(String::from_utf8_lossy(told.as_bytes()).into_owned())
}

/// Returns the canonical request.
fn canonical(head: &Parts, query: &[(String, String)], signed: &Signature, content: &str) -> String {
    let mut parameters: Vec<(String, String)> = query
        .iter()
        .filter(|(name, _)| name != SIGNATURE)
        .map(|(name, value)| (escaped(name, false), escaped(value, false)))
        .collect();
    parameters.sort_unstable();
    let parameters: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut text = format!("{}\n{}\n{}\n", head.method, escaped(&path(head), true), parameters.join("&"));
    for name in &signed.headers {
        text.push_str(&format!("{name}:{}\n", value_of(head, name)));
    }
    text.push_str(&format!("\n{}\n{content}", signed.headers.join(";")));
    text
}

/// Returns the path without `.` and `..` segments, escaped once more than in the URL.
fn path(head: &Parts) -> String {
    let mut segments = Vec::new();
    let path = head.uri.path();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let end = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    format!("/{}{end}", segments.join("/"))
}

/// Returns the values of a header, with single blanks. In HTTP/2 the host is a part of the URI.
fn value_of(head: &Parts, name: &str) -> String {
    let mut values: Vec<String> = head
        .headers
        .get_all(name)
        .iter()
        .map(|value| {
            String::from_utf8_lossy(value.as_bytes()).split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .collect();
    if values.is_empty() && name == "host" {
        values.extend(head.uri.authority().map(ToString::to_string));
    }
    values.join(",")
}

/// Returns the text that is signed.
fn to_sign(canonical: &str, signed: &Signature) -> String {
    format!("{ALGORITHM}\n{}\n{}\n{}", signed.date, signed.scope, hex(&Sha256::digest(canonical.as_bytes())))
}

fn signing_key(secret: &str, scope: &str) -> Vec<u8> {
    scope.split('/').fold(format!("AWS4{secret}").into_bytes(), |key, part| {
        let mut mac = mac(&key);
        mac.update(part.as_bytes());
        mac.finalize().into_bytes().to_vec()
    })
}

fn mac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// Returns the decoded parameters of a query. A plus sign is no space.
fn pairs(query: &str) -> Vec<(String, String)> {
    let query = query.replace('+', "%2B");
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// Escapes all characters except letters, digits, `-`, `.`, `_` and `~`, and slashes if `keeps_slashes`.
fn escaped(text: &str, keeps_slashes: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            b'/' if keeps_slashes => escaped.push('/'),
            byte if byte.is_ascii_alphanumeric() => escaped.push(char::from(byte)),
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    if is_hex { (0..64).step_by(2).map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests;
