//! `angarium bench` against a server that is there.

use super::{Beside, beside_a_server};

const SHORT: [&str; 7] = ["--no-ceiling", "--rounds", "2", "--seconds", "1", "--warmup", "0"];

fn bench(it: &Beside, kind: &str, more: &[&str]) {
    let url = it.program.url.clone().expect("it is beside a server");
    let report = it.program.run(&[&["bench", kind, "--url", &url, "--json"], &SHORT[..], more].concat());
    assert_eq!(report.code, 0, "{report:?}");
}

/// What a round left claimed was hidden from the next one, and came back in the middle of the one after that.
#[test]
fn a_round_leaves_no_claims_behind() {
    let it = beside_a_server();
    bench(&it, "cycle", &["--batch", "3", "--keep"]);
    let stats = it.program.json(&["queue", "stats", "bench-0"]);
    assert_eq!(stats["bench-0"]["messages"]["claimed"], 0, "{stats}");
}

#[test]
fn bench_deletes_only_its_own_queues() {
    let it = beside_a_server();
    it.program.say(&["queue", "create", "bench-1"]);
    for more in [["--queues", "3"].as_slice(), ["--queues", "3", "--protocol", "sqs"].as_slice()] {
        bench(&it, "post", more);
        assert_eq!(it.program.plain(&["queue", "list"]), ["bench-1"], "{more:?}");
    }
}
