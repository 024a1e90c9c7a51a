//! Histories of swarm testing.

use proptest::prelude::*;

use super::{Deleter, ForwardKind, SettleKind, Step, Target, kinds, sizes};

/// Histories of swarm testing: each draws a weight for each kind of step, and many kinds get weight 0. So some
/// histories combine steps that rarely occur together.
pub fn swarm_steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let single = kinds().into_iter().map(|(_, kind)| kind.prop_map(|step| vec![step]).boxed());
    let single: Vec<_> = single.collect();
    let several = [sequences(), settle_sequences(), hold_sequences()].concat();
    let ways = [several.clone(), single.clone()].concat();
    let of_single = prop_oneof![
        factors([1, 1, 1], single.len()),
        factors([4, 1, 1], single.len()),
        factors([15, 1, 1], single.len())
    ];
    (factors([3, 1, 2], several.len()), of_single).prop_flat_map(move |(several, single)| {
        // Without these steps nothing happens.
        let always = [
            (3, sizes(6).prop_map(|sizes| vec![Step::Post(sizes, false)]).boxed()),
            (4, Just(vec![Step::Flush]).boxed()),
            (4, (1u8..6).prop_map(|limit| vec![Step::Take(limit), Step::Flush]).boxed()),
        ];
        let factors = [several, single].concat();
        let chosen = factors.into_iter().zip(ways.clone()).filter(|(factor, _)| *factor > 0);
        let union = prop::strategy::Union::new_weighted(always.into_iter().chain(chosen).collect());
        prop::collection::vec(union, 1..most).prop_map(|steps| steps.concat())
    })
}

/// Weights of some kinds of steps: 0, 1 or 4, each drawn with its own weight.
fn factors([never, seldom, often]: [u32; 3], kinds: usize) -> BoxedStrategy<Vec<u32>> {
    let factor = prop_oneof![never => Just(0u32), seldom => Just(1), often => Just(4)];
    prop::collection::vec(factor, kinds).boxed()
}

/// Steps that become durable, and steps after that, both by the same number.
fn led(
    before: impl Fn(u8) -> Vec<Step> + 'static,
    after: impl Fn(u8) -> Vec<Step> + 'static,
) -> BoxedStrategy<Vec<Step>> {
    let writer = [Step::Send, Step::Apply, Step::Settle];
    any::<u8>().prop_map(move |number| [&before(number), &writer[..], &after(number)].concat()).boxed()
}

/// Sequences of steps that lead to the conditions of earlier bugs.
fn sequences() -> Vec<BoxedStrategy<Vec<Step>>> {
    let nothing = |_| Vec::new();
    let page = || vec![Step::BeginWake, Step::ReadDue];
    let delete = |number, named| Step::Remove(Target::Known(number), named);
    vec![
        led(|number| vec![Step::Delayed(vec![0, 0], 1 + number % 40)], |_| vec![Step::Advance(41)]),
        Just(page()).boxed(),
        led(move |number| [page(), vec![delete(number, Deleter::NoClaim)]].concat(), nothing),
        led(move |_| [page(), vec![Step::Purge]].concat(), nothing),
        led(move |number| vec![delete(number, Deleter::Holder)], nothing),
        led(|_| vec![Step::BeginSweep, Step::FinishSweep], nothing),
        led(
            |number| {
                vec![
                    Step::PostRetained(vec![0]),
                    Step::Flush,
                    Step::Take(1),
                    Step::Flush,
                    Step::Retain(number),
                ]
            },
            |_| vec![Step::Advance(50), Step::BeginSweep, Step::FinishSweep],
        ),
        led(|number| vec![Step::PutOff(number, 60)], |number| vec![Step::FailEnd(number)]),
        led(|number| vec![Step::PutOff(number, 60)], |number| vec![Step::LoseEnd(number)]),
        led(|number| vec![Step::PutOff(number, 60)], |_| vec![Step::Crash]),
        led(|number| vec![Step::End(number, true)], |number| vec![Step::LoseEnd(number)]),
        led(|number| vec![Step::ForgetOld, Step::PostOnce(number)], nothing),
    ]
}

/// Such sequences with settles, requeues and recalls.
fn settle_sequences() -> Vec<BoxedStrategy<Vec<Step>>> {
    fn settle_of(number: u8, kind: SettleKind) -> Step {
        // The second number is that of a message which the claim holds.
        Step::BeginSettle(number, number & !7, kind, ForwardKind::Nothing)
    }
    let retried = |number| settle_of(number, SettleKind::Retried(number % 2 * 30));
    let requeued = |number, delay| vec![Step::Requeue(Target::Kept(number), delay), Step::ReadRequeued(0)];
    let writer = || [Step::Send, Step::Apply, Step::Settle];
    let recalled = |number| Step::Recall(Target::Known(number));
    vec![
        led(|number| vec![settle_of(number, SettleKind::Failed)], move |number| requeued(number, 0)),
        led(move |number| requeued(number, number % 2 * 30), |_| vec![Step::Crash]),
        led(
            move |number| vec![retried(number)],
            |number| vec![Step::BeginReturns(number, 255), Step::RecordReturns(0)],
        ),
        led(move |number| vec![retried(number)], move |number| vec![Step::Crash, retried(number)]),
        led(
            move |number| vec![retried(number)],
            move |number| vec![Step::BeginReturns(number, 255), Step::FailReturns(0), retried(number)],
        ),
        led(
            move |number| [vec![recalled(number)], writer().to_vec()].concat(),
            |number| vec![Step::BeginSettle(number, 7, SettleKind::Removed, ForwardKind::Nothing)],
        ),
        led(
            |number| vec![Step::BeginSweep, settle_of(number, SettleKind::Done)],
            |_| vec![Step::FinishSweep],
        ),
        led(
            |number| vec![Step::Arrive(number, 30)],
            move |number| [vec![Step::Publish(number)], writer().to_vec()].concat(),
        ),
    ]
}

/// Such sequences with holds of groups.
fn hold_sequences() -> Vec<BoxedStrategy<Vec<Step>>> {
    let withheld = |number| vec![Step::Hold(number), Step::Take(1 + number % 5)];
    let released = |number| vec![Step::ReleaseGroup(number), Step::ReadWithheld(number)];
    let made_ready = |number| vec![Step::MakeReady(number), Step::ReadRequeued(number)];
    vec![
        led(withheld, released),
        led(withheld, move |number| [released(number), made_ready(number)].concat()),
        led(move |number| [released(number), made_ready(number)].concat(), |_| vec![Step::Crash]),
        led(move |number| [withheld(number), vec![Step::ReleaseGroup(number)]].concat(), released),
        led(move |number| [made_ready(number), vec![Step::Hold(number)]].concat(), withheld),
    ]
}
