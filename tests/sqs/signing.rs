//! Requests of SQS signed by hand (version 4 of AWS), so that they can be what no SDK sends.

use angarium_clock::Clock;
use angarium_core::time::Timestamp;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, Method, Request};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// How a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// AWS JSON 1.0.
    Json,
    /// The query protocol, as a form.
    Form,
    /// The same, to the URL of the queue that `QueueUrl` names, in place of that member.
    QueueUrl,
    /// The query protocol in a URL that holds the signature.
    Presigned,
    /// The same below the URL of the queue.
    PresignedQueueUrl,
}

pub const TRANSPORTS: [Transport; 5] = [
    Transport::Json,
    Transport::Form,
    Transport::QueueUrl,
    Transport::Presigned,
    Transport::PresignedQueueUrl,
];

impl Transport {
    /// Whether the path of a request names its queue.
    pub fn is_below_queue(self) -> bool {
        matches!(self, Self::QueueUrl | Self::PresignedQueueUrl)
    }
}

/// A key, and the region that it signs for.
#[derive(Clone)]
pub struct Signer {
    pub key: &'static str,
    pub secret: &'static str,
    pub region: String,
    /// When the requests are signed; now when absent.
    pub at: Option<Timestamp>,
}

/// A status, and what was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedReply {
    pub status: u16,
    pub text: String,
}

/// What is signed beside the body.
struct Unsigned<'a> {
    base: &'a str,
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Signer {
    pub fn new(key: &'static str, secret: &'static str) -> Self {
        Self { key, secret, region: "us-east-1".to_owned(), at: None }
    }

    /// Sends an operation with these members.
    pub fn send(&self, base: &str, transport: Transport, operation: &str, members: &Value) -> SignedReply {
        match transport {
            Transport::Json => self.send_json(base, operation, &members.to_string()),
            Transport::Form => self.send_form(base, "/".to_owned(), &pairs(operation, members)),
            Transport::QueueUrl => {
                let (path, members) = below_queue(members);
                self.send_form(base, path, &pairs(operation, &members))
            }
            Transport::Presigned => self.send_presigned(base, "/".to_owned(), pairs(operation, members)),
            Transport::PresignedQueueUrl => {
                let (path, members) = below_queue(members);
                self.send_presigned(base, path, pairs(operation, &members))
            }
        }
    }

    /// Sends a body of JSON as it is.
    pub fn send_json(&self, base: &str, operation: &str, body: &str) -> SignedReply {
        let headers = vec![
            ("content-type", "application/x-amz-json-1.0".to_owned()),
            ("x-amz-target", format!("AmazonSQS.{operation}")),
        ];
        let (path, body) = ("/".to_owned(), body.as_bytes().to_vec());
        self.in_header(Unsigned { base, method: Method::POST, path, query: Vec::new(), headers, body })
    }

    /// Sends these parameters as a form.
    pub fn send_form(&self, base: &str, path: String, pairs: &[(String, String)]) -> SignedReply {
        let headers = vec![("content-type", "application/x-www-form-urlencoded".to_owned())];
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish().into_bytes();
        self.in_header(Unsigned { base, method: Method::POST, path, query: Vec::new(), headers, body })
    }

    fn send_presigned(&self, base: &str, path: String, mut query: Vec<(String, String)>) -> SignedReply {
        let date = self.date();
        for (name, value) in [
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256".to_owned()),
            ("X-Amz-Credential", format!("{}/{}", self.key, self.scope(&date))),
            ("X-Amz-Date", date.clone()),
            ("X-Amz-Expires", "60".to_owned()),
            ("X-Amz-SignedHeaders", "host".to_owned()),
        ] {
            query.push((name.to_owned(), value));
        }
        let (headers, body) = (Vec::new(), Vec::new());
        let mut unsigned = Unsigned { base, method: Method::GET, path, query, headers, body };
        let signature = self.signature(&unsigned, &date);
        unsigned.query.push(("X-Amz-Signature".to_owned(), signature));
        unsigned.send(&HeaderMap::new())
    }

    /// A request of JSON as it is written, to be sent nowhere.
    pub fn written(&self, operation: &str, members: &Value) -> Vec<u8> {
        let headers = vec![("x-amz-target", format!("AmazonSQS.{operation}"))];
        let (path, body) = ("/".to_owned(), members.to_string().into_bytes());
        let (base, method, query) = ("http://queues.test", Method::POST, Vec::new());
        let mut unsigned = Unsigned { base, method, path, query, headers, body };
        let authorization = self.authorization(&mut unsigned);
        let headers: String =
            unsigned.all_headers().iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        let head = format!("POST /\n{headers}authorization: {authorization}\n\n");
        [head.into_bytes(), unsigned.body].concat()
    }

    fn in_header(&self, mut unsigned: Unsigned<'_>) -> SignedReply {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", self.authorization(&mut unsigned).parse().unwrap());
        unsigned.send(&headers)
    }

    fn authorization(&self, unsigned: &mut Unsigned<'_>) -> String {
        let date = self.date();
        unsigned.headers.push(("x-amz-date", date.clone()));
        let signature = self.signature(unsigned, &date);
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={signature}",
            self.key,
            self.scope(&date),
            unsigned.signed_headers()
        )
    }

    /// As in `20150830T123600Z`.
    fn date(&self) -> String {
        let at = self.at.unwrap_or_else(|| Clock::system().wall()).calendar().to_string();
        let plain: String = at.chars().filter(|c| c.is_ascii_digit() || *c == 'T').take(15).collect();
        format!("{plain}Z")
    }

    fn scope(&self, date: &str) -> String {
        format!("{}/{}/sqs/aws4_request", &date[..8], self.region)
    }

    fn signature(&self, unsigned: &Unsigned<'_>, date: &str) -> String {
        let scope = self.scope(date);
        let canonical = hex(&Sha256::digest(unsigned.canonical().as_bytes()));
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{canonical}");
        let key =
            scope.split('/').fold(format!("AWS4{}", self.secret).into_bytes(), |key, part| mac(&key, part));
        hex(&mac(&key, &text))
    }
}

impl Unsigned<'_> {
    fn host(&self) -> &str {
        self.base.split_once("://").unwrap().1
    }

    fn all_headers(&self) -> Vec<(&str, &str)> {
        let mut all: Vec<_> = self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        all.push(("host", self.host()));
        all.sort_unstable();
        all
    }

    fn signed_headers(&self) -> String {
        self.all_headers().iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";")
    }

    fn query(&self) -> String {
        let mut pairs: Vec<String> =
            self.query.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
        pairs.sort_unstable();
        pairs.join("&")
    }

    fn canonical(&self) -> String {
        let headers: String =
            self.all_headers().iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let content = hex(&Sha256::digest(&self.body));
        let (method, path, query) = (&self.method, &self.path, self.query());
        format!("{method}\n{path}\n{query}\n{headers}\n{}\n{content}", self.signed_headers())
    }

    fn send(self, headers: &HeaderMap) -> SignedReply {
        let query = if self.query.is_empty() { String::new() } else { format!("?{}", self.query()) };
        let mut request =
            Request::builder().method(self.method).uri(format!("{}{}{query}", self.base, self.path));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
        let agent = ureq::Agent::from(config);
        let mut answer = agent.run(request.body(self.body).unwrap()).unwrap();
        SignedReply { status: answer.status().as_u16(), text: answer.body_mut().read_to_string().unwrap() }
    }
}

/// The path of the URL of the queue that members name, and the others.
fn below_queue(members: &Value) -> (String, Value) {
    let mut members = members.clone();
    let url = members.as_object_mut().and_then(|members| members.remove("QueueUrl"));
    let url = url.and_then(|url| Some(url.as_str()?.to_owned()));
    let path = url.and_then(|url| Some(format!("/{}", url.split_once("://")?.1.split_once('/')?.1)));
    (path.unwrap_or_else(|| "/".to_owned()), members)
}

/// The parameters that members are in the query protocol.
pub fn pairs(operation: &str, members: &Value) -> Vec<(String, String)> {
    let mut pairs = vec![("Action".to_owned(), operation.to_owned())];
    for (name, value) in members.as_object().into_iter().flat_map(Map::iter) {
        let one = match name.as_str() {
            "Entries" => format!("{operation}RequestEntry"),
            "Actions" => "ActionName".to_owned(),
            name => name.trim_end_matches('s').to_owned(),
        };
        match value {
            Value::Array(items) => {
                for (number, item) in (1..).zip(items) {
                    match item.as_object() {
                        Some(entry) => pairs.extend(
                            entry.iter().map(|(name, value)| (format!("{one}.{number}.{name}"), text(value))),
                        ),
                        None => pairs.push((format!("{one}.{number}"), text(item))),
                    }
                }
            }
            Value::Object(entries) => {
                let key = if name == "Tags" { "Key" } else { "Name" };
                for (number, (entry, value)) in (1..).zip(entries) {
                    pairs.push((format!("{one}.{number}.{key}"), entry.clone()));
                    pairs.push((format!("{one}.{number}.Value"), text(value)));
                }
            }
            value => pairs.push((name.clone(), text(value))),
        }
    }
    pairs
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
