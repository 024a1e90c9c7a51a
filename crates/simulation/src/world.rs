//! What one seed determines outside of the brokers: random values, delays, faults, and the trace of all that happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use angarium_cluster::tasks::Tasks;
use tokio_util::task::TaskTracker;

use crate::faults::{Fault, FaultCounts, FaultRates};
use crate::scheduler::{Policy, Scheduler};
use crate::trace::Trace;

/// The part of the simulation that all of its other parts share. Clones share one world.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    random: Mutex<StdRng>,
    /// None until faults begin, and once the world is healed.
    rates: Mutex<FaultRates>,
    is_healed: AtomicBool,
    counts: Mutex<FaultCounts>,
    /// Broken promises that a part of the world has seen.
    violations: Mutex<Vec<String>>,
    trace: Mutex<Trace>,
    started: Instant,
    /// Requests on their way and servers: they go on when the process that sent a request has crashed.
    tasks: Tasks,
    scheduler: Scheduler,
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The request never arrives.
    NotSent,
    /// The request may arrive, before or after the sender learns this.
    Unknown,
}

/// The faults that a kind of request can meet.
#[derive(Clone, Copy, Debug)]
pub struct RequestFaults {
    /// The request is refused before it is sent.
    pub refused: Fault,
    /// The request is lost on its way.
    pub lost: Fault,
    /// The answer is lost, or the sender is told of a loss before the request arrives.
    pub unanswered: Fault,
    /// The request arrives late, by seconds.
    pub slow: Fault,
    /// The server keeps the request for minutes.
    pub hung: Fault,
}

/// What becomes of one request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    NotSent,
    Lost,
    AnswerLost,
    /// The sender is told of a loss first, then the request arrives.
    Late,
}

impl World {
    /// Creates the world of a seed. Must be called in a runtime whose clock is paused.
    pub fn new(seed: u64, policy: Policy, trace: Trace) -> Self {
        let scheduler = Scheduler::new(seed, policy);
        TaskTracker::new().spawn(scheduler.run());
        Self(Arc::new(Inner {
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            rates: Mutex::default(),
            is_healed: AtomicBool::new(false),
            counts: Mutex::default(),
            violations: Mutex::default(),
            trace: Mutex::new(trace),
            started: Instant::now(),
            tasks: scheduler.tasks(),
            scheduler,
        }))
    }

    /// Returns a random number below `bound`, which is not 0.
    pub fn below(&self, bound: u64) -> u64 {
        self.0.random.lock().random_range(0..bound)
    }

    /// Lets faults happen.
    pub fn begin_faults(&self, rates: FaultRates) {
        *self.0.rates.lock() = rates;
    }

    /// Returns whether a fault happens now, and counts it.
    pub fn happens(&self, fault: Fault) -> bool {
        let is_so = self.draws(fault);
        if is_so {
            self.count(fault);
        }
        is_so
    }

    /// Returns whether a fault is to happen now. The caller counts it if it does.
    pub fn draws(&self, fault: Fault) -> bool {
        let rate = self.0.rates.lock().of(fault);
        rate > 0 && self.below(FaultRates::OUT_OF) < u64::from(rate)
    }

    /// Returns whether a fault can happen now.
    pub fn is_possible(&self, fault: Fault) -> bool {
        self.0.rates.lock().of(fault) > 0
    }

    /// Counts a fault.
    pub fn count(&self, fault: Fault) {
        self.0.counts.lock().add(fault);
        self.note(|| format!("fault {fault:?}"));
    }

    /// Lets no more faults happen.
    pub fn heal(&self) {
        *self.0.rates.lock() = FaultRates::default();
        self.0.is_healed.store(true, Ordering::Relaxed);
        self.note(|| "healed".into());
    }

    /// Whether no more faults happen.
    pub fn is_healed(&self) -> bool {
        self.0.is_healed.load(Ordering::Relaxed)
    }

    /// Returns the faults that have happened.
    pub fn faults(&self) -> FaultCounts {
        self.0.counts.lock().clone()
    }

    /// Returns the simulated time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.started.elapsed()
    }

    /// Returns the milliseconds since the start.
    pub fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Notes a broken promise.
    pub fn violation(&self, text: String) {
        self.note(|| format!("VIOLATION {text}"));
        self.0.violations.lock().push(text);
    }

    /// Takes the broken promises.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.violations.lock())
    }

    /// Adds an event to the trace.
    pub fn note(&self, event: impl FnOnce() -> String) {
        self.0.trace.lock().add(self.elapsed(), event());
    }

    /// Returns the hash of the trace so far.
    pub fn trace_hash(&self) -> u64 {
        self.0.trace.lock().hash()
    }

    /// Takes the kept lines of the trace.
    pub fn take_lines(&self) -> Vec<String> {
        self.0.trace.lock().take_lines()
    }

    /// Returns the scheduler of all tasks.
    pub fn scheduler(&self) -> &Scheduler {
        &self.0.scheduler
    }

    /// Runs a task that belongs to no process. At the end of the run nothing is started any more.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if Handle::try_current().is_ok() {
            self.0.tasks.spawn(task);
        }
    }

    /// The way of a message through the network: no time at all, or some milliseconds. Messages overtake each other.
    pub async fn hop(&self) {
        let draw = self.below(100);
        match draw {
            0..=39 => {}
            40..=94 => tokio::time::sleep(Duration::from_millis(1 + draw % 5)).await,
            _ => tokio::time::sleep(Duration::from_millis(10 + self.below(90))).await,
        }
    }

    /// Sends a request to a server, which carries it out by `serve`, and returns the answer. The request continues when
    /// the sender is dropped.
    pub async fn request<T: Send + 'static>(
        &self,
        faults: RequestFaults,
        serve: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Loss> {
        self.exchange(faults, async { Some(serve()) }).await
    }

    /// As [`World::request`], for a server that takes its time. A server that gives no answer has lost the request.
    pub async fn exchange<T: Send + 'static>(
        &self,
        faults: RequestFaults,
        serve: impl Future<Output = Option<T>> + Send + 'static,
    ) -> Result<T, Loss> {
        let fate = self.fate(faults);
        if fate == Fate::NotSent {
            self.hop().await;
            return Err(Loss::NotSent);
        }
        let delay = self.delay(faults);
        let (reply, answer) = oneshot::channel();
        let world = self.clone();
        self.spawn(async move {
            world.hop().await;
            match fate {
                Fate::Lost | Fate::NotSent => return,
                Fate::Late => {
                    // The sender learns of the loss, and may act on it, before the request arrives.
                    drop(reply);
                    tokio::time::sleep(Duration::from_millis(world.below(3_000))).await;
                    drop(serve.await);
                    return;
                }
                Fate::Answered | Fate::AnswerLost => tokio::time::sleep(delay).await,
            }
            let served = serve.await;
            world.hop().await;
            if let (Fate::Answered, Some(served)) = (fate, served) {
                // The sender may have left.
                let _ = reply.send(served);
            }
        });
        answer.await.map_err(|_| Loss::Unknown)
    }

    fn fate(&self, faults: RequestFaults) -> Fate {
        if self.happens(faults.refused) {
            Fate::NotSent
        } else if self.happens(faults.lost) {
            Fate::Lost
        } else if self.happens(faults.unanswered) {
            if self.below(2) == 0 { Fate::AnswerLost } else { Fate::Late }
        } else {
            Fate::Answered
        }
    }

    fn delay(&self, faults: RequestFaults) -> Duration {
        if self.happens(faults.hung) {
            Duration::from_millis(60_000 + self.below(120_000))
        } else if self.happens(faults.slow) {
            Duration::from_millis(500 + self.below(9_500))
        } else {
            Duration::ZERO
        }
    }
}
