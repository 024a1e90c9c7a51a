//! A request on its way to another replica, whose client may leave. Then what is on its way back is waited for a
//! moment: it may hand a claim over, which no client would have, and which is given back by dropping the answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::response::Response;
use tokio::time::timeout;

use angarium_broker::Broker;
use angarium_cluster::peers::PeerFailure;
use angarium_core::limits;

type PeerExchange = Pin<Box<dyn Future<Output = Result<Response, PeerFailure>> + Send>>;

/// The exchange with the other replica. Dropped before it is done it continues for [`limits::PEER_ABANDONED_WAIT`], and its
/// answer is dropped.
pub(super) struct InFlightForward {
    broker: Broker,
    /// None once it is done.
    exchange: Option<PeerExchange>,
}

impl InFlightForward {
    /// Begins when it is first waited for.
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
