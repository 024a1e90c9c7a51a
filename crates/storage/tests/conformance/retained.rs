//! Entries that live by queue: found by base time, for any retention.

use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Header, Message, State};
use angarium_core::time::Timestamp;
use angarium_storage::{Due, QueueChanges, RetainedEntries};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{
    Owner, SLOT, appends, id, in_state, living, message, peer, queue, removes, retained, settled, start,
};

pub fn at(seconds: u32) -> Timestamp {
    start().plus_seconds(seconds)
}

/// The id of a message that is sent this many seconds after [`start`].
fn id_at(seconds: u32, rank: u8) -> MessageId {
    let millis = u128::from(at(seconds).as_millis());
    MessageId::from_bytes((millis << 80 | u128::from(rank)).to_be_bytes())
}

/// A message that was sent then, and lives by queue.
fn sent(seconds: u32, rank: u8) -> Message {
    let Message { header, body } = message(u64::from(rank), "1");
    let header = Header { id: id_at(seconds, rank), created: at(seconds), ready: at(seconds), ..header };
    retained(Message { header, body }, at(seconds))
}

async fn look(owner: &Owner, queue: QueueId, before: Timestamp) -> (Vec<MessageId>, Option<Timestamp>) {
    let RetainedEntries { found, oldest, .. } =
        owner.store.retained(queue, None, before, usize::MAX).await.expect("the look is answered");
    (found.into_iter().map(|header| header.id).collect(), oldest)
}

pub async fn retained_entries_are_shown_by_base_time_and_never_expire(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let queue = queue(SLOT, 1);
    let all = [sent(0, 1), sent(60, 2), sent(61, 3), sent(3_600, 4), living(message(5, "1"), 60)];
    owner.append(queue, &all).await;
    assert_eq!(owner.due(Due::Expiry, at(10_000_000)).await, [id(5)]);
    let early = Timestamp::from_millis(start().as_millis() - 1);
    assert_eq!(look(&owner, queue, early).await.0, []);
    assert_eq!(look(&owner, queue, at(8)).await.0, [all[0].header.id]);
    assert_eq!(look(&owner, queue, at(3_599)).await.0, [1, 2, 3].map(|rank| all[rank - 1].header.id));
    let page = owner.store.retained(queue, None, at(10_000), 2).await.unwrap();
    assert_eq!(page.found, [all[0].header.clone(), all[1].header.clone()]);
    assert!(page.oldest.is_some_and(|oldest| oldest <= start() && oldest.plus_seconds(8) > start()));
    // An entry that is claimed again keeps its base time.
    let again = Header { attempts: 3, first_claimed: Some(at(9)), ..all[1].header.clone() };
    owner.update(queue, std::slice::from_ref(&again)).await;
    assert_eq!(owner.store.retained(queue, None, at(100), 9).await.unwrap().found[1], again);
}

pub async fn base_time_out_of_order_of_ids_is_found(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let queue = queue(SLOT, 1);
    // Dead letters of a FIFO queue: the first sent arrive last, and some arrive at the same time.
    let arrived = |rank: u8, seconds| retained(sent(u32::from(rank), rank), at(seconds));
    let letters = [arrived(1, 500), arrived(2, 300), arrived(3, 100), arrived(4, 100)];
    owner.append(queue, &letters).await;
    owner.append(queue, &[sent(400, 5)]).await;
    let of = |ranks: &[usize]| ranks.iter().map(|rank| letters[rank - 1].header.id).collect::<Vec<_>>();
    let sorted = |mut ids: Vec<MessageId>| {
        ids.sort_unstable();
        ids
    };
    assert_eq!(look(&owner, queue, at(99)).await, (vec![], Some(at(100))));
    assert_eq!(sorted(look(&owner, queue, at(100)).await.0), of(&[3, 4]));
    assert_eq!(look(&owner, queue, at(499)).await.0.len(), 4);
    owner.remove(queue, &of(&[2, 3, 4])).await;
    assert_eq!(look(&owner, queue, at(499)).await.0, [id_at(400, 5)]);
    owner.remove(queue, &[id_at(400, 5)]).await;
    assert_eq!(look(&owner, queue, at(499)).await, (vec![], Some(at(500))));
    assert_eq!(look(&owner, queue, at(500)).await.0, of(&[1]));
}

pub async fn retained_entry_of_a_move_is_not_shown(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let queue = queue(SLOT, 1);
    let states =
        [State::Ready, State::NoTarget, State::Scheduled, State::Prepared(peer()), State::Moving(peer())];
    let all: Vec<Message> =
        states.into_iter().zip(1..).map(|(state, rank)| in_state(sent(60, rank), state)).collect();
    owner.append(queue, &all).await;
    let mut found = look(&owner, queue, at(100)).await.0;
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3].map(|rank| id_at(60, rank)));
    // An entry that was in transfer at the first look-up is found when it stays.
    owner.update(queue, &[in_state(all[3].clone(), State::Ready).header]).await;
    let mut found = look(&owner, queue, at(100)).await.0;
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3, 4].map(|rank| id_at(60, rank)));
}

pub async fn kept_entry_no_longer_lives_by_queue(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let queue = queue(SLOT, 1);
    let all = [sent(60, 1), sent(61, 2)];
    owner.append(queue, &all).await;
    let kept = |message: &Message| settled(living(message.clone(), 600), State::Done, 70);
    owner.update(queue, &[kept(&all[0]).header]).await;
    assert_eq!(look(&owner, queue, at(10_000)).await.0, [id_at(61, 2)]);
    assert_eq!(owner.due(Due::Expiry, at(10_000)).await, [id_at(60, 1)]);
    owner.update(queue, &[kept(&all[1]).header]).await;
    assert_eq!(look(&owner, queue, at(10_000)).await, (vec![], None));
    // An entry that is made ready lives by its queue again.
    owner.update(queue, std::slice::from_ref(&all[0].header)).await;
    assert_eq!(look(&owner, queue, at(10_000)).await.0, [id_at(60, 1)]);
    assert_eq!(owner.due(Due::Expiry, at(10_000)).await, [id_at(61, 2)]);
}

pub async fn living_entries_cost_no_scan(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let queue = queue(SLOT, 1);
    // Other entries that do not expire are before, between and after them.
    for round in 0..5u8 {
        let seconds = 1_000 * u32::from(round);
        let mut all = vec![sent(seconds, round)];
        all.extend((1..40).map(|rank| living(message(rank + 100 * u64::from(round), "1"), 100_000)));
        owner.append(queue, &all).await;
    }
    assert_eq!(look(&owner, queue, at(1_500)).await.0, [id_at(0, 0), id_at(1_000, 1)]);
    owner.remove(queue, &[id_at(0, 0), id_at(1_000, 1)]).await;
    let (found, oldest) = look(&owner, queue, at(1_500)).await;
    assert_eq!(found, []);
    let oldest = oldest.expect("there are more");
    assert!(oldest <= at(2_000) && oldest.plus_seconds(8) > at(2_000), "{oldest:?}");
}

pub async fn deleted_entries_leave_nothing_to_look_at(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let queue = queue(SLOT, 1);
    let all: Vec<Message> = (0..50u8).map(|rank| sent(100 * u32::from(rank), rank)).collect();
    owner.append(queue, &all).await;
    let gone: Vec<MessageId> = all[..49].iter().map(|message| message.header.id).collect();
    let changes = QueueChanges { low: all[49].header.id, ..removes(queue, &gone) };
    owner.apply(vec![changes]).await;
    let (found, oldest) = look(&owner, queue, Timestamp::default()).await;
    assert_eq!(found, []);
    assert!(oldest.is_some_and(|oldest| oldest.plus_seconds(8) > at(4_900)), "{oldest:?}");
    owner.remove(queue, &[all[49].header.id]).await;
    assert_eq!(look(&owner, queue, Timestamp::default()).await, (vec![], None));
    // An entry that is appended to a searched range is found.
    owner.append(queue, &[sent(100, 77)]).await;
    assert_eq!(look(&owner, queue, at(200)).await.0, [id_at(100, 77)]);
}

/// Queues whose places differ only by the queue id.
pub fn alike(last: u8) -> QueueId {
    let mut bytes = *queue(SLOT, 1).as_bytes();
    bytes[15] = last;
    QueueId::from_bytes(bytes)
}

pub async fn neighbouring_queues_do_not_show_theirs(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let (a, b) = (alike(1), alike(2));
    owner.apply(vec![appends(a, &[sent(10, 1), sent(50, 2)]), appends(b, &[sent(30, 3)])]).await;
    assert_eq!(look(&owner, a, at(100)).await.0, [id_at(10, 1), id_at(50, 2)]);
    assert_eq!(look(&owner, b, at(100)).await.0, [id_at(30, 3)]);
    owner.drop_queue(a, 1).await;
    assert_eq!(look(&owner, a, at(100)).await, (vec![], None));
    assert_eq!(look(&owner, b, at(100)).await.0, [id_at(30, 3)]);
}

/// Appends entries of another queue whose places differ only by the queue id, each in its own bucket.
pub async fn fill(owner: &mut Owner, queue: QueueId, arrive: impl Fn(usize) -> Timestamp) {
    for page in 0..5 {
        let entries: Vec<Message> = (0..angarium_storage::limits::RETAINED_WALK / 4)
            .map(|number| {
                let rank = u64::try_from(page * angarium_storage::limits::RETAINED_WALK + number).unwrap();
                retained(
                    message(rank, "1"),
                    arrive(page * angarium_storage::limits::RETAINED_WALK / 4 + number),
                )
            })
            .collect();
        owner.append(queue, &entries).await;
    }
}

/// The cost of a look-up is bounded for any contents of other queues: each look-up finds nothing and returns where the
/// next one begins.
pub async fn huge_neighbour_ends_a_look(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let (before, own, behind) = (alike(1), alike(2), alike(3));
    // One of the other queues has all its entries at a single instant before the queue's, the other one at many
    // instants.
    fill(&mut owner, before, |_| at(40)).await;
    fill(&mut owner, behind, |number| at(60 + u32::try_from(number).unwrap())).await;
    let same_instant = retained(message(1, "1"), at(40));
    let later = retained(message(2, "1"), at(60 + 5 * 1_024 + 100));
    owner.append(own, &[same_instant.clone(), later.clone()]).await;
    let until = at(100_000);
    let (mut from, mut looks, mut found) = (None, 0, Vec::new());
    while found.len() < 2 && looks < 20 {
        looks += 1;
        let RetainedEntries { found: more, oldest, resume } =
            owner.store.retained(own, from, until, 10).await.unwrap();
        assert!(oldest.is_some_and(|oldest| oldest <= at(60 + 5 * 1_024 + 100)), "look {looks}: {oldest:?}");
        assert!(more.is_empty() || resume.is_none(), "what is found is removed first");
        let ids: Vec<MessageId> = more.iter().map(|header| header.id).collect();
        owner.remove(own, &ids).await;
        found.extend(ids);
        from = resume.or(from);
    }
    assert_eq!(found, [same_instant.header.id, later.header.id]);
    assert!(
        looks > 2,
        "one look has passed over {} entries",
        10 * angarium_storage::limits::RETAINED_WALK / 4
    );
    // After that a look-up reaches the end.
    let mut resume = None;
    for _ in 0..20 {
        let looked = owner.store.retained(own, resume, until, 10).await.unwrap();
        assert_eq!(looked.found, []);
        resume = looked.resume;
        if resume.is_none() {
            assert_eq!(looked.oldest, None);
            return;
        }
    }
    panic!("no look has reached the end");
}

pub async fn retained_entries_are_kept_when_it_is_opened_again(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let queue = queue(SLOT, 1);
    let all = [sent(0, 1), in_state(sent(5, 2), State::Scheduled)];
    owner.append(queue, &all).await;
    drop(owner);
    let owner = Owner::fence(&storage.open().await, SLOT, 2).await;
    let found = owner.store.retained(queue, None, at(100), 9).await.unwrap().found;
    assert_eq!(found, all.map(|message| message.header));
}
