//! Notices to the user on standard error. They change neither the output nor the exit code.

use std::io::Write;

use super::failure::printable;
use super::queue;
use super::remote::{Remote, Reply};

/// The header that tells whether the queue of the response exists. Zaqar does not send it.
const EXISTS: &str = "x-queue-exists";

/// Prints a notice. A failure is ignored, because there is no other way to report it.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "angarium: {}", printable(text));
}

/// Returns whether a response is about a queue that does not exist.
pub fn is_of_missing(reply: &Reply) -> bool {
    reply.headers.get(EXISTS).is_some_and(|value| value == "false")
}

/// Asks whether a queue is missing. Returns false on failure, because the result is only used for a hint.
pub fn is_missing(remote: &Remote, queue: &str) -> bool {
    remote.get(queue::path(queue)).is_ok_and(|reply| is_of_missing(&reply))
}

/// Prints a notice if a queue does not exist. Call this when nothing was found in it.
pub fn tell_if_missing(remote: &Remote, queue: &str) {
    if is_missing(remote, queue) {
        tell(&format!("{} does not exist", queue::called(queue)));
    }
}
