//! A server of prepared answers: it keeps what it was asked, and states what the test wants to be said.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct CannedRequest {
    /// Method and path.
    pub line: String,
    /// The headers, their names in small letters.
    pub headers: Vec<String>,
    pub body: String,
}

/// A server with one request for each connection. It ends with the test's process.
pub struct Canned {
    pub url: String,
    asked: Arc<Mutex<Vec<CannedRequest>>>,
}

/// The head of an answer, from its status on with its headers, and its body. An empty head breaks the connection.
pub type CannedReply = (String, String);

impl Canned {
    /// Gives the requests these answers, in their order.
    pub fn start(answers: Vec<(&'static str, String)>) -> Self {
        let mut answers = answers.into_iter();
        Self::answering(move |_| answers.next().map(|(head, body)| (head.to_owned(), body)))
    }

    /// Gives each request the answer that is made for it, until there is none.
    pub fn answering(
        mut answers: impl FnMut(&CannedRequest) -> Option<CannedReply> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = asked.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let Some(request) = read(&stream) else { return };
                // The lock is held for one push.
                kept.lock().push(request.clone());
                let Some((head, body)) = answers(&request) else { return };
                answer(stream, &head, &body);
            }
        });
        Self { url, asked }
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<CannedRequest> {
        self.asked.lock().clone()
    }
}

fn read(stream: &TcpStream) -> Option<CannedRequest> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let (mut headers, mut length) = (Vec::new(), 0);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        let (name, value) = (name.to_ascii_lowercase(), value.trim());
        if name == "content-length" {
            length = value.parse().ok()?;
        }
        headers.push(format!("{name}: {value}"));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    Some(CannedRequest { line, headers, body: String::from_utf8(body).ok()? })
}

fn answer(mut stream: TcpStream, head: &str, body: &str) {
    if head.is_empty() {
        return;
    }
    let text =
        format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    // The program may have gone; the test sees that by its exit code.
    let _ = stream.write_all(text.as_bytes());
}
