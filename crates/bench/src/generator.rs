//! Owns the closed loop: every connection sends its next request when the last was answered, for a warm-up and a
//! measured window, on one thread.
//! Never starts or ends a server, and waits for one beyond the window no longer than for [`LAST_TURNS`], in which each connection
//! ends what it has begun: what it has claimed would be hidden from the next round.

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

/// Pause after a failure, so that a dead server is not asked in a tight loop.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// A server from which no connection has heard for this long at the end of the window has stopped answering.
const SILENCE: Duration = Duration::from_secs(1);

/// How long the turns that are under way at the end of the window may take, uncounted.
const LAST_TURNS: Duration = Duration::from_secs(1);

/// Connections that fill the queues.
const FILLERS: usize = 16;

/// What to load, and for how long.
pub struct Load {
    /// Word in the progress lines.
    pub name: &'static str,
    /// The server: where its replicas are, at least one. Connections are spread over them.
    pub targets: Vec<Target>,
    /// Its process, when known: its CPU is read at both ends of the window.
    pub pid: Option<u32>,
    /// What is asked.
    pub workload: Rc<Workload>,
    /// Connections, each with one request in flight.
    pub connections: usize,
    /// Time before the window, in which nothing is counted but errors.
    pub warmup: Duration,
    /// Length of the window.
    pub window: Duration,
}

/// What a window gave.
pub struct WindowResult {
    /// Its true length.
    pub elapsed: Duration,
    /// Longest wait of the requests that were still unanswered at its end: a server that stalls late shows here, not in
    /// the latencies.
    pub longest_unanswered: Duration,
    /// What was counted in it.
    pub tally: Tally,
    /// CPU of this process in it: the weight of the generator.
    pub generator_cpu: Duration,
    /// CPU of the server in it, when its process is known and was alive at the end.
    pub server_cpu: Option<Duration>,
}

/// Runs the load on a runtime of one thread, the calling one, so that the generator never takes more than one core
/// and its weight does not change with the number of cores. Blocks for warm-up and window and the last turns; `stop` ends it
/// early, as an error. Errors of requests are in the tally.
pub fn drive(load: &Load, stop: &CancellationToken) -> anyhow::Result<WindowResult> {
    on_this_thread(run(load, stop))?
}

/// Makes the queues that are not there, and notes in `made` which those are, also of a part when it fails. Fails with the
/// server's words.
pub fn create(load: &Load, made: &mut Vec<usize>) -> anyhow::Result<()> {
    on_one_line(load, async |line, tally| load.workload.create(line, tally, made).await)?;
    Ok(())
}

/// Deletes queues with their messages. Fails with the server's words.
pub fn remove(load: &Load, queues: &[usize]) -> anyhow::Result<()> {
    on_one_line(load, async |line, tally| load.workload.remove(line, tally, queues).await)?;
    Ok(())
}

/// Posts messages until there are at least `messages`, as many to each queue, on one connection after the other of a few.
/// Fails with the server's words.
pub fn fill(load: &Load, messages: u64, stop: &CancellationToken) -> anyhow::Result<()> {
    let filled = Cell::new(0);
    let tally = RefCell::new(Tally::new());
    let on_a_line = async |first: usize| {
        let mut line = BenchConnection::open(&load.targets[0], WaitStart::default()).await?;
        let mut turn = 0;
        while filled.get() < messages && tally.borrow().errors == 0 && !stop.is_cancelled() {
            let queue = load.workload.queue_of(first, turn, FILLERS);
            let more = load.workload.fill(&mut line, queue, &tally).await?;
            filled.set(filled.get() + more);
            turn += 1;
        }
        Ok(())
    };
    let done = on_this_thread(join_all((0..FILLERS).map(on_a_line)))?;
    done.into_iter().try_for_each(|line| told(load, line))?;
    ensure!(!stop.is_cancelled(), "stopped by a signal");
    first_error(load, &tally.into_inner())
}

/// One turn of the workload on one connection, to learn whether the server answers as it should and how long its
/// answers are. Fails with the server's words otherwise.
pub fn probe(load: &Load) -> anyhow::Result<Tally> {
    on_one_line(load, async |line, tally| {
        let turn = load.workload.turn(line, 0, tally);
        timeout(DEADLINE, turn)
            .await
            .unwrap_or_else(|_| Err(ConnectionFault::Failed("no answer to the probe".into())))
    })
}

/// Work on one connection, and what it counted. Fails with the server's words where there was an error.
fn on_one_line(
    load: &Load,
    work: impl AsyncFnOnce(&mut BenchConnection, &RefCell<Tally>) -> Result<(), ConnectionFault>,
) -> anyhow::Result<Tally> {
    let tally = RefCell::new(Tally::new());
    tally.borrow_mut().open_window();
    let done = on_this_thread(async {
        let mut line = BenchConnection::open(&load.targets[0], WaitStart::default()).await?;
        work(&mut line, &tally).await
    })?;
    told(load, done)?;
    let tally = tally.into_inner();
    first_error(load, &tally)?;
    Ok(tally)
}

fn told(load: &Load, done: Result<(), ConnectionFault>) -> anyhow::Result<()> {
    done.or_else(|broken| match broken {
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
    // The tasks of the connections; they end when this is dropped, whatever their server does.
    let mut connections = JoinSet::new();
    let is_over = Rc::new(Cell::new(false));
    let waits: Vec<WaitStart> = (0..load.connections).map(|_| WaitStart::default()).collect();
    for (number, waiting) in waits.iter().enumerate() {
        let (waiting, is_over) = (Rc::clone(waiting), Rc::clone(&is_over));
        let slot = Slot { number, of: load.connections, waiting, turn: 0, is_over };
        let target = load.targets[number % load.targets.len()].clone();
        let workload = Rc::clone(&load.workload);
        connections.spawn_local(slot.keep_asking(target, workload, Rc::clone(&tally)));
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
    is_over.set(true);
    // A turn that takes longer is given up.
    let _ = timeout(LAST_TURNS, connections.join_all()).await;
    Ok(WindowResult {
        elapsed: after.at - before.at,
        longest_unanswered,
        tally: counted,
        generator_cpu: after.generator.saturating_sub(before.generator),
        server_cpu: after.server.zip(before.server).map(|(after, before)| after.saturating_sub(before)),
    })
}

/// The longest wait for an answer at the end of the window. When even the shortest is long, the server has stopped
/// answering, and that is an error.
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

/// One of the connections that are kept up.
struct Slot {
    number: usize,
    of: usize,
    waiting: WaitStart,
    turn: usize,
    /// Whether no turn begins any more.
    is_over: Rc<Cell<bool>>,
}

impl Slot {
    /// Opens a line, takes turns on it, opens the next when it breaks.
    async fn keep_asking(mut self, target: Target, workload: Rc<Workload>, tally: Rc<RefCell<Tally>>) {
        while !self.is_over.get() {
            let Err(broken) = self.one_line(&target, &workload, &tally).await else { return };
            self.waiting.set(None);
            let ConnectionFault::Failed(why) = broken else {
                tally.borrow_mut().reconnects += 1;
                continue;
            };
            tally.borrow_mut().fail(why);
            sleep(AFTER_FAILURE).await;
        }
    }

    async fn one_line(
        &mut self,
        target: &Target,
        workload: &Workload,
        tally: &RefCell<Tally>,
    ) -> Result<(), ConnectionFault> {
        let mut line = BenchConnection::open(target, Rc::clone(&self.waiting)).await?;
        while !self.is_over.get() {
            let queue = workload.queue_of(self.number, self.turn, self.of);
            self.turn = self.turn.wrapping_add(1);
            workload.turn(&mut line, queue, tally).await?;
        }
        Ok(())
    }
}

/// Clocks at one end of the window.
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

/// Sleeps for `time`, with a progress line each second.
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
            () = sleep_until(end.min(progress.next)) => progress.tell(&tally.borrow()),
        }
    }
    Ok(())
}

/// The lines on the terminal.
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

    fn tell(&mut self, tally: &Tally) {
        if Instant::now() < self.next {
            return;
        }
        self.next += Self::EVERY;
        let done = tally.requests();
        let rate = done - self.last;
        self.last = done;
        if self.shown {
            let errors = tally.errors;
            // A terminal that has gone is no reason to stop measuring.
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
