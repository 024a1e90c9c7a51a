//! Whose tokens of Keystone are, what their holders may do, and how long tokens are believed.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::{DEMO, assert_code, builder, guarded, own_token, secret};
use crate::support::identity::{Behaviour, IdentityService, SERVICE_CREDENTIAL, Scope, project_id};
use crate::support::server::ServerBuilder;
use angarium_testbed::held::wait_until;

#[test]
fn keystone_token_uses_queues_of_its_project() {
    let guarded = guarded(&[]);
    let (mine, theirs) = (guarded.member(), guarded.identity.token("other", &["member"]));
    let client = guarded.client(&mine);
    assert_eq!(client.create_queue("q").unwrap().status, StatusCode::CREATED);
    assert_eq!(client.post_messages("q", &[json!("mine")]).unwrap().status, StatusCode::CREATED);
    let bearer = guarded.server.client().with_header("Authorization", &format!("Bearer {mine}"));
    assert_eq!(bearer.stats("q").unwrap().json()["messages"]["total"], 1);
    for named in [project_id(DEMO), String::new()] {
        let named = client.clone().with_header("X-Project-Id", &named);
        assert_eq!(named.stats("q").unwrap().json()["messages"]["total"], 1);
    }
    // The same name in the project of another token is another queue.
    let other = guarded.client(&theirs);
    assert_eq!(other.stats("q").unwrap().json()["messages"]["total"], 0);
    // Nor does a header or a query lead to the other project, whatever the role.
    let admin = guarded.identity.token("other", &["admin"]);
    let two = format!("{},{}", project_id("other"), project_id(DEMO));
    for token in [&theirs, &admin] {
        for named in [&*project_id(DEMO), DEMO, &project_id("other").to_uppercase(), &two] {
            let named = guarded.client(token).with_header("X-Project-Id", named);
            assert_code(&named.get("/v2/queues").unwrap(), 403, "foreign_project");
        }
    }
    let path = format!("/v2/queues?x-project-id={0}&project_id={0}&X-Project-Id={0}", project_id(DEMO));
    assert_eq!(other.get(&path).unwrap().json()["queues"], json!([]));
    assert_eq!(guarded.identity.asked().logins, 1, "the service's token is kept");
}

#[test]
fn roles_of_keystone_are_those_of_the_setting() {
    let guarded = guarded(&["--keystone-roles", "cloud_admin=admin,Member=member,auditor=reader"]);
    let send = |token: &str, method: Method, path: &str| {
        let forged = [("X-Roles", "admin"), ("X-Is-Admin-Project", "True"), ("X-User-Id", "root")];
        guarded.client(token).send(method, path, &forged, None).unwrap()
    };
    let [admin, member, reader, none] =
        [&["auditor", "CLOUD_ADMIN"][..], &["member"], &["auditor"], &["admin"]]
            .map(|roles| guarded.identity.token(DEMO, roles));
    assert_eq!(send(&admin, Method::GET, "/v2/pools").status, StatusCode::OK);
    assert_code(&send(&member, Method::GET, "/v2/pools"), 403, "not_authorized");
    assert_eq!(send(&member, Method::PUT, "/v2/queues/q").status, StatusCode::CREATED);
    for path in ["/v2/queues", "/v2/queues/q", "/v2/queues/q/messages", "/v2/queues/q/stats", "/v2/quota"] {
        assert_eq!(send(&reader, Method::GET, path).status, StatusCode::OK, "{path}");
    }
    for (method, path) in [
        (Method::PUT, "/v2/queues/r"),
        (Method::DELETE, "/v2/queues/q"),
        (Method::POST, "/v2/queues/q/messages"),
        (Method::DELETE, "/v2/queues/q/messages?pop=1"),
        (Method::POST, "/v2/queues/q/claims"),
        (Method::GET, "/v2/pools"),
    ] {
        assert_code(&send(&reader, method, path), 403, "not_authorized");
    }
    assert_code(&send(&none, Method::GET, "/v2/queues"), 403, "not_authorized");
    assert_eq!(guarded.figure("angarium_authentication_failures_total{reason=\"unknown_role\"}"), 1.0);
}

#[test]
fn token_of_no_project_is_refused() {
    let guarded = guarded(&[]);
    for scope in [Scope::Domain, Scope::System, Scope::Nothing] {
        let token = guarded.identity.token_of(scope, &["admin"], Duration::from_secs(60));
        let client = guarded.client(&token);
        assert_code(&client.get("/v2/queues").unwrap(), 403, "unscoped");
        let named = client.with_header("X-Project-Id", &project_id(DEMO));
        assert_code(&named.get("/v2/queues").unwrap(), 403, "unscoped");
    }
    assert_eq!(guarded.figure("angarium_authentication_failures_total{reason=\"unscoped_token\"}"), 6.0);
}

#[test]
fn unknown_token_is_told_where_keystone_is() {
    let guarded = guarded(&["--keystone-public-url", "https://keystone.example.com:5000"]);
    let expired = guarded.identity.token_of(Scope::Project(DEMO.to_owned()), &["member"], Duration::ZERO);
    for (token, why) in [("gAAAAABunknown", "not known"), (&*expired, "not known"), ("", "no token")] {
        let answer = guarded.client(token).get("/v2/queues").unwrap();
        assert_code(&answer, 401, "unauthenticated");
        assert!(answer.text().contains(why), "{}", answer.text());
        assert_eq!(answer.headers["www-authenticate"], "Keystone uri=\"https://keystone.example.com:5000\"");
    }
    assert_eq!(guarded.server.client().get("/v2/ping").unwrap().status, StatusCode::NO_CONTENT);
    assert!(!guarded.server.last_lines().contains("gAAAAA"), "{}", guarded.server.last_lines());
}

/// What cannot be a token is refused without a question to Keystone.
#[test]
fn malformed_token_is_not_looked_up() {
    let guarded = guarded(&[]);
    let member = guarded.member();
    let long = "x".repeat(4_097);
    let two = format!("{member} {member}");
    for token in [&*long, &two, "a\tb", &format!("angarium_{}", "0".repeat(64))] {
        assert_code(&guarded.client(token).get("/v2/queues").unwrap(), 401, "unauthenticated");
    }
    for twice in [("X-Auth-Token", "gAAAAABother"), ("x-auth-token", &member)] {
        let answer = guarded.client(&member).send(Method::GET, "/v2/queues", &[twice], None).unwrap();
        assert_code(&answer, 401, "unauthenticated");
    }
    assert_eq!(guarded.asked(), 0);
    // Case counts.
    assert_code(&guarded.client(&member.to_lowercase()).get("/v2/queues").unwrap(), 401, "unauthenticated");
    assert_eq!(guarded.client(&member).get("/v2/queues").unwrap().status, StatusCode::OK);
    // A project that is there twice is refused, whichever counts elsewhere.
    let twice = guarded.client(&member).with_header("X-Project-Id", &project_id(DEMO));
    let answer = twice.send(Method::GET, "/v2/queues", &[("X-Project-Id", "other")], None).unwrap();
    assert_code(&answer, 400, "invalid");
}

#[test]
fn revoked_token_passes_as_long_as_it_is_remembered() {
    let guarded = guarded(&["--keystone-cache-time", "2"]);
    let (mut client, mut since, mut asked) = (guarded.server.client(), Instant::now(), 0);
    // On a busy machine the token may be forgotten before it is used again: then with another one.
    wait_until("a token is used again in time", || {
        let token = guarded.member();
        (client, since, asked) = (guarded.client(&token), Instant::now(), guarded.asked());
        assert_eq!(client.get("/v2/queues").unwrap().status, StatusCode::OK);
        guarded.identity.revoke(&token);
        let passes = client.get("/v2/queues").unwrap().status == StatusCode::OK;
        let is_in_time = since.elapsed() < Duration::from_secs(2);
        assert!(passes || !is_in_time, "it is remembered");
        is_in_time
    });
    assert_eq!(guarded.asked(), asked + 1);
    let is_refused = || client.get("/v2/queues").unwrap().status == StatusCode::UNAUTHORIZED;
    wait_until("the token is looked up again", is_refused);
    assert!(since.elapsed() > Duration::from_millis(1_900), "{:?}", since.elapsed());
    assert!(is_refused());
    assert_eq!(guarded.asked(), asked + 2, "a refused token is remembered too");
}

#[test]
fn expired_token_is_refused_although_it_is_remembered() {
    let guarded = guarded(&[]);
    let scope = Scope::Project(DEMO.to_owned());
    let token = guarded.identity.token_of(scope, &["member"], Duration::from_secs(3));
    let client = guarded.client(&token);
    assert_eq!(client.get("/v2/queues").unwrap().status, StatusCode::OK);
    thread::sleep(Duration::from_millis(3_100));
    assert_code(&client.get("/v2/queues").unwrap(), 401, "unauthenticated");
    // Keystone may have another clock, and still show the token: then its date counts.
    let answer = json!({"token": {
        "expires_at": "2020-01-01T00:00:00.000000Z", "project": {"id": "p"}, "roles": [{"name": "member"}],
    }});
    guarded.identity.set_behaviour(Behaviour::Canned(200, Vec::new(), answer.to_string()));
    let answer = guarded.client("gAAAAABold").get("/v2/queues").unwrap();
    assert_code(&answer, 401, "unauthenticated");
    assert!(answer.text().contains("expired"), "{}", answer.text());
}

#[test]
fn application_credential_is_enough() {
    let (identity, data) = (IdentityService::start(), tempfile::tempdir().unwrap());
    let server = ServerBuilder::new(&data.path().join("data"))
        .env("ANGARIUM_KEYSTONE_URL", identity.url())
        .env("ANGARIUM_KEYSTONE_APPLICATION_CREDENTIAL", SERVICE_CREDENTIAL.0)
        .env("ANGARIUM_KEYSTONE_SECRET_FILE", secret(&data, SERVICE_CREDENTIAL.1))
        .start();
    let client = server.client().with_header("X-Auth-Token", &identity.token(DEMO, &["member"]));
    assert_eq!(client.get("/v2/queues").unwrap().status, StatusCode::OK);
}

#[test]
fn tokens_of_the_file_come_before_keystone() {
    let (identity, data) = (IdentityService::start(), tempfile::tempdir().unwrap());
    let (tokens, shared) = (data.path().join("tokens.toml"), identity.token(DEMO, &["admin"]));
    let made = format!("angarium_{}", "7".repeat(64));
    let file = own_token(&made, "mine", "member") + &own_token(&shared, "mine", "reader");
    std::fs::write(&tokens, file).unwrap();
    let server = builder(&identity, &data).arg("--tokens").arg(&tokens).start();
    let client = |token: &str| server.client().with_header("X-Auth-Token", token);
    assert_eq!(client(&made).create_queue("q").unwrap().status, StatusCode::CREATED);
    // The file wins where both know a token.
    assert_eq!(client(&shared).get("/v2/queues").unwrap().json()["queues"][0]["name"], "q");
    assert_code(&client(&shared).create_queue("r").unwrap(), 403, "not_authorized");
    assert_code(&client(&made.replace('7', "8")).get("/v2/queues").unwrap(), 401, "unauthenticated");
    assert_eq!(identity.asked().validations, 0, "tokens of the file are shown to no other service");
    let keystones = identity.token(DEMO, &["member"]);
    assert_eq!(client(&keystones).get("/v2/queues").unwrap().json()["queues"], json!([]));
    assert!(identity.was_shown(&keystones) && !identity.was_shown(&made));
    let refused = server.client().get("/v2/queues").unwrap();
    let told: Vec<_> = refused.headers.get_all("www-authenticate").iter().collect();
    assert_eq!(told, [&*format!("Keystone uri=\"{}\"", identity.url()), "Bearer realm=\"angarium\""]);
}

#[test]
fn certificate_of_keystone_is_checked() {
    let (data, key) = (tempfile::tempdir().unwrap(), KeyPair::generate().unwrap());
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let ca = data.path().join("ca.pem");
    std::fs::write(&ca, certificate.pem()).unwrap();
    let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    let identity = IdentityService::start_with(Some(TlsAcceptor::from(Arc::new(tls))));
    let trusting = builder(&identity, &data).arg("--keystone-ca").arg(&ca).start();
    let token = identity.token(DEMO, &["member"]);
    let client = trusting.client().with_header("X-Auth-Token", &token);
    assert_eq!(client.get("/v2/queues").unwrap().status, StatusCode::OK);
    assert_eq!(trusting.terminate().code(), Some(0));
    let strict = builder(&identity, &data).start();
    let answer = strict.client().with_header("X-Auth-Token", &token).get("/v2/queues").unwrap();
    assert_code(&answer, 503, "unavailable");
    wait_until("it is logged", || strict.last_lines().contains("certificate"));
    drop(strict);
    std::fs::write(&ca, "no certificate").unwrap();
    let said = builder(&identity, &data).arg("--keystone-ca").arg(&ca).start_refused();
    assert!(said.contains("ca.pem") && said.contains("no certificate"), "{said}");
}

#[test]
fn incomplete_settings_of_keystone_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let started = |args: &[&str]| {
        let builder = ServerBuilder::new(&data.path().join("data"));
        args.iter().fold(builder, |builder, arg| builder.arg(*arg)).start_refused()
    };
    let url = "--keystone-url=http://127.0.0.1:1";
    for (args, said) in [
        (&[url][..], "needs --keystone-user"),
        (&[url, "--keystone-user=u"], "needs --keystone-secret-file"),
        (&[url, "--keystone-user=u", "--keystone-secret-file=/nowhere/file"], "/nowhere/file"),
        (&["--keystone-user=u"], "need --keystone-url"),
        (&["--keystone-url=keystone:5000"], "https://keystone.example.com:5000"),
        (&[url, "--keystone-roles=admin=king"], "reader, member or admin"),
    ] {
        let told = started(args);
        assert!(told.contains(said), "{args:?}: {told}");
    }
}
