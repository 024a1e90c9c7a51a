//! Watches that outlive connections and sessions.
//!
//! The client's persistent watches end silently at every reconnect (zookeeper-client 0.11.2), and ZooKeeper never
//! reports changes made while there was no connection (ZOOKEEPER-4698). So after each reconnect this module sets the
//! watch again and tells the watcher to read everything again.

use std::sync::Arc;

use zookeeper_client::{AddWatchMode, Client, EventType, SessionState};

use super::keeper::{RETRY_PAUSE, Shared};
use super::session::{Connection, SessionLoss};
use crate::watch::{Event, Mailbox};

impl Shared {
    /// Feeds a mailbox in one session after the other, until its reader is dropped or the tree is closed.
    pub(super) async fn feed(self: Arc<Self>, mailbox: Arc<Mailbox>) {
        loop {
            let connected = tokio::select! {
                () = mailbox.abandoned() => return,
                connected = self.connected() => connected,
            };
            let Some(session) = connected else { break };
            let mut connection = session.connection();
            tokio::select! {
                () = mailbox.abandoned() => return,
                () = self.stop.cancelled() => break,
                () = session.ended.cancelled() => {}
                _ = watch(&session.client, &mut connection, &mailbox) => session.ended.cancelled().await,
            }
            mailbox.post(Event::Lost);
        }
        mailbox.end();
    }
}

/// Watches until the session is lost. Cancel safe.
async fn watch(client: &Client, connection: &mut Connection, mailbox: &Mailbox) -> Result<(), SessionLoss> {
    // The old watcher is dropped only after the new one is set.
    let mut watcher = None;
    loop {
        connection.up().await?;
        let Ok(fresh) = client.watch(mailbox.path(), AddWatchMode::PersistentRecursive).await else {
            tokio::time::sleep(RETRY_PAUSE).await;
            continue;
        };
        let watcher = watcher.insert(fresh);
        mailbox.post(Event::Resync);
        loop {
            let event = watcher.changed().await;
            match event.event_type {
                EventType::Session if event.session_state == SessionState::SyncConnected => break,
                // No event follows the last state of a session.
                EventType::Session if event.session_state.is_terminated() => {
                    return Err(SessionLoss(format!("the session is {}", event.session_state)));
                }
                EventType::Session => {}
                _ => mailbox.post(Event::Changed { path: event.path }),
            }
        }
    }
}
