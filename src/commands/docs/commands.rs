//! The page of commands, with the usage and the arguments of each.

use clap::{Arg, Command};

use super::settings::{default, flag, help};
use super::{head, row, table};
use crate::config::layers::TAKE_SETTINGS;
use angarium_client::EXIT_CODES;

const INTRODUCTION: &str = "\
The program `angarium` is the service and its client. Without a command the service runs. The
[guide](../guide/command-line.md) has examples.
";

pub(super) fn page(mut program: Command) -> String {
    program.build();
    let mut page = head("Command line", "commands") + INTRODUCTION;
    let shared = program.find_subcommand("queue").expect("queues have commands");
    page += "\n## Options of all client commands\n\n";
    page += &arguments(&shared.get_arguments().filter(|arg| arg.is_global_set()).collect::<Vec<_>>());
    page += &format!("\n## Exit codes\n\n```text\n{EXIT_CODES}\n```\n");
    let settings: Vec<String> = serve_arguments(&program);
    for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
        describe(command, &settings, &mut page);
    }
    page
}

/// Returns the names of all settings of the service.
fn serve_arguments(program: &Command) -> Vec<String> {
    let serve = program.find_subcommand("serve").expect("the service is a command");
    serve.get_arguments().map(|arg| arg.get_id().to_string()).collect()
}

/// Describes a command, or each of its sub-commands.
fn describe(command: &Command, settings: &[String], page: &mut String) {
    if command.is_hide_set() {
        return;
    }
    let mut parts = command.get_subcommands().filter(|part| part.get_name() != "help").peekable();
    if parts.peek().is_some() {
        parts.for_each(|part| describe(part, settings, page));
        return;
    }
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    *page += &format!("\n## `{name}`\n\n{}.\n\n```text\n{usage}\n```\n\n", about.trim_end_matches('.'));
    let takes_settings = TAKE_SETTINGS.contains(&command.get_name());
    if takes_settings {
        *page += "It takes the [settings](settings.md) of the service.\n\n";
    }
    let is_own = |arg: &&Arg| {
        let is_setting = takes_settings && settings.iter().any(|setting| setting == arg.get_id().as_str());
        let is_usual = ["help", "version"].contains(&arg.get_id().as_str());
        !arg.is_global_set() && !arg.is_hide_set() && !is_setting && !is_usual
    };
    *page += &arguments(&command.get_arguments().filter(is_own).collect::<Vec<_>>());
    while page.ends_with("\n\n") {
        page.pop();
    }
}

/// Returns a table of arguments; empty without arguments.
fn arguments(args: &[&Arg]) -> String {
    if args.is_empty() {
        return String::new();
    }
    let rows = args.iter().map(|arg| row(&[flag(arg), default(arg), help(arg)]));
    table(&["argument", "default", "meaning"]) + &rows.collect::<String>()
}
