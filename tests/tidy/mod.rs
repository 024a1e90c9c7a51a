//! Holds the house: which part names which, where outside crates live, how long files are and what they are called.
//! Reads the files of the repository as text; never builds or runs anything. To change a rule, change `tables`.
#![allow(clippy::panic, reason = "a test fails by it")]

mod bad_lines;
mod rules;
mod source;
mod tables;

use rules::Finding;
use source::Source;

#[test]
fn parts_name_only_what_their_row_allows() {
    nothing_found(rules::imports);
}

#[test]
fn outside_crates_stay_at_home() {
    nothing_found(rules::crates);
}

#[test]
fn every_dependency_has_a_home() {
    let homeless = rules::homeless(&source::read_file("Cargo.toml"));
    assert!(homeless.is_empty(), "in only one of Cargo.toml and CRATES: {homeless:?}");
}

#[test]
fn every_row_is_about_something() {
    let sources = Source::all_below("src");
    let vacant = rules::vacant(&sources);
    assert!(vacant.is_empty(), "the tables name what src/ does not have: {vacant:?}");
}

#[test]
fn files_are_short() {
    nothing_found(rules::length);
}

#[test]
fn names_say_the_job() {
    nothing_found(rules::names);
}

#[test]
fn files_open_with_what_they_own() {
    nothing_found(rules::opening);
}

#[test]
fn nothing_is_left_for_later() {
    nothing_found(rules::unfinished);
}

#[test]
fn pure_parts_have_no_clock_and_no_dice() {
    nothing_found(rules::purity);
}

#[test]
fn tests_that_the_architecture_names_are_there() {
    let sources = [Source::all_below("src"), Source::all_below("tests")].concat();
    let text = source::read_file("ARCHITECTURE.md");
    let is_sentence = |name: &&str| name.matches('_').count() > 2 && name.bytes().all(source::in_name);
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).filter(is_sentence).collect();
    assert!(named.len() > 40, "{named:?}");
    let is_there = |name: &&str| sources.iter().any(|source| !source.lines_with(name).is_empty());
    let absent: Vec<&&str> = named.iter().filter(|name| !is_there(name)).collect();
    assert!(absent.is_empty(), "{absent:?}");
}

/// Holds a rule over all files, and lists every line that breaks it.
fn nothing_found(rule: fn(&Source) -> Vec<Finding>) {
    let sources = [Source::all_below("src"), Source::all_below("tests")].concat();
    assert!(sources.len() > 1, "there are files to read");
    let found: Vec<_> = sources.iter().flat_map(rule).map(|finding| finding.to_string()).collect();
    assert!(found.is_empty(), "against the rules of tests/tidy/tables.rs:\n{}", found.join("\n"));
}
