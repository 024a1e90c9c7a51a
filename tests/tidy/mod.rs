//! Holds the house: which part names which, where outside crates live, how long files are and what they are called.
//! Reads the files of the repository as text; never builds or runs anything. To change a rule, change `tables`.
#![allow(clippy::panic, reason = "a test fails by it")]

mod bad_lines;
mod events;
mod homes;
mod rules;
mod source;
mod tables;
mod vocabulary;

use rules::Finding;
use source::Source;

#[test]
fn parts_import_only_allowed_parts() {
    assert_no_findings(rules::imports);
}

#[test]
fn components_import_only_lower_components() {
    assert_no_findings(rules::components);
}

#[test]
fn protocols_are_named_at_their_seam() {
    assert_no_findings(rules::seams);
}

#[test]
fn outside_crates_stay_at_home() {
    assert_no_findings(rules::outside_crates);
}

#[test]
fn every_dependency_has_a_home() {
    let homeless = rules::homeless(&source::program_manifests());
    assert!(homeless.is_empty(), "in only one of the manifests and CRATES: {homeless:?}");
}

/// The defects of `core::mutation` are compiled in by the simulation alone.
#[test]
fn no_part_of_the_program_asks_for_mutations() {
    let manifests = source::program_manifests();
    let asking: Vec<_> = manifests.iter().filter(|manifest| manifest.contains("mutations")).collect();
    let [core] = &asking[..] else { panic!("one part has the feature: {asking:?}") };
    assert!(core.contains("name = \"angarium-core\"") && core.contains("mutations = []"), "{core}");
}

#[test]
fn every_row_is_about_something() {
    let sources = Source::program();
    let vacant = rules::vacant(&sources);
    assert!(vacant.is_empty(), "the tables name what the program does not have: {vacant:?}");
}

#[test]
fn files_are_short() {
    assert_no_findings(rules::length);
}

#[test]
fn names_say_the_job() {
    assert_no_findings(rules::names);
}

#[test]
fn files_open_with_their_purpose() {
    assert_no_findings(rules::opening);
}

#[test]
fn nothing_is_left_for_later() {
    assert_no_findings(rules::unfinished);
}

#[test]
fn pure_parts_have_no_clock_and_no_dice() {
    assert_no_findings(rules::purity);
}

#[test]
fn simulated_parts_have_no_ambient_source() {
    assert_no_findings(rules::determinism);
}

/// What names tests beside the pages of the architecture.
const SECURITY: &str = "SECURITY.md";
const RULES: &str = "docs/architecture/rules.md";

/// The tests that a text names: words in code with many underscores. Attributes of queues begin with one.
fn named_tests(text: &str) -> Vec<&str> {
    let is_sentence = |name: &&str| {
        name.matches('_').count() > 2 && !name.starts_with('_') && name.bytes().all(source::in_name)
    };
    text.split('`').skip(1).step_by(2).filter(is_sentence).collect()
}

#[test]
fn tests_that_the_documents_name_are_there() {
    let sources = Source::all();
    let pages = ["decisions", "engine", "memory", "migration", "overview", "ownership", "storage", "time"]
        .map(|page| format!("docs/architecture/{page}.md"));
    for page in [SECURITY, RULES].map(ToOwned::to_owned).into_iter().chain(pages) {
        let text = source::read_file(&page);
        let is_there =
            |name: &&str| sources.iter().any(|source| !source.lines_with(&format!("fn {name}")).is_empty());
        let absent: Vec<&str> = named_tests(&text).into_iter().filter(|name| !is_there(name)).collect();
        assert!(absent.is_empty(), "{page}: {absent:?}");
    }
}

#[test]
fn each_protocol_rule_has_tests() {
    let text = source::read_file(RULES);
    let (rules, table) = text.split_once("\n## Tests\n").expect("the page has a table of tests");
    for number in 1..=15 {
        let rule = rules
            .split(&format!("\n## P{number} "))
            .nth(1)
            .unwrap_or_else(|| panic!("P{number} is not there"));
        let rule = rule.split("\n## ").next().unwrap_or_default();
        assert!(rule.contains("**Rule.**") && rule.contains("**Failure it prevents.**"), "P{number}");
        let row = table.lines().find_map(|line| line.strip_prefix(&format!("| P{number} | ")));
        let named = row.map_or(0, |row| row.matches('`').count() / 2);
        let tests = row.map(named_tests).unwrap_or_default().len();
        assert!(
            tests > 0 && tests == named,
            "P{number} names {named} tests, of which {tests} are known as such"
        );
    }
}

#[test]
fn each_defence_of_the_threat_model_has_tests() {
    let text = source::read_file(SECURITY);
    let table = text.split("### What the service defends against").nth(1).expect("the section is there");
    let rows: Vec<&str> = table.lines().skip(3).take_while(|line| !line.starts_with('#')).collect();
    let rows = rows.iter().filter(|row| row.starts_with("| ") && !row.starts_with("| attack"));
    let (mut count, mut bare) = (0, Vec::new());
    for row in rows {
        count += 1;
        if named_tests(row).is_empty() {
            bare.push(row);
        }
    }
    assert!(count > 10 && bare.is_empty(), "{count} rows, without tests: {bare:?}");
}

/// `.ci/run` does not build the package of fuzzing, since that needs a compiler for C++.
#[test]
fn fuzz_targets_use_only_crates_of_their_manifest() {
    let manifest = source::read_file("fuzz/Cargo.toml");
    let mut used = 0;
    let targets = ["backup", "request", "settings"].map(|name| format!("fuzz/fuzz_targets/{name}.rs"));
    let judges = ["tests/fuzz/backups.rs", "tests/fuzz/judge.rs"].map(str::to_owned);
    for file in targets.iter().chain(&judges) {
        let text = source::read_file(file);
        let parts = text.split("angarium_").skip(1);
        for part in parts.filter_map(|rest| rest.split_once("::")).map(|(part, _)| part) {
            used += 1;
            assert!(manifest.contains(&format!("\nangarium-{part} = ")), "{file} uses angarium_{part}");
        }
    }
    assert!(used > 5, "the targets use crates of the program");
}

/// Holds a rule over all files, and lists every line that breaks it.
fn assert_no_findings(rule: fn(&Source) -> Vec<Finding>) {
    let sources = Source::all();
    assert!(sources.len() > 1, "there are files to read");
    let found: Vec<_> = sources.iter().flat_map(rule).map(|finding| finding.to_string()).collect();
    assert!(found.is_empty(), "against the rules of tests/tidy/tables.rs:\n{}", found.join("\n"));
}
