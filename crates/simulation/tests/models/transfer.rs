//! P5: one message moves from a source to a target, while owners of the target are replaced, requests arrive late, the
//! source takes a refused message back and moves it again, and a consumer deletes it at either queue.

use stateright::{Checker, Model, Property};

/// Greatest epoch of the target's owner.
const EPOCHS: u8 = 3;
/// Greatest number of claims at the source: each begins a transfer of its own.
const GRANTS: u8 = 2;

/// The message at the source, durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    Ready,
    Moving,
    Gone,
}

/// The message at the target, durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Target {
    Absent,
    Prepared,
    Ready,
}

/// A request of an owner of the target to the source, to remove the message. It may arrive at any time, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Departure {
    epoch: u8,
    grant: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    source: Source,
    target: Target,
    /// Number of the last claim at the source.
    grant: u8,
    /// The greatest epoch of a caller that the source remembers.
    known: u8,
    /// Epoch of the present owner of the target.
    epoch: u8,
    /// Whether the present owner knows why the message is prepared: it has prepared it itself, or has asked.
    is_resolved: bool,
    /// The present owner has the answer that the source has removed the message.
    is_departed: bool,
    departures: Vec<Departure>,
    /// A consumer has deleted the message, and has the answer.
    is_consumed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// The source marks the message in the batch of a claim.
    Mark,
    /// The target's owner appends the message as prepared.
    Prepare,
    /// The target's owner refuses the transfer, and the source takes the message back.
    TakeBack,
    /// The target's owner asks the source to remove the message.
    Ask,
    /// A request to remove it arrives.
    Arrive(Departure),
    /// The target's owner publishes the message.
    Publish,
    /// Another owner takes the target.
    Replace,
    /// The new owner asks the source about a prepared message.
    Resolve,
    /// The queue of the target is deleted, and its prepared message discarded: only without a request in progress.
    DeleteQueue,
    /// A consumer deletes the message at the source.
    ConsumeAtSource,
    /// A consumer deletes the message at the target.
    ConsumeAtTarget,
}

/// What the model does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    /// The message is ready at the target at once.
    AppendPublished,
    /// The source removes it before it is prepared.
    RemoveFirst,
    /// A new owner publishes a prepared message without a question.
    PublishUnasked,
    /// The source carries out requests of earlier owners and of earlier claims.
    ForgetCallers,
    /// A message in transfer can be deleted.
    ConsumeMoving,
}

struct Transfer(Option<Defect>);

impl Transfer {
    fn has(&self, defect: Defect) -> bool {
        self.0 == Some(defect)
    }

    /// Whether the source carries out a request to remove the message.
    fn accepts(&self, state: &State, departure: Departure) -> bool {
        let is_current = departure.epoch >= state.known && departure.grant == state.grant;
        state.source == Source::Moving && (is_current || self.has(Defect::ForgetCallers))
    }

    fn apply(&self, state: &mut State, action: Action) {
        match action {
            Action::Mark => {
                state.source = Source::Moving;
                state.grant += 1;
            }
            Action::Prepare => {
                let is_published = self.has(Defect::AppendPublished);
                state.target = if is_published { Target::Ready } else { Target::Prepared };
                state.is_resolved = true;
            }
            Action::TakeBack => state.source = Source::Ready,
            Action::Ask => {
                let departure = Departure { epoch: state.epoch, grant: state.grant };
                state.departures.push(departure);
                state.departures.sort_unstable();
                state.departures.dedup();
            }
            Action::Arrive(departure) => {
                let is_accepted = self.accepts(state, departure);
                if is_accepted {
                    state.source = Source::Gone;
                }
                if departure.epoch >= state.known {
                    state.known = departure.epoch;
                }
                if is_accepted && departure.epoch == state.epoch {
                    state.is_departed = true;
                }
            }
            Action::Publish => {
                state.target = Target::Ready;
                state.is_resolved = false;
            }
            Action::Replace => {
                state.epoch += 1;
                (state.is_resolved, state.is_departed) = (false, false);
            }
            Action::Resolve => {
                state.known = state.known.max(state.epoch);
                match state.source {
                    Source::Gone => state.is_departed = true,
                    Source::Moving => {}
                    Source::Ready => state.target = Target::Absent,
                }
                state.is_resolved = state.target == Target::Prepared;
            }
            Action::DeleteQueue => {
                state.target = Target::Absent;
                state.is_resolved = false;
            }
            Action::ConsumeAtSource => {
                state.source = Source::Gone;
                state.is_consumed = true;
            }
            Action::ConsumeAtTarget => {
                state.target = Target::Absent;
                state.is_consumed = true;
            }
        }
    }
}

impl Model for Transfer {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            source: Source::Ready,
            target: Target::Absent,
            grant: 0,
            known: 0,
            epoch: 1,
            is_resolved: false,
            is_departed: false,
            departures: Vec::new(),
            is_consumed: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.source == Source::Ready {
            actions.push(Action::ConsumeAtSource);
            if state.grant < GRANTS {
                actions.push(Action::Mark);
            }
        }
        if state.source == Source::Moving && state.target == Target::Absent {
            actions.push(Action::Prepare);
            // The owner that refuses has nothing prepared.
            actions.push(Action::TakeBack);
        }
        let may_ask = state.target == Target::Prepared && state.is_resolved;
        if state.source == Source::Moving && (may_ask || self.has(Defect::RemoveFirst)) {
            actions.push(Action::Ask);
        }
        actions.extend(state.departures.iter().map(|departure| Action::Arrive(*departure)));
        if state.target == Target::Prepared {
            let may_publish = state.is_resolved && state.is_departed;
            if may_publish || self.has(Defect::PublishUnasked) && !state.is_resolved {
                actions.push(Action::Publish);
            }
            if !state.is_resolved {
                actions.push(Action::Resolve);
            }
        }
        let is_asking = state.departures.iter().any(|departure| departure.epoch == state.epoch);
        if may_ask && state.source == Source::Moving && !is_asking {
            actions.push(Action::DeleteQueue);
        }
        if state.epoch < EPOCHS {
            actions.push(Action::Replace);
        }
        if state.source == Source::Moving && self.has(Defect::ConsumeMoving) {
            actions.push(Action::ConsumeAtSource);
        }
        if state.target == Target::Ready {
            actions.push(Action::ConsumeAtTarget);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.apply(&mut state, action);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no message is lost", |_, state: &State| {
                state.is_consumed || state.source != Source::Gone || state.target != Target::Absent
            }),
            Property::always("no message returns", |_, state: &State| {
                !state.is_consumed || (state.source != Source::Ready && state.target != Target::Ready)
            }),
            Property::always("no message is in two queues", |_, state: &State| {
                state.source != Source::Ready || state.target != Target::Ready
            }),
            Property::sometimes("a message arrives", |_, state: &State| state.target == Target::Ready),
            Property::sometimes("a second transfer arrives", |_, state: &State| {
                state.target == Target::Ready && state.grant == GRANTS
            }),
        ]
    }
}

#[test]
fn transfer_loses_and_doubles_nothing() {
    let checker = Transfer(None).checker().spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 100, "{} states", checker.unique_state_count());
}

#[test]
fn each_defect_of_a_transfer_breaks_a_promise() {
    let defects = [
        Defect::AppendPublished,
        Defect::RemoveFirst,
        Defect::PublishUnasked,
        Defect::ForgetCallers,
        Defect::ConsumeMoving,
    ];
    for defect in defects {
        let found = Transfer(Some(defect)).checker().spawn_bfs().join().discoveries();
        assert!(found.keys().any(|promise| promise.starts_with("no ")), "{defect:?} breaks nothing");
    }
}
