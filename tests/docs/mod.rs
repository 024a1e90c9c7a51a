//! The documents: every link resolves, every shell block runs, the pages that the program prints are fresh, and the examples
//! work. What tests the documents name is the matter of `tidy`.

mod budgets;
mod keda;
mod links;
mod page;
mod reference;
mod shell;

use angarium_core::mutation::Mutation;

/// The most bytes of the README.
const README_BYTES: usize = 8_192;

#[test]
fn readme_is_short() {
    let bytes = page::read("README.md").len();
    assert!(
        bytes <= README_BYTES,
        "{bytes} bytes, and {README_BYTES} are wanted: longer texts are pages of docs/"
    );
}

#[test]
fn prose_is_wrapped() {
    let long = |path: &String| {
        let lines = page::prose(&page::read(path)).lines().map(str::to_owned).collect::<Vec<_>>();
        let wide = lines.into_iter().filter(|line| line.chars().count() > 120 && !line.starts_with('|'));
        wide.map(|line| format!("{path}: {line}")).collect::<Vec<_>>()
    };
    let paths: Vec<String> = page::all().into_iter().filter(|path| path != "CHANGELOG.md").collect();
    let wide: Vec<_> = paths.iter().flat_map(long).collect();
    assert!(wide.is_empty(), "wider than 120 columns:\n{}", wide.join("\n"));
}

#[test]
fn mutations_of_the_simulation_are_those_of_the_code() {
    let page = page::read("docs/architecture/simulation.md");
    let rows = page.lines().skip_while(|line| *line != "| rule | mutation | seeds |").skip(2);
    let rows = rows.take_while(|line| line.starts_with("| P"));
    let named: Vec<String> = rows.map(|row| row.split(" | ").take(2).collect::<Vec<_>>().join(" ")).collect();
    let row = |mutation: &Mutation| format!("| {} `{}`", mutation.rule(), mutation.name());
    assert_eq!(named, Mutation::ALL.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn decision_has_a_price() {
    let page = page::read("docs/architecture/decisions.md");
    let records: Vec<&str> = page.split("\n\n").filter(|text| text.starts_with("**")).collect();
    assert!(records.len() > 40, "{}", records.len());
    let free: Vec<_> = records.iter().filter(|record| !record.contains("*Price:*")).collect();
    assert!(free.is_empty(), "without a price: {free:#?}");
}

#[test]
fn named_verbs_are_recipes_of_the_justfile() {
    let recipes = page::read("justfile");
    let has = |verb: &str| recipes.lines().any(|line| line.split([' ', ':']).next() == Some(verb));
    let text = page::read("CONTRIBUTING.md");
    let verbs: Vec<&str> =
        text.split("`just ").skip(1).filter_map(|rest| rest.split([' ', '`']).next()).collect();
    assert!(verbs.len() > 8, "{verbs:?}");
    let missing: Vec<_> = verbs.iter().filter(|verb| !has(verb)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
