"""Which of the suite's promises are tried on engines and for users beside the first: what those could break."""

from __future__ import annotations

import os
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
    *CORE,
    "test_two_launches_at_once_start_one_learner",
    "test_a_learner_over_its_memory_limit_ends_with_a_reason",
    "test_a_stop_ends_what_has_forked_twice_and_ignores_it",
    "test_usage_is_sampled",
)
EVERYTHING: Final = "FABRIC_TEST_EVERYTHING"
"""Set, it has the whole suite run there, too."""


def is_left_out(suite: str, test: str) -> bool:
    """Say whether a test of a suite is not run unless everything is."""
    return suite == "TestOnPodman" and test not in ON_PODMAN and not os.environ.get(EVERYTHING)
