//! A connection to the server: it is made and set up here, sends statements and converts their failures. It knows no
//! slots and no queues.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, NoTls, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::Address;
use super::errors::{Failure, describe, leaves_session};
use super::limits;
use angarium_core::durability::Durability;

/// Min version of the server: from it on all statements work.
const OLDEST: i32 = 130_000;

/// Settings of every session. Plans are made once and by keys only: the statistics of a table that was just empty must
/// not lead a statement through all of it.
const SETTINGS: &str = "
    SET client_min_messages = warning; SET default_transaction_isolation = 'read committed';
    SET idle_in_transaction_session_timeout = '10s'; SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5;
    SET tcp_keepalives_count = 3; SET plan_cache_mode = force_generic_plan; SET jit = off;
    SET max_parallel_workers_per_gather = 0; SET enable_seqscan = off; SET enable_bitmapscan = off;
    SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_sort = off;";

const LOOK: &str = "
    SELECT current_setting('server_version_num')::int4 AS version, pg_is_in_recovery() AS follows,
        current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commits";

/// A session, for one statement at a time.
pub(super) struct Connection {
    client: Client,
    /// Prepared statements by their text. Held to read or write an element.
    statements: Mutex<HashMap<&'static str, Statement>>,
    /// Whether it is broken, or leads to the wrong server.
    is_broken: AtomicBool,
    /// Set when the server warned: one reason is a commit that was cancelled while it waited for its standby.
    is_warned: Arc<AtomicBool>,
    pub(super) class: Durability,
}

impl Connection {
    /// Connects, and checks that the server is suitable for a pool.
    pub(super) async fn open(address: &Address) -> Result<Self, String> {
        let (client, is_warned) = timeout(limits::CONNECT, connect(address))
            .await
            .map_err(|_| format!("PostgreSQL does not answer within {:?}", limits::CONNECT))??;
        let mut connection = Self {
            client,
            statements: Mutex::default(),
            is_broken: AtomicBool::new(false),
            is_warned,
            class: Durability::Relaxed,
        };
        connection.set_up(address).await.map_err(|failure| match failure {
            Failure::Refused(why) | Failure::Full(why) | Failure::Lost(why) => why,
        })?;
        Ok(connection)
    }

    async fn set_up(&mut self, address: &Address) -> Result<(), Failure> {
        let statement_timeout = limits::STATEMENT.as_millis();
        let schema = &address.schema;
        self.run(&format!(
            "{SETTINGS} SET statement_timeout = {statement_timeout}; SET search_path = \"{schema}\", pg_catalog;"
        ))
        .await?;
        let rows = self.query(LOOK, &[]).await?;
        let looked =
            rows.first().ok_or_else(|| Failure::Refused("PostgreSQL does not report its state".into()))?;
        let (version, follows): (i32, bool) = (looked.get("version"), looked.get("follows"));
        if version < OLDEST {
            return Err(Failure::Refused(format!(
                "the server is PostgreSQL {}, and 13 is needed",
                version / 10_000
            )));
        }
        if follows {
            return Err(Failure::Refused("the server is a standby".into()));
        }
        // The settings of the server decide which standby must have a commit, but the server's own disk is the minimum.
        if !["on", "remote_apply"].contains(&looked.get("commits")) {
            self.run("SET synchronous_commit = on").await?;
        }
        let is_synced = looked.get::<_, &str>("fsync") == "on";
        self.class = if is_synced { Durability::Sync } else { Durability::Relaxed };
        Ok(())
    }

    /// Whether another statement may be sent.
    pub(super) fn is_usable(&self) -> bool {
        !self.client.is_closed() && !self.is_broken.load(Ordering::Relaxed)
    }

    /// Marks the session as broken, so that no task uses it again.
    pub(super) fn give_up(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Runs a statement that commits by itself. If the server answers with a warning, the outcome is unknown.
    pub(super) async fn query(
        &self,
        text: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let statement = self.prepared(text).await?;
        self.is_warned.store(false, Ordering::Relaxed);
        match timeout(limits::ANSWER, self.client.query(&statement, parameters)).await {
            Ok(Ok(_)) if self.is_warned.load(Ordering::Relaxed) => {
                Err(Failure::Lost("PostgreSQL answered with a warning".into()))
            }
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => Err(self.failed(&error)),
            Err(_) => Err(self.silent(limits::ANSWER)),
        }
    }

    /// Runs statements without parameters, as one transaction unless they contain transaction control.
    pub(super) async fn run(&self, text: &str) -> Result<(), Failure> {
        self.run_within(limits::ANSWER, text).await
    }

    /// Runs the statements of a migration within an open transaction. They may take long, but wait for a lock only as long
    /// as others, because statements of other sessions wait behind them.
    pub(super) async fn run_migration(&self, text: &str) -> Result<(), Failure> {
        let (lock, statement) = (limits::STATEMENT.as_millis(), limits::MIGRATION.as_millis());
        self.run(&format!("SET LOCAL lock_timeout = {lock}; SET LOCAL statement_timeout = {statement}"))
            .await?;
        self.run_within(limits::MIGRATION, text).await
    }

    async fn run_within(&self, max: Duration, text: &str) -> Result<(), Failure> {
        match timeout(max, self.client.batch_execute(text)).await {
            Ok(done) => done.map_err(|error| self.failed(&error)),
            Err(_) => Err(self.silent(max)),
        }
    }

    async fn prepared(&self, text: &'static str) -> Result<Statement, Failure> {
        if let Some(known) = self.statements.lock().get(text) {
            return Ok(known.clone());
        }
        let prepared = match timeout(limits::ANSWER, self.client.prepare(text)).await {
            Ok(Ok(prepared)) => prepared,
            // Nothing was executed, for any reason of the failure.
            Ok(Err(error)) => {
                self.failed(&error);
                return Err(Failure::Refused(describe(&error)));
            }
            Err(_) => {
                self.silent(limits::ANSWER);
                return Err(Failure::Refused("PostgreSQL does not answer".into()));
            }
        };
        self.statements.lock().insert(text, prepared.clone());
        Ok(prepared)
    }

    fn failed(&self, error: &tokio_postgres::Error) -> Failure {
        if !leaves_session(error) {
            self.give_up();
        }
        Failure::of_sent(error)
    }

    fn silent(&self, max: Duration) -> Failure {
        self.give_up();
        Failure::Lost(format!("PostgreSQL does not answer within {max:?}"))
    }
}

async fn connect(address: &Address) -> Result<(Client, Arc<AtomicBool>), String> {
    let failed = |error: tokio_postgres::Error| describe(&error);
    if address.config.get_ssl_mode() == SslMode::Disable {
        let (client, connection) = address.config.connect(NoTls).await.map_err(failed)?;
        return Ok((client, serve(connection)));
    }
    let tls = MakeRustlsConnect::new(trust(address)?);
    let (client, connection) = address.config.connect(tls).await.map_err(failed)?;
    Ok((client, serve(connection)))
}

/// Spawns the task that transfers the bytes of a session; it ends when the client is dropped or the connection breaks.
#[expect(
    clippy::disallowed_methods,
    reason = "it ends with its session, and nothing of the service waits for it"
)]
fn serve<S, T>(mut connection: tokio_postgres::Connection<S, T>) -> Arc<AtomicBool>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let is_warned = Arc::new(AtomicBool::new(false));
    let warned = Arc::clone(&is_warned);
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            // The session settings suppress all notices below a warning.
            if matches!(message, AsyncMessage::Notice(_)) {
                warned.store(true, Ordering::Relaxed);
            }
        }
    });
    is_warned
}

/// Reads the certificates to trust, from files.
fn trust(address: &Address) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    match address.certificates()? {
        Some(pem) => {
            let wrong = |error| format!("the certificates in `sslrootcert`: {error}");
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                roots.add(certificate.map_err(wrong)?).map_err(|error| error.to_string())?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth())
}
