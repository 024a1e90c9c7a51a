//! Owns what a person is told beside the output, on standard error: it changes neither the output nor the exit code.

use std::io::Write;

use super::failure::printable;
use super::queue;
use super::remote::{Remote, Reply};

/// The header by which the server tells whether there is the queue that it speaks of. Zaqar does not tell.
const EXISTS: &str = "x-queue-exists";

/// Tells a person something. There is nothing to do when no user can hear it.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "angarium: {}", printable(text));
}

/// Whether an answer is about a queue that does not exist.
pub fn is_of_missing(reply: &Reply) -> bool {
    reply.headers.get(EXISTS).is_some_and(|value| value == "false")
}

/// Asks whether a queue is missing; false where that cannot be found out: it is asked for a hint, and fails nothing.
pub fn is_missing(remote: &Remote, queue: &str) -> bool {
    remote.get(queue::path(queue)).is_ok_and(|reply| is_of_missing(&reply))
}

/// Tells a person that a queue does not exist, where nothing was found in it.
pub fn tell_if_missing(remote: &Remote, queue: &str) {
    if is_missing(remote, queue) {
        tell(&format!("queue {queue} does not exist"));
    }
}
