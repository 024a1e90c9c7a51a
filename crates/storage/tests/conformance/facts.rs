//! The facts by subject. The suite of the simulation runs them too, over a simulated disk.

/// Passes the facts to the macro `$run`, behind the drivers.
macro_rules! facts {
    ($run:ident $drivers:tt) => {
        $run! { $drivers {
        stamps {
            storage_is_verified_by_its_stamp
            tenant_is_replaced_only_as_it_was_read
        }
        fences {
            unused_slot_has_no_greatest_id
            greatest_id_ever_appended_is_returned
            greatest_id_outlives_its_entry
            greatest_id_counts_ids_removed_in_its_batch
            greatest_id_is_per_slot
            lower_epoch_is_refused
            generation_counts_before_transaction
            refused_fence_leaves_the_owner_alone
            same_epoch_begins_a_numbering_of_its_own
            replaced_owner_writes_nothing
            fence_and_batch_at_the_same_time_come_one_after_the_other
        }
        numbers {
            batches_of_an_epoch_are_numbered_from_one
            repeated_number_succeeds_and_changes_nothing
            first_try_after_its_repeat_restores_nothing
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
            batch_of_a_thousand_queues_is_applied_whole
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
            bodies_of_any_bytes_come_back_whole
        }
        shared {
            shared_body_stays_until_its_last_message_is_removed
            message_with_shared_body_keeps_it_in_every_state
            copies_outlive_the_queues_that_are_dropped
            message_that_its_batch_removes_leaves_the_body_to_others
            bodies_with_nothing_to_share_are_read_as_they_were_sent
            lender_counts_a_body_until_its_last_message_is_removed
            lender_counts_its_own_messages_beside_what_it_lends
            dropped_lender_leaves_copies_and_returns_with_nothing
        }
        scans {
            upwards_is_from_the_oldest
            downwards_is_from_the_newest
            after_is_left_out_whether_it_exists_or_not
            page_holds_at_most_the_messages_asked_for
            page_ends_once_its_bodies_exceed_the_bytes
            last_page_is_marked
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
            get_leaves_out_absent_entries
            ids_of_another_queue_are_not_found
            unknown_queue_has_no_totals
            totals_are_those_of_the_queue_alone
            totals_follow_appends_and_removes
            totals_do_not_follow_updates
            usage_is_the_sum_over_all_queues_with_entries
            store_in_use_accepts_batches
        }
        reopening {
            entries_and_totals_are_kept
            head_of_the_queue_is_kept
            epoch_and_greatest_id_are_kept
            last_number_is_kept
            owner_of_the_same_epoch_continues
        }
        states {
            each_state_is_shown_where_it_belongs
            entry_in_any_state_is_held
            entry_is_held_while_it_changes_its_state
            entries_are_found_by_id_in_any_state
            totals_tell_states_apart
            update_moves_an_entry_from_any_state_to_any_other
            removed_entries_are_gone_from_every_state
            state_of_an_absent_entry_changes_nothing
            entry_ready_below_the_head_is_shown
            changes_of_one_batch_end_in_the_last_state
            schedule_is_by_time_then_by_id
            entry_put_off_again_has_one_place_in_the_schedule
            states_are_kept_when_it_is_opened_again
        }
        kept {
            kept_entries_are_by_settlement_then_by_id
            page_of_kept_entries_keeps_its_bounds
            kept_entries_of_other_queues_do_not_show
            kept_entry_is_in_no_other_order
            kept_entries_have_a_total_of_their_own
            kept_entry_settled_again_has_one_place
            entry_is_kept_and_made_ready_any_number_of_times
            kept_entry_ready_below_the_head_is_shown
            changes_of_one_batch_end_kept_or_not
            removed_kept_entry_is_gone
            kept_entries_are_there_when_it_is_opened_again
        }
        extras {
            extras_are_found_as_they_were_sent
            update_replaces_adds_and_removes_extras
            extras_go_through_all_states
            extras_are_kept_when_it_is_opened_again
            large_results_come_back_whole
            due_headers_have_their_extras
        }
        due {
            scheduled_entries_are_due_at_their_time
            schedule_of_all_queues_is_shown_the_earliest_first
            unscheduled_entry_is_not_due
            late_entry_in_scanned_time_is_due
            slots_are_looked_at_apart
            expired_entries_are_shown_after_a_while_and_others_never
            lengthened_life_counts
            every_state_expires_but_those_of_a_move
            kept_entry_expires_by_its_own_life
            kept_entry_is_not_due_by_schedule
            kept_entries_expire_in_any_order_of_ids
            remaining_entries_keep_no_others_out
            head_past_expired_entries_shows_none_of_them
            due_entries_are_found_when_it_is_opened_again
        }
        retained {
            retained_entries_are_shown_by_base_time_and_never_expire
            base_time_out_of_order_of_ids_is_found
            retained_entry_of_a_move_is_not_shown
            kept_entry_no_longer_lives_by_queue
            living_entries_cost_no_scan
            deleted_entries_leave_nothing_to_look_at
            neighbouring_queues_do_not_show_theirs
            huge_neighbour_ends_a_look
            retained_entries_are_kept_when_it_is_opened_again
        }
        notes {
            notes_are_shown_by_kind_in_order_of_their_keys
            pages_of_notes_join_to_all
            later_note_replaces_one_of_its_name
            removed_notes_are_gone_and_absent_ones_do_no_harm
            note_and_removal_of_one_key_in_one_batch_keep_the_note
            note_is_written_with_its_message_or_not_at_all
            note_outlives_its_message_and_the_storage
            note_beyond_its_bounds_is_refused
        }
        drops {
            nothing_of_a_dropped_queue_is_left
            queue_is_dropped_in_as_many_parts_as_asked
            dropping_missing_queue_is_done_at_once
            only_the_owner_drops
            other_queues_of_the_slot_go_on_meanwhile
            drop_takes_no_number
        }
        classes {
            relaxed_batch_is_shown_once_it_is_answered
            relaxed_batches_are_kept_when_it_is_closed
            without_room_only_appends_are_refused
            applied_batch_is_done_without_room
            health_reports_state_and_writes_nothing
        }
        groups {
            group_entries_are_in_order_despite_others_between
            entries_of_a_group_are_shown_unless_they_are_kept
            kept_entries_are_in_no_group
            entry_leaves_its_group_when_kept_and_enters_it_again
            group_changes_of_one_batch_end_in_the_last_state
            page_of_a_group_begins_behind_an_id_and_keeps_its_bounds
            groups_are_shown_by_name_each_with_its_first_entry
            pages_of_groups_join_to_all
            removed_entries_leave_group_and_empty_group_vanishes
            groups_of_other_queues_do_not_show
            group_and_first_claim_are_kept_through_states_and_reopening
            first_claim_is_kept_without_a_group
            totals_count_entries_of_groups_as_others
            a_dropped_queue_has_no_groups
        }
        history {
            pool_matches_naive_pool_after_any_history
        }
        } }
    };
}
