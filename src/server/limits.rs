//! Bounds before a caller is authenticated: connections of probes, request headers, and headers of proxies.

use std::time::Duration;

/// Connections above all bounds that are served if they are probes, for each class of addresses: this machine, private
/// networks, all others. So remote clients take no room from local monitoring.
pub const PROBE_CONNECTIONS: usize = 16;
/// Max of them from one address.
pub const PROBE_CONNECTIONS_PER_ADDRESS: usize = 4;
/// Max time of such a connection for the handshake, and again for its header: a probe sends it at once.
pub const PROBE_HEADER: Duration = Duration::from_secs(2);
/// Max duration of such a connection: a page of metrics takes the longest.
pub const PROBE_CONNECTION: Duration = Duration::from_secs(10);
/// Max bytes of the header of a probe, and of its buffer.
pub const PROBE_HEADER_BYTES: usize = 8 * 1024;
/// Seconds after which a client that was refused a connection may try again.
pub const CONNECTION_RETRY_SECONDS: u32 = 2;

/// Max header fields of a request. The rest of the peer bound is for the fields that a replica adds to a forwarded
/// request.
pub const HEADER_FIELDS: usize = 90;
/// Max header fields at the peer listener. hyper's HTTP/1.1 parser handles this number without an allocation.
pub const PEER_HEADER_FIELDS: usize = 100;
/// Bytes above the bound of a header that are read anyway, so that the API refuses the request in its own form. HTTP/2
/// counts 28 bytes more than the bound for each of [`PEER_HEADER_FIELDS`] fields.
pub const HEADER_EXCESS_BYTES: usize = 8 * 1024;
/// Additional bytes of a request header at the peer listener: for the headers that a replica adds to those of a client.
pub const PEER_HEADER_BYTES: usize = 16 * 1024;

/// Max bytes of a PROXY protocol header after its fixed part. Addresses take 36; the fields after them, such as the
/// name of a certificate, take a few hundred.
pub const PROXY_HEADER_BYTES: usize = 2_048;
/// Interval at which a connection of a proxy is checked for an incomplete header. Proxies send the header in one piece.
pub const PROXY_HEADER_LOOK: Duration = Duration::from_millis(5);
/// Max hops of `X-Forwarded-For` that are followed back. With more proxies the client address is not resolved.
pub const FORWARDED_HOPS: usize = 32;

/// Pieces of a backup in memory that wait for its client, of about 256 KiB each.
pub const BACKUP_PIECES: usize = 4;
/// Bytes of free space above the reserve below which no backup begins, and a running one ends: posts have priority.
pub const BACKUP_MARGIN: u64 = 64 << 20;
/// Time between two looks of a running backup at the disk, at its stores and at the end of the service.
pub const BACKUP_LOOK: Duration = Duration::from_millis(100);
/// Max time in which the client of a backup that is broken off takes the reason.
pub const BACKUP_LAST_WORD: Duration = Duration::from_secs(5);
/// Bytes of free space below which a failed write of a restore counts as one to a full disk: a store takes room in pieces
/// of this size.
pub const RESTORE_FULL_BYTES: u64 = 64 << 20;
