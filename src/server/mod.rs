//! The composition root: opens the stores, puts the parts together, serves, and takes it all down again.

mod addresses;
pub mod connection;
pub mod deadline;
pub mod exchange;
pub mod listener;
mod reload;
pub mod tls;

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use thiserror::Error as ThisError;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::api::{self, Authentication, RequestLimits};
use crate::broker::{Broker, FirstPool, Opener, PoolSettings};
use crate::catalogue::Catalogue;
use crate::clock::Clock;
use crate::config::connections::ConnectionSettings;
use crate::config::requests::RequestSettings;
use crate::config::{Config, ConfigError, TreeChoice, tokens};
use crate::coordination::embedded::EmbeddedTree;
use crate::coordination::zookeeper::{Patience, ZooKeeperTree};
use crate::coordination::{Coordination, TreeError};
use crate::domain::names::PoolName;
use crate::domain::pool::PoolUri;
use crate::domain::rate::Rate;
use crate::error::Error;
use crate::journal::{Journal, OpenError};
use crate::storage::PoolStore;
use crate::storage::open::{PoolOpenError, PoolOpener};
use listener::ConnectionLimits;
use reload::{Reloader, UnreadableFile};
use tls::{Credentials, Transport};

/// The directory of the tree and the first pool, below the data directory.
const JOURNAL: &str = "journal";

/// The pool of a fresh installation. Its weight matters once there are others to compare it with.
const FIRST_POOL: &str = "default";
const FIRST_WEIGHT: u32 = 100;

/// Why the service could not start.
#[derive(Debug, ThisError)]
pub enum StartError {
    /// The settings together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The signal to read files again.
    #[error("cannot receive SIGHUP")]
    Signal(#[source] std::io::Error),
    /// A file that the settings name.
    #[error(transparent)]
    File(#[from] UnreadableFile),
    /// The address.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The data directory.
    #[error("cannot use {path} as the data directory")]
    Data {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The embedded stores.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// The ensemble.
    #[error("cannot use ZooKeeper")]
    Tree(#[from] TreeError),
    /// What is in the stores.
    #[error("cannot start on these stores: {}", described(.0))]
    Stores(#[from] Error),
}

/// An error with its cause, which its text leaves out because it is written for clients.
fn described(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// A service that is ready to serve.
pub struct Server {
    listener: TcpListener,
    broker: Broker,
    tree: Arc<dyn Coordination>,
    authentication: Authentication,
    transport: Transport,
    limits: ConnectionLimits,
    requests: RequestLimits,
    clock: Clock,
    reloader: Reloader,
}

impl Server {
    /// Opens the stores below the data directory and binds the address. The address is bound first: a second
    /// service on it fails before it touches any data.
    pub async fn open(config: &Config) -> Result<Self, StartError> {
        config.check()?;
        let mut reloader = Reloader::new().map_err(StartError::Signal)?;
        let authentication = authentication(config, &mut reloader)?;
        let transport = transport(config, &mut reloader)?;
        let failed = |source| StartError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let data = open_data(&config.data)?;
        let clock = Clock::system();
        let journal = Journal::open_reserving(&data.join(JOURNAL), &clock, config.reserve)?;
        let tree = open_tree(&config.coordination, &journal).await?;
        let (limits, requests) = (connection_limits(&config.connections), request_limits(&config.requests));
        let opener = PoolOpener::new(&data, clock.clone(), [(data.join(JOURNAL), journal)]);
        let settings = pool_settings(config, opener.reserving(config.reserve))?;
        let broker = Broker::start(Catalogue::new(Arc::clone(&tree)), &settings, clock.clone()).await?;
        Ok(Self { listener, broker, tree, authentication, transport, limits, requests, clock, reloader })
    }

    /// Where it listens.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`, then finishes what has begun and closes the stores.
    pub async fn run(self, stop: CancellationToken) {
        let app: Router = api::router(self.broker.clone(), self.authentication, self.requests, self.clock);
        let serving = listener::run(self.listener, self.transport, app, self.limits, stop);
        tokio::select! {
            () = serving => {}
            () = self.reloader.run() => {}
        }
        info!("no more requests; finishing what has begun");
        self.broker.stop().await;
        self.tree.close().await;
    }
}

fn authentication(config: &Config, reloader: &mut Reloader) -> Result<Authentication, UnreadableFile> {
    let Some(path) = config.tokens.clone() else { return Ok(Authentication::Off) };
    let from = path.clone();
    Ok(Authentication::Tokens(reloader.watch(&[&path], move || tokens::read(&from))?))
}

fn transport(config: &Config, reloader: &mut Reloader) -> Result<Transport, UnreadableFile> {
    let (Some(certificates), Some(key)) = (config.tls_cert.clone(), config.tls_key.clone()) else {
        return Ok(Transport::Plain);
    };
    let from = (certificates.clone(), key.clone());
    let read = move || Credentials::read(&from.0, &from.1);
    Ok(Transport::Tls(reloader.watch(&[&certificates, &key], read)?))
}

fn number(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn request_limits(settings: &RequestSettings) -> RequestLimits {
    RequestLimits {
        requests: number(settings.max_requests),
        long_polls: number(settings.max_long_polls),
        project_rate: settings.project_requests_per_second.map(Rate::new),
    }
}

fn connection_limits(settings: &ConnectionSettings) -> ConnectionLimits {
    ConnectionLimits {
        connections: number(settings.max_connections),
        per_address: number(settings.max_connections_per_address),
        streams: settings.max_streams,
        probe: settings.probe_after,
        first_byte: settings.first_byte_timeout,
        header: settings.header_timeout,
        idle: settings.idle_timeout,
        body: settings.body_timeout,
        write: settings.write_timeout,
        drain: settings.drain_timeout,
        buffer: number(settings.max_header_bytes),
        ..ConnectionLimits::default()
    }
}

fn open_data(data: &Path) -> Result<PathBuf, StartError> {
    let failed = |source| StartError::Data { path: data.to_owned(), source };
    if data.exists() && !data.is_dir() {
        return Err(failed(std::io::Error::other("it is there and is not a directory")));
    }
    // Messages are for nobody else on this machine. A directory that exists keeps its mode.
    DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(failed)?;
    data.canonicalize().map_err(failed)
}

async fn open_tree(choice: &TreeChoice, journal: &Journal) -> Result<Arc<dyn Coordination>, StartError> {
    Ok(match choice {
        TreeChoice::Embedded => Arc::new(EmbeddedTree::new(journal.clone())),
        TreeChoice::ZooKeeper(address) => {
            Arc::new(ZooKeeperTree::open(address.clone(), Patience::default()).await?)
        }
    })
}

impl Opener for PoolOpener {
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        PoolOpener::open(self, uri)
    }

    fn close(&self, uri: &str) {
        PoolOpener::close(self, uri);
    }
}

/// The first pool is beside the embedded tree, where it shares its journal. An installation on ZooKeeper has one
/// only if it is asked for: its data must not lie on the disk of one replica by accident.
fn pool_settings(config: &Config, opener: PoolOpener) -> Result<PoolSettings, Error> {
    let uri = match (&config.pool, &config.coordination) {
        (Some(uri), _) => Some(PoolUri::new(uri)?),
        (None, TreeChoice::Embedded) => Some(PoolUri::new(&format!("embedded:{JOURNAL}"))?),
        (None, TreeChoice::ZooKeeper(_)) => None,
    };
    let name = PoolName::new(FIRST_POOL)?;
    let first = uri.map(|uri| FirstPool { name, uri, weight: FIRST_WEIGHT });
    Ok(PoolSettings { first, opener: Arc::new(opener), placement: config.placement })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        connections: ConnectionSettings,
    }

    #[test]
    fn defaults_of_settings_are_those_of_the_listener() {
        let settings = Program::parse_from(["angarium"]).connections;
        assert_eq!(connection_limits(&settings), ConnectionLimits::default());
    }
}
