//! The deadlines of one connection: what its client may keep us waiting for, and for how long.
//! Owns the states of a connection and the one timer beside its socket. Never parses, never spawns, never answers but
//! with the fixed 408, and knows nothing of requests beyond "one is in progress".
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
//! * `Fresh`, `Idle`: nothing of a request has come. The end looks like the client's own close to hyper, which then
//!   closes in good order.
//! * `Header`: the deadline counts from the first byte and further bytes do not move it.
//! * `Request`: no read deadline here. hyper polls the socket all the while to notice a client that went away, and the
//!   handler may take as long as it likes. The progress of a request's body is watched in `exchange`, because only the
//!   body knows whether the handler is waiting for it, and because it will be so for HTTP/2 as well, where many bodies
//!   share one socket.
//! * Writing is apart from all this: in any state, a write that makes no progress for `write` ends the connection.
//!
//! Cost: the hot path reads the clock once per request, when it goes idle. The timer is armed for the earliest deadline
//! it was ever asked for and moved only when it fires or when an earlier deadline comes, so a busy connection moves it
//! once in `idle`, not once per request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::listener::ConnectionLimits;

/// What a client that did not finish its header is told before the connection closes.
const TOO_SLOW: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Fresh,
    Header,
    Request,
    Idle,
}

/// The state of one connection, shared by its socket and its requests. Both live in one task; the atomic is there only
/// because hyper wants both to be `Send`, and carries nothing else across, hence `Relaxed`.
#[derive(Debug, Clone)]
pub struct Phase(Arc<AtomicU8>);

impl Phase {
    /// A connection of which no byte has been read.
    pub fn fresh() -> Self {
        Self(Arc::new(AtomicU8::new(State::Fresh as u8)))
    }

    /// Says that a request has begun. It ends when the mark is dropped.
    pub fn request(&self) -> InRequest {
        self.set(State::Request);
        InRequest(self.clone())
    }

    fn set(&self, state: State) {
        self.0.store(state as u8, Ordering::Relaxed);
    }

    fn get(&self) -> State {
        match self.0.load(Ordering::Relaxed) {
            0 => State::Fresh,
            1 => State::Header,
            2 => State::Request,
            _ => State::Idle,
        }
    }
}

/// A request is in progress for as long as this lives.
#[derive(Debug)]
pub struct InRequest(Phase);

impl Drop for InRequest {
    fn drop(&mut self) {
        self.0.set(State::Idle);
    }
}

/// One lazily made timer that serves any number of deadlines.
#[derive(Debug, Default)]
pub(super) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Whether `deadline` has passed. If not, the task is woken at `deadline` or before and has to ask again.
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

/// A stream that ends when its client lets us wait too long. See the states above.
#[derive(Debug)]
pub struct DeadlineIo<T> {
    inner: T,
    phase: Phase,
    limits: ConnectionLimits,
    /// The state in which the pending read began to wait, and when that state ends.
    reading: Option<(State, Instant)>,
    /// When the pending write has waited too long.
    writing: Option<Instant>,
    alarm: Alarm,
}

impl<T: AsyncRead + AsyncWrite + Unpin> DeadlineIo<T> {
    /// Watches `inner`, whose requests are marked in `phase`.
    pub fn new(inner: T, phase: Phase, limits: ConnectionLimits) -> Self {
        Self { inner, phase, limits, reading: None, writing: None, alarm: Alarm::default() }
    }

    fn received(&mut self, bytes: usize) {
        if bytes > 0 && matches!(self.phase.get(), State::Fresh | State::Idle) {
            self.phase.set(State::Header);
            self.reading = None;
        }
    }

    fn await_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = self.phase.get();
        let patience = match state {
            State::Fresh => self.limits.first_byte,
            State::Header => self.limits.header,
            State::Idle => self.limits.idle,
            State::Request => return Poll::Pending,
        };
        let deadline = match self.reading {
            Some((since, deadline)) if since == state => deadline,
            _ => Instant::now() + patience,
        };
        self.reading = Some((state, deadline));
        if !self.alarm.passed(cx, deadline) {
            return Poll::Pending;
        }
        if state == State::Header {
            self.refuse(cx);
            return Poll::Ready(Err(late("the request header", patience)));
        }
        Poll::Ready(Ok(()))
    }

    /// Tries once. An earlier answer that still waits to be written must not be torn by ours.
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
        let deadline = *self.writing.get_or_insert_with(|| Instant::now() + self.limits.write);
        if self.alarm.passed(cx, deadline) {
            return Poll::Ready(Err(late("the reading of an answer", self.limits.write)));
        }
        Poll::Pending
    }

    /// A client that still reads the last answer is not idle yet: its rest begins with the last bytes written.
    fn sent(&mut self, cx: &mut Context<'_>) {
        if self.phase.get() == State::Idle {
            self.begin_rest(cx);
        }
    }

    /// For an answer whose end is not a byte: its request may end after the last write.
    fn flushed(&mut self, cx: &mut Context<'_>) {
        if self.phase.get() == State::Idle && !matches!(self.reading, Some((State::Idle, _))) {
            self.begin_rest(cx);
        }
    }

    /// hyper does not poll again a read that was pending when the answer ended, so the writing side arms the timer.
    fn begin_rest(&mut self, cx: &mut Context<'_>) {
        let deadline = Instant::now() + self.limits.idle;
        self.reading = Some((State::Idle, deadline));
        // Only to be woken: the read that is polled then finds out whether it has passed.
        let _ = self.alarm.passed(cx, deadline);
    }
}

fn late(what: &str, patience: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} made no progress for {patience:?}"))
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
        me.sent(cx);
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
        me.sent(cx);
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
