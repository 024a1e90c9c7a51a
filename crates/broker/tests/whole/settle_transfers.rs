//! Messages that a settle moves, while their transfer cannot end.

use std::time::Duration;

use angarium_broker::{MessageStatus, MessageView};
use angarium_cluster::peer_client::{
    ArrivalRequest, DepartureRequest, OwnerEpoch, StatesRequest, StatesResponse,
};
use angarium_core::claim::ClaimWait;
use angarium_core::error::{Error, ErrorCode};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::State;
use angarium_core::settle::{MessageState, Requeue, Verdict};
use angarium_storage::PoolReads;

use super::faulty::Fault;
use super::outcomes::{Faulty, faulty};
use super::recovery::{claim_when_served, take_slot_of};
use super::settle::{entry, hold, name, settle_one, status};
use super::transfers::{id_of, until};
use super::{metadata, queue, whole};

/// A message that its holder has moved from `q` to `next`, whose pool takes nothing.
pub(super) async fn moved() -> (Faulty, MessageId) {
    let Moved { faulty, id, .. } = moved_beside(0).await;
    (faulty, id)
}

/// A message in transfer, and ready ones of its queue.
struct Moved {
    faulty: Faulty,
    id: MessageId,
    ready: Vec<MessageId>,
}

async fn moved_beside(ready: usize) -> Moved {
    let faulty = faulty().await;
    let (whole, q) = (&faulty.whole, queue("q"));
    let id = whole.post(&q, 1, 60).await[0];
    let (claim, _) = hold(&whole.broker, &q).await;
    let ready = if ready > 0 { whole.post(&q, ready, 60).await } else { Vec::new() };
    faulty.pool.next(&[Fault::NotSent; 1_000]);
    faulty.pool.skip(1);
    let moved = Verdict::Move { target: name("next"), delay: None };
    settle_one(&whole.broker, &q, claim, entry(id, moved)).await.unwrap();
    Moved { faulty, id, ready }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_in_transfer_is_found_after_its_life() {
    let (faulty, id) = moved().await;
    let (whole, q) = (&faulty.whole, queue("q"));
    whole.clock.advance(4_000_000);
    let state = |view: Option<MessageView>| view.unwrap().state;
    assert_eq!(state(status(&whole.broker, &q, id).await), MessageState::InTransfer);
    let refused = whole.broker.message_requeue(&q, id, Requeue::Never).await.unwrap_err();
    assert_eq!(refused.error_code(), ErrorCode::Busy);
    // A new life begins where it arrives.
    faulty.pool.clear();
    assert_eq!(whole.claim_soon(&queue("next"), 1).await, [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_of_discarded_message_learns_no_target() {
    let (faulty, id) = moved().await;
    let (broker, q) = (&faulty.whole.broker, queue("q"));
    let wait = ClaimWait::new(Some(20)).unwrap();
    let waiting = broker.message_status(&q, id, wait);
    let discard = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        broker.queue_delete_forced(&q).await.unwrap();
        // The next queue of this name is another one.
        faulty.pool.clear();
        faulty.whole.post(&q, 1, 60).await;
    };
    let (answer, ()) = tokio::join!(waiting, discard);
    let told = match answer {
        Ok(MessageStatus::Here(view)) => Some(view.state.as_str().to_owned()),
        Ok(MessageStatus::Transferred { to }) => Some(to.to_string()),
        Err(Error::NotFound { .. }) => None,
        Err(error) => panic!("{error:?}"),
    };
    assert_eq!(told, None);
}

/// A request that was on its way for long: the message has come back since, and leaves again.
#[tokio::test(flavor = "multi_thread")]
async fn late_departure_removes_no_other_transfer() {
    let (faulty, id) = moved().await;
    let (broker, q) = (&faulty.whole.broker, queue("q"));
    let target = queue("next").slot();
    assert_ne!(q.slot(), target);
    let depart = async |slot, grant| {
        let departure = DepartureRequest {
            source: (&q).into(),
            source_id: id_of(&faulty.catalogue, "q").await.unwrap(),
            ids: vec![id],
            grants: vec![grant],
            owner: OwnerEpoch { slot, generation: 1, transaction: 1_000_000 },
        };
        broker.remove_departed(departure).await
    };
    let header = async || {
        let source = id_of(&faulty.catalogue, "q").await.unwrap();
        faulty.store.get(source, &[id]).await.unwrap().remove(0).header
    };
    let grant = header().await.grant();
    assert_eq!(grant, 1, "it was claimed once");
    for (slot, grant) in [(q.slot().0, grant), (target.0, grant + 1), (target.0, grant - 1)] {
        depart(slot, grant).await.unwrap();
        assert!(matches!(header().await.state, State::Moving(_)));
    }
    // That of its own transfer is carried out: the pool refuses it.
    depart(target.0, grant).await.unwrap_err();
}

/// The owner of a target learns which messages are still here, and which of those are not on their way to it.
#[tokio::test(flavor = "multi_thread")]
async fn states_at_source_are_those_of_its_incarnation() {
    let Moved { faulty, id, ready } = moved_beside(1).await;
    let (broker, ready, gone) = (&faulty.whole.broker, ready[0], MessageId::from_bytes([7; 16]));
    let source_id = id_of(&faulty.catalogue, "q").await.unwrap();
    let (slot, latest) = (queue("next").slot(), 1_000_000);
    let states = async |source: &str, source_id, transaction| {
        let owner = OwnerEpoch { slot: slot.0, generation: 1, transaction };
        let source = (&queue(source)).into();
        let question = StatesRequest { source, source_id, ids: vec![id, ready, gone], owner };
        broker.read_transfer_states(question).await
    };
    for source_id in [Some(source_id), None] {
        let StatesResponse { moving, kept } = states("q", source_id, latest).await.unwrap();
        assert_eq!((moving, kept), (vec![id], vec![ready]), "{source_id:?}");
    }
    for (source, source_id) in [("q", Some(QueueId::from_bytes([9; 16]))), ("absent", None)] {
        let StatesResponse { moving, kept } = states(source, source_id, latest).await.unwrap();
        assert!(moving.is_empty() && kept.is_empty(), "{source}: {moving:?} {kept:?}");
    }
    let refused = states("q", Some(source_id), latest - 1).await.unwrap_err();
    assert_eq!(refused.error_code(), ErrorCode::Unavailable, "a later owner has asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn departure_removes_only_messages_in_transfer() {
    let Moved { faulty, id, ready } = moved_beside(1).await;
    let (broker, q, ready) = (&faulty.whole.broker, queue("q"), ready[0]);
    let source_id = id_of(&faulty.catalogue, "q").await.unwrap();
    let depart = async |source_id, ids: Vec<MessageId>| {
        let owner = OwnerEpoch { slot: queue("next").slot().0, generation: 1, transaction: 1_000_000 };
        let grants = Vec::new();
        broker.remove_departed(DepartureRequest { source: (&q).into(), source_id, ids, grants, owner }).await
    };
    let left = async || {
        let found = faulty.store.get(source_id, &[id, ready]).await.unwrap();
        found.into_iter().map(|message| message.header.id).collect::<Vec<_>>()
    };
    depart(QueueId::from_bytes([9; 16]), vec![id, ready]).await.unwrap();
    depart(source_id, vec![ready, MessageId::from_bytes([7; 16])]).await.unwrap();
    assert_eq!(left().await, [id, ready], "another incarnation, and a message that does not leave");
    faulty.pool.clear();
    depart(source_id, vec![id, ready]).await.unwrap();
    assert_eq!(left().await, [ready]);
}

/// The request was sent before the target had its present owner, which has transferred messages within this replica.
#[tokio::test(flavor = "multi_thread")]
async fn departure_to_replaced_owner_is_refused_after_local_transfer() {
    let faulty = faulty().await;
    let (whole, q, next) = (&faulty.whole, queue("q"), queue("next"));
    whole.broker.queue_create(&next, metadata("{}")).await.unwrap();
    let ids = whole.post(&q, 1, 3_600).await;
    let source_id = id_of(&faulty.catalogue, "q").await.unwrap();
    let transaction = faulty.catalogue.slot_transaction(next.slot()).await.unwrap();
    let departure = || DepartureRequest {
        source: (&q).into(),
        source_id,
        ids: ids.clone(),
        grants: vec![0],
        owner: OwnerEpoch { slot: next.slot().0, generation: 1, transaction },
    };
    whole.broker.remove_departed(departure()).await.unwrap();
    let other = whole.post(&next, 1, 3_600).await;
    take_slot_of(&faulty, "next").await;
    assert_eq!(claim_when_served(whole, "next").await, other);
    let (claim, _) = hold(&whole.broker, &q).await;
    let moved = Verdict::Move { target: name("next"), delay: None };
    settle_one(&whole.broker, &q, claim, entry(ids[0], moved)).await.unwrap();
    assert_eq!(whole.claim_soon(&next, 1).await, ids);
    let refused = whole.broker.remove_departed(departure()).await.unwrap_err();
    assert_eq!(refused.error_code(), ErrorCode::Unavailable);
}

/// As for a request that was on its way while another one transferred the messages, and a client deleted the target.
#[tokio::test(flavor = "multi_thread")]
async fn arrival_without_messages_in_transfer_makes_no_queue() {
    let faulty = faulty().await;
    let (whole, q, next) = (&faulty.whole, queue("q"), queue("next"));
    let ids = whole.post(&q, 1, 3_600).await;
    let arrival = ArrivalRequest {
        target: (&next).into(),
        source: (&q).into(),
        source_id: id_of(&faulty.catalogue, "q").await.unwrap(),
        pool: "default".to_owned(),
        ids,
        ttl: None,
        is_ordered: false,
        retention: None,
        needs_quota: false,
    };
    whole.broker.accept_transfers(arrival).await.unwrap();
    assert!(whole.broker.queue_metadata(&next).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn arrival_behind_a_delay_does_not_expire_unseen() {
    let (whole, q, slow) = (whole().await, queue("q"), queue("slow"));
    whole.broker.queue_create(&slow, metadata(r#"{"_default_message_delay": 900}"#)).await.unwrap();
    let ids = whole.post(&q, 1, 600).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    let moved = Verdict::Move { target: name("slow"), delay: None };
    settle_one(&whole.broker, &q, claim, entry(ids[0], moved)).await.unwrap();
    until("it arrives", async || whole.broker.queue_stats(&slow).await.unwrap().delayed == 1).await;
    whole.clock.advance(901_000);
    assert_eq!(whole.claim_soon(&slow, 1).await, ids);
}
