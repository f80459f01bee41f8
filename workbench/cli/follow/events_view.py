"""Shows a job that is followed to a program: one JSON line an event on stdout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.formats import iso
from workbench.services.follow.events import JobView
from workbench.services.inspect.job_document import job_document
from workbench.terminal.json_output import print_event

if TYPE_CHECKING:
    from workbench.store.db.rows import JobRow, SeriesRow, TransitionRow


class EventView(JobView):
    """One JSON line an event on stdout."""

    def __init__(self) -> None:
        self._rest: dict[tuple[int, int], bytes] = {}
        self._values: dict[tuple[int, str], int] = {}
        self._last: dict[str, Any] = {}
        self._progress = ""

    def state(self, row: JobRow, history: Sequence[TransitionRow]) -> None:
        """Print each thing that happened, and the job where it changed."""
        for event in history:
            if event.kind != "state":
                fields = {"text": event.text, "code": event.code, "who": event.who, "origin": event.origin}
                print_event(event.kind, {"id": row.id, "time": iso(event.time_us), **fields})
        document = job_document(row)
        known = {key: document[key] for key in ("state", "reason", "attempt", "exit_code", "intent")}
        if known != self._last:
            self._last = known
            print_event("state", {**document, "schema": "fabric.event/1"})

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
                series_fields = {
                    "learner": row.learner,
                    "name": row.name,
                    "kind": row.kind,
                    "points": row.points,
                }
                last = {"step": row.last_step, "value": row.last, "time": iso(row.last_time_us)}
                print_event("metric", {**series_fields, **last})

    def progress(self, text: str) -> None:
        """Print how far data or results are on their way."""
        if text and text != self._progress:
            print_event("progress", {"text": text})
        self._progress = text

    def notice(self, text: str) -> None:
        """Print it as an event."""
        print_event("trouble", {"text": text})

    def ended(self, row: JobRow, results: str) -> None:
        """Print the job once more, with the folder of its results."""
        print_event("end", {**job_document(row), "schema": "fabric.event/1", "results": results})

    def _print_line(self, attempt: int, learner: int, line: bytes) -> None:

        fields = {"attempt": attempt, "learner": learner, "text": line.decode(errors="replace")}
        print_event("output", fields, flush=False)
