//! The terms of subscriptions, and the numbers of what they got.

use super::places::SUBSCRIPTIONS;

/// Max messages of a post.
pub const POST_MESSAGES: u64 = 3;

/// The effect of a full subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullEffect {
    /// Messages are left out, and counted.
    Suspend,
    /// The oldest copies are removed, and counted.
    DropOldest,
    /// Posts are refused.
    Refuse,
}

impl FullEffect {
    /// Returns the value of the option.
    pub fn name(self) -> &'static str {
        match self {
            Self::Suspend => "suspend",
            Self::DropOldest => "drop_oldest",
            Self::Refuse => "refuse",
        }
    }
}

/// The bound of the copies that wait in a subscription.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Max messages.
    pub messages: u64,
    /// The effect of a post beyond it.
    pub overflow: FullEffect,
}

/// How a subscription is created.
#[derive(Clone, Debug)]
pub struct SubscriptionTerms {
    /// The queue or topic whose messages it gets.
    pub source: usize,
    /// Whether another queue gets the copies; otherwise consumers read them in the subscription.
    pub is_sent_on: bool,
    /// The kind of the messages that it gets; none for all.
    pub filter: Option<u64>,
    /// Whether it gets the messages that wait when it is created.
    pub is_from_oldest: bool,
    /// The bound of its copies, if it has a small one.
    pub bound: Option<Bound>,
    /// Seconds of its life, if it ends within the run.
    pub ttl: Option<u64>,
}

impl SubscriptionTerms {
    /// Whether it gets each message that stays in its queue, sooner or later. A post beyond the whole bound is left out for
    /// good.
    pub fn catches_up(&self) -> bool {
        let is_enough =
            |bound: Bound| bound.overflow != FullEffect::DropOldest && bound.messages >= POST_MESSAGES;
        self.source < SUBSCRIPTIONS && self.bound.is_none_or(is_enough)
    }

    /// Returns the number of messages that it never has more than. A FIFO queue is filled beyond its bound, and copies are
    /// dropped after they were stored.
    pub fn strict_bound(&self) -> Option<u64> {
        let bound = self.bound.filter(|bound| bound.overflow != FullEffect::DropOldest);
        bound.filter(|_| !self.is_from_oldest).map(|bound| bound.messages)
    }
}

/// A subscription as it is found at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct FoundSubscription {
    /// Messages that it counts as left out.
    pub left_out: u64,
    /// Copies that it counts as dropped.
    pub dropped: u64,
}

/// Numbers of copies that were delivered, and of messages that subscriptions did not get.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyCounts {
    /// Subscriptions whose creation succeeded.
    pub subscriptions: u64,
    /// Copies of posts.
    pub of_posts: u64,
    /// Copies of messages that arrived from other queues.
    pub of_arrivals: u64,
    /// Copies of messages that waited when the subscription was created.
    pub of_fills: u64,
    /// Copies in queues to which subscriptions send.
    pub sent_on: u64,
    /// Messages that subscriptions counted as left out.
    pub left_out: u64,
    /// Copies that subscriptions counted as dropped.
    pub dropped: u64,
}

impl CopyCounts {
    /// Adds the numbers of another history.
    pub fn merge(&mut self, other: Self) {
        self.subscriptions += other.subscriptions;
        self.of_posts += other.of_posts;
        self.of_arrivals += other.of_arrivals;
        self.of_fills += other.of_fills;
        self.sent_on += other.sent_on;
        self.left_out += other.left_out;
        self.dropped += other.dropped;
    }
}
