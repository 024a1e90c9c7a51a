//! Where a client is, for all that a client is not known by otherwise.

use std::net::IpAddr;

/// The address of the client, with every request of a listener for clients. The server puts it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);
