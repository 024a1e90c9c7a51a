//! `angarium queue migrate`, `migration` and `cancel-migration`: migration of a queue to another pool. For
//! administrators.

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::failure::Failure;
use super::printer::{Display, Printer};
use super::queue::{path, refuse_subscription};
use super::remote::{ApiRequest, Remote, Reply};
use angarium_settings::units;

/// Pause between two checks of a migration.
const CHECK_PAUSE: Duration = Duration::from_millis(200);

const NO_MIGRATION: &str = "it is in the pool of its queue and does not migrate";

#[derive(Args, Clone, Debug)]
pub(super) struct MigrateArgs {
    /// The queue
    queue: String,
    /// The pool that it moves to
    pool: String,
    /// Messages a second that are copied at most
    #[arg(long, value_name = "MESSAGES")]
    rate: Option<u32>,
    /// Wait so long until it is there
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    wait: Option<u64>,
}

#[derive(Deserialize)]
struct Progress {
    from: String,
    to: String,
    state: String,
    copied: u64,
    left: u64,
}

fn at(queue: &str) -> String {
    format!("{}/migrate", path(queue))
}

/// Starts a migration, and waits for its end if requested.
pub(super) fn migrate(remote: &Remote, printer: &mut Printer, args: &MigrateArgs) -> Result<(), Failure> {
    let MigrateArgs { queue, pool, rate, wait } = args;
    refuse_subscription(queue, NO_MIGRATION)?;
    let mut body = json!({"pool": pool});
    if let Some(rate) = rate {
        body["rate"] = json!(rate);
    }
    let begun = remote.call(ApiRequest::new(Method::POST, at(queue)).json(&body)?)?;
    let Some(seconds) = wait else { return show(printer, &begun) };
    let start = Instant::now();
    loop {
        match remote.get(at(queue)) {
            Err(Failure::Refused(refusal)) if refusal.is_missing() => {
                let (sentence, json) = (format!("queue {queue} is in pool {pool}"), json!({"name": queue}));
                return printer.done(&sentence, &json);
            }
            Err(failure) => return Err(failure),
            Ok(reply) if start.elapsed() > Duration::from_secs(*seconds) => {
                let Progress { left, .. } = reply.parse()?;
                return Err(Failure::Found(format!(
                    "queue {queue} is still on its way: {left} messages are left"
                )));
            }
            Ok(_) => sleep(CHECK_PAUSE),
        }
    }
}

/// Shows the progress of a migration.
pub(super) fn show_progress(remote: &Remote, printer: &mut Printer, queue: &str) -> Result<(), Failure> {
    refuse_subscription(queue, NO_MIGRATION)?;
    show(printer, &remote.get(at(queue))?)
}

/// Cancels a migration: the queue returns to its old pool.
pub(super) fn cancel(remote: &Remote, printer: &mut Printer, queue: &str) -> Result<(), Failure> {
    refuse_subscription(queue, NO_MIGRATION)?;
    show(printer, &remote.call(ApiRequest::new(Method::DELETE, at(queue)))?)
}

fn show(printer: &mut Printer, reply: &Reply) -> Result<(), Failure> {
    let Progress { from, to, state, copied, left } = reply.parse()?;
    let people =
        format!("{state} from pool {from} to pool {to}: {copied} messages went over, {left} are left\n");
    printer.show(&Display { people, json: reply.json_text()?, plain: vec![left.to_string()] })
}
