//! Owns the program started as a packaging file states: with the file's own command and environment. Only what this
//! machine lacks is replaced: its hosts, its directories, its ports.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::TcpStream;
use std::process::{Command, Output};

use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::dockerfile::{Dockerfile, list};
use crate::support::client::Client;
use angarium_testbed::held::{LastWill, ShellServer, free_port, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_angarium");

/// A command and its environment, as a file has them.
#[derive(Clone, Debug)]
pub struct Launch {
    words: Vec<String>,
    environment: BTreeMap<String, String>,
}

/// A service that was started so. Dropping it kills it and removes its data.
pub struct Launched {
    launch: Launch,
    port: u16,
    dir: TempDir,
    _held: ShellServer,
}

impl Launch {
    /// A command whose first word is the program, wherever the file has it installed.
    pub fn new(words: &[String], environment: impl IntoIterator<Item = (String, String)>) -> Self {
        assert!(words[0].ends_with("/angarium"), "{words:?}");
        Self { words: words[1..].to_vec(), environment: environment.into_iter().collect() }
    }

    /// A container of our image. `arguments` and `environment` go before those of the image.
    pub fn of_image(
        arguments: Option<&[String]>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let file = Dockerfile::read("docker/Dockerfile");
        let arguments = arguments.map_or_else(|| list(file.last("CMD")), <[_]>::to_vec);
        let own = file.env_names().into_iter().map(|name| (name.to_owned(), file.env(name).to_owned()));
        let environment = own.collect::<Vec<_>>().into_iter().chain(environment);
        Self::new(&[list(file.last("ENTRYPOINT")), arguments].concat(), environment)
    }

    /// A service of a compose file.
    pub fn of_compose(service: &Value) -> Self {
        let arguments = service["command"].as_array().map(|_| super::strings(&service["command"]));
        let environment = service["environment"].as_object().into_iter().flatten();
        let environment = environment.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
        Self::of_image(arguments.as_deref(), environment)
    }

    /// Puts what this machine has in the place of what the file names.
    #[track_caller]
    pub fn replace(mut self, named: &str, here: &str) -> Self {
        let texts = || self.words.iter().chain(self.environment.values());
        assert!(texts().any(|text| text.contains(named)), "{named} is nowhere in {self:?}");
        let texts = self.words.iter_mut().chain(self.environment.values_mut());
        texts.for_each(|text| *text = text.replace(named, here));
        self
    }

    /// The same without a variable that it has.
    #[track_caller]
    pub fn without(mut self, name: &str) -> Self {
        assert!(self.environment.remove(name).is_some(), "{name} is not set by {self:?}");
        self
    }

    /// The same with a variable that the file leaves to its user.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// A variable of the environment.
    #[track_caller]
    pub fn variable(&self, name: &str) -> &str {
        self.environment.get(name).unwrap_or_else(|| panic!("{name} is not set by {self:?}"))
    }

    /// Starts the service on a free port and an empty data directory, and waits until it answers.
    pub fn start(self) -> Launched {
        let port = free_port();
        self.start_at(port)
    }

    /// As [`Launch::start`], on a port that others were told.
    pub fn start_at(self, port: u16) -> Launched {
        let dir = TempDir::new().expect("there is a temporary directory");
        let data = dir.path().join("data").display().to_string();
        let launch = self.replace("/var/lib/angarium", &data).replace(":8888", &format!(":{port}"));
        let mut command: Vec<OsString> = vec!["env".into(), "-i".into()];
        command.extend(launch.environment.iter().map(|(name, value)| format!("{name}={value}").into()));
        command.push(PROGRAM.into());
        command.extend(launch.words.iter().map(Into::into));
        let held = ShellServer::start(dir.path(), &command, LastWill::KeepData);
        held.wait_until_it(dir.path(), || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Launched { launch, port, dir, _held: held }
    }

    /// Runs the command to its end.
    pub fn run(&self) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(&self.words).env_clear().envs(&self.environment).output().expect("it starts")
    }
}

impl Launched {
    /// A client of it.
    pub fn client(&self) -> Client {
        Client::new(&format!("http://127.0.0.1:{}", self.port))
    }

    /// The port that clients use.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What a health check of the image states of it: its exit code.
    pub fn health(&self) -> Option<i32> {
        let file = Dockerfile::read("docker/Dockerfile");
        let (_, command) = file.last("HEALTHCHECK").split_once("CMD ").expect("it runs a command");
        Launch::new(&list(command), self.launch.environment.clone()).run().status.code()
    }

    /// What it has printed.
    pub fn printed(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Sends the request of its `try:` line, as a shell reads that, and returns what was answered.
    pub fn try_line(&self) -> StatusCode {
        // It listens before it reports it.
        wait_until("there is a line to try", || self.printed().contains("\ntry: "));
        let printed = self.printed();
        let line = printed.lines().find_map(|line| line.strip_prefix("try: "));
        let line = line.unwrap_or_else(|| panic!("no line to try in\n{printed}"));
        let words = format!(r#"curl() {{ for word; do printf '%s\n' "$word"; done; }}; {line}"#);
        let words = Command::new("sh").args(["-c", &words]).output().expect("there is a shell");
        let words = String::from_utf8(words.stdout).expect("the line is text");
        let words: Vec<_> = words.lines().collect();
        let ["-i", url, "--json", body] = words[..] else { panic!("{line}: another call of curl") };
        let path = url.strip_prefix(&format!("http://127.0.0.1:{}", self.port));
        let path = path.unwrap_or_else(|| panic!("{url} is not reached from the host"));
        self.client().post(path, &serde_json::from_str(body).unwrap()).unwrap().status
    }
}

/// Posts a message and claims it: what a service is for.
#[track_caller]
pub fn assert_usable(client: &Client) {
    let posted = client.post_messages("usable", &[json!("hello")]).unwrap();
    assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
    let claimed = client.claim("usable", 1, 60).unwrap().granted().expect("the message is there");
    assert_eq!(claimed.messages[0].body, json!("hello"));
}
