//! The settings of the access to ZooKeeper: the identity of the service there, and TLS. They take effect only with a
//! tree in ZooKeeper.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};

use angarium_coordination::zookeeper::{AccessFiles, CertificateFiles};

/// The identity of the service at ZooKeeper, and the certificates of both sides.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Replicas")]
pub struct ZooKeeperSettings {
    /// File of the logins at ZooKeeper, one a line: `sasl USER:PASSWORD` (DIGEST-MD5) or `digest USER:PASSWORD`. With an
    /// identity a new tree is closed to all other clients. It is read for each session
    #[arg(long, env = "ANGARIUM_ZOOKEEPER_AUTH_FILE", value_name = "FILE")]
    pub zookeeper_auth_file: Option<PathBuf>,

    /// File of the certificates that those of the ZooKeeper servers are checked with (PEM); turns TLS on. It is read for
    /// each session
    #[arg(long, env = "ANGARIUM_ZOOKEEPER_TLS_CA", value_name = "FILE")]
    pub zookeeper_tls_ca: Option<PathBuf>,

    /// File of the client certificate for ZooKeeper, its chain after it (PEM): an identity, as a login is; needs
    /// --zookeeper-tls-key and --zookeeper-tls-ca
    #[arg(long, env = "ANGARIUM_ZOOKEEPER_TLS_CERT", value_name = "FILE")]
    pub zookeeper_tls_cert: Option<PathBuf>,

    /// File of the key of the client certificate for ZooKeeper (PEM)
    #[arg(long, env = "ANGARIUM_ZOOKEEPER_TLS_KEY", value_name = "FILE")]
    pub zookeeper_tls_key: Option<PathBuf>,

    /// Refuse to start on a tree in ZooKeeper that is open to other clients of the ensemble
    #[arg(long, env = "ANGARIUM_REQUIRE_SECURE_TREE", default_value = "false", value_name = "BOOL")]
    #[arg(action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub require_secure_tree: bool,
}

impl ZooKeeperSettings {
    /// Returns whether any of them is set.
    pub fn is_set(&self) -> bool {
        let files = [
            &self.zookeeper_auth_file,
            &self.zookeeper_tls_ca,
            &self.zookeeper_tls_cert,
            &self.zookeeper_tls_key,
        ];
        self.require_secure_tree || files.iter().any(|file| file.is_some())
    }

    /// Returns the files together.
    ///
    /// # Errors
    ///
    /// The reason why the settings do not fit together.
    pub fn chosen(&self) -> Result<AccessFiles, &'static str> {
        let certificate = match (&self.zookeeper_tls_cert, &self.zookeeper_tls_key) {
            (Some(chain), Some(key)) => Some(CertificateFiles { chain: chain.clone(), key: key.clone() }),
            (None, None) => None,
            _ => return Err("--zookeeper-tls-cert and --zookeeper-tls-key go together"),
        };
        if certificate.is_some() && self.zookeeper_tls_ca.is_none() {
            return Err("--zookeeper-tls-cert needs --zookeeper-tls-ca: a certificate is sent over TLS only");
        }
        Ok(AccessFiles {
            logins: self.zookeeper_auth_file.clone(),
            authorities: self.zookeeper_tls_ca.clone(),
            certificate,
        })
    }
}
