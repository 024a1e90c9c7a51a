//! The client-facing parts, created from the settings: authentication, transport, limits and quotas. This module does
//! not serve.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error as ThisError;
use tokio::sync::watch;
use tracing::warn;

use super::listener::ConnectionLimits;
use super::reload::{Reloader, UnreadableFile};
use super::secret_files;
use super::source::Proxies;
use super::tls::{Credentials, Transport};
use crate::api::{Authentication, ContextLimits, Credentials as Callers, Pauses, RequestLimits, SqsSettings};
use crate::config::connections::ConnectionSettings;
use crate::config::keystone::{ChosenKeystone, ChosenLogin};
use crate::config::quotas::QuotaSettings;
use crate::config::requests::RequestSettings;
use crate::config::{Config, layers, quotas, sqs_keys, tokens};
use crate::keystone::{Credentials as KeystoneLogin, Keystone, KeystoneOptions, Secret};
use angarium_clock::Clock;
use angarium_core::hosts::{AllowedHosts, host_of};
use angarium_core::maps::HashMap;
use angarium_core::names::ProjectId;
use angarium_core::pool::hide_passwords;
use angarium_core::quota::QuotaTable;
use angarium_core::rate::Rate;
use angarium_core::region::Accounts;

/// Errors of the client-facing parts.
#[derive(Debug, ThisError)]
pub enum FaceError {
    /// The SIGHUP handler, which reloads files, cannot be installed.
    #[error("cannot receive SIGHUP")]
    Signal(#[source] std::io::Error),
    /// A file that the settings name cannot be used.
    #[error(transparent)]
    File(#[from] UnreadableFile),
    /// The address or the certificates of Keystone cannot be used.
    #[error("cannot use Keystone: {0}")]
    Keystone(String),
}

/// The client-facing parts of the service.
pub struct Face {
    /// The means of authentication.
    pub authentication: Authentication,
    /// Limits of requests.
    pub requests: RequestLimits,
    /// Settings of the SQS endpoint.
    pub sqs: SqsSettings,
    /// Plain TCP or TLS.
    pub transport: Transport,
    /// Limits of connections.
    pub connections: ConnectionLimits,
    /// The trusted proxies, which may state the source of a request.
    pub proxies: Proxies,
    /// The quotas of projects.
    pub quotas: watch::Receiver<Arc<QuotaTable>>,
    /// Reloads tokens, certificates and quotas when their files change.
    pub reloader: Reloader,
}

impl Face {
    /// Reads the files that the settings name.
    pub fn new(config: &Config, clock: &Clock) -> Result<Self, FaceError> {
        let settings = config.config.as_deref().filter(|path| holds_password(path));
        let secrets = [
            ("config", settings),
            ("tokens", config.tokens.as_deref()),
            ("sqs_keys", config.sqs.sqs_keys.as_deref()),
            ("tls_key", config.tls_key.as_deref()),
            ("peer_key", config.cluster.peer_key.as_deref()),
            ("keystone_secret_file", config.keystone.keystone_secret_file.as_deref()),
        ];
        let named = secrets.into_iter().filter_map(|(setting, path)| Some((setting, path?)));
        secret_files::warn_of_others(named);
        let mut reloader = Reloader::new().map_err(FaceError::Signal)?;
        let authentication = authentication(config, clock, &mut reloader)?;
        let transport = transport(config, &mut reloader)?;
        let requests = request_limits(&config.requests);
        let connections = connection_limits(&config.connections);
        let proxies = config.connections.trusted_proxy.iter().copied().collect();
        let sqs = sqs(config, &mut reloader)?;
        let quotas = quotas(&config.quotas, sqs.accounts(&authentication), &mut reloader)?;
        Ok(Self { authentication, requests, sqs, transport, connections, proxies, quotas, reloader })
    }
}

impl Face {
    /// Returns the projects of tokens and keys.
    pub fn projects(&self) -> Vec<ProjectId> {
        let mut projects = match &self.authentication {
            Authentication::Off(_) => Vec::new(),
            Authentication::On(callers) => callers.projects(),
        };
        if let Some(keys) = &self.sqs.keys {
            projects.extend(keys.borrow().projects().cloned());
        }
        projects
    }
}

/// Whether a settings file contains a URI with a password.
fn holds_password(settings: &Path) -> bool {
    let values = std::fs::read_to_string(settings).ok().and_then(|text| layers::parse(&text).ok());
    values.into_iter().flatten().any(|(_, value)| hide_passwords(&value) != value)
}

fn authentication(
    config: &Config,
    clock: &Clock,
    reloader: &mut Reloader,
) -> Result<Authentication, FaceError> {
    let tokens = config.tokens.clone().map(|path| {
        let from = path.clone();
        reloader.watch("--tokens", &[&path], move || tokens::read(&from))
    });
    let tokens = tokens.transpose()?;
    let chosen = config.keystone.chosen().map_err(|why| FaceError::Keystone(why.to_owned()))?;
    Ok(match (chosen, tokens) {
        (Some(chosen), tokens) => {
            let keystone = keystone(config, &chosen, clock, reloader)?;
            let url = config.keystone.challenge_url().unwrap_or_default();
            Authentication::On(Callers::keystone(keystone, url, tokens))
        }
        (None, Some(tokens)) => Authentication::On(Callers::tokens(tokens)),
        (None, None) => Authentication::Off(Arc::new(allowed_hosts(config))),
    })
}

fn keystone(
    config: &Config,
    chosen: &ChosenKeystone<'_>,
    clock: &Clock,
    reloader: &mut Reloader,
) -> Result<Keystone, FaceError> {
    let settings = &config.keystone;
    let from = chosen.secret.clone();
    let secret = reloader.watch("--keystone-secret-file", &[chosen.secret], move || Secret::read(&from))?;
    let credentials = match chosen.login {
        ChosenLogin::User(user) => KeystoneLogin::Password {
            user: user.to_owned(),
            user_domain: settings.keystone_user_domain.clone(),
            project: settings.keystone_project.clone(),
            project_domain: settings.keystone_project_domain.clone(),
        },
        ChosenLogin::ApplicationCredential(id) => KeystoneLogin::Application { id: id.to_owned() },
    };
    let host = chosen.url.strip_prefix("http://").and_then(|rest| host_of(rest.split('/').next()?));
    if host.is_some_and(|host| !is_this_machine(host)) {
        warn!(url = chosen.url, "keystone reached without tls");
    }
    let options = KeystoneOptions {
        url: chosen.url.to_owned(),
        credentials,
        secret,
        ca: settings.keystone_ca.clone(),
        roles: settings.keystone_roles.clone(),
        cache_time: Duration::from_secs(settings.keystone_cache_time.into()),
        timeout: Duration::from_secs(settings.keystone_timeout.into()),
    };
    Keystone::new(options, clock.clone()).map_err(FaceError::Keystone)
}

fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns the host names of the service: from the settings, from the public URL of queues, and of the machine.
fn allowed_hosts(config: &Config) -> AllowedHosts {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let url = config.sqs.sqs_public_url.as_deref().unwrap_or_default();
    let public = url.split_once("://").and_then(|(_, rest)| host_of(rest.split('/').next()?));
    // An IP address is always admitted, so a value that is no host name is skipped.
    let own = [Some(machine.as_str()), public].into_iter().flatten().filter_map(|name| name.parse().ok());
    AllowedHosts::new(config.hosts.allowed_host.iter().cloned().chain(own))
}

fn sqs(config: &Config, reloader: &mut Reloader) -> Result<SqsSettings, UnreadableFile> {
    let settings = &config.sqs;
    let keys = settings.sqs_keys.clone().map(|path| {
        let from = path.clone();
        reloader.watch("--sqs-keys", &[&path], move || sqs_keys::read(&from))
    });
    Ok(SqsSettings {
        region: settings.sqs_region.clone(),
        regions: settings.sqs_regions.clone(),
        public_url: settings.sqs_public_url.clone(),
        scheme: config.scheme(),
        keys: keys.transpose()?,
        most: ContextLimits { batch: settings.sqs_batch, in_flight: settings.sqs_in_flight },
        pauses: if settings.sqs_pauses { Pauses::Kept } else { Pauses::Off },
    })
}

fn transport(config: &Config, reloader: &mut Reloader) -> Result<Transport, UnreadableFile> {
    let (Some(certificates), Some(key)) = (config.tls_cert.clone(), config.tls_key.clone()) else {
        return Ok(Transport::Plain);
    };
    let from = (certificates.clone(), key.clone());
    let read = move || Credentials::read(&from.0, &from.1);
    let credentials = reloader.watch("--tls-cert or --tls-key", &[&certificates, &key], read);
    Ok(Transport::Tls(credentials?))
}

fn quotas(
    settings: &QuotaSettings,
    accounts: Accounts,
    reloader: &mut Reloader,
) -> Result<watch::Receiver<Arc<QuotaTable>>, UnreadableFile> {
    let default = settings.default_quota();
    let Some(path) = settings.quotas.clone() else {
        let table = QuotaTable::new(default, HashMap::default()).counted_by(accounts);
        return Ok(watch::Sender::new(Arc::new(table)).subscribe());
    };
    let from = path.clone();
    let read = move || {
        let table = quotas::read(&from, default)?.counted_by(accounts);
        let projects = table.without_effect();
        if !projects.is_empty() {
            warn!(
                file = %from.display(),
                projects = projects.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
                next_step = "ACCOUNT@REGION counts for ACCOUNT: name accounts, or no other region with --sqs-regions",
                "quotas without effect"
            );
        }
        Ok(table)
    };
    reloader.watch("--quotas", &[&path], read)
}

fn number(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn request_limits(settings: &RequestSettings) -> RequestLimits {
    RequestLimits {
        requests: number(settings.max_requests),
        long_polls: number(settings.max_long_polls),
        per_address: number(settings.max_requests_per_address),
        body_bytes: number(settings.max_body_bytes),
        project_rate: settings.project_requests_per_second.map(Rate::new),
    }
}

fn connection_limits(settings: &ConnectionSettings) -> ConnectionLimits {
    ConnectionLimits {
        connections: number(settings.max_connections),
        per_address: number(settings.max_connections_per_address),
        streams: settings.max_streams,
        probe: settings.probe_after,
        first_byte: settings.first_byte_timeout,
        header: settings.header_timeout,
        idle: settings.idle_timeout,
        body: settings.body_timeout,
        write: settings.write_timeout,
        drain: settings.drain_timeout,
        unsent: number(settings.max_unsent_bytes),
        buffer: number(settings.max_header_bytes),
        ..ConnectionLimits::default()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        connections: ConnectionSettings,
    }

    #[test]
    fn loopback_is_this_machine() {
        for host in ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "::ffff:127.0.0.1"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["keystone", "10.0.0.1", "localhost.example.com", "[fd00::1]", ""] {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn defaults_of_settings_are_those_of_the_listener() {
        let settings = Program::parse_from(["angarium"]).connections;
        assert_eq!(connection_limits(&settings), ConnectionLimits::default());
    }
}
