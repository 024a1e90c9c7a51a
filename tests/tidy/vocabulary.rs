//! The words of the house style (rules 1, 2, 3 and 5): the ones that no file, module, type, function, test or comment
//! may have. Findings that are left from before have a row with their number; a row only shrinks.

use std::collections::BTreeMap;

use super::source::{Source, in_name, offsets};

/// Words of the glossary's column "not" and of rule 1, as parts of names, below the folder that they are banned in. Outside
/// of it they may be words of the field: a window of time, the cells of a table.
const NAMES: &[(&str, &str)] = &[
    ("twin", ""),
    ("twins", ""),
    ("lane", ""),
    ("lanes", ""),
    ("cells", "crates/broker"),
    ("whereabouts", ""),
    ("retake", ""),
    ("retaken", ""),
    ("anew", ""),
    ("duty", ""),
    ("duties", ""),
    ("parting", ""),
    ("parted", ""),
    ("departures", ""),
    ("copier", ""),
    ("aside", ""),
    ("window", "crates/engine"),
    ("windows", "crates/broker"),
    ("asker", ""),
    ("question", ""),
    ("questions", ""),
    ("handing", ""),
    ("handed", ""),
    ("underway", ""),
    ("patience", ""),
    ("somebody", ""),
    ("nobody", ""),
    ("whoever", ""),
    ("everybody", ""),
    ("anybody", ""),
    ("goes", ""),
    ("comes", ""),
    ("says", ""),
    ("said", ""),
    ("hears", ""),
    ("heard", ""),
    ("lies", ""),
    ("stands", ""),
];

/// Names that no type has: participles and fillers (rule 3).
const TYPES: &[&str] = &[
    "Addressed",
    "Again",
    "Answered",
    "Aside",
    "Asked",
    "Asking",
    "Away",
    "Browsed",
    "Checked",
    "Chosen",
    "Claimed",
    "Counted",
    "Done",
    "Ended",
    "Ending",
    "Failed",
    "Found",
    "Given",
    "Gone",
    "Granted",
    "Handed",
    "Hands",
    "Heard",
    "Held",
    "Here",
    "Judged",
    "Kept",
    "Known",
    "Left",
    "Listed",
    "Look",
    "Looked",
    "Lost",
    "Meant",
    "Missed",
    "Named",
    "Of",
    "Parted",
    "Parting",
    "Place",
    "Placed",
    "Planned",
    "Popped",
    "Posted",
    "Reached",
    "Received",
    "Relayed",
    "Said",
    "Seen",
    "Sent",
    "Shown",
    "Spent",
    "Stored",
    "Taken",
    "Taking",
    "There",
    "Told",
    "Touched",
    "Tried",
    "Turn",
    "Underway",
    "Waited",
    "Waiting",
    "Wanted",
    "Way",
    "Ways",
    "Why",
    "Worth",
    "Written",
];

/// Names of types that mean one thing: declared in one file at most.
const ONCE: &[&str] = &["Answer", "Outcome"];

/// Words that replace a noun in the name of a test (rule 5).
const PRONOUNS: &[&str] = &["that", "which", "what", "who", "whose", "whom", "somebody", "nobody", "whoever"];

/// Characters of the name of a test (rule 5).
const TEST_NAME: usize = 60;

/// Words that no comment has (rule 1).
const COMMENTS: &[&str] = &[
    "somebody",
    "nobody",
    "whoever",
    "everybody",
    "anybody",
    "anew",
    "goes",
    "comes",
    "says",
    "hears",
    "lies",
    "stands",
    "is over",
    "are over",
];

/// Findings that are left, by rule and part of the path. A row only shrinks and is removed with its last finding. No row
/// is added.
const LEFT: &[(&str, &str, usize)] = &[];

#[test]
fn names_are_words_of_the_glossary() {
    holds("name", banned_names);
}

#[test]
fn types_are_nouns() {
    holds("type", filler_types);
}

#[test]
fn shared_type_names_are_declared_once() {
    let sources = Source::program();
    for name in ONCE {
        let declares = |source: &&Source| declared_types(source).iter().any(|(_, declared)| declared == name);
        let homes: Vec<&str> = sources.iter().filter(declares).map(|source| source.path.as_str()).collect();
        assert!(homes.len() <= 1, "{name} is declared in {homes:?}: give each its own name");
    }
}

#[test]
fn test_names_are_short_and_name_their_subject() {
    holds("test", long_test_names);
}

#[test]
fn comments_are_plain_english() {
    holds("comment", banned_comments);
}

#[test]
fn banned_words_are_caught_with_their_line() {
    let text = "//! A.\n\n/// It says so.\nfn start_lane() {}\nstruct Asked;\nstruct OneTwin;\nmod questions {}\n\
                #[test]\nfn what_is_wrong_is_named() {}\n";
    let source = Source::new("crates/engine/src/a.rs", text);
    assert_eq!(banned_comments(&source), [(3, "says".to_owned())]);
    let names = ["start_lane", "OneTwin", "questions"].map(str::to_owned);
    assert_eq!(banned_names(&source).into_iter().map(|(_, name)| name).collect::<Vec<_>>(), names);
    assert_eq!(filler_types(&source), [(5, "Asked".to_owned())]);
    assert_eq!(long_test_names(&source), [(9, "what_is_wrong_is_named".to_owned())]);
}

#[test]
fn words_of_the_field_are_not_caught() {
    let text = "//! A.\n\n/// `says` is code, essays and planes are words.\nfn plane_windows() {}\nstruct AskedPrice;\n";
    let source = Source::new("crates/client/src/a.rs", text);
    assert!(banned_comments(&source).is_empty());
    assert!(banned_names(&source).is_empty());
    assert!(filler_types(&source).is_empty());
}

/// Lines with what breaks a rule there.
type Findings = Vec<(usize, String)>;

/// Holds a rule over all files but for what `LEFT` allows, which must be all used.
fn holds(rule: &str, find: fn(&Source) -> Findings) {
    let sources = Source::all();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // The tables of this folder have the words themselves.
    for source in sources.iter().filter(|source| !source.path.starts_with("tests/tidy/")) {
        for (line, word) in find(source) {
            found.entry(part(&source.path)).or_default().push(format!("{}:{line}: {word}", source.path));
        }
    }
    let rows = LEFT.iter().filter(|(left, ..)| *left == rule);
    let left: BTreeMap<String, usize> = rows.map(|(_, part, count)| ((*part).to_owned(), *count)).collect();
    let mut wrong = Vec::new();
    for (part, findings) in &found {
        let allowed = left.get(part).copied().unwrap_or(0);
        if findings.len() > allowed {
            wrong.push(format!(
                "{part}: {} findings, LEFT allows {allowed}\n{}",
                findings.len(),
                findings.join("\n")
            ));
        }
    }
    for (part, allowed) in &left {
        let count = found.get(part).map_or(0, Vec::len);
        if count < *allowed {
            wrong.push(format!(
                "{part}: only {count} findings of {rule} are left: lower its row of LEFT from {allowed}"
            ));
        }
    }
    assert!(wrong.is_empty(), "words of the house style ({rule}):\n{}", wrong.join("\n"));
}

/// The first two names of a path: `src/api`, `crates/broker`.
fn part(path: &str) -> String {
    path.trim_end_matches(".rs").split('/').take(2).collect::<Vec<_>>().join("/")
}

/// Names of files, modules, types and functions with a banned word among their words.
fn banned_names(source: &Source) -> Findings {
    let file = source.path.trim_end_matches(".rs").rsplit('/').next().unwrap_or_default();
    let functions = declared(source, "fn ").into_iter().chain(declared(source, "mod "));
    let named = functions.chain(declared_types(source)).chain([(1, file.to_owned())]);
    let mut found: Findings = named.filter(|(_, name)| is_banned(name, &source.path)).collect();
    found.sort();
    found
}

fn is_banned(name: &str, path: &str) -> bool {
    let words = words_of(name);
    NAMES.iter().any(|(word, folder)| path.starts_with(folder) && words.iter().any(|own| own == word))
}

fn filler_types(source: &Source) -> Findings {
    declared_types(source).into_iter().filter(|(_, name)| TYPES.contains(&name.as_str())).collect()
}

fn declared_types(source: &Source) -> Findings {
    ["struct ", "enum ", "trait ", "type ", "union "]
        .into_iter()
        .flat_map(|word| declared(source, word))
        .collect()
}

fn long_test_names(source: &Source) -> Findings {
    let is_test = |line: usize| {
        let above = source.code.lines().take(line - 1).collect::<Vec<_>>();
        let attributes = above.iter().rev().take_while(|line| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#') || line.ends_with(']')
        });
        attributes.into_iter().any(|line| line.contains("#[test]") || line.contains("::test"))
    };
    let named = declared(source, "fn ").into_iter().filter(|(_, name)| {
        name.len() > TEST_NAME || words_of(name).iter().any(|word| PRONOUNS.contains(&word.as_str()))
    });
    named.filter(|(line, _)| is_test(*line)).collect()
}

/// Banned words in comments, outside of backquotes.
fn banned_comments(source: &Source) -> Findings {
    let mut found = Findings::new();
    for (number, line) in source.text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
        let prose = comment.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
        for word in COMMENTS {
            found.extend(offsets(&prose, word).map(|_| (number + 1, (*word).to_owned())));
        }
    }
    found
}

/// The names that the code declares by a word of the language, with their lines.
fn declared(source: &Source, word: &str) -> Findings {
    let names = offsets(&source.code, word).map(|at| {
        let rest = &source.code[at + word.len()..];
        let end = rest.bytes().position(|byte| !in_name(byte)).unwrap_or(rest.len());
        (source.line(at), rest[..end].to_owned())
    });
    names.filter(|(_, name)| !name.is_empty()).collect()
}

/// The words of a name in either form, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if letter != '_' {
            words.last_mut().expect("there is one").extend(letter.to_lowercase());
        }
    }
    words
}
