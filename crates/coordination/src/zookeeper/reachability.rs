//! Unreachable servers and the reasons, for the error of a start. The client itself only reports a timeout.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

/// Max time for a server to accept a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Port of a server that is named without one.
const PORT: &str = "2181";

/// Returns the fault of each server; none when one of them accepts connections.
pub(super) async fn diagnose(servers: impl Iterator<Item = &str>) -> Option<String> {
    let mut found = Vec::new();
    for server in servers {
        let has_port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { server.to_owned() } else { format!("{server}:{PORT}") };
        match timeout(CONNECT, TcpStream::connect(&address)).await {
            Ok(Ok(_)) => return None,
            Ok(Err(error)) => found.push(format!("{address}: {error}")),
            Err(_) => found.push(format!("{address}: no answer within {} s", CONNECT.as_secs())),
        }
    }
    Some(found.join("; "))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn unreachable_servers_are_named_with_their_reason() {
        let found = diagnose(["nohost.invalid:2181", "127.0.0.1:1"].into_iter()).await.unwrap();
        assert!(found.starts_with("nohost.invalid:2181: failed to lookup"), "{found}");
        assert!(found.contains("; 127.0.0.1:1: Connection refused"), "{found}");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert_eq!(diagnose(["127.0.0.1:1", &address].into_iter()).await, None);
    }
}
