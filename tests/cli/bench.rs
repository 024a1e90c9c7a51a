//! `angarium bench` against a server that is there.

use super::beside_a_server;

/// What a round left claimed was hidden from the next one, and came back in the middle of the one after that.
#[test]
fn a_round_leaves_no_claims_behind() {
    let it = beside_a_server();
    let url = it.program.url.clone().expect("it is beside a server");
    let load =
        ["bench", "cycle", "--url", &url, "--no-ceiling", "--rounds", "2", "--seconds", "1", "--warmup", "0"];
    let report = it.program.run(&[&load[..], &["--batch", "3", "--json"]].concat());
    assert_eq!(report.code, 0, "{report:?}");
    let stats = it.program.json(&["queue", "stats", "bench-0"]);
    assert_eq!(stats["bench-0"]["messages"]["claimed"], 0, "{stats}");
}
