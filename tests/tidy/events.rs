//! The events of the log: fixed phrases with fields that a reader of JSON can use, each in the table of `docs/logs.md`.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{self, Source};

/// The levels that operators see, and the macros that log at each.
const LEVELS: [&str; 3] = ["error", "warn", "info"];
/// Bytes of a phrase.
const PHRASE: usize = 50;

/// An event of the source.
struct Event {
    at: String,
    level: &'static str,
    phrase: String,
    fields: BTreeSet<String>,
    /// Its arguments without the phrase.
    arguments: String,
}

/// The arguments of a macro, from behind its open parenthesis.
fn arguments(text: &str) -> &str {
    let (mut depth, mut in_text, mut is_escaped) = (1, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => in_text = !in_text,
            '(' if !in_text => depth += 1,
            ')' if !in_text => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// Parts at the commas outside of brackets and texts.
fn parts(arguments: &str) -> Vec<&str> {
    let (mut found, mut start, mut depth, mut in_text) = (Vec::new(), 0, 0_i32, false);
    for (at, c) in arguments.char_indices() {
        match c {
            '"' => in_text = !in_text,
            '(' | '[' | '{' | '|' if !in_text => depth += if c == '|' { 0 } else { 1 },
            ')' | ']' | '}' if !in_text => depth -= 1,
            ',' if !in_text && depth == 0 => {
                found.push(arguments[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(arguments[start..].trim());
    found.retain(|part| !part.is_empty());
    found
}

fn events() -> Vec<Event> {
    let mut found = Vec::new();
    for source in Source::program() {
        for level in LEVELS {
            for at in source::offsets(&source.code, &format!("{level}!(")) {
                let line = format!("{}:{}", source.path, source.line(at));
                let arguments = arguments(&source.text[at + level.len() + 2..]);
                let mut parts = parts(arguments);
                let last = parts.pop().unwrap_or_default();
                let phrase = last.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                let name = |part: &&str| {
                    part.split('=').next().unwrap_or_default().trim().trim_start_matches('%').to_owned()
                };
                found.push(Event {
                    at: line,
                    level,
                    phrase: phrase.map_or_else(|| format!("no phrase: {last}"), ToOwned::to_owned),
                    fields: parts.iter().map(name).collect(),
                    arguments: parts.join(", "),
                });
            }
        }
    }
    found
}

/// The rows of the table: the phrase, with its levels and fields.
fn table() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let text = source::read_file("docs/logs.md");
    let set = |cell: &str| {
        let names = cell.split([',', ' ']).map(|name| name.trim_matches('`'));
        names.filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect::<BTreeSet<_>>()
    };
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        (cells[1].trim_matches('`').to_owned(), (set(cells[2]), set(cells[3])))
    })
    .collect()
}

#[test]
fn log_events_have_fixed_phrases_and_plain_fields() {
    let mut found = Vec::new();
    for event in events() {
        let has_only = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == ' ' || c == '-';
        if event.phrase.len() > PHRASE || !event.phrase.chars().all(has_only) {
            found.push(format!("{}: {:?} is no short lower-case phrase", event.at, event.phrase));
        }
        if event.arguments.contains("= ?")
            || event.arguments.starts_with('?')
            || event.arguments.contains(", ?")
        {
            found.push(format!("{}: a field is Debug text", event.at));
        }
        if event.arguments.contains(".as_millis()") {
            found.push(format!(
                "{}: a number of 128 bits is text in JSON: use angarium_core::time::millis",
                event.at
            ));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn table_of_log_events_is_that_of_the_source() {
    let mut known = BTreeMap::<String, (BTreeSet<String>, BTreeSet<String>)>::new();
    for event in events() {
        let row = known.entry(event.phrase).or_default();
        row.0.insert(event.level.to_owned());
        row.1.extend(event.fields);
    }
    assert!(known.len() > 50, "{} events", known.len());
    let table = table();
    let mut found = Vec::new();
    for (phrase, row) in &known {
        match table.get(phrase) {
            None => found.push(format!("docs/logs.md lacks `{phrase}`: {row:?}")),
            Some(told) if told != row => {
                found.push(format!("`{phrase}` is {row:?}, docs/logs.md has {told:?}"))
            }
            Some(_) => {}
        }
    }
    found.extend(
        table
            .keys()
            .filter(|phrase| !known.contains_key(*phrase))
            .map(|phrase| format!("no event is `{phrase}`")),
    );
    assert!(found.is_empty(), "{}", found.join("\n"));
}
