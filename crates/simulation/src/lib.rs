//! Whole clusters in one thread, from one seed. `docs/architecture/simulation.md` has the reasons and the use. This
//! file is the map of the crate and has no code.
//!
//! | level | module | its job |
//! |---|---|---|
//! | 0 | `faults`, `trace` | kinds of faults with their rates and counts; the events of a run |
//! | 1 | `scheduler` | which task makes the next step |
//! | 2 | `world` | random values, delays, faults and trace of a run; requests on their way |
//! | 3 | `process` | tasks of one replica that can be paused and ended together |
//! | 3 | `tree`, `pool` | the simulated ensemble and storages, and the handle of each for a process |
//! | 4 | `journal` | the simulated disk, and the journal of a process for its embedded tree and pool |
//! | 4 | `cluster`, `network` | the replicas with their API; requests of clients and between replicas |
//! | 5 | `weather` | faults of processes, sessions and storages |
//! | 5 | `requests`, `history`, `client` | requests as HTTP; what clients learnt, and the judges; one client |
//! | 6 | `scenario`, `workload`, `leftovers` | what a seed draws; what clients do; the judge of what stays |
//! | 7 | `run`, `logs`, `panics` | one run; the log and the panics of its tasks |
//! | 8 | `rounds`, `shrink` | many runs; a smaller scenario that fails too |
//!
//! A run: `run` draws the scenario, starts the replicas and waits until they serve. Faults begin, clients work, faults
//! end. When the cluster is whole again all queues are emptied, and every promise is judged.
//!
//! # Invariants
//!
//! * Nothing here reads a clock, draws a random value or walks a map that the seed does not determine.
//! * All tasks of a run are started by `Scheduler::tasks` or `Process::tasks`; none is polled out of turn.

pub mod client;
pub mod cluster;
pub mod faults;
pub mod history;
pub mod journal;
pub mod leftovers;
pub mod logs;
pub mod network;
pub mod panics;
pub mod pool;
pub mod process;
pub mod requests;
pub mod rounds;
pub mod run;
pub mod scenario;
pub mod scheduler;
pub mod shrink;
pub mod trace;
pub mod tree;
pub mod weather;
pub mod workload;
pub mod world;
