//! The page of settings: the arguments of `angarium serve`.

use clap::{Arg, Command};

use super::{cell, head, row, table};
use angarium_settings::units;

const INTRODUCTION: &str = "\
`angarium serve` takes each setting as a flag, as an environment variable and as a key of the file that `--config`
names. The flag wins over the environment, the environment over the file. The variable of `--max-requests` is
`ANGARIUM_MAX_REQUESTS`, its key is `max_requests`. An empty variable counts as not set. A key or variable with an
unknown name is reported, with the name that is probably meant.

A size is a number of bytes or has a unit (`256MiB`, `1.5GiB`; `MB` is a million bytes). A time is a number of
seconds or has units (`500ms`, `90s`, `1m30s`, `2h`). `angarium config` prints the settings in force and the source
of each, without passwords.
";

pub(super) fn page(program: &Command) -> String {
    let serve = program.find_subcommand("serve").expect("the service is a command");
    let mut page = head("Settings", "settings") + INTRODUCTION;
    let mut headings: Vec<&str> = Vec::new();
    for heading in serve.get_arguments().filter_map(Arg::get_help_heading) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading in headings {
        page += &format!("\n## {heading}\n\n{}", table(&["setting", "default", "meaning"]));
        let settings = serve.get_arguments().filter(|setting| setting.get_help_heading() == Some(heading));
        settings.for_each(|setting| page += &row(&[flag(setting), default(setting), help(setting)]));
    }
    page
}

/// Returns the flag of an argument with its value.
pub(super) fn flag(arg: &Arg) -> String {
    let dashed = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, None) => String::new(),
    };
    let takes_value = arg.get_action().takes_values();
    let values = arg.get_value_names().filter(|_| takes_value).unwrap_or_default();
    let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
    format!("`{}`", format!("{dashed} {}", values.join(" ")).trim())
}

/// Returns the default of an argument.
pub(super) fn default(arg: &Arg) -> String {
    let is_size = arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "SIZE"));
    let values = arg.get_default_values().iter().map(|value| {
        let value = value.to_string_lossy();
        match value.parse() {
            Ok(bytes) if is_size => units::size_of(bytes),
            _ => value.into_owned(),
        }
    });
    let values: Vec<String> = values.map(|value| format!("`{value}`")).collect();
    if arg.get_action().takes_values() { values.join(", ") } else { String::new() }
}

/// Returns the help of an argument.
pub(super) fn help(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let choices: Vec<String> =
        arg.get_possible_values().iter().map(|choice| format!("`{}`", choice.get_name())).collect();
    let is_switch = ["true", "false"].iter().all(|word| choices.contains(&format!("`{word}`")));
    if choices.is_empty() || is_switch || !arg.get_action().takes_values() {
        return cell(&help);
    }
    cell(&format!("{help}: {}", choices.join(", ")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::commands::Cli;

    #[test]
    fn variable_of_each_setting_has_the_name_of_its_flag() {
        let program = Cli::command();
        let serve = program.find_subcommand("serve").unwrap();
        for setting in serve.get_arguments().filter(|setting| setting.get_env().is_some()) {
            let flag = setting.get_long().unwrap();
            let variable = format!("ANGARIUM_{}", flag.to_uppercase().replace('-', "_"));
            assert_eq!(setting.get_env().unwrap(), variable.as_str());
            assert!(setting.get_help_heading().is_some(), "--{flag} has no heading");
        }
    }
}
