//! The budget of request bodies in memory: each byte counts from its arrival until its request is answered. This module
//! selects the account of a body and the error of its reader when the budget is full. It never reads a body by itself.
//!
//! A short body of known length is charged whole, and only to the service. The bound of short bodies is such that they
//! fill a quarter of the budget when all places for requests are in use; no other body takes that quarter. Any other
//! body also counts for the account of its project, or, while the project is unknown, for the address of its client;
//! each of these may hold a quarter. If there is no room, the slowest body is dropped with 408, or the new body is
//! refused with 503.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::Extensions;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::admission::RequestLimits;
use crate::budget::{Bounds, Budget, BudgetRefusal, Holder, Reservation, Usage};
use angarium_core::error::Error;
use angarium_core::limits;
use angarium_core::names::ProjectId;
use angarium_core::network::customer;
use angarium_core::region::Accounts;
use angarium_core::source::Source;

/// The account or the address that a body counts for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BodyOwner {
    /// An authenticated project, or a stated one without authentication. The body counts for its account.
    Project(ProjectId),
    /// The address of a client whose project is not known yet. The body counts for its [`customer`].
    Address(IpAddr),
}

impl BodyOwner {
    /// Returns the address of the client as the owner.
    pub fn client(extensions: &Extensions) -> Self {
        Self::Address(client_address(extensions))
    }
}

/// Returns the address that counts for a request with an unknown sender.
pub fn client_address(extensions: &Extensions) -> IpAddr {
    let address = extensions.get::<Source>().and_then(|source| source.address);
    customer(address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()))
}

/// The budget of request bodies in memory.
#[derive(Clone, Debug)]
pub struct BodyBudget {
    budget: Budget<BodyOwner>,
    /// Max bytes of a body that counts only for the service.
    short: u64,
    /// Maps projects to accounts.
    accounts: Accounts,
}

/// The charge of one body, until this is dropped.
#[derive(Debug)]
pub enum BodyCharge<'a> {
    /// The request has no body.
    Nothing,
    /// The body counts only for the service.
    Short(#[expect(dead_code, reason = "it is there to be dropped")] Reservation<'a, BodyOwner>),
    /// The body counts for its owner too.
    Long(Arc<Holder<BodyOwner>>),
}

impl BodyBudget {
    /// Creates a budget with the bounds of `limits`, shared by `accounts`.
    pub fn new(limits: RequestLimits, accounts: Accounts) -> Self {
        let total = limits.body_bytes;
        let share = total / limits::BODY_SHARES;
        let bounds = Bounds { total, reserve: share, share, max_wait: limits::SLOW_BODY };
        let at_once = limits.requests.saturating_add(limits.long_polls).max(1);
        let short = (share / at_once).min(limits::SHORT_BODY_BYTES);
        Self { budget: Budget::new(bounds), short: u64::try_from(short).unwrap_or(u64::MAX), accounts }
    }

    /// Maps the owner of a body to the account or the customer that is charged.
    fn user(&self, owner: BodyOwner) -> BodyOwner {
        match owner {
            BodyOwner::Project(project) => BodyOwner::Project(self.accounts.of(&project)),
            BodyOwner::Address(address) => BodyOwner::Address(customer(address)),
        }
    }

    /// Returns the usage of the budget.
    pub fn usage(&self) -> Usage {
        self.budget.usage()
    }

    /// Admits a body. The caller holds the returned charge until the request is answered.
    ///
    /// # Errors
    ///
    /// [`Error::BodiesFull`].
    pub fn charge(
        &self,
        body: Body,
        owner: impl FnOnce() -> BodyOwner,
    ) -> Result<(Body, BodyCharge<'_>), Error> {
        if body.is_end_stream() {
            return Ok((body, BodyCharge::Nothing));
        }
        if let Some(bytes) = body.size_hint().exact().filter(|bytes| *bytes <= self.short) {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let reserved = self.budget.reserve(bytes).map_err(|_| Error::BodiesFull)?;
            return Ok((body, BodyCharge::Short(reserved)));
        }
        let holder = Arc::new(self.budget.open(self.user(owner())));
        let charged = Body::new(ChargedBody { inner: body, holder: Arc::clone(&holder), refused: None });
        Ok((charged, BodyCharge::Long(holder)))
    }

    /// Moves the charge of a completely read body to `owner`, which is known now.
    ///
    /// # Errors
    ///
    /// [`Error::BodiesFull`]: the bodies of this owner leave no room.
    pub fn assign<'a>(&'a self, charge: BodyCharge<'a>, owner: BodyOwner) -> Result<BodyCharge<'a>, Error> {
        let BodyCharge::Long(before) = charge else { return Ok(charge) };
        let owner = self.user(owner);
        if *before.user() == owner {
            return Ok(BodyCharge::Long(before));
        }
        let bytes = before.held();
        drop(before);
        let holder = self.budget.open(owner);
        holder.keep();
        holder.add(bytes).map_err(|_| Error::BodiesFull)?;
        Ok(BodyCharge::Long(Arc::new(holder)))
    }
}

/// Wraps a body whose sender is not authenticated. It fails with [`Error::Late`] when it takes longer than
/// [`limits::UNPROVEN_BODY`] and one second more for each [`limits::UNPROVEN_STEP`] bytes that have arrived.
pub fn paced(body: Body) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let until = Instant::now() + limits::UNPROVEN_BODY;
    Body::new(PacedBody { inner: body, until, late: Box::pin(sleep_until(until)) })
}

/// See [`paced`].
struct PacedBody {
    inner: Body,
    until: Instant,
    late: Pin<Box<Sleep>>,
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let me = &mut *self;
        match Pin::new(&mut me.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = u32::try_from(frame.data_ref().map_or(0, Bytes::len)).unwrap_or(u32::MAX);
                me.until += Duration::from_secs(1) * bytes / limits::UNPROVEN_STEP;
                me.late.as_mut().reset(me.until);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Pending if me.late.as_mut().poll(cx).is_ready() => {
                Poll::Ready(Some(Err(axum::Error::new(Error::Late))))
            }
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A body whose bytes are charged as they arrive. When the budget is full, it fails with the error that its reader
/// answers.
struct ChargedBody {
    inner: Body,
    holder: Arc<Holder<BodyOwner>>,
    refused: Option<BudgetRefusal>,
}

impl ChargedBody {
    fn refuse(&mut self, refused: BudgetRefusal) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.refused = Some(refused);
        let error = match refused {
            BudgetRefusal::Full => Error::BodiesFull,
            BudgetRefusal::Slow => Error::Late,
        };
        Poll::Ready(Some(Err(axum::Error::new(error))))
    }
}

impl HttpBody for ChargedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let me = &mut *self;
        if let Some(refused) = me.refused {
            return me.refuse(refused);
        }
        if me.holder.is_evicted() {
            return me.refuse(BudgetRefusal::Slow);
        }
        match Pin::new(&mut me.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                if let Err(refused) = me.holder.add_piece(bytes, limits::BODY_PIECE_BYTES) {
                    return me.refuse(refused);
                }
                if me.inner.is_end_stream() {
                    me.holder.keep();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                me.holder.keep();
                Poll::Ready(None)
            }
            Poll::Pending if me.holder.poll_evicted(cx) => me.refuse(BudgetRefusal::Slow),
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.refused.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn budget() -> BodyBudget {
        budget_of(64 << 10)
    }

    fn budget_of(body_bytes: usize) -> BodyBudget {
        let limits =
            RequestLimits { requests: 8, long_polls: 8, per_address: 8, project_rate: None, body_bytes };
        BodyBudget::new(limits, Accounts::Regions)
    }

    fn project(name: &str) -> BodyOwner {
        BodyOwner::Project(ProjectId::new(name).unwrap())
    }

    #[tokio::test]
    async fn short_body_of_known_length_counts_for_no_project() {
        let budget = budget();
        let (_, charge) =
            budget.charge(Body::from("x".repeat(1000)), || unreachable!("nobody asks")).unwrap();
        assert_eq!(budget.budget.used(), 1000);
        drop(charge);
        assert_eq!(budget.budget.used(), 0);
        let (_, charge) = budget.charge(Body::empty(), || unreachable!("nobody asks")).unwrap();
        assert!(matches!(charge, BodyCharge::Nothing));
    }

    #[tokio::test]
    async fn long_body_is_charged_from_arrival_until_answer() {
        let budget = budget();
        let (mut body, charge) = budget.charge(Body::from("x".repeat(10_000)), || project("a")).unwrap();
        assert_eq!(budget.budget.used(), 0, "nothing has come");
        body.frame().await.unwrap().unwrap();
        drop(body);
        assert_eq!(budget.budget.used(), 10_000 + limits::BODY_PIECE_BYTES);
        let (mut next, _charge) = budget.charge(Body::from("x".repeat(10_000)), || project("a")).unwrap();
        let error = next.frame().await.unwrap().unwrap_err();
        assert!(Error::is_bodies_full(&error), "{error}");
        let (mut next, _charge) =
            budget.charge(Body::from("x".repeat(10_000)), || project("a@eu-west-1")).unwrap();
        assert!(next.frame().await.unwrap().is_err(), "the account has a share, and not each region");
        let (mut other, _charge) = budget.charge(Body::from("x".repeat(10_000)), || project("b")).unwrap();
        other.frame().await.unwrap().unwrap();
        drop(charge);
    }

    /// Returns a body of pieces that arrive `pause` apart.
    fn pieces(count: usize, bytes: usize, pause: Duration) -> Body {
        struct PieceBody {
            left: usize,
            bytes: usize,
            pause: Duration,
            next: Pin<Box<Sleep>>,
        }

        impl HttpBody for PieceBody {
            type Data = Bytes;
            type Error = axum::Error;

            fn poll_frame(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
                std::task::ready!(self.next.as_mut().poll(cx));
                let until = Instant::now() + self.pause;
                self.next.as_mut().reset(until);
                let Some(left) = self.left.checked_sub(1) else { return Poll::Ready(None) };
                self.left = left;
                Poll::Ready(Some(Ok(Frame::data(vec![b' '; self.bytes].into()))))
            }
        }

        let next = Box::pin(sleep_until(Instant::now() + pause));
        Body::new(PieceBody { left: count, bytes, pause, next })
    }

    #[tokio::test(start_paused = true)]
    async fn overhead_of_single_bytes_is_no_progress() {
        let budget = budget_of(256 << 10);
        let bytes = pieces(400, 1, Duration::from_millis(10));
        let (mut dribbling, _charge) = budget.charge(bytes, || project("a")).unwrap();
        let mut slow = tokio::task::JoinSet::new();
        slow.spawn(async move {
            while let Some(frame) = dribbling.frame().await {
                frame?;
            }
            Ok::<(), axum::Error>(())
        });
        // If the body counted 64 bytes more for each byte, its last progress would be recent and it would not be
        // dropped.
        tokio::time::sleep(Duration::from_millis(2_600)).await;
        let (mut next, _charge) = budget.charge(Body::from("x".repeat(60_000)), || project("a")).unwrap();
        next.frame().await.unwrap().unwrap();
        let error = slow.join_next().await.unwrap().unwrap().unwrap_err();
        assert!(Error::is_late(&error), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_unproven_body_is_late() {
        let began = Instant::now();
        let silent = pieces(1, 1, Duration::from_secs(40));
        let error = paced(silent).collect().await.unwrap_err();
        assert!(Error::is_late(&error), "{error}");
        let (least, most) = (limits::UNPROVEN_BODY, limits::UNPROVEN_BODY + Duration::from_secs(2));
        assert!((least..most).contains(&began.elapsed()), "{:?}", began.elapsed());
        // One byte per second is too slow; 16 KiB per second is fast enough.
        assert!(paced(pieces(60, 1, Duration::from_secs(1))).collect().await.is_err());
        assert!(paced(pieces(60, 16 * 1024, Duration::from_secs(1))).collect().await.is_ok());
        assert!(paced(Body::empty()).collect().await.is_ok());
    }

    #[tokio::test]
    async fn addresses_of_one_customer_share() {
        let budget = budget();
        let address = |text: &str| BodyOwner::Address(text.parse().unwrap());
        let body = || Body::from("x".repeat(10_000));
        let (mut first, _first) = budget.charge(body(), || address("2001:db8::1")).unwrap();
        first.frame().await.unwrap().unwrap();
        let (mut second, _second) = budget.charge(body(), || address("2001:db8::2")).unwrap();
        assert!(second.frame().await.unwrap().is_err());
        let (mut other, _other) = budget.charge(body(), || address("2001:db8:0:1::1")).unwrap();
        assert!(other.frame().await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn unknown_client_body_moves_to_its_project() {
        let budget = budget();
        let address = || BodyOwner::Address(Ipv4Addr::LOCALHOST.into());
        let mut charges = Vec::new();
        for name in ["a", "b"] {
            let (body, charge) = budget.charge(Body::from("x".repeat(10_000)), address).unwrap();
            body.collect().await.unwrap();
            charges.push(budget.assign(charge, project(name)).unwrap());
        }
        let (body, charge) = budget.charge(Body::from("x".repeat(10_000)), address).unwrap();
        body.collect().await.unwrap();
        assert!(matches!(budget.assign(charge, project("a")), Err(Error::BodiesFull)));
        drop(charges);
        assert_eq!(budget.budget.used(), 0);
    }
}
