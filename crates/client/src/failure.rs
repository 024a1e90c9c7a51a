//! Owns the ways in which a client command can end badly, the exit code of each, and what a person is told.
//! Never prints, and never decides whether to try again.

use std::io;

use serde::Deserialize;

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server said no: it is wrong, missing, or not allowed.
    #[error("{0}")]
    Refused(Refusal),
    /// The command succeeded in asking, and what it found is bad.
    #[error("{0}")]
    Found(String),
    /// The arguments, the input or the contexts cannot be used.
    #[error("{0}")]
    Usage(String),
    /// There is no connection to the server, or no answer to a question that changes nothing. Nothing was done.
    #[error("{url} cannot be reached: {why}")]
    Unreachable {
        /// The server.
        url: String,
        /// What the connection met.
        why: String,
    },
    /// The server cannot serve now; it is certain that nothing was written.
    #[error("{0}\n  nothing was written: try again later")]
    Unavailable(Refusal),
    /// What answers does not speak this API.
    #[error("the answer to {asked} is not what the API promises: {why}")]
    Strange {
        /// Method and path.
        asked: String,
        /// What is wrong with it.
        why: String,
    },
    /// The request went out, and it is unknown how far it got.
    #[error("{0}\n  it may have been done or not: look before you repeat it")]
    Unknown(String),
    /// A part of the work is done for certain, and then something went wrong.
    #[error("{then}\n  before that, {done}")]
    Partly {
        /// What is done.
        done: String,
        /// What went wrong.
        then: Box<Failure>,
    },
    /// The reader of the output has gone; there is no reader to tell.
    #[error("the output was closed")]
    OutputClosed,
}

impl Failure {
    /// The exit code of the process: part of the command line's interface, so it never changes.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Refused(_) | Self::Found(_) => 1,
            Self::Usage(_) => 2,
            Self::Unreachable { .. } => 3,
            Self::Unavailable(_) | Self::Strange { .. } => 4,
            Self::Unknown(_) => 5,
            Self::Partly { then, .. } => then.exit_code(),
        }
    }

    /// What writing to the standard output met.
    pub fn of_output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Found(format!("the output cannot be written: {error}")),
        }
    }
}

/// The exit codes, for the help of the program.
pub const EXIT_CODES: &str = "\
Exit codes of the client commands:
  0  done
  1  refused: the server said no, or a check found something wrong
  2  usage: arguments, input or contexts cannot be used
  3  unreachable: no connection to the server, nothing was done
  4  unavailable: the server cannot serve now, nothing was written; or it does not speak this API
  5  unknown: the request may have been carried out or not";

/// An answer that is an error, as Zaqar and Angarium write it. Zaqar has the title and the description only.
#[derive(Debug, Default, Deserialize)]
pub struct Refusal {
    /// The kind of error, for a person.
    #[serde(default)]
    title: String,
    /// What is wrong.
    #[serde(default)]
    description: Option<String>,
    /// The kind of error, for a program.
    #[serde(default)]
    code: Option<String>,
    /// Whether it is certain that nothing was written.
    #[serde(default)]
    nothing_written: Option<bool>,
    /// Whether the same request may succeed later.
    #[serde(default)]
    may_retry: Option<bool>,
    /// By which the server's log finds the request.
    #[serde(default)]
    request_id: Option<String>,
    #[serde(skip)]
    status: u16,
}

impl Refusal {
    /// Whether the caller may not do this, or is not known.
    pub fn is_of_access(&self) -> bool {
        matches!(self.status, 401 | 403)
    }

    /// Whether what was asked for does not exist.
    pub fn is_missing(&self) -> bool {
        self.status == 404
    }

    /// The failure that an answer with this status and body tells of. `id` is the request's id from the header.
    pub fn of(status: u16, body: &[u8], id: Option<&str>) -> Failure {
        let mut refusal: Self = serde_json::from_slice(body).unwrap_or_default();
        refusal.status = status;
        if refusal.request_id.is_none() {
            refusal.request_id = id.map(ToOwned::to_owned);
        }
        match (status, refusal.nothing_written) {
            (500.., Some(false)) => Failure::Unknown(refusal.to_string()),
            // A gateway, or a server that states nothing of it.
            (500.., None) if status != 503 => Failure::Unknown(refusal.to_string()),
            // As what is more than a whole quota.
            (429, _) if refusal.may_retry == Some(false) => Failure::Refused(refusal),
            (408 | 429 | 500.., _) => Failure::Unavailable(refusal),
            _ => Failure::Refused(refusal),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let title = if self.title.is_empty() { "the server refused" } else { &self.title };
        write!(f, "{}", printable(title))?;
        if let Some(description) = &self.description {
            write!(f, ": {}", printable(description))?;
        }
        write!(f, "\n  status {}", self.status)?;
        if let Some(code) = &self.code {
            write!(f, ", code {}", printable(code))?;
        }
        match &self.request_id {
            Some(id) => write!(f, ", request {}", printable(id)),
            None => Ok(()),
        }
    }
}

/// Text of others as a terminal may show it: what would steer it is written out.
pub fn printable(text: &str) -> String {
    let steers = |c: char| {
        // The directions of text, by which a name can be made to look like another.
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if steers(c) {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_shows_title_description_code_and_request() {
        let body = br#"{"title": "Not found", "description": "queue x", "code": "not_found",
            "may_retry": false, "nothing_written": true, "request_id": "req-1"}"#;
        let failure = Refusal::of(404, body, Some("req-2"));
        assert_eq!(failure.to_string(), "Not found: queue x\n  status 404, code not_found, request req-1");
        assert_eq!(failure.exit_code(), 1);
    }

    #[test]
    fn an_error_without_a_body_names_its_status_and_request() {
        let failure = Refusal::of(404, b"<html>", Some("req-2"));
        assert_eq!(failure.to_string(), "the server refused\n  status 404, request req-2");
    }

    #[test]
    fn only_unwritten_outage_is_retried() {
        assert_eq!(Refusal::of(503, br#"{"nothing_written": true}"#, None).exit_code(), 4);
        assert_eq!(Refusal::of(503, br#"{"nothing_written": false}"#, None).exit_code(), 5);
        assert_eq!(Refusal::of(503, br#"{"title": "of Zaqar"}"#, None).exit_code(), 4);
        assert_eq!(Refusal::of(429, b"", None).exit_code(), 4);
        assert_eq!(Refusal::of(429, br#"{"may_retry": false}"#, None).exit_code(), 1);
        assert_eq!(Refusal::of(502, b"", None).exit_code(), 5);
        assert_eq!(Refusal::of(507, br#"{"nothing_written": true}"#, None).exit_code(), 4);
    }

    #[test]
    fn terminal_control_text_is_escaped() {
        assert_eq!(printable("a\u{1b}[2J\u{202e}ü\n"), "a\\u{1b}[2J\\u{202e}ü\\n");
    }
}
