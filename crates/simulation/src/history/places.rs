//! The numbers that name queues and messages in a history.
//!
//! ```text
//! queues:   0 …  sources   501  FIFO of SQS   1,000 …  dead letters   100,000 …  subscriptions that are read
//!           200,000 …  queues that a subscription fills   300,000 …  topics
//! messages: 0 …  the numbers in bodies   (subscription + 1) · 1,000,000,000 + number …  its copies
//! ```

/// The number of the queue of dead letters of a queue is that of the queue plus this.
pub const DEAD_LETTERS: usize = 1_000;

/// The FIFO queue that is used through SQS, for which its name has to end in `.fifo`.
pub const SQS_FIFO: usize = 501;

/// The number of a subscription that consumers read is its own plus this.
pub const SUBSCRIPTIONS: usize = 100_000;

/// The number of the queue that a subscription `queue:` fills is that of the subscription plus this. It gets nothing else.
pub const SINKS: usize = 200_000;

/// The number of the first topic. Every second one is FIFO.
pub const TOPICS: usize = 300_000;

/// Number of topics.
pub const TOPIC_COUNT: usize = 2;

/// Number of messages that clients can name.
const COPIES: u64 = 1_000_000_000;

/// Number of kinds of messages.
pub const KINDS: u64 = 3;

/// Returns the kind of a message, which filters of subscriptions look at.
pub fn kind_of(number: u64) -> u64 {
    body_number(number) % KINDS
}

/// Returns the number in the body of a message or a copy.
pub(super) fn body_number(number: u64) -> u64 {
    number % COPIES
}

/// Returns the number of the copy of a message, or of a copy, for a subscription.
pub(super) fn copy_number(subscription: usize, number: u64) -> u64 {
    (u64::try_from(subscription).unwrap_or(0) + 1) * COPIES + body_number(number)
}

/// Returns the subscription that a copy is for; none for a message of a client.
pub(super) fn subscription_of(number: u64) -> Option<usize> {
    usize::try_from((number / COPIES).checked_sub(1)?).ok()
}

/// Returns the subscription that alone fills a queue; none for another queue.
pub fn filled_by(queue: usize) -> Option<usize> {
    match queue {
        TOPICS.. => None,
        SINKS.. => Some(queue - SINKS),
        _ => queue.checked_sub(SUBSCRIPTIONS),
    }
}

/// Returns the number of a message whose body was found in a queue.
pub fn number_in(queue: usize, body: u64) -> u64 {
    filled_by(queue).map_or(body, |subscription| copy_number(subscription, body))
}

/// Whether a queue keeps nothing for itself.
pub(super) fn is_topic(queue: usize) -> bool {
    queue >= TOPICS
}

/// Whether a queue is filled by transfers.
pub(super) fn is_sink(queue: usize) -> bool {
    (SINKS..TOPICS).contains(&queue)
}

/// Returns the queue whose dead letters a queue has, or the queue itself.
pub(super) fn family(queue: usize) -> usize {
    if queue < SUBSCRIPTIONS { queue % DEAD_LETTERS } else { queue }
}
