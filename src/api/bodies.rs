//! The budget of request bodies in memory: each byte counts from its arrival until its request is answered.
//! Owns who a body counts for and what its reader is told when there is no room. Never reads a body of its own accord.
//!
//! A short body of known length counts as a whole, for the service alone: as many of them as requests are let in at once make
//! a quarter of the budget. Any other counts for its project too, or, before that is known, for the address of its client;
//! each of these may hold a quarter. Where there is no room the slowest body makes some, with 408, or the new one is
//! refused, with 503.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::Extensions;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::quota::RequestLimits;
use crate::budget::{Bounds, Budget, Holder, Refused, Reserved, Usage};
use crate::domain::limits;
use crate::domain::names::ProjectId;
use crate::domain::source::Source;
use crate::error::Error;

/// Whose body it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BodyOwner {
    /// A project that is known for certain, or as certainly as anything without authentication.
    Project(ProjectId),
    /// Of the client that nobody knows yet.
    Address(IpAddr),
}

impl BodyOwner {
    /// The client at the other end of the connection.
    pub fn client(extensions: &Extensions) -> Self {
        let address = extensions.get::<Source>().and_then(|source| source.address);
        Self::Address(address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()))
    }
}

/// The bytes of bodies in memory.
#[derive(Clone, Debug)]
pub struct BodyBudget {
    budget: Budget<BodyOwner>,
    /// Bytes of the longest body that counts for the service alone.
    short: u64,
}

/// The bytes of one body, held until this is dropped.
#[derive(Debug)]
pub enum BodyCharge<'a> {
    /// There is no body.
    Nothing,
    /// It counts for the service alone.
    Short(#[expect(dead_code, reason = "it is there to be dropped")] Reserved<'a, BodyOwner>),
    /// It counts for its owner too.
    Long(Arc<Holder<BodyOwner>>),
}

impl BodyBudget {
    /// A budget as `limits` say.
    pub fn new(limits: RequestLimits) -> Self {
        let total = limits.body_bytes;
        let bounds = Bounds { total, share: total / limits::BODY_SHARES, patience: limits::SLOW_BODY };
        let at_once = limits.requests.saturating_add(limits.long_polls).max(1);
        let short = (total / limits::BODY_SHARES / at_once).min(limits::SHORT_BODY_BYTES);
        Self { budget: Budget::new(bounds), short: u64::try_from(short).unwrap_or(u64::MAX) }
    }

    /// How it is used.
    pub fn usage(&self) -> Usage {
        self.budget.usage()
    }

    /// Lets a body in. What is returned beside it is to be held until the request is answered.
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
        let holder = Arc::new(self.budget.open(owner()));
        let charged = Body::new(Charged { inner: body, holder: Arc::clone(&holder), refused: None });
        Ok((charged, BodyCharge::Long(holder)))
    }

    /// The charge of a body that was read whole, now that `owner` is known.
    ///
    /// # Errors
    ///
    /// [`Error::BodiesFull`]: it has no room among those of its owner.
    pub fn assign<'a>(&'a self, charge: BodyCharge<'a>, owner: BodyOwner) -> Result<BodyCharge<'a>, Error> {
        let BodyCharge::Long(before) = charge else { return Ok(charge) };
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

/// A body whose bytes are charged as they come. It fails when there is no room for more of it, with what its reader answers.
struct Charged {
    inner: Body,
    holder: Arc<Holder<BodyOwner>>,
    refused: Option<Refused>,
}

impl Charged {
    fn refuse(&mut self, refused: Refused) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.refused = Some(refused);
        let error = match refused {
            Refused::Full => Error::BodiesFull,
            Refused::Slow => Error::Late,
        };
        Poll::Ready(Some(Err(axum::Error::new(error))))
    }
}

impl HttpBody for Charged {
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
            return me.refuse(Refused::Slow);
        }
        match Pin::new(&mut me.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len).saturating_add(limits::BODY_PIECE_BYTES);
                if let Err(refused) = me.holder.add(bytes) {
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
            Poll::Pending if me.holder.poll_evicted(cx) => me.refuse(Refused::Slow),
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
        let body_bytes = 64 << 10;
        BodyBudget::new(RequestLimits { requests: 8, long_polls: 8, project_rate: None, body_bytes })
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
    async fn long_body_counts_as_it_comes_and_until_its_answer() {
        let budget = budget();
        let (mut body, charge) = budget.charge(Body::from("x".repeat(10_000)), || project("a")).unwrap();
        assert_eq!(budget.budget.used(), 0, "nothing has come");
        body.frame().await.unwrap().unwrap();
        drop(body);
        assert_eq!(budget.budget.used(), 10_000 + limits::BODY_PIECE_BYTES);
        let (mut next, _charge) = budget.charge(Body::from("x".repeat(10_000)), || project("a")).unwrap();
        let error = next.frame().await.unwrap().unwrap_err();
        assert!(Error::is_bodies_full(&error), "{error}");
        let (mut other, _charge) = budget.charge(Body::from("x".repeat(10_000)), || project("b")).unwrap();
        other.frame().await.unwrap().unwrap();
        drop(charge);
    }

    #[tokio::test]
    async fn body_of_an_unknown_client_becomes_that_of_its_project() {
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
