//! P6: one message of a queue that migrates, while pages are copied, owners are replaced between any two steps, the
//! migration is turned round, claims begin and end, and a client deletes the message.

use stateright::{Checker, Model, Property};

/// Number of owners after each other.
const OWNERS: u8 = 3;

/// The state of a batch that an owner sends to both pools, or of a page that it copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Work {
    None,
    /// The message is read and hidden. The newer pool is next.
    CopyRead,
    /// The message is in the newer pool with its note; the older pool is next.
    CopyAppended,
    /// A post has no answer of the older pool yet.
    PostInDoubt,
    /// The pool of a post in doubt has left the queue.
    PostStranded,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// Whether the older and the newer pool have the message.
    pools: [bool; 2],
    /// Whether the newer pool has the note of the copied page.
    has_note: bool,
    /// Whether the record names both pools.
    is_migrating: bool,
    /// What the present owner is doing.
    work: Work,
    owner: u8,
    is_claimed: bool,
    /// The post was answered.
    is_posted: bool,
    /// A delete was sent; it has reached the older pool only; it was answered.
    is_delete_sent: bool,
    is_half_deleted: bool,
    is_deleted: bool,
    /// Another consumer has the message although it is claimed.
    is_claimed_twice: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    BeginPost,
    ApplyPost,
    BeginMigration,
    Turn,
    ReadPage,
    AppendPage,
    RemovePage,
    Delete,
    DeleteInNewer,
    Claim,
    EndClaim,
    ReplaceOwner,
    EndMigration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    /// An owner that opens the queue leaves both copies.
    KeepBoth,
    /// A delete is sent to the first pool with the message only.
    DeleteInOne,
    /// A message that is being copied can be deleted.
    DeleteDuringCopy,
    /// Claimed messages are copied.
    CopyClaimed,
    /// The older pool leaves while a message is in it.
    LeaveEarly,
    /// The older pool leaves while a write to it is in doubt.
    LeaveInDoubt,
}

struct Migration(Option<Defect>);

impl Migration {
    fn has(&self, defect: Defect) -> bool {
        self.0 == Some(defect)
    }

    /// A new owner fences both pools, and removes from the older one a noted message of which both have a copy.
    fn open(&self, state: &mut State) {
        state.owner += 1;
        (state.work, state.is_half_deleted) = (Work::None, false);
        if state.has_note && state.pools == [true, true] && !self.has(Defect::KeepBoth) {
            state.pools[0] = false;
        }
        state.has_note = false;
    }

    fn delete(&self, state: &mut State) {
        state.is_delete_sent = true;
        state.pools[0] = false;
        if state.is_migrating && !self.has(Defect::DeleteInOne) {
            state.is_half_deleted = true;
        } else {
            state.is_deleted = true;
        }
    }

    fn apply(&self, state: &mut State, action: Action) {
        match action {
            Action::BeginPost => state.work = Work::PostInDoubt,
            Action::ApplyPost => {
                state.pools[0] |= state.work == Work::PostInDoubt;
                (state.is_posted, state.work) = (true, Work::None);
            }
            Action::BeginMigration => state.is_migrating = true,
            Action::Turn => state.pools.swap(0, 1),
            Action::ReadPage => state.work = Work::CopyRead,
            Action::AppendPage => {
                state.pools[1] = true;
                (state.has_note, state.work) = (true, Work::CopyAppended);
            }
            Action::RemovePage => {
                state.pools[0] = false;
                (state.has_note, state.work) = (false, Work::None);
                if state.is_claimed {
                    // A copied message is shown as ready.
                    state.is_claimed_twice = true;
                }
            }
            Action::Delete => self.delete(state),
            Action::DeleteInNewer => {
                state.pools[1] = false;
                (state.is_deleted, state.is_half_deleted) = (true, false);
            }
            Action::Claim => state.is_claimed = true,
            Action::EndClaim => state.is_claimed = false,
            Action::ReplaceOwner => self.open(state),
            Action::EndMigration => {
                state.is_migrating = false;
                // The newer pool is the only one now, and the older one is dropped.
                state.pools = [state.pools[1], false];
                if state.work == Work::PostInDoubt {
                    state.work = Work::PostStranded;
                }
            }
        }
    }
}

impl Model for Migration {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            pools: [false, false],
            has_note: false,
            is_migrating: false,
            work: Work::None,
            owner: 1,
            is_claimed: false,
            is_posted: false,
            is_delete_sent: false,
            is_half_deleted: false,
            is_deleted: false,
            is_claimed_twice: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let is_there = state.pools.contains(&true);
        let is_idle = state.work == Work::None;
        if !state.is_posted && is_idle && !state.is_migrating {
            actions.push(Action::BeginPost);
        }
        if matches!(state.work, Work::PostInDoubt | Work::PostStranded) {
            actions.push(Action::ApplyPost);
        }
        if !state.is_migrating && (is_idle || state.work == Work::PostInDoubt) {
            actions.push(Action::BeginMigration);
        }
        if state.is_migrating {
            if is_idle && !state.has_note && !state.is_half_deleted {
                actions.push(Action::Turn);
            }
            let may_copy = !state.is_claimed || self.has(Defect::CopyClaimed);
            if is_idle && state.pools[0] && may_copy && !state.is_delete_sent {
                actions.push(Action::ReadPage);
            }
            let is_older_empty = !state.pools[0] || self.has(Defect::LeaveEarly);
            let is_settled = is_idle || self.has(Defect::LeaveInDoubt) && state.work == Work::PostInDoubt;
            if is_settled && is_older_empty && !state.is_half_deleted {
                actions.push(Action::EndMigration);
            }
        }
        match state.work {
            Work::CopyRead => actions.push(Action::AppendPage),
            Work::CopyAppended => actions.push(Action::RemovePage),
            Work::None | Work::PostInDoubt | Work::PostStranded => {}
        }
        if state.is_half_deleted {
            actions.push(Action::DeleteInNewer);
        }
        let is_hidden = matches!(state.work, Work::CopyRead | Work::CopyAppended);
        if is_there && !state.is_delete_sent && (is_idle || is_hidden && self.has(Defect::DeleteDuringCopy)) {
            actions.push(Action::Delete);
        }
        if is_there && is_idle && !state.is_delete_sent {
            actions.push(if state.is_claimed { Action::EndClaim } else { Action::Claim });
        }
        if state.owner < OWNERS && !matches!(state.work, Work::PostInDoubt | Work::PostStranded) {
            actions.push(Action::ReplaceOwner);
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
                !state.is_posted || state.is_delete_sent || state.pools.contains(&true)
            }),
            Property::always("no message returns", |_, state: &State| {
                !state.is_deleted || !state.pools.contains(&true)
            }),
            Property::always("no message is claimed twice", |_, state: &State| !state.is_claimed_twice),
            Property::always("no message is shown twice", |_, state: &State| {
                state.pools != [true, true] || state.work != Work::None
            }),
            Property::sometimes("a message arrives", |_, state: &State| {
                state.is_posted && !state.is_migrating && state.pools[0] && state.owner == OWNERS
            }),
        ]
    }
}

#[test]
fn migration_loses_and_doubles_nothing() {
    let checker = Migration(None).checker().spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 50, "{} states", checker.unique_state_count());
}

#[test]
fn each_defect_of_a_migration_breaks_a_promise() {
    let defects = [
        Defect::KeepBoth,
        Defect::DeleteInOne,
        Defect::DeleteDuringCopy,
        Defect::CopyClaimed,
        Defect::LeaveEarly,
        Defect::LeaveInDoubt,
    ];
    for defect in defects {
        let found = Migration(Some(defect)).checker().spawn_bfs().join().discoveries();
        assert!(found.keys().any(|promise| promise.starts_with("no ")), "{defect:?} breaks nothing");
    }
}
