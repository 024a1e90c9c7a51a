//! Rust files as the rules read them: the text, and the code in it with comments and literals blanked out, line for
//! line. Knows the words of the language, never its grammar.

use std::fs;
use std::path::{Path, PathBuf};

/// The crate that only tests use.
const TEST_CRATES: &[&str] = &["simulation", "testbed"];

/// One file.
#[derive(Clone)]
pub struct Source {
    /// Below the repository: `src/api/json.rs`.
    pub path: String,
    pub text: String,
    /// The text without comments and without what is in quotes.
    pub code: String,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), code: code_of(text) }
    }

    /// All files below a folder of the repository, in order of their paths.
    pub fn all_below(folder: &str) -> Vec<Self> {
        let mut paths = Vec::new();
        collect(&root().join(folder), &mut paths);
        paths.sort();
        paths.iter().map(|path| Self::new(&relative(path), &read(path))).collect()
    }

    /// The files of the program: those of its packages but for their tests.
    pub fn program() -> Vec<Self> {
        let all = Self::all();
        all.into_iter().filter(|source| source.in_program().is_some()).collect()
    }

    /// All files of all packages, tests included.
    pub fn all() -> Vec<Self> {
        ["src", "crates", "tests", "benches"].into_iter().flat_map(Self::all_below).collect()
    }

    /// Where the tables have the file: below `src/`, or the name of its crate and the path in it. `None` for a file that
    /// is not of the program.
    pub fn in_program(&self) -> Option<String> {
        if let Some(path) = self.path.strip_prefix("src/") {
            return Some(path.to_owned());
        }
        let (name, path) = self.path.strip_prefix("crates/")?.split_once("/src/")?;
        (!TEST_CRATES.contains(&name)).then(|| format!("{name}/{path}"))
    }

    /// Where `word` stands in the code: its lines. Ends of the word that are letters are ends of a word in the code.
    pub fn lines_with(&self, word: &str) -> Vec<usize> {
        offsets(&self.code, word).map(|at| self.line(at)).collect()
    }

    /// The line of a place in the code, from 1.
    pub fn line(&self, at: usize) -> usize {
        self.code[..at].matches('\n').count() + 1
    }
}

/// The manifests of the packages that the program is made of.
pub fn program_manifests() -> Vec<String> {
    let crates = fs::read_dir(root().join("crates")).expect("the folder can be read");
    let folders = crates.map(|entry| entry.expect("the folder can be read").path());
    let is_program = |folder: &PathBuf| !TEST_CRATES.iter().any(|name| folder.ends_with(name));
    let program = folders.filter(is_program).chain([root().to_owned()]);
    program.map(|folder| read(&folder.join("Cargo.toml"))).collect()
}

/// The text of a file of the repository.
pub fn read_file(path: &str) -> String {
    read(&root().join(path))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).expect("it was found below it").display().to_string()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Whether a byte can be part of a name.
pub fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Where `word` stands in `code` as a whole word.
pub fn offsets<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    let joined =
        |a: Option<&u8>, b: Option<&u8>| a.is_some_and(|a| in_name(*a)) && b.is_some_and(|b| in_name(*b));
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let end = at + word.len();
        !joined(before, bytes.get(at)) && !joined(bytes.get(end - 1), bytes.get(end))
    })
}

fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    while let Some(rest) = bytes.get(code.len()..).filter(|rest| !rest.is_empty()) {
        let opaque = opaque_length(rest);
        if opaque == 0 {
            code.push(rest[0]);
        }
        code.extend(rest[..opaque].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
    }
    String::from_utf8(code).expect("only whole characters are blanked")
}

/// The length of the comment or literal that begins here; 0 when none does.
fn opaque_length(rest: &[u8]) -> usize {
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'r', b'"' | b'#', ..] => raw_string(rest),
        [b'"', ..] => quoted(rest, b'"'),
        [b'\'', b'\\', ..] => quoted(rest, b'\''),
        // One character in quotes; otherwise it is a lifetime.
        [b'\'', first, ..] => {
            let width = first.leading_ones().max(1) as usize;
            if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
        }
        _ => 0,
    }
}

/// They nest.
fn block_comment(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 && at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    at
}

fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let end = [b"\"", &rest[1..=hashes]].concat();
    let begin = hashes + 2;
    let length = rest[begin..].windows(end.len()).position(|window| window == end);
    length.map_or(rest.len(), |length| begin + length + end.len())
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

#[test]
fn comments_and_literals_are_not_code() {
    let text =
        "let a = \"x\\\"y\"; // é\n/* b /* c */ d */ e(r#\"f \"g\" h\"#, 'i', '\\'', \"é\n\") as &'j k";
    let code = Source::new("", text).code;
    let words: Vec<_> = code.split_whitespace().collect();
    assert_eq!(words, ["let", "a", "=", ";", "e(", ",", ",", ",", ")", "as", "&'j", "k"]);
    assert_eq!(code.len(), text.len());
    assert_eq!(code.matches('\n').count(), 2);
}

#[test]
fn words_are_found_whole_and_with_their_line() {
    let source = Source::new("", "nasync asyncs\nasync x.await\nx.awaits");
    assert_eq!(source.lines_with("async"), [2]);
    assert_eq!(source.lines_with(".await"), [2]);
}
