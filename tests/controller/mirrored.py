"""All that an attempt left at a host, fetched at once: the controller does it in parts, between other things."""

from __future__ import annotations

from collections.abc import Callable

from runners.interface import AttemptRef, Runner
from workbench.controller.targets.mirror import Mirrors, bring_files, bring_some, learners_of
from workbench.paths import Home


def bring_all(
    mirrors: Mirrors, runner: Runner, attempt: AttemptRef, home: Home, alive: Callable[[], None]
) -> None:
    """Fetch all that an attempt left, which is over: its journals, then its files.

    Args:
        mirrors: where the journals go.
        runner: the target's.
        attempt: which.
        home: where the job is.
        alive: called while it makes progress.
    """
    with mirrors.claim(learners_of([attempt])):
        while bring_some(mirrors, runner, attempt, home):
            alive()
    bring_files(runner, attempt, home)
