//! The tables of a pool, and its stamp. Replicas that start together wait for each other here.

use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::Connection;
use super::errors::Failure;
use super::stored::{bound, column};
use crate::{Stamp, StoreError};
use angarium_core::ids::Slot;

/// The statements that lead from each version of the tables to the next. Released ones never change.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001.sql"),
    include_str!("migrations/0002.sql"),
    include_str!("migrations/0003.sql"),
    include_str!("migrations/0004.sql"),
];

// Reads the catalogue itself: functions that resolve names may have cached, before the lock, that the table does not
// exist.
const EXISTS: &str = "
    SELECT EXISTS (
        SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1::text AND c.relname = 'stamp') AS found";
const SCHEMA_EXISTS: &str = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1::text) AS found";
const STAMP: &str = "SELECT version, system, pool FROM stamp";
/// Waits for the end of the commit that created the tables. The catalogue shows them a moment before other sessions are
/// told to resolve their names again; the lock is released after that.
const AWAIT_CREATION: &str =
    "SELECT pg_advisory_xact_lock_shared(hashtextextended('angarium ' || $1::text, 0))";
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('angarium ' || $1::text, 0))";
const PUT: &str = "
    INSERT INTO stamp (version, system, pool) VALUES ($1, $2, $3)
    ON CONFLICT (one) DO UPDATE SET version = excluded.version";
/// Every epoch is greater than that of a slot which was never fenced.
const RECORDS: &str = "
    INSERT INTO records (slot, pool, generation, transaction, seq, fences, last_id)
    SELECT slot, $1::uuid, -1, 0, 0, 0, '00000000-0000-0000-0000-000000000000'::uuid
    FROM generate_series(0, $2::int8 - 1) AS slot
    ON CONFLICT (slot) DO NOTHING";

/// Migrates the tables to the version of this program, and returns the stamp. Without a stamp it writes nothing and
/// returns none.
pub(super) async fn read_stamp(connection: &Connection, schema: &str) -> Result<Option<Stamp>, StoreError> {
    match found(connection, schema).await.map_err(Failure::of_read)? {
        None => Ok(None),
        Some((version, stamp)) if version == newest() => Ok(Some(stamp)),
        Some((version, _)) if version > newest() => Err(newer(version)),
        Some((_, stamp)) => create(connection, schema, stamp).await.map(Some),
    }
}

/// Creates the tables, and the stamp if there is none. Returns the stamp that the storage has then.
pub(super) async fn create(connection: &Connection, schema: &str, stamp: Stamp) -> Result<Stamp, StoreError> {
    let made = migrate(connection, schema, stamp).await;
    if made.is_err() {
        // The transaction ends with its session.
        connection.give_up();
    }
    made
}

async fn migrate(connection: &Connection, schema: &str, stamp: Stamp) -> Result<Stamp, StoreError> {
    let undone = |failure: Failure| StoreError::NotSent(failure.of_read().to_string());
    connection.run("BEGIN").await.map_err(undone)?;
    connection.query(LOCK, &[&schema]).await.map_err(undone)?;
    let (version, stamp) = found(connection, schema).await.map_err(undone)?.unwrap_or((0, stamp));
    if version > newest() {
        return Err(newer(version));
    }
    let schema_exists = connection.query(SCHEMA_EXISTS, &[&schema]).await.map_err(undone)?;
    if !is_found(&schema_exists) {
        connection.run(&format!("CREATE SCHEMA \"{schema}\"")).await.map_err(undone)?;
    }
    for migration in &MIGRATIONS[usize::try_from(version).unwrap_or(0)..] {
        connection.run_migration(migration).await.map_err(undone)?;
    }
    connection.query(PUT, &[&newest(), &stamp.system, &stamp.pool]).await.map_err(undone)?;
    let slots = bound(Slot::all().count());
    connection.query(RECORDS, &[&stamp.pool, &slots]).await.map_err(undone)?;
    connection.run("COMMIT").await.map_err(Failure::of_write)?;
    Ok(stamp)
}

async fn found(connection: &Connection, schema: &str) -> Result<Option<(i32, Stamp)>, Failure> {
    if !is_found(&connection.query(EXISTS, &[&schema]).await?) {
        return Ok(None);
    }
    connection.query(AWAIT_CREATION, &[&schema]).await?;
    let rows = connection.query(STAMP, &[]).await?;
    let damaged = |error: StoreError| Failure::Refused(error.to_string());
    rows.first().map(|row| versioned(row).map_err(damaged)).transpose()
}

fn versioned(row: &Row) -> Result<(i32, Stamp), StoreError> {
    let id = |name| column::<Uuid>(row, name);
    Ok((column(row, "version")?, Stamp { system: id("system")?, pool: id("pool")? }))
}

fn is_found(rows: &[Row]) -> bool {
    rows.first().is_some_and(|row| row.get("found"))
}

fn newest() -> i32 {
    i32::try_from(MIGRATIONS.len()).expect("there are few versions")
}

fn newer(version: i32) -> StoreError {
    let newest = newest();
    StoreError::NotSent(format!(
        "the tables have version {version}, made by a newer program; this one knows versions up to {newest}"
    ))
}
