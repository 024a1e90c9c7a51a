//! The trace of a run: every event with its time. The same seed gives the same trace, byte for byte.

use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

/// The events so far: their hash, and their lines if these are kept.
#[derive(Default)]
pub struct Trace {
    hash: Xxh3,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// A trace of which only the hash is kept.
    pub fn hashed() -> Self {
        Self::default()
    }

    /// A trace whose lines are kept.
    pub fn kept() -> Self {
        Self { hash: Xxh3::default(), lines: Some(Vec::new()) }
    }

    /// Adds an event.
    pub fn add(&mut self, at: Duration, event: String) {
        let line = format!("{:>11.3} {event}", at.as_secs_f64());
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
    }

    /// Returns the hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash.digest()
    }

    /// Takes the kept lines.
    pub fn take_lines(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default()
    }
}
