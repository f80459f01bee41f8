"""The last lines of a job's output with their levels: read backwards, and only when the output has grown."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.segment import Segment
from textual.strip import Strip

from screens.logs.colours import coloured
from screens.style import text
from screens.style.glyphs import glyphs
from screens.widgets.ansi import strip_of
from workbench.logs.journal import JournalReader
from workbench.logs.levels import Level, classify
from workbench.logs.sanitise import sanitise
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.values import dataclass

if TYPE_CHECKING:
    from rich.style import Style

    from screens.style.themes import Paint

READ_MOST: Final = 256 * 1024
"""No more than this is read, however long the lines are."""


class TailLine(NamedTuple):
    """One line, as it is shown, and its level."""

    text: str
    level: Level

    def strip(self, width: int, paint: Paint, base: Style) -> Strip:
        """Draw as much of it as there is room for; a sign stands where it goes on."""
        cut = self.text[: width * 4]  # what is out of sight is not decoded; colours take characters too
        shown = coloured(cut, self.level, paint)
        if text.cells(shown.plain) <= width:
            return strip_of(shown, width, base)
        sign = Strip([Segment(glyphs().more, base + paint.style("dim"))])
        return Strip.join([strip_of(shown, width - 1, base), sign])


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log; ``size`` tells whether it has grown."""

    job_id: str
    lines: tuple[TailLine, ...]
    size: int


def tail(home: Home, job: JobRow, lines: int) -> Callable[[Store], Tail]:
    """Return the query for a job's last lines; it keeps the journal open as long as it is asked."""
    reader = JournalReader(home.job(job.id).attempt(job.attempt).learner(1))
    last = Tail(job.id, (), 0)

    def read(store: Store) -> Tail:
        nonlocal last
        del store
        end = reader.published()
        if end != last.size:
            start = max(reader.tail_offset(lines), end - READ_MOST)
            data = reader.read(start, end - start)
            last = Tail(job.id, _lines(data)[-lines:], end)
        return last

    return read


def _lines(data: bytes) -> tuple[TailLine, ...]:
    lines = data.decode("utf-8", "replace").removesuffix("\n").split("\n")
    shown = [sanitise(last_state(line)).replace("\n", " ") for line in lines]
    levels, _ = classify("".join(f"{line}\n" for line in shown).encode("utf-8", "replace"))
    return tuple(TailLine(line, Level(level)) for line, level in zip(shown, levels, strict=True))


def last_state(line: str) -> str:
    r"""Return what a line with carriage returns shows in the end: its last state that is not blank."""
    if "\r" not in line:
        return line
    states = [state for state in line.split("\r") if state.strip()]
    return states[-1] if states else ""
