"""Shows a job that is followed: to a person at a terminal, in plain lines, in a CI system's log, or as JSON."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from workbench.clock import elapsed_seconds, now_us
from workbench.formats import MICROSECONDS, duration, printable
from workbench.job import TERMINAL, State, short_id
from workbench.services.follow.events import JobView
from workbench.services.follow.job_text import (
    COMMAND_FAILED,
    VERBS,
    ended_lines,
    metrics_line,
    quiet_lines,
    state_line,
)
from workbench.terminal.console import is_terminal, narrate, state_style
from workbench.terminal.status_line import StatusLine
from workbench.terminal.stdout import STDOUT, Prefixed, write_all
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.logs.sanitise import Sanitiser
    from workbench.store.db.rows import JobRow, SeriesRow, TransitionRow


class PlainView(JobView):
    """Output to stdout, narration in plain lines to stderr."""

    SETTLE_SECONDS = 0.4
    """A state that lasts less is not worth a line."""
    METRICS_SECONDS = 5.0
    PROGRESS_SECONDS = 10.0

    def __init__(self, learners: int, *, prefix: bool = True, quiet: bool = False) -> None:
        self._prefixed = _prefixes(learners) if learners > 1 and prefix else {}
        self._quiet = quiet
        self._row: JobRow | None = None
        self._due: tuple[float, str] | None = None
        self._due_is_trouble = False
        self._state_line = ""
        self._metrics = ""
        self._metrics_shown = ""
        self._metrics_due = 0.0
        self._progress = ""
        self._progress_shown = ""
        self._progress_due = 0.0
        self._sanitiser: Sanitiser | None = None
        if is_terminal(sys.stdout):
            from workbench.logs.sanitise import Sanitiser

            self._sanitiser = Sanitiser()

    def state(self, row: JobRow, history: Sequence[TransitionRow]) -> None:
        """Say a state once it has lasted a moment, everything else that people should know at once."""
        for event in history:
            if event.kind == "note" or (event.kind == "request" and event.text not in ("", "submit")):
                self._say(f"{short_id(row.id)} {_event_text(event)}")
        line = state_line(row)
        if self._row is None or line != state_line(self._row):
            self._due = None if row.state in TERMINAL else (elapsed_seconds() + self.SETTLE_SECONDS, line)
            # The end of the command may be known a while before the job's: its output has explained it.
            self._due_is_trouble = row.reason.fault is not None and row.reason.code != COMMAND_FAILED
        self._row = row

    def output(self, attempt: int, learner: int, data: bytes) -> None:
        """Print bytes as they are; those of several learners by whole lines, each with its prefix."""
        prefixed = self._prefixed.get(learner)
        self._print(prefixed.take(data) if prefixed else data)

    def descriptor(self) -> int | None:
        """Return stdout, where nothing has to be done to the bytes."""
        return None if self._sanitiser or self._prefixed else STDOUT

    def finish_output(self) -> None:
        """Print what the learners left without an end of line."""
        for prefixed in self._prefixed.values():
            self._print(prefixed.finish())
        if self._sanitiser:
            write_all(self._sanitiser.finish())

    def recognised(self, text: str) -> None:
        """Say which metrics are recognised."""
        self._say(text)

    def metrics(self, series: Sequence[SeriesRow]) -> None:
        """Say the latest values now and then."""
        self._metrics = metrics_line(series)

    def progress(self, text: str) -> None:
        """Say now and then how far data or results are on their way."""
        if text and not self._progress:
            self._progress_due = elapsed_seconds() + self.PROGRESS_SECONDS
        self._progress = text

    def notice(self, text: str) -> None:
        """Say it in a line, even where only the job's output is wanted: it says why there is none."""
        self._say(text, is_trouble=True)

    def tick(self) -> None:
        """Say what is due."""
        now = elapsed_seconds()
        if self._due and now >= self._due[0]:
            line, self._due = self._due[1], None
            # A backend that is tried again and again leaves the same state for moments.
            if line != self._state_line:
                self._state_line = line
                self._say(line, is_trouble=self._due_is_trouble)
        if self._metrics != self._metrics_shown and now >= self._metrics_due:
            self._say_metrics()
            self._metrics_due = now + self.METRICS_SECONDS
        if self._progress != self._progress_shown and now >= self._progress_due:
            self._progress_shown, self._progress_due = self._progress, now + self.PROGRESS_SECONDS
            if self._progress:
                self._say(self._progress)

    def ended(self, row: JobRow, results: str) -> None:
        """Say the last values, how it ended, where its results are, and what goes on from there."""
        if self._quiet:
            for line in quiet_lines(row):
                narrate(line)
            return
        if self._metrics != self._metrics_shown:
            self._say_metrics()
        first, *rest = ended_lines(row, results)
        verb = VERBS[row.state]
        self._say(first.replace(verb, state_style(row.state, verb), 1))
        for line in rest:
            self._say(line)

    def _say_metrics(self) -> None:
        self._say(f"metrics: {self._metrics}")
        self._metrics_shown = self._metrics

    def _say(self, text: str, *, is_trouble: bool = False) -> None:
        if is_trouble or not self._quiet:
            narrate(text)

    def _print(self, data: bytes) -> None:
        if data:
            write_all(self._sanitiser.feed(data) if self._sanitiser else data)


class TerminalView(PlainView):
    """The same on a terminal, with state, time and latest values in a status line."""

    DRAW_SECONDS = 0.1

    def __init__(self, learners: int, *, prefix: bool = True) -> None:
        super().__init__(learners, prefix=prefix)
        self._line = StatusLine()
        self._draw_due = 0.0

    def tick(self) -> None:
        """Draw the line again, at most ten times a second."""
        now = elapsed_seconds()
        if self._row is None or now < self._draw_due:
            return
        self._draw_due = now + self.DRAW_SECONDS
        self._line.draw(self._status(self._row))

    def ended(self, row: JobRow, results: str) -> None:
        """Take the line away and say the end."""
        self._line.clear()
        super().ended(row, results)

    def close(self) -> None:
        """Take the line away."""
        self._line.clear()

    def _status(self, row: JobRow) -> str:
        since = row.started_us if row.started_us and row.state.value == "PROCESSING" else row.changed_us
        parts = [f"[{row.state.lower()} {duration((now_us() - since) / MICROSECONDS)}]"]
        if self._progress:
            parts.append(self._progress)
        elif self._metrics:
            parts.append(self._metrics)
        elif row.reason.text:
            parts.append(row.reason.text)
        parts.append(f"{short_id(row.id)} {row.name}")
        return "  ".join(parts)

    def _say(self, text: str, *, is_trouble: bool = False) -> None:
        self._line.say(text)

    def _print(self, data: bytes) -> None:
        if data:
            self._line.before_output(data)
            super()._print(data)


def view_for(learners: int, *, json: bool, prefix: bool, quiet: bool) -> JobView:
    """Choose by what is asked for and what stderr is."""
    if json:
        from workbench.cli.follow.events_view import EventView

        return EventView()
    # A CI system may give a terminal, but its log is no screen.
    drawn = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")
    if drawn and not quiet:
        return TerminalView(learners, prefix=prefix)
    if not quiet and (system := this_system()) is not None:
        return CiView(system, learners, prefix=prefix)
    return PlainView(learners, prefix=prefix, quiet=quiet)


def _prefixes(learners: int) -> dict[int, Prefixed]:
    from workbench.logs.follow import labels

    numbers = range(1, learners + 1)
    return {number: Prefixed(label) for number, label in zip(numbers, labels(numbers), strict=True)}


def _event_text(event: TransitionRow) -> str:
    who = f" by {event.who}" if event.kind == "request" and event.who else ""
    return f"{event.text}{who}"


STARTED: Final = (State.PROCESSING, State.STORING)


@dataclass(frozen=True, slots=True)
class CiSystem:
    """How one CI system marks groups and failures; each method returns the text of a line, or an empty one."""

    begin: Callable[[str, str], str]
    """Gets a key and a title."""
    end: Callable[[str], str]
    failed: Callable[[str], str]


def _github(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _teamcity(text: str) -> str:
    return re.sub(r"(['|\[\]])", r"|\1", text).replace("\n", "|n")


SYSTEMS: Final[Mapping[str, CiSystem]] = {
    "GITHUB_ACTIONS": CiSystem(
        lambda key, title: f"::group::{_github(title)}",
        lambda key: "::endgroup::",
        lambda text: f"::error title=fabric::{_github(text)}",
    ),
    "GITLAB_CI": CiSystem(
        lambda key, title: f"\x1b[0Ksection_start:{int(time.time())}:{key}\r\x1b[0K{title}",
        lambda key: f"\x1b[0Ksection_end:{int(time.time())}:{key}\r\x1b[0K",
        lambda text: "",
    ),
    "TF_BUILD": CiSystem(
        lambda key, title: f"##[group]{title}",
        lambda key: "##[endgroup]",
        lambda text: f"##vso[task.logissue type=error]{text}",
    ),
    "BUILDKITE": CiSystem(lambda key, title: f"--- {title}", lambda key: "", lambda text: "^^^ +++"),
    "TEAMCITY_VERSION": CiSystem(
        lambda key, title: f"##teamcity[blockOpened name='{_teamcity(title)}']",
        lambda key: "",
        lambda text: f"##teamcity[message text='{_teamcity(text)}' status='ERROR']",
    ),
}
"""By the variable that says that this system runs the command."""


def this_system() -> CiSystem | None:
    """Return the CI system that runs this command, if it is one that folds."""
    return next((system for name, system in SYSTEMS.items() if os.environ.get(name)), None)


class CiView(PlainView):
    """Plain lines, with a group for the start, one for the output, and the end outside of any."""

    def __init__(self, system: CiSystem, learners: int, *, prefix: bool = True) -> None:
        super().__init__(learners, prefix=prefix)
        self._system = system
        self._open = ""
        self._began = 0
        """The attempt that was current at the first event."""

    def state(self, row: JobRow, history: Sequence[TransitionRow]) -> None:
        """Open the group of the start, then that of the output, even where both are over at the first event."""
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

    def descriptor(self) -> int | None:
        """Have all bytes given to ``output``: which attempt they are of decides on their group."""
        return None

    def ended(self, row: JobRow, results: str) -> None:
        """Close the group, so that the end is visible at once."""
        self._group("", "")
        super().ended(row, results)
        if row.state is not State.COMPLETED:
            text = f"{row.name}: {row.reason.text or row.state.lower()}"
            self._write(self._system.failed(printable(text)))

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
            self._write(self._system.begin(key, printable(title)))

    def _write(self, line: str) -> None:
        if line:
            narrate(line, has_controls=True)


def _has_started(row: JobRow) -> bool:
    return row.state in STARTED or (row.state in TERMINAL and row.started_us is not None)
