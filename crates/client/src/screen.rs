//! The terminal of standard output: whether there is one, and its size.

use std::io::{IsTerminal, stdout};

use super::failure::printable;

/// Returns whether standard output is a terminal.
pub fn is_terminal() -> bool {
    stdout().is_terminal()
}

/// Returns columns and lines of the terminal; none without a terminal, or if it does not report its size.
pub fn size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Returns the columns of the terminal.
pub fn width() -> Option<u16> {
    size().filter(|_| is_terminal()).map(|(columns, _)| columns)
}

/// Escapes foreign text, except its line ends and tabs, so that it cannot control a terminal.
pub fn lines(text: &str) -> String {
    let parts = text.split_inclusive(['\n', '\t']);
    parts.fold(String::with_capacity(text.len()), |shown, part| {
        let kept = part.trim_end_matches(['\n', '\t']);
        shown + &printable(kept) + &part[kept.len()..]
    })
}

/// Escapes JSON text so that it cannot control a terminal. Its meaning stays the same, because control characters occur
/// only in strings.
pub fn json(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        let is_blank = matches!(c, '\n' | '\r' | '\t');
        if is_blank || printable(c.encode_utf8(&mut [0; 4])).len() == c.len_utf8() {
            shown.push(c);
        } else {
            shown.push_str(&format!("\\u{:04x}", u32::from(c)));
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_ends_and_lose_control_text() {
        assert_eq!(lines("a\tb\n\nc\u{1b}[2J\u{9b}m"), "a\tb\n\nc\\u{1b}[2J\\u{9b}m");
    }

    #[test]
    fn shown_json_keeps_its_meaning() {
        let text = "{\"a\": \"x\u{9b}31m\u{202e}ü\u{7f}\",\n \"b\": 1}";
        let shown = json(text);
        assert_eq!(shown, "{\"a\": \"x\\u009b31m\\u202eü\\u007f\",\n \"b\": 1}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(text), value(&shown));
    }
}
