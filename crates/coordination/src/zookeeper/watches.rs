//! Watches that outlive connections and sessions.
//!
//! The client's persistent watches die silently at every reconnect (zookeeper-client 0.11.2), and what happens
//! while there is no connection is told to no process (ZOOKEEPER-4698). So after each the watch is set again, and who
//! watches is told to read everything again.

use std::sync::Arc;

use zookeeper_client::{AddWatchMode, Client, EventType, SessionState};

use super::keeper::{AGAIN, Shared};
use super::session::{Connection, SessionLoss};
use crate::watch::{Event, Mailbox};

impl Shared {
    /// Feeds a mailbox in one session after the other, until no process reads it or the tree is closed.
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
                () = session.over.cancelled() => {}
                _ = watch(&session.client, &mut connection, &mailbox) => session.over.cancelled().await,
            }
            mailbox.post(Event::Lost);
        }
        mailbox.end();
    }
}

/// Watches until the session is lost. May be dropped at any time.
async fn watch(client: &Client, connection: &mut Connection, mailbox: &Mailbox) -> Result<(), SessionLoss> {
    // The one before is dropped only when the next is set.
    let mut watcher = None;
    loop {
        connection.up().await?;
        let Ok(fresh) = client.watch(mailbox.path(), AddWatchMode::PersistentRecursive).await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let watcher = watcher.insert(fresh);
        mailbox.post(Event::Resync);
        loop {
            let event = watcher.changed().await;
            match event.event_type {
                EventType::Session if event.session_state == SessionState::SyncConnected => break,
                // Nothing follows the last state of a session.
                EventType::Session if event.session_state.is_terminated() => {
                    return Err(SessionLoss(format!("the session is {}", event.session_state)));
                }
                EventType::Session => {}
                _ => mailbox.post(Event::Changed { path: event.path }),
            }
        }
    }
}
