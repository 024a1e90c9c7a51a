//! `angarium pool drain`: migration of all queues of a pool to other pools. For administrators.

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::failure::Failure;
use super::pool::path;
use super::printer::{Display, Printer};
use super::remote::{ApiRequest, Remote, Reply};
use angarium_settings::units;

/// Pause between two checks of a draining pool.
const CHECK_PAUSE: Duration = Duration::from_millis(500);

#[derive(Args, Clone, Debug)]
pub(super) struct DrainArgs {
    /// The pool
    pool: String,
    /// Messages a second that the migration of each queue copies at most
    #[arg(long, value_name = "MESSAGES")]
    rate: Option<u32>,
    /// Wait so long until no queue is in it
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    wait: Option<u64>,
    /// End it: the pool takes new queues again, and what has gone stays where it is
    #[arg(long, conflicts_with_all = ["rate", "wait"])]
    undo: bool,
}

#[derive(Deserialize)]
struct Progress {
    done: bool,
    waiting: u64,
    moving: u64,
}

/// Starts to drain a pool and waits for the end if requested, or cancels the drain.
pub(super) fn drain(remote: &Remote, printer: &mut Printer, args: &DrainArgs) -> Result<(), Failure> {
    let DrainArgs { pool, rate, wait, undo } = args;
    let at = format!("{}/drain", path(pool));
    if *undo {
        remote.delete(at)?;
        return printer.done(&format!("pool {pool} is active"), &json!({"name": pool}));
    }
    let body = rate.map_or_else(|| json!({}), |rate| json!({"rate": rate}));
    let mut reply = remote.call(ApiRequest::new(Method::POST, at.clone()).json(&body)?)?;
    let start = Instant::now();
    while let Some(seconds) = wait {
        let Progress { done, waiting, moving } = reply.parse()?;
        if done {
            break;
        }
        if start.elapsed() > Duration::from_secs(*seconds) {
            let left = waiting + moving;
            return Err(Failure::Found(format!("pool {pool} is not empty: {left} queues are left")));
        }
        sleep(CHECK_PAUSE);
        reply = remote.get(at.clone())?;
    }
    show(printer, &reply)
}

fn show(printer: &mut Printer, reply: &Reply) -> Result<(), Failure> {
    let Progress { done, waiting, moving } = reply.parse()?;
    let people = if done {
        "no queue is in it\n".to_owned()
    } else {
        format!("{moving} queues are on their way, and {waiting} wait\n")
    };
    printer.show(&Display { people, json: reply.json_text()?, plain: vec![(waiting + moving).to_string()] })
}
