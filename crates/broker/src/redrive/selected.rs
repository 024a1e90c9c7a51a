//! One step of a task with a filter: it reads a bounded part of the queue, and changes some of the messages that the filter
//! selects.
//!
//! ```text
//! read behind the position ─▶ hide ─▶ read again, judge ─▶ change, durably ─▶ note counts and position
//! ```
//!
//! A message is judged once more while it is hidden, so the task changes none that a claim or another request has changed
//! since the first read. The position and the counts are one record: after a kill the last step is repeated, and finds
//! the messages that it has changed no more. They are not counted then, so the counts are lower bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use angarium_core::delay::Delay;
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Message, State};
use angarium_core::move_task::{MoveFailure, MoveRate, MoveStatus, MoveTask, SelectedTask, TaskVerb};
use angarium_core::peek_position::PeekPosition;
use angarium_core::settle::Requeue;
use angarium_core::time::Timestamp;

use crate::limits;
use crate::messages::peek_read::{OwnedMessage, PeekReader};
use crate::messages::requeue::available_again;
use crate::messages::view::ViewedAt;
use crate::redrive::Redrive;
use crate::redrive::batch::{TaskTargets, redriven_header};
use crate::redrive::tasks::TaskTick;
use crate::slot::commit::count;
use crate::slot::queue_handle::{EngineReading, QueueHandle};
use crate::slot::selected::HiddenSelection;
use crate::writer::pending::settled;

/// Attempts of one step to hide a message that another request is changing. Behind them the step is repeated: the record
/// of the task may have been cancelled meanwhile.
const HIDE_TRIES: usize = 20;

/// Changes of an earlier owner whose outcome this runner does not know.
#[derive(Default)]
pub(crate) struct TaskDoubts {
    /// The task, and the messages that its record had in doubt when the runner first read it.
    of: Option<(Uuid, u64)>,
}

/// The part of a queue that one step has read.
struct StepRead {
    /// Messages to change.
    selected: Vec<MessageId>,
    /// Where the next step begins; none at the end.
    position: Option<PeekPosition>,
    looked_at: u64,
    /// Number of selected messages that a claim or a transfer holds.
    skipped: u64,
}

/// What one step has done.
#[derive(Default)]
struct StepResult {
    changed: u64,
    skipped: u64,
    failed: BTreeMap<MoveFailure, u64>,
    /// Whether other requests are still changing some of the messages.
    is_incomplete: bool,
}

impl TaskDoubts {
    /// Returns the messages in doubt of the earlier owners of a task.
    fn of_earlier(&mut self, task: &MoveTask, selected: &SelectedTask) -> u64 {
        match self.of {
            Some((id, doubts)) if id == task.id => doubts,
            _ => {
                self.of = Some((task.id, selected.in_doubt));
                selected.in_doubt
            }
        }
    }
}

impl Redrive {
    /// Runs one step of a task with a filter.
    pub(crate) async fn run_selected_tick(
        &self,
        queue: &QueueHandle,
        task: &MoveTask,
        selected: &SelectedTask,
        doubts: &mut TaskDoubts,
    ) -> Result<TaskTick, Error> {
        let earlier = doubts.of_earlier(task, selected);
        let left = selected.max.map_or(u64::MAX, |max| max.saturating_sub(task.moved + earlier));
        let is_read = selected.position.is_none() || left == 0;
        if !is_read && task.status == MoveStatus::Running && task.is_overdue(self.0.replica.clock.now()) {
            self.change_task(queue, |task| task.status = MoveStatus::Cancelling).await?;
            return self.end_task(queue, task).await;
        }
        if is_read || task.status == MoveStatus::Cancelling {
            return self.end_task(queue, task).await;
        }
        let _guard = queue.slot().lost_on_panic();
        let rate = task.rate.map(MoveRate::per_second);
        let most = usize::try_from(left.min(rate.unwrap_or(u32::MAX).into())).unwrap_or(usize::MAX);
        let began = Instant::now();
        let read = self.read_step(queue, task, selected, most.min(limits::MOVE_MESSAGES)).await?;
        let begun = count(&read.selected);
        if begun > 0 && selected.max.is_some() {
            self.note_in_doubt(queue, earlier + begun).await?;
        }
        let StepRead { selected: ids, position, looked_at, skipped } = read;
        let done = self.change_selected(queue, task, selected, ids).await?;
        let is_target_gone = task.target.is_some() && done.failed.contains_key(&MoveFailure::NoTarget);
        let noted = |task: &mut MoveTask| {
            task.moved += done.changed;
            if is_target_gone {
                task.status = MoveStatus::Failed(MoveFailure::NoTarget);
            }
            let Some(selected) = &mut task.selected else { return };
            selected.in_doubt = earlier;
            if done.is_incomplete && !is_target_gone {
                // The changes in progress may fail, and leave the messages as the filter selects them: the step is
                // repeated, and counts what it has not changed.
                return;
            }
            selected.position = position;
            selected.looked_at += looked_at;
            selected.skipped += skipped + done.skipped;
            for (why, messages) in done.failed {
                *selected.failed.entry(why).or_default() += messages;
            }
        };
        self.change_task(queue, noted).await?;
        self.0.replica.meter.tasks().note(selected.verb, done.changed);
        let due = rate.map_or(Duration::ZERO, |rate| Duration::from_secs(done.changed) / rate);
        Ok(TaskTick::After(due.saturating_sub(began.elapsed()).max(limits::MOVE_TASK_STEP)))
    }

    /// Notes messages whose change is about to begin, so that a kill makes the task change no more than its max.
    async fn note_in_doubt(&self, queue: &QueueHandle, messages: u64) -> Result<(), Error> {
        let noted = |task: &mut MoveTask| {
            if let Some(selected) = &mut task.selected {
                selected.in_doubt = messages;
            }
        };
        self.change_task(queue, noted).await.map(drop)
    }

    /// Reads behind the position of a task until it has found at most `most` messages, or has read as much as a peek.
    async fn read_step(
        &self,
        queue: &QueueHandle,
        task: &MoveTask,
        selected: &SelectedTask,
        most: usize,
    ) -> Result<StepRead, Error> {
        let EngineReading { store, shown: retention } = queue.read(|engine| engine.retention())?;
        let at = ViewedAt { now: self.0.replica.clock.now(), retention };
        let began = Timestamp::from_millis(task.started);
        let mut reader = PeekReader::new(queue, store, &selected.selection);
        let position = selected.position.and_then(|after| reader.begin(after));
        let mut step = StepRead { selected: Vec::new(), position, looked_at: 0, skipped: 0 };
        let mut bytes = 0;
        while let Some(after) = step.position {
            let Some(read) = reader.read(after).await? else { break };
            step.position = read.next;
            for found in reader.owned(read.messages)? {
                let header = &found.message.header;
                if is_later(header, selected.last, began) {
                    step.position = if header.state.is_kept() { None } else { reader.kept() };
                    break;
                }
                step.looked_at += 1;
                if !found.fulfils(&selected.selection, at) {
                    continue;
                }
                match is_changeable(&found, began) {
                    true => step.selected.push(header.id),
                    false => step.skipped += 1,
                }
                bytes += found.message.body.len();
                if step.selected.len() >= most || bytes >= limits::MOVE_BYTES {
                    step.position = Some(PeekPosition::of(header));
                    return Ok(step);
                }
            }
        }
        Ok(step)
    }

    /// Changes messages that the filter selects, each if it still does.
    async fn change_selected(
        &self,
        queue: &QueueHandle,
        task: &MoveTask,
        selected: &SelectedTask,
        mut ids: Vec<MessageId>,
    ) -> Result<StepResult, Error> {
        let mut result = StepResult::default();
        for _ in 0..HIDE_TRIES {
            if ids.is_empty() {
                break;
            }
            let HiddenSelection { hidden, changing, claimed, in_use } = queue.hide_selected(&ids)?;
            result.skipped += claimed;
            self.change_hidden(queue, task, selected, hidden, &mut result).await?;
            drop(in_use);
            ids = changing;
            if !ids.is_empty() && !self.0.replica.sleep_tick(limits::MOVE_TASK_STEP).await {
                return Err(queue.closed());
            }
        }
        result.is_incomplete = !ids.is_empty();
        Ok(result)
    }

    /// Changes those of the hidden messages that the filter selects, and shows the others again.
    async fn change_hidden(
        &self,
        queue: &QueueHandle,
        task: &MoveTask,
        selected: &SelectedTask,
        hidden: Vec<MessageId>,
        result: &mut StepResult,
    ) -> Result<(), Error> {
        let read = async {
            let EngineReading { store, shown: retention } = queue.read(|engine| engine.retention())?;
            Ok((store.get(queue.id(), &hidden).await?, retention))
        };
        let (found, retention) = match read.await {
            Ok(read) => read,
            Err(error) => {
                queue.cancel_selected(&hidden);
                return Err(error);
            }
        };
        let (now, began) = (self.0.replica.clock.now(), Timestamp::from_millis(task.started));
        let at = ViewedAt { now, retention };
        let is_absent = |id: &MessageId| !found.iter().any(|message| message.header.id == *id);
        let absent: Vec<MessageId> = hidden.iter().copied().filter(is_absent).collect();
        let (chosen, others): (Vec<_>, Vec<_>) = found
            .into_iter()
            .map(|message| OwnedMessage { message, claim: None, lives_longer: false })
            .partition(|found| found.fulfils(&selected.selection, at) && is_changeable(found, began));
        queue.show_selected(others.iter().map(|found| &found.message.header), &absent);
        let chosen: Vec<Message> = chosen.into_iter().map(|found| found.message).collect();
        if chosen.is_empty() {
            return Ok(());
        }
        match selected.verb {
            TaskVerb::Move => self.move_hidden(queue, task, chosen, result).await,
            TaskVerb::Requeue => {
                let stored = headers(&chosen);
                let again =
                    |header: &Header| available_again(header.clone(), Requeue::At(Delay::Seconds(0)), now);
                settled(queue.requeue_selected(&stored, stored.iter().map(again).collect())?).await?;
                result.changed += count(&stored);
                Ok(())
            }
            TaskVerb::Delete => {
                let stored = headers(&chosen);
                settled(queue.remove_selected(&stored)?).await?;
                result.changed += count(&stored);
                Ok(())
            }
        }
    }

    /// Moves hidden messages, and waits until they have left.
    async fn move_hidden(
        &self,
        queue: &QueueHandle,
        task: &MoveTask,
        chosen: Vec<Message>,
        result: &mut StepResult,
    ) -> Result<(), Error> {
        let ids: Vec<MessageId> = chosen.iter().map(|message| message.header.id).collect();
        let SplitMoves { stored, moving, staying, failed } = match self.split_moves(queue, task, chosen).await
        {
            Ok(moves) => moves,
            Err(error) => {
                queue.cancel_selected(&ids);
                return Err(error);
            }
        };
        queue.show_selected(staying.iter(), &[]);
        let leaving: Vec<MessageId> = stored.iter().map(|header| header.id).collect();
        let mut returned = 0;
        if !leaving.is_empty() {
            queue.take_returned();
            settled(queue.leave_selected(&stored, moving)?).await?;
            returned = self.wait_for_transfer(queue, &leaving).await?;
        }
        result.changed += count(&leaving) - returned;
        for (why, messages) in failed.into_iter().chain([(MoveFailure::NoTarget, returned)]) {
            if messages > 0 {
                *result.failed.entry(why).or_default() += messages;
            }
        }
        Ok(())
    }

    /// Finds the targets of messages.
    async fn split_moves(
        &self,
        queue: &QueueHandle,
        task: &MoveTask,
        chosen: Vec<Message>,
    ) -> Result<SplitMoves, Error> {
        let now = self.0.replica.clock.now();
        let mut targets = TaskTargets::new(self, queue.at(), task.named_target());
        let mut moves = SplitMoves::default();
        for Message { header, body } in chosen {
            match targets.find(Some(body)).await? {
                Ok(peer) => {
                    moves.moving.push(match header.state {
                        // It has its outcome until it arrives.
                        State::Failed => Header { state: State::Moving(peer), ..header.clone() },
                        _ => redriven_header(header.clone(), &peer, now),
                    });
                    moves.stored.push(header);
                }
                Err(why) => {
                    *moves.failed.entry(why).or_default() += 1;
                    moves.staying.push(header);
                }
            }
        }
        Ok(moves)
    }
}

/// Messages of one step, by whether they have a target.
#[derive(Default)]
struct SplitMoves {
    /// The headers of leaving messages in the pool.
    stored: Vec<Header>,
    /// Their headers in transfer.
    moving: Vec<Header>,
    /// The headers of messages that have no target.
    staying: Vec<Header>,
    /// Their numbers, by reason.
    failed: BTreeMap<MoveFailure, u64>,
}

fn headers(messages: &[Message]) -> Vec<Header> {
    messages.iter().map(|message| message.header.clone()).collect()
}

/// Whether a message, and so each one behind it, was posted or settled after the task began.
fn is_later(header: &Header, last: MessageId, began: Timestamp) -> bool {
    if header.state.is_kept() { header.ready > began } else { header.id > last }
}

/// Whether a task that began at `began` may change a message: nothing holds it, and it did not become available since. A
/// message that a transfer has brought since may have an older id.
fn is_changeable(found: &OwnedMessage, began: Timestamp) -> bool {
    let header = &found.message.header;
    found.is_free() && (header.state != State::Ready || header.ready <= began)
}
