//! The seam of names.

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use crate::limits::LOOKUPS;

/// Resolves names of subscribers.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Returns all addresses of a name. It is called once for each connection, never for an address.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the system. At most [`LOOKUPS`] look-ups run at once; others wait within their deadline.
#[derive(Debug)]
pub struct SystemResolver {
    /// A permit is held by a look-up until the system answers, also if its delivery has ended.
    permits: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(LOOKUPS)) }
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(io::Error::other)?;
        let name = name.to_owned();
        let lookup = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let addresses = (name.as_str(), 0).to_socket_addrs()?;
            Ok(addresses.map(|address| address.ip()).collect())
        });
        lookup.await.map_err(io::Error::other)?
    }
}
