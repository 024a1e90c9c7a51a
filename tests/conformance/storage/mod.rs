//! The promises of `PoolStore`: each sentence of its documentation is a fact here, and every driver shows it.
//!
//! A new driver is one function in `drivers` and its name in the first line below. A fact asks only what the
//! documentation says; what a driver does beyond it is tested beside the driver.

mod changes;
mod drivers;
mod fences;
mod history;
pub mod naive;
mod numbers;
mod owner;
mod reads;
mod reopening;
mod scans;

/// Makes each fact a test of each driver.
macro_rules! conformance {
    ([$($driver:ident),*] $facts:tt) => {
        $(mod $driver { conformance! { @ $driver $facts } })*
    };
    (@ $driver:ident { $($subject:ident { $($fact:ident)* })* }) => {
        $(mod $subject {
            $(#[tokio::test]
            async fn $fact() {
                super::super::$subject::$fact(&mut super::super::drivers::$driver()).await;
            })*
        })*
    };
}

conformance! { [embedded, redis, redis_cluster] {
    fences {
        unused_slot_has_no_greatest_id
        greatest_id_ever_appended_is_returned
        greatest_id_outlives_its_entry
        greatest_id_counts_what_its_own_batch_removed
        greatest_id_is_that_of_the_slot_alone
        lower_epoch_is_refused
        generation_counts_before_transaction
        refused_fence_leaves_the_owner_alone
        same_epoch_begins_a_numbering_of_its_own
        replaced_owner_writes_nothing
        fence_and_batch_at_the_same_time_come_one_after_the_other
    }
    numbers {
        batches_of_an_epoch_are_numbered_from_one
        repeated_number_is_a_success_that_changes_nothing
        gap_is_refused_and_changes_nothing
        older_number_is_stale_and_changes_nothing
        slot_without_a_record_went_back
        epoch_beyond_the_record_went_back
        refused_batch_may_come_again_under_its_right_number
        slots_are_numbered_apart
        batch_without_changes_takes_its_number
        batch_sent_twice_at_the_same_time_is_applied_once
    }
    changes {
        entries_are_found_as_they_were_sent
        batch_changes_all_its_queues
        refused_batch_changes_none_of_its_queues
        update_replaces_the_header_and_keeps_the_body
        later_update_wins
        update_of_an_absent_entry_leaves_it_absent
        remove_of_an_absent_entry_does_no_harm
        remove_named_twice_counts_once
        append_then_update_in_one_batch_shows_the_update
        append_then_remove_in_one_batch_leaves_nothing_behind
        update_then_remove_in_one_batch_leaves_nothing_behind
        bodies_of_any_size_come_back_whole
    }
    scans {
        upwards_is_from_the_oldest
        downwards_is_from_the_newest
        after_is_left_out_whether_it_exists_or_not
        page_holds_at_most_the_messages_asked_for
        page_ends_once_its_bodies_exceed_the_bytes
        last_page_says_so
        empty_queue_is_one_last_page
        pages_join_to_the_whole_queue
        updated_headers_are_shown
        removed_entries_are_not_shown
        head_begins_at_the_hint_and_misses_nothing
        smaller_id_pulls_the_hint_down
        older_hint_does_no_harm
        neighbouring_queues_do_not_show
    }
    reads {
        get_keeps_the_order_asked_for
        get_leaves_out_what_is_absent
        ids_of_another_queue_are_not_found
        unknown_queue_has_no_totals
        totals_are_those_of_the_queue_alone
        totals_follow_appends_and_removes
        totals_do_not_follow_updates
        store_in_use_accepts_batches
    }
    reopening {
        entries_and_totals_are_kept
        head_of_the_queue_is_kept
        epoch_and_greatest_id_are_kept
        last_number_is_kept
        owner_of_the_same_epoch_goes_on
    }
    history {
        pool_is_what_the_naive_pool_is_after_any_history
    }
} }
