//! The connection to a server: one request, one whole response, and the failures in between. This module never repeats
//! a request, never follows a redirect, never uses a proxy, and sends its token only to the host that the token is for.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use serde::de::DeserializeOwned;
use ureq::Timeout;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::failure::{Failure, Refusal};
use super::tls_words;

/// Max time to connect.
const CONNECT: Duration = Duration::from_secs(5);
/// Max bytes of a response: well above a page of the largest messages.
const ANSWER_BYTES: u64 = 256 << 20;
/// Media type of bodies without another one.
const JSON: &str = "application/json";
const REQUEST_ID: &str = "x-openstack-request-id";

/// A client for one server, with an identity.
pub struct Remote {
    agent: ureq::Agent,
    base: String,
    headers: HeaderMap,
    max_wait: Duration,
}

/// A request.
pub struct ApiRequest {
    method: Method,
    path: String,
    body: Option<Vec<u8>>,
    media: &'static str,
    extra_wait: Duration,
    headers: &'static [(&'static str, &'static str)],
}

impl ApiRequest {
    /// Creates a request without a body. `path` begins with a slash and is already encoded.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), body: None, media: JSON, extra_wait: Duration::ZERO, headers: &[] }
    }

    pub fn json(self, body: &impl serde::Serialize) -> Result<Self, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Self { body: Some(body), ..self })
    }

    /// Sets the media type of the body, another kind of JSON.
    pub fn media(self, media: &'static str) -> Self {
        Self { media, ..self }
    }

    /// Adds these headers to those of every request.
    pub fn headers(self, headers: &'static [(&'static str, &'static str)]) -> Self {
        Self { headers, ..self }
    }

    /// Extends the timeout, because the server is asked to wait.
    pub fn extra_wait(self, extra_wait: Duration) -> Self {
        Self { extra_wait, ..self }
    }

    /// Returns method and path, for people.
    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// A successful response.
#[derive(Debug)]
pub struct Reply {
    name: String,
    /// Status code, always a success.
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Reply {
    /// Decodes the body.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| self.strange(error.to_string()))
    }

    /// Returns the body unchanged, if it is valid JSON.
    pub fn json_text(&self) -> Result<String, Failure> {
        let raw: Box<serde_json::value::RawValue> = self.parse()?;
        Ok(raw.get().to_owned())
    }

    /// Returns the failure for a response that does not follow the API.
    pub fn strange(&self, why: impl Into<String>) -> Failure {
        Failure::Strange { asked: self.name.clone(), why: why.into() }
    }
}

/// The parts of a [`Remote`].
pub struct Identity<'a> {
    /// Root URL of the server.
    pub url: &'a str,
    /// Headers of every request: project, client id, token.
    pub headers: Vec<(HeaderName, String)>,
    /// Certificates to trust instead of the public ones, as PEM text.
    pub ca: Option<Vec<u8>>,
    /// Timeout of a whole response.
    pub max_wait: Duration,
}

impl Remote {
    /// Checks the parts. Opens no connection.
    pub fn new(identity: Identity<'_>) -> Result<Self, Failure> {
        let base = root(identity.url)?;
        let mut headers = HeaderMap::new();
        for (name, text) in identity.headers {
            let mut value = HeaderValue::from_str(&text)
                .map_err(|_| Failure::Usage(format!("{name}: it cannot be sent as a header")))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let tls = TlsConfig::builder().root_certs(match &identity.ca {
            Some(pem) => trusted(pem)?,
            None => RootCerts::WebPki,
        });
        Ok(Self { agent: agent(tls.build()), base, headers, max_wait: identity.max_wait })
    }

    /// Creates a client for a server on this machine. The certificate is not verified, because it has the name for
    /// clients on other machines; so the client sends nothing secret.
    pub fn local(url: &str, max_wait: Duration) -> Result<Self, Failure> {
        let tls = TlsConfig::builder().disable_verification(true).build();
        Ok(Self { agent: agent(tls), base: root(url)?, headers: HeaderMap::new(), max_wait })
    }

    /// Returns the root URL of the server, without a trailing slash.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Sends a GET request.
    pub fn get(&self, path: impl Into<String>) -> Result<Reply, Failure> {
        self.call(ApiRequest::new(Method::GET, path))
    }

    /// Sends a DELETE request.
    pub fn delete(&self, path: impl Into<String>) -> Result<Reply, Failure> {
        self.call(ApiRequest::new(Method::DELETE, path))
    }

    /// Sends a request once, and returns the body of a successful response as it arrives. Its length has no bound; each
    /// read of it has the timeout of a response.
    pub fn stream(&self, request: ApiRequest) -> Result<impl Read + use<>, Failure> {
        let name = request.name();
        let lost = |error: ureq::Error| self.failure_of(&name, true, &error);
        let answer = self.exchange(request, ResponseTime::EachRead).map_err(lost)?;
        if answer.status().is_success() {
            return Ok(answer.into_body().into_reader());
        }
        let reply = read_whole(answer).map_err(lost).and_then(|answer| judge(&name, true, answer))?;
        Err(reply.strange("it is no stream"))
    }

    /// Sends a request once, and waits for the whole response.
    pub fn call(&self, request: ApiRequest) -> Result<Reply, Failure> {
        let name = request.name();
        let reads = request.method == Method::GET || request.method == Method::HEAD;
        let answer = self.exchange(request, ResponseTime::Whole).and_then(read_whole);
        judge(&name, reads, answer.map_err(|error| self.failure_of(&name, reads, &error))?)
    }

    fn exchange(
        &self,
        api_request: ApiRequest,
        time: ResponseTime,
    ) -> Result<http::Response<ureq::Body>, ureq::Error> {
        let mut request = Request::builder()
            .method(api_request.method.clone())
            .uri(format!("{}{}", self.base, api_request.path));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        for (name, value) in api_request.headers {
            request = request.header(*name, *value);
        }
        if api_request.body.is_some() {
            request = request.header(http::header::CONTENT_TYPE, api_request.media);
        }
        let max_wait = self.max_wait + api_request.extra_wait;
        let takes_body = [Method::POST, Method::PUT, Method::PATCH].contains(&api_request.method);
        match api_request.body {
            // A request without a body sends a content length of 0, as curl does.
            None if !takes_body => self.run(request.body(()), time, max_wait),
            body => self.run(request.body(body.unwrap_or_default()), time, max_wait),
        }
    }

    fn run<B: ureq::AsSendBody>(
        &self,
        request: Result<Request<B>, http::Error>,
        time: ResponseTime,
        max_wait: Duration,
    ) -> Result<http::Response<ureq::Body>, ureq::Error> {
        let request = self.agent.configure_request(request?);
        let request = match time {
            ResponseTime::Whole => request.timeout_global(Some(max_wait)),
            ResponseTime::EachRead => request.timeout_per_read(Some(max_wait)),
        };
        self.agent.run(request.build())
    }

    /// Converts a failed exchange to a failure of the caller.
    fn failure_of(&self, name: &str, reads: bool, error: &ureq::Error) -> Failure {
        let unsent = match error {
            ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::BadUri(_)
            | ureq::Error::Http(_)
            | ureq::Error::Tls(_)
            | ureq::Error::Rustls(_)
            | ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => true,
            ureq::Error::Io(error) => before_sending(error),
            _ => false,
        };
        let why = match error {
            ureq::Error::Io(error) => match tls_words::of_io(error) {
                Some(words) => words,
                // A server that expected a handshake and got a request, or the reverse.
                None if is_cut_off(error) && self.base.starts_with("http://") => {
                    "the connection was closed: does it speak TLS (https://)?".to_owned()
                }
                None if is_cut_off(error) => {
                    "the connection was closed: does it speak TLS on this port?".to_owned()
                }
                None => in_words(error),
            },
            ureq::Error::Rustls(error) => tls_words::of(error),
            ureq::Error::Protocol(_) => {
                "it does not answer as HTTP does: does it speak TLS (https://)?".to_owned()
            }
            ureq::Error::Timeout(part) => format!("no answer in time ({part})"),
            other => other.to_string(),
        };
        if unsent || reads {
            return Failure::Unreachable { url: self.base.clone(), why };
        }
        Failure::Unknown(format!("{name}: the answer was lost: {why}"))
    }
}

/// The time that the timeout of a response bounds.
#[derive(Clone, Copy)]
enum ResponseTime {
    /// The time of the whole response.
    Whole,
    /// The time until the next bytes of a response.
    EachRead,
}

/// A whole response, of any status.
type WholeResponse = (StatusCode, HeaderMap, Vec<u8>);

fn read_whole(answer: http::Response<ureq::Body>) -> Result<WholeResponse, ureq::Error> {
    let (parts, body) = answer.into_parts();
    let body = body.into_with_config().limit(ANSWER_BYTES).read_to_vec()?;
    Ok((parts.status, parts.headers, body))
}

/// Returns a successful response to the request `name`, or the failure for another one.
fn judge(name: &str, reads: bool, (status, headers, body): WholeResponse) -> Result<Reply, Failure> {
    if status.is_client_error() || status.is_server_error() {
        let id = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
        return Err(match Refusal::of(status.as_u16(), &body, id) {
            // A read has no effect, so its unknown outcome is harmless.
            Failure::Unknown(why) if reads => Failure::Strange { asked: name.to_owned(), why },
            failure => failure,
        });
    }
    let reply = Reply { name: name.to_owned(), status, headers, body };
    if !status.is_success() {
        return Err(reply.strange(format!("its status is {status}; redirects are not followed")));
    }
    Ok(reply)
}

fn agent(tls: TlsConfig) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(CONNECT))
        .max_redirects(0)
        .proxy(None)
        .user_agent(concat!("angarium/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls);
    config.build().into()
}

/// Returns the text of a system error without its number.
fn in_words(error: &std::io::Error) -> String {
    if error.kind() == std::io::ErrorKind::ConnectionRefused {
        return "the connection is refused: is it running there?".to_owned();
    }
    let text = error.to_string();
    text.split_once(" (os error ").map_or(text.clone(), |(words, _)| words.to_owned())
}

/// Returns whether the other side closed the connection before it responded.
fn is_cut_off(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
}

/// Returns whether a socket reports this error only while it connects.
fn before_sending(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    // A handshake refused by TLS is reported as a socket error.
    tls_words::of_io(error).is_some()
        || matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::NetworkDown
                | ErrorKind::AddrNotAvailable
        )
}

fn trusted(pem: &[u8]) -> Result<RootCerts, Failure> {
    let mut certificates = Vec::new();
    for item in parse_pem(pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(Failure::Usage(format!("the CA file cannot be read: {error}"))),
        }
    }
    if certificates.is_empty() {
        return Err(Failure::Usage("the CA file holds no certificate".into()));
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

/// Checks `http[s]://HOST[:PORT][/PREFIX]`, and removes a trailing slash.
fn root(url: &str) -> Result<String, Failure> {
    let wrong = |why: &str| Failure::Usage(format!("{url}: {why}"));
    let uri: Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("a server's URL begins with http:// or https://"));
    }
    let authority = uri.authority().ok_or_else(|| wrong("there is no host in it"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("a name and a password are not sent; a token is (--token)"));
    }
    if uri.query().is_some() || url.contains('#') {
        return Err(wrong("a server's URL has neither query nor fragment"));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// Encodes text as one path segment or query value.
pub fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    text.bytes().fold(String::new(), |mut out, byte| {
        if plain(byte) {
            out.push(char::from(byte))
        } else {
            out.push_str(&format!("%{byte:02X}"))
        }
        out
    })
}

/// Decodes percent-encoded text, as a header has it. Any other byte, and an escape that is none, stay.
pub fn decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.first_chunk::<2>().filter(|_| first == b'%');
        let escaped = digits.and_then(|digits| {
            let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
            u8::try_from(high? * 16 + low?).ok()
        });
        bytes.push(escaped.unwrap_or(first));
        rest = escaped.map_or(after, |_| &after[2..]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a path with those parameters that have a value.
pub fn with_query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    given.enumerate().fold(path.to_owned(), |mut path, (index, (name, value))| {
        path.push(if index == 0 { '?' } else { '&' });
        path.push_str(&format!("{name}={}", encoded(value)));
        path
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_keeps_its_prefix_and_loses_its_slash() {
        assert_eq!(root("https://a.example:1/mq/").unwrap(), "https://a.example:1/mq");
        assert_eq!(root("http://[::1]:8888").unwrap(), "http://[::1]:8888");
    }

    #[test]
    fn non_root_url_is_refused() {
        for bad in ["localhost:8888", "ftp://a", "http://u:p@a", "http://a?b", "http://a/#b", "", "http://"] {
            assert!(root(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn header_text_is_decoded() {
        assert_eq!(decoded(b"100 %25 f%C3%BCr x"), "100 % f\u{fc}r x");
        assert_eq!(decoded(b"50% %zz %4"), "50% %zz %4");
    }

    #[test]
    fn parts_of_a_path_cannot_leave_their_place() {
        assert_eq!(encoded("a/../b?c&d=é"), "a%2F..%2Fb%3Fc%26d%3D%C3%A9");
        let query = [("limit", Some("3".to_owned())), ("marker", None), ("name", Some("a b".to_owned()))];
        assert_eq!(with_query("/v2/queues", &query), "/v2/queues?limit=3&name=a%20b");
    }
}
