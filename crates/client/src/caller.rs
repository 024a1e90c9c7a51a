//! Options shared by all client commands: server, identity and output format. A flag or its environment variable takes
//! precedence over the context. A server given by its URL has no context, so that no token is sent to a server that it
//! was not stored for.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::HeaderName;
use http::header::AUTHORIZATION;
use uuid::Uuid;

use super::context_file::{Context, Contexts, default_path};
use super::failure::Failure;
use super::printer::{Form, Printer};
use super::remote::{Identity, Remote};
use angarium_settings::units;

/// Default server: the one that `angarium serve` starts.
const DEFAULT_URL: &str = "http://127.0.0.1:8888";
const HEADING: &str = "Server";

/// Flags of every client command.
#[derive(Args, Clone, Debug)]
pub struct CallerArgs {
    /// Root of the server, as https://HOST:PORT; default http://127.0.0.1:8888
    #[arg(long, env = "ANGARIUM_URL", value_name = "URL", global = true, help_heading = HEADING)]
    url: Option<String>,
    /// Tenant whose queues are meant
    #[arg(long, env = "ANGARIUM_PROJECT", value_name = "ID", global = true, help_heading = HEADING)]
    project: Option<String>,
    /// Bearer token; better kept in a context or the environment, which others cannot read
    #[arg(long, env = "ANGARIUM_TOKEN", hide_env_values = true, value_name = "TOKEN", global = true, help_heading = HEADING)]
    token: Option<String>,
    /// UUID by which listings know one's own messages; a new one for each command when not given
    #[arg(long, env = "ANGARIUM_CLIENT_ID", value_name = "UUID", global = true, help_heading = HEADING)]
    #[arg(hide_short_help = true)]
    client_id: Option<Uuid>,
    /// File of certificates (PEM) to trust in place of the public ones
    #[arg(long, env = "ANGARIUM_CA", value_name = "FILE", global = true, help_heading = HEADING)]
    #[arg(hide_short_help = true)]
    ca: Option<PathBuf>,
    /// Named server of the file of contexts; see `angarium context`
    #[arg(long, env = "ANGARIUM_CONTEXT", value_name = "NAME", global = true, help_heading = HEADING)]
    context: Option<String>,
    /// File of contexts; default $XDG_CONFIG_HOME/angarium/contexts.toml
    #[arg(long, env = "ANGARIUM_CONTEXTS", value_name = "FILE", global = true, help_heading = HEADING)]
    #[arg(hide_short_help = true)]
    contexts: Option<PathBuf>,
    /// How long an answer may take, beyond what the server is asked to wait
    #[arg(long, default_value = "60s", value_parser = units::seconds_within(1, 3600),
          value_name = "DURATION", global = true, help_heading = HEADING, hide_short_help = true)]
    timeout: u32,
    /// Form of the result on standard output
    #[arg(long, short, value_enum, default_value_t = Form::Table, value_name = "FORM", global = true)]
    output: Form,
}

/// Source of a server's address, shown to the user.
#[derive(Debug, PartialEq, Eq)]
pub enum Origin {
    /// A flag or its environment variable.
    Flag,
    /// A context of this name.
    Context(String),
    /// The default.
    Default,
}

impl CallerArgs {
    /// Returns the client for the selected server.
    pub fn remote(&self) -> Result<Remote, Failure> {
        let (context, _) = self.resolve()?;
        let client = context.client_id.unwrap_or_else(Uuid::new_v4).to_string();
        let mut headers = vec![(HeaderName::from_static("client-id"), client)];
        headers.extend(context.project.map(|id| (HeaderName::from_static("x-project-id"), id)));
        headers.extend(context.token.map(|token| (AUTHORIZATION, format!("Bearer {token}"))));
        let read = |path: PathBuf| {
            std::fs::read(&path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
        };
        let ca = context.ca.map(read).transpose()?;
        Remote::new(Identity { url: &context.url, headers, ca, max_wait: self.timeout() })
    }

    /// Returns the timeout of a response.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    /// Returns the selected output format.
    pub fn form(&self) -> Form {
        self.output
    }

    /// Returns a printer for results.
    pub fn printer(&self) -> Printer {
        Printer::new(self.output)
    }

    /// Returns the server and the identity, from the flags and the context, and the source of the server's address.
    pub fn resolve(&self) -> Result<(Context, Origin), Failure> {
        let (stored, origin) = self.stored_context()?;
        let context = Context {
            url: stored.url,
            project: self.project.clone().or(stored.project),
            token: self.token.clone().or(stored.token),
            client_id: self.client_id.or(stored.client_id),
            ca: self.ca.clone().or(stored.ca),
        };
        Ok((context, origin))
    }

    fn stored_context(&self) -> Result<(Context, Origin), Failure> {
        let bare = |url: &str| Context { url: url.to_owned(), ..Context::default() };
        if let Some(url) = &self.url {
            if self.context.is_some() {
                let why =
                    "a URL and a context are both named (--url, ANGARIUM_URL, --context, ANGARIUM_CONTEXT)";
                return Err(Failure::Usage(why.into()));
            }
            return Ok((bare(url), Origin::Flag));
        }
        // Without a home directory there are no contexts to read.
        let path = match &self.contexts {
            Some(path) => path.clone(),
            None if self.context.is_some() => default_path()?,
            None => match default_path() {
                Ok(path) => path,
                Err(_) => return Ok((bare(DEFAULT_URL), Origin::Default)),
            },
        };
        let contexts = Contexts::read(&path)?;
        let Some(name) = self.context.as_ref().or(contexts.current.as_ref()) else {
            return Ok((bare(DEFAULT_URL), Origin::Default));
        };
        Ok((contexts.named(name)?.clone(), Origin::Context(name.clone())))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        caller: CallerArgs,
    }

    /// Resolves these arguments with a file of two contexts, of which the first is current.
    fn resolve(arguments: &[&str]) -> Result<(Context, Origin), Failure> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("contexts.toml");
        let text = "current = \"a\"\n[contexts.a]\nurl = \"http://a\"\ntoken = \"secret\"\nproject = \"p\"\n\
                    [contexts.b]\nurl = \"http://b\"\n";
        std::fs::write(&path, text).unwrap();
        let file = ["program", "--contexts", path.to_str().unwrap()];
        let parsed = Program::try_parse_from(file.into_iter().chain(arguments.iter().copied())).unwrap();
        parsed.caller.resolve()
    }

    #[test]
    fn the_current_context_is_meant_when_none_is_named() {
        let (context, origin) = resolve(&[]).unwrap();
        assert_eq!((context.url.as_str(), context.token.as_deref()), ("http://a", Some("secret")));
        assert_eq!(origin, Origin::Context("a".into()));
        assert_eq!(resolve(&["--context", "b"]).unwrap().0.url, "http://b");
    }

    #[test]
    fn a_flag_wins_over_the_context() {
        let (context, _) = resolve(&["--project", "q", "--token", "other"]).unwrap();
        assert_eq!((context.project.as_deref(), context.token.as_deref()), (Some("q"), Some("other")));
    }

    #[test]
    fn a_server_named_by_its_url_gets_no_token_of_a_context() {
        let (context, origin) = resolve(&["--url", "http://c"]).unwrap();
        assert_eq!((context.token, context.project, origin), (None, None, Origin::Flag));
    }

    #[test]
    fn missing_context_or_context_with_url_is_refused() {
        assert!(resolve(&["--context", "c"]).is_err());
        assert!(resolve(&["--context", "a", "--url", "http://c"]).is_err());
    }
}
