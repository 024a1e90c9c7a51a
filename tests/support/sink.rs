//! A receiver of webhooks on this machine.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::Value;

/// A request that the sink got.
#[derive(Clone, Debug)]
pub struct WebhookRequest {
    /// When it was read.
    pub at: Instant,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl WebhookRequest {
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("it is JSON")
    }
}

/// A server that answers with the next of its answers, and with 204 when none is left.
#[derive(Clone)]
pub struct Sink {
    pub address: SocketAddr,
    pub received: Arc<Mutex<Vec<WebhookRequest>>>,
    pub answers: Arc<Mutex<VecDeque<&'static str>>>,
}

impl Sink {
    pub fn start(answers: &[&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let answers = Arc::new(Mutex::new(answers.iter().copied().collect()));
        let sink = Self { address, received: Arc::default(), answers };
        let serving = sink.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(&stream));
            }
        });
        sink
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(received) = read(&mut reader) {
            self.received.lock().push(received);
            let answer = self.answers.lock().pop_front().unwrap_or("HTTP/1.1 204 No Content\r\n\r\n");
            let mut stream = stream;
            if answer.is_empty() || stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook?a=1", self.address)
    }

    pub fn count(&self) -> usize {
        self.received.lock().len()
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<WebhookRequest> {
    let mut headers = Vec::new();
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    headers.push(("request".to_owned(), line.trim().to_owned()));
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(WebhookRequest { at: Instant::now(), headers, body })
}
