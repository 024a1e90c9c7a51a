//! Makes inputs that are nearly right of inputs that are right. The same seed makes the same ones.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Pieces that parsers look at twice: of JSON, HTTP, URIs, UTF-8, TOML, and words of both APIs.
const PIECES: &[&[u8]] = &[
    b"null",
    b"true",
    b"false",
    b"{}",
    b"[]",
    b"[",
    b"]",
    b"{",
    b"}",
    b"\"",
    b"\\",
    b",",
    b":",
    b"\\u0000",
    b"\\ud800",
    b"0",
    b"-1",
    b"-0",
    b"1e999",
    b"1.5",
    b"1E-2",
    b"NaN",
    b"Infinity",
    b"18446744073709551616",
    b"9223372036854775807",
    b"-9223372036854775809",
    b"2147483648",
    b"4294967296",
    b"60.0",
    b" ",
    b"\n",
    b"\r\n",
    b"\t",
    b"\0",
    b"%",
    b"%00",
    b"%2F",
    b"%FF",
    b"%C3%A9",
    b"&",
    b"=",
    b"?",
    b"#",
    b"/",
    b"//",
    b"..",
    b".",
    b"~",
    b"~1",
    b"~0",
    b"+",
    b";",
    b"\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xae",
    b"messages",
    b"body",
    b"ttl",
    b"delay",
    b"grace",
    b"limit",
    b"marker",
    b"ids",
    b"claim_ids",
    b"pop",
    b"not_before",
    b"op",
    b"path",
    b"value",
    b"/metadata/",
    b"_flavor",
    b"_max_claim_count",
    b"_dead_letter_queue",
    b"_default_message_ttl",
    b"uri",
    b"weight",
    b"options",
    b"pool_list",
    b"capabilities",
    b"resource_types",
    b"embedded:",
    b"embedded:../x",
    b"9999-12-30T00:00:00Z",
    b"0000-00-00T00:00:00Z",
    b"X-Project-Id: ",
    b"Client-ID: ",
    b"Accept: text/html\n",
    b"Content-Type: text/plain\n",
    b"Origin: http://a\n",
    b"admin",
    b"'",
    b"\"\"\"",
    b"[[",
    b"= ",
    b"0x",
    b"1_0",
    b"127.0.0.1:0",
    b"10s",
    b"zookeeper://",
    b"QueueUrl",
    b"MessageBody",
    b"Attribute.1.Name=",
    b"Entry.99999999999.Id=x&",
    b".1.1=",
    b"ReceiptHandle",
    b"X-Amz-Target: AmazonSQS.",
    b"Authorization: AWS4-HMAC-SHA256 Credential=a/b/c/sqs/aws4_request",
    b"000000000000",
    b"arn:aws:sqs:",
    b".fifo",
];

/// Inputs without end.
pub struct Mutator {
    seeds: Vec<Vec<u8>>,
    random: SmallRng,
}

impl Mutator {
    pub fn new(seeds: Vec<Vec<u8>>, seed: u64) -> Self {
        Self { seeds, random: SmallRng::seed_from_u64(seed) }
    }

    pub fn next(&mut self) -> Vec<u8> {
        let mut input = self.seed();
        // Mostly one, since the first mistake hides those behind it.
        for _ in 0..*[1, 1, 1, 2, 3, 6].choose(&mut self.random).unwrap_or(&1) {
            self.mutate(&mut input);
        }
        input
    }

    fn seed(&mut self) -> Vec<u8> {
        self.seeds.choose(&mut self.random).cloned().unwrap_or_default()
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let (from, to) = self.range(input.len());
        match self.random.random_range(0..9) {
            0 => insert(input, from, &self.piece()),
            1 => drop(input.splice(from..to, self.piece())),
            2 => drop(input.drain(from..to)),
            3 => {
                let again = input[from..to].to_vec();
                insert(input, to, &again);
            }
            4 => input.truncate(from),
            5 => {
                if let Some(byte) = input.get_mut(from) {
                    *byte ^= 1 << self.random.random_range(0..8);
                }
            }
            6 => self.replace_value(input),
            7 => {
                let depth = *[2, 127, 128, 129, 400].choose(&mut self.random).unwrap_or(&2);
                let opening =
                    *[b"[".as_slice(), b"{\"a\":"].choose(&mut self.random).unwrap_or(&b"[".as_slice());
                insert(input, from, &opening.repeat(depth));
            }
            _ => {
                let other = self.seed();
                let (begin, end) = self.range(other.len());
                insert(input, from, &other[begin..end]);
            }
        }
    }

    fn piece(&mut self) -> Vec<u8> {
        PIECES.choose(&mut self.random).map(|piece| piece.to_vec()).unwrap_or_default()
    }

    /// A part of an input, mostly a short one.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let from = self.random.random_range(0..=length);
        let most = *[1, 4, 16, length].choose(&mut self.random).unwrap_or(&1);
        (from, (from + self.random.random_range(0..=most)).min(length))
    }

    /// Replaces a whole value: what is between two of the signs that part values.
    fn replace_value(&mut self, input: &mut Vec<u8>) {
        let is_sign = |byte: &u8| b" :,=&?/\n{}[]".contains(byte);
        let start = self.random.random_range(0..=input.len());
        let Some(from) = input[start..].iter().position(is_sign).map(|at| start + at + 1) else { return };
        let to = input[from..].iter().position(is_sign).map_or(input.len(), |at| from + at);
        drop(input.splice(from..to, self.piece()));
    }
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    drop(input.splice(at..at, piece.iter().copied()));
}
