//! `angarium top`: queues and replicas now, drawn again and again until the user quits; or once, for a script.
//!
//! ```text
//! mod (arguments, the loop) → pages (requests beside the loop) → snapshot (the requests)
//!                           → view (the drawn text)
//!                           → live (the terminal: switch, draw, restore) → signals
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
use super::screen;
use angarium_settings::units;
use live::{LiveScreen, Next};
use pages::Pages;
use snapshot::{Snapshot, fetch};

/// How long the first page is waited for before the terminal is taken over.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Show queues and replicas live
///
/// Queues are sorted by their ready messages. Administrators also see the replicas. `q` ends it, the space bar refreshes the
/// page at once. When standard output is no terminal, the page is printed once.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    #[command(flatten)]
    caller: CallerArgs,
    /// Show everything once, and end
    #[arg(long)]
    once: bool,
    /// Pause between two pages
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
        let snapshot = fetch(&remote, args.limit)?;
        let people = view::page(&snapshot, remote.base(), screen::width().map(|width| (width, u16::MAX)));
        let shown = Display { people, json: snapshot.json()?, plain: snapshot.names() };
        return args.caller.printer().show(&shown);
    }
    let base = remote.base().to_owned();
    let mut pages = Pages::new(remote, args.limit);
    pages.request();
    // A failure of the first request is reported before the terminal is switched, unless the server is silent.
    let snapshot = pages.take_within(FIRST_WAIT).transpose()?.unwrap_or_default();
    let ended = draw(args, &base, pages, snapshot)?;
    // The terminal is restored here.
    if let Next::Signal(number) = ended {
        std::process::exit(128 + number);
    }
    Ok(())
}

/// Draws until the user or a signal ends it. Page requests run in another thread, so a hanging service blocks nothing.
fn draw(args: &TopArgs, base: &str, mut pages: Pages, mut snapshot: Snapshot) -> Result<Next, Failure> {
    let mut live = LiveScreen::begin()?;
    let mut due = Instant::now() + args.interval;
    loop {
        snapshot.silence = pages.silence();
        live.draw(|size| view::page(&snapshot, base, Some(size)))?;
        let is_due = || {
            let is_time = pages.is_idle() && Instant::now() >= due;
            pages.has_answer() || pages.silence() != snapshot.silence || is_time
        };
        match live.wait(is_due)? {
            ended @ (Next::End | Next::Signal(_)) => return Ok(ended),
            Next::Draw => continue,
            Next::Refresh => pages.request(),
            Next::Due if pages.is_idle() => pages.request(),
            Next::Due => {}
        }
        match pages.take() {
            None => continue,
            Some(Ok(new)) => snapshot = new,
            // A restarting server is polled until it is back. The last page stays on the screen.
            Some(Err(
                failure @ (Failure::Unreachable { .. } | Failure::Unavailable(_) | Failure::Strange { .. }),
            )) => {
                snapshot.last_error = Some(failure.to_string());
            }
            Some(Err(failure)) => return Err(failure),
        }
        due = Instant::now() + args.interval;
    }
}
