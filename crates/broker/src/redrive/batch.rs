//! The messages of one step of a redrive task: chosen among the ready ones, marked in transfer to their targets, and
//! observed until they have left.

use std::sync::Arc;

use bytes::Bytes;

use angarium_core::envelope::Envelope;
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::maps::HashMap;
use angarium_core::message::{Header, Peer, State};
use angarium_core::move_task::{MoveFailure, MoveTask};
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_storage::{Direction, Order, Position};

use crate::limits;
use crate::redrive::Redrive;
use crate::slot::commit::count;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::redrive::RedriveChoice;
use crate::slot::transfers::{Side, TransferProgress};
use crate::stores::queue_store::PageBound;
use crate::writer::change::Change;
use crate::writer::pending::settled;

/// Messages that were marked in transfer.
pub(crate) struct RedriveBatch {
    /// Their ids.
    pub(crate) ids: Vec<MessageId>,
    /// Why other messages were not marked, if there are any.
    pub(crate) failure: Option<MoveFailure>,
}

/// A message to redrive, with its target queue or the reason why it stays.
struct RedriveRoute {
    header: Header,
    target: Result<Arc<Peer>, MoveFailure>,
}

/// The targets of a task's messages, each looked up once for a batch.
pub(crate) struct TaskTargets<'a> {
    redrive: &'a Redrive,
    source: &'a QueueRef,
    /// The target of all messages; none: each returns to its origin.
    named: Option<&'a QueueRef>,
    known: HashMap<QueueRef, Option<Arc<Peer>>>,
}

impl<'a> TaskTargets<'a> {
    pub(crate) fn new(redrive: &'a Redrive, source: &'a QueueRef, named: Option<&'a QueueRef>) -> Self {
        Self { redrive, source, named, known: HashMap::default() }
    }

    /// Returns the target of a message with this body, which decides only when the task names none.
    pub(crate) async fn find(
        &mut self,
        body: Option<Bytes>,
    ) -> Result<Result<Arc<Peer>, MoveFailure>, Error> {
        let origin = || {
            let name = Envelope::split(body?).0.source?;
            Some(QueueRef { project: self.source.project.clone(), name })
        };
        let Some(at) = self.named.cloned().or_else(origin).filter(|at| at != self.source) else {
            return Ok(Err(MoveFailure::NoOrigin));
        };
        let found = match self.known.get(&at) {
            Some(found) => found.clone(),
            None => {
                let record = self.redrive.0.replica.catalogue.queue_record_now(&at).await?;
                let peer = record.map(|record| Arc::new(Peer { at: at.clone(), queue: Some(record.id) }));
                self.known.insert(at, peer.clone());
                peer
            }
        };
        Ok(found.ok_or(MoveFailure::NoTarget))
    }
}

impl Redrive {
    /// Marks at most `most` messages in transfer, durably. Returns none when no message is ready.
    pub(crate) async fn start_redrive(
        &self,
        queue: &QueueHandle,
        task: &MoveTask,
        most: usize,
    ) -> Result<Option<RedriveBatch>, Error> {
        let side = queue.side()?;
        let RedriveChoice { headers, is_pending, in_use } =
            queue.choose_for_redrive(most, self.0.replica.clock.now())?;
        if headers.is_empty() {
            return Ok(is_pending.then(|| RedriveBatch { ids: Vec::new(), failure: None }));
        }
        let ids: Vec<MessageId> = headers.iter().map(|header| header.id).collect();
        let batch = match self.routes(&side, task, headers).await {
            Ok(routes) => self.mark_all_in_transfer(&side, routes).await,
            Err(error) => {
                queue.put_back(&ids);
                Err(error)
            }
        };
        drop(in_use);
        batch.map(Some)
    }

    /// Finds the target of each message, which must exist.
    async fn routes(
        &self,
        side: &Side,
        task: &MoveTask,
        headers: Vec<Header>,
    ) -> Result<Vec<RedriveRoute>, Error> {
        let mut origins = HashMap::default();
        if task.target.is_none() {
            let ids: Vec<MessageId> = headers.iter().map(|header| header.id).collect();
            let found = side.store.get(side.queue.id(), &ids).await?;
            origins = found.into_iter().map(|message| (message.header.id, message.body)).collect();
        }
        let mut targets = TaskTargets::new(self, side.queue.at(), task.named_target());
        let mut routes = Vec::with_capacity(headers.len());
        for header in headers {
            let target = targets.find(origins.remove(&header.id)).await?;
            routes.push(RedriveRoute { header, target });
        }
        Ok(routes)
    }

    /// Marks the messages that have a target in transfer. The others stay.
    async fn mark_all_in_transfer(
        &self,
        side: &Side,
        routes: Vec<RedriveRoute>,
    ) -> Result<RedriveBatch, Error> {
        let now = self.0.replica.clock.now();
        let (mut ids, mut kept, mut failure) = (Vec::new(), Vec::new(), None);
        let mut headers = Vec::with_capacity(routes.len());
        for RedriveRoute { header, target } in routes {
            match target {
                Ok(peer) => {
                    ids.push(header.id);
                    headers.push(redriven_header(header, &peer, now));
                }
                Err(why) => {
                    kept.push(header.id);
                    failure = Some(why);
                }
            }
        }
        if !kept.is_empty() {
            side.queue.put_back(&kept);
        }
        if !headers.is_empty() {
            match side.queue.submit(Change::mark_in_transfer(headers)) {
                // The slot writer gives the outcome to the engine.
                Ok(outcome) => settled(outcome).await?,
                Err(error) => {
                    side.queue.put_back(&ids);
                    return Err(error);
                }
            }
        }
        Ok(RedriveBatch { ids, failure })
    }

    /// Waits until messages that were marked in transfer have left, and the pass of the mover that took them has ended.
    /// Then they are ready in their targets, unless a target queue has a failure of its own. Returns the number of those
    /// that stay, because their target is gone.
    pub(crate) async fn wait_for_transfer(
        &self,
        queue: &QueueHandle,
        ids: &[MessageId],
    ) -> Result<u64, Error> {
        let mut pass = None;
        while !ids.is_empty() {
            let side = queue.side()?;
            let TransferProgress { is_outgoing: known, passes, is_moving } =
                queue.transfer_progress(ids).ok_or_else(|| queue.closed())?;
            let is_outgoing = match known {
                Some(known) => known,
                None => {
                    let found = side.store.get(queue.id(), ids).await?;
                    found.iter().any(|message| matches!(message.header.state, State::Moving(_)))
                }
            };
            if !is_outgoing && (!is_moving || passes > *pass.get_or_insert(passes)) {
                break;
            }
            if !self.0.replica.sleep_tick(limits::MOVE_TASK_STEP).await || queue.slot().closed.is_cancelled()
            {
                return Err(queue.closed());
            }
        }
        let returned = queue.take_returned();
        Ok(count(&ids.iter().filter(|id| returned.contains(id)).collect::<Vec<_>>()))
    }

    /// Whether a message of the queue is in transfer to another one.
    pub(crate) async fn has_outgoing(&self, queue: &QueueHandle) -> Result<bool, Error> {
        let side = queue.side()?;
        if !queue.decide(|engine| engine.has_in_transfer()).unwrap_or(false) {
            return Ok(false);
        }
        let mut after = None;
        loop {
            let most = PageBound { messages: limits::MOVE_MESSAGES, bytes: limits::MOVE_BYTES };
            let page = side.store.scan(queue.id(), Order::Aside, Direction::Up, after, most).await?;
            if page.messages.iter().any(|message| matches!(message.header.state, State::Moving(_))) {
                return Ok(true);
            }
            after = page.messages.last().map(|message| Position::id(message.header.id));
            if page.is_last {
                return Ok(false);
            }
        }
    }
}

/// Returns the header of a message that is sent again to another queue: its lifetime begins again, and its claims so
/// far do not count.
pub(crate) fn redriven_header(header: Header, target: &Arc<Peer>, now: Timestamp) -> Header {
    let (life, state) = (header.life.begun_again(now), State::Moving(Arc::clone(target)));
    let mut header =
        Header { created: now, ready: now, life, attempts: 0, first_claimed: None, state, ..header };
    header.forget_hold();
    header
}
