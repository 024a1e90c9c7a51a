//! Counters by queue, of which only so many have a name of their own: each name is a dozen series at a server that
//! keeps them.
//!
//! The first queues that are used have names for as long as they exist. As many again have names for their depth, and
//! lose them to deeper ones: their counts then go to `_other`, whose counters never fall.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::limits;
use angarium_core::names::QueueRef;

/// The name that queues without figures of their own share.
const OTHER: &str = "_other";

/// Whose figures they are.
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

/// What has happened to the messages of a queue since the start of the process, or of several that share a name.
#[derive(Debug)]
pub struct QueueCounters {
    /// Posted.
    pub sent: Counter,
    /// Handed out under claims, or popped.
    pub claimed: Counter,
    /// Deleted under their claim, or popped.
    pub acked: Counter,
    /// Given back by the holder of their claim.
    pub nacked: Counter,
    /// Given back because the time of their claim had ended.
    pub lapsed: Counter,
    /// Removed because their life had ended.
    pub expired: Counter,
    /// Moved to another queue because they were claimed as often as they may be.
    pub dead_lettered: Counter,
}

impl QueueCounters {
    /// Each of them, in the order of its fields.
    fn all(&self) -> [&Counter; 7] {
        let Self { sent, claimed, acked, nacked, lapsed, expired, dead_lettered } = self;
        [sent, claimed, acked, nacked, lapsed, expired, dead_lettered]
    }
}

type Counters = Family<QueueLabels, Counter>;

/// Every queue that has a name, and the rest.
pub(super) struct Queues {
    /// In the order of the fields of [`QueueCounters`].
    families: [Counters; 7],
    others: Arc<QueueCounters>,
    /// Held for single look-ups, when a queue is opened or deleted.
    named: Mutex<NamedQueue>,
}

struct NamedQueue {
    most: usize,
    counters: HashMap<QueueRef, Arc<QueueCounters>>,
    /// Those of them that have their names for their depth.
    deep: HashSet<QueueRef>,
}

impl NamedQueue {
    /// How many queues have names because they were used.
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
        let named = NamedQueue { most: limits::NAMED_QUEUES, counters: HashMap::new(), deep: HashSet::new() };
        Self { families, others, named: Mutex::new(named) }
    }

    pub(super) fn name_at_most(&self, most: usize) {
        self.named.lock().most = most;
    }

    pub(super) fn counters(&self, at: &QueueRef) -> Arc<QueueCounters> {
        let mut named = self.named.lock();
        if let Some(known) = named.counters.get(at) {
            return Arc::clone(known);
        }
        if named.used() >= named.most {
            return self.others();
        }
        let new = Arc::new(counters(&self.families, &QueueLabels::of(at)));
        named.counters.insert(at.clone(), Arc::clone(&new));
        new
    }

    /// As [`Queues::counters`], but none are made.
    pub(super) fn known(&self, at: &QueueRef) -> Arc<QueueCounters> {
        self.named.lock().counters.get(at).map_or_else(|| self.others(), Arc::clone)
    }

    /// Gives a queue a name for its depth. False when there is no place for one more.
    pub(super) fn name_deep(&self, at: &QueueRef) -> bool {
        let named = &mut *self.named.lock();
        if named.deep.len() >= named.most || named.counters.contains_key(at) {
            return false;
        }
        named.counters.insert(at.clone(), Arc::new(counters(&self.families, &QueueLabels::of(at))));
        named.deep.insert(at.clone())
    }

    /// The queues that have names for their depth, and how many more may.
    pub(super) fn deep(&self) -> (Vec<QueueRef>, usize) {
        let named = self.named.lock();
        (named.deep.iter().cloned().collect(), named.most.saturating_sub(named.deep.len()))
    }

    /// Takes the name from a queue that has one for its depth.
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

    /// The labels of a queue's figures; of one that shares a name none.
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
