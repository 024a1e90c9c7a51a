//! Gauges of the byte budgets for client data. They are read when a page is requested, so they cost requests nothing.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// A byte budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ByteBudget {
    /// Request bodies, from their arrival to the response.
    Bodies,
    /// Responses that clients have not read yet.
    Answers,
}

impl ByteBudget {
    /// Returns the value of the label `budget`.
    fn as_str(self) -> &'static str {
        match self {
            Self::Bodies => "bodies",
            Self::Answers => "answers",
        }
    }
}

/// Use of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetFigures {
    /// Bytes held now.
    pub used: usize,
    /// Max bytes.
    pub total: usize,
    /// Number of refusals since the start.
    pub refused: u64,
    /// Number of slow holders that were cut off since the start to free bytes.
    pub ended: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BudgetLabels {
    budget: &'static str,
}

type ReadFigures = Box<dyn Fn() -> BudgetFigures + Send + Sync>;

/// All watched budgets.
pub(super) struct Budgets {
    used: Family<BudgetLabels, Gauge>,
    total: Family<BudgetLabels, Gauge>,
    refused: Family<BudgetLabels, Counter>,
    ended: Family<BudgetLabels, Counter>,
    /// Held while a page is made, and when a budget is added.
    read: Mutex<BTreeMap<ByteBudget, ReadFigures>>,
}

impl Budgets {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let budgets = Self {
            used: Family::default(),
            total: Family::default(),
            refused: Family::default(),
            ended: Family::default(),
            read: Mutex::default(),
        };
        registry.register(
            "angarium_budget_bytes",
            "Bytes in memory of bodies of requests, and of answers that wait for their clients",
            budgets.used.clone(),
        );
        registry.register(
            "angarium_budget_limit_bytes",
            "Bytes that a budget has in all",
            budgets.total.clone(),
        );
        registry.register(
            "angarium_budget_refused",
            "Bodies that were refused with 503 for want of room",
            budgets.refused.clone(),
        );
        registry.register(
            "angarium_budget_ended",
            "Slow holders that made room: bodies ended with 408, connections cut whose answers were not read",
            budgets.ended.clone(),
        );
        budgets
    }

    pub(super) fn watch(&self, budget: ByteBudget, read: ReadFigures) {
        self.read.lock().insert(budget, read);
    }

    pub(super) fn set(&self) {
        for (budget, read) in &*self.read.lock() {
            let labels = BudgetLabels { budget: budget.as_str() };
            let BudgetFigures { used, total, refused, ended } = read();
            let bytes = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
            self.used.get_or_create(&labels).set(bytes(used));
            self.total.get_or_create(&labels).set(bytes(total));
            self.refused.get_or_create(&labels).inner().store(refused, Ordering::Relaxed);
            self.ended.get_or_create(&labels).inner().store(ended, Ordering::Relaxed);
        }
    }
}
