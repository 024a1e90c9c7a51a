//! The record of a pool's tenant, in a table of its own that is made with the first record: older programs, which know
//! no tenants, go on with the other tables.

use super::connection::Connection;
use super::errors::Failure;
use super::stored::column;
use crate::StoreError;

// As in the migrations: the catalogue itself is read.
const EXISTS: &str = "
    SELECT EXISTS (
        SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1::text AND c.relname = 'tenant') AS found";
const MAKE: &str = "
    CREATE TABLE IF NOT EXISTS tenant (one boolean PRIMARY KEY DEFAULT true CHECK (one), process text NOT NULL)";
const READ: &str = "SELECT process FROM tenant";
/// Processes that make the table at the same time wait for each other.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('angarium tenant ' || $1::text, 0))";
const INSERT: &str = "INSERT INTO tenant (process) VALUES ($1) ON CONFLICT (one) DO NOTHING RETURNING one";
const UPDATE: &str = "UPDATE tenant SET process = $2 WHERE process = $1 RETURNING one";

/// Reads the record; none when there is none.
pub(super) async fn read(connection: &Connection, schema: &str) -> Result<Option<String>, StoreError> {
    let found = connection.query(EXISTS, &[&schema]).await.map_err(Failure::of_read)?;
    if !found.first().is_some_and(|row| row.get("found")) {
        return Ok(None);
    }
    let rows = connection.query(READ, &[]).await.map_err(Failure::of_read)?;
    rows.first().map(|row| column(row, "process")).transpose()
}

/// Replaces the record, if it is `found`. Returns whether it did.
pub(super) async fn replace(
    connection: &Connection,
    schema: &str,
    found: Option<&str>,
    record: &str,
) -> Result<bool, StoreError> {
    let replaced = replace_locked(connection, schema, found, record).await;
    if replaced.is_err() {
        // The transaction ends with its session.
        connection.give_up();
    }
    replaced
}

async fn replace_locked(
    connection: &Connection,
    schema: &str,
    found: Option<&str>,
    record: &str,
) -> Result<bool, StoreError> {
    let undone = |failure: Failure| StoreError::NotSent(failure.of_read().to_string());
    connection.run("BEGIN").await.map_err(undone)?;
    connection.query(LOCK, &[&schema]).await.map_err(undone)?;
    connection.run(MAKE).await.map_err(undone)?;
    let rows = match found {
        Some(found) => connection.query(UPDATE, &[&found, &record]).await,
        None => connection.query(INSERT, &[&record]).await,
    };
    let is_replaced = !rows.map_err(undone)?.is_empty();
    connection.run("COMMIT").await.map_err(Failure::of_write)?;
    Ok(is_replaced)
}
