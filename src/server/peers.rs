//! The listener for the other replicas, separate from that for clients, and its advertised address. A service on the
//! embedded tree has none.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::StartError;
use super::limits::{PEER_HEADER_BYTES, PEER_HEADER_FIELDS};
use super::listener::ConnectionLimits;
use crate::config::{Config, TreeChoice};
use angarium_core::access::PeerSecret;
use angarium_core::limits;

/// The bound peer listener.
pub(super) struct PeerListener {
    pub(super) listener: TcpListener,
    /// The address that the other replicas use.
    pub(super) address: String,
}

impl PeerListener {
    /// Binds the peer address of the settings; none for a service with one replica.
    pub(super) async fn bind(config: &Config, host: &str) -> Result<Option<Self>, StartError> {
        let TreeChoice::ZooKeeper(_) = config.coordination else { return Ok(None) };
        let wanted = config.cluster.peer_listen.unwrap_or(SocketAddr::new(config.listen.ip(), 0));
        let failed = |source| StartError::Listen { address: wanted, setting: "--peer-listen", source };
        let listener = TcpListener::bind(wanted).await.map_err(failed)?;
        let address = match &config.cluster.advertise {
            Some(address) => address.clone(),
            None => reached_at(&listener, host).map_err(failed)?,
        };
        Ok(Some(Self { listener, address }))
    }
}

/// The peer listener, and the secret that replicas must show.
pub(super) struct PeerFace {
    pub(super) listener: TcpListener,
    pub(super) secret: PeerSecret,
}

/// Returns the address by which others reach a listener: its own, or `host` if it listens on all interfaces.
pub(super) fn reached_at(listener: &TcpListener, host: &str) -> std::io::Result<String> {
    let address = listener.local_addr()?;
    Ok(if address.ip().is_unspecified() { format!("{host}:{}", address.port()) } else { address.to_string() })
}

/// Returns the bounds of peer connections. One replica may send as many requests as all clients together, and each
/// request has its own connection.
pub(super) fn connection_limits(clients: ConnectionLimits) -> ConnectionLimits {
    ConnectionLimits {
        connections: 2 * limits::PEER_REQUESTS,
        per_address: 2 * limits::PEER_REQUESTS,
        // Replicas wait for a place, and none of them sends probes.
        reserved: 0,
        // Replicas read every answer that they request.
        unsent: usize::MAX,
        // A forwarded request has all headers of its client.
        buffer: clients.buffer.saturating_add(PEER_HEADER_BYTES),
        fields: PEER_HEADER_FIELDS,
        ..clients
    }
}
