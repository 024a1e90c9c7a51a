//! Connections to the servers of a pool: to one server, to the master that Sentinels name, or to all masters of a
//! cluster.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisResult, TlsMode, Value};

use super::address::{Address, Discovery};
use super::errors::SendMode;
use super::limits;

/// Retries of the cluster client for a command that was sent to the wrong server, or could not be sent.
const CLUSTER_RETRIES: u32 = 3;

/// A connection that many tasks share: a command does not wait for the answers to earlier ones.
#[derive(Clone)]
pub(super) enum Connection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    /// Connects, within a bounded time. Each `attempt` begins with another node of the URI, so that a node which
    /// accepts data and never answers does not block the others.
    pub(super) async fn open(address: &Address, attempt: usize) -> Result<Self, String> {
        let mut nodes = address.nodes.clone();
        nodes.rotate_left(attempt % address.nodes.len());
        let address = &Address { nodes, ..address.clone() };
        if address.tls {
            // Fails when there is a default provider already, which is fine.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let connecting = async {
            match &address.found {
                Discovery::Server => {
                    let client = server_client(address)?;
                    connect(&client).await.map(Self::Server).map_err(|error| error.to_string())
                }
                Discovery::Sentinel(name) => by_sentinel(address, name).await.map(Self::Server),
                Discovery::Cluster => {
                    let client = cluster_client(address)?;
                    client.get_async_connection().await.map(Self::Cluster).map_err(|error| error.to_string())
                }
            }
        };
        match tokio::time::timeout(limits::CONNECT, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(format!("no connection after {:?}", limits::CONNECT)),
        }
    }

    /// The send mode of a write over this connection.
    pub(super) fn sent(&self) -> SendMode {
        match self {
            Self::Server(_) => SendMode::Once,
            Self::Cluster(_) => SendMode::Repeatedly,
        }
    }

    /// Sends a command; an error in the answer is an error of this call.
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        let answer = match self {
            Self::Server(connection) => connection.req_packed_command(command).await,
            Self::Cluster(connection) => connection.req_packed_command(command).await,
        };
        answer?.extract_error()
    }

    /// Sends commands to the server that has the keys of the first one, without any command between them. Errors are
    /// among the answers.
    pub(super) async fn send_all(&mut self, first: &Cmd, others: &[Cmd]) -> RedisResult<Vec<Value>> {
        let mut commands = Pipeline::with_capacity(1 + others.len());
        commands.add_command(first.clone());
        for other in others {
            commands.add_command(other.clone());
        }
        let count = commands.len();
        let answers = match self {
            Self::Server(connection) => connection.req_packed_commands(&commands, 0, count).await?,
            Self::Cluster(connection) => connection.req_packed_commands(&commands, 0, count).await?,
        };
        Ok(answers)
    }

    /// Sends commands whose keys may be on any server. Returns the first error.
    pub(super) async fn send_each(&mut self, commands: &[Cmd]) -> RedisResult<Vec<Value>> {
        match (self, commands) {
            (_, []) => Ok(Vec::new()),
            (server @ Self::Server(_), [first, others @ ..]) => {
                server.send_all(first, others).await?.into_iter().map(Value::extract_error).collect()
            }
            (cluster @ Self::Cluster(_), commands) => {
                let mut answers = Vec::with_capacity(commands.len());
                for command in commands {
                    answers.push(cluster.send(command).await?);
                }
                Ok(answers)
            }
        }
    }

    /// Sends a command to every master.
    pub(super) async fn query_masters(&mut self, command: &Cmd) -> RedisResult<Vec<Value>> {
        match self {
            Self::Server(_) => Ok(vec![self.send(command).await?]),
            Self::Cluster(connection) => {
                let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                match connection.route_command(command.clone(), masters).await?.extract_error()? {
                    Value::Map(answers) => {
                        let mut answers: Vec<_> = answers
                            .into_iter()
                            .map(|(node, answer)| {
                                (redis::from_redis_value::<String>(node).unwrap_or_default(), answer)
                            })
                            .collect();
                        answers.sort_by(|one, other| one.0.cmp(&other.0));
                        answers.into_iter().map(|(_, answer)| answer.extract_error()).collect()
                    }
                    other => Ok(vec![other]),
                }
            }
        }
    }
}

fn server_client(address: &Address) -> Result<Client, String> {
    let node = address.nodes.first().ok_or("the URI names no server")?;
    let connection = address.connection(node).map_err(|error| error.to_string())?;
    let client = match address.certificates()? {
        Some(certificates) => Client::build_with_tls(connection, certificates),
        None => Client::open(connection),
    };
    client.map_err(|error| error.to_string())
}

async fn connect(client: &Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limits::CONNECT))
        .set_response_timeout(Some(limits::ANSWER));
    client.get_multiplexed_async_connection_with_config(&config).await
}

async fn by_sentinel(address: &Address, name: &str) -> Result<MultiplexedConnection, String> {
    let sentinels = address.nodes.iter().map(|node| address.address_of(node));
    let build = || {
        let mut builder = SentinelClientBuilder::new(sentinels, name, SentinelServerType::Master)?
            .set_client_to_redis_db(address.database);
        if let Some(user) = address.user() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = address.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        let (user, password) = address.sentinel_login();
        if let Some(user) = user {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = password {
            builder = builder.set_client_to_sentinel_password(password);
        }
        RedisResult::Ok(builder)
    };
    let mut builder = build().map_err(|error| error.to_string())?;
    if address.tls {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    if let Some(certificates) = address.certificates()? {
        builder = builder
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_certificates(certificates);
    }
    let mut sentinels = builder.build().map_err(|error| error.to_string())?;
    let client = sentinels.async_get_client().await.map_err(|error| error.to_string())?;
    connect(&client).await.map_err(|error| error.to_string())
}

fn cluster_client(address: &Address) -> Result<ClusterClient, String> {
    let nodes = address.nodes.iter().map(|node| address.connection(node));
    let nodes = nodes.collect::<RedisResult<Vec<_>>>().map_err(|error| error.to_string())?;
    let mut builder = ClusterClient::builder(nodes)
        .retries(CLUSTER_RETRIES)
        .connection_timeout(limits::CONNECT)
        .response_timeout(limits::ANSWER)
        .overall_response_timeout(Some(limits::ANSWER));
    if let Some(certificates) = address.certificates()? {
        builder = builder.certs(certificates);
    }
    builder.build().map_err(|error| error.to_string())
}
