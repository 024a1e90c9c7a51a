//! Owns what one run of the generator counts: latencies by kind of request, messages, errors.
//! Never measures time itself and never talks to a server.

use std::time::Duration;

use hdrhistogram::Histogram;
use http::StatusCode;

use super::connection::BenchAnswer;

/// Error texts kept; the rest are only counted.
const ERRORS_SHOWN: usize = 5;

/// Longest piece of an unexpected answer that is shown, in characters.
const ANSWER_SHOWN: usize = 200;

/// The kinds of request.
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
    /// Every kind, in the order of a cycle.
    pub const ALL: [Self; 3] = [Self::Post, Self::Claim, Self::Delete];

    /// The word in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Post => "post",
            Self::Claim => "claim",
            Self::Delete => "delete",
        }
    }
}

/// The answered requests of one kind.
pub struct VerbTally {
    /// Time from sending to the end of the answer, in µs, three digits.
    pub latency: Histogram<u64>,
    /// Sum of the sizes of the answers' bodies, in bytes.
    pub bytes: u64,
}

impl VerbTally {
    fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, 60_000_000, 3)
            .expect("the bounds are constants that fit each other: 1 µs to 60 s, three digits");
        Self { latency, bytes: 0 }
    }

    /// Mean size of an answer's body in bytes, rounded; 0 when there was none.
    pub fn mean_bytes(&self) -> usize {
        let count = self.latency.len().max(1);
        usize::try_from((self.bytes + count / 2) / count).unwrap_or(usize::MAX)
    }
}

/// What one run has counted. Requests and messages count only while the window is open; errors always.
pub struct Tally {
    window_open: bool,
    answered: [VerbTally; 3],
    /// Messages whose last request was answered: posted ones for `post`, deleted ones for `cycle`.
    pub messages: u64,
    /// Claims that found nothing, because other connections had claimed it all.
    pub empty_claims: u64,
    /// Requests that failed: an unexpected status, a broken connection, a deadline.
    pub errors: u64,
    /// The first few of them, in words.
    pub first_errors: Vec<String>,
    /// Connections that the server closed between two requests, which is its right.
    pub reconnects: u64,
}

impl Tally {
    /// Nothing counted, window shut.
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

    /// From now on answers count.
    pub fn open_window(&mut self) {
        self.window_open = true;
    }

    /// From now on they do not.
    pub fn shut_window(&mut self) {
        self.window_open = false;
    }

    /// The answered requests of one kind.
    pub fn of(&self, verb: Verb) -> &VerbTally {
        &self.answered[verb as usize]
    }

    /// Answered requests of all kinds.
    pub fn requests(&self) -> u64 {
        self.answered.iter().map(|kind| kind.latency.len()).sum()
    }

    /// An answer with the status that was hoped for.
    pub fn count(&mut self, verb: Verb, answer: &BenchAnswer) {
        if self.window_open {
            let kind = &mut self.answered[verb as usize];
            kind.latency.saturating_record(micros(answer.took));
            kind.bytes += answer.body.len() as u64;
        }
    }

    /// Messages that have come to the end of their workload.
    pub fn count_messages(&mut self, messages: u64) {
        if self.window_open {
            self.messages += messages;
        }
    }

    /// A claim that found nothing.
    pub fn count_empty_claim(&mut self) {
        if self.window_open {
            self.empty_claims += 1;
        }
    }

    /// An answer with any other status.
    pub fn refuse(&mut self, verb: Verb, status: StatusCode, body: &[u8]) {
        let body = String::from_utf8_lossy(body);
        let shown: String = body.chars().take(ANSWER_SHOWN).collect();
        self.fail(format!("{}: {status}: {shown}", verb.name()));
    }

    /// A request without a usable answer.
    pub fn fail(&mut self, text: String) {
        self.errors += 1;
        if self.first_errors.len() < ERRORS_SHOWN {
            self.first_errors.push(text);
        }
    }
}

/// Whole microseconds, rounded up: a latency of nothing does not exist.
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
