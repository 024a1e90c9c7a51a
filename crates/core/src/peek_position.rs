//! Positions in the order of a peek, and the markers of its pages. A task over the messages of a queue keeps one too.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::MessageId;
use crate::message::Header;
use crate::time::Timestamp;

/// A position between two messages of a queue: the messages without an outcome in order of id, behind them the kept
/// ones in order of their settle, then of id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum PeekPosition {
    /// Behind this message without an outcome, which may be gone.
    Open(MessageId),
    /// Behind a kept message, which may be gone.
    Kept {
        /// When it was settled.
        settled: Timestamp,
        /// Its id.
        id: MessageId,
    },
}

/// The marker of a kept message: this word, the milliseconds of its settle, its id.
const KEPT: &str = "kept";

impl PeekPosition {
    /// Before all messages.
    pub const FIRST: Self = Self::Open(MessageId::ZERO);
    /// Before all kept messages.
    pub const FIRST_KEPT: Self = Self::Kept { settled: Timestamp::from_millis(0), id: MessageId::ZERO };

    /// The position behind a message, by its stored header.
    pub fn of(header: &Header) -> Self {
        if header.state.is_kept() {
            Self::Kept { settled: header.ready, id: header.id }
        } else {
            Self::Open(header.id)
        }
    }
}

/// The text is no marker of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongMarker;

impl fmt::Display for PeekPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(id) => write!(f, "{id}"),
            Self::Kept { settled, id } => write!(f, "{KEPT}.{}.{id}", settled.as_millis()),
        }
    }
}

impl fmt::Display for WrongMarker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is not the marker of a page")
    }
}

impl From<PeekPosition> for String {
    fn from(position: PeekPosition) -> Self {
        position.to_string()
    }
}

impl TryFrom<String> for PeekPosition {
    type Error = WrongMarker;

    fn try_from(text: String) -> Result<Self, WrongMarker> {
        text.parse()
    }
}

impl FromStr for PeekPosition {
    type Err = WrongMarker;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = |text: &str| text.parse::<MessageId>().map_err(|_| WrongMarker);
        let mut parts = text.splitn(3, '.');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(KEPT), Some(millis), Some(last)) => {
                let millis = millis.parse().map_err(|_| WrongMarker)?;
                // No message is settled later, and not every pool stores every number.
                let settled = Timestamp::from_millis(millis).min(Timestamp::NEVER);
                Ok(Self::Kept { settled, id: id(last)? })
            }
            _ => id(text).map(Self::Open),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_is_read_as_it_was_written() {
        let id = MessageId::from_bytes([7; 16]);
        let kept = PeekPosition::Kept { settled: Timestamp::from_millis(1_700_000_000_123), id };
        for position in [PeekPosition::FIRST, PeekPosition::FIRST_KEPT, PeekPosition::Open(id), kept] {
            assert_eq!(position.to_string().parse(), Ok(position));
        }
    }

    #[test]
    fn text_of_no_page_is_no_marker() {
        let id = MessageId::MAX.to_string();
        for text in
            ["", "x", "kept", "kept.1", "kept.1.x", "kept..", &format!("kept.-1.{id}"), &format!("{id}.")]
        {
            assert_eq!(text.parse::<PeekPosition>(), Err(WrongMarker), "{text:?}");
        }
        let late = format!("kept.{}.{id}", u64::MAX).parse();
        assert_eq!(late, Ok(PeekPosition::Kept { settled: Timestamp::NEVER, id: MessageId::MAX }));
    }
}
