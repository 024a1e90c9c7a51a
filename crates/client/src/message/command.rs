//! The command that `angarium message consume` runs for a message: its input, its standard error, and its end.

use std::collections::VecDeque;
use std::io::{Read, Write, stderr};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::Message;
use crate::failure::Failure;

/// Max characters of a reason that the server takes.
const REASON_CHARS: usize = 512;
/// Bytes that are remembered of the standard error: a last line of that many characters, and blank lines after it.
const TAIL_BYTES: usize = 8 << 10;
/// Max time to wait for the rest of the standard error: a process that the command has started may hold it open.
const REST: Duration = Duration::from_secs(1);
/// Parts of the standard error on their way. The command waits if this process renews its claim meanwhile.
const EVENTS: usize = 16;

/// What is done with the standard error of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOutput {
    /// It is that of this process.
    Shared,
    /// It is copied to that of this process, and its end is remembered.
    Remembered,
}

/// How a command ended.
pub struct CommandEnd {
    /// Its exit status.
    pub status: ExitStatus,
    /// The last line of its standard error, if it failed, and that was remembered and has one.
    last_line: Option<String>,
}

impl CommandEnd {
    /// Returns why the command failed: the last line of its standard error, or else its exit status.
    pub fn reason(&self) -> String {
        self.last_line.clone().unwrap_or_else(|| self.status.to_string())
    }
}

/// What a running command does.
enum CommandEvent {
    /// It writes this to its standard error.
    Errors(Vec<u8>),
    /// It ends.
    Exit(std::io::Result<ExitStatus>),
}

/// Runs a command for a message, with the body as its input, and calls `meanwhile` each time that so much time has
/// passed.
pub fn run(
    command: &[String],
    message: &Message,
    errors: ErrorOutput,
    every: Duration,
    meanwhile: impl Fn(),
) -> Result<CommandEnd, Failure> {
    let [program, arguments @ ..] = command else {
        return Err(Failure::Usage("there is no command to run".into()));
    };
    let broken = |error: std::io::Error| Failure::Usage(format!("{program}: {error}"));
    let mut child = start(program, arguments, message, errors).map_err(broken)?;
    // The channel for the events: from the thread that reads the errors, and from the one that waits for the exit.
    let (sender, events) = sync_channel(EVENTS);
    if let Some(source) = child.stderr.take() {
        let sender = sender.clone();
        // It ends with the standard error of the command, or with this process.
        std::thread::spawn(move || copy(source, stderr(), &sender));
    }
    let mut tail = Tail::default();
    let status = wait(child, message, sender, || tail.status(&events, every, &meanwhile));
    let status = status
        .ok_or_else(|| Failure::Found(format!("{program}: its exit status is unknown")))?
        .map_err(broken)?;
    let last_line = if status.success() { None } else { tail.last_line(&events) };
    Ok(CommandEnd { status, last_line })
}

fn start(
    program: &str,
    arguments: &[String],
    message: &Message,
    errors: ErrorOutput,
) -> std::io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).env("ANGARIUM_MESSAGE_ID", message.id()).stdin(Stdio::piped());
    match errors {
        ErrorOutput::Shared => command.stderr(Stdio::inherit()),
        ErrorOutput::Remembered => command.stderr(Stdio::piped()),
    };
    command.spawn()
}

/// Feeds the command, sends its exit, and returns what the receiver returns.
fn wait<T>(
    mut child: Child,
    message: &Message,
    sender: SyncSender<CommandEvent>,
    receive: impl FnOnce() -> T,
) -> T {
    let input = child.stdin.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A command may ignore its input.
            input.map(|mut input| input.write_all(message.plain().as_bytes()))
        });
        scope.spawn(move || sender.send(CommandEvent::Exit(child.wait())));
        receive()
    })
}

/// Copies the standard error of a command, and sends it part by part.
fn copy(mut source: impl Read, mut copy: impl Write, sender: &SyncSender<CommandEvent>) {
    let mut part = [0; 4 << 10];
    while let Ok(length @ 1..) = source.read(&mut part) {
        // The command must not fail because there is no reader of its errors any more.
        let _ = copy.write_all(&part[..length]);
        let _ = sender.send(CommandEvent::Errors(part[..length].to_vec()));
    }
}

/// The last bytes of the standard error of a command.
#[derive(Default)]
struct Tail(VecDeque<u8>);

impl Tail {
    /// Receives events until the command ends, and returns its exit status; none if that is lost.
    fn status(
        &mut self,
        events: &Receiver<CommandEvent>,
        every: Duration,
        meanwhile: &impl Fn(),
    ) -> Option<std::io::Result<ExitStatus>> {
        let mut next = Instant::now() + every;
        loop {
            match events.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(CommandEvent::Errors(part)) => self.add(&part),
                Ok(CommandEvent::Exit(status)) => return Some(status),
                Err(RecvTimeoutError::Timeout) => {
                    meanwhile();
                    next = Instant::now() + every;
                }
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn add(&mut self, part: &[u8]) {
        self.0.extend(part);
        let excess = self.0.len().saturating_sub(TAIL_BYTES);
        self.0.drain(..excess);
    }

    /// Receives the rest, and returns the last line that is not blank.
    fn last_line(&mut self, events: &Receiver<CommandEvent>) -> Option<String> {
        let deadline = Instant::now() + REST;
        while let Ok(CommandEvent::Errors(part)) =
            events.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            self.add(&part);
        }
        last_line(&String::from_utf8_lossy(self.0.make_contiguous()))
    }
}

/// Returns the last line that is not blank, without control characters, within the bound of a reason.
fn last_line(text: &str) -> Option<String> {
    let plain = |line: &str| {
        let kept: String = line.chars().filter(|c| !c.is_control()).collect();
        kept.trim().chars().take(REASON_CHARS).collect::<String>()
    };
    text.rsplit(['\n', '\r']).map(plain).find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_is_plain_and_bounded() {
        assert_eq!(last_line("one\ntwo\r\n \n").as_deref(), Some("two"));
        assert_eq!(last_line("\u{1b}[31mno space\u{1b}[0m").as_deref(), Some("[31mno space[0m"));
        assert_eq!(last_line("\n \t\n"), None);
        assert_eq!(last_line(&"ü".repeat(600)).map(|line| line.chars().count()), Some(REASON_CHARS));
    }

    #[test]
    fn errors_are_copied_and_their_end_is_remembered() {
        let text = [b"begin".as_slice(), &[b' '; 2 * TAIL_BYTES], b"\nend\n"].concat();
        let (sender, events) = sync_channel(EVENTS);
        let mut copied = Vec::new();
        copy(text.as_slice(), &mut copied, &sender);
        drop(sender);
        let mut tail = Tail::default();
        assert_eq!(tail.last_line(&events).as_deref(), Some("end"));
        assert_eq!(
            (copied, tail.0.make_contiguous()),
            (text.clone(), &mut text[text.len() - TAIL_BYTES..].to_vec()[..])
        );
    }

    #[test]
    fn errors_held_open_do_not_hold_the_end() {
        let (sender, events) = sync_channel(EVENTS);
        sender.send(CommandEvent::Errors(b"no space\n".to_vec())).unwrap();
        assert_eq!(Tail::default().last_line(&events).as_deref(), Some("no space"));
    }
}
