//! Failures of client commands: their exit codes and their texts for the user. This module never prints, and never
//! decides about a retry.

use std::io;

use serde::Deserialize;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server refused the request: it is invalid, its target is missing, or it is not allowed.
    #[error("{0}")]
    Refused(Refusal),
    /// The requests succeeded, but the result is bad.
    #[error("{0}")]
    Found(String),
    /// The arguments, the input or the contexts are invalid.
    #[error("{0}")]
    Usage(String),
    /// There is no connection to the server, or no response to a read. Nothing was done.
    #[error("{url} cannot be reached: {why}")]
    Unreachable {
        /// URL of the server.
        url: String,
        /// Error of the connection.
        why: String,
    },
    /// The server is unavailable. It is certain that nothing was written.
    #[error("{0}\n  nothing was written: try again later")]
    Unavailable(Refusal),
    /// The response does not follow this API.
    #[error("the answer to {asked} is not what the API promises: {why}")]
    Strange {
        /// Method and path of the request.
        asked: String,
        /// The defect of the response.
        why: String,
    },
    /// The request was sent, and its outcome is unknown.
    #[error("{0}\n  it may have been done or not: look before you repeat it")]
    Unknown(String),
    /// A part of the work was certainly done, then the rest failed.
    #[error("{then}\n  before that, {done}")]
    Partly {
        /// The part that was done.
        done: String,
        /// The failure of the rest.
        then: Box<Failure>,
    },
    /// The reader of the output has closed it, so there is no reader to inform.
    #[error("the output was closed")]
    OutputClosed,
}

impl Failure {
    /// Returns the exit code of the process. The codes are part of the command line's interface and never change.
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

    /// Converts an error of standard output.
    pub fn of_output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Found(format!("the output cannot be written: {error}")),
        }
    }
}

/// The exit codes, for the program's help.
pub const EXIT_CODES: &str = "\
Exit codes of the client commands:
  0  done
  1  refused: the server said no, or a check found something wrong
  2  usage: arguments, input or contexts cannot be used
  3  unreachable: no connection to the server, nothing was done
  4  unavailable: the server cannot serve now, nothing was written; or it does not speak this API
  5  unknown: the request may have been carried out or not";

/// An error response, as Zaqar and Angarium send it. Zaqar sends only the title and the description.
#[derive(Debug, Default, Deserialize)]
pub struct Refusal {
    /// Kind of the error, for a person.
    #[serde(default)]
    title: String,
    /// Explanation of the error.
    #[serde(default)]
    description: Option<String>,
    /// Kind of the error, for a program.
    #[serde(default)]
    code: Option<String>,
    /// Whether it is certain that nothing was written.
    #[serde(default)]
    nothing_written: Option<bool>,
    /// Whether the same request may succeed later.
    #[serde(default)]
    may_retry: Option<bool>,
    /// Id of the request in the server's log.
    #[serde(default)]
    request_id: Option<String>,
    #[serde(skip)]
    status: u16,
}

impl Refusal {
    /// Returns whether the caller is not authenticated or not allowed.
    pub fn is_of_access(&self) -> bool {
        matches!(self.status, 401 | 403)
    }

    /// Returns whether the target of the request does not exist.
    pub fn is_missing(&self) -> bool {
        self.status == 404
    }

    /// Returns whether the message of the request was recalled while a claim held it.
    pub fn is_recall(&self) -> bool {
        self.code.as_deref() == Some("gone")
    }

    /// Converts an error response with this status and body. `id` is the request id from the header.
    pub fn of(status: u16, body: &[u8], id: Option<&str>) -> Failure {
        let mut refusal: Self = serde_json::from_slice(body).unwrap_or_default();
        refusal.status = status;
        if refusal.request_id.is_none() {
            refusal.request_id = id.map(ToOwned::to_owned);
        }
        match (status, refusal.nothing_written) {
            (500.., Some(false)) => Failure::Unknown(refusal.to_string()),
            // The sender is a gateway, or a server that does not report whether anything was written.
            (500.., None) if status != 503 => Failure::Unknown(refusal.to_string()),
            // For example, a request that alone exceeds a quota, or damaged data.
            (429, _) | (500.., Some(true)) if refusal.may_retry == Some(false) => Failure::Refused(refusal),
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

/// Escapes control characters in foreign text, so that a terminal can show it.
pub fn printable(text: &str) -> String {
    let steers = |c: char| {
        // Marks of text direction can make one name look like another.
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
        let damaged = br#"{"may_retry": false, "nothing_written": true}"#;
        assert_eq!(Refusal::of(500, damaged, None).exit_code(), 1);
        assert_eq!(Refusal::of(502, b"", None).exit_code(), 5);
        assert_eq!(Refusal::of(507, br#"{"nothing_written": true}"#, None).exit_code(), 4);
    }

    #[test]
    fn terminal_control_text_is_escaped() {
        assert_eq!(printable("a\u{1b}[2J\u{202e}ü\n"), "a\\u{1b}[2J\\u{202e}ü\\n");
    }
}
