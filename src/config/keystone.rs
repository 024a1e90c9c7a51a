//! The settings of Keystone: its address, the credentials of the service, and the roles. Secrets are in a file.

use std::path::PathBuf;

use clap::Args;

use angarium_core::limits;
use angarium_core::role_names::RoleNames;
use angarium_settings::units;

/// Authentication by Keystone.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Keystone")]
pub struct KeystoneSettings {
    /// Address of OpenStack's Keystone, whose tokens requests may bring; needs credentials with which the service may validate tokens
    #[arg(long, env = "ANGARIUM_KEYSTONE_URL", value_name = "URL", value_parser = keystone_url)]
    pub keystone_url: Option<String>,

    /// Address of Keystone in the answer to a refused client; without it that of --keystone-url
    #[arg(long, env = "ANGARIUM_KEYSTONE_PUBLIC_URL", value_name = "URL", value_parser = public_url)]
    pub keystone_public_url: Option<String>,

    /// User as whom the service asks Keystone
    #[arg(long, env = "ANGARIUM_KEYSTONE_USER", value_name = "NAME")]
    pub keystone_user: Option<String>,

    /// Domain of --keystone-user, by its name
    #[arg(long, env = "ANGARIUM_KEYSTONE_USER_DOMAIN", default_value = "Default", value_name = "NAME")]
    pub keystone_user_domain: String,

    /// Project in which --keystone-user asks
    #[arg(long, env = "ANGARIUM_KEYSTONE_PROJECT", default_value = "service", value_name = "NAME")]
    pub keystone_project: String,

    /// Domain of --keystone-project, by its name
    #[arg(long, env = "ANGARIUM_KEYSTONE_PROJECT_DOMAIN", default_value = "Default", value_name = "NAME")]
    pub keystone_project_domain: String,

    /// Id of an application credential with which the service asks Keystone, in place of a user
    #[arg(long, env = "ANGARIUM_KEYSTONE_APPLICATION_CREDENTIAL", value_name = "ID")]
    pub keystone_application_credential: Option<String>,

    /// File with the password of --keystone-user, or the secret of the application credential. It is read again when it changes
    #[arg(long, env = "ANGARIUM_KEYSTONE_SECRET_FILE", value_name = "FILE")]
    pub keystone_secret_file: Option<PathBuf>,

    /// File of the certificates (PEM) that are trusted to be Keystone's, in place of those of the system
    #[arg(long, env = "ANGARIUM_KEYSTONE_CA", value_name = "FILE")]
    pub keystone_ca: Option<PathBuf>,

    /// What the roles of Keystone may do here: NAME=ROLE with commas between, where ROLE is `reader`, `member` or `admin`. A token
    /// without one of these names is refused
    #[arg(long, env = "ANGARIUM_KEYSTONE_ROLES", default_value_t, value_name = "MAP")]
    pub keystone_roles: RoleNames,

    /// How long a valid token is not looked up again: so long a revoked one may still pass. 0 looks up each time
    #[arg(long, env = "ANGARIUM_KEYSTONE_CACHE_TIME", value_name = "DURATION")]
    #[arg(default_value_t = limits::KEYSTONE_CACHE_DEFAULT, value_parser = units::seconds_within(limits::KEYSTONE_CACHE.0, limits::KEYSTONE_CACHE.1))]
    pub keystone_cache_time: u32,

    /// How long a look-up of a token may take; then the request is answered 503
    #[arg(long, env = "ANGARIUM_KEYSTONE_TIMEOUT", value_name = "DURATION")]
    #[arg(default_value_t = limits::KEYSTONE_TIMEOUT_DEFAULT, value_parser = units::seconds_within(limits::KEYSTONE_TIMEOUT.0, limits::KEYSTONE_TIMEOUT.1))]
    pub keystone_timeout: u32,
}

/// Complete settings of Keystone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenKeystone<'a> {
    /// The address of Keystone.
    pub url: &'a str,
    /// The login of the service.
    pub login: ChosenLogin<'a>,
    /// The file with the secret.
    pub secret: &'a PathBuf,
}

/// The login of the service at Keystone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenLogin<'a> {
    /// A user, by name.
    User(&'a str),
    /// An application credential, by id.
    ApplicationCredential(&'a str),
}

impl KeystoneSettings {
    /// Returns the complete settings; none without Keystone.
    ///
    /// # Errors
    ///
    /// The setting that is missing, or that conflicts with another one.
    pub fn chosen(&self) -> Result<Option<ChosenKeystone<'_>>, &'static str> {
        let (user, credential) = (&self.keystone_user, &self.keystone_application_credential);
        let Some(url) = &self.keystone_url else {
            let others = [
                user.is_some(),
                credential.is_some(),
                self.keystone_secret_file.is_some(),
                self.keystone_public_url.is_some(),
                self.keystone_ca.is_some(),
            ];
            return if others.contains(&true) {
                Err("settings of Keystone need --keystone-url")
            } else {
                Ok(None)
            };
        };
        let login = match (user, credential) {
            (Some(user), None) => ChosenLogin::User(user),
            (None, Some(id)) => ChosenLogin::ApplicationCredential(id),
            (None, None) => {
                return Err(
                    "--keystone-url needs --keystone-user or --keystone-application-credential, with \
                            which the service validates tokens",
                );
            }
            (Some(_), Some(_)) => {
                return Err("--keystone-user and --keystone-application-credential exclude each other");
            }
        };
        let secret = self.keystone_secret_file.as_ref();
        let secret = secret.ok_or("--keystone-url needs --keystone-secret-file")?;
        Ok(Some(ChosenKeystone { url, login, secret }))
    }

    /// Returns the address at which a refused client gets a token.
    pub fn challenge_url(&self) -> Option<&str> {
        self.keystone_public_url.as_deref().or(self.keystone_url.as_deref())
    }
}

/// Returns the address without the version of its API and without a slash at the end.
fn keystone_url(text: &str) -> Result<String, &'static str> {
    let url = public_url(text)?;
    Ok(url.strip_suffix("/v3").unwrap_or(&url).trim_end_matches('/').to_owned())
}

fn public_url(text: &str) -> Result<String, &'static str> {
    const FORM: &str = "it is an address as in https://keystone.example.com:5000, and a path if it has one";
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).ok_or(FORM)?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\"\\<>^`{|}".contains(&byte);
    let is_host = rest.split('/').next().is_some_and(|host| !host.is_empty() && !host.starts_with(':'));
    if !is_host || !rest.bytes().all(is_plain) {
        return Err(FORM);
    }
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        settings: KeystoneSettings,
    }

    fn settings(args: &[&str]) -> KeystoneSettings {
        Program::try_parse_from([&["angarium"], args].concat()).unwrap().settings
    }

    #[test]
    fn credentials_are_complete_and_of_one_kind() {
        let url = "--keystone-url=https://k";
        let secret = "--keystone-secret-file=f";
        let (user, credential) = ("--keystone-user=u", "--keystone-application-credential=c");
        assert_eq!(settings(&[]).chosen(), Ok(None));
        let by_user = settings(&[url, user, secret]);
        assert_eq!(by_user.chosen().unwrap().unwrap().login, ChosenLogin::User("u"));
        let by_credential = settings(&[url, credential, secret]);
        assert_eq!(by_credential.chosen().unwrap().unwrap().login, ChosenLogin::ApplicationCredential("c"));
        for (args, said) in [
            (&[url][..], "needs --keystone-user"),
            (&[url, secret], "needs --keystone-user"),
            (&[url, user], "needs --keystone-secret-file"),
            (&[url, user, credential, secret], "exclude each other"),
            (&[user], "need --keystone-url"),
            (&[secret], "need --keystone-url"),
            (&["--keystone-ca=f"], "need --keystone-url"),
        ] {
            assert!(settings(args).chosen().unwrap_err().contains(said), "{args:?}");
        }
    }

    #[test]
    fn address_has_no_version_and_no_slash_at_its_end() {
        for (text, url) in [
            ("https://k", "https://k"),
            ("http://k:5000/", "http://k:5000"),
            ("https://k:5000/v3", "https://k:5000"),
            ("https://k/identity/v3/", "https://k/identity"),
            ("http://[::1]:5000", "http://[::1]:5000"),
        ] {
            assert_eq!(keystone_url(text).as_deref(), Ok(url));
        }
        for bad in [
            "",
            "k",
            "ftp://k",
            "https://",
            "https:///v3",
            "https://:5000",
            "https://u:p@k",
            "https://k?a",
            "https://k#a",
            "https://k a",
            "https://k\r\nx",
            "https://k\"",
            "https://ü",
        ] {
            assert!(keystone_url(bad).is_err(), "{bad}");
        }
    }
}
