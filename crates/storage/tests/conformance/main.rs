//! The promises of `PoolStore`: each sentence of its documentation is a fact here, and a test for every driver.
//!
//! A new driver is one function in `drivers` and its name in the last line below. A fact tests only the documentation;
//! features of one driver are tested in its own file.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[macro_use]
mod facts;

mod buckets;
mod changes;
mod classes;
mod drops;
mod due;
mod embedded_bodies;
mod extras;
mod fences;
mod groups;
mod hints;
mod history;
mod kept;
mod layout;
mod notes;
mod numbers;
mod opener;
mod postgres;
mod postgres_shared;
mod reads;
mod recount;
mod redis;
mod reopening;
mod retained;
mod scans;
mod shared;
mod stamps;
mod states;

/// Makes each fact a test of each driver.
macro_rules! conformance {
    ([$($driver:ident),*] $facts:tt) => {
        $(mod $driver { conformance! { @ $driver $facts } })*
    };
    (@ $driver:ident { $($subject:ident { $($fact:ident)* })* }) => {
        $(mod $subject {
            $(#[tokio::test]
            async fn $fact() {
                use angarium_testbed::drivers;
                use crate::$subject;
                $subject::$fact(&mut drivers::$driver()).await;
            })*
        })*
    };
}

facts! { conformance [embedded, redis_server, redis_cluster, postgres_server] }
