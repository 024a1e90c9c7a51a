//! The steps of a client of SQS in the FIFO queue that only such clients use, beside a few requests of REST.

use super::worker::Worker;
use super::{CLAIM_TTLS, GROUPS};
use crate::history::SQS_FIFO;
use crate::requests::FifoReceive;

impl Worker {
    pub(super) async fn use_fifo_of_sqs(&mut self) {
        match self.world.below(12) {
            0..=4 => {
                let number = self.next_sqs_number();
                self.client.send_in_group(number, format!("g{}", self.world.below(GROUPS))).await;
            }
            5..=8 => {
                let receive = FifoReceive {
                    limit: 1 + self.world.below(6),
                    ttl: CLAIM_TTLS[self.pick(CLAIM_TTLS.len())],
                    wait: if self.world.below(4) == 0 { 1 + self.world.below(20) } else { 0 },
                    // Numbers of messages are not given twice.
                    attempt: format!("attempt-{}", self.next_number()),
                };
                for receipt in self.client.receive_in_order(&receive).await {
                    self.receipts.push((SQS_FIFO, receipt));
                }
            }
            9 => self.post(SQS_FIFO).await,
            10 => self.claim(SQS_FIFO).await,
            _ => self.use_receipt().await,
        }
    }
}
