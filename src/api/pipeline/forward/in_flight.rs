//! A forwarded request whose client may disconnect. Its answer is then awaited for a moment, because it may carry a
//! claim that no client receives; dropping the answer releases that claim.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::response::Response;
use tokio::time::timeout;

use angarium_broker::Broker;
use angarium_cluster::peers::PeerFailure;
use angarium_core::limits;

type PeerExchange = Pin<Box<dyn Future<Output = Result<Response, PeerFailure>> + Send>>;

/// The exchange with the other replica. If this is dropped before the answer, the exchange continues in the background
/// for at most [`limits::PEER_ABANDONED_WAIT`], and its answer is dropped.
pub(super) struct InFlightForward {
    broker: Broker,
    /// None after the answer.
    exchange: Option<PeerExchange>,
}

impl InFlightForward {
    /// Creates the forward. The exchange begins at the first poll.
    pub(super) fn new(
        broker: Broker,
        exchange: impl Future<Output = Result<Response, PeerFailure>> + Send + 'static,
    ) -> Self {
        Self { broker, exchange: Some(Box::pin(exchange)) }
    }
}

impl Future for InFlightForward {
    type Output = Result<Response, PeerFailure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(exchange) = &mut self.exchange else { return Poll::Pending };
        let sent = exchange.as_mut().poll(cx);
        if sent.is_ready() {
            self.exchange = None;
        }
        sent
    }
}

impl Drop for InFlightForward {
    fn drop(&mut self) {
        let Some(exchange) = self.exchange.take() else { return };
        self.broker.drain_background(async move {
            let _ = timeout(limits::PEER_ABANDONED_WAIT, exchange).await;
        });
    }
}
