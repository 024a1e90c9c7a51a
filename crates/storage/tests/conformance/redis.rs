//! The Redis driver beyond the promises of every pool: which servers it refuses, how it uses their settings, and which
//! keys it leaves.

use std::path::Path;
use std::process::Command;

use angarium_core::durability::Durability;
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Message, State};
use angarium_core::outcome::{Extras, Outcome};
use angarium_storage::{Changes, Direction, Due, Order, RemoveHint, Stamp, StoreError, Totals};
use bytes::Bytes;
use uuid::Uuid;

use crate::groups::of_group;
use crate::shared::{COPIES, LENDER, body, copies_to, copy, letters, post, post_apart};
use angarium_testbed::drivers::{STAMP, opened, registered};
use angarium_testbed::held::wait_until;
use angarium_testbed::owner::{
    Owner, SLOT, appends, changes, claimed_again, epoch, id, ids, in_state, living, message, messages, peer,
    queue, retained, settled, start, with_body, with_extras,
};
use angarium_testbed::redis::{Redis, SYNCED};

async fn refusal(uri: &str) -> String {
    match opened(uri).register(STAMP).await {
        Err(StoreError::NotSent(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn evicting_server_is_refused_with_reason() {
    let redis = Redis::start(&["maxmemory 100mb", "maxmemory-policy allkeys-lru"]);
    let why = refusal(&redis.uri("")).await;
    assert!(why.contains("maxmemory-policy is allkeys-lru and must be noeviction"), "{why}");
    assert!(opened(&redis.uri("")).fence(SLOT, epoch(1)).await.is_err());
}

#[tokio::test]
async fn replica_is_refused() {
    let master = Redis::start(&[]);
    let replica = Redis::start(&[&format!("replicaof 127.0.0.1 {}", master.port())]);
    assert!(refusal(&replica.uri("")).await.contains("not a master"));
}

#[tokio::test]
async fn absent_server_is_reported_unreachable() {
    let mut redis = Redis::start(&[]);
    redis.kill9();
    let pool = opened(&redis.uri(""));
    assert!(pool.check_open().is_ok(), "no call was made yet");
    assert!(matches!(pool.health().await, Err(StoreError::NotSent(_))));
    assert!(matches!(pool.check_open(), Err(StoreError::NotSent(_))));
}

#[tokio::test]
async fn durability_class_follows_server_log() {
    for (settings, class) in [
        (SYNCED, Durability::Sync),
        (&["appendonly yes", "appendfsync everysec"], Durability::Relaxed),
        (&["appendonly yes", "appendfsync always", "no-appendfsync-on-rewrite yes"], Durability::Relaxed),
        (&["appendonly no"], Durability::Relaxed),
    ] {
        let redis = Redis::start(settings);
        let pool = registered(&redis.uri("")).await;
        assert_eq!((pool.reach(), pool.health().await.unwrap().class), (class, class), "{settings:?}");
    }
}

#[tokio::test]
async fn pool_reduced_to_relaxed_acks_nothing_before_reporting() {
    let redis = Redis::start(SYNCED);
    let pool = registered(&redis.uri("")).await;
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    redis.set("appendfsync", "everysec");
    redis.cut_connections();
    let batch = owner.batch(2, vec![appends(queue(SLOT, 1), &messages([2]))]);
    let mut failures = Vec::new();
    while let Err(error) = pool.commit(&batch).await {
        failures.push(error.to_string());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(failures.iter().any(|why| why.contains("only reach relaxed now")), "{failures:?}");
    assert_eq!(pool.reach(), Durability::Relaxed);
    assert_eq!(ids(&owner.all(queue(SLOT, 1)).await), [id(1), id(2)]);
}

/// A fence that was delayed in a connection arrives after the batches of its owner.
#[tokio::test]
async fn late_fence_of_the_epoch_has_no_batch_applied_twice() {
    let redis = Redis::start(SYNCED);
    let (pool, late) = (registered(&redis.uri("")).await, registered(&redis.uri("")).await);
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1, 2])).await;
    late.fence(SLOT, epoch(1)).await.unwrap();
    // The outcome of the batch is unknown, so it is repeated.
    let again = owner.send(1, vec![appends(queue(SLOT, 1), &messages([1, 2]))]).await;
    assert!(matches!(again, Err(StoreError::WentBack)), "{again:?}");
    let next = owner.send(2, vec![appends(queue(SLOT, 1), &messages([3]))]).await;
    assert!(matches!(next, Err(StoreError::WentBack)), "{next:?}");
    let mut owner = Owner::fence(&pool, SLOT, 2).await;
    assert_eq!(owner.totals(queue(SLOT, 1)).await.0, 2);
    // The deleted message of a delayed batch does not return in the numbering of another fence.
    let old = owner.batch(1, vec![appends(queue(SLOT, 1), &messages([3]))]);
    owner.append(queue(SLOT, 1), &messages([3])).await;
    owner.remove(queue(SLOT, 1), &[id(3)]).await;
    late.fence(SLOT, epoch(2)).await.unwrap();
    let returned = pool.commit(&old).await;
    assert!(matches!(returned, Err(StoreError::WentBack)), "{returned:?}");
    assert_eq!(ids(&owner.all(queue(SLOT, 1)).await), [id(1), id(2)]);
}

#[tokio::test]
async fn waitaof_is_refused_where_the_server_does_not_have_it() {
    let redis = Redis::start(SYNCED);
    assert!(refusal(&redis.uri("waitaof=0")).await.contains("waitaof needs a server from 7.2 on"));
}

#[tokio::test]
async fn batch_is_unknown_until_the_replicas_asked_for_have_it() {
    let master = Redis::start(SYNCED);
    let mut replica = Redis::start(&[&format!("replicaof 127.0.0.1 {}", master.port())]);
    let is_linked = || {
        let info: String = redis::cmd("INFO").arg("replication").query(&mut master.connect()).unwrap();
        info.contains("state=online")
    };
    wait_until("the replica is linked", is_linked);
    let pool = registered(&master.uri("wait=1")).await;
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    replica.kill9();
    let batch = owner.batch(2, vec![appends(queue(SLOT, 1), &messages([2]))]);
    let failure = pool.commit(&batch).await;
    assert!(matches!(&failure, Err(StoreError::Unknown(why)) if why.contains("0 replicas")), "{failure:?}");
    // A repetition of a batch that the server has applied is not acknowledged either.
    assert!(matches!(pool.commit(&batch).await, Err(StoreError::Unknown(_))));
    // A full memory refuses the repetition of an applied batch, and only the master has it.
    master.set("maxmemory", "1");
    let failure = pool.commit(&batch).await;
    assert!(matches!(failure, Err(StoreError::Unknown(_))), "{failure:?}");
    master.set("maxmemory", "0");
    replica.restart();
    wait_until("the replica is linked", is_linked);
    pool.commit(&batch).await.unwrap();
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1, 2]));
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (2, 20));
}

#[tokio::test]
async fn storage_of_another_installation_is_refused() {
    let redis = Redis::start(SYNCED);
    let first = registered(&redis.uri("")).await;
    let other = Stamp { system: Uuid::from_u128(3), ..STAMP };
    let refused = opened(&redis.uri("")).register(other).await;
    assert!(matches!(refused, Err(StoreError::Stamped(found)) if found == STAMP), "{refused:?}");
    assert_eq!(opened(&redis.uri("")).stamp().await.unwrap(), Some(STAMP));
    // Under another prefix it is another storage.
    assert_eq!(opened(&redis.uri("prefix=other")).stamp().await.unwrap(), None);
    opened(&redis.uri("prefix=other")).register(other).await.unwrap();
    first.register(STAMP).await.unwrap();
}

#[tokio::test]
async fn unregistered_storage_has_no_owner() {
    let redis = Redis::start(SYNCED);
    let refused = opened(&redis.uri("")).fence(SLOT, epoch(1)).await;
    assert!(
        matches!(&refused, Err(StoreError::NotSent(why)) if why.contains("never registered")),
        "{refused:?}"
    );
    let keys: u64 = redis::cmd("DBSIZE").query(&mut redis.connect()).unwrap();
    assert_eq!(keys, 0);
}

#[tokio::test]
async fn emptied_storage_serves_nothing_as_if_all_were_well() {
    let redis = Redis::start(SYNCED);
    let pool = registered(&redis.uri("")).await;
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    let _: () = redis::cmd("FLUSHALL").query(&mut redis.connect()).unwrap();
    let late = owner.send(2, vec![appends(queue(SLOT, 1), &messages([2]))]).await;
    assert!(matches!(late, Err(StoreError::WentBack)), "{late:?}");
    let fenced = pool.fence(SLOT, epoch(2)).await;
    assert!(
        matches!(&fenced, Err(StoreError::NotSent(why)) if why.contains("lost the record")),
        "{fenced:?}"
    );
    redis.cut_connections();
    let mut why = String::new();
    while !why.contains("lost its stamp") {
        why = pool.totals(queue(SLOT, 1)).await.err().map(|error| error.to_string()).unwrap_or_default();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn passwords_are_used_and_never_shown() {
    let redis = Redis::start(&["requirepass pass@word", "appendonly yes"]);
    let uri = |password: &str| format!("redis://default:{password}@127.0.0.1:{}", redis.port());
    registered(&uri("pass%40word")).await;
    let why = refusal(&uri("wr0ngword")).await;
    assert!(!why.contains("wr0ngword"), "{why}");
    assert!(!refusal(&redis.uri("")).await.contains("pass@word"));
}

#[tokio::test]
async fn tls_connection_checks_given_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    make_certificates(dir.path());
    let (cert, key, ca) = (at("server.pem"), at("server.key"), at("ca.pem"));
    let redis = Redis::start_with_tls(&cert, &key, &ca);
    let pool = registered(&format!("rediss://127.0.0.1:{}?ca={ca}", redis.tls_port())).await;
    assert_eq!(Owner::fence(&pool, SLOT, 1).await.totals(queue(SLOT, 1)).await, (0, 0));
    // The system does not trust its certificate authority.
    refusal(&format!("rediss://127.0.0.1:{}", redis.tls_port())).await;
}

pub fn make_certificates(dir: &Path) {
    let script = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=tests -keyout ca.key -out ca.pem && \
                  openssl req -newkey rsa:2048 -nodes -subj /CN=redis -keyout server.key -out server.csr && \
                  echo 'subjectAltName=IP:127.0.0.1' >extensions && openssl x509 -req -in server.csr -CA ca.pem \
                  -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out server.pem";
    let made = Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Number of keys of a pool without messages: its stamp and its records.
const EMPTY: u64 = 1 + 256;

async fn keys_left(redis: &Redis) -> u64 {
    redis::cmd("DBSIZE").query(&mut redis.connect()).unwrap()
}

#[tokio::test]
async fn removed_data_leaves_no_keys() {
    let redis = Redis::start(SYNCED);
    let pool = registered(&redis.uri("")).await;
    assert_eq!(keys_left(&redis).await, EMPTY);
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    for number in 1..=20 {
        let sent: Vec<Message> = (1..=20)
            .map(|rank| living(message(100 * number + rank, "1"), 60))
            .map(|message| match number % 3 {
                0 => in_state(message, State::Moving(peer())),
                1 => settled(message, State::Done, 30),
                _ => message,
            })
            .collect();
        owner.append(queue(SLOT, number), &sent).await;
        owner.remove(queue(SLOT, number), &ids(&sent)).await;
    }
    assert_eq!(pool.due(SLOT, Due::Expiry, start().plus_seconds(1_000), 100).await.unwrap(), []);
    assert_eq!(keys_left(&redis).await, EMPTY);
}

#[tokio::test]
async fn nothing_is_left_of_a_dropped_queue() {
    let redis = Redis::start(SYNCED);
    let pool = registered(&redis.uri("")).await;
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages(1..=100)).await;
    let kept = settled(message(8, "1"), State::Failed, 5);
    owner.update(queue(SLOT, 1), &[in_state(message(7, "1"), State::NoTarget).header, kept.header]).await;
    owner.drop_queue(queue(SLOT, 1), 10).await;
    assert_eq!(keys_left(&redis).await, EMPTY);
}

#[tokio::test]
async fn long_reads_and_drops_are_joined_of_several_calls() {
    let redis = Redis::start(SYNCED);
    let pool = registered(&redis.uri("")).await;
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    let sent = messages(1..=5_000);
    owner.append(queue(SLOT, 1), &sent).await;
    assert!(owner.all(queue(SLOT, 1)).await == sent);
    assert!(owner.get(queue(SLOT, 1), &ids(&sent)).await == sent);
    let due = pool.due(SLOT, Due::Expiry, start().plus_seconds(100_000), 10_000).await.unwrap();
    assert_eq!(due.len(), 5_000);
    let gone: Vec<MessageId> = ids(&sent[..4_500]);
    owner.remove(queue(SLOT, 1), &gone).await;
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (500, 5_000));
    owner.drop_queue(queue(SLOT, 1), 5_000).await;
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (0, 0));
}

/// Number of calls of a command, those of scripts included.
fn calls(redis: &Redis, command: &str) -> u64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query(&mut redis.connect()).unwrap();
    let (_, counts) = info.split_once(&format!("cmdstat_{command}:calls=")).unwrap();
    counts.split_once(',').unwrap().0.parse().unwrap()
}

#[tokio::test]
async fn expiry_of_kept_entries_reads_no_others() {
    let redis = Redis::start(SYNCED);
    let pool = registered(&redis.uri("")).await;
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    // Between the two that expire there are ready entries, and kept ones that expire later.
    let sent: Vec<Message> = (1..=2_000)
        .map(|rank| (rank, living(message(rank, "1"), 60)))
        .map(|(rank, message)| match rank {
            1 | 2_000 => settled(message, State::Done, 10),
            _ if rank.is_multiple_of(2) => settled(message, State::Failed, 1_000),
            _ => living(message, 3_600),
        })
        .collect();
    owner.append(queue(SLOT, 1), &sent).await;
    let before = calls(&redis, "hget");
    assert_eq!(owner.due(Due::Expiry, start().plus_seconds(200)).await, [id(1), id(2_000)]);
    let read = calls(&redis, "hget") - before;
    assert!(read < 10, "{read} fields were read");
}

#[tokio::test]
async fn reads_of_large_results_are_joined_of_several_calls() {
    let redis = Redis::start(SYNCED);
    let pool = registered(&redis.uri("")).await;
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    let result = Outcome::stored(Bytes::from(vec![b'7'; 65_536]));
    let large = Extras { result: Some(result), ..Extras::default() };
    let sent: Vec<Message> = (1..=2_500)
        .map(|rank| settled(living(message(rank, "1"), 60), State::Done, 10))
        .map(|message| {
            let is_large = message.header.id < id(100);
            if is_large { with_extras(message, large.clone()) } else { message }
        })
        .collect();
    owner.append(queue(SLOT, 1), &sent).await;
    let before = calls(&redis, "evalsha");
    assert!(owner.in_order(queue(SLOT, 1), Order::Kept).await == ids(&sent));
    assert!(owner.due(Due::Expiry, start().plus_seconds(200)).await == ids(&sent));
    assert_eq!(calls(&redis, "evalsha") - before, 2 * 4);
    assert!(owner.get(queue(SLOT, 1), &ids(&sent[..200])).await == sent[..200]);
    owner.drop_queue(queue(SLOT, 1), 5_000).await;
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (0, 0));
}

/// The key of a slot with these data.
fn slot_key(data: &str) -> String {
    format!("{{angarium:{}:{}:{SLOT}}}:{data}", STAMP.system.simple(), STAMP.pool.simple())
}

/// Numbers of readers of the bodies that the server stores beside their entries, in order.
fn readers(redis: &Redis) -> Vec<u64> {
    let mut connection = redis.connect();
    let bodies: usize = redis::cmd("HLEN").arg(slot_key("bodies")).query(&mut connection).unwrap();
    let mut readers: Vec<u64> = redis::cmd("HVALS").arg(slot_key("readers")).query(&mut connection).unwrap();
    assert_eq!(bodies, readers.len());
    readers.sort_unstable();
    readers
}

#[tokio::test]
async fn server_stores_a_shared_body_once() {
    let redis = Redis::start(SYNCED);
    let mut owner = Owner::fence(&registered(&redis.uri("")).await, SLOT, 1).await;
    owner.apply(post()).await;
    assert_eq!(readers(&redis), [COPIES; 2]);
    // As the owner of ready entries removes them.
    for at in 2..=COPIES {
        let known = owner.all(queue(SLOT, at)).await;
        let remove_hints = known.iter().map(|message| RemoveHint::of(&message.header)).collect();
        let gone = Changes { remove_hints, ..Changes::removes(ids(&known)) };
        owner.apply(vec![changes(queue(SLOT, at), gone)]).await;
        assert_eq!(readers(&redis), [COPIES + 1 - at; 2]);
        assert_eq!(owner.totals(queue(SLOT, at)).await, (0, 0));
    }
    let sent = owner.all(queue(SLOT, 1)).await;
    owner.update(queue(SLOT, 1), &[settled(sent[0].clone(), State::Done, 30).header]).await;
    owner.remove(queue(SLOT, 1), &[copy(1, 1), copy(1, 1)]).await;
    assert_eq!(readers(&redis), [1_u64]);
    assert_eq!(letters(&owner, 1).await, *b"1");
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await, [copy(1, 0)]);
    owner.drop_queue(queue(SLOT, 1), 1).await;
    assert!(readers(&redis).is_empty());
}

#[tokio::test]
async fn readers_are_exact_after_a_batch_with_removes() {
    let redis = Redis::start(SYNCED);
    let mut owner = Owner::fence(&registered(&redis.uri("")).await, SLOT, 1).await;
    let mut batch = post();
    for at in [1, 2] {
        batch[at - 1].changes.merge(&Changes::removes(vec![copy(at as u64, 0)]));
    }
    owner.apply(batch.clone()).await;
    assert_eq!(readers(&redis), [COPIES - 2, COPIES]);
    owner.send(owner.seq, batch).await.unwrap();
    assert_eq!(readers(&redis), [COPIES - 2, COPIES]);
    assert_totals(&owner, queue(SLOT, 1), 1, 0).await;
    assert_totals(&owner, LENDER, 0, 2).await;
    // A dropped lender has no count to fall. Some at a time, so that the parts of a drop count nothing twice.
    owner.drop_queue(LENDER, 1).await;
    for at in 1..=COPIES {
        assert_totals(&owner, LENDER, 0, 0).await;
        owner.drop_queue(queue(SLOT, at), 1).await;
    }
    assert_eq!(keys_left(&redis).await, EMPTY);
}

/// Checks the bodies of a queue, all of them shared, and the bodies that it lends.
async fn assert_totals(owner: &Owner, queue: QueueId, shared: u64, lent: u64) {
    let (totals, one) = (owner.store.totals(queue).await.unwrap(), body(b'1').len() as u64);
    let of_bodies = Totals { messages: shared, bytes: shared * one, shared: shared * one, ..totals };
    assert_eq!(totals, Totals { lent: lent * one, ..of_bodies });
}

#[tokio::test]
async fn lender_counts_a_body_until_its_last_reader() {
    let redis = Redis::start(SYNCED);
    let mut owner = Owner::fence(&registered(&redis.uri("")).await, SLOT, 1).await;
    owner.apply(post()).await;
    // A queue with a changed header removes its entries in another way.
    let last = owner.all(queue(SLOT, COPIES)).await[0].clone();
    owner.update(queue(SLOT, COPIES), &[settled(last, State::Done, 30).header]).await;
    for at in 1..=COPIES {
        assert_totals(&owner, queue(SLOT, at), 2, 0).await;
        assert_totals(&owner, LENDER, 0, 2).await;
        owner.remove(queue(SLOT, at), &[copy(at, 0)]).await;
        assert_totals(&owner, queue(SLOT, at), 1, 0).await;
    }
    for at in 1..=COPIES {
        assert_totals(&owner, LENDER, 0, 1).await;
        owner.drop_queue(queue(SLOT, at), 1).await;
    }
    assert_totals(&owner, LENDER, 0, 0).await;
    assert_eq!(keys_left(&redis).await, EMPTY);
}

#[tokio::test]
async fn server_shares_no_body_without_need() {
    let redis = Redis::start(SYNCED);
    let mut owner = Owner::fence(&registered(&redis.uri("")).await, SLOT, 1).await;
    owner.apply(post_apart()).await;
    // A short body, equal bodies of two posts, and a body whose other entry is removed at once.
    let (short, rest) = (Bytes::from_static(b"short"), body(b'3'));
    let copies = |at: u64| {
        let bodies = [short.clone(), body(b'1'), rest.clone()];
        let all: Vec<_> = (at * 10..).zip(bodies).map(|(rank, body)| with_body(rank, body)).collect();
        copies_to(queue(SLOT, at), &all)
    };
    let mut batch = vec![copies(5), copies(6)];
    batch[0].changes.merge(&Changes::removes(vec![id(52)]));
    owner.apply(batch).await;
    // The value of such an entry is as long as one with the id of a body.
    let alike = [1, 2, 3].map(|rank| message(rank, "0123456789abcdef"));
    owner.append(queue(SLOT, 7), &alike).await;
    owner.remove(queue(SLOT, 7), &[id(1)]).await;
    assert_eq!(owner.totals(queue(SLOT, 7)).await, (2, 32));
    owner.update(queue(SLOT, 7), &[claimed_again(&alike[2].header)]).await;
    owner.remove(queue(SLOT, 7), &[id(2)]).await;
    assert_eq!(owner.totals(queue(SLOT, 7)).await, (1, 16));
    assert_eq!(owner.all(queue(SLOT, 7)).await[0].body, alike[2].body);
    let keys = ["bodies", "readers", "shared", "lent", "lenders"].map(slot_key);
    let found: u64 = redis::cmd("EXISTS").arg(&keys[..]).query(&mut redis.connect()).unwrap();
    assert_eq!(found, 0);
}

#[tokio::test]
async fn reads_of_shared_bodies_are_as_of_others() {
    let redis = Redis::start(SYNCED);
    let mut owner = Owner::fence(&registered(&redis.uri("")).await, SLOT, 1).await;
    let mut batch = post();
    for queue in &mut batch {
        let [one, two] = &mut queue.changes.appends[..] else { panic!("a post has two messages") };
        *one = retained(one.clone(), start());
        *two = of_group(two.clone(), "a");
    }
    let sent = batch[0].changes.appends.clone();
    owner.apply(batch).await;
    let (at, group, bytes) = (queue(SLOT, 1), GroupName::new("a", "group").unwrap(), sent[0].body.len());
    assert_eq!(owner.all(at).await, sent);
    // A page ends once its bodies exceed the bound.
    let page = owner.store.scan(at, Order::Ready, Direction::Up, None, 10, bytes - 1).await.unwrap();
    assert!(page.messages == sent[..1] && !page.is_last);
    assert!(owner.store.group(at, &group, None, 10, bytes).await.unwrap().messages == sent[1..]);
    assert!(owner.store.groups(at, None, 10).await.unwrap()[0].message == sent[1]);
    let later = start().plus_seconds(100_000);
    let due = owner.store.due(SLOT, Due::Expiry, later, 100).await.unwrap();
    assert!(due.contains(&(at, sent[1].header.clone())), "{due:?}");
    assert_eq!(due.len() as u64, COPIES);
    let found = owner.store.retained(at, None, later, 10).await.unwrap().found;
    assert_eq!(found, [sent[0].header.clone()]);
    // Without its body a message is damaged, and not absent.
    let _: u64 = redis::cmd("DEL").arg(slot_key("bodies")).query(&mut redis.connect()).unwrap();
    for message in &sent {
        let read = owner.store.get(at, &[message.header.id]).await;
        assert!(matches!(read, Err(StoreError::Damaged(_))), "{read:?}");
    }
}
