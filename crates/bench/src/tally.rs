//! Counts of one run of the generator: latencies by kind of request, messages, errors. This module never reads a clock
//! and never talks to a server.

use std::time::Duration;

use hdrhistogram::Histogram;
use http::StatusCode;

use super::connection::BenchAnswer;

/// Max stored error texts. Further errors are only counted.
const ERRORS_SHOWN: usize = 5;

/// Max characters of an unexpected answer in an error text.
const ANSWER_SHOWN: usize = 200;

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `POST …/messages`
    Post,
    /// `POST …/claims`
    Claim,
    /// `DELETE …/messages/{id}?claim_id=…`
    Delete,
}

impl Verb {
    /// All kinds, in the order of a cycle.
    pub const ALL: [Self; 3] = [Self::Post, Self::Claim, Self::Delete];

    /// Returns the name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Post => "post",
            Self::Claim => "claim",
            Self::Delete => "delete",
        }
    }
}

/// Counts of the answered requests of one kind.
pub struct VerbTally {
    /// Time from sending to the end of the answer in µs, with three significant digits.
    pub latency: Histogram<u64>,
    /// Total size of the answers' bodies in bytes.
    pub bytes: u64,
}

impl VerbTally {
    fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, 60_000_000, 3)
            .expect("the bounds are constants that fit each other: 1 µs to 60 s, three digits");
        Self { latency, bytes: 0 }
    }

    /// Returns the mean size of an answer's body in bytes, rounded; 0 without answers.
    pub fn mean_bytes(&self) -> usize {
        let count = self.latency.len().max(1);
        usize::try_from((self.bytes + count / 2) / count).unwrap_or(usize::MAX)
    }
}

/// Counts of one run. Requests and messages count only while the window is open, errors always.
pub struct Tally {
    window_open: bool,
    answered: [VerbTally; 3],
    /// Messages whose last request was answered: the post for `post`, the delete for `cycle`.
    pub messages: u64,
    /// Claims that returned nothing, because other connections had claimed all messages.
    pub empty_claims: u64,
    /// Failed requests: an unexpected status, a broken connection, a timeout.
    pub errors: u64,
    /// The first error texts.
    pub first_errors: Vec<String>,
    /// Connections that the server closed between two requests, which is allowed.
    pub reconnects: u64,
}

impl Tally {
    /// Creates empty counts with a closed window.
    pub fn new() -> Self {
        Self {
            window_open: false,
            answered: std::array::from_fn(|_| VerbTally::new()),
            messages: 0,
            empty_claims: 0,
            errors: 0,
            first_errors: Vec::new(),
            reconnects: 0,
        }
    }

    /// Starts counting answers.
    pub fn open_window(&mut self) {
        self.window_open = true;
    }

    /// Stops counting answers.
    pub fn shut_window(&mut self) {
        self.window_open = false;
    }

    /// Returns the counts of one kind of request.
    pub fn of(&self, verb: Verb) -> &VerbTally {
        &self.answered[verb as usize]
    }

    /// Returns the number of answered requests of all kinds.
    pub fn requests(&self) -> u64 {
        self.answered.iter().map(|kind| kind.latency.len()).sum()
    }

    /// Counts an answer with the expected status.
    pub fn count(&mut self, verb: Verb, answer: &BenchAnswer) {
        if self.window_open {
            let kind = &mut self.answered[verb as usize];
            kind.latency.saturating_record(micros(answer.took));
            kind.bytes += answer.body.len() as u64;
        }
    }

    /// Counts messages that have completed their workload.
    pub fn count_messages(&mut self, messages: u64) {
        if self.window_open {
            self.messages += messages;
        }
    }

    /// Counts a claim that returned nothing.
    pub fn count_empty_claim(&mut self) {
        if self.window_open {
            self.empty_claims += 1;
        }
    }

    /// Records an answer with an unexpected status.
    pub fn refuse(&mut self, verb: Verb, status: StatusCode, body: &[u8]) {
        let body = String::from_utf8_lossy(body);
        let shown: String = body.chars().take(ANSWER_SHOWN).collect();
        self.fail(format!("{}: {status}: {shown}", verb.name()));
    }

    /// Records a request without a usable answer.
    pub fn fail(&mut self, text: String) {
        self.errors += 1;
        if self.first_errors.len() < ERRORS_SHOWN {
            self.first_errors.push(text);
        }
    }
}

/// Converts to whole microseconds, rounded up, because no latency is zero.
fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn answer(micros: u64, body: &'static str) -> BenchAnswer {
        let took = Duration::from_micros(micros);
        BenchAnswer { status: StatusCode::CREATED, body: Bytes::from_static(body.as_bytes()), took }
    }

    #[test]
    fn answers_count_only_while_the_window_is_open() {
        let mut tally = Tally::new();
        tally.count(Verb::Post, &answer(10, "ab"));
        tally.open_window();
        tally.count(Verb::Post, &answer(20, "abc"));
        tally.count(Verb::Delete, &answer(30, ""));
        tally.shut_window();
        tally.count(Verb::Post, &answer(40, "abcd"));
        assert_eq!(tally.requests(), 2);
        assert_eq!(tally.of(Verb::Post).latency.max(), 20);
        assert_eq!(tally.of(Verb::Post).mean_bytes(), 3);
        assert_eq!(tally.of(Verb::Claim).mean_bytes(), 0);
    }

    #[test]
    fn errors_always_count_and_only_the_first_are_kept() {
        let mut tally = Tally::new();
        for _ in 0..9 {
            tally.refuse(Verb::Claim, StatusCode::SERVICE_UNAVAILABLE, b"full");
        }
        assert_eq!(tally.errors, 9);
        assert_eq!(tally.first_errors.len(), ERRORS_SHOWN);
        assert_eq!(tally.first_errors[0], "claim: 503 Service Unavailable: full");
    }

    #[test]
    fn micros_round_up() {
        assert_eq!(micros(Duration::from_nanos(1)), 1);
        assert_eq!(micros(Duration::from_nanos(2_000)), 2);
    }
}
