//! `angarium backup`: stores a backup of a running service in a directory, or writes it to standard output.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use http::Method;
use serde_json::json;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::remote::ApiRequest;
use angarium_backup::{DirectoryError, Manifest, ReadError, check_target, read, store};
use angarium_settings::units;

/// Back up a running service on one machine: all queues, claims and messages at one moment (administrators)
#[derive(Args, Clone, Debug)]
pub struct BackupArgs {
    /// Directory of the backup, which is absent or empty; `-` writes the backup to standard output
    #[arg(value_name = "DIR")]
    target: PathBuf,

    /// How much is read in a second at most, so that the service has time for its clients; 0 for as much as it gives
    #[arg(long, default_value = "32MB", value_name = "SIZE", value_parser = units::bytes)]
    rate: u64,

    #[command(flatten)]
    caller: CallerArgs,
}

pub(super) fn run(args: &BackupArgs) -> Result<(), Failure> {
    let is_output = args.target.as_os_str() == "-";
    if !is_output {
        // Before the service begins: it makes one backup at a time.
        check_target(&args.target).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    let stream = args.caller.remote()?.stream(ApiRequest::new(Method::POST, "/v2/backup"))?;
    let stream = PacedReader::new(stream, args.rate);
    if is_output {
        let mut output = io::stdout().lock();
        read(Copying { source: stream, output: &mut output }, &mut ()).map_err(failure)?;
        return output.flush().map_err(|error| Failure::of_output(&error));
    }
    let manifest = store(stream, &args.target).map_err(|error| match error {
        DirectoryError::Backup(error) => failure(error),
        error => Failure::Found(error.to_string()),
    })?;
    let sentence = format!("{} is a backup: {}", args.target.display(), summary(&manifest));
    let head = &manifest.head;
    let facts = json!({
        "backup": args.target.display().to_string(),
        "installation": head.installation,
        "point": head.point,
        "stopped_us": head.stopped_us,
        "pairs": manifest.pairs(),
        "bytes": manifest.bytes(),
        "outside": head.outside,
    });
    args.caller.printer().done(&sentence, &facts)
}

/// Describes a backup in a few words.
fn summary(manifest: &Manifest) -> String {
    let stopped = manifest.head.stopped_us;
    let stopped = format!("{}.{:03} ms", stopped / 1_000, stopped % 1_000);
    let (journals, pairs, bytes) = (manifest.head.journals.len(), manifest.pairs(), manifest.bytes());
    let stores = if journals == 1 { "store" } else { "stores" };
    let mut text =
        format!("{journals} {stores}, {pairs} records, {bytes} bytes; commits were stopped for {stopped}");
    if !manifest.head.outside.is_empty() {
        text.push_str(&format!("; without the pools {}", manifest.head.outside.join(", ")));
    }
    text
}

fn failure(error: ReadError) -> Failure {
    let text = match &error {
        ReadError::Io(cause) => format!("{error}: {cause}"),
        error => error.to_string(),
    };
    Failure::Found(format!("there is no backup: {text}"))
}

/// Max time without reading that later reads make up for. After a longer stall the service must not be read without a
/// bound.
const READ_CREDIT: Duration = Duration::from_secs(1);

/// A reader of at most so many bytes in a second.
struct PacedReader<R> {
    source: R,
    /// Bytes in a second; 0 for no bound.
    rate: u64,
    began: Instant,
    /// Time after the begin at which the rate allows the next bytes.
    due: Duration,
}

impl<R> PacedReader<R> {
    fn new(source: R, rate: u64) -> Self {
        Self { source, rate, began: Instant::now(), due: Duration::ZERO }
    }

    /// Returns how long the next bytes must wait, `elapsed` after the begin.
    fn pause(&mut self, elapsed: Duration) -> Duration {
        if self.rate == 0 {
            return Duration::ZERO;
        }
        self.due = self.due.max(elapsed.saturating_sub(READ_CREDIT));
        self.due.saturating_sub(elapsed)
    }

    /// Notes bytes that were read.
    fn note_read(&mut self, bytes: usize) {
        let nanos = (bytes as u128 * 1_000_000_000).checked_div(u128::from(self.rate)).unwrap_or(0);
        self.due = self.due.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
    }
}

impl<R: Read> Read for PacedReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let elapsed = self.began.elapsed();
        sleep(self.pause(elapsed));
        let read = self.source.read(bytes)?;
        self.note_read(read);
        Ok(read)
    }
}

/// A reader that passes on all that is read.
struct Copying<'o, R> {
    source: R,
    output: &'o mut dyn Write,
}

impl<R: Read> Read for Copying<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(bytes)?;
        self.output.write_all(&bytes[..read])?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_ahead_of_the_rate_wait() {
        let mut reader = PacedReader::new(io::repeat(0), 1_000_000);
        assert_eq!(reader.read(&mut [0; 1_000]).unwrap(), 1_000);
        let elapsed = Duration::from_micros;
        assert_eq!((reader.pause(elapsed(0)), reader.pause(elapsed(400))), (elapsed(1_000), elapsed(600)));
        assert_eq!(reader.pause(elapsed(5_000)), Duration::ZERO);
        assert_eq!(PacedReader { rate: 0, ..reader }.pause(elapsed(0)), Duration::ZERO);
    }

    #[test]
    fn stall_is_made_up_for_by_one_second_of_reading() {
        let mut reader = PacedReader::new(io::empty(), 1_000_000);
        let stalled = Duration::from_secs(60);
        assert_eq!(reader.pause(stalled), Duration::ZERO);
        reader.note_read(1_000_000);
        assert_eq!(reader.pause(stalled), Duration::ZERO);
        reader.note_read(500_000);
        assert_eq!(reader.pause(stalled), Duration::from_millis(500));
    }
}
