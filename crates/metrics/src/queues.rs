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
use crate::subscriptions::SubscriptionFamilies;
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

    fn settled(&self, what: &'static str) -> SettledLabels {
        SettledLabels { project: self.project.clone(), queue: self.queue.clone(), what }
    }

    fn of(at: &QueueRef) -> Self {
        Self { project: at.project.as_str().to_owned(), queue: at.name.to_string() }
    }
}

/// Project and name of a queue, and what became of its settled messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SettledLabels {
    project: String,
    queue: String,
    what: &'static str,
}

/// Counters of the settles of a queue's messages, by what became of them.
#[derive(Debug)]
pub struct SettledCounters {
    /// Messages that are done.
    pub done: Counter,
    /// Messages moved to another queue.
    pub moved: Counter,
    /// Messages that failed, whether they are tried again or not.
    pub failed: Counter,
    /// Messages put off.
    pub deferred: Counter,
    /// New messages that settles forwarded.
    pub forwarded: Counter,
}

impl SettledCounters {
    /// Values of the label `what`, in the order of the fields.
    const WHATS: [&str; 5] = ["done", "moved", "failed", "deferred", "forwarded"];

    /// Returns the counters in the order of the fields.
    fn all(&self) -> [&Counter; 5] {
        let Self { done, moved, failed, deferred, forwarded } = self;
        [done, moved, failed, deferred, forwarded]
    }

    fn of(family: &SettledFamily, labels: &QueueLabels) -> Self {
        let [done, moved, failed, deferred, forwarded] =
            Self::WHATS.map(|what| family.get_or_create_owned(&labels.settled(what)));
        Self { done, moved, failed, deferred, forwarded }
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
    /// Messages posted to a topic that no subscription took.
    pub unrouted: Counter,
    /// Messages that the holders of their claims settled.
    pub settled: SettledCounters,
}

impl QueueCounters {
    /// Returns the counters in the order of the fields, without those of settles.
    fn all(&self) -> [&Counter; 8] {
        let Self { sent, claimed, acked, nacked, lapsed, expired, dead_lettered, unrouted, .. } = self;
        [sent, claimed, acked, nacked, lapsed, expired, dead_lettered, unrouted]
    }

    /// Adds the counts of another queue.
    fn add(&self, other: &Self) {
        let (all, settled) = (self.all(), self.settled.all());
        let others = other.all().into_iter().chain(other.settled.all());
        for (own, other) in all.into_iter().chain(settled).zip(others) {
            own.inc_by(other.get());
        }
    }
}

type Counters = Family<QueueLabels, Counter>;
type SettledFamily = Family<SettledLabels, Counter>;

/// The families of all counters.
struct Families {
    /// In the order of the fields of [`QueueCounters`].
    plain: [Counters; 8],
    settled: SettledFamily,
    subscriptions: SubscriptionFamilies,
}

impl Families {
    fn counters(&self, labels: &QueueLabels) -> QueueCounters {
        let [sent, claimed, acked, nacked, lapsed, expired, dead_lettered, unrouted] =
            self.plain.each_ref().map(|family| family.get_or_create_owned(labels));
        let settled = SettledCounters::of(&self.settled, labels);
        QueueCounters { sent, claimed, acked, nacked, lapsed, expired, dead_lettered, unrouted, settled }
    }

    fn remove(&self, labels: &QueueLabels) {
        for family in &self.plain {
            family.remove(labels);
        }
        for what in SettledCounters::WHATS {
            self.settled.remove(&labels.settled(what));
        }
        self.subscriptions.remove(labels);
    }
}

/// The counters of all named queues, and the shared ones.
pub(super) struct Queues {
    families: Families,
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
        let plain = [
            ("angarium_messages_sent", "Messages posted"),
            ("angarium_messages_claimed", "Messages handed out under claims, or popped"),
            ("angarium_messages_acked", "Messages deleted under their claim, or popped"),
            ("angarium_messages_nacked", "Messages given back by the holder of their claim"),
            ("angarium_messages_lapsed", "Messages given back because the time of their claim was over"),
            ("angarium_messages_expired", "Messages removed because their life was over"),
            ("angarium_messages_dead_lettered", "Messages moved away because they were claimed too often"),
            ("angarium_messages_unrouted", "Messages posted to a topic that no subscription took"),
        ]
        .map(|(name, help)| {
            let family = Counters::default();
            registry.register(name, help, family.clone());
            family
        });
        let settled = SettledFamily::default();
        let help = "Messages settled by the holder of their claim, and messages forwarded with them";
        registry.register("angarium_messages_settled", help, settled.clone());
        let subscriptions = SubscriptionFamilies::register(registry);
        let families = Families { plain, settled, subscriptions };
        let others = Arc::new(families.counters(&QueueLabels::other()));
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
        let new = Arc::new(self.families.counters(&QueueLabels::of(at)));
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
        named.counters.insert(at.clone(), Arc::new(self.families.counters(&QueueLabels::of(at))));
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
        self.others.add(&counters);
        self.families.subscriptions.merge(&QueueLabels::of(at), &QueueLabels::other());
        self.families.remove(&QueueLabels::of(at));
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

    /// Counts messages that a subscription did not get, by its queue.
    pub(super) fn omit(&self, at: &QueueRef, what: &'static str, messages: u64) {
        let named = self.named.lock();
        let labels = labels_of(&named, at);
        self.families.subscriptions.omit(&labels, what, messages);
    }

    /// Counts a request to the webhook of a subscription, by its queue.
    pub(super) fn request(&self, at: &QueueRef, result: &'static str) {
        let named = self.named.lock();
        let labels = labels_of(&named, at);
        self.families.subscriptions.request(&labels, result);
    }

    pub(super) fn forget(&self, at: &QueueRef) {
        let mut named = self.named.lock();
        named.deep.remove(at);
        if named.counters.remove(at).is_some() {
            self.families.remove(&QueueLabels::of(at));
        }
    }
}

/// The labels of a queue. The lock is held until they are used, so that no counts are left when the queue is forgotten.
fn labels_of(named: &NamedQueue, at: &QueueRef) -> QueueLabels {
    if named.counters.contains_key(at) { QueueLabels::of(at) } else { QueueLabels::other() }
}
