//! The face for the other replicas: a listener of its own, apart from that for clients, and where others reach it. A service on
//! the embedded tree has none.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::StartError;
use super::limits::{PEER_HEADER_BYTES, PEER_HEADER_FIELDS};
use super::listener::ConnectionLimits;
use crate::config::{Config, TreeChoice};
use angarium_core::access::PeerSecret;
use angarium_core::limits;

/// Where the other replicas are listened to.
pub(super) struct PeerListener {
    pub(super) listener: TcpListener,
    /// Where they reach it.
    pub(super) address: String,
}

impl PeerListener {
    /// Binds the address that the settings name; none when this service is alone.
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

/// A listener for replicas that show this.
pub(super) struct PeerFace {
    pub(super) listener: TcpListener,
    pub(super) secret: PeerSecret,
}

/// Where others reach a listener: where it listens, or its host if it listens everywhere.
pub(super) fn reached_at(listener: &TcpListener, host: &str) -> std::io::Result<String> {
    let address = listener.local_addr()?;
    Ok(if address.ip().is_unspecified() { format!("{host}:{}", address.port()) } else { address.to_string() })
}

/// Bounds of the connections of other replicas, each of which may send as much as all clients together. A request of theirs
/// has a connection.
pub(super) fn connection_limits(clients: ConnectionLimits) -> ConnectionLimits {
    ConnectionLimits {
        connections: 2 * limits::PEER_REQUESTS,
        per_address: 2 * limits::PEER_REQUESTS,
        // They wait, and none of them probes.
        reserved: 0,
        // They read what they ask for.
        unsent: usize::MAX,
        // What they pass on has all that its client sent.
        buffer: clients.buffer.saturating_add(PEER_HEADER_BYTES),
        fields: PEER_HEADER_FIELDS,
        ..clients
    }
}
