//! `angarium top`: queues and replicas as they are now, drawn again and again until the user ends it; or once, for a script.
//!
//! ```text
//! mod (arguments, the loop) → pages (asks beside the loop) → seen (what is asked)
//!                           → view (what is drawn)
//!                           → live (the terminal: taken over, drawn on, given back) → signals
//! ```

mod live;
mod pages;
mod signals;
mod snapshot;
mod view;

use std::time::{Duration, Instant};

use clap::Args;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::printer::{Display, Form};
use super::remote::Remote;
use super::screen;
use angarium_settings::units;
use live::{LiveScreen, Next};
use pages::Pages;
use snapshot::{Snapshot, look};

/// Show queues and replicas as they are now, again and again
///
/// Queues stand in the order of their ready messages. Replicas are shown to administrators. `q` ends it, the space bar looks at
/// once. Where standard output is no terminal it shows everything once.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    #[command(flatten)]
    caller: CallerArgs,
    /// Show everything once, and end
    #[arg(long)]
    once: bool,
    /// How long to wait before it looks again
    #[arg(long, default_value = "2s", value_name = "DURATION", value_parser = interval)]
    interval: Duration,
    /// Queues that are looked at, the first by name
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limit: u64,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = units::wait(text)?;
    let is_within = interval >= Duration::from_millis(200);
    if is_within { Ok(interval) } else { Err("it must be at least 200ms".to_owned()) }
}

pub(super) fn run(args: &TopArgs) -> Result<(), Failure> {
    let remote = args.caller.remote()?;
    if args.once || !screen::is_terminal() || args.caller.form() != Form::Table {
        let seen = look(&remote, args.limit)?;
        let people = view::page(&seen, remote.base(), screen::width().map(|width| (width, u16::MAX)));
        let shown = Display { people, json: seen.json()?, plain: seen.names() };
        return args.caller.printer().show(&shown);
    }
    // What cannot be shown at all is told before the terminal is taken over.
    let seen = look(&remote, args.limit)?;
    let ended = draw(args, remote, seen)?;
    // The terminal is as it was before.
    if let Next::Signal(number) = ended {
        std::process::exit(128 + number);
    }
    Ok(())
}

/// Draws until the user or a signal ends it. Pages are asked for beside that: a service that hangs holds nothing up.
fn draw(args: &TopArgs, remote: Remote, mut seen: Snapshot) -> Result<Next, Failure> {
    let base = remote.base().to_owned();
    let mut live = LiveScreen::begin()?;
    let mut pages = Pages::new(remote, args.limit);
    let mut due = Instant::now() + args.interval;
    loop {
        live.draw(|size| view::page(&seen, &base, Some(size)))?;
        match live.wait(|| pages.has_answer() || (pages.is_idle() && Instant::now() >= due))? {
            ended @ (Next::End | Next::Signal(_)) => return Ok(ended),
            Next::Draw => continue,
            Next::Look => pages.ask(),
            Next::Due if pages.is_idle() => pages.ask(),
            Next::Due => {}
        }
        match pages.take() {
            None => continue,
            Some(Ok(new)) => seen = new,
            // A server that restarts is looked at until it is back; what was last seen stays.
            Some(Err(
                failure @ (Failure::Unreachable { .. } | Failure::Unavailable(_) | Failure::Strange { .. }),
            )) => {
                seen.trouble = Some(failure.to_string());
            }
            Some(Err(failure)) => return Err(failure),
        }
        due = Instant::now() + args.interval;
    }
}
