//! Servers that cannot be used and the reasons, for the error of a start. The client itself only reports a timeout.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::address::host_name;
use super::tls::{self, HandshakeFailure, Tls};

/// Max time for a server to accept a connection, and to answer a handshake.
const CONNECT: Duration = Duration::from_secs(2);

/// Port of a server that is named without one.
const PORT: &str = "2181";

/// Why no server can be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerFaults {
    /// Each server with its fault.
    pub(super) text: String,
    /// Whether only a change of the settings, or at the servers, helps at all of them.
    pub(super) lasts: bool,
}

/// The fault of a server.
struct ServerFault {
    why: String,
    lasts: bool,
}

/// Returns the fault of each server; none when one of them accepts connections, and with TLS agrees to a handshake.
pub(super) async fn diagnose(servers: impl Iterator<Item = &str>, tls: Option<&Tls>) -> Option<ServerFaults> {
    let mut found = ServerFaults { text: String::new(), lasts: true };
    for server in servers {
        let has_port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { server.to_owned() } else { format!("{server}:{PORT}") };
        let ServerFault { why, lasts } = fault(&address, tls).await?;
        if !found.text.is_empty() {
            found.text.push_str("; ");
        }
        found.text.push_str(&format!("{address}: {why}"));
        found.lasts &= lasts;
    }
    Some(found)
}

/// Returns the fault of a server; none when it accepts connections, and with TLS agrees to a handshake.
async fn fault(address: &str, tls: Option<&Tls>) -> Option<ServerFault> {
    let attempt = async {
        let stream = TcpStream::connect(address).await?;
        match tls {
            Some(tls) => io::Result::Ok(tls.try_handshake(host_name(address), stream).await.err()),
            None => Ok(None),
        }
    };
    match timeout(CONNECT, attempt).await {
        Ok(Ok(Some(error))) => Some(fault_of_handshake(&error)),
        Ok(Ok(None)) if tls.is_none() => fault_of_clear_text(address).await,
        Ok(Ok(None)) => None,
        Ok(Err(error)) => Some(ServerFault { why: io::Error::to_string(&error), lasts: false }),
        Err(_) => {
            let why = format!("no answer within {} s", CONNECT.as_secs());
            Some(ServerFault { why, lasts: false })
        }
    }
}

fn fault_of_handshake(error: &io::Error) -> ServerFault {
    let failure = HandshakeFailure::of(error);
    let why = match failure {
        HandshakeFailure::OtherProtocol => format!("it does not speak TLS on this port ({error})"),
        HandshakeFailure::Refused | HandshakeFailure::Broken => error.to_string(),
    };
    ServerFault { why, lasts: failure != HandshakeFailure::Broken }
}

/// Returns the fault of a server that accepts connections and speaks TLS alone. One that speaks both serves clear text.
async fn fault_of_clear_text(address: &str) -> Option<ServerFault> {
    if answers_in_clear_text(address).await || !answers_in_tls(address).await {
        return None;
    }
    let why = "it speaks TLS, and the settings name no certificates to check it with: see --zookeeper-tls-ca";
    Some(ServerFault { why: why.to_owned(), lasts: true })
}

/// Returns whether a server answers a four-letter word, which it does without a quorum too, and with a refusal if the word
/// is not allowed.
async fn answers_in_clear_text(address: &str) -> bool {
    let attempt = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"srvr").await?;
        stream.read_u8().await
    };
    // An alert of TLS begins with a byte that is no letter.
    matches!(timeout(CONNECT, attempt).await, Ok(Ok(first)) if first.is_ascii_alphabetic())
}

/// Returns whether a server answers a handshake, whatever it thinks of it.
async fn answers_in_tls(address: &str) -> bool {
    let attempt = async {
        let stream = TcpStream::connect(address).await?;
        io::Result::Ok(tls::answers_handshake(host_name(address), stream).await)
    };
    matches!(timeout(CONNECT, attempt).await, Ok(Ok(true)))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn unreachable_servers_are_named_with_their_reason() {
        let found = diagnose(["nohost.invalid:2181", "127.0.0.1:1"].into_iter(), None).await.unwrap();
        assert!(found.text.starts_with("nohost.invalid:2181: failed to lookup"), "{found:?}");
        assert!(found.text.contains("; 127.0.0.1:1: Connection refused") && !found.lasts, "{found:?}");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert_eq!(diagnose(["127.0.0.1:1", &address].into_iter(), None).await, None);
    }

    /// Answers each connection with these bytes, after the first bytes of its client, and ends it.
    async fn answering(answer: &'static [u8]) -> (String, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1_024]).await;
                let _ = stream.write_all(answer).await;
            }
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(serving);
        (address, tasks)
    }

    #[tokio::test]
    async fn alert_of_tls_is_told_from_clear_text() {
        // A fatal alert: handshake failure.
        let (secure, _tasks) = answering(&[21, 3, 3, 0, 2, 2, 40]).await;
        let found = diagnose([secure.as_str()].into_iter(), None).await.unwrap();
        assert!(found.lasts && found.text.contains("it speaks TLS"), "{found:?}");
        for clear in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n"] {
            let (address, _tasks) = answering(clear).await;
            assert_eq!(diagnose([address.as_str()].into_iter(), None).await, None);
        }
    }
}
