//! The steps of a client of SQS.

use super::CLAIM_TTLS;
use super::settles::is_kept;
use super::worker::Worker;

impl Worker {
    pub(super) async fn send_message(&self, queue: usize) {
        self.client.send_message(queue, self.next_sqs_number(), self.some_delay()).await;
    }

    /// Returns the number of a message of SQS, which has no time for which it is kept.
    pub(super) fn next_sqs_number(&self) -> u64 {
        let mut number = self.next_number();
        while is_kept(&self.scenario.verbs, number) {
            number = self.next_number();
        }
        number
    }

    pub(super) async fn receive(&mut self, queue: usize) {
        let ttl = CLAIM_TTLS[self.pick(CLAIM_TTLS.len())];
        let wait = if self.world.below(4) == 0 { 1 + self.world.below(20) } else { 0 };
        let received = self.client.receive(queue, 1 + self.world.below(6), ttl, wait).await;
        for receipt in received {
            self.seen.extend(receipt.messages.iter().map(|message| (queue, message.clone())));
            self.receipts.push((queue, receipt));
        }
    }

    /// Deletes the message of a receipt, gives it back, or changes its time. A receipt may be used again later.
    pub(super) async fn use_receipt(&mut self) {
        if self.receipts.is_empty() {
            return;
        }
        let index = self.pick(self.receipts.len());
        let ttl = CLAIM_TTLS[self.pick(CLAIM_TTLS.len())];
        let (queue, receipt) = self.receipts[index].clone();
        match self.world.below(10) {
            0..=5 => {
                self.receipts.remove(index);
                self.client.delete_received(queue, &receipt).await;
            }
            6 => self.client.delete_received(queue, &receipt).await,
            7 => self.client.change_visibility(queue, &receipt, 0).await,
            _ => self.client.change_visibility(queue, &receipt, ttl).await,
        }
    }
}
