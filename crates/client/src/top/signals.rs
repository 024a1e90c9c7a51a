//! Handlers of the signals that end a program on a terminal. Without them, a signal would leave the terminal in drawing
//! mode.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use tokio::signal::unix::{SignalKind, signal};

/// Number of the received signal; 0 before one.
pub struct Signals(Arc<AtomicI32>);

impl Signals {
    /// Installs the handlers.
    pub fn take() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let entered = runtime.enter();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        drop(entered);
        let received = Arc::new(AtomicI32::new(0));
        let note = Arc::clone(&received);
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let kind = runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => SignalKind::terminate(),
                    _ = hangup.recv() => SignalKind::hangup(),
                    _ = interrupt.recv() => SignalKind::interrupt(),
                }
            });
            note.store(kind.as_raw_value(), Ordering::Release);
        })?;
        Ok(Self(received))
    }

    /// Returns the number of the received signal, if there is one.
    pub fn get(&self) -> Option<i32> {
        let number = self.0.load(Ordering::Acquire);
        (number != 0).then_some(number)
    }
}
