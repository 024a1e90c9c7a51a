//! The closed loop: every connection sends its next request after the last answer, during a warm-up and a measured
//! window, on one thread.
//!
//! It never starts or stops a server. After the window it waits at most [`LAST_TURNS`], in which each connection
//! finishes its current turn: messages that stay claimed would be hidden from the next round.

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures_util::future::join_all;
use tokio::runtime::Builder;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{BenchConnection, ConnectionFault, DEADLINE, Target, WaitStart};
use super::cpu;
use super::tally::Tally;
use super::workload::Workload;

/// Pause after a failure, so that a dead server is not queried in a tight loop.
const FAILURE_PAUSE: Duration = Duration::from_millis(50);

/// A server counts as silent if no connection received an answer for this long before the end of the window.
const SILENCE: Duration = Duration::from_secs(1);

/// Max time for the turns in progress at the end of the window, which are not counted: longer than a slow server takes for
/// each request of a turn. A silent one has failed by then.
const LAST_TURNS: Duration = DEADLINE;

/// Number of connections that fill the queues.
const FILLERS: usize = 16;

/// A load and its duration.
pub struct Load {
    /// Name in the progress lines.
    pub name: &'static str,
    /// Addresses of the server's replicas, at least one. Connections are spread over them.
    pub targets: Vec<Target>,
    /// Process id of the server, if known. Its CPU is read at both ends of the window.
    pub pid: Option<u32>,
    /// The requests to send.
    pub workload: Rc<Workload>,
    /// Number of connections, each with one request in flight.
    pub connections: usize,
    /// Time before the window, in which only errors are counted.
    pub warmup: Duration,
    /// Length of the window.
    pub window: Duration,
}

/// Result of a window.
pub struct WindowResult {
    /// Measured length of the window.
    pub elapsed: Duration,
    /// Longest wait of the requests that were unanswered at its end. A server that stalls late shows here, not in the
    /// latencies.
    pub longest_unanswered: Duration,
    /// Counts within the window.
    pub tally: Tally,
    /// CPU of this process within the window: the cost of the generator.
    pub generator_cpu: Duration,
    /// CPU of the server within the window, if its process is known and was alive at the end.
    pub server_cpu: Option<Duration>,
}

/// Runs the load on a single-threaded runtime on the calling thread, so that the generator uses at most one core and
/// its cost does not depend on the number of cores. Blocks for the warm-up, the window and the last turns; `stop` ends
/// it early with an error. Request errors are in the tally.
pub fn drive(load: &Load, stop: &CancellationToken) -> anyhow::Result<WindowResult> {
    on_this_thread(run(load, stop))?
}

/// Creates the missing queues and records them in `made`, also after a partial failure. Fails with the text of the
/// server's error.
pub fn create(load: &Load, made: &mut Vec<usize>) -> anyhow::Result<()> {
    on_one_connection(load, async |connection, tally| load.workload.create(connection, tally, made).await)?;
    Ok(())
}

/// Deletes queues with their messages. Fails with the text of the server's error.
pub fn remove(load: &Load, queues: &[usize]) -> anyhow::Result<()> {
    on_one_connection(load, async |connection, tally| load.workload.remove(connection, tally, queues).await)?;
    Ok(())
}

/// Posts messages until there are at least `messages`, spread evenly over the queues, on a few connections. Fails with
/// the text of the server's error.
pub fn fill(load: &Load, messages: u64, stop: &CancellationToken) -> anyhow::Result<()> {
    let filled = Cell::new(0);
    let tally = RefCell::new(Tally::new());
    let fill_on_connection = async |first: usize| {
        let mut connection = BenchConnection::open(&load.targets[0], WaitStart::default()).await?;
        let mut turn = 0;
        while filled.get() < messages && tally.borrow().errors == 0 && !stop.is_cancelled() {
            let queue = load.workload.queue_of(first, turn, FILLERS);
            let more = load.workload.fill(&mut connection, queue, &tally).await?;
            filled.set(filled.get() + more);
            turn += 1;
        }
        Ok(())
    };
    let done = on_this_thread(join_all((0..FILLERS).map(fill_on_connection)))?;
    done.into_iter().try_for_each(|connection| check_fault(load, connection))?;
    ensure!(!stop.is_cancelled(), "stopped by a signal");
    first_error(load, &tally.into_inner())
}

/// Runs one turn of the workload on one connection, to check that the server answers as expected and to learn the sizes
/// of its answers. Fails with the text of the server's error.
pub fn probe(load: &Load) -> anyhow::Result<Tally> {
    on_one_connection(load, async |connection, tally| {
        let turn = load.workload.turn(connection, 0, tally);
        timeout(DEADLINE, turn)
            .await
            .unwrap_or_else(|_| Err(ConnectionFault::Failed("no answer to the probe".into())))
    })
}

/// Runs `work` on one connection and returns its counts. Fails with the text of the server's error.
fn on_one_connection(
    load: &Load,
    work: impl AsyncFnOnce(&mut BenchConnection, &RefCell<Tally>) -> Result<(), ConnectionFault>,
) -> anyhow::Result<Tally> {
    let tally = RefCell::new(Tally::new());
    tally.borrow_mut().open_window();
    let done = on_this_thread(async {
        let mut connection = BenchConnection::open(&load.targets[0], WaitStart::default()).await?;
        work(&mut connection, &tally).await
    })?;
    check_fault(load, done)?;
    let tally = tally.into_inner();
    first_error(load, &tally)?;
    Ok(tally)
}

fn check_fault(load: &Load, done: Result<(), ConnectionFault>) -> anyhow::Result<()> {
    done.or_else(|fault| match fault {
        ConnectionFault::Closed => bail!("{}: closed the connection", load.name),
        ConnectionFault::Failed(why) => bail!("{}: {why}", load.name),
    })
}

fn first_error(load: &Load, tally: &Tally) -> anyhow::Result<()> {
    match tally.first_errors.first() {
        Some(error) => bail!("{}: {error}", load.name),
        None => Ok(()),
    }
}

fn on_this_thread<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build().context("the generator's runtime")?;
    Ok(LocalSet::new().block_on(&runtime, work))
}

async fn run(load: &Load, stop: &CancellationToken) -> anyhow::Result<WindowResult> {
    let tally = Rc::new(RefCell::new(Tally::new()));
    // The tasks of the connections. They end when this is dropped, whatever the server does.
    let mut connections = JoinSet::new();
    let is_ended = Rc::new(Cell::new(false));
    let waits: Vec<WaitStart> = (0..load.connections).map(|_| WaitStart::default()).collect();
    for (number, waiting) in waits.iter().enumerate() {
        let (waiting, is_ended) = (Rc::clone(waiting), Rc::clone(&is_ended));
        let slot = Slot { number, of: load.connections, waiting, turn: 0, is_ended };
        let target = load.targets[number % load.targets.len()].clone();
        let workload = Rc::clone(&load.workload);
        connections.spawn_local(slot.maintain(target, workload, Rc::clone(&tally)));
    }
    let mut progress = Progress::new(load.name);
    wait(load.warmup, &tally, &mut progress, stop).await?;
    tally.borrow_mut().open_window();
    let before = ClockReading::take(load.pid);
    wait(load.window, &tally, &mut progress, stop).await?;
    tally.borrow_mut().shut_window();
    let after = ClockReading::take(load.pid);
    let longest_unanswered = unanswered(&waits, after.at, &tally);
    let counted = tally.replace(Tally::new());
    is_ended.set(true);
    // A turn that takes longer is abandoned.
    let _ = timeout(LAST_TURNS, connections.join_all()).await;
    Ok(WindowResult {
        elapsed: after.at - before.at,
        longest_unanswered,
        tally: counted,
        generator_cpu: after.generator.saturating_sub(before.generator),
        server_cpu: after.server.zip(before.server).map(|(after, before)| after.saturating_sub(before)),
    })
}

/// Returns the longest wait for an answer at the end of the window. If even the shortest wait is long, the server has
/// stopped answering, which is recorded as an error.
fn unanswered(waits: &[WaitStart], end: Instant, tally: &RefCell<Tally>) -> Duration {
    let wait = |waiting: &WaitStart| {
        waiting.get().map_or(Duration::ZERO, |since| end.saturating_duration_since(since))
    };
    let shortest = waits.iter().map(wait).min().unwrap_or_default();
    if shortest > SILENCE {
        tally
            .borrow_mut()
            .fail(format!("no answer on any connection in the last {:.1} s", shortest.as_secs_f64()));
    }
    waits.iter().map(wait).max().unwrap_or_default()
}

/// One of the maintained connections.
struct Slot {
    number: usize,
    of: usize,
    waiting: WaitStart,
    turn: usize,
    /// Whether no new turn may start.
    is_ended: Rc<Cell<bool>>,
}

impl Slot {
    /// Opens a connection, runs turns on it, and replaces it when it breaks.
    async fn maintain(mut self, target: Target, workload: Rc<Workload>, tally: Rc<RefCell<Tally>>) {
        while !self.is_ended.get() {
            let Err(fault) = self.run_connection(&target, &workload, &tally).await else { return };
            self.waiting.set(None);
            let ConnectionFault::Failed(why) = fault else {
                tally.borrow_mut().reconnects += 1;
                continue;
            };
            tally.borrow_mut().fail(why);
            sleep(FAILURE_PAUSE).await;
        }
    }

    async fn run_connection(
        &mut self,
        target: &Target,
        workload: &Workload,
        tally: &RefCell<Tally>,
    ) -> Result<(), ConnectionFault> {
        let mut connection = BenchConnection::open(target, Rc::clone(&self.waiting)).await?;
        while !self.is_ended.get() {
            let queue = workload.queue_of(self.number, self.turn, self.of);
            self.turn = self.turn.wrapping_add(1);
            workload.turn(&mut connection, queue, tally).await?;
        }
        Ok(())
    }
}

/// Clock readings at one end of the window.
struct ClockReading {
    at: Instant,
    generator: Duration,
    server: Option<Duration>,
}

impl ClockReading {
    fn take(pid: Option<u32>) -> Self {
        let server = pid.and_then(|pid| cpu::of_process(pid).ok());
        Self { at: Instant::now(), generator: cpu::of_this_process(), server }
    }
}

/// Sleeps for `time`, with a progress line every second.
async fn wait(
    time: Duration,
    tally: &RefCell<Tally>,
    progress: &mut Progress,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        tokio::select! {
            biased;
            () = stop.cancelled() => bail!("stopped by a signal"),
            () = sleep_until(end.min(progress.next)) => progress.print(&tally.borrow()),
        }
    }
    Ok(())
}

/// Progress lines on the terminal.
struct Progress {
    name: &'static str,
    shown: bool,
    next: Instant,
    last: u64,
}

impl Progress {
    const EVERY: Duration = Duration::from_secs(1);

    fn new(name: &'static str) -> Self {
        let shown = std::io::stderr().is_terminal();
        Self { name, shown, next: Instant::now() + Self::EVERY, last: 0 }
    }

    fn print(&mut self, tally: &Tally) {
        if Instant::now() < self.next {
            return;
        }
        self.next += Self::EVERY;
        let done = tally.requests();
        let rate = done - self.last;
        self.last = done;
        if self.shown {
            let errors = tally.errors;
            // A closed terminal must not stop the measurement.
            let _ = writeln!(std::io::stderr(), "{}: {done} done, {rate}/s, {errors} errors", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(seconds: &[Option<u64>], end: Instant) -> Vec<WaitStart> {
        seconds
            .iter()
            .map(|wait| Rc::new(Cell::new(wait.map(|wait| end - Duration::from_secs(wait)))))
            .collect()
    }

    #[test]
    fn a_server_silent_on_every_connection_is_an_error() {
        let (end, tally) = (Instant::now() + Duration::from_secs(60), RefCell::new(Tally::new()));
        assert_eq!(unanswered(&waits(&[Some(3), Some(5)], end), end, &tally), Duration::from_secs(5));
        assert_eq!(tally.borrow().errors, 1);
    }

    #[test]
    fn one_slow_request_among_others_is_only_a_figure() {
        let (end, tally) = (Instant::now() + Duration::from_secs(60), RefCell::new(Tally::new()));
        assert_eq!(unanswered(&waits(&[Some(0), Some(5)], end), end, &tally), Duration::from_secs(5));
        assert_eq!(unanswered(&waits(&[None, Some(5)], end), end, &tally), Duration::from_secs(5));
        assert_eq!(tally.borrow().errors, 0);
    }
}
