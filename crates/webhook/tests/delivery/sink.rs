//! Subscribers, and the client that delivers to them.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use angarium_webhook::limits::ClientLimits;
use angarium_webhook::resolver::Resolver;
use angarium_webhook::{
    CustomHeaders, Delivery, DeliveryId, EgressRules, SigningSecret, WebhookClient, WebhookUrl,
};
use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderValue;
use parking_lot::Mutex;
use rustls::RootCertStore;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The secret of the vector in the repository of Standard Webhooks.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A subscriber on this machine.
pub struct Sink {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Sink {
    /// Starts a subscriber that serves each connection with `serve`.
    pub async fn start<S, F>(ip: &str, serve: S) -> Self
    where
        S: Fn(TcpStream) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream));
            }
        });
        Self { address, connections }
    }

    /// Starts a subscriber that gives the same answer to each request.
    pub async fn answering(answer: impl Into<String>) -> Self {
        let answer: Arc<str> = answer.into().into();
        Self::start("127.0.0.1", move |mut stream| {
            let answer = Arc::clone(&answer);
            async move {
                while read_request(&mut stream).await.is_some() {
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook?key=1", self.address)
    }
}

/// Reads a request with its body. `None` at the end of the connection.
pub async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    loop {
        let mut part = [0; 4096];
        let bytes = stream.read(&mut part).await.ok().filter(|bytes| *bytes > 0)?;
        read.extend_from_slice(&part[..bytes]);
        let text = String::from_utf8(read.clone()).unwrap();
        let Some((header, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = header.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() >= length.parse().unwrap() {
            return Some(text);
        }
    }
}

/// Names whose look-ups give one list of addresses after the other, and fail in the end.
#[derive(Default)]
pub struct Names {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
}

impl Names {
    pub fn answering(answers: &[&[&str]]) -> Self {
        let parse = |ips: &&[&str]| ips.iter().map(|ip| ip.parse().unwrap()).collect();
        Self { answers: Mutex::new(answers.iter().map(parse).collect()) }
    }
}

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, _: &str, _: &str) -> io::Result<Vec<IpAddr>> {
        self.answers.lock().pop_front().ok_or_else(|| io::Error::other("no such name"))
    }
}

pub fn limits() -> ClientLimits {
    ClientLimits {
        connect: Duration::from_secs(2),
        exchange: Duration::from_secs(3),
        answer: Duration::from_millis(500),
        ..ClientLimits::default()
    }
}

/// A client that may reach this machine.
pub fn client() -> WebhookClient {
    client_with(
        EgressRules::new(vec!["127.0.0.0/8".parse().unwrap()], Vec::new()),
        Names::default(),
        limits(),
    )
}

pub fn client_with(rules: EgressRules, names: Names, limits: ClientLimits) -> WebhookClient {
    WebhookClient::new(rules, RootCertStore::empty(), limits, Arc::new(names)).unwrap()
}

pub fn delivery(url: &str) -> Delivery {
    Delivery {
        url: WebhookUrl::parse(url).unwrap(),
        account: "a".to_owned(),
        id: DeliveryId::parse("msg_p5jXN8AQM9LWM0D4loKWxJek").unwrap(),
        timestamp: 1_614_265_330,
        headers: CustomHeaders::default(),
        content_type: HeaderValue::from_static("application/json"),
        body: Bytes::from_static(b"{\"test\": 2432232314}"),
        secrets: vec![SigningSecret::parse(SECRET).unwrap()],
    }
}
