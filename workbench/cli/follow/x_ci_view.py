"""The view of a CI system that folds its log: phases in groups, failures as annotations, all on stderr.

Output stays on stdout byte for byte; groups are drawn around it where the system shows both streams in one log.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workbench.cli.follow.views import PlainView
from workbench.job import TERMINAL, State
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.store.db.rows import JobRow, TransitionRow

STARTED: Final = (State.PROCESSING, State.STORING)


@dataclass(frozen=True, slots=True)
class System:
    """How one CI system is told of groups and failures; each returns the text of a line, or an empty one."""

    begin: Callable[[str, str], str]
    """Gets a key and a title."""
    end: Callable[[str], str]
    failed: Callable[[str], str]


def _github(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _teamcity(text: str) -> str:
    return re.sub(r"(['|\[\]])", r"|\1", text).replace("\n", "|n")


SYSTEMS: Final[Mapping[str, System]] = {
    "GITHUB_ACTIONS": System(
        lambda key, title: f"::group::{_github(title)}",
        lambda key: "::endgroup::",
        lambda text: f"::error title=fabric::{_github(text)}",
    ),
    "GITLAB_CI": System(
        lambda key, title: f"\x1b[0Ksection_start:{int(time.time())}:{key}\r\x1b[0K{title}",
        lambda key: f"\x1b[0Ksection_end:{int(time.time())}:{key}\r\x1b[0K",
        lambda text: "",
    ),
    "TF_BUILD": System(
        lambda key, title: f"##[group]{title}",
        lambda key: "##[endgroup]",
        lambda text: f"##vso[task.logissue type=error]{text}",
    ),
    "BUILDKITE": System(lambda key, title: f"--- {title}", lambda key: "", lambda text: "^^^ +++"),
    "TEAMCITY_VERSION": System(
        lambda key, title: f"##teamcity[blockOpened name='{_teamcity(title)}']",
        lambda key: "",
        lambda text: f"##teamcity[message text='{_teamcity(text)}' status='ERROR']",
    ),
}
"""By the variable that says that this system runs the command."""


def this_system() -> System | None:
    """Return the CI system that runs this command, if it is one that folds."""
    return next((system for name, system in SYSTEMS.items() if os.environ.get(name)), None)


class CiView(PlainView):
    """Plain lines, with a group for the start, one for the output, and the end outside of any."""

    def __init__(self, system: System, learners: int, *, prefix: bool = True) -> None:
        super().__init__(learners, prefix=prefix)
        self._system = system
        self._open = ""
        self._began = 0
        """The attempt that was current when the job was first seen."""

    def state(self, row: JobRow, history: Sequence[TransitionRow]) -> None:
        """Open the group of the start, then that of the output, even where both are over when the job is first seen."""
        if not self._began:
            self._began = row.attempt
            self._group("fabric_start", f"{row.name}: start")
        # Of a later attempt its first bytes open the group: those of the one before may still come.
        if row.attempt == self._began and _has_started(row):
            self._output_group(row.name, row.attempt)
        super().state(row, history)

    def output(self, attempt: int, learner: int, data: bytes) -> None:
        """Print it in its attempt's group; a short job's first bytes may come before its state."""
        if self._row is not None:
            self._output_group(self._row.name, attempt)
        super().output(attempt, learner, data)

    def descriptor(self, learner: int) -> int | None:
        """Have all bytes given to ``output``: which attempt they are of decides on their group."""
        return None

    def ended(self, row: JobRow, results: str) -> None:
        """Close the group, so that the end is seen at once."""
        self._group("", "")
        super().ended(row, results)
        if row.state is not State.COMPLETED:
            self._write(self._system.failed(f"{row.name}: {row.reason.text or row.state.lower()}"))

    def _output_group(self, name: str, attempt: int) -> None:
        key = "fabric_output" if attempt == 1 else f"fabric_output_{attempt}"
        self._group(key, f"{name}: output of attempt {attempt}")

    def _group(self, key: str, title: str) -> None:
        if key == self._open:
            return
        if self._open:
            self._write(self._system.end(self._open))
        self._open = key
        if key:
            self._write(self._system.begin(key, title))

    def _write(self, line: str) -> None:
        if line:
            narrate(line)


def _has_started(row: JobRow) -> bool:
    return row.state in STARTED or (row.state in TERMINAL and row.started_us is not None)
