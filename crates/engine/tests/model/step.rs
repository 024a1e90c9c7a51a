//! The steps of a history: small values that can be generated at random and shrunk. A number selects among the things
//! that exist when the step is taken; a step without such a thing does nothing.

use proptest::prelude::*;

mod swarms;

pub use swarms::swarm_steps;

/// The claim that a client names when it deletes a message.
#[derive(Clone, Copy, Debug)]
pub enum Deleter {
    NoClaim,
    /// The claim that holds the message, if one does.
    Holder,
    /// Another live claim.
    Other(u8),
    /// A claim that never existed.
    UnknownClaim,
}

/// The message that is deleted.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// A message that clients can see.
    Known(u8),
    /// A durable message whose post is not acknowledged yet: listings show it.
    Unanswered(u8),
    Gone(u8),
    /// A message that is kept.
    Kept(u8),
    /// A message that never existed.
    Never,
}

/// The outcome that a holder gives a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleKind {
    Removed,
    Done,
    Failed,
    /// Transferred to another queue.
    Moved,
    /// Moved to its own queue, where its attempts begin again.
    Returned,
    /// Deferred by so many seconds, which does not count as an attempt.
    Deferred(u8),
    /// Failed, and to be tried again after so many seconds.
    Retried(u8),
}

/// The message that a settle forwards.
#[derive(Clone, Copy, Debug)]
pub enum ForwardKind {
    Nothing,
    ToOther,
    ToSelf,
}

#[derive(Clone, Debug)]
pub enum Step {
    /// Submits a post: size classes of the bodies, and whether the life is short.
    Post(Vec<u8>, bool),
    /// Submits a post of messages that live by queue.
    PostRetained(Vec<u8>),
    /// Changes the retention of the queue.
    Retain(u8),
    /// Submits a post of messages with this delay in seconds.
    Delayed(Vec<u8>, u8),
    /// Wakes due messages: a page is read, then made ready, and at the end all of it is settled.
    BeginWake,
    ReadDue,
    Wake,
    FinishWake,
    /// Posts a message with one of a few deduplication ids; forgets the expired ids, or all of them.
    PostOnce(u8),
    ForgetOld,
    ForgetAll,
    /// Removes all messages of the pool, claimed or not.
    Purge,
    /// Removes some messages, one for each bit, by their ids, for the holder of all claims.
    RemoveAll(u8),
    /// Begins to end a claim with a delay in seconds for its messages.
    PutOff(u8, u8),
    /// Reads expired messages from the pool, and removes them.
    BeginSweep,
    FinishSweep,
    /// Prepares a message of another queue: its id is at most the next one. It has this delay in seconds.
    Arrive(u8, u8),
    /// Publishes a prepared message.
    Publish(u8),
    /// Removes a message that moves away, or a prepared one that is dropped.
    Depart(u8),
    /// Lets a claim of this many messages wait, if there are none.
    Join(u8),
    Leave(u8),
    /// Sends all pending writes in one batch.
    Send,
    /// Makes the batch durable.
    Apply,
    /// Reports the outcome of the batch.
    Settle,
    Take(u8),
    /// Makes the record of a claim durable.
    Record(u8),
    Grant(u8),
    PutBack(u8),
    /// Begins to end a claim; and whether that counts as an attempt.
    End(u8, bool),
    /// Deletes the record of an ending claim.
    Unrecord(u8),
    FinishEnd(u8),
    FailEnd(u8),
    /// Deletes the record of an ending claim, and the outcome is lost.
    LoseEnd(u8),
    /// Changes the visibility of some messages of a claim, one for each bit, to as many seconds as the bits are as a
    /// number.
    Split(u8, u8),
    /// Makes the commit of both claims durable.
    RecordSplit(u8),
    /// Reports the outcome of the commit.
    FinishSplit(u8),
    FailSplit(u8),
    /// Removes a message for the holder of a receipt.
    RemoveReceived(Target),
    /// Begins to settle a message of a claim.
    BeginSettle(u8, u8, SettleKind, ForwardKind),
    /// Begins to take some settled messages that return out of the record of their claim, one for each bit.
    BeginReturns(u8, u8),
    /// Makes the changed record durable; its owner learns it later, if at all.
    RecordReturns(u8),
    FinishReturns(u8),
    FailReturns(u8),
    /// Begins to make a message available again, after a delay in seconds.
    Requeue(Target, u8),
    /// Reads the message in the pool, and submits its new header.
    ReadRequeued(u8),
    /// Holds a group, or begins to release it.
    Hold(u8),
    ReleaseGroup(u8),
    /// Reads which messages of a released group are aside, and begins to make them ready.
    ReadWithheld(u8),
    MakeReady(u8),
    /// Removes a message from under its claim.
    Recall(Target),
    /// Removes all kept messages: they are read, and then removed.
    ReadKept,
    PurgeKept,
    ClearSpent,
    Remove(Target, Deleter),
    BeginRefill,
    /// Reads a page of at most this many messages.
    ReadPage(u8),
    FinishRefill,
    FailRefill,
    /// Evicts the ready cache.
    LeaveReady,
    Advance(u8),
    /// Finishes all operations in progress, except for a page that is read.
    Flush,
    /// Loses the engine with all state that is not durable, and builds it again.
    Crash,
}

/// Histories that begin with an empty queue.
pub fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..most)
}

/// Histories of a queue far longer than its ready cache, partly claimed, with slow pages.
pub fn deep_steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let backlog = prop::collection::vec(prop::collection::vec(1u8..3, 1..6), 1..4);
    let claims = prop::collection::vec(1u8..4, 0..4);
    let rest = prop::collection::vec(deep_step(), 1..most);
    (backlog, claims, any::<bool>(), rest).prop_map(|(backlog, claims, is_lost, rest)| {
        let mut steps = Vec::new();
        for sizes in backlog {
            steps.extend([Step::Post(sizes, false), Step::Flush]);
        }
        for limit in claims {
            steps.extend([Step::BeginRefill, Step::FinishRefill, Step::Take(limit), Step::Flush]);
        }
        steps.extend(is_lost.then_some(Step::Crash));
        steps.extend(rest.concat());
        steps
    })
}

fn deep_step() -> impl Strategy<Value = Vec<Step>> {
    let refilled = || vec![Step::BeginRefill, Step::ReadPage(8), Step::FinishRefill];
    let unanswered = |sizes| vec![Step::Post(sizes, false), Step::Send, Step::Apply];
    let end = any::<u8>().prop_map(|claim| Step::End(claim, true));
    let remove = (target(), named()).prop_map(|(target, named)| Step::Remove(target, named));
    let one = |step: Step| vec![step];
    prop_oneof![
        4 => Just(one(Step::BeginRefill)),
        3 => (1u8..4).prop_map(move |limit| one(Step::ReadPage(limit))),
        2 => Just(one(Step::FinishRefill)),
        2 => Just(refilled()),
        2 => prop::collection::vec(0u8..2, 1..3).prop_map(unanswered),
        4 => Just(one(Step::Flush)),
        3 => end.prop_map(one),
        2 => remove.prop_map(one),
        3 => (1u8..6).prop_map(move |limit| one(Step::Take(limit))),
        6 => step().prop_map(one),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop::strategy::Union::new_weighted(kinds())
}

/// A kind of step, and its weight.
type Kind = (u32, BoxedStrategy<Step>);

/// Every kind of step.
fn kinds() -> Vec<Kind> {
    let parts = [posts(), claims(), receipts(), removals(), refills(), schedules(), moves()];
    [parts.concat(), settles(), requeues(), holds(), waits(), others()].concat()
}

fn sizes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0u8..3, 1..most)
}

fn one(weight: u32, step: Step) -> Kind {
    (weight, Just(step).boxed())
}

fn numbered(weight: u32, step: fn(u8) -> Step) -> Kind {
    (weight, any::<u8>().prop_map(step).boxed())
}

fn posts() -> Vec<Kind> {
    let post =
        (sizes(6), prop::bool::weighted(0.2)).prop_map(|(sizes, is_short)| Step::Post(sizes, is_short));
    vec![
        (16, post.boxed()),
        one(24, Step::Send),
        one(16, Step::Apply),
        one(24, Step::Settle),
        (8, (0u8..4).prop_map(Step::PostOnce).boxed()),
        one(4, Step::ForgetOld),
        one(2, Step::ForgetAll),
    ]
}

fn claims() -> Vec<Kind> {
    let end = (any::<u8>(), prop::bool::weighted(0.8)).prop_map(|(claim, counts)| Step::End(claim, counts));
    vec![
        (50, (1u8..6).prop_map(Step::Take).boxed()),
        numbered(25, Step::Record),
        numbered(50, Step::Grant),
        numbered(8, Step::PutBack),
        (34, end.boxed()),
        numbered(17, Step::Unrecord),
        numbered(42, Step::FinishEnd),
        numbered(8, Step::FailEnd),
        numbered(8, Step::LoseEnd),
        one(8, Step::ClearSpent),
    ]
}

fn removals() -> Vec<Kind> {
    let remove = (target(), named()).prop_map(|(target, named)| Step::Remove(target, named));
    vec![(60, remove.boxed()), numbered(4, Step::RemoveAll), one(2, Step::Purge)]
}

fn schedules() -> Vec<Kind> {
    let put_off = (any::<u8>(), 1u8..90).prop_map(|(claim, seconds)| Step::PutOff(claim, seconds));
    vec![
        (12, (sizes(4), 1u8..90).prop_map(|(sizes, seconds)| Step::Delayed(sizes, seconds)).boxed()),
        one(9, Step::BeginWake),
        one(9, Step::ReadDue),
        one(9, Step::Wake),
        one(9, Step::FinishWake),
        (6, put_off.boxed()),
        (12, sizes(4).prop_map(Step::PostRetained).boxed()),
        numbered(6, Step::Retain),
        one(6, Step::BeginSweep),
        one(6, Step::FinishSweep),
        (16, (1u8..60).prop_map(Step::Advance).boxed()),
    ]
}

fn moves() -> Vec<Kind> {
    let delay = prop_oneof![3 => Just(0), 1 => 1u8..90];
    let arrive = (any::<u8>(), delay).prop_map(|(number, delay)| Step::Arrive(number, delay));
    vec![(20, arrive.boxed()), numbered(27, Step::Publish), numbered(13, Step::Depart)]
}

fn settles() -> Vec<Kind> {
    let returns = (any::<u8>(), any::<u8>()).prop_map(|(claim, which)| Step::BeginReturns(claim, which));
    vec![
        (50, settle().boxed()),
        (30, returns.boxed()),
        numbered(10, Step::RecordReturns),
        numbered(20, Step::FinishReturns),
        numbered(8, Step::FailReturns),
    ]
}

fn settle() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        2 => Just(SettleKind::Removed),
        2 => Just(SettleKind::Done),
        2 => Just(SettleKind::Failed),
        2 => Just(SettleKind::Moved),
        1 => Just(SettleKind::Returned),
        2 => (0u8..60).prop_map(SettleKind::Deferred),
        2 => (0u8..60).prop_map(SettleKind::Retried),
    ];
    let forward = prop_oneof![
        3 => Just(ForwardKind::Nothing),
        1 => Just(ForwardKind::ToOther),
        1 => Just(ForwardKind::ToSelf),
    ];
    (any::<u8>(), any::<u8>(), kind, forward)
        .prop_map(|(claim, message, kind, forward)| Step::BeginSettle(claim, message, kind, forward))
}

fn requeues() -> Vec<Kind> {
    let delay = prop_oneof![Just(0), 1u8..60];
    let target_of_requeue = prop_oneof![2 => target(), 1 => any::<u8>().prop_map(Target::Kept)];
    let requeue = (target_of_requeue, delay).prop_map(|(target, delay)| Step::Requeue(target, delay));
    vec![
        (30, requeue.boxed()),
        numbered(20, Step::ReadRequeued),
        (10, target().prop_map(Step::Recall).boxed()),
        one(4, Step::ReadKept),
        one(4, Step::PurgeKept),
    ]
}

fn holds() -> Vec<Kind> {
    vec![
        numbered(12, Step::Hold),
        numbered(10, Step::ReleaseGroup),
        numbered(20, Step::ReadWithheld),
        numbered(15, Step::MakeReady),
    ]
}

fn waits() -> Vec<Kind> {
    vec![(30, (1u8..4).prop_map(Step::Join).boxed()), numbered(10, Step::Leave)]
}

fn receipts() -> Vec<Kind> {
    let part = (any::<u8>(), any::<u8>()).prop_map(|(claim, which)| Step::Split(claim, which));
    vec![
        (30, part.boxed()),
        numbered(7, Step::RecordSplit),
        numbered(22, Step::FinishSplit),
        numbered(7, Step::FailSplit),
        (15, target().prop_map(Step::RemoveReceived).boxed()),
    ]
}

fn refills() -> Vec<Kind> {
    vec![
        one(46, Step::BeginRefill),
        (35, (1u8..8).prop_map(Step::ReadPage).boxed()),
        one(35, Step::FinishRefill),
        one(12, Step::FailRefill),
        one(12, Step::LeaveReady),
    ]
}

fn others() -> Vec<Kind> {
    vec![one(20, Step::Flush), (10, (1u8..120).prop_map(Step::Advance).boxed()), one(10, Step::Crash)]
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        8 => any::<u8>().prop_map(Target::Known),
        2 => any::<u8>().prop_map(Target::Unanswered),
        1 => any::<u8>().prop_map(Target::Gone),
        1 => any::<u8>().prop_map(Target::Kept),
        1 => Just(Target::Never),
    ]
}

fn named() -> impl Strategy<Value = Deleter> {
    prop_oneof![
        3 => Just(Deleter::NoClaim),
        4 => Just(Deleter::Holder),
        1 => any::<u8>().prop_map(Deleter::Other),
        1 => Just(Deleter::UnknownClaim),
    ]
}
