"""The columns of the table of jobs: which are shown at which width, and what stands in each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from screens.style import status
from screens.style.glyphs import glyphs
from workbench import formats
from workbench.job import TERMINAL, short_id
from workbench.services.inspect.job_times import run_seconds, unseen_seconds
from workbench.store.db.rows import JobRow


@dataclass(frozen=True, slots=True)
class Figures:
    """What a job's learners have reported last, as far as a list shows it."""

    step: int | None = None
    loss: float | None = None
    fraction: float | None = None
    """How much is done, from 0 to 1, where the job says so."""
    progress: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One row to be shown."""

    job: JobRow
    figures: Figures
    now_us: int


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a row's column, and by which role it is coloured."""

    text: str
    role: str = "text"


@dataclass(frozen=True, slots=True)
class JobColumn:
    """One column; ``width`` 0 takes a share of what is left."""

    title: str
    """The name by which a saved layout keeps it."""
    width: int
    cell: Callable[[Line], Cell]
    align: Literal["left", "right"] = "left"
    sort: str = ""
    """The name it is sorted by in a listing, or empty."""
    from_width: int = 0
    """The narrowest table that shows it."""
    shown_title: str = ""
    """What stands above it, where that is not its title."""

    @property
    def heading(self) -> str:
        """What stands above it, and what a person types to choose it."""
        return self.shown_title or self.title


def _backend(line: Line) -> Cell:
    return Cell(formats.printable(line.job.target.backend))


def _state(line: Line) -> Cell:
    if unseen_seconds(line.job, line.now_us) is not None:
        return Cell(f"{glyphs().lost} {line.job.state.lower()}", "dim")
    if line.job.intent:
        verb = {"halt": "halting", "kill": "killing", "delete": "deleting"}[line.job.intent]
        return Cell(f"{status.look(line.job.state).shape} {verb}", "warning")
    return Cell(str(status.look(line.job.state)), line.job.state.lower())


def _progress(line: Line) -> Cell:
    fraction = line.figures.fraction
    if fraction is None:
        return Cell("")
    return Cell(f"{max(0.0, min(1.0, fraction)):.0%}", "dim")


def _eta(line: Line) -> Cell:
    fraction, seconds = line.figures.fraction, run_seconds(line.job, line.now_us)
    if not fraction or seconds is None or not 0 < fraction < 1 or line.job.ended_us is not None:
        return Cell("")
    return Cell(formats.short_duration(seconds * (1 - fraction) / fraction), "dim")


def _step(line: Line) -> Cell:
    return Cell("" if line.figures.step is None else str(line.figures.step))


def _rate(line: Line) -> Cell:
    """Return steps a second since the command started, while it runs."""
    seconds, step = run_seconds(line.job, line.now_us), line.figures.step
    if not step or not seconds or line.job.state in TERMINAL:
        return Cell("")
    return Cell(formats.compact_number(step / seconds), "dim")


def _loss(line: Line) -> Cell:
    return Cell("" if line.figures.loss is None else formats.compact_number(line.figures.loss))


def _time(line: Line) -> Cell:
    seconds = run_seconds(line.job, line.now_us)
    return Cell("" if seconds is None else formats.short_duration(seconds))


def _age(line: Line) -> Cell:
    return Cell(formats.short_duration((line.now_us - line.job.submitted_us) / 1e6), "dim")


def _why(line: Line) -> Cell:
    failed = status.is_problem(line.job)
    return Cell(status.why(line.job, line.now_us), "error" if failed else "dim")


def _tags(line: Line) -> Cell:
    return Cell(formats.printable(" ".join(line.job.tags)), "dim")


def _exit(line: Line) -> Cell:
    code = line.job.exit_code
    return Cell("" if code is None else str(code), "dim" if code == 0 else "error")


# fmt: off
COLUMNS: Final = (
    JobColumn("state", 13, _state, sort="state"),
    JobColumn("name", 0, lambda line: Cell(formats.printable(line.job.name)), sort="name"),
    JobColumn("id", 9, lambda line: Cell(short_id(line.job.id), "dim"), sort="submitted"),
    JobColumn("place", 8, _backend, "left", "place", 70, shown_title="backend"),
    JobColumn("runner", 9, lambda line: Cell(line.job.target.runner, "dim"), from_width=130),
    JobColumn("gpus", 4, lambda line: Cell(str(line.job.gpus or "")), "right", "gpus", 110),
    JobColumn("step", 7, _step, "right", "", 62),
    JobColumn("step/s", 7, _rate, "right", "", 135),
    JobColumn("loss", 9, _loss, "right", "", 55),
    JobColumn("done", 4, _progress, "right", "", 76),
    JobColumn("left", 4, _eta, "right", "", 120),
    JobColumn("time", 4, _time, "right", "time", 50),
    JobColumn("age", 4, _age, "right", "", 90),
    JobColumn("exit", 4, _exit, "right", "exit", 100),
    JobColumn("tags", 12, _tags, from_width=150),
    JobColumn("why", 0, _why, from_width=100),
)
# fmt: on

GAP: Final = 1
_NAME_LEAST: Final = 10


def layout(width: int, titles: Sequence[str] = ()) -> list[tuple[JobColumn, int]]:
    """Choose columns for a table so wide, or those of the given titles, and how many cells each gets."""
    known = {column.title: column for column in COLUMNS}
    shown = [known[title] for title in titles if title in known]
    shown = shown or [column for column in COLUMNS if column.from_width <= width]
    fixed = sum(column.width for column in shown) + GAP * (len(shown) - 1)
    flexible = [column for column in shown if not column.width]
    left = max(_NAME_LEAST * len(flexible), width - fixed)
    share: Mapping[str, int] = {}
    if len(flexible) == 2:  # a name is short, a reason is not
        name = max(_NAME_LEAST, min(28, left * 2 // 5))
        share = {"name": name, "why": left - name}
    return [(column, column.width or share.get(column.title, left)) for column in shown]
