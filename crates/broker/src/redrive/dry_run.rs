//! The dry run of a task: the number of messages that it would change, with a sample. It changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use angarium_core::error::Error;
use angarium_core::limits;
use angarium_core::move_task::{MoveFailure, TaskRequest, TaskVerb};
use angarium_core::names::QueueRef;
use angarium_core::peek_position::PeekPosition;

use crate::messages::peek::{BodyExtent, PeekedMessage};
use crate::messages::peek_read::{OwnedMessage, PeekReader};
use crate::messages::view::ViewedAt;
use crate::redrive::Redrive;
use crate::redrive::batch::TaskTargets;
use crate::redrive::tasks::MoveRefusal;
use crate::slot::queue_handle::{EngineReading, QueueHandle};

/// Max time of a count.
const TIME: Duration = Duration::from_secs(limits::DRY_RUN_SECONDS as u64);

/// The messages that a task would change.
#[derive(Clone, Debug, Default)]
pub struct SelectionCount {
    /// Number of messages that fulfil each condition, that no claim and no transfer holds, and that have a target if the
    /// task moves them.
    pub matches: u64,
    /// Number of messages that would stay, because they have no target, by reason.
    pub failed: BTreeMap<MoveFailure, u64>,
    /// Number of messages that were compared with the conditions.
    pub looked_at: u64,
    /// Whether these are all messages of the queue. A large queue is not read to its end.
    pub is_whole: bool,
    /// The first of the messages, with the heads of their bodies.
    pub sample: Vec<PeekedMessage>,
}

impl SelectionCount {
    /// Counts a message that fulfils each condition. `failure` is why it would stay.
    fn add(&mut self, found: OwnedMessage, at: ViewedAt, failure: Option<MoveFailure>) {
        if let Some(why) = failure {
            *self.failed.entry(why).or_default() += 1;
            return;
        }
        self.matches += 1;
        if self.sample.len() < limits::DRY_RUN_SAMPLE {
            self.sample.push(PeekedMessage::of(found, at).cut(BodyExtent::Head));
        }
    }
}

impl Redrive {
    /// Counts the messages that a task would change, or returns why it cannot begin. Other tasks do not count. Reads at
    /// most as much as [`limits::DRY_RUN_PEEKS`] peeks, and ends after [`limits::DRY_RUN_SECONDS`].
    pub(crate) async fn task_dry_run(
        &self,
        at: &QueueRef,
        request: &TaskRequest,
    ) -> Result<Result<SelectionCount, MoveRefusal>, Error> {
        let _turn = self.0.quotas.admit_peek(&at.project).await?;
        let queue = self.0.slots.queue(at).await?;
        let counted = match self.0.open_queues.open(&queue).await {
            Ok(None) => Ok(Err(MoveRefusal::NoSource)),
            Ok(Some(open)) => self.count_selected(&open, request).await,
            Err(error) => Err(error),
        };
        self.0.slots.confirm(queue.slot(), counted)
    }

    async fn count_selected(
        &self,
        queue: &QueueHandle,
        request: &TaskRequest,
    ) -> Result<Result<SelectionCount, MoveRefusal>, Error> {
        let (selection, named) = (&request.selection, request.target.as_ref());
        if let Some(refusal) = self.target_refusal(queue, named).await? {
            return Ok(Err(refusal));
        }
        // A named target exists, so only origins are looked up.
        let mut origins = (request.verb == TaskVerb::Move && named.is_none())
            .then(|| TaskTargets::new(self, queue.at(), None));
        let (mut count, end) = (SelectionCount::default(), Instant::now() + TIME);
        let mut position = Some(PeekPosition::FIRST);
        for _ in 0..limits::DRY_RUN_PEEKS {
            let EngineReading { store, shown: retention } = queue.read(|engine| engine.retention())?;
            let at = ViewedAt { now: self.0.replica.clock.now(), retention };
            let mut reader = PeekReader::new(queue, store, selection);
            position = position.and_then(|after| reader.begin(after));
            while let Some(after) = position {
                let Some(read) = reader.read(after).await? else { break };
                for found in reader.owned(read.messages)? {
                    count.looked_at += 1;
                    if found.is_free() && found.fulfils(selection, at) {
                        let failure = match &mut origins {
                            Some(origins) => origins.find(Some(found.message.body.clone())).await?.err(),
                            None => None,
                        };
                        count.add(found, at, failure);
                    }
                }
                position = read.next;
                if Instant::now() >= end {
                    count.is_whole = position.is_none();
                    return Ok(Ok(count));
                }
            }
            if position.is_none() {
                count.is_whole = true;
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok(Ok(count))
    }
}
