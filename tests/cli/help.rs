//! What the program states of itself: short enough to be read, and all of it where that is asked for.

use super::Program;

#[test]
fn help_of_the_program_fits_a_screen_and_groups_the_commands() {
    let help = Program::new(None).say(&["--help"]);
    assert!(help.lines().count() <= 60, "{} lines", help.lines().count());
    for heading in ["Run a service:", "Use queues:", "Administer a service:", "Options:", "Exit codes"] {
        assert!(help.contains(heading), "{heading}: {help}");
    }
    assert!(!help.contains("--max-connections"), "settings are told of by `serve`: {help}");
}

#[test]
fn service_help_is_short_or_complete() {
    let program = Program::new(None);
    let (short, long) = (program.say(&["serve", "-h"]), program.say(&["serve", "--help"]));
    assert!(short.lines().count() <= 60, "{} lines", short.lines().count());
    assert!(short.contains("--listen") && !short.contains("--max-connections-per-address"), "{short}");
    assert!(short.contains("--help all of them"), "{short}");
    for heading in [
        "Service:",
        "Storage:",
        "Replicas:",
        "Access:",
        "Connections and requests:",
        "Amazon SQS:",
        "Quotas of projects:",
    ] {
        assert!(long.contains(heading), "{heading}: {long}");
    }
    let shown = program.say(&["config"]);
    for key in shown.lines().filter_map(|line| line.trim_start_matches("# ").split([' ', '=']).next()) {
        assert!(long.contains(&format!("--{}", key.replace('_', "-"))), "{key}");
    }
    // Only help and version are without a heading of their own.
    let rest = long.split("\nOptions:\n").nth(1).expect("it has options");
    let rest = rest.split("\n\n  ").next().unwrap_or_default();
    assert!(!rest.contains("--listen"), "{rest}");
}

#[test]
fn short_command_help_omits_rare_options() {
    let program = Program::new(None);
    let (short, long) = (program.say(&["queue", "list", "-h"]), program.say(&["queue", "list", "--help"]));
    assert!(short.contains("--url") && !short.contains("--contexts"), "{short}");
    assert!(long.contains("--contexts"), "{long}");
}
