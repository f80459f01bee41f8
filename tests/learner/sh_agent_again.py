"""Which tests of the Python agent are run again for the ``sh`` agent, where, and which are not, and why."""

from __future__ import annotations

from types import ModuleType

from tests.learner import (
    test_deciding,
    test_disk_full,
    test_guard,
    test_orphan,
    test_output,
    test_scribe,
    test_stopping,
)
from tests.learner.sh_agent import SHELLS

AGAIN: dict[ModuleType, tuple[str, ...]] = {
    test_disk_full: (),
    test_deciding: (
        "test_the_first_to_end_decides_and_the_others_are_stopped_without_blame",
        "test_others_may_end_by_themselves_while_they_settle",
        "test_the_first_failure_stops_the_others_at_once",
        "test_so_many_have_to_end_as_the_job_says",
        "test_a_learner_that_is_halted_decides_nothing",
        "test_a_learner_over_its_limit_decides_as_a_failure",
        "test_a_learner_that_starts_after_a_failure_starts_nothing",
    ),
    test_guard: (
        "test_affinity_is_the_commands",
        "test_a_command_that_a_signal_ended_is_recorded_with_it",
        "test_a_command_that_fails_says_why",
        "test_a_command_that_reads_its_input_finds_none",
        "test_a_command_without_output_leaves_an_empty_journal",
        "test_a_guard_waits_for_somebody_who_looks_whether_the_lock_is_held",
        "test_a_script_that_is_too_long_for_an_argument_runs",
        "test_a_second_agent_for_a_living_learner_starts_nothing",
        "test_a_working_folder_that_is_not_there_is_the_platforms_fault",
        "test_an_agent_for_a_learner_that_has_ended_starts_nothing",
        "test_many_agents_at_once_start_a_command_once",
        "test_the_lock_is_held_until_the_end_and_not_by_the_command",
    ),
    test_orphan: (
        "test_a_state_that_cannot_be_read_is_taken_for_a_start",
        "test_a_guard_killed_before_the_start_may_be_started_again",
        "test_a_learner_whose_machine_was_restarted_is_recorded_so",
        "test_a_start_that_was_announced_is_never_repeated",
    ),
    test_output: (
        "test_a_child_that_keeps_the_pipe_open_does_not_keep_the_learner",
        "test_a_child_without_our_marker_is_ended_too",
        "test_a_command_may_close_its_output_and_go_on",
        "test_a_line_is_published_while_the_command_runs",
        "test_a_line_of_50_mb_is_kept",
        "test_children_that_fork_twice_and_ignore_sigterm_are_ended_and_heard",
        "test_much_output_is_kept_byte_for_byte",
        "test_progress_bars_nul_bytes_and_escapes_are_kept_as_they_are",
        "test_stderr_opened_by_name_truncates_nothing",
        "test_what_is_printed_as_it_is_ended_is_kept",
    ),
    test_scribe: ("test_signals_that_ask_do_not_end_a_scribe",),
    test_stopping: (
        "test_a_stop_of_the_kind_finish_is_seen_and_ends_nothing",
        "test_training_code_that_looks_sees_that_its_machine_ends_it",
        "test_who_kills_a_learner_that_its_machine_ends_is_obeyed",
        "test_a_learner_whose_folder_is_removed_ends_with_its_agents",
        "test_a_command_is_stopped_when_its_time_is_over",
        "test_a_guard_that_gets_sigterm_ends_its_learner_and_says_so",
        "test_a_halt_asks_and_says_who",
        "test_a_halt_is_seen_while_the_command_saves",
        "test_a_halt_kills_when_the_grace_period_is_over",
        "test_a_kill_does_not_wait_and_hastens_a_halt",
        "test_a_request_that_came_before_the_start_starts_nothing",
        "test_a_request_that_is_not_what_it_should_be_halts",
        "test_a_setup_can_be_halted",
        "test_a_setup_that_fails_is_the_reason_with_its_last_line",
        "test_a_stopped_process_can_be_halted",
        "test_children_that_save_have_the_whole_grace_period",
        "test_processes_of_a_learner_are_known_by_pid_and_start",
        "test_setup_runs_before_the_command_with_a_log_of_its_own",
        "test_the_command_can_see_that_it_is_to_stop_and_where_to_report",
        "test_what_setup_leaves_running_lives_as_long_as_the_command",
    ),
}
"""Tests of the Python agent that are run again, by their module."""

_USAGE = "the sh agent has no usage samples and no memory watch"
_HAND = "what a killed reader had in hand may be lost"
_LOST = "a killed guard leaves nobody who records the end: the controller sees it, or the next guard"
_READER = "records, the index and its times are the reader's"
_INSIDE = "about the inside of the Python agent"

NOT_PROMISED: dict[str, str] = {
    "test_a_command_runs_and_its_end_is_recorded": "again below, for clocks that know seconds only",
    "test_a_command_sees_its_environment_and_marker_and_nothing_else": "again below",
    "test_a_command_ignores_no_signal_whatever_started_its_agent": "again below: what a shell can help",
    "test_a_command_runs_under_sh_where_bash_is_missing_and_a_note_says_so": _READER,
    "test_a_command_whose_secrets_are_missing_is_not_started": "again below: its secrets are shell text",
    "test_a_disk_that_is_full_from_the_start_starts_nothing_unrecorded": "again below, with what it needs of room",
    "test_a_driver_that_hangs_holds_no_output_up": _USAGE,
    "test_a_guard_killed_after_the_command_has_ended_loses_nothing_of_that": _LOST,
    "test_output_that_went_with_both_agents_is_admitted_and_changes_no_end": "again below",
    "test_nothing_is_said_to_be_missing_once_the_output_was_saved": "it stores no results",
    "test_a_folder_that_changes_as_an_agent_ends_does_not_fail_it": _INSIDE,
    "test_a_halt_keeps_what_was_printed_until_there_is_room": _HAND,
    "test_a_halt_that_the_guard_did_not_live_to_finish_stays_a_halt": _LOST,
    "test_a_guard_that_its_machine_ended_and_then_killed_halted_nobody": _LOST,
    "test_a_halt_is_seen_where_nothing_tells_of_changes": _INSIDE,
    "test_a_kill_does_not_wait_for_room_and_says_what_was_lost": _HAND,
    "test_a_killed_scribe_is_replaced_and_output_is_complete": _HAND,
    "test_a_halt_without_inodes_can_become_a_kill": "again below, one stop",
    "test_a_launch_document_that_cannot_be_read_starts_nothing": _INSIDE,
    "test_a_learner_is_stopped_without_inodes": "again below",
    "test_a_learner_over_its_memory_limit_is_ended_with_a_reason": _USAGE,
    "test_a_learner_whose_folder_is_removed_before_its_journal_was_opened_leaves_no_process": _INSIDE,
    "test_a_learner_whose_guard_is_killed_is_ended_and_lost_to_the_platform": _LOST,
    "test_a_learner_whose_guard_is_killed_stops_the_others": _LOST,
    "test_a_learner_whose_folder_is_removed_ends_without_its_guard_too": _LOST,
    "test_a_learner_without_others_decides_though_its_decision_was_lost_with_the_power": _INSIDE,
    "test_a_lines_time_is_when_it_was_printed": _READER,
    "test_a_request_that_nothing_can_take_names_its_file": _INSIDE,
    "test_a_script_that_needs_a_file_waits_for_room": _HAND,
    "test_a_script_that_waits_for_room_can_be_halted": _HAND,
    "test_a_scribe_killed_after_the_command_has_ended_loses_nothing": _HAND,
    "test_a_scribe_that_dies_by_its_own_fault_is_replaced_too": _HAND,
    "test_a_scribe_that_is_killed_while_the_home_is_moved_loses_no_line": _INSIDE,
    "test_no_output_is_reported_missing_once_it_was_saved": _INSIDE,
    "test_a_scribe_without_a_guard_keeps_the_lock_until_it_has_recorded_the_end": _LOST,
    "test_a_short_learner_is_quick": _INSIDE,
    "test_a_stores_credential_is_masked_and_no_variable_of_the_command": "again below: left out of its secrets",
    "test_agents_that_are_killed_on_a_full_disk_lose_nothing": _HAND,
    "test_an_agent_for_a_learner_that_has_ended_needs_no_secrets": "again below: its secrets are shell text",
    "test_an_agent_without_what_only_linux_has_keeps_a_learner": _INSIDE,
    "test_an_end_that_a_full_disk_does_not_take_is_tried_now_and_then": _INSIDE,
    "test_deciding_twice_gives_the_same_answer": _INSIDE,
    "test_each_line_is_published_though_nothing_follows_it": _READER,
    "test_learners_end_by_themselves_and_decide_without_inodes": "again below, one learner",
    "test_memory_that_processes_share_counts_once": _USAGE,
    "test_nothing_is_started_again_after_the_scribe_has_recorded_the_end": _LOST,
    "test_of_many_at_once_exactly_one_decides": _INSIDE,
    "test_other_words_are_a_usage_error": _INSIDE,
    "test_output_is_the_same_without_splice": _INSIDE,
    "test_output_waits_for_room_and_is_complete": _HAND,
    "test_a_request_to_a_learner_that_has_just_ended_leaves_no_spare_file": "of who asks, not of an agent",
    "test_requests_to_stop_are_written_without_inodes": "in tests/backends/test_shell_host.py",
    "test_secrets_reach_the_command_and_not_its_output": "again below: no last line in a reason with secrets about",
    "test_secrets_stay_masked_when_the_scribe_is_killed": _HAND,
    "test_signals_are_as_a_shell_would_have_them": "again below: not every shell can give SIGINT back",
    "test_state_is_written_on_a_full_disk_though_others_take_every_block_that_is_freed": _INSIDE,
    "test_a_state_is_written_though_others_take_each_inode_that_becomes_free": _INSIDE,
    "test_the_version_is_the_distributions": _INSIDE,
    "test_time_limits_do_not_depend_on_the_wall_clock": _INSIDE,
    "test_what_a_command_says_as_it_is_ended_is_kept": _LOST,
    "test_what_the_guard_was_handed_ends_with_it_and_is_not_the_commands": "POSIX sh closes nothing above 9",
    "test_what_waits_in_the_pipe_is_kept_by_the_next_guard": _HAND,
    "test_whoever_observes_hears_why_a_learner_has_no_state_and_when_it_has_one": _INSIDE,
    "test_what_the_whole_tree_uses_is_recorded": _USAGE,
    "test_when_both_are_killed_the_next_guard_ends_what_is_left": "again below",
    "test_code_that_looks_ends_by_itself_with_all_that_it_needs": "where no Python is, none calls should_stop()",
    "test_what_follows_code_that_has_looked_is_ended": "where no Python is, none calls should_stop()",
    "test_code_that_looks_no_more_gets_its_signal_in_the_end": "where no Python is, none calls should_stop()",
    "test_code_that_looks_sees_that_its_time_is_over": "where no Python is, none calls should_stop()",
    "test_code_that_looks_and_has_a_handler_gets_its_signal_at_once": "where no Python is, none calls should_stop()",
    "test_a_kill_waits_for_no_code_that_looks": "where no Python is, none calls should_stop()",
    "test_training_that_handles_its_signal_keeps_the_workers_that_load_its_data": "it tells no process by its name",
    "test_workers_whose_training_is_over_are_ended": "it tells no process by its name",
    "test_who_obeys_a_halt_before_the_guard_has_read_it_is_halted": "where no Python is, none calls should_stop()",
    "test_what_is_recorded_at_the_end_is_there_before_the_exit": _INSIDE,
}
"""Tests of the Python agent that are not run again, and why."""

MACHINES = {
    **{shell: (shell, ()) for shell in SHELLS},
    "busybox alone": ("busybox", ("flock", "setsid", "taskset")),
    "dash alone": ("dash", ("flock", "setsid", "taskset")),
}
"""Name -> shell, and what is not there."""

EVERYWHERE = {
    "test_a_command_that_a_signal_ended_is_recorded_with_it",
    "test_a_halt_asks_and_says_who",
    "test_a_halt_kills_when_the_grace_period_is_over",
    "test_a_command_is_stopped_when_its_time_is_over",
    "test_children_that_fork_twice_and_ignore_sigterm_are_ended_and_heard",
    "test_a_second_agent_for_a_living_learner_starts_nothing",
    "test_many_agents_at_once_start_a_command_once",
    "test_setup_runs_before_the_command_with_a_log_of_its_own",
}
"""What runs under every shell; the rest runs with one of the machines, by turns."""


WITH_LOCKS = {
    "test_the_lock_is_held_until_the_end_and_not_by_the_command",
    "test_a_guard_waits_for_somebody_who_looks_whether_the_lock_is_held",
}
"""What there must be a ``flock`` for, which not every busybox has."""
