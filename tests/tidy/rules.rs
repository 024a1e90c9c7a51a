//! The rules: each takes files and answers with what is wrong in them. Which names are meant is in `tables` and `homes`.

use std::collections::BTreeSet;
use std::fmt;

use super::homes::CRATES;
use super::source::{Source, in_name, offsets};
use super::tables::{
    AMBIENT, AMBIENT_TYPES, COMPONENTS, DETERMINED, DRIVERS, EMPTY_NAMES, HANDLES, IMPORTS, IMPURE, LINES,
    PURE, SEAMS, UNFINISHED,
};

/// Something wrong, and where.
#[derive(Debug)]
pub struct Finding {
    path: String,
    line: usize,
    rule: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.rule)
    }
}

fn finding(source: &Source, line: usize, rule: impl Into<String>) -> Finding {
    Finding { path: source.path.clone(), line, rule: rule.into() }
}

/// Parts name only the parts that their row allows, and drivers are named by one file.
pub fn imports(source: &Source) -> Vec<Finding> {
    let Some(path) = source.in_program() else { return Vec::new() };
    let path = path.as_str();
    let Some((part, allowed)) = row_of(path) else {
        return vec![finding(source, 1, "no row of IMPORTS is for this file")];
    };
    let mut findings = Vec::new();
    for (line, module) in named_modules(source, path) {
        let own = module.split("::").next() == module_path(path).first().copied();
        if !own && !allowed.iter().any(|allowed| is_below(&module, allowed, "::")) {
            findings.push(finding(source, line, format!("{part} may not name {module} (IMPORTS)")));
        }
        for (driver, home) in DRIVERS {
            let inside = is_below(&module_path(path).join("::"), driver, "::");
            if is_below(&module, driver, "::") && path != *home && !inside {
                findings.push(finding(source, line, format!("only {home} may name {driver} (DRIVERS)")));
            }
        }
    }
    findings
}

/// A part sees the modules behind a seam only through the file of the seam.
pub fn seams(source: &Source) -> Vec<Finding> {
    let Some(path) = source.in_program() else { return Vec::new() };
    let closed = SEAMS.iter().filter(|(part, seam, _)| is_below(&path, part, "/") && path != *seam);
    let named = closed.flat_map(|(part, seam, hidden)| {
        let modules = named_modules(source, &path).into_iter();
        let is_hidden = |module: &str| hidden.iter().any(|hidden| is_below(module, hidden, "::"));
        modules
            .filter(move |(_, module)| is_hidden(module))
            .map(move |(line, module)| (line, module, part, seam))
    });
    named
        .map(|(line, module, part, seam)| {
            finding(source, line, format!("of {part} only {seam} may name {module} (SEAMS)"))
        })
        .collect()
}

/// Components of the broker name only those below them, and only `slot` locks a slot.
pub fn components(source: &Source) -> Vec<Finding> {
    let Some(path) = source.in_program().filter(|path| path.starts_with("broker/")) else {
        return Vec::new();
    };
    let Some(own) = module_path(&path).get(1).copied() else { return Vec::new() };
    let Some(level) = level(own) else {
        return vec![finding(source, 1, format!("{own} is in no row of COMPONENTS"))];
    };
    let named = named_modules(source, &path).into_iter().filter_map(|(line, module)| {
        let component = module.strip_prefix("broker::")?.to_owned();
        Some((line, component))
    });
    let mut findings: Vec<Finding> = named
        .filter(|(_, component)| {
            component != own && self::level(component).is_some_and(|other| other >= level)
        })
        .filter(|_| level + 1 < COMPONENTS.len())
        .map(|(line, component)| {
            finding(source, line, format!("{own} may not name {component} (COMPONENTS)"))
        })
        .collect();
    if own != "slot" {
        let locked = ["slot.lock(", "slot().lock("];
        let lines = locked.iter().flat_map(|call| source.lines_with(call));
        findings.extend(lines.map(|line| finding(source, line, "only the broker's slot locks a slot")));
    }
    findings
}

/// The row of COMPONENTS that a component is in. The two of the last row name each other.
fn level(component: &str) -> Option<usize> {
    COMPONENTS.iter().position(|row| row.contains(&component))
}

/// Outside crates are named in their homes only.
pub fn outside_crates(source: &Source) -> Vec<Finding> {
    let Some(path) = source.in_program() else { return Vec::new() };
    let away = CRATES.iter().filter(|(_, homes)| !homes.iter().any(|home| is_below(&path, home, "/")));
    let named = away.flat_map(|(name, homes)| crate_lines(source, name).map(move |line| (line, name, homes)));
    named
        .map(|(line, name, homes)| {
            finding(source, line, format!("{name} is at home in {} (CRATES)", homes.join(", ")))
        })
        .collect()
}

pub fn length(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().count();
    let rule = format!("{lines} lines, more than {LINES} (LINES): split it by subject");
    if lines > LINES { vec![finding(source, lines, rule)] } else { Vec::new() }
}

/// Files, folders and modules are named for their job.
pub fn names(source: &Source) -> Vec<Finding> {
    let on_path = source.path.trim_end_matches(".rs").split('/').map(|name| (1, name));
    let inline = offsets(&source.code, "mod ").map(|at| (source.line(at), name_at(&source.code[at + 4..])));
    on_path
        .chain(inline)
        .filter(|(_, name)| name.split('_').any(|word| EMPTY_NAMES.contains(&word)))
        .map(|(line, name)| finding(source, line, format!("{name} names no job (EMPTY_NAMES)")))
        .collect()
}

/// A file opens with what it owns.
pub fn opening(source: &Source) -> Vec<Finding> {
    if source.text.starts_with("//! ") {
        return Vec::new();
    }
    vec![finding(source, 1, "a file opens with //! and what it owns")]
}

pub fn unfinished(source: &Source) -> Vec<Finding> {
    found(source, UNFINISHED, "is left for later (UNFINISHED)")
}

/// Pure parts never wait, read a clock or roll dice.
pub fn purity(source: &Source) -> Vec<Finding> {
    let pure = source.in_program().is_some_and(|path| PURE.iter().any(|part| is_below(&path, part, "/")));
    if pure { found(source, IMPURE, "in a pure part (IMPURE): pass time and dice in") } else { Vec::new() }
}

/// Parts that can be simulated name no ambient source of time or randomness, and every `select!` states its order.
pub fn determinism(source: &Source) -> Vec<Finding> {
    let is_determined = |path: &String| DETERMINED.iter().any(|part| is_below(path, part, "/"));
    if source.in_program().is_none_or(|path| !is_determined(&path) || HANDLES.contains(&&*path)) {
        return Vec::new();
    }
    let mut findings = found(source, AMBIENT, "is an ambient source (AMBIENT): take it from the replica");
    for (module, name, instead) in AMBIENT_TYPES {
        let imports = offsets(&source.code, module).map(|at| &source.code[at..]);
        let named =
            imports.filter(|import| import.split(';').next().is_some_and(|import| import.contains(name)));
        findings.extend(named.map(|import| {
            let line = source.line(source.code.len() - import.len());
            finding(source, line, format!("the {name} of std is an ambient source: take that of {instead}"))
        }));
    }
    let select = "select! {";
    let is_plain = |at: &usize| !source.code[at + select.len()..].trim_start().starts_with("biased;");
    let plain = offsets(&source.code, select).filter(is_plain);
    findings.extend(plain.map(|at| finding(source, source.line(at), "a select! states its order: biased")));
    findings
}

/// The table of crates and the dependencies of the program's packages name the same crates; what only one of them names.
pub fn homeless(manifests: &[String]) -> Vec<String> {
    let wanted: BTreeSet<_> = manifests
        .iter()
        .flat_map(|manifest| {
            let below = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
            below.take_while(|line| !line.starts_with('['))
        })
        .filter_map(|line| line.split_once(['=', '.']))
        .map(|(name, _)| name.trim().replace('-', "_"))
        .filter(|name| !name.starts_with("angarium_"))
        .collect();
    let known: BTreeSet<_> = CRATES.iter().map(|(name, _)| (*name).to_owned()).collect();
    wanted.symmetric_difference(&known).cloned().collect()
}

/// Paths that a table names and no file has.
pub fn vacant(sources: &[Source]) -> Vec<&'static str> {
    let homes = CRATES.iter().flat_map(|(_, homes)| homes.iter());
    let seams = SEAMS.iter().flat_map(|(part, seam, _)| [part, seam]);
    let parts = IMPORTS.iter().map(|(part, _)| part).chain(DRIVERS.iter().map(|(_, home)| home)).chain(seams);
    let exists =
        |named: &str| sources.iter().filter_map(Source::in_program).any(|path| is_below(&path, named, "/"));
    homes.chain(parts).chain(PURE).filter(|named| !exists(named)).copied().collect()
}

fn found(source: &Source, words: &[&str], rule: &str) -> Vec<Finding> {
    let lines =
        words.iter().flat_map(|word| source.lines_with(word).into_iter().map(move |line| (line, word)));
    lines.map(|(line, word)| finding(source, line, format!("{word} {rule}"))).collect()
}

/// The crates that rows of IMPORTS are about.
fn crates() -> BTreeSet<&'static str> {
    IMPORTS.iter().filter_map(|(part, _)| module_path(part).first().copied()).collect()
}

fn row_of(path: &str) -> Option<(&'static str, &'static [&'static str])> {
    let rows = IMPORTS.iter().filter(|(part, _)| is_below(path, part, "/"));
    rows.max_by_key(|(part, _)| part.len()).map(|(part, allowed)| (*part, *allowed))
}

/// Whether `name` is `above` or below it. Everything is below the empty name.
fn is_below(name: &str, above: &str, separator: &str) -> bool {
    let rest = name.strip_prefix(above);
    above.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(separator))
}

/// The module of a file: `["api", "json"]` for `api/json.rs`, `["api"]` for `api/mod.rs`.
fn module_path(path: &str) -> Vec<&str> {
    let mut names: Vec<_> = path.trim_end_matches(".rs").split('/').collect();
    if matches!(names.last(), Some(&("mod" | "lib" | "main"))) {
        names.pop();
    }
    names
}

/// The modules of the program that a file names by `crate::`, `super::` or the name of their crate: their first two names,
/// with the line.
fn named_modules(source: &Source, path: &str) -> Vec<(usize, String)> {
    let own = module_path(path);
    let mut modules = Vec::new();
    let own_crate = source.path.strip_prefix("crates/").and_then(|path| path.split('/').next());
    for (root, base) in [("crate::", own_crate), ("angarium::", None)] {
        for at in offsets(&source.code, root) {
            add_modules(source, at + root.len(), base.as_slice(), &mut modules);
        }
    }
    for name in crates() {
        let root = format!("angarium_{name}");
        for at in offsets(&source.code, &root) {
            let after = at + root.len();
            if source.code[after..].starts_with("::") {
                add_modules(source, after + 2, &[name], &mut modules);
            } else {
                modules.push((source.line(at), name.to_owned()));
            }
        }
    }
    for at in offsets(&source.code, "super::") {
        if source.code[..at].ends_with("super::") {
            continue;
        }
        let (mut after, mut above) = (at, own.len());
        while source.code[after..].starts_with("super::") {
            after += "super::".len();
            above = above.saturating_sub(1);
        }
        add_modules(source, after, &own[..above], &mut modules);
    }
    // What is not a part of the crate is an item, or a module inside the file.
    modules.retain(|(_, module)| {
        IMPORTS.iter().any(|(part, _)| module_path(part).first() == module.split("::").next().as_ref())
    });
    modules
}

/// Adds what a path names from `at` on, below the module `base`: one path, or a group of them in braces.
fn add_modules(source: &Source, at: usize, base: &[&str], modules: &mut Vec<(usize, String)>) {
    let rest = &source.code[at..];
    let mut add = |at: usize| {
        let first = name_at(&source.code[at..]);
        let second = source.code[at + first.len()..].strip_prefix("::").map_or("", name_at);
        let names = base.iter().copied().chain([first, second]).filter(|name| !name.is_empty());
        modules.push((source.line(at), names.take(2).collect::<Vec<_>>().join("::")));
    };
    if !rest.starts_with('{') {
        return add(at);
    }
    let mut depth = 0;
    let mut expected = false;
    for (offset, byte) in rest.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ if expected && in_name(byte) => add(at + offset),
            _ => {}
        }
        if depth == 0 {
            return;
        }
        let opens = depth == 1 && matches!(byte, b'{' | b',');
        expected = opens || expected && byte.is_ascii_whitespace();
    }
}

/// The name that begins here.
fn name_at(code: &str) -> &str {
    let end = code.bytes().position(|byte| !in_name(byte)).unwrap_or(code.len());
    &code[..end]
}

/// The lines that name an outside crate: as the head of a path, or imported whole.
fn crate_lines<'a>(source: &'a Source, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let code = &source.code;
    let named = offsets(code, name).filter(move |at| {
        let (before, after) = (&code[..*at], &code[at + name.len()..]);
        // `axum::http::` is axum's.
        let inner = before.strip_suffix("::").is_some_and(|outer| outer.bytes().last().is_some_and(in_name));
        let whole = before.ends_with("use ") && (after.starts_with(';') || after.starts_with(" as "));
        !inner && (after.starts_with("::") || whole)
    });
    named.map(|at| source.line(at))
}
