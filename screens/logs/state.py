"""How a log is shown: what is followed, found, hidden, marked; and the texts that say so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from screens.core.app_protocol import Part
from screens.logs.document import LogDocument, Sieve
from screens.logs.render import Manner
from screens.style import status
from screens.style.glyphs import glyphs
from screens.style.notices import NOTHING, EmptyNotice, no_output
from workbench import formats
from workbench.logs.grep import Pattern
from workbench.logs.levels import Level
from workbench.store.db.rows import JobRow

LEVELS = (Level.NONE, Level.WARNING, Level.ERROR)


class LogState:
    """Everything that keys change; it draws nothing and reads nothing."""

    def __init__(self) -> None:
        self.job: JobRow | None = None
        self.attempt = 1
        self.learner = 0
        """0 shows all, merged by time."""
        self.follow = True
        self.wrap = False
        self.times = "none"
        self.left = 0
        self.cursor = 0
        self.known_rows = 0
        """How many rows there were when following stopped."""
        self.marks: set[int] = set()
        """Rows; they are dropped when rows come to stand for other lines."""
        self.selected_from: int | None = None
        """The row at which a selection began; it goes to the cursor."""
        self.sieve = Sieve()
        self.filter_text = ""
        self.find_text = ""
        self.find: Pattern | None = None
        self.wanted_row: int | None = None
        """The row that the log was left on, until it is there."""
        self.note = ""
        """What became of the last search."""
        self.window = 0

    def new_log(self) -> None:
        """Forget what belongs to the log that was shown before."""
        self.cursor, self.known_rows, self.note, self.left = 0, 0, "", 0
        self.follow = True
        self.window = 0
        self.sieve = replace(self.sieve, since_us=None)
        self.marks.clear()
        self.selected_from = None

    @property
    def selection(self) -> range:
        """The rows that are selected; none when nothing is."""
        if self.selected_from is None:
            return range(0)
        return range(min(self.selected_from, self.cursor), max(self.selected_from, self.cursor) + 1)

    def manner(self, width: int) -> Manner:
        """Return how lines are shown."""
        job = self.job
        several = job is not None and job.learners > 1 and not self.learner
        return Manner(
            width=width,
            wrap=self.wrap,
            times=self.times,
            start_us=(job.started_us or job.submitted_us) if job else 0,
            gutter=len(str(job.learners)) if several and job else 0,
            left=0 if self.wrap else self.left,
            find=self.find,
        )

    def empty(self, document: LogDocument | None, now_us: int) -> EmptyNotice:
        """Say why there are no rows."""
        job = self.job
        if document is not None and document.lines and not self.sieve.open:
            return (
                EmptyNotice("looking")
                if document.looked_at < 1
                else EmptyNotice("no line matches", "esc shows all")
            )
        return NOTHING if job is None else no_output(job, now_us, is_earlier=self.attempt != job.attempt)

    def indicator(self, document: LogDocument | None) -> Iterator[Part]:
        """Say in one line how rows are shown, and which."""
        count = document.count if document else 0
        lines = document.lines if document else 0
        job = self.job
        ended = job is not None and (self.attempt != job.attempt or not status.is_open(job))
        if self.follow:
            yield ("end" if ended else "follow", "accent")
        else:
            yield f"{self.cursor + 1:,}/{count:,}", "text"
            if new := max(0, count - self.known_rows):
                yield f"+{new:,} new {'line' if new == 1 else 'lines'} {glyphs().down}", "accent"
        if self.selected_from is not None:
            yield f"{formats.count(len(self.selection), 'line')} selected", "accent"
        if job is not None and job.attempt > 1:
            yield (
                f"attempt {self.attempt}/{job.attempt}",
                "text" if self.attempt == job.attempt else "warning",
            )
        if job is not None and job.learners > 1:
            yield f"learner {self.learner or 'all'}", "text"
        if not self.sieve.open:
            yield f"{count:,} of {lines:,} lines", "accent"
        elif lines:
            yield formats.count(lines, "line"), "dim"
        if document is not None and document.looked_at < 1:
            yield f"{formats.percent(document.looked_at)} filtered", "dim"
        if self.filter_text:
            yield f"only {formats.printable(self.filter_text)}", "accent"
        if self.sieve.least_level is not Level.NONE:
            yield f"{self.sieve.least_level.name.lower()}s", "accent"
        if self.window:
            yield _WINDOWS[self.window], "accent"
        if self.find_text:
            yield f"/{formats.printable(self.find_text)}", "text"
        if counted := self._hits(document):
            yield counted, "text"
        if self.note:
            yield self.note, "warning"
        for on, name in ((self.wrap, "wrap"), (self.times != "none", f"times {self.times}")):
            if on:
                yield name, "dim"

    def _hits(self, document: LogDocument | None) -> str:
        """Say how many rows have what is looked for, and which of them the cursor is on: ``3 of 17``."""
        count = (
            document.hits(self.find, self.cursor) if document is not None and self.find is not None else None
        )
        if count is None:
            return ""
        if not count.total:
            return "counting" if not count.complete else "" if self.note else "no match"
        total = f"{count.total:,}{'' if count.complete else '+'}"
        if count.number:
            return f"{count.number:,} of {total}"
        return f"{total} {'match' if total == '1' else 'matches'}"


_WINDOWS = ("all", "last 1 m", "last 5 m", "last 15 m", "last 30 m", "last 60 m")
WINDOW_MINUTES = (0, 1, 5, 15, 30, 60)
