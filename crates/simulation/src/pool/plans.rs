//! Faults of a storage that a probe plans: what becomes of the next batch with new messages, and calls that are slow.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use angarium_storage::Batch;

use crate::faults::Fault;
use crate::world::World;

/// What becomes of the next batch with new messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostPlan {
    /// It arrives after this time.
    Late(Duration),
    /// Its sender is told of a loss at once. It arrives after this time, until which the storage is full.
    LateBesideFull(Duration),
    /// It is carried out. For this time no batch has an answer.
    Unanswered(Duration),
}

/// A call that can be slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlowCall {
    /// The answer with messages by their ids.
    Get,
    /// The answer with a page.
    Scan,
    /// A batch that removes messages, on its way to the storage.
    Removal,
}

/// The planned faults of one storage.
pub struct Plans {
    world: World,
    /// Held for a read or a write of one element.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: Option<PostPlan>,
    unanswered_until: Duration,
    removals_refused_until: Duration,
    /// The process whose batch began that time.
    sender: Option<String>,
    /// How much longer each call takes.
    slow: BTreeMap<SlowCall, Duration>,
}

impl Plans {
    /// Returns no plans.
    pub(super) fn new(world: World) -> Self {
        Self { world, state: Mutex::default() }
    }

    /// Plans what becomes of the next batch with new messages.
    pub fn plan_post(&self, plan: PostPlan) {
        let mut state = self.state.lock();
        state.next = Some(plan);
        state.sender = None;
    }

    /// Lets a call take longer.
    pub fn slow(&self, call: SlowCall, time: Duration) {
        self.state.lock().slow.insert(call, time);
    }

    /// Lets batches that remove messages be refused for a time, before they are sent.
    pub fn refuse_removals(&self, time: Duration) {
        self.state.lock().removals_refused_until = self.world.elapsed() + time;
    }

    /// Ends all plans. Calls that have begun continue as planned.
    pub fn end(&self) {
        *self.state.lock() = State::default();
    }

    /// Returns the process whose batch has no answer by plan.
    pub fn sender(&self) -> Option<String> {
        self.state.lock().sender.clone()
    }

    /// Takes the plan for a batch that a process sends, if it is for this one.
    pub(super) fn take_post(&self, process: &str, batch: &Batch) -> Option<PostPlan> {
        let mut state = self.state.lock();
        let plan = state.next.take_if(|_| batch.needs_room())?;
        if let PostPlan::Unanswered(time) = plan {
            state.unanswered_until = self.world.elapsed() + time;
            state.sender = Some(process.to_owned());
        }
        drop(state);
        self.world.count(match plan {
            PostPlan::Late(_) => Fault::PoolSlow,
            PostPlan::LateBesideFull(_) | PostPlan::Unanswered(_) => Fault::PoolUnanswered,
        });
        Some(plan)
    }

    /// Whether batches that remove messages are refused now.
    pub(super) fn refuses_removals(&self) -> bool {
        self.world.elapsed() < self.state.lock().removals_refused_until
    }

    /// Whether no batch has an answer now.
    pub(super) fn is_unanswered(&self) -> bool {
        self.world.elapsed() < self.state.lock().unanswered_until
    }

    /// Waits as long as a call takes longer.
    pub(super) async fn be_slow(&self, call: SlowCall) {
        let time = self.state.lock().slow.get(&call).copied();
        if let Some(time) = time {
            self.world.count(Fault::PoolSlow);
            tokio::time::sleep(time).await;
        }
    }
}
