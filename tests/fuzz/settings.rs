//! Files of settings and of tokens, and the addresses in them: whatever they say, they are read or refused with a reason.

use angarium::config::{TreeChoice, layers, tokens};
use angarium_core::pool::PoolUri;

use super::mutator;

const SETTINGS: &str = "listen = \"127.0.0.1:8888\"\ndata = \"angarium-data\"\nreserve = 268435456\n\
    coordination = \"zookeeper://a:2181,b:2181/angarium\"\nidle_timeout = \"90s\"\nmax_connections = 4096\n\
    insecure_no_auth = false\nmax_messages_per_page = 20\ndefault_message_ttl = 3600\nplacement = \"weighted\"\n\
    pool = \"redis-cluster://a:6379,b:6379/0?wait=1\"\nlog = \"info,fjall=warn\"\n";
const TOKENS: &str = "[[token]]\nsha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n\
    project = \"acme\"\nrole = \"member\"\nname = \"ci\"\n";
const ADDRESSES: [&str; 9] = [
    "zookeeper://a:2181,[::1]:2181/angarium",
    "embedded:pools/fast",
    "redis://user:secret@127.0.0.1:6379/0?wait=1",
    "rediss://h:1",
    "redis-sentinel://a:1,b:2/name",
    "redis-cluster://a:1,b:2/0",
    "postgres://user:secret@127.0.0.1:5432/db?schema=queues&quota=1000000",
    "postgresql://user:secret@a:1,[::1]:2/db?sslmode=verify-full&sslrootcert=ca.pem",
    "postgres://%75ser:se%20cret@h/db?options=-c%20work_mem%3D1MB&application_name=q",
];

/// Mutates `seeds` and hands each to `read`, which states why it refuses one.
fn check(seeds: &[&str], read: impl Fn(&str) -> Result<(), String>) {
    seeds.iter().for_each(|seed| assert_eq!(read(seed), Ok(()), "{seed}"));
    let (mut mutator, rounds) = mutator(seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect());
    for _ in 0..rounds {
        let input = mutator.next();
        // What is no text is refused before any caller parses it.
        let Ok(input) = std::str::from_utf8(&input) else { continue };
        if let Err(why) = read(input) {
            assert!(!why.trim().is_empty(), "no reason against:\n{input}");
        }
    }
}

#[test]
fn a_file_of_settings_is_read_or_refused_with_a_reason() {
    check(&[SETTINGS], |text| layers::parse(text).map(|_| ()));
}

#[test]
fn a_file_of_tokens_is_read_or_refused_with_a_reason() {
    check(&[TOKENS], |text| tokens::parse(text).map(|_| ()));
}

#[test]
fn an_address_is_read_or_refused_with_a_reason() {
    check(&ADDRESSES[..1], |text| text.parse::<TreeChoice>().map(|_| ()).map_err(str::to_owned));
    check(&ADDRESSES[1..], |text| PoolUri::new(text).map(|_| ()).map_err(|error| error.to_string()));
}
