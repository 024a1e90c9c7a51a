//! The order of tasks. Of all tasks that can make a step, the seed determines the next one.
//!
//! Tokio polls tasks in the order in which they were woken, and wakes the receivers of some channels in an order of its
//! own. So a task that tokio polls makes no step yet: it joins the tasks that are ready, and one of these is chosen by
//! its number. A choice is made only when every task that was woken meanwhile has joined.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use angarium_cluster::tasks::{TaskControl, Tasks};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// More steps than any run needs: a run with so many makes no progress.
pub const MAX_STEPS: u64 = 50_000_000;

/// How the next task is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Each ready task has the same chance.
    Equal,
    /// Each task has a random rank, and the ready task of the greatest rank is next. Now and then a rank changes. Some
    /// tasks are so put off for long.
    Ranked,
    /// The task that was started first is next.
    Oldest,
}

/// The scheduler of a run. Clones are the same scheduler.
#[derive(Clone)]
pub struct Scheduler(Arc<Mutex<State>>);

struct State {
    random: StdRng,
    policy: Policy,
    last_number: u64,
    ready: BTreeMap<u64, Waker>,
    ranks: BTreeMap<u64, u64>,
    /// The task whose next poll is its step.
    admitted: Option<u64>,
    /// The turn, while no task is ready.
    turn: Option<Waker>,
    steps: u64,
    exhausted: Arc<Notify>,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Creates a scheduler without tasks. [`Scheduler::run`] must run beside the tasks.
    pub fn new(seed: u64, policy: Policy) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: StdRng::seed_from_u64(seed),
            policy,
            last_number: 0,
            ready: BTreeMap::new(),
            ranks: BTreeMap::new(),
            admitted: None,
            turn: None,
            steps: 0,
            exhausted: Arc::default(),
        })))
    }

    /// Returns a handle for tasks that belong to no process.
    pub fn tasks(&self) -> Tasks {
        Tasks::controlled(Arc::new(self.clone()))
    }

    /// Waits until the tasks have made [`MAX_STEPS`] steps. From then on none makes a step.
    pub async fn exhausted(&self) {
        let exhausted = Arc::clone(&self.0.lock().exhausted);
        exhausted.notified().await;
    }

    /// Chooses tasks, for ever. It is the only task that does not wait for its turn.
    pub fn run(&self) -> impl Future<Output = ()> + Send + 'static {
        Turns { scheduler: self.clone(), phase: Phase::Gathering }
    }
}

impl State {
    fn choose(&mut self) -> Option<u64> {
        match self.policy {
            Policy::Oldest => self.ready.keys().next().copied(),
            Policy::Equal => {
                let index = self.random.random_range(0..self.ready.len().max(1));
                self.ready.keys().nth(index).copied()
            }
            Policy::Ranked => {
                let (ranks, random) = (&mut self.ranks, &mut self.random);
                let rank = |number: &u64| *ranks.entry(*number).or_insert_with(|| random.random());
                let chosen = self.ready.keys().copied().max_by_key({
                    let mut rank = rank;
                    move |number| rank(number)
                })?;
                if self.random.random_range(0..10) == 0 {
                    self.ranks.insert(chosen, self.random.random());
                }
                Some(chosen)
            }
        }
    }
}

impl TaskControl for Scheduler {
    fn number(&self) -> u64 {
        let mut state = self.0.lock();
        state.last_number += 1;
        state.last_number
    }

    fn add(&self, _: AbortHandle) {}

    fn may_run(&self, task: u64, waker: &Waker) -> bool {
        let turn = {
            let mut state = self.0.lock();
            if state.admitted == Some(task) {
                state.admitted = None;
                state.steps += 1;
                return true;
            }
            state.ready.insert(task, waker.clone());
            state.turn.take()
        };
        if let Some(turn) = turn {
            turn.wake();
        }
        false
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The chosen task makes its step now.
    Stepping,
    /// The tasks that it has woken join now.
    Gathering,
    /// All have joined.
    Choosing,
}

struct Turns {
    scheduler: Scheduler,
    phase: Phase,
}

impl Future for Turns {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (next, wakes) = match self.phase {
            Phase::Stepping => (Phase::Gathering, true),
            Phase::Gathering => (Phase::Choosing, true),
            Phase::Choosing => {
                let mut state = self.scheduler.0.lock();
                if state.steps >= MAX_STEPS {
                    state.exhausted.notify_one();
                    return Poll::Pending;
                }
                let chosen = state.choose();
                state.admitted = chosen;
                match chosen.and_then(|chosen| state.ready.remove(&chosen)) {
                    Some(task) => {
                        drop(state);
                        task.wake();
                        (Phase::Stepping, true)
                    }
                    None => {
                        state.turn = Some(context.waker().clone());
                        (Phase::Gathering, false)
                    }
                }
            }
        };
        self.phase = next;
        if wakes {
            // Behind all tasks that are woken already.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
