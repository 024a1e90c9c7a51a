//! Words of the sentences: numbers with their nouns, lists of names, instants.

use angarium_core::time::Timestamp;

/// Names that a sentence has of each kind.
const NAMES: usize = 3;

/// `1 message` or `3 messages`.
pub(super) fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// `is` or `are`.
pub(super) fn be(count: u64) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// `1 message is` or `3 messages are`.
pub(super) fn messages_are(count: u64) -> String {
    format!("{} {}", counted(count, "message"), be(count))
}

/// `a`, `a and b`, or `a, b, c and 2 more` of `all` names.
pub(super) fn listed(names: &[String], all: usize) -> String {
    let shown = &names[..names.len().min(NAMES)];
    match (shown, all.saturating_sub(shown.len())) {
        ([], _) => String::new(),
        ([only], 0) => only.clone(),
        ([begin @ .., last], 0) => format!("{} and {last}", begin.join(", ")),
        (shown, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// An instant as people and programs read it.
pub(super) fn date(at: Timestamp) -> String {
    at.calendar()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_up_to_three() {
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let texts: Vec<String> = (0..=4).map(|count| listed(&names[..count], count)).collect();
        assert_eq!(texts, ["", "a", "a and b", "a, b and c", "a, b, c and 1 more"]);
        assert_eq!(listed(&names[..1], 9), "a and 8 more");
    }

    #[test]
    fn one_thing_is_singular() {
        assert_eq!(messages_are(1), "1 message is");
        assert_eq!(messages_are(2), "2 messages are");
    }
}
