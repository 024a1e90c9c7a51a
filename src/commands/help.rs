//! The layout of the help: commands in groups, the common settings in `-h` and all of them in `--help`. The texts of
//! commands and settings are elsewhere.

use std::fmt::Write;

use clap::Command;

use crate::config::layers::TAKE_SETTINGS;

/// The commands, grouped by purpose. A test checks that each is here once.
const GROUPS: &[(&str, &[&str])] = &[
    ("Run a service", &["serve", "config", "token", "tree", "doctor"]),
    ("Back up a service", &["backup", "verify", "restore"]),
    ("Use queues", &["queue", "topic", "subscription", "message", "claim", "quota"]),
    (
        "Administer a service",
        &["top", "health", "pool", "project", "flavor", "components", "drain", "rotate-receipts"],
    ),
    ("More", &["context", "ping", "bench", "openapi", "completions", "help"]),
];

/// The common settings, which `-h` shows.
const COMMON: &[&str] = &[
    "config",
    "listen",
    "data",
    "pool",
    "coordination",
    "tokens",
    "tls_cert",
    "tls_key",
    "allowed_host",
    "sqs_keys",
    "quotas",
    "log",
    // The other arguments of `tree`.
    "action",
    "file",
];

/// Applies the layout to the help of the program.
pub(super) fn shaped(command: Command) -> Command {
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}\n\n\
         Without a command the service runs, with the settings of `angarium serve --help`.{{after-help}}",
        groups(&command)
    );
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        "help" | "version" => arg,
        // These are the settings of `serve`, whose help describes them.
        _ => arg.hide(true),
    });
    let brief = |command: Command| {
        let command = command.after_help("-h shows the commonest settings, --help all of them.");
        command.mut_args(|arg| {
            let is_common = COMMON.contains(&arg.get_id().as_str());
            if is_common { arg } else { arg.hide_short_help(true) }
        })
    };
    let command = command.help_template(template);
    TAKE_SETTINGS.iter().fold(command, |command, name| command.mut_subcommand(name, brief))
}

/// Returns the commands with their descriptions.
fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (heading, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{heading}:");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_else(|| "Show the help of a command".to_owned());
            let _ = writeln!(text, "  {name:<12} {about}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::Cli;

    #[test]
    fn each_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        grouped.sort_unstable();
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut all: Vec<&str> = shown.map(Command::get_name).chain(["help"]).collect();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn common_settings_exist() {
        let command = Cli::command();
        let has = |id: &str| command.get_arguments().any(|arg| arg.get_id().as_str() == id);
        let missing: Vec<_> =
            COMMON.iter().filter(|id| !has(id) && !["action", "file"].contains(id)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
