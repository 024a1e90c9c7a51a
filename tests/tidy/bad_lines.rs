//! Lines that break a rule, and lines that only look like it: what keeps the rules from going blind.

use super::rules::{self, Finding};
use super::source::Source;

/// What a rule finds in a file with this text.
fn found(rule: fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> Vec<String> {
    rule(&Source::new(path, text)).iter().map(ToString::to_string).collect()
}

#[test]
fn a_forbidden_import_is_caught_with_its_line() {
    let text = "//! A.\n\nuse angarium_core::ids::Id;\nuse angarium_storage::PoolStore;\n";
    let found = found(rules::imports, "src/api/json.rs", text);
    assert_eq!(found, ["src/api/json.rs:4: api may not name storage::PoolStore (IMPORTS)"]);
}

#[test]
fn an_import_in_a_group_is_caught() {
    let text = "use crate::{\n    budget::{self, Budget},\n    server,\n    bodies::Body,\n};";
    let found = found(rules::imports, "src/api/pipeline/bodies.rs", text);
    assert_eq!(found, ["src/api/pipeline/bodies.rs:3: api/pipeline/bodies.rs may not name server (IMPORTS)"]);
}

#[test]
fn an_import_by_way_of_super_is_caught() {
    let text = "fn a() { super::super::server::open() }";
    let found = found(rules::imports, "src/api/json.rs", text);
    assert_eq!(found, ["src/api/json.rs:1: api may not name server::open (IMPORTS)"]);
}

#[test]
fn a_neighbour_named_like_a_part_is_no_import() {
    assert!(found(rules::imports, "crates/engine/src/queue.rs", "use super::storage::Page;").is_empty());
}

#[test]
fn an_import_of_a_higher_component_is_caught() {
    let text = "use crate::claims::Claims;\nuse crate::slot::state::Slot;\nuse crate::transfer::Transfers;";
    let found = found(rules::components, "crates/broker/src/messages/post.rs", text);
    assert_eq!(
        found,
        [
            "crates/broker/src/messages/post.rs:1: messages may not name claims (COMPONENTS)",
            "crates/broker/src/messages/post.rs:3: messages may not name transfer (COMPONENTS)",
        ]
    );
}

#[test]
fn a_protocol_named_beside_the_seam_is_caught() {
    let text = "use super::json;\nuse crate::api::sqs::Fault;";
    let findings = found(rules::seams, "src/api/pipeline/frame.rs", text);
    let rule = "of api/pipeline only api/pipeline/protocol.rs may name api::sqs (SEAMS)";
    assert_eq!(findings, [format!("src/api/pipeline/frame.rs:2: {rule}")]);
    assert!(found(rules::seams, "src/api/pipeline/protocol.rs", text).is_empty());
}

#[test]
fn a_lock_of_a_slot_above_it_is_caught() {
    let text = "fn a() { let state = slot.lock(); }";
    assert_eq!(found(rules::components, "crates/broker/src/claims/list.rs", text).len(), 1);
    assert!(found(rules::components, "crates/broker/src/slot/wake.rs", text).is_empty());
}

#[test]
fn the_longest_row_wins() {
    let text = "use angarium_journal::Journal;";
    assert!(found(rules::imports, "crates/storage/src/embedded/mod.rs", text).is_empty());
    assert_eq!(found(rules::imports, "crates/storage/src/redis/mod.rs", text).len(), 1);
}

#[test]
fn a_row_for_one_module_does_not_open_its_part() {
    assert!(
        found(rules::imports, "src/commands/openapi.rs", "use crate::api::openapi::document;").is_empty()
    );
    assert_eq!(found(rules::imports, "src/commands/serve.rs", "use crate::api::router;").len(), 1);
}

#[test]
fn a_driver_named_outside_its_one_file_is_caught() {
    let text = "use super::embedded::EmbeddedStore;";
    assert!(found(rules::imports, "crates/storage/src/open.rs", text).is_empty());
    let text = "use angarium_storage::embedded::EmbeddedStore;";
    let found = found(rules::imports, "crates/broker/src/lib.rs", text);
    assert_eq!(
        found,
        ["crates/broker/src/lib.rs:1: only storage/open.rs may name storage::embedded (DRIVERS)"]
    );
}

#[test]
fn a_part_without_a_row_is_caught() {
    let found = found(rules::imports, "crates/novelty/src/lib.rs", "//! New.");
    assert_eq!(found, ["crates/novelty/src/lib.rs:1: no row of IMPORTS is for this file"]);
}

#[test]
fn a_crate_away_from_home_is_caught() {
    let found = found(rules::outside_crates, "crates/broker/src/lib.rs", "//! A.\nuse fjall::Keyspace;\n");
    assert_eq!(found, ["crates/broker/src/lib.rs:2: fjall is at home in journal (CRATES)"]);
}

#[test]
fn a_crate_imported_whole_is_caught() {
    assert_eq!(found(rules::outside_crates, "crates/broker/src/lib.rs", "use axum as web;").len(), 1);
    assert_eq!(
        found(rules::outside_crates, "crates/broker/src/lib.rs", "fn a() -> ::axum::Router {}").len(),
        1
    );
}

#[test]
fn a_module_named_like_a_crate_is_no_crate() {
    let text = "use tracing::http::Uri; // axum::Router\nlet http = \"fjall::Keyspace\";";
    assert!(found(rules::outside_crates, "crates/broker/src/lib.rs", text).is_empty());
}

#[test]
fn a_dependency_without_a_home_is_caught() {
    let known: String = super::homes::CRATES.iter().map(|(name, _)| format!("{name} = \"1\"\n")).collect();
    let manifest =
        format!("[package]\nname = \"a\"\n\n[dependencies]\n{known}\n[dev-dependencies]\nproptest = \"1\"\n");
    assert!(rules::homeless(std::slice::from_ref(&manifest)).is_empty());
    let manifest = manifest.replace("fjall = \"1\"", "left-pad = { version = \"1\" }");
    assert_eq!(rules::homeless(&[manifest]), ["fjall", "left_pad"]);
}

#[test]
fn a_row_about_nothing_is_caught() {
    let vacant = rules::vacant(&[Source::new("crates/journal/src/lib.rs", "")]);
    assert!(vacant.contains(&"engine/placement") && !vacant.contains(&"journal"), "{vacant:?}");
}

#[test]
fn a_long_file_is_caught() {
    assert!(found(rules::length, "tests/a.rs", &"\n".repeat(500)).is_empty());
    assert_eq!(found(rules::length, "tests/a.rs", &"\n".repeat(501)).len(), 1);
}

#[test]
fn names_without_a_job_are_caught() {
    for path in ["src/api/utils.rs", "tests/helpers/mod.rs", "crates/broker/src/queue_manager.rs"] {
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
fn ambient_sources_and_plain_selects_are_caught() {
    let text = "use std::time::{Duration, Instant};\nlet id = Uuid::new_v4();\nselect! {\n    a = b => c,\n}\nselect! {\n    biased;\n}";
    assert_eq!(found(rules::determinism, "crates/broker/src/queues.rs", text).len(), 3);
    assert!(found(rules::determinism, "src/api/queues.rs", text).is_empty());
    assert!(found(rules::determinism, "crates/cluster/src/random.rs", "rand::rng()").is_empty());
}

#[test]
fn clocks_and_dice_are_caught_in_pure_parts_only() {
    let text = "let now = Instant::now();\nlet die = rand::rng();\nasync fn a() { b().await }";
    assert_eq!(found(rules::purity, "crates/engine/src/queue.rs", text).len(), 4);
    assert!(found(rules::purity, "crates/broker/src/queues.rs", text).is_empty());
    assert!(found(rules::purity, "crates/core/src/ids.rs", "use rand::rngs::SmallRng;").is_empty());
}
