//! Owns the progress of long work on standard error: a bar where the length is known, a count where it is not, and
//! nothing where no user looks. Never writes to standard output.

use indicatif::{ProgressBar, ProgressStyle};

/// Longer than this many bytes, work is worth a bar.
const WORTH: u64 = 1 << 20;

/// Progress that is shown on a terminal only. It is taken away when it ends.
pub struct Progress(ProgressBar);

impl Progress {
    /// Of work on `length` bytes.
    pub fn new(length: Option<u64>) -> Self {
        let template = match length {
            Some(0..WORTH) => return Self(ProgressBar::hidden()),
            Some(_) => "{bar:40} {bytes}/{total_bytes} {eta} left, {msg}",
            None => "{spinner} {bytes} in {elapsed}, {msg}",
        };
        let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
        // The templates are constant; a style that is none would leave the bar of the library.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Notes more bytes, and how many messages are done in all.
    pub fn advance(&self, bytes: u64, messages: usize) {
        self.0.inc(bytes);
        if !self.0.is_hidden() {
            self.0.set_message(format!("{messages} messages"));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
