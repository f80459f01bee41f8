"""Shows a job that is followed to a program: one JSON line an event on stdout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from workbench.formats import iso
from workbench.services.follow.events import JobView
from workbench.services.inspect.job_document import job_event
from workbench.terminal.json_output import print_event

if TYPE_CHECKING:
    from workbench.documents.events import EndEvent, HistoryEvent, OutputEvent, SeriesEvent
    from workbench.store.db.rows import JobRow, SeriesRow, TransitionRow

_SHOWN: Final[tuple[Literal["state", "reason", "attempt", "exit_code", "intent"], ...]] = (
    "state",
    "reason",
    "attempt",
    "exit_code",
    "intent",
)
"""The keys of a job whose change is an event."""


class EventView(JobView):
    """One JSON line an event on stdout."""

    def __init__(self) -> None:
        self._rest: dict[tuple[int, int], bytes] = {}
        self._values: dict[tuple[int, str], int] = {}
        self._last: list[str | int | None] = []
        self._progress = ""

    def state(self, row: JobRow, history: Sequence[TransitionRow]) -> None:
        """Print each thing that happened, and the job where it changed."""
        for event in history:
            if event.kind != "state":
                print_event(_history_event(row, event))
        document = job_event(row, "state")
        known = [document[key] for key in _SHOWN]
        if known != self._last:
            self._last = known
            print_event(document)

    def output(self, attempt: int, learner: int, data: bytes) -> None:
        """Print each whole line."""
        lines = (self._rest.pop((attempt, learner), b"") + data).split(b"\n")
        self._rest[attempt, learner] = lines.pop()
        for line in lines:
            self._print_line(attempt, learner, line)
        sys.stdout.flush()

    def finish_output(self) -> None:
        """Print what was left without an end of line."""
        for (attempt, learner), line in self._rest.items():
            if line:
                self._print_line(attempt, learner, line)
        self._rest.clear()

    def metrics(self, series: Sequence[SeriesRow]) -> None:
        """Print the latest value of each series that moved."""
        for row in series:
            if self._values.get((row.learner, row.name)) != row.points:
                self._values[row.learner, row.name] = row.points
                event: SeriesEvent = {
                    "schema": "fabric.event/1",
                    "event": "metric",
                    "learner": row.learner,
                    "name": row.name,
                    "kind": row.kind,
                    "points": row.points,
                    "step": row.last_step,
                    "value": row.last,
                    "time": iso(row.last_time_us),
                }
                print_event(event)

    def progress(self, text: str) -> None:
        """Print how far data or results are on their way."""
        if text and text != self._progress:
            print_event({"schema": "fabric.event/1", "event": "progress", "text": text})
        self._progress = text

    def notice(self, text: str) -> None:
        """Print it as an event."""
        print_event({"schema": "fabric.event/1", "event": "trouble", "text": text})

    def ended(self, row: JobRow, results: str) -> None:
        """Print the job once more, with the folder of its results."""
        event: EndEvent = {**job_event(row, "end"), "results": results}
        print_event(event)

    def _print_line(self, attempt: int, learner: int, line: bytes) -> None:
        event: OutputEvent = {
            "schema": "fabric.event/1",
            "event": "output",
            "attempt": attempt,
            "learner": learner,
            "text": line.decode(errors="replace"),
        }
        print_event(event, flush=False)


def _history_event(row: JobRow, event: TransitionRow) -> HistoryEvent:
    return {
        "schema": "fabric.event/1",
        "event": event.kind,
        "id": row.id,
        "time": iso(event.time_us),
        "text": event.text,
        "code": event.code,
        "who": event.who,
        "origin": event.origin,
    }
