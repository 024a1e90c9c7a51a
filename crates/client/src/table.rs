//! Tables: text aligned by its display width, within the width of the terminal if there is one. This module never
//! prints. The printer removes the colours where none are wanted.

use std::collections::BTreeMap;

use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Width, presets};
use serde_json::value::RawValue;
use unicode_width::UnicodeWidthStr;

use super::failure::printable;
use super::screen;

/// Blanks between two columns.
const GAP: u16 = 2;
/// Width of a body in a list without a known terminal width. `message get` shows the whole body.
const BODY_WIDTH: usize = 60;
/// Max characters of a body that are considered for a cell, more than the width of a screen.
const BODY_CHARS: usize = 1_000;
/// Min width of the last column. On a narrower terminal, lines exceed the terminal's width.
const MIN_WIDTH: u16 = 12;

/// A table whose columns keep their widths from page to page, and grow if a later page needs it.
#[derive(Debug)]
pub struct Table {
    heads: &'static [&'static str],
    widths: Vec<u16>,
    screen: Option<u16>,
    is_cut: bool,
}

impl Table {
    /// Creates a table with these heads. On a terminal, the last column takes the remaining width, and its cells wrap.
    pub fn new(heads: &'static [&'static str]) -> Self {
        Self::within(heads, screen::width())
    }

    /// Creates a table like [`Table::new`], for a screen of this width.
    pub fn within(heads: &'static [&'static str], screen: Option<u16>) -> Self {
        Self { heads, widths: heads.iter().map(|head| columns(head)).collect(), screen, is_cut: false }
    }

    /// Cuts cells of the last column that are too wide, instead of wrapping them.
    pub fn cut(self) -> Self {
        Self { is_cut: true, ..self }
    }

    /// Formats the heads and the rows.
    pub fn with_head(&mut self, rows: &[Vec<String>]) -> String {
        self.fit(rows);
        let heads = self.heads.iter().map(|head| Cell::new(head).add_attribute(Attribute::Bold)).collect();
        self.lines(Some(heads), rows)
    }

    /// Formats the rows alone.
    pub fn rows(&mut self, rows: &[Vec<String>]) -> String {
        self.fit(rows);
        self.lines(None, rows)
    }

    fn fit(&mut self, rows: &[Vec<String>]) {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(columns(&printable(cell)));
            }
        }
    }

    fn lines(&self, heads: Option<Vec<Cell>>, rows: &[Vec<String>]) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).enforce_styling().style_text_only();
        table.set_truncation_indicator("…").set_content_arrangement(ContentArrangement::Disabled);
        let Some((last, before)) = self.widths.split_last() else { return String::new() };
        let taken = before.iter().map(|width| width + GAP).sum::<u16>();
        let room = self
            .screen
            .map(|screen| screen.saturating_sub(taken))
            .filter(|room| room >= &MIN_WIDTH.min(*last));
        table.add_rows(heads);
        for row in rows {
            // The first cell is a name, so it gets no colour.
            let named = row.iter().take(1).map(|name| Cell::new_owned(printable(name)));
            let others = row.iter().skip(1).map(|cell| coloured(cell));
            let mut cells = comfy_table::Row::from(named.chain(others).collect::<Vec<_>>());
            if self.is_cut {
                cells.max_height(1);
            }
            table.add_row(cells);
        }
        for (width, column) in self.widths.iter().zip(table.column_iter_mut()) {
            let is_last = column.index + 1 == self.widths.len();
            column.set_padding((0, if is_last { 0 } else { GAP }));
            let width = if is_last { room.map_or(*width, |room| room.min(*width)) } else { width + GAP };
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
        if rows.is_empty() && self.heads.is_empty() { String::new() } else { table.trim_fmt() + "\n" }
    }
}

/// Returns a cell, coloured by the state in its text.
fn coloured(text: &str) -> Cell {
    let cell = Cell::new_owned(printable(text));
    match text {
        "NO" | "lost" | "silent" | "unreachable" => cell.fg(Color::Red),
        "suspended" | "draining" | "leaving" | "delayed" | "relaxed" => cell.fg(Color::Yellow),
        "yes" | "active" | "connected" | "ready" => cell.fg(Color::Green),
        _ => cell,
    }
}

fn columns(text: &str) -> u16 {
    u16::try_from(text.width()).unwrap_or(u16::MAX / 2)
}

/// Formats an object as lines of key and value, sorted by key. Nested keys are joined with dots.
pub fn pairs(object: &BTreeMap<String, Box<RawValue>>) -> String {
    let mut rows = Vec::new();
    for (key, value) in object {
        flatten(key, value, &mut rows);
    }
    Table::new(&["", ""]).rows(&rows)
}

/// Adds a value as rows below a key.
pub fn flatten(key: &str, value: &RawValue, rows: &mut Vec<Vec<String>>) {
    if let Ok(object) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(value.get())
        && !object.is_empty()
    {
        object.iter().for_each(|(part, value)| flatten(&format!("{key}.{part}"), value, rows));
        return;
    }
    match serde_json::from_str::<Vec<Box<RawValue>>>(value.get()) {
        Ok(list) if list.iter().any(|part| part.get().starts_with(['{', '['])) => {
            let numbered = list.iter().enumerate();
            numbered.for_each(|(number, value)| flatten(&format!("{key}.{number}"), value, rows));
        }
        _ => rows.push(vec![key.to_owned(), worded(value)]),
    }
}

/// Formats a value on one line for a person. List elements are separated by commas.
pub fn worded(value: &RawValue) -> String {
    match value.get() {
        "null" | "{}" | "[]" => "-".to_owned(),
        text if text.starts_with('[') => match serde_json::from_str::<Vec<Box<RawValue>>>(text) {
            Ok(list) => list.iter().map(|part| bare(part)).collect::<Vec<_>>().join(", "),
            Err(_) => bare(value),
        },
        _ => bare(value),
    }
}

/// Formats a JSON value on one line. A string is written without its quotes.
pub fn bare(value: &RawValue) -> String {
    serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| one_line(value))
}

/// Formats JSON text on one line. Line ends occur only between values, where a blank is equivalent; strings escape
/// them.
pub fn one_line(value: &RawValue) -> String {
    value.get().replace(['\n', '\r'], " ")
}

/// Returns the beginning of a body for a cell. The table cuts what exceeds the screen.
pub fn cut(value: &RawValue) -> String {
    let text = bare(value);
    let max = if screen::width().is_some() { BODY_CHARS } else { BODY_WIDTH };
    if text.width() <= max {
        return text;
    }
    let mut shown = String::new();
    for c in text.chars().take(BODY_CHARS) {
        if shown.width() >= max - 1 {
            break;
        }
        shown.push(c);
    }
    shown + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: [&str; 2]) -> Vec<String> {
        cells.map(ToOwned::to_owned).to_vec()
    }

    /// Removes colour escapes from text.
    fn plain(text: &str) -> String {
        let mut parts = text.split('\u{1b}');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |shown, part| shown + part.split_once('m').map_or("", |(_, rest)| rest))
    }

    #[test]
    fn columns_align_by_display_width() {
        let mut table = Table::within(&["NAME", "N"], None);
        let shown = table.with_head(&[row(["日本", "1"]), row(["a\u{1b}", "2"])]);
        assert_eq!(plain(&shown), "NAME     N\n日本     1\na\\u{1b}  2\n");
    }

    #[test]
    fn later_pages_keep_the_columns() {
        let mut table = Table::within(&["NAME", "N"], None);
        table.with_head(&[row(["longer", "1"])]);
        assert_eq!(table.rows(&[row(["b", "2"])]), "b       2\n");
    }

    #[test]
    fn last_column_wraps_or_is_cut() {
        let rows = [row(["name", "one two three four"])];
        let shown = Table::within(&["", ""], Some(20)).rows(&rows);
        assert_eq!(shown, "name  one two three\n      four\n");
        let shown = Table::within(&["", ""], Some(20)).cut().rows(&rows);
        assert!(
            shown.lines().count() == 1 && shown.contains('…') && shown.trim_end().width() <= 20,
            "{shown}"
        );
        let narrow = Table::within(&["", ""], Some(8)).rows(&rows);
        assert_eq!(narrow, "name  one two three four\n", "it does not stand on end");
    }

    #[test]
    fn numbers_and_text_keep_all_their_digits() {
        let object: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(r#"{"n": 123456789012345678901234567890, "t": "x y"}"#).unwrap();
        assert_eq!(pairs(&object), "n  123456789012345678901234567890\nt  x y\n");
    }

    #[test]
    fn objects_and_lists_are_no_json_in_a_table() {
        let object: BTreeMap<String, Box<RawValue>> = serde_json::from_str(
            r#"{"a": {"b": 1, "c": {"d": "x"}}, "e": ["x", 2], "f": [{"g": true}], "h": null, "i": {}}"#,
        )
        .unwrap();
        assert_eq!(pairs(&object), "a.b    1\na.c.d  x\ne      x, 2\nf.0.g  true\nh      -\ni      -\n");
    }

    #[test]
    fn a_long_body_is_cut_and_a_broken_one_is_joined() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(one_line(&raw("{\n\"a\": \"b\\n\"\n}")), "{ \"a\": \"b\\n\" }");
        let long = cut(&raw(&format!("\"{}\"", "x".repeat(100))));
        assert_eq!((long.width(), long.ends_with('…')), (BODY_WIDTH, true));
    }
}
