"""The controller of a home as a person sees it: whether it runs and answers, its start, restart and end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.paths import Home


@dataclass(frozen=True, slots=True)
class ControllerReport:
    """What is known of a home's controller."""

    pid: int | None
    """None where none runs."""
    version: str
    """Empty where none runs."""
    answers: bool
    trouble: str
    """What keeps it from its work: it hangs, or cannot write; empty where nothing does."""
    hint: str = ""
    """The command that helps where it hangs."""


def inspect_controller(home: Home) -> ControllerReport:
    """Ask the controller how it is, which may take some seconds where it hangs; the store is not needed for that."""
    from workbench.controller.client.connect import status
    from workbench.controller.client.hang import RESTART, unanswering

    if found := status(home):
        return ControllerReport(found.pid, found.version, True, found.trouble or found.untidy)
    if silent := unanswering(home, after=0.0):
        return ControllerReport(silent.pid, silent.version, False, silent.text, RESTART)
    return ControllerReport(None, "", False, "")


def count_open_jobs(home: Home) -> int:
    """Return how many jobs of a home have not ended.

    Raises:
        FabricError: the store cannot be read.
    """
    from workbench.store.db.database import Store
    from workbench.store.queries.jobs import open_jobs

    if not home.database.exists():
        return 0
    with Store.open(home) as store:
        return len(open_jobs(store))


def start_early(home: Home) -> None:
    """Wake the controller or start one before a command's own work, which takes as long.

    What needs the controller later reports a failure. A home that does not exist yet is not made here.
    """
    from workbench.controller.client.connect import ensure_controller
    from workbench.errors import FabricError

    if home.database.exists():
        try:
            ensure_controller(home)
        except (FabricError, OSError):
            return


def end_controller(home: Home, say: Callable[[str], None]) -> bool:
    """End the controller, whether it answers or not; return whether there was one. Jobs go on.

    ``say`` gets what is done about one that does not answer.

    Raises:
        TryAgain: it does not answer, and cannot be ended.
    """
    from workbench.controller.client import connect

    return connect.end_controller(home, say)


def restart_controller(home: Home, say: Callable[[str], None]) -> ControllerReport:
    """End the controller, also one that does not answer, and start another; jobs go on.

    Raises:
        InputMissing: the home has no jobs, and no controller.
        TryAgain: the one that is there cannot be ended.
        HomeNotBound: the home is a copy.
    """
    from workbench.controller.client import connect
    from workbench.errors import InputMissing

    if not home.database.exists():
        raise InputMissing(
            f"{home.path} has no jobs, and no controller", hint="`fabric run` starts the first job"
        )
    found = connect.restart_controller(home, say)
    return ControllerReport(found.pid, found.version, True, found.trouble or found.untidy)


def describe_hang(home: Home) -> str:
    """Say that a controller is there which does not answer, and what helps; empty where that is not so.

    It asks nothing: what counts is how long this process has waited for an answer so far.
    """
    from workbench.controller.client.hang import unanswering

    found = unanswering(home)
    return found.advice if found else ""
