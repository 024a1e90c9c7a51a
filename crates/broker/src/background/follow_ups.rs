//! Execution of the follow-ups that slots note for queues: message transfers and copy phases.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::background::Background;
use crate::migration::copy_phase::CopyPhase;
use crate::slot::follow_ups::{FollowUp, QueueWork};

impl Background {
    pub(crate) fn start_follow_ups(&self, list: UnboundedReceiver<FollowUp>) {
        let list = Arc::new(Mutex::new(list));
        self.0.replica.start_background_task("follow-ups", self, move |background: Background| {
            let list = Arc::clone(&list);
            async move { background.drain_follow_ups(&list).await }
        });
    }

    async fn drain_follow_ups(&self, list: &Mutex<UnboundedReceiver<FollowUp>>) {
        let mut list = list.lock().await;
        loop {
            tokio::select! {
                biased;
                () = self.0.replica.stop.cancelled() => break,
                next = list.recv() => match next {
                    Some(follow_up) => self.begin(follow_up),
                    None => return,
                }
            }
        }
        // Messages in transfer at the stop still arrive if their pools answer: a mover reads each queue once.
        while let Ok(follow_up) = list.try_recv() {
            self.begin(follow_up);
        }
    }

    fn begin(&self, FollowUp { queue, work }: FollowUp) {
        let slot = Arc::clone(queue.slot());
        match work {
            QueueWork::Transfer => {
                let transfers = self.0.transfers.clone();
                slot.spawn(async move { transfers.run_mover(&queue).await });
            }
            QueueWork::DropOldest => {
                let messages = self.0.messages.clone();
                slot.spawn(async move { messages.drop_beyond(vec![queue]).await });
            }
            QueueWork::Copy(migration) => {
                let (migrations, replica) = (self.0.migrations.clone(), Arc::clone(&self.0.replica));
                let phase = CopyPhase { queue, migration };
                slot.spawn(async move {
                    tokio::select! {
                        biased;
                        () = migrations.run_copy_phase(&phase) => {}
                        // The slot writers report the outcome of writes in progress, or the next opening of the queue
                        // finds it.
                        () = phase.queue.slot().closed.cancelled() => {}
                        () = replica.stop.cancelled() => {}
                    }
                });
            }
        }
    }
}
