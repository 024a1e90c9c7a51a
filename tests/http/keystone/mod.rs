//! Tokens of Keystone, at a service that asks a stand-in of it.

mod outages;
mod tokens;

use std::path::PathBuf;

use tempfile::TempDir;

use crate::support::client::{Answer, Client};
use crate::support::identity::{IdentityService, SERVICE_PASSWORD, SERVICE_USER};
use crate::support::server::{Server, ServerBuilder};

const DEMO: &str = "demo";
/// The places at Keystone that one address has while no other has any: three eighths of all.
const PLACES: usize = 12;

/// A service that asks a stand-in of Keystone.
struct Guarded {
    identity: IdentityService,
    server: Server,
    data: TempDir,
}

fn builder(identity: &IdentityService, data: &TempDir) -> ServerBuilder {
    ServerBuilder::new(&data.path().join("data"))
        .arg("--keystone-url")
        .arg(format!("{}/v3/", identity.url()))
        .arg("--keystone-user")
        .arg(SERVICE_USER)
        .arg("--keystone-secret-file")
        .arg(secret(data, SERVICE_PASSWORD))
}

fn secret(data: &TempDir, text: &str) -> PathBuf {
    let path = data.path().join("secret");
    std::fs::write(&path, format!("{text}\n")).unwrap();
    path
}

fn guarded(settings: &[&str]) -> Guarded {
    let (identity, data) = (IdentityService::start(), tempfile::tempdir().unwrap());
    let builder = settings.iter().fold(builder(&identity, &data), |builder, setting| builder.arg(*setting));
    Guarded { server: builder.start(), identity, data }
}

impl Guarded {
    fn client(&self, token: &str) -> Client {
        self.server.client().with_header("X-Auth-Token", token)
    }

    fn member(&self) -> String {
        self.identity.token(DEMO, &["member", "reader"])
    }

    /// How many tokens Keystone was asked about.
    fn asked(&self) -> usize {
        self.identity.asked().validations
    }

    /// A figure of the page of metrics, for which Keystone is asked about one more token.
    fn figure(&self, line: &str) -> f64 {
        let admin = self.client(&self.identity.token(DEMO, &["admin", "cloud_admin"]));
        let page = admin.get("/metrics").unwrap().text();
        let value = page.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{line}: {page}")).parse().unwrap()
    }
}

fn code(answer: &Answer) -> (u16, String) {
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    (answer.status.as_u16(), body["code"].as_str().unwrap_or_default().to_owned())
}

#[track_caller]
fn assert_code(answer: &Answer, status: u16, word: &str) {
    assert_eq!(code(answer), (status, word.to_owned()), "{}", answer.text());
}

/// The entry of a token in the file of tokens.
fn own_token(token: &str, project: &str, role: &str) -> String {
    use sha2::{Digest, Sha256};
    let hash: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[[token]]\nsha256='{hash}'\nproject='{project}'\nrole='{role}'\n")
}
