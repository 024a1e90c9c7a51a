//! `angarium context`: list, use, set and remove the named servers of the file of contexts.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use uuid::Uuid;

use super::context_file::{Context, Contexts, default_path};
use super::failure::Failure;
use super::printer::{Form, Item, Printer};

/// Named servers, with project and token
#[derive(Args, Clone, Debug)]
pub struct ContextArgs {
    /// File of contexts; default $XDG_CONFIG_HOME/angarium/contexts.toml
    #[arg(long, env = "ANGARIUM_CONTEXTS", value_name = "FILE", global = true)]
    contexts: Option<PathBuf>,
    /// Form of the result on standard output
    #[arg(long, short, value_enum, default_value_t = Form::Table, value_name = "FORM", global = true)]
    output: Form,
    #[command(subcommand)]
    command: ContextCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum ContextCommand {
    /// List the contexts; tokens are not shown
    List,
    /// Make a context the current one
    Use {
        /// Its name
        name: String,
    },
    /// Create a context, or change the given properties of one; the first becomes the current one
    Set {
        /// Its name
        name: String,
        /// The server's root, as https://HOST:PORT
        #[arg(long)]
        url: Option<String>,
        /// The tenant
        #[arg(long, value_name = "ID")]
        project: Option<String>,
        /// The bearer token; `-` reads it from standard input, where no list of processes shows it
        #[arg(long, allow_hyphen_values = true)]
        token: Option<String>,
        /// The id by which listings know one's own messages; `new` makes one
        #[arg(long, value_name = "UUID", value_parser = client_id)]
        client_id: Option<Uuid>,
        /// File of certificates (PEM) to trust in place of the public ones
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
    },
    /// Remove a context
    Remove {
        /// Its name
        name: String,
    },
}

fn client_id(text: &str) -> Result<Uuid, String> {
    if text == "new" { Ok(Uuid::new_v4()) } else { Uuid::parse_str(text).map_err(|error| error.to_string()) }
}

pub(super) fn run(args: ContextArgs) -> Result<(), Failure> {
    let path = args.contexts.map_or_else(default_path, Ok)?;
    let mut all = Contexts::read(&path)?;
    let mut printer = Printer::new(args.output);
    let (name, sentence) = match args.command {
        ContextCommand::List => return list(&all, &mut printer),
        ContextCommand::Use { name } => {
            all.named(&name)?;
            all.current = Some(name.clone());
            (name, "is meant from now on")
        }
        ContextCommand::Set { name, url, project, token, client_id, ca } => {
            let mut context = all.contexts.remove(&name).unwrap_or_default();
            context.url = url.unwrap_or(context.url);
            if context.url.is_empty() {
                return Err(Failure::Usage(format!("there is no context {name} yet: it needs a --url")));
            }
            context.project = project.or(context.project);
            context.token = token.map(typed).transpose()?.or(context.token);
            context.client_id = client_id.or(context.client_id);
            // A relative path would name another file in another directory.
            let ca = ca.map(std::path::absolute).transpose();
            context.ca = ca.map_err(|error| Failure::Usage(format!("--ca: {error}")))?.or(context.ca);
            keep(&mut all, &name, context);
            (name, "is kept")
        }
        ContextCommand::Remove { name } => {
            all.named(&name)?;
            all.contexts.remove(&name);
            all.current = all.current.filter(|current| *current != name);
            (name, "is removed")
        }
    };
    all.write(&path)?;
    printer.done(&format!("context {name} {sentence}"), &json!({"name": name}))
}

fn keep(all: &mut Contexts, name: &str, context: Context) {
    if all.contexts.is_empty() && all.current.is_none() {
        all.current = Some(name.to_owned());
    }
    all.contexts.insert(name.to_owned(), context);
}

/// Returns the given token, or the first line of standard input for `-`.
fn typed(token: String) -> Result<String, Failure> {
    if token != "-" {
        return Ok(token);
    }
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|error| Failure::Usage(format!("the token cannot be read: {error}")))?;
    Ok(line.trim().to_owned())
}

fn list(all: &Contexts, printer: &mut Printer) -> Result<(), Failure> {
    let mut shown = printer.list(&["", "NAME", "URL", "PROJECT", "TOKEN"]);
    let items = all.contexts.iter().map(|(name, context)| {
        let current = all.current.as_deref() == Some(name);
        let row = vec![
            if current { "*" } else { "" }.to_owned(),
            name.clone(),
            context.url.clone(),
            context.project.clone().unwrap_or_else(|| "-".to_owned()),
            if context.token.is_some() { "kept" } else { "-" }.to_owned(),
        ];
        let json = json!({
            "name": name, "current": current, "url": context.url, "project": context.project,
            "token": context.token.is_some(),
        });
        Item { row, json: json.to_string(), plain: name.clone() }
    });
    shown.page(items.collect())?;
    shown.end("there are no contexts")
}
