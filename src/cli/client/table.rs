//! Owns columns: text aligned by the width that a terminal gives it. Never prints, and never wraps or cuts a cell that
//! was not made to be cut.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use unicode_width::UnicodeWidthStr;

use super::failure::printable;

/// Blanks between two columns.
const GAP: usize = 2;
/// Columns of a body in a list; `message get` shows all of it.
const BODY_WIDTH: usize = 60;

/// Columns that keep their widths from page to page, and grow where a later page needs it.
#[derive(Debug)]
pub struct Table {
    heads: &'static [&'static str],
    widths: Vec<usize>,
}

impl Table {
    /// With these heads.
    pub fn new(heads: &'static [&'static str]) -> Self {
        Self { heads, widths: heads.iter().map(|head| head.width()).collect() }
    }

    /// The heads, then the rows.
    pub fn with_head(&mut self, rows: &[Vec<String>]) -> String {
        self.fit(rows);
        let heads: Vec<_> = self.heads.iter().map(|head| (*head).to_owned()).collect();
        self.line(&heads) + &self.rows(rows)
    }

    /// The rows alone.
    pub fn rows(&mut self, rows: &[Vec<String>]) -> String {
        self.fit(rows);
        rows.iter().map(|row| self.line(row)).collect()
    }

    fn fit(&mut self, rows: &[Vec<String>]) {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(printable(cell).width());
            }
        }
    }

    fn line(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&self.widths) {
            let cell = printable(cell);
            line.push_str(&cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.width()) + GAP));
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

/// An object as lines of key and value, in the order of its keys.
pub fn pairs(object: &BTreeMap<String, Box<RawValue>>) -> String {
    let rows: Vec<_> = object.iter().map(|(key, value)| vec![key.clone(), bare(value)]).collect();
    Table::new(&["", ""]).rows(&rows)
}

/// A JSON value as one line: a string is written without its quotes.
pub fn bare(value: &RawValue) -> String {
    serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| one_line(value))
}

/// JSON text on one line. Its line ends lie between values, where a blank means the same: in strings they are escaped.
pub fn one_line(value: &RawValue) -> String {
    value.get().replace(['\n', '\r'], " ")
}

/// The beginning of a body, for a cell.
pub fn cut(value: &RawValue) -> String {
    let text = one_line(value);
    if text.width() <= BODY_WIDTH {
        return text;
    }
    let mut shown = String::new();
    for c in text.chars() {
        if shown.width() >= BODY_WIDTH - 1 {
            break;
        }
        shown.push(c);
    }
    shown + "…"
}

/// Seconds as a person says them: the two largest units.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..=59 => format!("{seconds}s"),
        60..=3_599 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{}h{}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: [&str; 2]) -> Vec<String> {
        cells.map(ToOwned::to_owned).to_vec()
    }

    #[test]
    fn columns_are_aligned_by_what_a_terminal_shows() {
        let mut table = Table::new(&["NAME", "N"]);
        let shown = table.with_head(&[row(["日本", "1"]), row(["a\u{1b}", "2"])]);
        assert_eq!(shown, "NAME     N\n日本     1\na\\u{1b}  2\n");
    }

    #[test]
    fn later_pages_keep_the_columns() {
        let mut table = Table::new(&["NAME", "N"]);
        table.with_head(&[row(["longer", "1"])]);
        assert_eq!(table.rows(&[row(["b", "2"])]), "b       2\n");
    }

    #[test]
    fn numbers_and_text_keep_all_their_digits() {
        let object: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(r#"{"n": 123456789012345678901234567890, "t": "x y"}"#).unwrap();
        assert_eq!(pairs(&object), "n  123456789012345678901234567890\nt  x y\n");
    }

    #[test]
    fn a_long_body_is_cut_and_a_broken_one_is_joined() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(one_line(&raw("{\n\"a\": \"b\\n\"\n}")), "{ \"a\": \"b\\n\" }");
        let long = cut(&raw(&format!("\"{}\"", "x".repeat(100))));
        assert_eq!((long.width(), long.ends_with('…')), (BODY_WIDTH, true));
    }

    #[test]
    fn times_have_two_units() {
        assert_eq!([0, 61, 3_700, 90_000].map(span), ["0s", "1m1s", "1h1m", "1d1h"]);
    }
}
