//! The suites of other languages, as `tests/languages` lists them, and which of them a change selects.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The scripts that select suites.
const SCRIPTS: [&str; 3] = ["tests/languages", "tests/steps.sh", "tests/suites.sh"];

struct Suite {
    /// The begins of the names of its tests.
    tests: Vec<String>,
    inputs: Vec<String>,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn languages(root: &Path, arguments: &[&str]) -> Output {
    Command::new(root.join("tests/languages")).args(arguments).output().expect("bash is there")
}

/// The suites that `tests/languages --list` names with these arguments.
fn listed(root: &Path, arguments: &[&str]) -> BTreeMap<String, Suite> {
    let list = languages(root, &[&["--list"], arguments].concat());
    assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
    let text = String::from_utf8(list.stdout).expect("names are text");
    let lines: Vec<&str> = text.lines().collect();
    let suite = |lines: &[&str]| {
        let tests = words(lines[1].strip_prefix("    tests: ").expect("the tests are next"));
        let inputs = words(lines[2].strip_prefix("    inputs: ").expect("the inputs are next"));
        (lines[0].to_owned(), Suite { tests, inputs })
    };
    lines.chunks(3).map(suite).collect()
}

fn all() -> BTreeMap<String, Suite> {
    listed(Path::new(ROOT), &[])
}

fn refusal(root: &Path, arguments: &[&str]) -> String {
    let refused = languages(root, arguments);
    assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(refused.stderr).expect("it is text")
}

/// A repository with these scripts and the inputs of all suites, on its main branch.
struct Repository(TempDir);

impl Repository {
    fn new() -> Self {
        let repository = Self(tempfile::tempdir().expect("there is room for a temporary directory"));
        for input in all().values().flat_map(|suite| &suite.inputs) {
            let is_file = Path::new(ROOT).join(input).is_file();
            repository.write(&if is_file { input.clone() } else { format!("{input}/part") });
        }
        for script in SCRIPTS {
            fs::copy(Path::new(ROOT).join(script), repository.root().join(script)).expect("there is room");
        }
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        repository.commit();
        repository
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, other than before.
    fn write(&self, path: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("it is below the root")).expect("there is room");
        let before = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, format!("{before}#\n")).expect("there is room");
    }

    fn git(&self, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.current_dir(self.root()).args(["-c", "user.name=any", "-c", "user.email=any@example.org"]);
        let done = git.args(arguments).env("GIT_CONFIG_GLOBAL", "/dev/null").output().expect("git is there");
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("it is text").trim().to_owned()
    }

    fn commit(&self) {
        self.git(&["add", "."]);
        self.git(&["commit", "--quiet", "--message=change"]);
    }

    fn changed(&self) -> Vec<String> {
        listed(self.root(), &["--since", "main"]).into_keys().collect()
    }

    /// The revision with which `.ci/run` compares.
    fn left_at(&self, argument: &str) -> String {
        let script = format!(". tests/steps.sh; . tests/suites.sh; left_at {argument}");
        let mut bash = Command::new("bash");
        let done = bash.current_dir(self.root()).args(["-euo", "pipefail", "-c", &script]).output();
        let done = done.expect("bash is there");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("it is text").trim().to_owned()
    }
}

#[test]
fn tests_of_a_suite_exist_and_are_its_own() {
    let list = Command::new(std::env::current_exe().expect("it runs")).arg("--list").output();
    let list = String::from_utf8(list.expect("it starts").stdout).expect("names are text");
    let names: Vec<&str> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let mut owners: BTreeMap<&str, String> = BTreeMap::new();
    for (suite, Suite { tests, .. }) in all() {
        for begin in tests {
            // A filter of the test binary is a part of a name.
            let found: Vec<&&str> = names.iter().filter(|name| name.contains(&begin)).collect();
            assert!(!found.is_empty(), "{suite}: no test begins with {begin}");
            for name in found {
                assert!(name.starts_with(&begin), "{suite}: {begin} is also a part of {name}");
                let other = owners.insert(name, suite.clone());
                assert_eq!(other, None, "{name} is in {suite} too");
            }
        }
    }
}

#[test]
fn inputs_of_each_suite_exist() {
    let suites = all();
    assert!(suites.len() > 10, "{}", suites.len());
    for (suite, Suite { inputs, .. }) in suites {
        let missing: Vec<&String> =
            inputs.iter().filter(|input| !Path::new(ROOT).join(input).exists()).collect();
        assert!(missing.is_empty(), "{suite}: {missing:?}");
    }
}

#[test]
fn changed_input_selects_its_suite() {
    let repository = Repository::new();
    assert_eq!(repository.changed(), [""; 0]);
    repository.git(&["switch", "--quiet", "--create", "work"]);
    // One is committed, one is not, and one is new.
    repository.write("tests/clients/part");
    repository.commit();
    assert_eq!(repository.changed(), ["openstack"]);
    repository.write("docs/guide/clients.md");
    assert_eq!(repository.changed(), ["examples", "openstack"]);
    repository.write("docs/guide/new.md");
    assert_eq!(repository.changed(), ["examples", "openstack"]);
    repository.write("crates/broker/new");
    assert_eq!(repository.changed(), ["boto3", "cats", "examples", "openstack"]);
    repository.write("tests/suites.sh");
    assert_eq!(repository.changed(), all().into_keys().collect::<Vec<_>>());
}

#[test]
fn unknown_suites_and_revisions_are_refused() {
    let root = Path::new(ROOT);
    let said = refusal(root, &["celery", "cobol"]);
    assert!(said.contains("no suite cobol") && said.contains("schemathesis"), "{said}");
    assert!(refusal(root, &["--fast"]).contains("unknown option --fast"));
    assert!(refusal(root, &["--since"]).contains("--since needs a revision"));
    assert!(refusal(root, &["--since", "HEAD", "celery"]).contains("either --since or suites"));
    let repository = Repository::new();
    let said = refusal(repository.root(), &["--list", "--since", "nowhere"]);
    assert!(said.contains("nowhere is no revision"), "{said}");
}

#[test]
fn named_suites_are_listed_alone() {
    let named = listed(Path::new(ROOT), &["celery", "aws-cli"]);
    assert_eq!(named.into_keys().collect::<Vec<_>>(), ["aws-cli", "celery"]);
}

#[test]
fn change_counts_since_its_branch_left_main() {
    let repository = Repository::new();
    assert_eq!(repository.left_at(""), "", "on the main branch everything runs");
    let fork = repository.git(&["rev-parse", "HEAD"]);
    repository.git(&["switch", "--quiet", "--create", "work"]);
    assert_eq!(repository.left_at(""), "", "nothing has changed");
    repository.write("tests/clients/part");
    repository.commit();
    assert_eq!(repository.left_at(""), fork);
    assert_eq!(repository.left_at("main"), fork);
    assert_eq!(repository.left_at("nowhere"), "", "without history everything runs");
    repository.git(&["branch", "--move", "main", "trunk"]);
    assert_eq!(repository.left_at(""), "");
    assert_eq!(repository.left_at("trunk"), fork);
    fs::remove_dir_all(repository.root().join(".git")).expect("it is there");
    assert_eq!(repository.left_at(""), "");
}
