//! Transfers out of a subscription with a rate: a batch of them, a wait, and the next batch, in the order of their ids,
//! round and round: a message that cannot leave holds up no other, unless the queue keeps the order of groups.

use angarium_core::ids::MessageId;

use crate::limits;
use crate::slot::delivery_pace::PaceRoom;
use crate::slot::queue_handle::QueueHandle;
use crate::stores::queue_store::PageBound;
use crate::transfer::MessageTransfers;
use crate::transfer::by_target::Transfers;

impl MessageTransfers {
    /// Waits until messages may leave a queue. Returns false when its mover must end.
    pub(crate) async fn wait_for_pace(&self, queue: &QueueHandle) -> bool {
        while let PaceRoom::After(wait) = queue.transfer_room() {
            tokio::select! {
                biased;
                () = queue.slot().closed.cancelled() => return false,
                goes_on = self.0.replica.sleep_tick(wait) => if !goes_on { return false },
            }
        }
        true
    }
}

/// Returns the messages in transfer that a pass examines: the due ones, and of these as many as may leave. At a rate none
/// leaves beside a transfer in progress.
pub(crate) fn paced(queue: &QueueHandle, transfers: &mut Transfers, known: Vec<MessageId>) -> Vec<MessageId> {
    let mut due = transfers.due(known);
    match queue.transfer_room() {
        PaceRoom::Unbounded => return due,
        PaceRoom::AtMost(most) if !transfers.are_in_progress() => {
            due.sort_unstable();
            if !queue.is_ordered() {
                let begin = transfers.examined().map_or(0, |last| due.partition_point(|id| *id <= last));
                due.rotate_left(begin);
            }
            due.truncate(most);
            transfers.note_examined(due.last().copied());
        }
        PaceRoom::AtMost(_) | PaceRoom::After(_) => due.clear(),
    }
    queue.deliveries_began(due.len());
    due
}

/// Returns the bound of the next page of a pass over all messages in transfer; none when no more may leave now.
pub(crate) fn paced_page(queue: &QueueHandle, transfers: &Transfers) -> Option<PageBound> {
    let most = match queue.transfer_room() {
        PaceRoom::Unbounded => limits::MOVE_MESSAGES,
        PaceRoom::AtMost(most) if !transfers.are_in_progress() => most.min(limits::MOVE_MESSAGES),
        PaceRoom::AtMost(_) | PaceRoom::After(_) => return None,
    };
    Some(PageBound { messages: most, bytes: limits::MOVE_BYTES })
}

/// Returns the message behind which a pass over all messages in transfer begins; none for the first one. The messages up to
/// it are examined by the next pass.
pub(crate) fn paced_begin(queue: &QueueHandle, transfers: &Transfers) -> Option<MessageId> {
    let is_paced = queue.transfer_room() != PaceRoom::Unbounded;
    transfers.examined().filter(|_| is_paced && !queue.is_ordered())
}
