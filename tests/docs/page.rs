//! Owns the pages: which there are, and their text, prose and shell blocks.

use std::path::Path;

/// The repository.
pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The documents beside those of `docs/`.
const OTHERS: [&str; 8] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "examples/README.md",
    "examples/cats/README.md",
    "examples/fanout/README.md",
];

/// All documents, by their paths in the repository.
pub fn all() -> Vec<String> {
    let mut pages: Vec<String> = OTHERS.iter().map(|path| (*path).to_owned()).collect();
    pages.extend(book());
    pages
}

/// The pages of the book, the list of them left out.
pub fn book() -> Vec<String> {
    let mut pages = Vec::new();
    collect("docs", &mut pages);
    pages.retain(|path| path != "docs/SUMMARY.md");
    pages.sort();
    pages
}

fn collect(folder: &str, into: &mut Vec<String>) {
    for entry in std::fs::read_dir(Path::new(ROOT).join(folder)).expect("the folder can be read") {
        let entry = entry.expect("the folder can be read");
        let path = format!("{folder}/{}", entry.file_name().to_str().expect("names are text"));
        if entry.path().is_dir() {
            collect(&path, into);
        } else if path.ends_with(".md") {
            into.push(path);
        }
    }
}

pub fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A text without its blocks of code.
pub fn prose(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        !inside && !is_fence
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The shell blocks of a text.
pub fn shell_blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(bool, String)> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((language == "sh", String::new())),
            (Some(_), Some(_)) => {
                blocks.extend(open.take().filter(|(is_shell, _)| *is_shell).map(|block| block.1))
            }
            (Some((_, block)), None) => *block += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block does not end");
    blocks
}

/// The anchors of a page: its headings as GitHub and mdBook write them.
pub fn anchors(text: &str) -> Vec<String> {
    let prose = prose(text);
    let headings =
        prose.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            let heading = heading.to_lowercase();
            let kept = heading.chars().filter_map(|letter| match letter {
                ' ' => Some('-'),
                letter if letter.is_alphanumeric() || "-_".contains(letter) => Some(letter),
                _ => None,
            });
            kept.collect::<String>()
        })
        .collect()
}

#[test]
fn blocks_and_prose_are_told_apart() {
    let text = "# A `b` & C\n\ntext\n```sh\nls # 1\n```\n\n```toml\nx = 1\n```\nmore\n";
    assert_eq!(shell_blocks(text), ["ls # 1\n"]);
    assert_eq!(prose(text), "# A `b` & C\n\ntext\n\nmore\n");
    assert_eq!(anchors(text), ["a-b--c"]);
}
