//! Counters by queue. Only a bounded number of queues have counters of their own, because each adds a dozen series to
//! the server that stores them.
//!
//! The first used queues have their own counters as long as they exist. As many again have them because of their depth,
//! and lose them to deeper ones: their counts are then added to `_other`, whose counters never decrease.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::limits;
use angarium_core::names::QueueRef;

/// The name that queues without their own counters share.
const OTHER: &str = "_other";

/// Project and name of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct QueueLabels {
    project: String,
    queue: String,
}

impl QueueLabels {
    pub(super) fn other() -> Self {
        Self { project: OTHER.to_owned(), queue: OTHER.to_owned() }
    }

    pub(super) fn parts(&self) -> (&str, &str) {
        (&self.project, &self.queue)
    }

    fn of(at: &QueueRef) -> Self {
        Self { project: at.project.as_str().to_owned(), queue: at.name.as_str().to_owned() }
    }
}

/// Counters of a queue's messages since the start of the process, or of several queues that share a name.
#[derive(Debug)]
pub struct QueueCounters {
    /// Posted messages.
    pub sent: Counter,
    /// Messages delivered under claims, or popped.
    pub claimed: Counter,
    /// Messages deleted under their claim, or popped.
    pub acked: Counter,
    /// Messages released by the holder of their claim.
    pub nacked: Counter,
    /// Messages released because their claim expired.
    pub lapsed: Counter,
    /// Messages removed because they expired.
    pub expired: Counter,
    /// Messages moved to another queue because they reached the max claim count.
    pub dead_lettered: Counter,
}

impl QueueCounters {
    /// Returns the counters in the order of the fields.
    fn all(&self) -> [&Counter; 7] {
        let Self { sent, claimed, acked, nacked, lapsed, expired, dead_lettered } = self;
        [sent, claimed, acked, nacked, lapsed, expired, dead_lettered]
    }
}

type Counters = Family<QueueLabels, Counter>;

/// The counters of all named queues, and the shared ones.
pub(super) struct Queues {
    /// Families in the order of the fields of [`QueueCounters`].
    families: [Counters; 7],
    others: Arc<QueueCounters>,
    /// Held for single lookups, when a queue is opened or deleted.
    named: Mutex<NamedQueue>,
}

struct NamedQueue {
    max: usize,
    counters: HashMap<QueueRef, Arc<QueueCounters>>,
    /// Queues that are named because of their depth.
    deep: HashSet<QueueRef>,
}

impl NamedQueue {
    /// Returns the number of queues that are named because they were used.
    fn used(&self) -> usize {
        self.counters.len() - self.deep.len()
    }
}

impl Queues {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = [
            ("angarium_messages_sent", "Messages posted"),
            ("angarium_messages_claimed", "Messages handed out under claims, or popped"),
            ("angarium_messages_acked", "Messages deleted under their claim, or popped"),
            ("angarium_messages_nacked", "Messages given back by the holder of their claim"),
            ("angarium_messages_lapsed", "Messages given back because the time of their claim was over"),
            ("angarium_messages_expired", "Messages removed because their life was over"),
            ("angarium_messages_dead_lettered", "Messages moved away because they were claimed too often"),
        ]
        .map(|(name, help)| {
            let family = Counters::default();
            registry.register(name, help, family.clone());
            family
        });
        let others = Arc::new(counters(&families, &QueueLabels::other()));
        let named = NamedQueue { max: limits::NAMED_QUEUES, counters: HashMap::new(), deep: HashSet::new() };
        Self { families, others, named: Mutex::new(named) }
    }

    pub(super) fn set_max_named(&self, max: usize) {
        self.named.lock().max = max;
    }

    pub(super) fn counters(&self, at: &QueueRef) -> Arc<QueueCounters> {
        let mut named = self.named.lock();
        if let Some(known) = named.counters.get(at) {
            return Arc::clone(known);
        }
        if named.used() >= named.max {
            return self.others();
        }
        let new = Arc::new(counters(&self.families, &QueueLabels::of(at)));
        named.counters.insert(at.clone(), Arc::clone(&new));
        new
    }

    /// Returns the counters like [`Queues::counters`], but creates none.
    pub(super) fn known(&self, at: &QueueRef) -> Arc<QueueCounters> {
        self.named.lock().counters.get(at).map_or_else(|| self.others(), Arc::clone)
    }

    /// Names a queue because of its depth. Returns false when there is no room for one more.
    pub(super) fn name_deep(&self, at: &QueueRef) -> bool {
        let named = &mut *self.named.lock();
        if named.deep.len() >= named.max || named.counters.contains_key(at) {
            return false;
        }
        named.counters.insert(at.clone(), Arc::new(counters(&self.families, &QueueLabels::of(at))));
        named.deep.insert(at.clone())
    }

    /// Returns the queues that are named because of their depth, and the number of further queues that fit.
    pub(super) fn deep(&self) -> (Vec<QueueRef>, usize) {
        let named = self.named.lock();
        (named.deep.iter().cloned().collect(), named.max.saturating_sub(named.deep.len()))
    }

    /// Removes the name of a queue that has it because of its depth.
    pub(super) fn unname(&self, at: &QueueRef) {
        let named = &mut *self.named.lock();
        if !named.deep.remove(at) {
            return;
        }
        let Some(counters) = named.counters.remove(at) else { return };
        for (kept, own) in self.others.all().into_iter().zip(counters.all()) {
            kept.inc_by(own.get());
        }
        for family in &self.families {
            family.remove(&QueueLabels::of(at));
        }
    }

    pub(super) fn others(&self) -> Arc<QueueCounters> {
        Arc::clone(&self.others)
    }

    pub(super) fn named(&self) -> Vec<QueueRef> {
        self.named.lock().counters.keys().cloned().collect()
    }

    pub(super) fn is_named(&self, at: &QueueRef) -> bool {
        self.named.lock().counters.contains_key(at)
    }

    /// Returns the labels of a queue with its own counters; none otherwise.
    pub(super) fn labels(&self, at: &QueueRef) -> Option<QueueLabels> {
        self.is_named(at).then(|| QueueLabels::of(at))
    }

    pub(super) fn forget(&self, at: &QueueRef) {
        let mut named = self.named.lock();
        named.deep.remove(at);
        if named.counters.remove(at).is_some() {
            let labels = QueueLabels::of(at);
            for family in &self.families {
                family.remove(&labels);
            }
        }
    }
}

fn counters(families: &[Counters; 7], labels: &QueueLabels) -> QueueCounters {
    let [sent, claimed, acked, nacked, lapsed, expired, dead_lettered] =
        families.each_ref().map(|family| family.get_or_create_owned(labels));
    QueueCounters { sent, claimed, acked, nacked, lapsed, expired, dead_lettered }
}
