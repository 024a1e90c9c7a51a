//! Bounds of what is looked at before a caller is known: connections for probes, and the header of a proxy.

use std::time::Duration;

/// Connections beyond all bounds that are answered if they probe: of this machine, of private networks and of all other
/// addresses so many each. So who is from elsewhere takes no room from what watches the service.
pub const PROBE_CONNECTIONS: usize = 16;
/// Of them those of one address.
pub const PROBE_CONNECTIONS_PER_ADDRESS: usize = 4;
/// How long such a connection may take to shake hands, and then to send its header: a probe has it ready.
pub const PROBE_HEADER: Duration = Duration::from_secs(2);
/// How long such a connection lasts at most: a page of metrics takes the most of what is probed.
pub const PROBE_CONNECTION: Duration = Duration::from_secs(10);
/// Bytes of the header of a probe, and of what is buffered for it.
pub const PROBE_HEADER_BYTES: usize = 8 * 1024;
/// Seconds after which who was refused for want of a connection may come again.
pub const CONNECTION_RETRY_SECONDS: u32 = 2;

/// Fields of the header of a request: as many as leave room for those that a replica adds to pass it on.
pub const HEADER_FIELDS: usize = 90;
/// The same at the listener for other replicas. It is what hyper's parser of HTTP/1.1 takes without an allocation of its own.
pub const PEER_HEADER_FIELDS: usize = 100;
/// Bytes beyond the bound of a header that are read all the same, so that the API refuses it in its own form. In HTTP/2 the
/// protocol counts 28 bytes more for each of [`PEER_HEADER_FIELDS`] fields than the bound does.
pub const HEADER_EXCESS_BYTES: usize = 8 * 1024;
/// Bytes that the header of a request may have more at the listener for other replicas: what they add to that of a client.
pub const PEER_HEADER_BYTES: usize = 16 * 1024;

/// Bytes of a PROXY protocol header beyond its fixed part. Addresses take 36; the fields behind them, such as the name of a
/// certificate, a few hundred.
pub const PROXY_HEADER_BYTES: usize = 2_048;
/// How often a connection of a proxy is looked at whose header is not there yet. Proxies send it in one piece.
pub const PROXY_HEADER_LOOK: Duration = Duration::from_millis(5);
/// Hops that `X-Forwarded-For` is read back over. One with more proxies than this is not resolved.
pub const FORWARDED_HOPS: usize = 32;
