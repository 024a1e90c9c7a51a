//! Asks the server for pages in a thread of its own, one at a time. A thread that waits for a server ends with the process.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use super::snapshot::{Snapshot, look};
use crate::failure::Failure;
use crate::remote::Remote;

type PageResult = Result<Snapshot, Failure>;

/// The page that was asked for, until it is taken.
pub struct Pages {
    remote: Arc<Remote>,
    limit: u64,
    asked: Option<Receiver<PageResult>>,
    answer: RefCell<Option<PageResult>>,
}

impl Pages {
    /// Nothing is asked yet.
    pub fn new(remote: Remote, limit: u64) -> Self {
        Self { remote: Arc::new(remote), limit, asked: None, answer: RefCell::default() }
    }

    /// Asks for a page, unless one is asked for.
    pub fn ask(&mut self) {
        if self.asked.is_some() {
            return;
        }
        let (reply, answer) = channel();
        let (remote, limit) = (Arc::clone(&self.remote), self.limit);
        let asking = thread::Builder::new().name("page".to_owned()).spawn(move || {
            // A loop that has ended needs no page.
            let _ = reply.send(look(&remote, limit));
        });
        // Without a thread it is asked again at the next time.
        self.asked = asking.ok().map(|_| answer);
    }

    /// Whether no page is asked for.
    pub fn is_idle(&self) -> bool {
        self.asked.is_none()
    }

    /// Whether the page that was asked for is there.
    pub fn has_answer(&self) -> bool {
        let Some(asked) = &self.asked else { return false };
        let mut answer = self.answer.borrow_mut();
        if answer.is_none() {
            *answer = match asked.try_recv() {
                Ok(answer) => Some(answer),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => {
                    Some(Err(Failure::Found("the page could not be asked for".to_owned())))
                }
            };
        }
        answer.is_some()
    }

    /// The page, if it is there.
    pub fn take(&mut self) -> Option<PageResult> {
        if !self.has_answer() {
            return None;
        }
        self.asked = None;
        self.answer.take()
    }
}
