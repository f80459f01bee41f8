"""Which of the suite's promises the gate tries on engines, ways and users beside the first: what those could break."""

from __future__ import annotations

from typing import Final

CORE: Final = (
    "test_output_is_exactly_what_was_printed",
    "test_an_exit_code_is_seen",
    "test_files_come_out_of_a_learner_and_go_into_it",
    "test_secrets_reach_the_command_and_are_struck_out_of_its_output",
    "test_learners_know_who_they_are_and_share_a_folder",
    "test_a_learner_whose_agent_was_killed_ends_with_a_reason",
    "test_a_halt_lets_the_command_end_by_itself",
)
ON_PODMAN: Final = (
    *(
        name
        for name in CORE
        # A stop of what forks and ignores it is below.
        if name not in ("test_an_exit_code_is_seen", "test_a_halt_lets_the_command_end_by_itself")
    ),
    "test_an_exit_code_is_seen[3]",
    "test_two_launches_at_once_start_one_learner",
    "test_a_learner_over_its_memory_limit_ends_with_a_reason",
    "test_a_stop_ends_what_has_forked_twice_and_ignores_it",
    "test_usage_is_sampled",
)
OVER_A_LINK: Final = (
    *(name for name in CORE if name != "test_an_exit_code_is_seen"),
    "test_an_exit_code_is_seen[3]",
    "test_output_is_read_from_any_offset_as_often_as_asked",
    "test_output_is_there_while_the_command_runs",
    "test_observe_waits_and_wakes_when_something_changes",
    "test_observe_can_be_interrupted",
    "test_a_launch_that_is_cut_off_is_made_good_by_the_next",
    "test_a_learner_goes_on_without_its_runner_and_the_next_one_adopts_it",
)
"""The core, and what copies, streams or is cut off: that a link carries."""
CONTAINERS_OVER_A_LINK: Final = (
    "test_output_is_exactly_what_was_printed",
    "test_files_come_out_of_a_learner_and_go_into_it",
    "test_secrets_reach_the_command_and_are_struck_out_of_its_output",
    "test_learners_know_who_they_are_and_share_a_folder",
    "test_a_launch_that_is_cut_off_is_made_good_by_the_next[starting]",
    "test_a_learner_goes_on_without_its_runner_and_the_next_one_adopts_it",
)
"""What a link carries of containers alone; the rest of it is the same for processes."""
