//! Events of a watched part of the tree, and the bounded mailbox between the tree and a watcher.
//!
//! An event names the changed node, not its new value: the watcher reads the node again. So events may be dropped as
//! long as one remains that makes the watcher read.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::limits;

/// An event for a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node was created, set or deleted.
    Changed {
        /// Path of the node.
        path: String,
    },
    /// Anything may have changed: the watcher must read everything it watches again. This is the first event of every
    /// watch, and follows a lost connection and too many changes at once.
    Resync,
    /// The session has ended, and all its ephemeral nodes with it. A `Resync` follows when there is a new session.
    Lost,
}

/// A watch of a node and everything below it. Dropping it ends the watch.
pub struct Watch(Arc<Mailbox>);

impl Watch {
    /// Waits for the next event. Returns none when the tree is closed. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let wake = self.0.wake.notified();
            {
                let mut state = self.0.state.lock();
                if let Some(event) = state.events.pop_front() {
                    return Some(event);
                }
                if state.is_ended {
                    return None;
                }
            }
            wake.await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abandoned.cancel();
    }
}

/// The mailbox of one watch, which the tree holds. The lock is held for one operation on the events.
pub struct Mailbox {
    path: String,
    state: Mutex<State>,
    wake: Notify,
    abandoned: CancellationToken,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    is_ended: bool,
}

impl Mailbox {
    /// Creates a mailbox for events at `path` and below, and its reader.
    pub fn open(path: &str) -> (Arc<Self>, Watch) {
        let mailbox = Arc::new(Self {
            path: path.to_owned(),
            state: Mutex::default(),
            wake: Notify::new(),
            abandoned: CancellationToken::new(),
        });
        (Arc::clone(&mailbox), Watch(mailbox))
    }

    /// Returns the watched path.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    fn covers(&self, path: &str) -> bool {
        let below = |rest: &str| rest.is_empty() || rest.starts_with('/');
        self.path == "/" || path.strip_prefix(&self.path).is_some_and(below)
    }

    /// Adds an event. An event that a waiting one covers is dropped, and too many events are replaced by one `Resync`.
    pub fn post(&self, event: Event) {
        let mut state = self.state.lock();
        let events = &mut state.events;
        match &event {
            Event::Changed { .. } if events.contains(&Event::Resync) || events.contains(&event) => {}
            Event::Changed { .. } if events.len() < limits::WATCH_EVENTS => events.push_back(event),
            Event::Changed { .. } | Event::Resync => {
                events.retain(|event| *event == Event::Lost);
                events.push_back(Event::Resync);
            }
            Event::Lost => {
                events.clear();
                events.push_back(event);
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Ends the watch: no more events follow.
    pub fn end(&self) {
        self.state.lock().is_ended = true;
        self.wake.notify_one();
    }

    /// Waits until the reader is dropped.
    pub async fn abandoned(&self) {
        self.abandoned.cancelled().await;
    }
}

/// The watches of a tree that sees every change itself.
#[derive(Default)]
pub(super) struct Watches(Mutex<Vec<Arc<Mailbox>>>);

impl Watches {
    /// Starts a watch.
    pub(super) fn open(&self, path: &str) -> Watch {
        let (mailbox, watch) = Mailbox::open(path);
        mailbox.post(Event::Resync);
        let mut all = self.0.lock();
        all.retain(|mailbox| !mailbox.abandoned.is_cancelled());
        all.push(mailbox);
        watch
    }

    /// Returns whether there is any watcher.
    pub(super) fn any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Notifies the watchers of a changed node.
    pub(super) fn changed(&self, path: &str) {
        for mailbox in self.0.lock().iter().filter(|mailbox| mailbox.covers(path)) {
            mailbox.post(Event::Changed { path: path.to_owned() });
        }
    }

    pub(super) fn end(&self) {
        self.0.lock().drain(..).for_each(|mailbox| mailbox.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(path: impl Into<String>) -> Event {
        Event::Changed { path: path.into() }
    }

    fn drain(mailbox: &Mailbox) -> Vec<Event> {
        mailbox.state.lock().events.drain(..).collect()
    }

    #[test]
    fn changes_of_one_node_are_merged() {
        let (mailbox, _watch) = Mailbox::open("/t");
        mailbox.post(changed("/t/a"));
        mailbox.post(changed("/t/b"));
        mailbox.post(changed("/t/a"));
        assert_eq!(drain(&mailbox), [changed("/t/a"), changed("/t/b")]);
    }

    #[test]
    fn overflow_becomes_resync_and_keeps_session_loss() {
        let (mailbox, _watch) = Mailbox::open("/t");
        mailbox.post(Event::Lost);
        for i in 0..2 * limits::WATCH_EVENTS {
            mailbox.post(changed(format!("/t/{i}")));
        }
        assert_eq!(drain(&mailbox), [Event::Lost, Event::Resync]);
        mailbox.post(changed("/t/a"));
        assert_eq!(drain(&mailbox), [changed("/t/a")]);
    }

    #[test]
    fn watch_covers_node_and_subtree() {
        let (mailbox, _watch) = Mailbox::open("/t");
        for (path, is_covered) in [("/t", true), ("/t/a/b", true), ("/ta", false), ("/", false)] {
            assert_eq!(mailbox.covers(path), is_covered, "{path}");
        }
    }
}
