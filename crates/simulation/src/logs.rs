//! The log of the brokers as part of the trace, for a replay.

use std::cell::RefCell;
use std::io;

use tracing_subscriber::fmt::MakeWriter;

use crate::world::World;

thread_local! {
    /// The world of the run on this thread.
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Adds the log of all later runs to their traces. Has an effect once per process.
pub fn keep() {
    let logs = tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG);
    // A second call finds the log set up already.
    let _ = logs.without_time().with_ansi(false).with_writer(LogWriter).try_init();
}

/// Takes the log of this thread into the trace of a world, as long as the value lives.
pub fn show_in(world: &World) -> ShownLog {
    WORLD.set(Some(world.clone()));
    ShownLog(())
}

/// See [`show_in`].
pub struct ShownLog(());

impl Drop for ShownLog {
    fn drop(&mut self) {
        WORLD.set(None);
    }
}

struct LogWriter;

impl MakeWriter<'_> for LogWriter {
    type Writer = LogWriter;

    fn make_writer(&self) -> LogWriter {
        LogWriter
    }
}

impl io::Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        WORLD.with_borrow(|world| {
            if let Some(world) = world {
                world.note(|| format!("log {}", String::from_utf8_lossy(line).trim()));
            }
        });
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
