"""Waits for a job in Python, and shows its progress: in a notebook in a box, else as lines on stderr."""

from __future__ import annotations

import html
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

from workbench.clock import elapsed_seconds, now_us
from workbench.formats import MICROSECONDS, duration
from workbench.services.follow.events import Idle, JobView
from workbench.services.follow.job_text import VERBS, ended_lines, metrics_line, state_line
from workbench.store.db.rows import is_over

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow, SeriesRow, TransitionRow

SHOWN_LINES: Final = 8
DRAW_SECONDS: Final = 0.25

COLOURS: Final = {"COMPLETED": "#2e7d32", "FAILED": "#c62828", "HALTED": "#8e24aa"}


def wait_for(store: Store, row: JobRow, *, timeout: float | None, show: bool) -> bool:
    """Follow a job to its end; return whether it ended in time. Interrupting it leaves the job running."""
    from workbench.services.follow.wait import wait_until

    if not show:
        _, in_time = wait_until(store, [row], lambda rows: is_over(rows[0]), timeout_seconds=timeout)
        return in_time
    from workbench.services.follow.follower import follow

    view = _view(row)
    deadline = None if timeout is None else elapsed_seconds() + timeout
    with closing(follow(store, row)) as events:
        for event in events:
            view.take(event)
            if isinstance(event, Idle) and deadline is not None and elapsed_seconds() >= deadline:
                return False
    return True


def _view(row: JobRow) -> JobView:
    if display := notebook_display():
        return NotebookView(display)
    return NarratedView()


def notebook_display() -> Callable[[str], None] | None:
    """Return what shows HTML in the notebook that runs this, replacing what it showed before; None outside of one."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import HTML, display  # type: ignore[import-not-found] # only there in a notebook

    handle = display(HTML(""), display_id=True)

    def draw(text: str) -> None:
        handle.update(HTML(text))

    return draw


class NarratedView(JobView):
    """Lines on stderr; what the job prints is left to :meth:`~workbench.api.jobs.Job.logs`."""

    def __init__(self) -> None:
        self._last = ""

    def state(self, row: JobRow, history: Sequence[TransitionRow]) -> None:
        """Say what is new."""
        line = state_line(row)
        if line != self._last and not is_over(row):
            self._say(line)

    def notice(self, text: str) -> None:
        """Say it."""
        self._say(text)

    def ended(self, row: JobRow, results: str) -> None:
        """Say the end."""
        self._say(ended_lines(row, results)[0])

    def _say(self, text: str) -> None:
        self._last = text
        print(text, file=sys.stderr)


class NotebookView(JobView):
    """A box that is redrawn: state, time, latest values, the last lines. ``draw`` takes its HTML."""

    def __init__(self, draw: Callable[[str], None]) -> None:
        self._draw = draw
        self._row: JobRow | None = None
        self._metrics = ""
        self._progress = ""
        self._notice = ""
        self._lines: deque[str] = deque(maxlen=SHOWN_LINES)
        self._rest = b""
        self._due = 0.0
        self._shown = ""

    def state(self, row: JobRow, history: Sequence[TransitionRow]) -> None:
        """Remember the job."""
        self._row = row

    def output(self, attempt: int, learner: int, data: bytes) -> None:
        """Keep the last lines."""
        from workbench.logs.display import last_state
        from workbench.logs.sanitise import plain

        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines[-SHOWN_LINES:]:
            self._lines.append(plain(last_state(line).decode(errors="replace")))

    def finish_output(self) -> None:
        """Take what has no end of line for a line."""
        if self._rest:
            self.output(0, 0, b"\n")

    def metrics(self, series: Sequence[SeriesRow]) -> None:
        """Remember the latest values."""
        self._metrics = metrics_line(series)

    def progress(self, text: str) -> None:
        """Show how far data or results are on their way."""
        self._progress = text

    def notice(self, text: str) -> None:
        """Show what hinders the following."""
        self._notice = text

    def tick(self) -> None:
        """Draw the box again, a few times a second, where it changed."""
        now = elapsed_seconds()
        if now >= self._due:
            self._due = now + DRAW_SECONDS
            self._update()

    def ended(self, row: JobRow, results: str) -> None:
        """Draw the end."""
        self._row = row
        self._update("\n".join(ended_lines(row, results)))

    def _update(self, end: str = "") -> None:
        text = self._html(end)
        if text != self._shown:
            self._shown = text
            self._draw(text)

    def _html(self, end: str) -> str:
        row = self._row
        if row is None:
            return ""
        colour = COLOURS.get(row.state, "#1565c0")
        since = row.started_us or row.submitted_us
        took = duration(((row.ended_us or now_us()) - since) / MICROSECONDS)
        head = f"<b>{html.escape(row.name)}</b> <span style='color:{colour}'>{VERBS[row.state]}</span> {took}"
        parts = [self._progress, self._metrics, self._notice, end or row.reason.text]
        below = "".join(f"<div>{html.escape(part)}</div>" for part in parts if part)
        lines = html.escape("\n".join(self._lines))
        return f"<div>{head}{below}<pre style='margin:0;opacity:.8'>{lines}</pre></div>"
