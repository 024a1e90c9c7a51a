//! The steps of a history: small values that can be made at random and shrunk. Numbers choose among what there
//! is when the step is taken; a step for which there is nothing does nothing.

use proptest::prelude::*;

/// Whom somebody who deletes a message says he is.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    Nobody,
    /// The claim that holds the message, if one does.
    Holder,
    /// Some claim that lives.
    Other(u8),
    /// A claim that never was.
    Stranger,
}

/// Which message is deleted.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// One that is there for its clients.
    Known(u8),
    /// One that is durable, though its post is not answered yet: listings show it.
    Unanswered(u8),
    /// One that is gone.
    Gone(u8),
    /// One that never was.
    Never,
}

#[derive(Clone, Debug)]
pub enum Step {
    /// A post goes to the lane: bodies by kind of size, and whether their life is short.
    Post(Vec<u8>, bool),
    /// A post of messages that are ready after so many seconds.
    Delayed(Vec<u8>, u8),
    /// What is scheduled and due is looked for, or what was found is settled.
    BeginWake,
    ReadWake,
    FinishWake,
    /// A claim begins to end, and its messages are put off by so many seconds.
    PutOff(u8, u8),
    /// The pool is asked for expired messages, and they are removed.
    BeginSweep,
    FinishSweep,
    /// A message of another queue is prepared: its id is below the next one or is it.
    Arrive(u8),
    /// A prepared message is published.
    Publish(u8),
    /// A message that moves away, or that was prepared and is not to come, goes.
    Depart(u8),
    /// A claim of so many messages waits, if there are none.
    Join(u8),
    Leave(u8),
    /// What waits in the lane goes out in one batch.
    Send,
    /// The batch that is out becomes durable.
    Apply,
    /// Its outcome is known.
    Settle,
    Take(u8),
    /// The record of a claim becomes durable.
    Record(u8),
    Grant(u8),
    PutBack(u8),
    /// A claim begins to end; whether it counts as an attempt.
    End(u8, bool),
    /// The record of an ending claim goes.
    Unrecord(u8),
    FinishEnd(u8),
    FailEnd(u8),
    /// Some messages of a claim, one for each bit, get a time of their own: so many seconds as the bits say.
    Part(u8, u8),
    /// The commit of both claims becomes durable.
    RecordParting(u8),
    /// Its outcome is known.
    FinishParting(u8),
    FailParting(u8),
    /// Whoever has a receipt of a message removes it.
    RemoveReceived(Target),
    ClearSpent,
    Remove(Target, Named),
    BeginRefill,
    /// A page of at most so many messages is read.
    ReadPage(u8),
    FinishRefill,
    FailRefill,
    /// The window is left to the pool.
    LeaveReady,
    Advance(u8),
    /// All that is under way comes to its end, but for a page that is read.
    Flush,
    /// The engine is lost with all that was not durable, and built again.
    Crash,
}

/// Histories from an empty queue.
pub fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..most)
}

/// Histories of a queue that is far longer than its window, some of it claimed, where pages take their time.
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
    prop_oneof![
        8 => posts(),
        2 => Just(Step::Flush),
        26 => claims(),
        6 => (target(), named()).prop_map(|(target, named)| Step::Remove(target, named)),
        14 => refills(),
        9 => receipts(),
        6 => schedules(),
        6 => moves(),
        4 => waits(),
        1 => (1u8..120).prop_map(Step::Advance),
        1 => Just(Step::Crash),
    ]
}

fn posts() -> impl Strategy<Value = Step> {
    let sizes = prop::collection::vec(0u8..3, 1..6);
    prop_oneof![
        2 => (sizes, prop::bool::weighted(0.2)).prop_map(|(sizes, is_short)| Step::Post(sizes, is_short)),
        3 => Just(Step::Send),
        2 => Just(Step::Apply),
        3 => Just(Step::Settle),
    ]
}

fn schedules() -> impl Strategy<Value = Step> {
    let sizes = prop::collection::vec(0u8..3, 1..4);
    prop_oneof![
        4 => (sizes, 1u8..90).prop_map(|(sizes, seconds)| Step::Delayed(sizes, seconds)),
        3 => Just(Step::BeginWake),
        3 => Just(Step::ReadWake),
        3 => Just(Step::FinishWake),
        2 => (any::<u8>(), 1u8..90).prop_map(|(claim, seconds)| Step::PutOff(claim, seconds)),
        2 => Just(Step::BeginSweep),
        2 => Just(Step::FinishSweep),
        2 => (1u8..60).prop_map(Step::Advance),
    ]
}

fn moves() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any::<u8>().prop_map(Step::Arrive),
        4 => any::<u8>().prop_map(Step::Publish),
        2 => any::<u8>().prop_map(Step::Depart),
    ]
}

fn waits() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1u8..4).prop_map(Step::Join),
        1 => any::<u8>().prop_map(Step::Leave),
    ]
}

fn claims() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u8..6).prop_map(Step::Take),
        3 => any::<u8>().prop_map(Step::Record),
        6 => any::<u8>().prop_map(Step::Grant),
        1 => any::<u8>().prop_map(Step::PutBack),
        4 => (any::<u8>(), prop::bool::weighted(0.8)).prop_map(|(claim, counts)| Step::End(claim, counts)),
        2 => any::<u8>().prop_map(Step::Unrecord),
        5 => any::<u8>().prop_map(Step::FinishEnd),
        1 => any::<u8>().prop_map(Step::FailEnd),
        1 => Just(Step::ClearSpent),
    ]
}

fn receipts() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<u8>(), any::<u8>()).prop_map(|(claim, which)| Step::Part(claim, which)),
        1 => any::<u8>().prop_map(Step::RecordParting),
        3 => any::<u8>().prop_map(Step::FinishParting),
        1 => any::<u8>().prop_map(Step::FailParting),
        2 => target().prop_map(Step::RemoveReceived),
    ]
}

fn refills() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::BeginRefill),
        3 => (1u8..8).prop_map(Step::ReadPage),
        3 => Just(Step::FinishRefill),
        1 => Just(Step::FailRefill),
        1 => Just(Step::LeaveReady),
    ]
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        8 => any::<u8>().prop_map(Target::Known),
        2 => any::<u8>().prop_map(Target::Unanswered),
        1 => any::<u8>().prop_map(Target::Gone),
        1 => Just(Target::Never),
    ]
}

fn named() -> impl Strategy<Value = Named> {
    prop_oneof![
        3 => Just(Named::Nobody),
        4 => Just(Named::Holder),
        1 => any::<u8>().prop_map(Named::Other),
        1 => Just(Named::Stranger),
    ]
}
