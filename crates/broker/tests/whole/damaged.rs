//! Batches that need damaged data: their queue is refused permanently, and the other queues of the batch are not.

use std::time::Duration;

use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;

use super::faulty::Fault;
use super::outcomes::{Faulty, faulty};
use super::queue;

const ROUNDS: usize = 50;

async fn post(faulty: &Faulty, at: &QueueRef) -> Result<Vec<MessageId>, Error> {
    let message = NewMessage { body: "1".into(), ttl: None, delay: None, ..NewMessage::default() };
    Ok(faulty.whole.broker.messages_post(at, vec![message], None).await?.ids)
}

/// Returns another queue of the same slot.
fn neighbour(of: &QueueRef) -> QueueRef {
    let mut names = (0..).map(|number| queue(&format!("n{number}")));
    names.find(|at| at.slot() == of.slot()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_refuses_its_queue_and_not_the_batch() {
    let faulty = faulty().await;
    let damaged = queue("damaged");
    let whole = neighbour(&damaged);
    post(&faulty, &damaged).await.unwrap();
    let id = faulty.given.given().last().unwrap().queues[0].queue;
    let mut kept = post(&faulty, &whole).await.unwrap();
    *faulty.given.damaged.lock() = Some(id);
    let mut has_shared = false;
    for round in 0..ROUNDS {
        // While one batch is held the next one gathers.
        faulty.pool.next(&[Fault::Held]);
        let (first, refused, second) = tokio::join!(post(&faulty, &whole), post(&faulty, &damaged), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let posted = tokio::join!(post(&faulty, &whole), async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                faulty.pool.release();
            });
            posted.0
        });
        kept.extend(first.unwrap());
        kept.extend(second.unwrap());
        let refused = refused.unwrap_err();
        assert_eq!(
            (refused.code(), refused.may_retry(), refused.nothing_written()),
            ("damaged", false, true)
        );
        has_shared |= faulty.given.given().iter().any(|batch| batch.queues.len() > 1);
        if has_shared && round > 2 {
            break;
        }
    }
    assert!(has_shared, "no batch had both queues");
    let mut claimed = Vec::new();
    while claimed.len() < kept.len() {
        let ids = faulty.whole.claim(&whole, 20, 300).await;
        assert!(!ids.is_empty());
        claimed.extend(ids);
    }
    claimed.sort_unstable();
    kept.sort_unstable();
    assert_eq!(claimed, kept);
}
