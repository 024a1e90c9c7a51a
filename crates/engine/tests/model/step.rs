//! The steps of a history: small values that can be made at random and shrunk. Numbers choose among what there
//! is when the step is taken; a step for which there is nothing does nothing.

use proptest::prelude::*;

/// Whom a caller who deletes a message states he is.
#[derive(Clone, Copy, Debug)]
pub enum Deleter {
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
    Gone(u8),
    /// One that never was.
    Never,
}

#[derive(Clone, Debug)]
pub enum Step {
    /// A post moves to the slot writer: bodies by kind of size, and whether their life is short.
    Post(Vec<u8>, bool),
    /// A post of messages that live by the queue's retention.
    PostRetained(Vec<u8>),
    /// The queue has another retention.
    Retain(u8),
    /// A post of messages that are ready after so many seconds.
    Delayed(Vec<u8>, u8),
    /// What is scheduled and due is looked for: a page is read, then made ready, and in the end all of it is settled.
    BeginWake,
    ReadDue,
    Wake,
    FinishWake,
    /// A post with one of a few ids of deduplication, or the ids whose time has ended are forgotten, or all of them.
    PostOnce(u8),
    ForgetOld,
    ForgetAll,
    /// All that the pool has is removed, claimed or not.
    Purge,
    /// Some messages, one for each bit, are removed by their ids in the name of all claims.
    RemoveAll(u8),
    /// A claim begins to end, and its messages are put off by so many seconds.
    PutOff(u8, u8),
    /// The pool is asked for expired messages, and they are removed.
    BeginSweep,
    FinishSweep,
    /// A message of another queue is prepared: its id is below the next one or is it.
    Arrive(u8),
    /// A prepared message is published.
    Publish(u8),
    /// A message that moves away, or that was prepared and is not to come, leaves.
    Depart(u8),
    /// A claim of so many messages waits, if there are none.
    Join(u8),
    Leave(u8),
    /// What waits in the slot writer is sent in one batch.
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
    /// The record of an ending claim leaves.
    Unrecord(u8),
    FinishEnd(u8),
    FailEnd(u8),
    /// The record of an ending claim leaves, and its owner does not hear of it.
    LoseEnd(u8),
    /// Some messages of a claim, one for each bit, get a time of their own: so many seconds as the bits say.
    Part(u8, u8),
    /// The commit of both claims becomes durable.
    RecordParting(u8),
    /// Its outcome is known.
    FinishParting(u8),
    FailParting(u8),
    /// The holder of a receipt of a message removes it.
    RemoveReceived(Target),
    ClearSpent,
    Remove(Target, Deleter),
    BeginRefill,
    /// A page of at most so many messages is read.
    ReadPage(u8),
    FinishRefill,
    FailRefill,
    /// The ready cache is left to the pool.
    LeaveReady,
    Advance(u8),
    /// All that is under way ends, but for a page that is read.
    Flush,
    /// The engine is lost with all that was not durable, and built again.
    Crash,
}

/// Histories from an empty queue.
pub fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..most)
}

/// Histories of a queue that is far longer than its ready cache, some of it claimed, where pages take their time.
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

/// Histories of swarm testing: each draws how often it takes each kind of step, and many kinds it never takes. What
/// rarely meet in a history of all kinds meet in some of these.
pub fn swarm_steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let single = kinds().into_iter().map(|(_, kind)| kind.prop_map(|step| vec![step]).boxed());
    let (single, several): (Vec<_>, Vec<_>) = (single.collect(), sequences());
    let ways = [several.clone(), single.clone()].concat();
    let of_single = prop_oneof![
        factors([1, 1, 1], single.len()),
        factors([4, 1, 1], single.len()),
        factors([15, 1, 1], single.len())
    ];
    (factors([3, 1, 2], several.len()), of_single).prop_flat_map(move |(several, single)| {
        // Without these nothing happens.
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

/// How often each of some kinds is taken: never, now and then, or often, with these weights.
fn factors([never, seldom, often]: [u32; 3], kinds: usize) -> BoxedStrategy<Vec<u32>> {
    let factor = prop_oneof![never => Just(0u32), seldom => Just(1), often => Just(4)];
    prop::collection::vec(factor, kinds).boxed()
}

/// Steps that lead to where a bug was once.
fn sequences() -> Vec<BoxedStrategy<Vec<Step>>> {
    fn led(
        before: impl Fn(u8) -> Vec<Step> + 'static,
        after: fn(u8) -> Vec<Step>,
    ) -> BoxedStrategy<Vec<Step>> {
        let writer = [Step::Send, Step::Apply, Step::Settle];
        any::<u8>().prop_map(move |number| [&before(number), &writer[..], &after(number)].concat()).boxed()
    }
    let nothing = |_| Vec::new();
    let page = || vec![Step::BeginWake, Step::ReadDue];
    let delete = |number, named| Step::Remove(Target::Known(number), named);
    vec![
        led(|number| vec![Step::Delayed(vec![0, 0], 1 + number % 40)], |_| vec![Step::Advance(41)]),
        Just(page()).boxed(),
        led(move |number| [page(), vec![delete(number, Deleter::Nobody)]].concat(), nothing),
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

fn step() -> impl Strategy<Value = Step> {
    prop::strategy::Union::new_weighted(kinds())
}

/// A kind of step, and how often it is taken among the others.
type Kind = (u32, BoxedStrategy<Step>);

/// Every kind of step.
fn kinds() -> Vec<Kind> {
    [posts(), claims(), receipts(), removals(), refills(), schedules(), moves(), waits(), others()].concat()
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
    vec![numbered(20, Step::Arrive), numbered(27, Step::Publish), numbered(13, Step::Depart)]
}

fn waits() -> Vec<Kind> {
    vec![(30, (1u8..4).prop_map(Step::Join).boxed()), numbered(10, Step::Leave)]
}

fn receipts() -> Vec<Kind> {
    let part = (any::<u8>(), any::<u8>()).prop_map(|(claim, which)| Step::Part(claim, which));
    vec![
        (30, part.boxed()),
        numbered(7, Step::RecordParting),
        numbered(22, Step::FinishParting),
        numbered(7, Step::FailParting),
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
        1 => Just(Target::Never),
    ]
}

fn named() -> impl Strategy<Value = Deleter> {
    prop_oneof![
        3 => Just(Deleter::Nobody),
        4 => Just(Deleter::Holder),
        1 => any::<u8>().prop_map(Deleter::Other),
        1 => Just(Deleter::Stranger),
    ]
}
