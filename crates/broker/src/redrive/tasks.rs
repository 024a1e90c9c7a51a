//! Redrive tasks: they move the messages of a dead letter queue back to their source queues, or to another queue; or
//! they move, requeue or delete the messages that a filter selects (see [`crate::redrive::selected`]).
//!
//! The tree has the tasks of a queue, and the owner of the queue's slot runs the active one. The task marks some
//! messages in transfer as if they were sent again, and the queue's mover does the rest (see
//! [`crate::transfer::mover`]). When they have left, the task adds their number to its record. So the next owner of the
//! slot continues from there. In memory there is only a flag that the task is running.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use angarium_catalogue::{MoveTasks, Schema};
use angarium_core::attributes;
use angarium_core::envelope::Envelope;
use angarium_core::error::{Error, Part, Resource};
use angarium_core::limits as core_limits;
use angarium_core::limits::Span;
use angarium_core::move_task::{MoveFailure, MoveRate, MoveStatus, MoveTask, TaskRequest, TaskVerb};
use angarium_core::names::{QueueKind, QueueRef};
use angarium_core::page::PageLimit;
use angarium_core::settle::MessageState;
use angarium_core::time::Timestamp;
use angarium_storage::{Direction, Order};

use crate::limits;
use crate::queues::list::QueueFilter;
use crate::redrive::Redrive;
use crate::redrive::selected::TaskDoubts;
use crate::slot::queue_handle::{QueueHandle, closed};
use crate::slot::slot_queue::SlotQueue;
use crate::slot::state::Slot;
use crate::stores::queue_store::PageBound;

/// Why a task cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveRefusal {
    /// The queue whose messages are to be moved does not exist.
    NoSource,
    /// No queue uses this one as its dead letter queue.
    NotForDeadLetters,
    /// The target queue does not exist.
    NoTarget,
    /// The target is the same queue.
    Itself,
    /// One of the two is a FIFO queue, and the other is not.
    OtherKind,
    /// Another task of the queue is active.
    Active,
    /// The project has the maximum of active tasks.
    TooMany,
}

/// A task that begins.
enum NewTask {
    /// It moves what a claim would get.
    WholeQueue { target: Option<QueueRef>, rate: Option<MoveRate> },
    /// It has a filter.
    Selected(TaskRequest),
}

impl NewTask {
    fn target(&self) -> Option<&QueueRef> {
        match self {
            Self::WholeQueue { target, .. } => target.as_ref(),
            Self::Selected(request) => request.target.as_ref(),
        }
    }

    fn task(self, id: Uuid, queue: &QueueHandle, ready: u64, now: Timestamp) -> MoveTask {
        match self {
            Self::WholeQueue { target, rate } => MoveTask::begin(id, target, rate, ready, now),
            Self::Selected(TaskRequest { verb, selection, target, rate, max }) => {
                let task = MoveTask::begin(id, target, rate, ready, now);
                task.with_selection(verb, selection, max, queue.newest_message())
            }
        }
    }
}

/// The result of one tick of a task.
pub(crate) enum TaskTick {
    /// No task is active any more.
    Over,
    /// The next tick follows after this time.
    After(Duration),
}

impl Redrive {
    /// Begins to move the messages of a dead letter queue to `target`, or each to its source queue. The task is
    /// recorded when this returns its id, and continues after a crash of this process.
    pub async fn move_task_start(
        &self,
        at: &QueueRef,
        target: Option<QueueRef>,
        rate: Option<MoveRate>,
    ) -> Result<Result<Uuid, MoveRefusal>, Error> {
        self.start(at, NewTask::WholeQueue { target, rate }).await
    }

    /// Begins a task over the messages that a filter selects. It is recorded when this returns its id, and continues
    /// after a crash of this process.
    pub async fn task_start(
        &self,
        at: &QueueRef,
        request: TaskRequest,
    ) -> Result<Result<Uuid, MoveRefusal>, Error> {
        let form = if request.selection.states.contains(&MessageState::Held) {
            Schema::GROUP_HOLDS
        } else {
            Schema::TASKS
        };
        self.0.replica.catalogue.schema_reach(form).await?;
        self.start(at, NewTask::Selected(request)).await
    }

    async fn start(&self, at: &QueueRef, new: NewTask) -> Result<Result<Uuid, MoveRefusal>, Error> {
        let (redrive, at) = (self.clone(), at.clone());
        let start = async move {
            let named = redrive.0.slots.queue(&at).await?;
            let slot = named.slot();
            if let Some(refusal) = redrive.find_refusal(&named, &new).await? {
                return redrive.0.slots.check_ours(slot).map(|()| Err(refusal));
            }
            let _tasks = slot.tasks.lock().await;
            let Some(described) = redrive.0.queues.queue_describe(&at).await? else {
                return Ok(Err(MoveRefusal::NoSource));
            };
            let queue = named.handle().ok_or_else(|| closed(&at))?;
            let (id, in_use) = (queue.id(), queue.hold_use().ok_or_else(|| queue.closed())?);
            let known = redrive.0.replica.catalogue.move_tasks(&slot.owned, id).await?;
            let mut record = known.unwrap_or_else(|| MoveTasks { at: at.clone(), tasks: Vec::new() });
            if record.tasks.first().is_some_and(MoveTask::is_active) {
                return redrive.0.slots.check_ours(slot).map(|()| Err(MoveRefusal::Active));
            }
            let (task_id, now) = (redrive.0.replica.random.uuid(), redrive.0.replica.clock.now());
            record.tasks.insert(0, new.task(task_id, &queue, described.ready, now));
            record.tasks.truncate(core_limits::MOVE_TASKS);
            let written = redrive.0.replica.catalogue.move_tasks_write(&slot.owned, id, &record).await;
            drop(in_use);
            // If the outcome is unknown, the runner reads whether the task is recorded.
            redrive.carry_on_tasks(queue);
            written.map(|()| Ok(task_id))
        };
        self.0.replica.carry_out(start).await
    }

    async fn find_refusal(&self, queue: &SlotQueue, new: &NewTask) -> Result<Option<MoveRefusal>, Error> {
        let at = queue.at();
        let Some(queue) = self.0.open_queues.open(queue).await? else {
            return Ok(Some(MoveRefusal::NoSource));
        };
        if matches!(new, NewTask::WholeQueue { .. }) && !self.takes_dead_letters(&queue).await? {
            return Ok(Some(MoveRefusal::NotForDeadLetters));
        }
        if self.has_all_tasks(at).await? {
            return Ok(Some(MoveRefusal::TooMany));
        }
        self.target_refusal(&queue, new.target()).await
    }

    /// Returns why the messages of a queue cannot move to `target`, if that is so. Without one they move to their origins.
    pub(crate) async fn target_refusal(
        &self,
        queue: &QueueHandle,
        target: Option<&QueueRef>,
    ) -> Result<Option<MoveRefusal>, Error> {
        let Some(target) = target else { return Ok(None) };
        if target == queue.at() {
            return Ok(Some(MoveRefusal::Itself));
        }
        let Some(metadata) = self.0.queues.queue_metadata_anywhere(target).await? else {
            return Ok(Some(MoveRefusal::NoTarget));
        };
        let is_fifo = queue.attributes().ok_or_else(|| queue.closed())?.is_fifo;
        Ok((metadata.attributes().is_fifo != is_fifo).then_some(MoveRefusal::OtherKind))
    }

    /// Whether other queues of the project have the maximum of active tasks. Tasks that begin at the same moment at
    /// several replicas do not see each other, so the maximum may be exceeded.
    async fn has_all_tasks(&self, at: &QueueRef) -> Result<bool, Error> {
        self.0.replica.catalogue.catch_up().await?;
        let queues = self.0.replica.catalogue.queues_with_move_tasks(&at.project).await?;
        Ok(queues.iter().filter(|queue| *queue != at).count() >= core_limits::MOVE_TASKS_ACTIVE)
    }

    /// Whether this is a dead letter queue: it holds a dead letter, or some queue of the project has it as its dead
    /// letter queue. Reads at most [`limits::MOVE_SOURCE_PAGES`] pages of queues. If they are not enough, it returns
    /// true.
    async fn takes_dead_letters(&self, queue: &QueueHandle) -> Result<bool, Error> {
        let at = queue.at();
        if self.holds_dead_letters(queue).await? {
            return Ok(true);
        }
        let one = Span::new(1, 1, 1).and_then(|span| PageLimit::new(Some(1), span).ok());
        let limit = one.ok_or_else(|| Error::unknown(Part::Server, "a page of one queue is no page"))?;
        let metadata = vec![(attributes::DEAD_LETTER_QUEUE.to_owned(), at.name.as_str().to_owned())];
        let mut filter = QueueFilter {
            kind: QueueKind::Queue,
            after: None,
            limit,
            name_part: None,
            prefix: None,
            metadata,
            is_detailed: false,
            is_counted: false,
            has_counts: false,
        };
        // A page reads a bounded number of queues, so an empty page need not be the last one.
        for _ in 0..limits::MOVE_SOURCE_PAGES {
            let page = self.0.queues.queues_list(&at.project, &filter).await?;
            match (page.queues.is_empty(), page.next) {
                (false, _) => return Ok(true),
                (true, None) => return Ok(false),
                (true, Some(next)) => filter.after = Some(next.to_string()),
            }
        }
        Ok(true)
    }

    /// Whether one of the oldest messages of a queue is a dead letter of another one.
    async fn holds_dead_letters(&self, queue: &QueueHandle) -> Result<bool, Error> {
        let store = queue.store()?;
        let most = PageBound { messages: limits::MOVE_SOURCE_MESSAGES, bytes: limits::MOVE_BYTES };
        let page = store.scan(queue.id(), Order::Ready, Direction::Up, None, most).await?;
        Ok(page.messages.into_iter().any(|message| Envelope::split(message.body).0.source.is_some()))
    }

    /// Returns the latest tasks of a queue, the newest first; none when there is no such queue.
    pub async fn move_tasks_list(&self, at: &QueueRef) -> Result<Option<Vec<MoveTask>>, Error> {
        let named = self.0.slots.queue(at).await?;
        let slot = named.slot();
        let listed = match self.0.open_queues.open(&named).await? {
            None => None,
            Some(queue) => {
                let record = self.0.replica.catalogue.move_tasks(&slot.owned, queue.id()).await?;
                Some(record.map_or_else(Vec::new, |record| record.tasks))
            }
        };
        self.0.slots.check_ours(slot).map(|()| listed)
    }

    /// Tells a task to stop: it begins no further moves. Returns how many messages it has moved; none when the queue
    /// has no such task, or the task has ended.
    pub async fn move_task_cancel(&self, at: &QueueRef, task: Uuid) -> Result<Option<u64>, Error> {
        let (redrive, at) = (self.clone(), at.clone());
        let cancel = async move {
            let named = redrive.0.slots.queue(&at).await?;
            let slot = named.slot();
            let Some(queue) = redrive.0.open_queues.open(&named).await? else {
                return redrive.0.slots.check_ours(slot).map(|()| None);
            };
            let stopped = |found: &mut MoveTask| {
                if found.id == task {
                    found.status = MoveStatus::Cancelling;
                }
            };
            match redrive.change_task(&queue, stopped).await? {
                Some(found) if found.id == task => Ok(Some(found.moved)),
                Some(_) | None => redrive.0.slots.check_ours(slot).map(|()| None),
            }
        };
        self.0.replica.carry_out(cancel).await
    }

    /// Returns a task of a queue, active or ended.
    pub async fn task_get(&self, at: &QueueRef, id: Uuid) -> Result<MoveTask, Error> {
        let tasks = self.move_tasks_list(at).await?.unwrap_or_default();
        tasks.into_iter().find(|task| task.id == id).ok_or_else(|| no_task(id))
    }

    /// Tells a task to stop. It is no error if it has ended.
    pub async fn task_cancel(&self, at: &QueueRef, id: Uuid) -> Result<(), Error> {
        match self.move_task_cancel(at, id).await? {
            Some(_) => Ok(()),
            None => self.task_get(at, id).await.map(drop),
        }
    }

    /// Changes the active task of a queue. Returns the changed task; none when none is active.
    pub(crate) async fn change_task(
        &self,
        queue: &QueueHandle,
        change: impl FnOnce(&mut MoveTask),
    ) -> Result<Option<MoveTask>, Error> {
        let (slot, id) = (queue.slot(), queue.id());
        let _tasks = slot.tasks.lock().await;
        let Some(mut record) = self.0.replica.catalogue.move_tasks(&slot.owned, id).await? else {
            return Ok(None);
        };
        let Some(task) = record.tasks.first_mut().filter(|task| task.is_active()) else { return Ok(None) };
        let before = task.clone();
        change(task);
        if !task.is_active() {
            task.ended.get_or_insert(self.0.replica.clock.now().as_millis());
        }
        let after = task.clone();
        if after != before {
            // Once a queue is deleted its task records must not be written any more.
            let in_use = queue.hold_use().ok_or_else(|| queue.closed())?;
            self.0.replica.catalogue.move_tasks_write(&slot.owned, id, &record).await?;
            drop(in_use);
        }
        Ok(Some(after))
    }

    /// Starts the runner of the tasks of a queue, unless it is running.
    fn carry_on_tasks(&self, queue: QueueHandle) {
        if queue.begin_redrive_task() {
            let (redrive, slot) = (self.clone(), Arc::clone(queue.slot()));
            slot.spawn(async move { redrive.run_tasks(&queue).await });
        }
    }

    /// Continues tasks that earlier owners of the slot have begun.
    pub(crate) async fn resume_tasks(&self, slot: &Arc<Slot>) -> Result<(), Error> {
        let mut resumed = Ok(());
        for (id, at) in self.0.replica.catalogue.active_move_tasks(slot.owned.slot).await? {
            let queue = slot.queue(&at);
            match self.0.open_queues.open_if_there(&queue).await {
                Ok(_) => self.carry_on_tasks(queue.with_id(id)),
                // The tasks of other queues continue.
                Err(error) => resumed = resumed.and(Err(error)),
            }
        }
        resumed
    }

    async fn run_tasks(&self, queue: &QueueHandle) {
        let (mut pause, longest) = limits::MOVE_PAUSES;
        let mut doubts = TaskDoubts::default();
        let _running = self.0.replica.meter.tasks().begin();
        loop {
            let next = match self.run_task_tick(queue, &mut doubts).await {
                Ok(TaskTick::Over) => return,
                Ok(TaskTick::After(next)) => {
                    pause = limits::MOVE_PAUSES.0;
                    next
                }
                Err(error) => {
                    self.0.replica.task_failed(
                        "redrive messages",
                        format_args!("queue {}", queue.at().name),
                        &error,
                    );
                    let next = pause;
                    pause = (pause * 2).min(longest);
                    next
                }
            };
            if !self.0.replica.sleep_tick(next).await || queue.slot().closed.is_cancelled() {
                return;
            }
        }
    }

    async fn run_task_tick(&self, queue: &QueueHandle, doubts: &mut TaskDoubts) -> Result<TaskTick, Error> {
        let Some(task) = self.active_task(queue).await? else { return Ok(TaskTick::Over) };
        if let Some(selected) = &task.selected {
            return self.run_selected_tick(queue, &task, selected, doubts).await;
        }
        let left = task.to_move.saturating_sub(task.moved);
        if left > 0 && task.status == MoveStatus::Running && task.is_overdue(self.0.replica.clock.now()) {
            self.change_task(queue, |task| task.status = MoveStatus::Cancelling).await?;
            return self.end_task(queue, &task).await;
        }
        if task.status == MoveStatus::Cancelling || left == 0 {
            return self.end_task(queue, &task).await;
        }
        let rate = task.rate.map(MoveRate::per_second);
        let most = usize::try_from(left.min(rate.unwrap_or(u32::MAX).into())).unwrap_or(usize::MAX);
        let began = Instant::now();
        let batch = self.start_redrive(queue, &task, most.min(limits::MOVE_MESSAGES)).await?;
        let Some(batch) = batch else { return self.end_task(queue, &task).await };
        let returned = self.wait_for_transfer(queue, &batch.ids).await?;
        let moved = u64::try_from(batch.ids.len()).unwrap_or_default() - returned;
        let failure = batch.failure.or((returned > 0).then_some(MoveFailure::NoTarget));
        let noted = |task: &mut MoveTask| {
            task.moved += moved;
            if let Some(failure) = failure {
                task.status = MoveStatus::Failed(failure);
            }
        };
        self.change_task(queue, noted).await?;
        self.0.replica.meter.tasks().note(TaskVerb::Move, moved);
        let due = rate.map_or(Duration::ZERO, |rate| Duration::from_secs(moved) / rate);
        let step = if moved == 0 { limits::MOVE_TASK_STEP } else { Duration::ZERO };
        Ok(TaskTick::After(due.saturating_sub(began.elapsed()).max(step)))
    }

    /// Returns the active task of a queue. If there is none it also notes that the runner ends, so that the next task
    /// starts a new one.
    async fn active_task(&self, queue: &QueueHandle) -> Result<Option<MoveTask>, Error> {
        let slot = queue.slot();
        let _tasks = slot.tasks.lock().await;
        let record = self.0.replica.catalogue.move_tasks(&slot.owned, queue.id()).await?;
        let active = record.and_then(|record| record.tasks.into_iter().next()).filter(MoveTask::is_active);
        let noted = if active.is_some() { queue.keep_redrive_task() } else { queue.end_redrive_task() };
        Ok(noted.and(active))
    }

    /// Ends a task that has nothing more to move, once the messages that it marked in transfer have arrived.
    pub(crate) async fn end_task(&self, queue: &QueueHandle, task: &MoveTask) -> Result<TaskTick, Error> {
        let moves = task.verb() == TaskVerb::Move;
        if moves && self.has_outgoing(queue).await? {
            return Ok(TaskTick::After(limits::MOVE_TASK_STEP));
        }
        let ended = |task: &mut MoveTask| {
            task.status = match task.status {
                MoveStatus::Cancelling => MoveStatus::Cancelled,
                _ => MoveStatus::Completed,
            };
        };
        self.change_task(queue, ended).await?;
        // The next tick finds out whether another task has begun.
        Ok(TaskTick::After(Duration::ZERO))
    }
}

fn no_task(id: Uuid) -> Error {
    Error::NotFound { resource: Resource::Task, name: id.to_string() }
}
