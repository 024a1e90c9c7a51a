//! The deadlines of one connection: how long the service waits for its client, in each state. This module has the
//! states of a connection and the one timer beside its socket. It never parses and never spawns; its only answer is the
//! fixed 408, and of requests it only knows whether one is in progress.
//!
//! ```text
//!             first byte            header complete
//!   Fresh ───────────────▶ Header ───────────────────▶ Request
//!     │                    │    ▲                         │
//!     │ first_byte: close  │    │ first byte              │ answer handed to the writer whole,
//!     ▼                    │    │                         │ or dropped
//!    end ◀─────────────────┘   Idle ◀─────────────────────┘
//!     ▲    header: 408, close   │
//!     └─────────────────────────┘
//!           idle: close
//! ```
//!
//! * `Fresh`, `Idle`: no byte of a request has arrived. When the deadline passes, hyper sees an end of input, as if the
//!   client had closed, and closes the connection in order.
//! * `Header`: the deadline counts from the first byte, and further bytes do not extend it.
//! * `Request`: there is no read deadline here. hyper polls the socket to detect that the client has disconnected, and
//!   the handler has no time limit in this module. `exchange` watches the progress of a request body, because only the
//!   body knows whether the handler waits for it, and because in HTTP/2 many bodies share one socket.
//! * Writes are independent of the state: a write that makes no progress for `write` ends the connection, and so does a
//!   full budget of unsent answers (see `unsent`).
//!
//! In HTTP/2, received bytes do not show whether a request arrives, because the protocol also sends frames of its own.
//! There a connection is in `Request` while a handler runs, and otherwise in `Idle`, from its handshake on. Bytes of an
//! answer restart the idle time, bytes that the protocol itself sends do not; so the connection of a client that does
//! not read its answers is closed after `idle`.
//!
//! Cost: the hot path reads the clock once per request, when it leaves `Idle`. The timer is armed for the earliest
//! requested deadline and moves only when it fires or when an earlier deadline is requested, so on a busy connection it
//! moves once per `idle`, not once per request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::listener::ConnectionLimits;
use super::unsent::UnsentAnswers;

/// The answer to a client that did not finish its header, before the connection closes.
const TOO_SLOW: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\
    x-content-type-options: nosniff\r\ncontent-length: 0\r\n\r\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Fresh,
    Header,
    Request,
    Idle,
}

/// More bytes than HTTP/2 itself sends between answers: pings, settings and windows, even several at once.
const ANSWER_BYTES: usize = 256;

/// The state of one connection, shared by its socket and its requests. It synchronizes no other data, hence `Relaxed`.
/// In HTTP/1.1 both are in one task.
#[derive(Debug, Clone)]
pub struct Phase {
    /// In HTTP/1.1 the state. In HTTP/2 the number of running handlers, and from bit 32 on the number of requests so
    /// far, so that each idle period has its own value.
    shared: Arc<AtomicU64>,
    has_streams: bool,
}

/// Adds one to both counts: requests so far and running handlers.
const STREAM: u64 = (1 << 32) + 1;

/// A value to compare states: idle periods after different requests differ.
type Mark = u64;

impl Phase {
    /// Creates the state of an HTTP/1.1 connection before its first byte: it has one request after the other.
    pub fn requests() -> Self {
        Self { shared: Arc::new(AtomicU64::new(State::Fresh as u64)), has_streams: false }
    }

    /// Creates the state of an HTTP/2 connection after its handshake: it has many requests at once.
    pub fn streams() -> Self {
        Self { shared: Arc::default(), has_streams: true }
    }

    /// Records that a request has begun. The request ends when the returned mark is dropped.
    pub fn request(&self) -> InRequest {
        if self.has_streams {
            self.shared.fetch_add(STREAM, Ordering::Relaxed);
        } else {
            self.set(State::Request);
        }
        InRequest(self.clone())
    }

    /// For HTTP/1.1 only.
    fn set(&self, state: State) {
        self.shared.store(state as u64, Ordering::Relaxed);
    }

    fn mark(&self) -> Mark {
        self.shared.load(Ordering::Relaxed)
    }

    fn state(&self, mark: Mark) -> State {
        match mark {
            _ if self.has_streams => {
                let at_work = mark & u64::from(u32::MAX);
                if at_work > 0 { State::Request } else { State::Idle }
            }
            0 => State::Fresh,
            1 => State::Header,
            2 => State::Request,
            _ => State::Idle,
        }
    }

    fn get(&self) -> State {
        self.state(self.mark())
    }
}

/// A request in progress, until this is dropped.
#[derive(Debug)]
pub struct InRequest(Phase);

impl InRequest {
    /// Converts the mark after the handler has answered. In HTTP/1.1 the request lasts until the answer is written to
    /// the buffer. In HTTP/2 it ends at once, because an answer that waits for its client must not keep the connection
    /// open.
    pub fn answered(self) -> Option<Self> {
        (!self.0.has_streams).then_some(self)
    }
}

impl Drop for InRequest {
    fn drop(&mut self) {
        if self.0.has_streams {
            self.0.shared.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.0.set(State::Idle);
        }
    }
}

/// A lazily created timer for any number of deadlines.
#[derive(Debug, Default)]
pub(super) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Whether `deadline` has passed. If not, the task is woken at `deadline` or earlier and has to call this again.
    pub(super) fn passed(&mut self, cx: &mut Context<'_>, deadline: Instant) -> bool {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        loop {
            if sleep.as_mut().poll(cx).is_pending() {
                if sleep.deadline() <= deadline {
                    return false;
                }
            } else if Instant::now() >= deadline {
                return true;
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

/// A stream with the deadlines of the states above.
#[derive(Debug)]
pub struct DeadlineIo<T> {
    inner: T,
    phase: Phase,
    unsent: UnsentAnswers,
    limits: ConnectionLimits,
    /// The state in which the pending read began, and the deadline of that state.
    reading: Option<(Mark, Instant)>,
    /// The deadline of the pending write.
    writing: Option<Instant>,
    alarm: Alarm,
}

impl<T: AsyncRead + AsyncWrite + Unpin> DeadlineIo<T> {
    /// Wraps `inner`. Its requests are marked in `phase`, and its answers are counted in `unsent`.
    pub fn new(inner: T, phase: Phase, unsent: UnsentAnswers, limits: ConnectionLimits) -> Self {
        Self { inner, phase, unsent, limits, reading: None, writing: None, alarm: Alarm::default() }
    }

    fn received(&mut self, bytes: usize) {
        if self.phase.has_streams {
            return;
        }
        if bytes > 0 && matches!(self.phase.get(), State::Fresh | State::Idle) {
            self.phase.set(State::Header);
            self.reading = None;
        }
    }

    fn await_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unsent.poll_cut(cx) {
            return Poll::Ready(Err(too_many_unsent()));
        }
        let mark = self.phase.mark();
        let state = self.phase.state(mark);
        let max_wait = match state {
            State::Fresh => self.limits.first_byte,
            State::Header => self.limits.header,
            State::Idle => self.limits.idle,
            State::Request => return self.await_handlers(cx),
        };
        let deadline = match self.reading {
            Some((since, deadline)) if since == mark => deadline,
            _ => Instant::now() + max_wait,
        };
        self.reading = Some((mark, deadline));
        if !self.alarm.passed(cx, deadline) {
            return Poll::Pending;
        }
        if state == State::Header {
            self.refuse(cx);
            return Poll::Ready(Err(late("the request header", max_wait)));
        }
        Poll::Ready(Ok(()))
    }

    /// A handler of HTTP/2 may end without a wake-up when its client cancels the request. So the alarm wakes the task
    /// at intervals of `idle` to check whether the connection is idle.
    fn await_handlers(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.phase.has_streams {
            let _ = self.alarm.passed(cx, Instant::now() + self.limits.idle);
        }
        Poll::Pending
    }

    /// Writes the refusal in one attempt. It must not interrupt an earlier answer that is still being written.
    fn refuse(&mut self, cx: &mut Context<'_>) {
        if self.writing.is_none() {
            let _ = Pin::new(&mut self.inner).poll_write(cx, TOO_SLOW);
        }
    }

    fn await_write<R>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if done.is_ready() {
            self.writing = None;
            return done;
        }
        if self.unsent.poll_cut(cx) {
            return Poll::Ready(Err(too_many_unsent()));
        }
        let deadline = *self.writing.get_or_insert_with(|| Instant::now() + self.limits.write);
        if self.alarm.passed(cx, deadline) {
            return Poll::Ready(Err(late("the reading of an answer", self.limits.write)));
        }
        Poll::Pending
    }

    /// A client that is still reading the last answer is not idle: the idle time begins with the last written bytes.
    fn sent(&mut self, cx: &mut Context<'_>, bytes: usize) {
        self.unsent.sent(bytes);
        let is_answer = !self.phase.has_streams || bytes >= ANSWER_BYTES;
        if self.phase.get() == State::Idle && (is_answer || !self.is_resting()) {
            self.begin_rest(cx);
        }
    }

    /// For an answer whose end has no byte: its request may end after the last write.
    fn flushed(&mut self, cx: &mut Context<'_>) {
        if self.phase.get() == State::Idle && !self.is_resting() {
            self.begin_rest(cx);
        }
    }

    fn is_resting(&self) -> bool {
        matches!(self.reading, Some((since, _)) if since == self.phase.mark())
    }

    /// hyper does not poll a read again that was pending when the answer ended, so the writing side arms the timer.
    fn begin_rest(&mut self, cx: &mut Context<'_>) {
        let deadline = Instant::now() + self.limits.idle;
        self.reading = Some((self.phase.mark(), deadline));
        // Only for the wake-up: the next poll of the read checks whether the deadline has passed.
        let _ = self.alarm.passed(cx, deadline);
    }
}

fn late(what: &str, max_wait: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} made no progress for {max_wait:?}"))
}

fn too_many_unsent() -> io::Error {
    io::Error::other("too many bytes of answers wait to be read, and this client made the least progress")
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for DeadlineIo<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let before = buf.filled().len();
        let Poll::Ready(read) = Pin::new(&mut me.inner).poll_read(cx, buf) else {
            return me.await_read(cx);
        };
        me.received(buf.filled().len() - before);
        Poll::Ready(read)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for DeadlineIo<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let done = Pin::new(&mut me.inner).poll_write(cx, buf);
        let written = ready!(me.await_write(cx, done))?;
        me.sent(cx, written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let done = Pin::new(&mut me.inner).poll_write_vectored(cx, bufs);
        let written = ready!(me.await_write(cx, done))?;
        me.sent(cx, written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let done = Pin::new(&mut me.inner).poll_flush(cx);
        ready!(me.await_write(cx, done))?;
        me.flushed(cx);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let done = Pin::new(&mut me.inner).poll_shutdown(cx);
        me.await_write(cx, done)
    }
}
