//! The layers of settings: a flag overrides the environment, which overrides the file, which overrides the default.
//!
//! The fields of `Config` are the only list of settings. A key of the file is the name of a field. The values of the
//! file are inserted as defaults below the flags and the environment, so that a new field is automatically a flag, a
//! variable and a key.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use thiserror::Error as ThisError;

use super::Config;
use angarium_core::pool::hide_passwords;
use angarium_settings::files;
use angarium_settings::spelling::nearest;

/// The sub-commands that take settings. The program without a sub-command takes them too.
pub const TAKE_SETTINGS: [&str; 3] = ["serve", "config", "tree"];

/// The setting with the path of the file.
const FILE: &str = "config";

/// Prefix of the program's variables.
const PREFIX: &str = "ANGARIUM_";

/// A settings file cannot be used.
#[derive(Debug, ThisError)]
#[error("{path}: {why}")]
pub struct BadFile {
    path: PathBuf,
    why: String,
}

/// The settings of a process cannot be used.
#[derive(Debug, ThisError)]
pub enum Unread {
    /// The arguments or the environment are invalid. A request for help or the version counts as one.
    #[error(transparent)]
    Arguments(#[from] clap::Error),
    /// The file that they name cannot be used.
    #[error(transparent)]
    File(#[from] BadFile),
}

/// The settings of an environment cannot be used.
#[derive(Debug, ThisError)]
pub enum SettingsError {
    /// The file that it names cannot be used.
    #[error(transparent)]
    File(#[from] BadFile),
    #[error("{}", first_line(.0))]
    Variable(#[from] clap::Error),
}

/// The given settings, each with its source.
#[derive(Debug)]
pub struct GivenSettings {
    /// The arguments of the whole program.
    pub matches: ArgMatches,
    /// Environment variables that may be misspelled.
    pub doubtful: Vec<DoubtfulVariable>,
    file: Option<SettingsFile>,
}

#[derive(Debug)]
struct SettingsFile {
    path: PathBuf,
    values: Vec<(String, String)>,
}

/// Reads the arguments of the process, the environment, and the file if one is named.
pub fn read(command: Command) -> Result<GivenSettings, Unread> {
    let doubtful = doubtful(&command);
    let command = without_empty(command);
    let matches = command.clone().try_get_matches()?;
    let named = settings_of(&matches).and_then(|settings| settings.get_one::<PathBuf>(FILE));
    let Some(path) = named else { return Ok(GivenSettings { matches, doubtful, file: None }) };
    let file = SettingsFile::read(path)?;
    let matches = with_file(command, &file.values).try_get_matches()?;
    Ok(GivenSettings { matches, doubtful, file: Some(file) })
}

/// Returns the settings of a service that is started in this environment without arguments.
pub fn surrounding() -> Result<Config, SettingsError> {
    let command = without_empty(Config::augment_args(Command::new("angarium")));
    let mut matches = command.clone().try_get_matches_from(["angarium"])?;
    if let Some(path) = matches.get_one::<PathBuf>(FILE) {
        let file = SettingsFile::read(path)?;
        matches = with_defaults(command, &file.values).try_get_matches_from(["angarium"])?;
    }
    Ok(Config::from_arg_matches(&matches)?)
}

/// Returns the arguments of the command that takes settings.
fn settings_of(matches: &ArgMatches) -> Option<&ArgMatches> {
    match matches.subcommand() {
        None => Some(matches),
        Some((name, matches)) => TAKE_SETTINGS.contains(&name).then_some(matches),
    }
}

/// Ignores empty environment variables: scripts and compose files use them as unset.
fn without_empty(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let value = arg.get_env().map(std::env::var_os);
        if value == Some(Some(OsString::new())) { arg.env(Resettable::Reset) } else { arg }
    });
    command.mut_subcommands(without_empty)
}

/// Sets other defaults in every command that takes settings.
fn with_file(command: Command, values: &[(String, String)]) -> Command {
    let defaults = |command: Command| with_defaults(command, values);
    TAKE_SETTINGS.iter().fold(defaults(command), |command, name| command.mut_subcommand(name, defaults))
}

fn with_defaults(command: Command, values: &[(String, String)]) -> Command {
    values
        .iter()
        .fold(command, |command, (key, value)| command.mut_arg(key, |arg| arg.default_value(value.clone())))
}

/// Returns a command with only the settings, which reads no environment.
fn settings() -> Command {
    let command = Config::augment_args(Command::new("angarium")).disable_help_flag(true);
    command.mut_args(|arg| arg.env(Resettable::Reset))
}

impl SettingsFile {
    fn read(path: &Path) -> Result<Self, BadFile> {
        let failed = |why| BadFile { path: path.to_owned(), why };
        let text =
            files::read_text(path, files::SETTINGS_FILE_BYTES).map_err(|error| failed(error.to_string()))?;
        let values = parse(&text).map_err(failed)?;
        Ok(Self { path: path.to_owned(), values })
    }
}

/// Parses a settings file to pairs of name and text. All names must exist and all values must be valid; an error names
/// the key.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let table: toml::Table = text.parse().map_err(|error| in_words(text, &error))?;
    let settings = settings();
    let mut values = Vec::with_capacity(table.len());
    for (key, value) in table {
        if key == FILE || !settings.get_arguments().any(|arg| arg.get_id() == key.as_str()) {
            return Err(format!("there is no setting `{key}`{}", meant(&settings, &key)));
        }
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(answer) => answer.to_string(),
            toml::Value::Float(_)
            | toml::Value::Datetime(_)
            | toml::Value::Array(_)
            | toml::Value::Table(_) => {
                return Err(format!("{key}: it must be a string, a whole number, true or false"));
            }
        };
        let flag = format!("--{}={value}", key.replace('_', "-"));
        if let Err(error) = settings.clone().try_get_matches_from(["angarium", &flag]) {
            return Err(format!("{key}: {}", first_line(&error)));
        }
        values.push((key, value));
    }
    Ok(values)
}

/// Describes an error of a TOML file, with its line number. The line may contain a secret, so it is not shown.
pub(super) fn in_words(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    match before {
        Some(before) => format!("line {}: {}", before.matches('\n').count() + 1, error.message()),
        None => error.message().to_owned(),
    }
}

/// Returns a hint for a misspelled key: the flag's name as a key, or a similar name.
fn meant(settings: &Command, key: &str) -> String {
    let name = key.trim_start_matches('-').replace('-', "_").to_lowercase();
    let names = settings.get_arguments().map(|arg| arg.get_id().as_str()).filter(|id| *id != FILE);
    let Some(meant) = nearest(&name, names) else { return String::new() };
    if meant == name { format!("; it is `{meant}`") } else { format!("; did you mean `{meant}`?") }
}

/// An unknown environment variable that resembles one of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoubtfulVariable {
    pub name: String,
    /// The variable that it resembles.
    pub meant: String,
}

/// Returns the unknown environment variables with the program's prefix that resemble a known variable.
fn doubtful(command: &Command) -> Vec<DoubtfulVariable> {
    let mut known = Vec::new();
    note_variables(command, &mut known);
    let named = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let ours = named.filter(|name| name.starts_with(PREFIX) && !known.contains(name));
    let told = ours.filter_map(|name| {
        let meant =
            nearest(&name[PREFIX.len()..], known.iter().filter_map(|known| known.strip_prefix(PREFIX)))?;
        Some(DoubtfulVariable { meant: format!("{PREFIX}{meant}"), name })
    });
    let mut told: Vec<DoubtfulVariable> = told.collect();
    told.sort_by(|one, other| one.name.cmp(&other.name));
    told
}

fn note_variables(command: &Command, known: &mut Vec<String>) {
    let variables = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str());
    known.extend(variables.map(ToOwned::to_owned));
    command.get_subcommands().for_each(|command| note_variables(command, known));
}

/// Returns an error about a value without the flag, which the file does not have, and without the advice on flags.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    match line.split_once("' for '--").and_then(|(value, rest)| Some((value, rest.split_once("': ")?.1))) {
        Some((value, why)) => format!("{value}': {why}"),
        None => line.to_owned(),
    }
}

impl GivenSettings {
    /// Returns the effective settings as a file, with their sources. Passwords in addresses are left out.
    pub fn effective(&self) -> String {
        let Some(matches) = settings_of(&self.matches) else { return String::new() };
        let mut text = String::new();
        for arg in settings().get_arguments() {
            let key = arg.get_id().as_str();
            // A repeated setting is one value with commas, as in the file and in the environment.
            let values: Option<Vec<_>> =
                matches.get_raw(key).map(|values| values.map(|value| value.to_string_lossy()).collect());
            match values.filter(|values| !values.is_empty()) {
                _ if key == FILE => {}
                None => text.push_str(&format!("# {key} is not set\n")),
                Some(values) => {
                    let value = literal(&hide_passwords(&values.join(",")));
                    text.push_str(&format!("{key} = {value}  # {}\n", self.source(matches, key)));
                }
            }
        }
        for DoubtfulVariable { name, meant } in &self.doubtful {
            text.push_str(&format!("# {name} is not known; did you mean {meant}?\n"));
        }
        text
    }

    fn source(&self, matches: &ArgMatches, key: &str) -> String {
        match (matches.value_source(key), &self.file) {
            (Some(ValueSource::CommandLine), _) => "flag".to_owned(),
            (Some(ValueSource::EnvVariable), _) => "environment".to_owned(),
            (_, Some(file)) if file.values.iter().any(|(known, _)| known == key) => {
                file.path.display().to_string()
            }
            _ => "default".to_owned(),
        }
    }
}

/// Returns a TOML value: a number or a boolean unquoted, anything else as a string.
fn literal(value: &str) -> String {
    let is_number = value.parse::<i64>().is_ok_and(|number| number.to_string() == value);
    if is_number || matches!(value, "true" | "false") { value.to_owned() } else { super::quoted(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_file_error_names_the_key() {
        for (text, said) in [
            ("listne = 'x'", "there is no setting `listne`; did you mean `listen`?"),
            ("max_conections = 5", "there is no setting `max_conections`; did you mean `max_connections`?"),
            ("speed = 5", "there is no setting `speed`"),
            ("log-format = 'json'", "there is no setting `log-format`; it is `log_format`"),
            ("config = 'other.toml'", "there is no setting `config`"),
            ("listen = 'here'", "listen: invalid value 'here'"),
            ("max_connections = 0", "max_connections: invalid value '0': 0 is not in 1..=1000000"),
            ("header_timeout = 'ten'", "header_timeout: invalid value 'ten': a duration is"),
            ("reserve = '256Mb/s'", "reserve: invalid value '256Mb/s': a size is"),
            ("[server]\nlisten = '127.0.0.1:1'", "there is no setting `server`"),
            ("listen = ['127.0.0.1:1']", "listen: it must be a string"),
            ("listen = ", "line 1: "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn every_setting_can_stand_in_a_file() {
        for arg in settings().get_arguments().filter(|arg| arg.get_id() != FILE) {
            let key = arg.get_id().as_str();
            assert_eq!(arg.get_long().map(|long| long.replace('-', "_")).as_deref(), Some(key));
            let Some(default) = arg.get_default_values().first() else { continue };
            let text = format!("{key} = {}", literal(&default.to_string_lossy()));
            assert_eq!(parse(&text).unwrap().len(), 1, "{text}");
        }
    }

    #[test]
    fn every_setting_has_a_variable_of_its_name() {
        for arg in Config::augment_args(Command::new("angarium")).get_arguments() {
            let name = format!("ANGARIUM_{}", arg.get_id().as_str().to_uppercase());
            assert_eq!(arg.get_env(), Some(std::ffi::OsStr::new(&name)));
        }
    }

    #[test]
    fn sizes_and_durations_in_a_file_have_units_or_are_numbers() {
        let read = |text: &str| {
            let command = with_defaults(settings(), &parse(text).unwrap());
            Config::from_arg_matches(&command.get_matches_from(["angarium"])).unwrap()
        };
        for text in [
            "reserve = '256MiB'\nsession_timeout = '1m30s'\nidle_timeout = '2m'\nmax_message_ttl = '3d'",
            "reserve = 268435456\nsession_timeout = 90\nidle_timeout = 120\nmax_message_ttl = 259200",
        ] {
            let config = read(text);
            assert_eq!((config.reserve, config.cluster.session_timeout), (256 << 20, 90), "{text}");
            assert_eq!(config.connections.idle_timeout.as_secs(), 120);
            assert_eq!(config.limits.max_message_ttl, 259_200);
        }
    }

    #[test]
    fn list_in_a_file_has_commas() {
        let values = parse("trusted_proxy = '10.0.0.0/8,fd00::/8'").unwrap();
        let command = with_defaults(settings(), &values);
        let config = Config::from_arg_matches(&command.get_matches_from(["angarium"])).unwrap();
        assert_eq!(config.connections.trusted_proxy.len(), 2);
        assert!(parse("trusted_proxy = '10.0.0.0/8,proxy.internal'").unwrap_err().contains("a network is"));
    }

    #[test]
    fn a_wrong_line_is_named_and_not_shown() {
        let error = parse("listen = '127.0.0.1:1'\npool = redis://me:secret@host\n").unwrap_err();
        assert!(error.starts_with("line 2: "), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
