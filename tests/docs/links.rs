//! Links and paths: each page is in the book once, and each link and each named file of the repository is there.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::page::{ROOT, all, anchors, book, prose, read};

/// The targets of the links of a text.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(str::to_owned).collect()
}

/// A path of the repository, seen from a page, without `..`.
fn resolve(page: &str, target: &str) -> String {
    let folder = Path::new(page).parent().expect("a page is in a folder");
    let mut resolved = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => assert!(resolved.pop(), "{page}: {target} is outside the repository"),
            part => resolved.push(part),
        }
    }
    resolved.to_str().expect("paths are text").to_owned()
}

/// Why a link of a page cannot be followed.
fn fault(page: &str, link: &str) -> Option<String> {
    if link.starts_with("https://") {
        return None;
    }
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = if target.is_empty() { page.to_owned() } else { resolve(page, target) };
    if !Path::new(ROOT).join(&path).exists() {
        return Some(format!("{page}: {link}: there is no {path}"));
    }
    let is_known = anchor.is_empty() || anchors(&read(&path)).iter().any(|known| known == anchor);
    (!is_known).then(|| format!("{page}: {link}: {path} has no such heading"))
}

#[test]
fn every_link_resolves() {
    let pages = [all(), vec!["docs/SUMMARY.md".to_owned()]].concat();
    let linked: Vec<(String, String)> = pages
        .iter()
        .flat_map(|page| links(&read(page)).into_iter().map(move |link| (page.clone(), link)))
        .collect();
    assert!(linked.len() > 150, "{}", linked.len());
    let faults: Vec<_> = linked.iter().filter_map(|(page, link)| fault(page, link)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn wrong_links_are_found() {
    let page = "docs/guide/rest.md";
    for wrong in ["absent.md", "../absent.md", "sqs.md#absent", "#absent", "http://plain.example"] {
        assert!(fault(page, wrong).is_some(), "{wrong}");
    }
    assert_eq!(fault(page, "../../README.md#how-it-works"), None);
}

#[test]
fn every_page_is_in_the_book_once() {
    let mut listed: Vec<String> =
        links(&read("docs/SUMMARY.md")).iter().map(|link| resolve("docs/SUMMARY.md", link)).collect();
    listed.sort();
    assert_eq!(listed, book());
    let book: toml::Table = read("book.toml").parse().expect("it is TOML");
    assert_eq!(book["book"]["src"].as_str(), Some("docs"));
}

#[test]
fn every_named_file_is_there() {
    const FOLDERS: [&str; 10] = [
        "src/",
        "crates/",
        "tests/",
        "docker/",
        "packaging/",
        "openapi/",
        "benches/",
        "docs/",
        "examples/",
        ".ci/",
    ];
    let mut named = BTreeSet::new();
    for page in all().into_iter().filter(|page| page != "CHANGELOG.md") {
        let text = prose(&read(&page));
        let words = text.split('`').skip(1).step_by(2).filter(|word| !word.contains([' ', '*', '{', '…']));
        named.extend(
            words.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder))).map(str::to_owned),
        );
    }
    assert!(named.len() > 40, "{named:?}");
    named.retain(|path| !Path::new(ROOT).join(path).exists());
    assert!(named.is_empty(), "not there: {named:?}");
}
