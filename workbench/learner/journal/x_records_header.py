"""The first line of a learner's records: whose they are, and by which clock."""

from __future__ import annotations

from workbench.learner.journal import output
from workbench.learner.platform import system
from workbench.learner.platform.version import VERSION

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any

    from workbench.learner.journal.launch_document import Launch


def records_header(launch: Launch) -> dict[str, Any]:
    """Return it, as of now."""
    return {
        "format": output.FORMAT,
        "agent": VERSION,
        "home": launch.home,
        "job": launch.job,
        "attempt": launch.attempt,
        "learner": launch.learner,
        "time_us": system.now_us(),
        "boottime_us": int(system.elapsed_seconds() * 1e6),
    }
