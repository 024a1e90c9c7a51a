//! A simulated process: it can be paused, ended at once, and its tasks run in an order that the seed determines.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use angarium_cluster::tasks::{TaskControl, Tasks};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::world::World;

/// A process. Clones are the same process.
#[derive(Clone)]
pub struct Process(Arc<Inner>);

struct Inner {
    name: String,
    world: World,
    state: Mutex<ProcessState>,
}

#[derive(Default)]
struct ProcessState {
    stage: Stage,
    /// The tasks that want to run while the process is paused.
    waiting: BTreeMap<u64, Waker>,
    tasks: Vec<AbortHandle>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Running,
    Paused,
    Ended,
}

impl Process {
    /// Starts a process without tasks.
    pub fn start(world: World, name: String) -> Self {
        world.note(|| format!("{name} starts"));
        Self(Arc::new(Inner { name, world, state: Mutex::default() }))
    }

    /// Returns its name, which no other process has.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns a handle for tasks of this process.
    pub fn tasks(&self) -> Tasks {
        Tasks::controlled(Arc::new(self.clone()))
    }

    /// Whether its tasks may still run, now or later.
    pub fn is_alive(&self) -> bool {
        self.0.state.lock().stage != Stage::Ended
    }

    /// Lets no task run until [`Process::resume`].
    pub fn pause(&self) {
        let mut state = self.0.state.lock();
        if state.stage == Stage::Running {
            state.stage = Stage::Paused;
            self.0.world.note(|| format!("{} is paused", self.0.name));
        }
    }

    /// Lets the tasks of a paused process run again.
    pub fn resume(&self) {
        let waiting = {
            let mut state = self.0.state.lock();
            if state.stage != Stage::Paused {
                return;
            }
            state.stage = Stage::Running;
            std::mem::take(&mut state.waiting)
        };
        self.0.world.note(|| format!("{} resumes", self.0.name));
        waiting.into_values().for_each(Waker::wake);
    }

    /// Ends the process at once: no task makes another step.
    pub fn crash(&self) {
        let tasks = {
            let mut state = self.0.state.lock();
            state.stage = Stage::Ended;
            state.waiting.clear();
            std::mem::take(&mut state.tasks)
        };
        self.0.world.note(|| format!("{} ends", self.0.name));
        tasks.iter().for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Process").field(&self.0.name).finish()
    }
}

impl TaskControl for Process {
    fn number(&self) -> u64 {
        self.0.world.scheduler().number()
    }

    fn add(&self, task: AbortHandle) {
        let mut state = self.0.state.lock();
        if state.stage == Stage::Ended {
            task.abort();
            return;
        }
        if state.tasks.len() == state.tasks.capacity() {
            state.tasks.retain(|task| !task.is_finished());
        }
        state.tasks.push(task);
    }

    fn may_run(&self, task: u64, waker: &Waker) -> bool {
        let mut state = self.0.state.lock();
        match state.stage {
            Stage::Ended => false,
            Stage::Paused => {
                state.waiting.insert(task, waker.clone());
                false
            }
            Stage::Running => {
                drop(state);
                self.0.world.scheduler().may_run(task, waker)
            }
        }
    }
}
