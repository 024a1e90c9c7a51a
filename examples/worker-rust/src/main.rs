//! A worker over REST: claims up to ten messages, works, deletes each, and waits for more.
//!
//!     worker-rust URL QUEUE [COUNT]        with COUNT it ends after so many messages

use std::error::Error;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::Agent;

const CLAIM_SECONDS: u64 = 60;

fn work(body: &Value) {
    println!("working on {body}");
}

/// Claims messages, works and deletes; returns how many it has done.
fn next(agent: &Agent, base: &str, queue: &str) -> Result<u64, Box<dyn Error>> {
    let url = format!("{base}/v2/queues/{queue}/claims?limit=10&wait=20");
    let mut answer = agent.post(url).send_json(json!({"ttl": CLAIM_SECONDS, "grace": 60}))?;
    if answer.status() == 204 {
        return Ok(0);
    }
    let claim: Value = answer.body_mut().read_json()?;
    let claim_url = format!("{base}{}", answer.headers()["Location"].to_str()?);
    let mut renewed = Instant::now();
    let mut done = 0;
    for message in claim["messages"].as_array().ok_or("a claim has messages")? {
        // Between two messages; work that takes minutes renews in a thread.
        if renewed.elapsed() > Duration::from_secs(CLAIM_SECONDS / 3) {
            agent.patch(&claim_url).send_json(json!({"ttl": CLAIM_SECONDS}))?;
            renewed = Instant::now();
        }
        work(&message["body"]);
        let href = message["href"].as_str().ok_or("a message has an href")?;
        agent.delete(format!("{base}{href}")).call()?;
        done += 1;
    }
    Ok(done)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(base), Some(queue)) = (arguments.next(), arguments.next()) else {
        return Err("usage: worker-rust URL QUEUE [COUNT]".into());
    };
    let count: Option<u64> = arguments.next().map(|count| count.parse()).transpose()?;
    // The server waits up to 20 seconds for a message.
    let agent: Agent = Agent::config_builder().timeout_global(Some(Duration::from_secs(30))).build().into();
    let mut done = 0;
    while count.is_none_or(|count| done < count) {
        done += next(&agent, &base, &queue)?;
    }
    println!("worker-rust: done {done}");
    Ok(())
}
