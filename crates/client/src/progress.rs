//! Progress of long work on standard error: a bar if the length is known, a count if not, and nothing without a
//! terminal. This module never writes to standard output.

use indicatif::{ProgressBar, ProgressStyle};

/// Min bytes of work for which a bar is shown.
const WORTH: u64 = 1 << 20;

/// A progress display. It is removed from the terminal on drop.
pub struct Progress(ProgressBar);

impl Progress {
    /// Creates the display for work on `length` bytes.
    pub fn new(length: Option<u64>) -> Self {
        let template = match length {
            Some(0..WORTH) => return Self(ProgressBar::hidden()),
            Some(_) => "{bar:40} {bytes}/{total_bytes} {eta} left, {msg}",
            None => "{spinner} {bytes} in {elapsed}, {msg}",
        };
        let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
        // The templates are constant and valid. An invalid one would leave the library's default bar.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Adds processed bytes, and sets the total number of processed messages.
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
