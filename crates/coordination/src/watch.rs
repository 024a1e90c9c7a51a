//! What a watch of a part of the tree tells, and the bounded mailbox between the tree and who watches.
//!
//! Events say where something changed, never what: who watches reads again. So events may be dropped as long as
//! one stays that makes the reader look.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::limits;

/// What who watches is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node was created, set or deleted.
    Changed {
        /// Which one.
        path: String,
    },
    /// Anything may have changed: all that is watched must be read again. The first event of every watch, and what
    /// follows a lost connection and too many changes at once.
    Resync,
    /// The session has ended, and with it every ephemeral node it made. A `Resync` follows when there is another.
    Lost,
}

/// A watch of a node and all that is below it. Dropping it ends it.
pub struct Watch(Arc<Mailbox>);

impl Watch {
    /// Waits for the next event. None when the tree is closed. May be dropped at any time.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let wake = self.0.wake.notified();
            {
                let mut state = self.0.state.lock();
                if let Some(event) = state.events.pop_front() {
                    return Some(event);
                }
                if state.is_over {
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

/// Where the events of one watch wait: the end of a watch that a tree holds. The lock is held for single looks.
pub struct Mailbox {
    path: String,
    state: Mutex<State>,
    wake: Notify,
    abandoned: CancellationToken,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    is_over: bool,
}

impl Mailbox {
    /// A mailbox for what happens at `path` and below, and its reader.
    pub fn open(path: &str) -> (Arc<Self>, Watch) {
        let mailbox = Arc::new(Self {
            path: path.to_owned(),
            state: Mutex::default(),
            wake: Notify::new(),
            abandoned: CancellationToken::new(),
        });
        (Arc::clone(&mailbox), Watch(mailbox))
    }

    /// What is watched.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    fn covers(&self, path: &str) -> bool {
        let below = |rest: &str| rest.is_empty() || rest.starts_with('/');
        self.path == "/" || path.strip_prefix(&self.path).is_some_and(below)
    }

    /// Adds an event. What a waiting one states already is not said twice, and too many become one `Resync`.
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

    /// There will be no more events.
    pub fn end(&self) {
        self.state.lock().is_over = true;
        self.wake.notify_one();
    }

    /// Waits until no process reads any more.
    pub async fn abandoned(&self) {
        self.abandoned.cancelled().await;
    }
}

/// The watches of a tree that sees every change itself.
#[derive(Default)]
pub(super) struct Watches(Mutex<Vec<Arc<Mailbox>>>);

impl Watches {
    /// Begins a watch.
    pub(super) fn open(&self, path: &str) -> Watch {
        let (mailbox, watch) = Mailbox::open(path);
        mailbox.post(Event::Resync);
        let mut all = self.0.lock();
        all.retain(|mailbox| !mailbox.abandoned.is_cancelled());
        all.push(mailbox);
        watch
    }

    /// Whether a process watches something.
    pub(super) fn any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Tells any process that watches this node that it changed.
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
