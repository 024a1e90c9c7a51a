//! The network between clients and replicas: requests reach the services of a replica, or are lost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use angarium_cluster::peers::{PeerFailure, PeerResponseBody, PeerTransport};
use angarium_cluster::trust::PeerProof;
use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::response::Response as ApiResponse;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tower::{Service, ServiceExt};

use crate::cluster::{Cluster, certificate_of};
use crate::faults::Fault;
use crate::process::Process;
use crate::world::{Loss, RequestFaults, World};

/// The faults of requests between replicas.
const PEER_FAULTS: RequestFaults = RequestFaults {
    refused: Fault::PeerRefused,
    lost: Fault::PeerLost,
    unanswered: Fault::PeerUnanswered,
    slow: Fault::PeerSlow,
    hung: Fault::PeerHung,
};

/// The faults of requests of clients.
const CLIENT_FAULTS: RequestFaults = RequestFaults {
    refused: Fault::ClientRefused,
    lost: Fault::ClientLost,
    unanswered: Fault::ClientUnanswered,
    slow: Fault::ClientSlow,
    hung: Fault::ClientHung,
};

/// Sends the request of a client to a service of a process.
pub async fn send_from_client<S>(
    world: &World,
    process: Process,
    service: S,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, Loss>
where
    S: Service<axum::extract::Request, Response = ApiResponse, Error = std::convert::Infallible>,
    S: Send + 'static,
    S::Future: Send,
{
    let connection = Connection::open(world);
    let served = serve(process, service, request, connection.task.clone());
    let answer = world.exchange(CLIENT_FAULTS, served).await;
    if answer.is_ok() {
        connection.finish();
    }
    answer
}

/// Runs a request in a process. Returns none when the process ends before the answer.
async fn serve<S>(
    process: Process,
    service: S,
    request: Request<Bytes>,
    served: Served,
) -> Option<Response<Bytes>>
where
    S: Service<axum::extract::Request, Response = ApiResponse, Error = std::convert::Infallible>,
    S: Send + 'static,
    S::Future: Send,
{
    let task = process.tasks().spawn(async move {
        let answer = service.oneshot(request.map(Body::from)).await.unwrap_or_else(|never| match never {});
        let (parts, body) = answer.into_parts();
        // A body that breaks off is an answer that is lost.
        let body = to_bytes(body, usize::MAX).await.ok()?;
        Some(Response::from_parts(parts, body))
    });
    *served.0.lock() = Some(task.abort_handle());
    task.await.ok().flatten()
}

/// The connection of a request. Dropping it before [`Connection::finish`] ends the work on the request, after the time
/// that the news takes.
struct Connection {
    world: World,
    task: Served,
    is_finished: bool,
}

/// The task that works on a request, once it has begun.
#[derive(Clone, Default)]
struct Served(Arc<Mutex<Option<AbortHandle>>>);

impl Connection {
    fn open(world: &World) -> Self {
        Self { world: world.clone(), task: Served::default(), is_finished: false }
    }

    fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let (world, task) = (self.world.clone(), self.task.clone());
        self.world.spawn(async move {
            world.hop().await;
            if let Some(task) = &*task.0.lock() {
                task.abort();
            }
        });
    }
}

/// The way of one replica to the others.
pub struct SimulatedPeers {
    cluster: Cluster,
    /// The replica that sends.
    number: usize,
    /// Its process.
    from: String,
}

impl fmt::Debug for SimulatedPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimulatedPeers").field(&self.from).finish()
    }
}

impl SimulatedPeers {
    /// Creates the way of the process `from` of a replica.
    pub fn new(cluster: Cluster, number: usize, from: String) -> Self {
        Self { cluster, number, from }
    }

    /// Sends a request. While what one of the two sends is lost, there is no answer.
    async fn exchange(
        &self,
        to: usize,
        served: impl Future<Output = Option<Response<Bytes>>> + Send + 'static,
    ) -> Result<Response<Bytes>, Loss> {
        if self.cluster.is_cut(self.number, to) {
            std::future::pending::<()>().await;
        }
        let answer = self.cluster.world().exchange(PEER_FAULTS, served).await;
        if self.cluster.is_cut(to, self.number) {
            std::future::pending::<()>().await;
        }
        answer
    }
}

#[async_trait]
impl PeerTransport for SimulatedPeers {
    async fn send(
        &self,
        address: &str,
        request: Request<Bytes>,
        max_wait: Duration,
    ) -> Result<Response<Bytes>, PeerFailure> {
        let world = self.cluster.world();
        let to = Cluster::number_of(address);
        let (Some(to), Some((process, service))) = (to, self.cluster.peer_service(address)) else {
            world.hop().await;
            return Err(PeerFailure::NotSent("nothing listens there".into()));
        };
        let path = request.uri().path().to_owned();
        world.note(|| format!("{} sends {path} to {}", self.from, process.name()));
        let connection = Connection::open(world);
        let mut request = request;
        // As the listener does behind the handshake.
        request.extensions_mut().insert(PeerProof::Certificate(certificate_of(self.number)));
        let served = serve(process, service, request, connection.task.clone());
        let answer = tokio::time::timeout(max_wait, self.exchange(to, served)).await;
        if matches!(answer, Ok(Ok(_))) {
            connection.finish();
        }
        match answer {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(Loss::NotSent)) => Err(PeerFailure::NotSent("simulated".into())),
            Ok(Err(Loss::Unknown)) => Err(PeerFailure::Unknown("simulated".into())),
            Err(_) => Err(PeerFailure::Unknown("simulated silence".into())),
        }
    }

    async fn pass_on(
        &self,
        address: &str,
        request: Request<Bytes>,
        max_wait: Duration,
    ) -> Result<Response<PeerResponseBody>, PeerFailure> {
        let response = self.send(address, request, max_wait).await?;
        Ok(response.map(|body| Either::Left(Full::new(body))))
    }
}
