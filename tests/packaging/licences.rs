//! What is built in, under which licences and from where, by the lists of `.deny.toml`. cargo-deny holds the same where it
//! is installed.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use super::text;

fn rules() -> toml::Table {
    text(".deny.toml").parse().expect(".deny.toml is TOML")
}

fn names(list: &toml::Value) -> BTreeSet<String> {
    list.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// The packages that are built on this machine, tests included.
fn packages() -> Vec<Value> {
    let rules = rules();
    let platform = rules["graph"]["targets"].as_array().unwrap()[0].as_str().unwrap();
    let read = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform", platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let metadata: Value = serde_json::from_slice(&read.stdout).unwrap();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let built: BTreeSet<_> = nodes.iter().map(|node| node["id"].as_str().unwrap().to_owned()).collect();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.filter(|package| built.contains(package["id"].as_str().unwrap())).cloned().collect()
}

/// Whether an SPDX expression can be met with the licences allowed: `OR` is weaker than `AND`, and `/` is an old `OR`.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<_> = text.split_whitespace().collect();
    let mut words = words.as_slice();
    let met = any_of(&mut words, allowed);
    assert!(words.is_empty(), "{expression}: {words:?} is left over");
    met
}

fn any_of(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = all_of(words, allowed);
    while words.first() == Some(&"OR") {
        *words = &words[1..];
        met |= all_of(words, allowed);
    }
    met
}

fn all_of(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = one(words, allowed);
    while words.first() == Some(&"AND") {
        *words = &words[1..];
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    match **words {
        ["(", ref rest @ ..] => {
            *words = rest;
            let met = any_of(words, allowed);
            assert_eq!(words.first(), Some(&")"));
            *words = &words[1..];
            met
        }
        [licence, "WITH", exception, ref rest @ ..] => {
            *words = rest;
            allowed.contains(&format!("{licence} WITH {exception}"))
        }
        [licence, ref rest @ ..] => {
            *words = rest;
            allowed.contains(licence)
        }
        [] => panic!("a licence is missing"),
    }
}

#[test]
fn every_licence_is_allowed_and_every_allowed_one_is_used() {
    let allowed = names(&rules()["licenses"]["allow"]);
    let packages = packages();
    let expressions: Vec<_> = packages
        .iter()
        .map(|package| {
            package["license"].as_str().unwrap_or_else(|| panic!("{} names none", package["name"]))
        })
        .collect();
    for (package, expression) in packages.iter().zip(&expressions) {
        assert!(is_met(expression, &allowed), "{}: {expression}", package["name"]);
    }
    // One that nothing needs any more would let in what no caller has looked at.
    for licence in &allowed {
        assert!(
            expressions.iter().any(|expression| expression.contains(licence.as_str())),
            "{licence} is not used"
        );
    }
}

#[test]
fn every_crate_is_from_one_registry_and_allowed() {
    let rules = rules();
    let registries = names(&rules["sources"]["allow-registry"]);
    let banned = rules["bans"]["deny"].as_array().unwrap().iter();
    let banned: Vec<_> = banned.map(|entry| entry["crate"].as_str().unwrap()).collect();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        assert!(!banned.contains(&name), "{name} is banned");
        if let Some(source) = package["source"].as_str() {
            let registry = source.strip_prefix("registry+").unwrap_or(source);
            assert!(registries.contains(registry), "{name} comes from {source}");
        }
    }
}

#[test]
fn an_expression_is_read_with_its_ands_and_ors() {
    let allowed: BTreeSet<_> = ["MIT", "A WITH B"].map(ToOwned::to_owned).into();
    for good in
        ["MIT", "GPL-3.0 OR MIT", "MIT/GPL-3.0", "(X OR MIT) AND MIT", "A WITH B OR X", "X AND Y OR MIT"]
    {
        assert!(is_met(good, &allowed), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND X", "A", "(MIT OR X) AND Y", "A WITH C"] {
        assert!(!is_met(bad, &allowed), "{bad}");
    }
}
