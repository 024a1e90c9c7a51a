//! What the product keeps when it is killed, cut off from power or refused by its disk: load from
//! outside, the fault, and the judgement of the recorded history. It never looks inside the product.
#![allow(clippy::panic, reason = "a test fails by it")]

mod backup;
mod bad_histories;
mod cluster;
mod cluster_migration;
mod crash;
mod dedup_test;
mod drain;
mod due_test;
mod ensemble;
mod growth;
mod history;
mod leases;
mod load;
mod log_damage;
mod migration;
mod postgres;
mod postgres_below;
mod power_test;
mod powercut;
mod read_test;
mod redis;
mod redis_below;
mod registry;
mod relaxed_queues;
mod relaxed_test;
mod release_test;
mod reopen_test;
mod rollback;
mod rollback_test;
mod small_disk;
mod small_disk_test;
mod sqs;
mod stall_test;
mod table_damage;
mod upgrade;
mod verdict;
pub mod writers;
