//! Unsent answers: the bytes that each connection keeps in memory until its client reads them. This module has the
//! count of one connection, and decides whether the connection is closed because there are too many bytes in all. It
//! never reads an answer.
//!
//! An answer counts from the end of its handler until its last byte is written to the socket: its bytes carry the
//! charge through the buffers of hyper. Short answers do not count, because a connection or a stream costs more memory
//! than they do.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;

use crate::budget::{Bounds, Budget, Holder};
use angarium_core::network::customer;
use angarium_metrics::{BudgetFigures, ByteBudget, Meter};

/// Max bytes of an answer that does not count. HTTP/1.1 has one answer at a time on a connection.
const SHORT_ANSWER: usize = 16 * 1024;
/// The same for HTTP/2, which has up to a hundred answers at a time.
const SHORT_STREAM: usize = 1024;

/// The budget of unsent answers of all connections of a listener.
pub type UnsentBudget = Budget<IpAddr>;

/// Creates a budget of `total` bytes. Above it, the connection with the least progress is closed, of the address with
/// the most unsent bytes.
pub fn unsent_budget(total: usize) -> UnsentBudget {
    Budget::new(Bounds { total, reserve: 0, share: total, max_wait: Duration::ZERO })
}

/// Shows a budget on the page of metrics.
pub fn watch(meter: &Meter, budget: UnsentBudget) {
    meter.watch_budget(ByteBudget::Answers, move || {
        let usage = budget.usage();
        BudgetFigures { used: usage.used, total: usage.total, refused: usage.refused, ended: usage.evicted }
    });
}

#[derive(Clone, Debug)]
pub struct UnsentAnswers(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    budget: UnsentBudget,
    address: IpAddr,
    short: usize,
    /// Created for the first answer that counts.
    holder: OnceLock<Holder<IpAddr>>,
}

/// The charge of the unsent bytes of an answer.
#[derive(Debug)]
pub struct AnswerCharge {
    unsent: UnsentAnswers,
    bytes: usize,
}

impl UnsentAnswers {
    /// Creates the count of an HTTP/1.1 connection from `address`.
    pub fn of_requests(budget: UnsentBudget, address: IpAddr) -> Self {
        Self::new(budget, address, SHORT_ANSWER)
    }

    /// Creates the count of an HTTP/2 connection.
    pub fn of_streams(budget: UnsentBudget, address: IpAddr) -> Self {
        Self::new(budget, address, SHORT_STREAM)
    }

    fn new(budget: UnsentBudget, address: IpAddr, short: usize) -> Self {
        Self(Arc::new(Connection { budget, address: customer(address), short, holder: OnceLock::new() }))
    }

    /// Charges an answer of `bytes` bytes; none for a short answer.
    pub fn charge(&self, bytes: u64) -> Option<AnswerCharge> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes <= self.0.short {
            return None;
        }
        let holder = self.0.holder.get_or_init(|| self.0.budget.open(self.0.address));
        holder.add_anyway(bytes);
        Some(AnswerCharge { unsent: self.clone(), bytes })
    }

    /// Records bytes that were written to the socket.
    pub fn sent(&self, bytes: usize) {
        if let Some(holder) = self.0.holder.get() {
            holder.note_progress(bytes);
        }
    }

    /// Whether the connection is to be closed. If not, the task of `cx` is woken when it is.
    pub fn poll_cut(&self, cx: &Context<'_>) -> bool {
        self.0.holder.get().is_some_and(|holder| holder.poll_evicted(cx))
    }
}

impl AnswerCharge {
    /// Returns the same bytes with their part of the charge.
    pub fn carried_by(&mut self, bytes: Bytes) -> Bytes {
        let part = bytes.len().min(self.bytes);
        self.bytes -= part;
        let charge = Self { unsent: self.unsent.clone(), bytes: part };
        Bytes::from_owner(CarriedBytes { bytes, _charge: charge })
    }
}

impl Drop for AnswerCharge {
    fn drop(&mut self) {
        if let Some(holder) = self.unsent.0.holder.get() {
            holder.release(self.bytes);
        }
    }
}

/// Bytes that count until hyper has written the last of them.
struct CarriedBytes {
    bytes: Bytes,
    _charge: AnswerCharge,
}

impl AsRef<[u8]> for CarriedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn answer_counts_until_its_last_byte_is_dropped() {
        let budget = unsent_budget(1 << 20);
        let unsent = UnsentAnswers::of_requests(budget.clone(), Ipv4Addr::LOCALHOST.into());
        assert!(unsent.charge(100).is_none(), "it is short");
        let mut charge = unsent.charge(50_000).unwrap();
        let mut first = charge.carried_by(Bytes::from(vec![0; 20_000]));
        drop(charge);
        assert_eq!(budget.used(), 20_000, "the rest is dropped");
        let part = first.split_to(5_000);
        drop(first);
        assert_eq!(budget.used(), 20_000, "a part is still to be written");
        drop(part);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn addresses_of_one_customer_count_together() {
        let budget = unsent_budget(100_000);
        let of = |address: &str| UnsentAnswers::of_requests(budget.clone(), address.parse().unwrap());
        let [stuck, other] = ["2001:db8::1", "2001:db8::2:1"].map(of);
        let small = of("2001:db8:0:1::1");
        let (_small, _first) = (small.charge(30_000), stuck.charge(25_000));
        let _second = other.charge(25_000);
        let _next = of("192.0.2.1").charge(40_000);
        let cx = Context::from_waker(std::task::Waker::noop());
        let is_cut = stuck.poll_cut(&cx) || other.poll_cut(&cx);
        assert!(is_cut && !small.poll_cut(&cx), "the two have more together");
    }

    #[tokio::test]
    async fn connection_without_progress_is_cut_for_others() {
        let budget = unsent_budget(100_000);
        let [stuck, next] = [1, 2].map(|last| Ipv4Addr::new(127, 0, 0, last).into());
        let (stuck, next) = (
            UnsentAnswers::of_requests(budget.clone(), stuck),
            UnsentAnswers::of_requests(budget.clone(), next),
        );
        let _unread = stuck.charge(60_000).unwrap();
        let _more = next.charge(50_000).unwrap();
        let cx = Context::from_waker(std::task::Waker::noop());
        assert!(stuck.poll_cut(&cx) && !next.poll_cut(&cx));
        assert_eq!(budget.used(), 50_000);
    }
}
