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
    ClearSpent,
    Remove(Target, Named),
    BeginRefill,
    /// A page of at most so many messages is read.
    ReadPage(u8),
    FinishRefill,
    FailRefill,
    Advance(u8),
    /// The engine is lost with all that was not durable, and built again.
    Crash,
}

pub fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..most)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (prop::collection::vec(0u8..3, 1..6), prop::bool::weighted(0.2)).prop_map(|(bodies, short)| Step::Post(bodies, short)),
        6 => Just(Step::Send),
        3 => Just(Step::Apply),
        6 => Just(Step::Settle),
        6 => (1u8..6).prop_map(Step::Take),
        3 => any::<u8>().prop_map(Step::Record),
        6 => any::<u8>().prop_map(Step::Grant),
        1 => any::<u8>().prop_map(Step::PutBack),
        4 => (any::<u8>(), prop::bool::weighted(0.8)).prop_map(|(claim, counts)| Step::End(claim, counts)),
        2 => any::<u8>().prop_map(Step::Unrecord),
        5 => any::<u8>().prop_map(Step::FinishEnd),
        1 => any::<u8>().prop_map(Step::FailEnd),
        1 => Just(Step::ClearSpent),
        6 => (target(), named()).prop_map(|(target, named)| Step::Remove(target, named)),
        5 => Just(Step::BeginRefill),
        3 => (1u8..8).prop_map(Step::ReadPage),
        5 => Just(Step::FinishRefill),
        1 => Just(Step::FailRefill),
        1 => (1u8..120).prop_map(Step::Advance),
        1 => Just(Step::Crash),
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
