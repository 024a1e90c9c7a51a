//! Files that the URI of a pool names: whatever the name leads to, the service continues.

use std::time::{Duration, Instant};

use serde_json::json;

use super::service;

/// A file is judged before anything is connected to.
const AT_ONCE: Duration = Duration::from_secs(10);

#[test]
fn file_of_pool_is_regular_and_bounded() {
    let service = service();
    let pipe = service.data.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let long = service.data.path().join("long");
    std::fs::write(&long, vec![b'-'; (1 << 20) + 1]).unwrap();
    let directory = service.data.path();
    for (file, why) in [
        ("/dev/zero", "not a regular file"),
        (pipe.to_str().unwrap(), "not a regular file"),
        (directory.to_str().unwrap(), "not a regular file"),
        (long.to_str().unwrap(), "more than 1048576 bytes"),
        ("/nowhere/ca.pem", "No such file"),
    ] {
        for uri in [
            format!("rediss://127.0.0.1:1?ca={file}"),
            format!("redis-cluster://127.0.0.1:1?tls=on&ca={file}"),
            format!("postgres://a@127.0.0.1:1/b?sslmode=verify-full&sslrootcert={file}"),
        ] {
            let began = Instant::now();
            let answer = service.client.put("/v2/pools/p", Some(&json!({"uri": uri, "weight": 1}))).unwrap();
            assert_eq!(answer.status, 400, "{uri}: {}", answer.text());
            assert!(answer.text().contains(why), "{uri}: {}", answer.text());
            assert!(began.elapsed() < AT_ONCE, "{uri}: {:?}", began.elapsed());
        }
    }
    let other = json!({"uri": "embedded:pools/other", "weight": 1});
    assert_eq!(service.client.put("/v2/pools/other", Some(&other)).unwrap().status, 201);
    assert_eq!(service.client.get("/readyz").unwrap().status, 200);
}
