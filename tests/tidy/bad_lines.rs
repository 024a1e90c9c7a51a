//! Lines that break a rule, and lines that only look like it: what keeps the rules from going blind.

use super::rules::{self, Finding};
use super::source::Source;

/// What a rule finds in a file with this text.
fn found(rule: fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> Vec<String> {
    rule(&Source::new(path, text)).iter().map(ToString::to_string).collect()
}

#[test]
fn a_forbidden_import_is_caught_with_its_line() {
    let text = "//! A.\n\nuse crate::domain::ids::Id;\nuse crate::storage::PoolStore;\n";
    let found = found(rules::imports, "src/api/json.rs", text);
    assert_eq!(found, ["src/api/json.rs:4: api may not name storage::PoolStore (IMPORTS)"]);
}

#[test]
fn an_import_in_a_group_is_caught() {
    let text = "use crate::{\n    broker::{self, Broker},\n    engine,\n    error::Error,\n};";
    let found = found(rules::imports, "src/api/v2/claims.rs", text);
    assert_eq!(found, ["src/api/v2/claims.rs:3: api may not name engine (IMPORTS)"]);
}

#[test]
fn an_import_by_way_of_super_is_caught() {
    let text = "fn a() { super::super::journal::open() }";
    let found = found(rules::imports, "src/api/json.rs", text);
    assert_eq!(found, ["src/api/json.rs:1: api may not name journal::open (IMPORTS)"]);
}

#[test]
fn a_neighbour_named_like_a_part_is_no_import() {
    assert!(found(rules::imports, "src/engine/queue.rs", "use super::storage::Page;").is_empty());
}

#[test]
fn the_longest_row_wins() {
    let text = "use crate::journal::Journal;";
    assert!(found(rules::imports, "src/storage/embedded/mod.rs", text).is_empty());
    assert_eq!(found(rules::imports, "src/storage/redis/mod.rs", text).len(), 1);
}

#[test]
fn a_row_for_one_module_does_not_open_its_part() {
    assert!(found(rules::imports, "src/cli/openapi.rs", "use crate::api::openapi::document;").is_empty());
    assert_eq!(found(rules::imports, "src/cli/serve.rs", "use crate::api::router;").len(), 1);
}

#[test]
fn a_driver_named_outside_its_one_file_is_caught() {
    let text = "use super::embedded::EmbeddedStore;";
    assert!(found(rules::imports, "src/storage/open.rs", text).is_empty());
    let text = "use crate::storage::embedded::EmbeddedStore;";
    let found = found(rules::imports, "src/broker/mod.rs", text);
    assert_eq!(found, ["src/broker/mod.rs:1: only storage/open.rs may name storage::embedded (DRIVERS)"]);
}

#[test]
fn a_part_without_a_row_is_caught() {
    let found = found(rules::imports, "src/novelty/mod.rs", "//! New.");
    assert_eq!(found, ["src/novelty/mod.rs:1: no row of IMPORTS is for this file"]);
}

#[test]
fn a_crate_away_from_home_is_caught() {
    let found = found(rules::crates, "src/broker/mod.rs", "//! A.\nuse fjall::Keyspace;\n");
    assert_eq!(found, ["src/broker/mod.rs:2: fjall is at home in journal (CRATES)"]);
}

#[test]
fn a_crate_imported_whole_is_caught() {
    assert_eq!(found(rules::crates, "src/broker/mod.rs", "use axum as web;").len(), 1);
    assert_eq!(found(rules::crates, "src/broker/mod.rs", "fn a() -> ::axum::Router {}").len(), 1);
}

#[test]
fn a_module_named_like_a_crate_is_no_crate() {
    let text = "use tracing::http::Uri; // axum::Router\nlet http = \"fjall::Keyspace\";";
    assert!(found(rules::crates, "src/broker/mod.rs", text).is_empty());
}

#[test]
fn a_dependency_without_a_home_is_caught() {
    let known: String = super::tables::CRATES.iter().map(|(name, _)| format!("{name} = \"1\"\n")).collect();
    let manifest =
        format!("[package]\nname = \"a\"\n\n[dependencies]\n{known}\n[dev-dependencies]\nproptest = \"1\"\n");
    assert!(rules::homeless(&manifest).is_empty());
    let manifest = manifest.replace("fjall = \"1\"", "left-pad = { version = \"1\" }");
    assert_eq!(rules::homeless(&manifest), ["fjall", "left_pad"]);
}

#[test]
fn a_row_about_nothing_is_caught() {
    let vacant = rules::vacant(&[Source::new("src/journal/mod.rs", "")]);
    assert!(vacant.contains(&"placement") && !vacant.contains(&"journal"), "{vacant:?}");
}

#[test]
fn a_long_file_is_caught() {
    assert!(found(rules::length, "tests/a.rs", &"\n".repeat(500)).is_empty());
    assert_eq!(found(rules::length, "tests/a.rs", &"\n".repeat(501)).len(), 1);
}

#[test]
fn names_without_a_job_are_caught() {
    for path in ["src/api/utils.rs", "tests/helpers/mod.rs", "src/broker/queue_manager.rs"] {
        assert_eq!(found(rules::names, path, "//! A.").len(), 1, "{path}");
    }
    let found =
        found(rules::names, "src/api/baseline.rs", "//! A.\npub mod common {\n    mod serviced {}\n}");
    assert_eq!(found, ["src/api/baseline.rs:2: common names no job (EMPTY_NAMES)"]);
}

#[test]
fn a_file_without_an_opening_is_caught() {
    assert_eq!(found(rules::opening, "src/a.rs", "use a;\n//! Late.").len(), 1);
}

#[test]
fn unfinished_code_is_caught() {
    let text =
        "//! todo!( here is prose\nfn a() { todo!() }\n#[ignore]\nfn b() { dbg!(1); }\n#[ignore = \"later\"]";
    let found = found(rules::unfinished, "tests/a.rs", text);
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn clocks_and_dice_are_caught_in_pure_parts_only() {
    let text = "let now = Instant::now();\nlet die = rand::rng();\nasync fn a() { b().await }";
    assert_eq!(found(rules::purity, "src/engine/queue.rs", text).len(), 4);
    assert!(found(rules::purity, "src/broker/queues.rs", text).is_empty());
    assert!(found(rules::purity, "src/domain/ids.rs", "use rand::rngs::SmallRng;").is_empty());
}
