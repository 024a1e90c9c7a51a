//! The PostgreSQL driver beyond the promises of every pool, and regressions of fencing (P1) that were found there.

mod bodies;
mod migrated;
mod plans;

use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use angarium_core::durability::Durability;
use angarium_core::message::Message;
use angarium_storage::limits;
use angarium_storage::{Changes, PoolStore, QueueChanges, Stamp, StoreError};

use super::redis::make_certificates;
use super::retained::{alike, at, fill};
use angarium_testbed::drivers::{opened, registered};
use angarium_testbed::held::wait_until;
use angarium_testbed::owner::{
    Owner, SLOT, appends, both, epoch, id, ids, message, messages, queue, removes, retained,
};
use angarium_testbed::postgres::{PASSWORD, Postgres, fresh_schema};

fn stamp(system: u128) -> Stamp {
    Stamp { system: Uuid::from_u128(system), pool: Uuid::from_u128(2) }
}

/// A schema on the shared server.
pub struct Scene {
    pub server: &'static Postgres,
    pub schema: String,
}

impl Scene {
    pub fn new() -> Self {
        Self { server: Postgres::shared(), schema: fresh_schema() }
    }

    pub async fn pool(&self) -> Arc<dyn PoolStore> {
        let schema = &self.schema;
        registered(&self.server.uri(&format!("schema={schema}&application_name={schema}"))).await
    }

    /// Makes every write to the slot wait, until the value is dropped.
    fn hold(&self) -> angarium_testbed::postgres::Holder {
        let (schema, slot) = (&self.schema, SLOT.0);
        self.server.hold(&format!("SELECT FROM {schema}.records WHERE slot = {slot} FOR UPDATE"))
    }

    /// Waits until this many statements of the pool wait for a lock.
    pub async fn waiting(&self, count: impl RangeBounds<usize> + Send + 'static) {
        let (server, schema) = (self.server, self.schema.clone());
        let asked = move || {
            let text = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}' AND wait_event_type = 'Lock'"
            );
            wait_until("they wait", || count.contains(&server.sql(&text).parse().unwrap()));
        };
        tokio::task::spawn_blocking(asked).await.unwrap();
    }
}

/// Registers an installation, as often as a busy machine exceeds a timeout.
async fn register(store: &Arc<dyn PoolStore>, stamp: Stamp) -> Result<(), StoreError> {
    loop {
        let registered = store.register(stamp).await;
        let Err(StoreError::NotSent(why) | StoreError::Unknown(why)) = &registered else { return registered };
        assert!(!why.contains("does not exist"), "{why}");
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn append_before_fence_is_seen_or_refused() {
    for fence_is_first in [false, true] {
        let scene = Scene::new();
        let (old, new) = (scene.pool().await, scene.pool().await);
        let mut owner = Owner::fence(&old, SLOT, 1).await;
        owner.append(queue(SLOT, 1), &messages([1])).await;
        let holder = scene.hold();
        let batch = owner.batch(2, vec![appends(queue(SLOT, 1), &messages([2]))]);
        let append = async { old.commit(&batch).await };
        let fence = async { new.fence(SLOT, epoch(2)).await };
        let later = async {
            scene.waiting(2..=2).await;
            drop(holder);
        };
        let (written, last, ()) = if fence_is_first {
            let append = async {
                scene.waiting(1..=1).await;
                append.await
            };
            tokio::join!(append, fence, later)
        } else {
            let fence = async {
                scene.waiting(1..=1).await;
                fence.await
            };
            tokio::join!(append, fence, later)
        };
        let found = ids(&Owner { store: new, ..owner }.all(queue(SLOT, 1)).await);
        match written {
            Ok(()) => assert_eq!((last.unwrap(), found), (id(2), vec![id(1), id(2)])),
            Err(refused) => {
                assert!(matches!(refused, StoreError::Fenced(by) if by == epoch(2)), "{refused}");
                assert_eq!((last.unwrap(), found), (id(1), vec![id(1)]));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn late_first_try_after_its_repeat_restores_nothing() {
    let scene = Scene::new();
    let (one, other) = (scene.pool().await, scene.pool().await);
    let mut owner = Owner::fence(&one, SLOT, 1).await;
    let batch = owner.batch(1, vec![appends(queue(SLOT, 1), &messages([1]))]);
    let holder = scene.hold();
    let later = async {
        scene.waiting(2..=2).await;
        drop(holder);
    };
    let (first, second, ()) = tokio::join!(one.commit(&batch), other.commit(&batch), later);
    first.unwrap();
    second.unwrap();
    owner.seq = 1;
    owner.remove(queue(SLOT, 1), &[id(1)]).await;
    let late = other.commit(&batch).await;
    assert!(matches!(late, Err(StoreError::Stale)), "{late:?}");
    assert_eq!(owner.all(queue(SLOT, 1)).await, []);
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_before_refence_is_not_taken_for_new() {
    let scene = Scene::new();
    let (old, new) = (scene.pool().await, scene.pool().await);
    let owner = Owner::fence(&old, SLOT, 1).await;
    new.fence(SLOT, epoch(1)).await.unwrap();
    let refused = owner.send(1, vec![appends(queue(SLOT, 1), &messages([1]))]).await;
    assert!(matches!(refused, Err(StoreError::WentBack)), "{refused:?}");
    assert_eq!(owner.all(queue(SLOT, 1)).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrently_registered_installations_share_no_schema() {
    let uri = Postgres::shared().fresh_uri();
    let registered = |system| {
        let store = opened(&uri);
        async move { register(&store, stamp(system)).await }
    };
    let (a, b, c) = tokio::join!(registered(1), registered(2), registered(1));
    let results = [a, b, c];
    let won = opened(&uri).stamp().await.unwrap().unwrap();
    for (result, system) in results.into_iter().zip([1, 2, 1]) {
        match result {
            Ok(()) => assert_eq!(won, stamp(system)),
            Err(StoreError::Stamped(by)) => assert_eq!(by, won),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The catalogue shows new tables to a session before it can resolve their names.
#[tokio::test(flavor = "multi_thread")]
async fn stamp_is_read_after_creation_of_tables_has_ended() {
    let scene = Scene::new();
    scene.pool().await;
    let schema = &scene.schema;
    let creator = scene
        .server
        .hold(&format!("SELECT pg_advisory_xact_lock(hashtextextended('angarium ' || '{schema}', 0))"));
    let reader = opened(&scene.server.uri(&format!("schema={schema}&application_name={schema}")));
    let read = async {
        loop {
            // On a busy machine the wait may exceed the timeout of a statement.
            match reader.stamp().await {
                Ok(stamp) => return stamp,
                Err(error) => assert!(matches!(error, StoreError::NotSent(_)), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let end = async {
        scene.waiting(1..=1).await;
        drop(creator);
    };
    let (stamp, ()) = tokio::join!(read, end);
    assert!(stamp.is_some());
}

#[tokio::test]
async fn foreign_storage_takes_no_batch() {
    let scene = Scene::new();
    let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    scene.server.sql(&format!("DROP SCHEMA {} CASCADE", scene.schema));
    let others = opened(&scene.server.uri(&format!("schema={}", scene.schema)));
    let theirs = Stamp { system: Uuid::from_u128(9), pool: Uuid::from_u128(9) };
    others.register(theirs).await.unwrap();
    others.fence(SLOT, epoch(1)).await.unwrap();
    for _ in 0..3 {
        let refused = owner.send(1, vec![appends(queue(SLOT, 1), &messages([1]))]).await;
        assert!(refused.is_err());
    }
    assert_eq!(others.totals(queue(SLOT, 1)).await.unwrap().messages, 0);
}

#[tokio::test]
async fn tables_of_a_newer_program_are_refused() {
    let scene = Scene::new();
    scene.pool().await;
    scene.server.sql(&format!("UPDATE {}.stamp SET version = 99", scene.schema));
    let refused = opened(&scene.server.uri(&format!("schema={}", scene.schema))).stamp().await.unwrap_err();
    assert!(refused.to_string().contains("newer program"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_replicas_create_tables_once() {
    let scene = Scene::new();
    let uri = scene.server.uri(&format!("schema={}", scene.schema));
    let mut replicas = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let store = opened(&uri);
        replicas.spawn(async move {
            register(&store, stamp(1)).await.unwrap();
        });
    }
    replicas.join_all().await;
    assert_eq!(scene.server.sql(&format!("SELECT count(*) FROM {}.stamp", scene.schema)), "1");
    assert_eq!(scene.server.sql(&format!("SELECT count(*) FROM {}.records", scene.schema)), "256");
}

#[tokio::test(flavor = "multi_thread")]
async fn overlong_statement_is_ended_and_undone() {
    let scene = Scene::new();
    let pool = scene.pool().await;
    let owner = Owner::fence(&pool, SLOT, 1).await;
    let holder = scene.hold();
    let batch = owner.batch(1, vec![appends(queue(SLOT, 1), &messages([1]))]);
    let ended = pool.commit(&batch).await;
    assert!(matches!(&ended, Err(StoreError::NotSent(why)) if why.contains("timeout")), "{ended:?}");
    assert_eq!(owner.all(queue(SLOT, 1)).await, []);
    drop(holder);
    pool.commit(&batch).await.unwrap();
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1]));
}

#[tokio::test]
async fn read_only_server_is_refused() {
    let uri = Postgres::shared().uri("options=-c%20default_transaction_read_only%3Don");
    let refused = opened(&uri).stamp().await;
    assert!(matches!(refused, Err(StoreError::NotSent(_))), "{refused:?}");
}

#[tokio::test]
async fn tls_connection_checks_given_certificates() {
    let dir = tempfile::tempdir().unwrap();
    make_certificates(dir.path());
    let server = Postgres::start_with_tls(&dir.path().join("server.pem"), &dir.path().join("server.key"));
    let ca = dir.path().join("ca.pem");
    let uri = server.uri(&format!("sslmode=verify-full&sslrootcert={}", ca.display()));
    let pool = registered(&uri).await;
    assert_eq!(Owner::fence(&pool, SLOT, 1).await.totals(queue(SLOT, 1)).await, (0, 0));
    assert_ne!(server.sql("SELECT count(*) FROM pg_stat_ssl WHERE ssl"), "0");
    // The system does not trust its certificate authority.
    let refused = opened(&server.uri("sslmode=require")).stamp().await;
    assert!(matches!(refused, Err(StoreError::NotSent(_))), "{refused:?}");
}

#[tokio::test]
async fn refusal_of_a_login_shows_no_password() {
    let uri = Postgres::shared().fresh_uri();
    let refused = opened(&uri.replace(PASSWORD, "wr0ng")).stamp().await.unwrap_err().to_string();
    assert!(refused.contains("authentication failed") && !refused.contains("wr0ng"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_without_standby_wait_is_not_acknowledged() {
    let server = Arc::new(Postgres::start(&[]));
    let pool = registered(&server.uri("")).await;
    let owner = Owner::fence(&pool, SLOT, 1).await;
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.sql("SELECT pg_reload_conf()");
    wait_until("it is set", || server.sql("SHOW synchronous_standby_names") == "nobody");
    let batch = owner.batch(1, vec![appends(queue(SLOT, 1), &messages([1]))]);
    let cancelling = Arc::clone(&server);
    let cancel = tokio::task::spawn_blocking(move || {
        let text = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        wait_until("it waits", || cancelling.sql(text) != "0");
    });
    let first = pool.commit(&batch).await;
    cancel.await.unwrap();
    assert!(matches!(first, Err(StoreError::Unknown(_))), "{first:?}");
    server.sql("ALTER SYSTEM RESET synchronous_standby_names");
    server.sql("SELECT pg_reload_conf()");
    wait_until("it is reset", || server.sql("SHOW synchronous_standby_names").is_empty());
    pool.commit(&batch).await.unwrap();
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1]));
}

#[tokio::test]
async fn unsynced_server_reaches_only_relaxed() {
    let server = Postgres::start(&["fsync = off"]);
    assert_eq!(registered(&server.uri("")).await.reach(), Durability::Relaxed);
    assert_eq!(registered(&Postgres::shared().fresh_uri()).await.reach(), Durability::Sync);
}

#[tokio::test]
async fn tables_and_indexes_stay_proportional_to_content() {
    const HELD: u64 = 2_000;
    const STEP: u64 = 500;
    // On a server of its own: rows stay as long as any transaction may see them, also one that the server itself began.
    let server = Postgres::start(&["autovacuum = off"]);
    let mut owner = Owner::fence(&registered(&server.uri("")).await, SLOT, 1).await;
    let at = queue(SLOT, 1);
    let mut sizes = Vec::new();
    for round in 0..13 {
        for step in 0..HELD / STEP {
            let first = round * HELD + step * STEP + 1;
            let body = "m".repeat(300);
            let sent: Vec<Message> = (first..first + STEP).map(|rank| message(rank, &body)).collect();
            let gone: Vec<_> =
                (first..first + STEP).filter_map(|rank| rank.checked_sub(HELD)).map(id).collect();
            let low = id(first.saturating_sub(HELD).max(1));
            let changes = QueueChanges { low, ..removes(at, &gone) };
            owner.apply(vec![both(changes, Changes::appends(sent))]).await;
        }
        // What the server does by itself after some thousand removals, here at a time that the test chooses.
        server.sql("VACUUM angarium.entries, angarium.queues, angarium.records");
        let size = server.sql(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE relkind = 'r'
             AND relnamespace = 'angarium'::regnamespace",
        );
        sizes.push(size.parse::<u64>().unwrap());
    }
    assert!(sizes[12] <= sizes[2] * 5 / 4, "{sizes:?}");
    assert_eq!(owner.totals(at).await.0, HELD);
}

/// A look-up of retained entries reads those of another queue, and some of them are removed between its statements.
#[tokio::test(flavor = "multi_thread")]
async fn retained_look_sees_one_state_of_the_tables() {
    let scene = Scene::new();
    let mut owner = Owner::fence(&scene.pool().await, SLOT, 1).await;
    let (neighbour, own) = (alike(1), alike(2));
    fill(&mut owner, neighbour, |number| at(u32::try_from(number).unwrap())).await;
    // A look-up reads entries of the other queue up to a place before this one.
    let place = u32::try_from(limits::RETAINED_WALK + 100).unwrap();
    owner.append(own, &[retained(message(1_000_000, "1"), at(place))]).await;
    let look = || owner.store.retained(own, None, at(100_000), 10);
    let before = look().await.unwrap();
    let (entries, server) = (format!("{}.entries", scene.schema), scene.server);
    let holder = server.hold(&format!("LOCK TABLE {entries}"));
    let remove = format!(
        "BEGIN; LOCK TABLE {entries}; DELETE FROM {entries} WHERE id IN \
         (SELECT id FROM {entries} ORDER BY expires LIMIT 500); COMMIT"
    );
    let removal = async {
        scene.waiting(1..=1).await;
        // It is the next to get the lock of the table, before a second statement of the look-up.
        let removal = tokio::task::spawn_blocking(move || server.sql(&remove));
        let wait = move || {
            let text = format!(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{entries}'::regclass"
            );
            wait_until("both wait", || server.sql(&text) == "2");
        };
        tokio::task::spawn_blocking(wait).await.unwrap();
        drop(holder);
        removal.await.unwrap();
    };
    let (looked, ()) = tokio::join!(look(), removal);
    assert_eq!(looked.unwrap(), before);
    let after = look().await.unwrap();
    assert_eq!(after.found.len(), 1, "{after:?}");
}
