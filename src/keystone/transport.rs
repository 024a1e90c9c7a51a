//! HTTP requests to Keystone: paths, certificates, and the bounds of answers. Redirects are not followed, because they
//! would send tokens to another server.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::net::TcpStream;
use tower::service_fn;
use tower::util::BoxCloneSyncService;

use super::limits;
use super::login::OwnToken;
use super::wire::{self, Subject};
use angarium_settings::files;

const AUTH_TOKEN: &str = "x-auth-token";
const SUBJECT_TOKEN: &str = "x-subject-token";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("angarium/", env!("CARGO_PKG_VERSION")));

/// Max attempts to validate a token, which changes nothing: if Keystone has closed an idle connection, the first
/// attempt fails.
const TRIES: usize = 2;

/// The reason why there is no answer about a token.
#[derive(Clone, Debug)]
pub(super) enum Unusable {
    /// Keystone cannot be used. The text is for the log and never contains a token or a secret.
    Away(String),
    /// Keystone does not permit the service's user to validate the token.
    Forbidden,
    /// Keystone answers, but refuses the service's credentials or its own token. The text is for the log.
    Refused(&'static str),
}

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, Failure>;

/// The HTTP client for Keystone.
pub(super) struct Transport {
    client: Client<Connector, Full<Bytes>>,
    /// The URL for `POST` and `GET`. It excludes the catalogue, which would be most of an answer and is not used here.
    tokens: Uri,
}

impl Transport {
    /// Creates the client for the Keystone at `url`. It trusts the certificates of the file `ca`, or else those of the
    /// system.
    pub(super) fn new(url: &str, ca: Option<&Path>) -> Result<Self, String> {
        let tokens = format!("{url}/v3/auth/tokens?nocatalog");
        let tokens =
            tokens.parse().map_err(|error| format!("{url} is not an address of Keystone: {error}"))?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(limits::KEYSTONE_CONNECT));
        let tls = HttpsConnectorBuilder::new().with_tls_config(trust(ca)?).https_or_http();
        let https = tls.enable_http1().wrap_connector(http);
        // A handshake has no time limit of its own.
        let connect = service_fn(move |uri: Uri| {
            let mut https = https.clone();
            async move {
                let connecting = tower::Service::call(&mut https, uri);
                tokio::time::timeout(limits::KEYSTONE_CONNECT, connecting).await?
            }
        });
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(limits::KEYSTONE_IDLE)
            .pool_max_idle_per_host(limits::KEYSTONE_LOOKUPS)
            .http1_max_buf_size(limits::KEYSTONE_HEAD_BYTES)
            .http1_max_headers(limits::KEYSTONE_HEAD_FIELDS)
            .build(BoxCloneSyncService::new(connect));
        Ok(Self { client, tokens })
    }

    /// Requests the holder of a token, authenticated by the service's own token.
    pub(super) async fn subject(&self, token: &str, own: &HeaderValue) -> Result<Subject, Unusable> {
        let mut subject = HeaderValue::from_str(token)
            .map_err(|_| Unusable::Away("the token cannot be sent to it".to_owned()))?;
        subject.set_sensitive(true);
        let mut answer = Err(Unusable::Away(String::new()));
        for _ in 0..TRIES {
            let mut request = self.request(Method::GET, Bytes::new());
            request.headers_mut().insert(AUTH_TOKEN, own.clone());
            request.headers_mut().insert(SUBJECT_TOKEN, subject.clone());
            answer = self.send(request).await;
            if answer.is_ok() {
                break;
            }
        }
        let answer = answer?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(Subject::Unknown),
            StatusCode::UNAUTHORIZED => return Ok(Subject::NotAllowed),
            StatusCode::FORBIDDEN => return Err(Unusable::Forbidden),
            status => return Err(Unusable::Away(format!("it answers {status} to a look-up"))),
        }
        // If the answer of another request were accepted, one caller would get the identity of another.
        if answer.headers().get_all(SUBJECT_TOKEN).iter().any(|echoed| *echoed != subject) {
            return Err(Unusable::Away("its answer is about another token".to_owned()));
        }
        let body = body(answer).await?;
        wire::token(&body).map(Subject::Known).map_err(Unusable::Away)
    }

    /// Requests a token of the service; none when the credentials are refused.
    pub(super) async fn authenticate(&self, credentials: Vec<u8>) -> Result<Option<OwnToken>, Unusable> {
        let mut request = self.request(Method::POST, credentials.into());
        request.headers_mut().insert(header::CONTENT_TYPE, JSON);
        let mut answer = self.send(request).await?;
        match answer.status() {
            StatusCode::CREATED | StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Ok(None),
            status => {
                return Err(Unusable::Away(format!("it answers {status} to the service's credentials")));
            }
        }
        let token = answer.headers_mut().remove(SUBJECT_TOKEN);
        let token = token.filter(|token| (1..=limits::KEYSTONE_TOKEN_BYTES).contains(&token.len()));
        let token =
            token.ok_or_else(|| Unusable::Away("its answer has no token for the service".to_owned()))?;
        let body = wire::token(&body(answer).await?).map_err(Unusable::Away)?;
        Ok(Some(OwnToken::new(token, body.expires().map_err(Unusable::Away)?)))
    }

    fn request(&self, method: Method, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.tokens.clone();
        request.headers_mut().insert(header::ACCEPT, JSON);
        request.headers_mut().insert(header::USER_AGENT, AGENT);
        request
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Unusable> {
        let sent = self.client.request(request).await;
        sent.map_err(|error| Unusable::Away(format!("no answer: {}", described(&error))))
    }
}

/// Reads the whole body of an answer.
async fn body(answer: Response<Incoming>) -> Result<Bytes, Unusable> {
    let body = Limited::new(answer.into_body(), limits::KEYSTONE_ANSWER_BYTES).collect().await;
    let in_words = |error: Failure| {
        if error.is::<http_body_util::LengthLimitError>() {
            Unusable::Away(format!("its answer has more than {} bytes", limits::KEYSTONE_ANSWER_BYTES))
        } else {
            Unusable::Away(format!("its answer broke off: {}", described(&*error)))
        }
    };
    body.map(http_body_util::Collected::to_bytes).map_err(in_words)
}

/// Returns the TLS configuration with the trusted certificates. Reads files.
fn trust(ca: Option<&Path>) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    match ca {
        Some(path) => {
            let wrong = |why: String| format!("{}: {why}", path.display());
            let pem = files::read(path, files::POOL_FILE_BYTES).map_err(|error| wrong(error.to_string()))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(wrong("there is no certificate (PEM) in it".to_owned()));
            }
        }
        None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth())
}

/// Formats an error with its causes.
fn described(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
