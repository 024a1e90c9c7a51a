//! Page requests in a separate thread, one at a time. A thread that waits for a server ends with the process.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::snapshot::{Snapshot, fetch};
use crate::failure::Failure;
use crate::remote::Remote;

/// An answer that takes longer is missed.
const USUAL: Duration = Duration::from_secs(2);

type PageResult = Result<Snapshot, Failure>;

/// The requested page, until it is taken.
pub struct Pages {
    remote: Arc<Remote>,
    limit: u64,
    request: Option<Receiver<PageResult>>,
    /// When the page was requested.
    since: Instant,
    answer: RefCell<Option<PageResult>>,
}

impl Pages {
    /// Creates the state without a request.
    pub fn new(remote: Remote, limit: u64) -> Self {
        Self {
            remote: Arc::new(remote),
            limit,
            request: None,
            since: Instant::now(),
            answer: RefCell::default(),
        }
    }

    /// Requests a page, unless a request is in progress.
    pub fn request(&mut self) {
        if self.request.is_some() {
            return;
        }
        let (reply, answer) = channel();
        let (remote, limit) = (Arc::clone(&self.remote), self.limit);
        let thread = thread::Builder::new().name("page".to_owned()).spawn(move || {
            // The send fails if the loop has ended, which needs no page.
            let _ = reply.send(fetch(&remote, limit));
        });
        // If the thread cannot start, the next interval tries again.
        self.request = thread.ok().map(|_| answer);
        self.since = Instant::now();
    }

    /// Returns whether no request is in progress.
    pub fn is_idle(&self) -> bool {
        self.request.is_none()
    }

    /// Returns whether the requested page has arrived.
    pub fn has_answer(&self) -> bool {
        let Some(request) = &self.request else { return false };
        let mut answer = self.answer.borrow_mut();
        if answer.is_none() {
            *answer = match request.try_recv() {
                Ok(answer) => Some(answer),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => {
                    Some(Err(Failure::Found("the page could not be asked for".to_owned())))
                }
            };
        }
        answer.is_some()
    }

    /// Seconds for which the server has not answered, if that is longer than usual.
    pub fn silence(&self) -> Option<u64> {
        let silence = self.since.elapsed();
        (!self.is_idle() && silence >= USUAL).then_some(silence.as_secs())
    }

    /// Takes the page, after at most `wait`.
    pub fn take_within(&mut self, wait: Duration) -> Option<PageResult> {
        if let Some(request) = &self.request
            && let Ok(answer) = request.recv_timeout(wait)
        {
            self.answer.replace(Some(answer));
        }
        self.take()
    }

    /// Takes the page, if it has arrived.
    pub fn take(&mut self) -> Option<PageResult> {
        if !self.has_answer() {
            return None;
        }
        self.request = None;
        self.answer.take()
    }
}
