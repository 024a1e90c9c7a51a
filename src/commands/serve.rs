//! `angarium serve`: runs the service until it is told to stop.

use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{here, runtime};
use crate::config::layers::DoubtfulVariable;
use crate::config::{Config, LogFormat};
use crate::server::Server;
use crate::telemetry;
use angarium_core::time::millis;

/// The valid forms of `--log`.
const FILTER: &str = "it is one of off, error, warn, info, debug and trace, or levels by module as in \
    'warn,angarium_broker=debug'";

/// Max time to finish requests and to close the stores. On a disk that hangs they never finish.
const END: Duration = Duration::from_secs(30);

pub(super) fn run(config: Config, doubtful: &[DoubtfulVariable]) -> anyhow::Result<()> {
    let filter = &config.log;
    // The error text of the filter's parser adds nothing.
    telemetry::start(config.log_format, filter)
        .map_err(|_| anyhow!("'{filter}' is not a filter of the log (--log, ANGARIUM_LOG): {FILTER}"))?;
    for DoubtfulVariable { name, meant } in doubtful {
        warn!(variable = name, meant, "unknown environment variable");
    }
    let runtime = runtime()?;
    runtime.block_on(async {
        let server = Server::open(&config).await?;
        // A program that reads the address may stop the service at once.
        let stop = stop_signal()?;
        greet(&config, server.address()?)?;
        server.run(stop, end_in_time).await?;
        anyhow::Ok(())
    })?;
    info!("stopped");
    Ok(())
}

/// Ends the process after [`END`], if it has not ended by then. A thread that waits for a disk cannot be stopped.
fn end_in_time() {
    let end = || {
        thread::sleep(END);
        error!(timeout_ms = millis(END), "stores not closed in time");
        std::process::exit(1);
    };
    if let Err(error) = thread::Builder::new().name("end".to_owned()).spawn(end) {
        warn!(%error, "end of process without bound");
    }
}

/// Logs the address of the service. With the text format, also prints it for people, with a request to try.
fn greet(config: &Config, address: SocketAddr) -> std::io::Result<()> {
    let data = config.data.canonicalize()?;
    let (scheme, version) = (config.scheme(), env!("CARGO_PKG_VERSION"));
    info!(%address, url = format!("{scheme}://{address}"), version, data = %data.display(), "listening");
    if config.log_format == LogFormat::Json {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "angarium {version} listening on {scheme}://{address}")?;
    writeln!(out, "data in {}", data.display())?;
    writeln!(
        out,
        "try: curl -i {scheme}://{}/v2/queues/demo/messages --json '{{\"messages\": [{{\"body\": \"hello\"}}]}}'",
        here::local(address)
    )?;
    out.flush()
}

/// Returns a token that the first SIGTERM or SIGINT cancels. A second signal ends the process at once, for a person who
/// does not want to wait.
fn stop_signal() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopped = stop.clone();
    #[expect(
        clippy::disallowed_methods,
        reason = "it must outlive every tracker, and ends with the process"
    )]
    tokio::spawn(async move {
        for pressed in 0.. {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if pressed > 0 {
                std::process::exit(130);
            }
            info!("stopping");
            stopped.cancel();
        }
    });
    Ok(stop)
}
